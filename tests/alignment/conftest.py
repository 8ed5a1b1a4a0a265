"""Groups of sequences against narrations, and every backend that runs here."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from recipe.alignment import backends
from recipe.alignment.backends import Backend


class Group(NamedTuple):
    """A batch as the backends take it: similarities [S, C], bounds of the sequences, offsets of the narrations."""

    W: NDArray[np.float32]
    bounds: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def similarities(self, row: int, n: int) -> NDArray[np.float32]:
        """W [M, L] of h (row 0) or h + c_row with one narration."""
        own = range(self.bounds[row - 1], self.bounds[row]) if row else ()
        return self.W[self.offsets[n] : self.offsets[n + 1], [*range(self.bounds[0]), *own]].T


@st.composite
def groups(draw: st.DrawFn, *, calibrated: bool = False) -> Group:
    """Any batch. The first two rows and the last three are no narration's, and hold NaN.

    Half of them are of multiples of 1/64, so that sums are exact and ties are ties; `calibrated` ones are, and about a
    third of their similarities are 0.
    """
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    steps = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    W = np.full((sum(lengths) + 5, sum(steps)), np.nan, np.float32)
    exact = calibrated or draw(st.booleans())
    W[2:-3] = rng.integers(-32, 64, W[2:-3].shape) / 64 if exact else rng.uniform(-1, 1, W[2:-3].shape)
    return Group(np.maximum(W, 0) if calibrated else W, np.cumsum(steps), 2 + np.cumsum([0, *lengths]))


@pytest.fixture(scope="module", params=list(backends.BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each backend in turn."""
    if request.param not in backends.available():
        pytest.skip(f"the packages of backend {request.param} are not installed")
    return backends.load(request.param)
