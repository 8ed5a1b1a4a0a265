"""Which implementation aligns a batch: Numba where it is installed, else the reference in NumPy."""

import importlib
import importlib.util
from typing import Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recipe.alignment.reference import Float32, FreeAlignment, GroupAlignment
from recipe.errors import InputError, MissingExtra

BACKENDS = {"cpu": "recipe.alignment.cpu", "reference": "recipe.alignment.reference"}
"""Name to module, fastest first."""

NEEDED_PACKAGES = {"cpu": "numba"}
"""The package that a backend cannot run without; the extra of the backend's name installs it."""


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
    return tuple(
        name
        for name in BACKENDS
        if name not in NEEDED_PACKAGES or importlib.util.find_spec(NEEDED_PACKAGES[name]) is not None
    )


def load(name: str = "auto") -> Backend:
    """The backend of that name; `auto` takes the fastest available. Raises InputError, MissingExtra."""
    # By what is installed, never by a failed run: a broken kernel must not hide behind the slower reference.
    if name == "auto":
        name = available()[0]
    if name not in BACKENDS:
        raise InputError(f"Unknown alignment backend {name!r}; choose auto, {', '.join(BACKENDS)}.")
    if name not in available():
        raise MissingExtra(f"the alignment backend {name!r}", extra=name)
    return cast(Backend, importlib.import_module(BACKENDS[name]))
