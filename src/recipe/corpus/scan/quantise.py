"""Vectors to 8-bit codes, with what bounds the error of every dot product taken from them.

A fixed orthogonal map R (random signs, then a Walsh-Hadamard transform) first spreads each vector evenly over its
coordinates, so that one step size a narration serves all of them. Everything is float64 in a fixed order, rounded
once: the same vectors give the same bytes on every machine.
"""

import hashlib
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.compilation import compiled
from recipe.corpus.layout import padded

LARGEST = 127
_ROWS = 4096
"""Vectors widened to float64 at a time."""
_UP = 1 + 2.0**-22
"""Rounds a float64 up beyond what its float32 may lose, and beyond the error of the rotation itself."""


class Codes(NamedTuple):
    """Quantised vectors, int8 [S, D], and float32 [N, 3] a narration: scale, largest residual, largest norm.

    With R the rotation, x a stored vector and c its code: ||R x - scale c|| <= residual, ||scale c|| <= norm.
    """

    codes: NDArray[np.int8]
    bounds: NDArray[np.float32]


def rotate(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """R x for the rows of `vectors` [n, d]: float64 [n, D]. Dot products stay what they are."""
    n, d = vectors.shape
    rotated = np.zeros((n, padded(d)))
    rotated[:, :d] = vectors
    _rotate(rotated, *_rotation(padded(d)))
    return rotated


def quantise(embeddings: NDArray[np.float16], offsets: NDArray[np.int64]) -> Codes:
    """The codes of vectors [S, d] in narrations that begin at the rows `offsets` [N + 1], none empty."""
    codes = np.empty((len(embeddings), padded(embeddings.shape[1])), np.int8)
    bounds = np.empty((len(offsets) - 1, 3), np.float32)
    first = 0
    while first < len(bounds):
        last = max(int(np.searchsorted(offsets, offsets[first] + _ROWS, side="right")) - 1, first + 1)
        rows = slice(offsets[first], offsets[last])
        here = offsets[first : last + 1] - offsets[first]
        _quantise(rotate(embeddings[rows]), here, codes[rows], bounds[first:last])
        first = last
    return Codes(codes, bounds)


@cache
def _rotation(size: int) -> tuple[int, NDArray[np.float64], NDArray[np.int64]]:
    """Length of a Hadamard block, the signs of two rounds [2, D], and the order in between [D].

    Where D is a power of two one block covers it; else the order deals each block's results to all blocks.
    """
    block = size & -size
    bits = np.frombuffer(hashlib.shake_256(b"rotation").digest(size // 4), np.uint8)
    signs = 1 - 2 * np.unpackbits(bits).reshape(2, size).astype(np.float64)
    order = np.arange(size, dtype=np.int64).reshape(-1, block).T.ravel()
    return block, signs, order


@compiled
def _rotate(z: NDArray[np.float64], block: int, signs: NDArray[np.float64], order: NDArray[np.int64]) -> None:
    """Rotate the rows of z [n, D] in place."""
    size = z.shape[1]
    rounds = 1 if block == size else 2
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
        scale = np.float32(largest / LARGEST * _UP) if largest > 0 else np.float32(1)
        residual = norm = 0.0
        for k in range(offsets[n], offsets[n + 1]):
            lost = kept = 0.0
            for j in range(size):
                code = np.rint(z[k, j] / scale)
                codes[k, j] = np.int8(code)
                value = code * np.float64(scale)
                lost += (z[k, j] - value) ** 2
                kept += value**2
            residual = max(residual, np.sqrt(lost))
            norm = max(norm, np.sqrt(kept))
        bounds[n, 0] = scale
        bounds[n, 1] = np.float32(residual * _UP + 1e-9)
        bounds[n, 2] = np.float32(norm * _UP + 1e-9)
