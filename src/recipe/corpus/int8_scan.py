"""Stage 1 over codes in one pass: tiles of integer similarities and, before they leave the cache, A_mono's programme.

Sums of integers have no rounding, so that a narration's sum is the same on every path, in every tile and on every
thread: M A_mono of the codes, to be scaled by one number a narration and one a batch of queries.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.compilation import compiled
from recipe.corpus.dots import (
    LANES,
    PANEL_GROUPS,
    PANEL_ROWS,
    ROWS,
    STEPS,
    advance,
    advance_single,
    panel_dots,
    tile_dots,
)

Packed = NDArray[Any]

TILE = 32
"""Segments whose similarities are held until the dynamic programme takes them."""


@compiled
def scan_single(
    codes: NDArray[np.int8],
    offsets: NDArray[np.int64],
    packed: Packed,
    starts: NDArray[np.int32],
    columns: NDArray[np.int32],
    first: int,
    last: int,
    sums: NDArray[np.int32],
) -> None:
    """Write the sums of few queries with the narrations first:last into sums [N, Q].

    codes int8 [S, D], row 0 being the first segment of narration `first`; offsets [N + 1], none empty; packed: rows of
    steps (`pack_rows`); columns int32 [Q, M]: the row of each query's steps.
    """
    queries, steps = columns.shape
    W = np.empty((TILE + 1, len(packed)), np.int32)  # a row more, for what is read beyond the last column
    best = np.empty((queries, steps, 4), np.int32)
    w, c, b = W.ctypes.data, columns.ctypes.data, best.ctypes.data
    width, size, state = W.strides[0], columns.strides[0], best.strides[0]
    n, origin, end = first, offsets[first], offsets[last]
    for start in range(origin, end, TILE):
        stop = min(start + TILE, end)
        _dot_rows(codes, packed, starts, start - origin, stop - origin, W)
        for k in range(start, stop):
            for q in range(queries):
                row = w + (k - start) * width
                sums[n, q] = advance_single(row, c + q * size, steps, b + q * state, k == offsets[n])
            if k + 1 == offsets[n + 1]:
                n += 1


@compiled
def scan_batch(
    codes: NDArray[np.int8],
    offsets: NDArray[np.int64],
    packed: Packed,
    starts: NDArray[np.int32],
    columns: NDArray[np.int32],
    kinds: NDArray[np.int32],
    W: NDArray[np.int32],
    best: NDArray[np.int32],
    first: int,
    last: int,
    sums: NDArray[np.int32],
) -> None:
    """The same for many queries: sums [N, 16 B], columns int32 [B, M, 16] and kinds int32 [B, M] as of `advance`.

    packed: rows or panels of steps (`pack_panels`); W int32 [TILE, columns] and best int32 [B, M, 16] are scratch on
    cache lines.
    """
    groups, steps = columns.shape[:2]
    width = steps * LANES * 4
    n, origin, end = first, offsets[first], offsets[last]
    for start in range(origin, end, TILE):
        stop = min(start + TILE, end)
        if packed.ndim == 4:
            _dot_panels(codes, packed, start - origin, stop - origin, W)
        else:
            _dot_rows(codes, packed, starts, start - origin, stop - origin, W)
        for k in range(start, stop):
            w, out = W[k - start :].ctypes.data, sums[n:].ctypes.data
            c, f, b, fresh = columns.ctypes.data, kinds.ctypes.data, best.ctypes.data, k == offsets[n]
            for _ in range(groups):
                advance(packed, w, c, f, steps, b, fresh, out)
                c, f, b, out = c + width, f + steps * 4, b + width, out + LANES * 4
            if k + 1 == offsets[n + 1]:
                n += 1


@compiled
def _dot_rows(
    codes: NDArray[np.int8], packed: Packed, starts: NDArray[np.int32], first: int, last: int, W: NDArray[np.int32]
) -> None:
    d = codes.shape[1]
    x, q, s, w = codes.ctypes.data, packed.ctypes.data, starts.ctypes.data, W.ctypes.data
    size, width = packed.strides[0], W.strides[0]
    for k in range(first, last, ROWS):
        k1, k2, k3 = min(k + 1, last - 1), min(k + 2, last - 1), min(k + 3, last - 1)
        rows = (x + k * d, x + k1 * d, x + k2 * d, x + k3 * d)
        for i in range(0, len(packed), STEPS):
            to = w + i * 4 - first * width
            out = (to + k * width, to + k1 * width, to + k2 * width, to + k3 * width)
            tile_dots(packed, rows, q + i * size, d, s + i * 4, out)


@compiled
def _dot_panels(codes: NDArray[np.int8], packed: Packed, first: int, last: int, W: NDArray[np.int32]) -> None:
    d = codes.shape[1]
    x, q, w = codes.ctypes.data, packed.ctypes.data, W.ctypes.data
    stride = W.strides[0]
    excess = np.empty(TILE, np.int32)
    for k in range(first, last):
        total = np.int32(0)
        for j in range(d):
            total += np.int32(codes[k, j])
        excess[k - first] = 128 * total
    e = excess.ctypes.data
    for group in range(0, len(packed), PANEL_GROUPS):
        steps, out = q + group * LANES * d, w + group * LANES * 4
        for row in range(0, last - first, PANEL_ROWS):
            rows = min(PANEL_ROWS, last - first - row)
            panel_dots(x + (first + row) * d, d, rows, steps, e + row * 4, out + row * stride, stride)
