"""The layout in which every backend takes many alignments at once, without padding.

`W` is float32 [S, C], row-major: the segments of all narrations one below the other, one column per step,
so that it is the product of stored embeddings [S, d] with step embeddings [d, C] as it comes. Narration n
owns the rows `offsets[n]:offsets[n + 1]`. In a *group*, the sequences h + c_1, ..., h + c_G share the columns
of h: those are the first `bounds[0]`, and c_g owns the columns `bounds[g - 1]:bounds[g]`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recipe.errors import InputError

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]


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


class Ragged(NamedTuple):
    """Arguments that have been checked, in the number formats and memory order that kernels read."""

    W: Float32
    offsets: Int64
    bounds: Int64


def ragged(W: ArrayLike, offsets: ArrayLike, bounds: ArrayLike | None = None) -> Ragged:
    """Check a batch; without `bounds` all columns are those of h. Costs O(N + G). Raises InputError."""
    W = np.ascontiguousarray(W, dtype=np.float32)
    if W.ndim != 2:
        raise InputError(f"Similarities have shape {W.shape}; give segments by steps.")
    rows, columns = W.shape
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    if not _rises(offsets, rows, by=1):
        raise InputError(f"Offsets must rise within the {rows} segments, by one or more each.")
    bounds = np.ascontiguousarray([columns] if bounds is None else bounds, dtype=np.int64)
    if not _rises(bounds, columns, by=0):
        raise InputError(f"Bounds must lie within the {columns} columns and must not fall.")
    return Ragged(W, offsets, bounds)


def _rises(marks: Int64, limit: int, by: int) -> bool:
    inside = marks.ndim == 1 and marks.size > 0 and marks[0] >= 0 and marks[-1] <= limit
    return bool(inside and (np.diff(marks) >= by).all())
