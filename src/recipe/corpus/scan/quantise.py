"""Vectors to 8-bit codes with bounds on the error of every dot product, and queries laid out for the integer scan.

A fixed orthogonal map R (random signs, then a Walsh-Hadamard transform) first spreads each vector evenly over its
coordinates, so that one step size a narration serves all of them. Everything is float64 in a fixed order, rounded once:
the same vectors give the same bytes on every machine.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.cpu import compiled
from recipe.corpus.layout import padded
from recipe.corpus.scan.integers import IN_BLOCK, IN_ORDER, LANES, PANEL_GROUPS, SCATTERED

LARGEST = 127
VECTORS_AT_ONCE = 4096
"""Vectors widened to float64 at a time."""
# Rounds a float64 up beyond what its float32 may lose, and beyond the error of the rotation itself.
_UP = 1 + 2.0**-22
# Columns of a block that may stay empty: cheaper than gathering 16 steps from several blocks.
_SPARE = 3


def rotate(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """R x for the rows of `vectors` [n, d]: float64 [n, D]. Dot products stay what they are."""
    n, d = vectors.shape
    rotated = np.zeros((n, padded(d)))
    rotated[:, :d] = vectors
    _rotate(rotated, *_rotation(padded(d)))
    return rotated


def quantise(
    embeddings: NDArray[np.float16], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """The codes [S, D] of vectors [S, d] in narrations that begin at the rows `offsets` [N + 1], none empty.

    Also the bounds [N, 3] of each narration: scale, largest residual and largest norm. With R the rotation, x a stored
    vector and c its code: ||R x - scale c|| <= residual, ||scale c|| <= norm.
    """
    codes = np.empty((len(embeddings), padded(embeddings.shape[1])), np.int8)
    bounds = np.empty((len(offsets) - 1, 3), np.float32)
    first = 0
    while first < len(bounds):
        last = max(int(np.searchsorted(offsets, offsets[first] + VECTORS_AT_ONCE, side="right")) - 1, first + 1)
        rows = slice(offsets[first], offsets[last])
        part_offsets = offsets[first : last + 1] - offsets[first]
        _quantise(rotate(embeddings[rows]), part_offsets, codes[rows], bounds[first:last])
        first = last
    return codes, bounds


@cache
def _rotation(size: int) -> tuple[int, NDArray[np.float64], NDArray[np.int64]]:
    """Length of a Hadamard block, the signs of two rounds [2, D], and the order in between [D].

    Where D is a power of two one block covers it; else the order deals each block's results to all blocks.
    """
    block = size & -size
    # Signs from a hash and not from a generator, whose numbers another release of NumPy may change.
    bits = np.frombuffer(hashlib.shake_256(b"rotation").digest(size // 4), np.uint8)
    signs = 1 - 2 * np.unpackbits(bits).reshape(2, size).astype(np.float64)
    order = np.arange(size, dtype=np.int64).reshape(-1, block).T.ravel()
    return block, signs, order


@compiled
def _rotate(z: NDArray[np.float64], block: int, signs: NDArray[np.float64], order: NDArray[np.int64]) -> None:
    """Rotate the rows of z [n, D] in place."""
    size = z.shape[1]
    rounds = 1 if block == size else 2
    # Makes the transform orthogonal: norms and products stay what they are.
    scale = 1 / np.sqrt(np.float64(block))
    kept = np.empty(size)
    for row in range(len(z)):
        x = z[row]
        for turn in range(rounds):
            for j in range(size):
                kept[j] = x[j]
            for j in range(size):
                x[j] = kept[order[j] if turn else j] * signs[turn, j] * scale
            half = 1
            while half < block:
                for start in range(0, size, 2 * half):
                    low, high = x[start : start + half], x[start + half : start + 2 * half]
                    for j in range(half):
                        a, b = low[j], high[j]
                        low[j], high[j] = a + b, a - b
                half *= 2


@compiled
def _quantise(
    z: NDArray[np.float64], offsets: NDArray[np.int64], codes: NDArray[np.int8], bounds: NDArray[np.float32]
) -> None:
    size = z.shape[1]
    for n in range(len(offsets) - 1):
        largest = 0.0
        for k in range(offsets[n], offsets[n + 1]):
            for j in range(size):
                largest = max(largest, abs(z[k, j]))
        # One step size a narration, so that sums of codes need no factor before the maximum over its segments.
        scale = np.float32(largest / LARGEST * _UP) if largest > 0 else np.float32(1)
        residual = norm = 0.0
        for k in range(offsets[n], offsets[n + 1]):
            lost = kept = 0.0
            for j in range(size):
                code = np.rint(z[k, j] / scale)
                codes[k, j] = np.int8(code)
                value = code * np.float64(scale)
                # What rounding took: |<q, x> - <q, code>| <= ||q|| ||residual|| (Cauchy and Schwarz), the bound of the
                # certificate.
                lost += (z[k, j] - value) ** 2
                kept += value**2
            residual = max(residual, np.sqrt(lost))
            norm = max(norm, np.sqrt(kept))
        bounds[n, 0] = scale
        bounds[n, 1] = np.float32(residual * _UP + 1e-9)
        bounds[n, 2] = np.float32(norm * _UP + 1e-9)


class Queries(NamedTuple):
    """Q queries over U unique steps."""

    isa: str
    """The instruction set that can multiply the codes; `portable` codes are of 8 bits and suit any but `avx2`."""
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

    @classmethod
    def quantised(cls, queries: Sequence[NDArray[np.float32]], isa: str) -> "Queries":
        """Queries [M_i, d] with equal steps merged, and the codes of the unique ones, for this instruction set."""
        lengths = np.array([len(query) for query in queries])
        stacked = np.ascontiguousarray(np.concatenate(list(queries)), dtype=np.float32)
        # Completions of one prompt share the steps of h: 64 sequences of 6 + 2 steps are 134 columns and not 512.
        rows: dict[bytes, int] = {}
        index = [rows.setdefault(step.tobytes(), len(rows)) for step in stacked]
        vectors = np.frombuffer(b"".join(rows), np.float32).reshape(len(rows), -1)
        # Rotated in float64: the error of the rotation itself is far below what `_UP` leaves for it.
        rotated = rotate(vectors)
        largest = np.abs(rotated).max()
        if isa == "avx2":
            # The products of two neighbours are added in 16 bits. Codes of segments count as up to 255 there, so that
            # two codes of a step may sum to 128 at most. Rounding adds up to 1 to a sum of 127.
            largest = max(largest, np.abs(rotated[:, ::2] + rotated[:, 1::2]).max())
        scale = float(largest) / LARGEST or 1.0
        codes = np.rint(rotated / scale)
        steps = np.full((len(queries), lengths.max()), -1, np.int32)
        steps[np.arange(steps.shape[1]) < lengths[:, None]] = index
        lost = np.linalg.norm(rotated - scale * codes, axis=1)
        norm = np.linalg.norm(vectors.astype(np.float64), axis=1)
        present = steps >= 0
        norms, residuals = (np.where(present, values[steps], 0).sum(axis=1) / lengths for values in (norm, lost))
        return cls(isa, vectors, codes.astype(np.int8), scale, steps, lengths, norms, residuals)


def lay_out(queries: Queries) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], int]:
    """Columns such that the i-th steps of 16 queries lie in one block of 16 wherever that leaves few columns empty.

    A query's steps after its last, and the queries that fill up the last 16, read a column of zeros: a similarity of
    zero at the end of a query, or at all of it, leaves the sum of A_mono as it is.

    Returns the column of each unique step [U], the column of each step of 16 queries [B, M, 16], how these 16 lie
    (`IN_ORDER`, `IN_BLOCK` or `SCATTERED`) [B, M], and the number of columns, a multiple of what a panel takes.
    """
    groups, longest = -(-len(queries.steps) // LANES), queries.steps.shape[1]
    filled = np.full((groups * LANES, longest), -1, np.int32)
    filled[: len(queries.steps)] = queries.steps
    steps = filled.reshape(groups, LANES, -1).transpose(0, 2, 1)
    kinds, zeros = np.empty((2, groups, longest), np.int32)
    plan = _ColumnPlan(len(queries.codes))
    for index in np.ndindex(kinds.shape):
        kinds[index], zeros[index] = plan.place(list(dict.fromkeys(steps[index].tolist())))
    columns = np.where(steps >= 0, plan.positions[steps], zeros[:, :, None]).astype(np.int32)
    width = -(-plan.width // (LANES * PANEL_GROUPS)) * LANES * PANEL_GROUPS
    return plan.positions, cache_lines(columns), cache_lines(kinds), width


class _ColumnPlan:
    """Columns given to unique steps, block by block; the step -1 is the column of zeros of a block that needs one."""

    def __init__(self, unique: int) -> None:
        self.positions = np.full(unique, -1, np.int64)
        self.width = 0
        # Columns left in the block that is being filled.
        self._free: list[int] = []
        self._zeros: dict[int, int] = {}

    def place(self, steps: list[int]) -> tuple[int, int]:
        """Give columns to those of 16 queries' distinct steps that have none; how all lie, and which column is zero."""
        new = [step for step in steps if step >= 0 and self.positions[step] < 0]
        if len(new) == LANES:
            self.positions[new] = self._block()
            return IN_ORDER, 0
        blocks = {int(self.positions[step]) // LANES for step in steps if step >= 0 and step not in new}
        if not blocks:
            if len(self._free) <= _SPARE < len(steps):
                self._free = self._block()
            if len(steps) <= len(self._free):
                blocks = {self._free[0] // LANES}
        elif new or (-1 in steps and not blocks <= self._zeros.keys()):
            blocks = set()
        for step in new:
            self.positions[step] = self._column()
        zero = 0
        if -1 in steps:  # the column of zeros of the block, or of any
            block = next(iter(blocks or self._zeros), None)
            if block in self._zeros:
                zero = self._zeros[block]
            else:
                zero = self._column()
                self._zeros[zero // LANES] = zero
        return (IN_BLOCK if len(blocks) == 1 else SCATTERED), zero

    def _column(self) -> int:
        if not self._free:
            self._free = self._block()
        return self._free.pop(0)

    def _block(self) -> list[int]:
        self.width += LANES
        return list(range(self.width - LANES, self.width))


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
