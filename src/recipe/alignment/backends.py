"""Many alignments at once: the layout of a batch, and which implementation computes it.

`W` is float32 [S, C], row-major: the segments of all narrations one below the other, one column per step,
so that it is the product of stored embeddings [S, d] with step embeddings [d, C] as it comes; nothing is padded.
Narration n owns the rows `offsets[n]:offsets[n + 1]`. In a *group*, the sequences h + c_1, ..., h + c_G share the
columns of h: those are the first `bounds[0]`, and c_g owns the columns `bounds[g - 1]:bounds[g]`.
"""

import importlib
import importlib.util
from typing import NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recipe.errors import InputError, MissingExtra

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]

BACKENDS = {"cpu": "recipe.alignment.cpu", "reference": "recipe.alignment.reference"}
"""Name to module, fastest first."""

_NEEDS = {"cpu": "numba"}
"""The package that a backend cannot run without; the extra of the backend's name installs it."""


class GroupAlignment(NamedTuple):
    """A_NW of h (row 0) and of h + c_g (row g) against each narration; a sequence without steps scores 0."""

    score: Float32
    """[G + 1, N], 1e-6 to 1."""
    length: NDArray[np.int32]
    """[G + 1, N], |pi*|, the number of moves on the optimal path."""


class FreeAlignment(NamedTuple):
    """What h (row 0) and each h + c_g (row g) earn against each narration where gaps are free, float64 [G + 1, N]."""

    matched: NDArray[np.float64]
    """Each step owns at most one segment, and each segment at most one step."""
    covered: NDArray[np.float64]
    """Each segment belongs to one step at most; a step may explain many."""


class Backend(Protocol):
    """The batch functions that every backend module exports; each raises InputError for a batch of another layout."""

    def grouped_monotone_coverage(self, W: ArrayLike, bounds: ArrayLike, offsets: ArrayLike) -> Float32: ...

    def grouped_needleman_wunsch(
        self, W: ArrayLike, bounds: ArrayLike, offsets: ArrayLike, gap: float = ...
    ) -> GroupAlignment: ...

    def grouped_free_alignment(self, W: ArrayLike, bounds: ArrayLike, offsets: ArrayLike) -> FreeAlignment: ...

    def precedence(self, W: ArrayLike, offsets: ArrayLike) -> NDArray[np.float64]: ...


def available() -> tuple[str, ...]:
    """Names of the backends that can run here, fastest first."""
    return tuple(name for name in BACKENDS if name not in _NEEDS or importlib.util.find_spec(_NEEDS[name]) is not None)


def load(name: str = "auto") -> Backend:
    """The backend of that name; `auto` takes the fastest available. Raises InputError, MissingExtra."""
    if name == "auto":
        name = available()[0]
    if name not in BACKENDS:
        raise InputError(f"Unknown alignment backend {name!r}; choose auto, {', '.join(BACKENDS)}.")
    if name not in available():
        raise MissingExtra(f"the alignment backend {name!r}", extra=name)
    return cast(Backend, importlib.import_module(BACKENDS[name]))


def ragged(W: ArrayLike, offsets: ArrayLike, bounds: ArrayLike | None = None) -> tuple[Float32, Int64, Int64]:
    """W, bounds and offsets of a batch, checked, in the number formats and memory order that kernels read.

    Without `bounds` all columns are those of h. Costs O(N + G). Raises InputError.
    """
    W = np.ascontiguousarray(W, dtype=np.float32)
    if W.ndim != 2:
        raise InputError(f"Similarities have shape {W.shape}; give segments by steps.")
    rows, columns = W.shape
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    bounds = np.ascontiguousarray([columns] if bounds is None else bounds, dtype=np.int64)
    for marks, limit, rise, problem in (
        (offsets, rows, 1, f"Offsets must rise within the {rows} segments, by one or more each."),
        (bounds, columns, 0, f"Bounds must lie within the {columns} columns and must not fall."),
    ):
        inside = marks.ndim == 1 and marks.size > 0 and marks[0] >= 0 and marks[-1] <= limit
        if not inside or (np.diff(marks) < rise).any():
            raise InputError(problem)
    return W, bounds, offsets
