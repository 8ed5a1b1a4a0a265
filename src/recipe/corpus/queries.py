"""Queries for the integer scan: unique steps, quantised with one scale, packed as each path wants them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.corpus.dots import LANES, PANEL_GROUPS
from recipe.corpus.quantise import LARGEST, rotate


class Queries(NamedTuple):
    """Q queries over U unique steps."""

    vectors: NDArray[np.float32]
    """[U, d]: the unique steps."""
    codes: NDArray[np.int8]
    """[U, D]: their codes."""
    scale: float
    """Of all codes: R q is about scale * code."""
    steps: NDArray[np.int32]
    """[Q, M]: row in `codes` of each query's steps, -1 after its last."""
    lengths: NDArray[np.int64]
    """[Q]: number of steps."""
    norms: NDArray[np.float64]
    """[Q]: mean over a query's steps of ||q||."""
    residuals: NDArray[np.float64]
    """[Q]: mean over a query's steps of ||R q - scale * code||."""


def quantise_queries(queries: Sequence[NDArray[np.float32]]) -> Queries:
    """Queries [M_i, d] with equal steps merged, and the codes of the unique ones."""
    lengths = np.array([len(query) for query in queries])
    stacked = np.ascontiguousarray(np.concatenate(list(queries)), dtype=np.float32)
    rows: dict[bytes, int] = {}
    index = [rows.setdefault(step.tobytes(), len(rows)) for step in stacked]
    vectors = np.frombuffer(b"".join(rows), np.float32).reshape(len(rows), -1)
    rotated = rotate(vectors)
    scale = float(np.abs(rotated).max()) / LARGEST or 1.0
    codes = np.rint(rotated / scale)
    steps = np.full((len(queries), lengths.max()), -1, np.int32)
    steps[np.arange(steps.shape[1]) < lengths[:, None]] = index
    lost = np.linalg.norm(rotated - scale * codes, axis=1)
    norm = np.linalg.norm(vectors.astype(np.float64), axis=1)
    present = steps >= 0
    norms, residuals = (np.where(present, values[steps], 0).sum(axis=1) / lengths for values in (norm, lost))
    return Queries(vectors, codes.astype(np.int8), scale, steps, lengths, norms, residuals)


class Layout(NamedTuple):
    """Where a batch's unique steps are among the columns of its similarities."""

    positions: NDArray[np.int64]
    """[U]: column of each unique step."""
    columns: NDArray[np.int32]
    """[B, M, 16]: column of each step of 16 queries; its complement where the 16 are not one block."""
    width: int
    """Columns, a multiple of what a panel takes; those of no step are zero."""


def lay_out(queries: Queries) -> Layout:
    """Columns such that the i-th steps of 16 queries lie side by side wherever no other query shares one of them.

    A query's steps after its last, and the queries that fill up the last 16, read a column of zeros: a similarity of
    zero at the end of a query, or at all of it, leaves the sum of A_mono as it is.
    """
    steps = _filled(queries.steps)
    positions = np.full(len(queries.codes), -1, np.int64)
    blocks = 0
    adjacent = np.zeros(steps.shape[:2], bool)
    for at in np.ndindex(adjacent.shape):
        wanted = steps[at]
        adjacent[at] = (wanted >= 0).all() and (positions[wanted] < 0).all() and len(set(wanted.tolist())) == LANES
        if adjacent[at]:
            positions[wanted] = blocks * LANES + np.arange(LANES)
            blocks += 1
    loose = np.flatnonzero(positions < 0)
    positions[loose] = blocks * LANES + np.arange(len(loose))
    used = blocks * LANES + len(loose)
    zero = used
    columns = np.where(steps >= 0, positions[steps], zero).astype(np.int32)
    columns[~adjacent] = ~columns[~adjacent]
    return Layout(positions, cache_lines(columns), _multiple(used + int(not adjacent.all()), LANES * PANEL_GROUPS))


def _filled(steps: NDArray[np.int32]) -> NDArray[np.int32]:
    """Steps [Q, M] as [B, M, 16], -1 for the queries that are not there."""
    groups = -(-len(steps) // LANES)
    filled = np.full((groups * LANES, steps.shape[1]), -1, np.int32)
    filled[: len(steps)] = steps
    return filled.reshape(groups, LANES, -1).transpose(0, 2, 1)


def cache_lines(array: NDArray[Any]) -> NDArray[Any]:
    """A contiguous copy that begins on a cache line."""
    copy = scratch(array.shape, array.dtype)
    copy[...] = array
    return copy


def scratch(shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
    """An array that begins on a cache line, its content arbitrary."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    array: NDArray[Any] = memory[start : start + size].view(kind).reshape(shape)
    return array


def _multiple(count: int, of: int) -> int:
    return -(-count // of) * of
