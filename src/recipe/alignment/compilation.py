"""How kernels are compiled: on their first call, kept on disk where that is possible."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(function: Kernel) -> Kernel:
    """A kernel that holds no interpreter lock; cached in this or the user's cache folder, whichever can be written."""
    try:
        return cast(Kernel, numba.njit(nogil=True, error_model="numpy", cache=True)(function))
    except RuntimeError:  # Numba's answer to a read-only installation without a writable home.
        return cast(Kernel, numba.njit(nogil=True, error_model="numpy")(function))
