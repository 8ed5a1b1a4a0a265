"""How kernels are compiled; a module of its own because only the modules that hold kernels may import Numba."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(function: Kernel) -> Kernel:
    """A kernel that holds no interpreter lock, compiled on its first call.

    The machine code is kept in this or the user's cache folder, whichever can be written.
    """
    try:
        return cast(Kernel, numba.njit(nogil=True, error_model="numpy", cache=True)(function))
    except RuntimeError:  # Numba's answer to a read-only installation without a writable home.
        return cast(Kernel, numba.njit(nogil=True, error_model="numpy")(function))
