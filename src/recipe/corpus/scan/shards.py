"""Shards opened for a search: codes and vectors mapped into memory or read piece by piece, offsets and bounds in it."""

import errno
import math
import os
import tokenize
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from recipe.corpus.integrity import check_shards
from recipe.corpus.layout import (
    BOUNDS,
    CODES,
    EMBEDDINGS,
    OFFSETS,
    SHARDS,
    Manifest,
    ShardRecord,
    damaged,
    live_counts,
    padded,
    removed_rows,
)
from recipe.errors import CorpusError
from recipe.memory import available

Spans = tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]
"""Rows, offsets and numbers: the p-th requested span is rows[offsets[numbers[p]]:offsets[numbers[p] + 1]]."""


class MappedArray:
    """An array on disk whose pages the system reads when they are touched, and keeps while there is room."""

    _array: NDArray[Any]

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], start: int) -> None:
        """The numbers begin `start` bytes into the file. Raises OSError, ValueError."""
        self.shape, self.dtype = shape, dtype
        # A plain array, because every slice of a memmap makes an object of its class.
        self._array = np.asarray(np.memmap(path, dtype, "r", start, shape))

    def part(self, first: int, last: int) -> "MappedArray":
        """Rows first:last as an array of their own, on the same mapping."""
        part = object.__new__(MappedArray)
        part._array = self._array[first:last]
        part.shape, part.dtype = part._array.shape, self.dtype
        return part

    def rows(self, first: int, last: int) -> NDArray[Any]:
        """Rows first:last, contiguous."""
        return self._array[first:last]

    def spans(self, offsets: NDArray[np.int64], numbers: NDArray[np.int64]) -> Spans:
        """An array that holds the rows offsets[n]:offsets[n + 1] of each n in numbers [P]: the whole one."""
        return self._array, offsets, numbers


class StreamedArray:
    """An array on disk that is read into fresh memory at every call, and takes none between them."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], start: int) -> None:
        """The numbers begin `start` bytes into the file."""
        self._path, self.shape, self.dtype, self._start = path, shape, dtype, start

    def part(self, first: int, last: int) -> "StreamedArray":
        """Rows first:last as an array of their own."""
        start = self._start + first * self.dtype.itemsize * math.prod(self.shape[1:])
        return StreamedArray(self._path, (last - first, *self.shape[1:]), self.dtype, start)

    def rows(self, first: int, last: int) -> NDArray[Any]:
        """Rows first:last, contiguous. Raises CorpusError where they cannot be read."""
        array = np.empty((last - first, *self.shape[1:]), self.dtype)
        view, at = array.data.cast("B"), self._start + first * array.strides[0]
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            while view:
                # At a position of its own: threads share the file, and no position.
                count = os.preadv(descriptor, [view], at)
                if count == 0:
                    raise CorpusError(f"{self._path}: the file ends early; run `recipe corpus verify` on the corpus.")
                view, at = view[count:], at + count
        finally:
            os.close(descriptor)
        return array

    def spans(self, offsets: NDArray[np.int64], numbers: NDArray[np.int64]) -> Spans:
        """The requested spans and no others, each once. Raises CorpusError where they cannot be read."""
        # A narration that survives for several queries is read once.
        unique, indices = np.unique(numbers, return_inverse=True)
        parts = [self.rows(int(offsets[n]), int(offsets[n + 1])) for n in unique]
        return np.concatenate(parts), np.cumsum([0, *map(len, parts)]), indices


class Shard(NamedTuple):
    """One shard, or a part of one that has no removed narration in it.

    S segments of N narrations, the first of which has the number `first` in the corpus.
    """

    folder: Path
    first: int
    offsets: NDArray[np.int64]
    """[N + 1]: first segment of each narration."""
    bounds: NDArray[np.float32]
    """[N, 3]: scale, residual and norm (`recipe.corpus.scan.quantise.quantise`)."""
    codes: MappedArray | StreamedArray
    """int8 [S, D]."""
    embeddings: MappedArray | StreamedArray
    """float16 [S, d]."""
    verified: bool
    """Every file is known to match its checksum; false for a large corpus that was not verified since it was copied."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


def open_shards(
    folder: Path, manifest: Manifest, numbers: Sequence[int] | None = None, streamed: bool | None = None
) -> list[Shard]:
    """The shards of these numbers, or all; streamed by default where the codes exceed the memory.

    A shard with removed narrations comes as the parts between them, so that no search sees those. Raises CorpusError
    for a shard that is missing or damaged.
    """
    first = np.cumsum([0, *(live_counts(shard)["narrations"] for shard in manifest["shards"])])
    chosen = range(len(manifest["shards"])) if numbers is None else numbers
    records = [manifest["shards"][number] for number in chosen]
    if streamed is None:
        size = sum(shard["files"][CODES]["bytes"] for shard in records)
        # Mapped codes beyond the memory would be read, dropped and read again by pages; a stream is read once in order.
        free = available()
        streamed = free is not None and size > free
    known = check_shards(folder, records)
    dimension = manifest["encoder"]["dimension"]
    try:
        return [
            part
            for number, record, verified in zip(chosen, records, known, strict=True)
            for part in _open(folder, record, int(first[number]), dimension, streamed, verified)
        ]
    except OSError as error:
        if streamed or error.errno != errno.ENOMEM:
            raise
    # A limit on addresses (ulimit -v) leaves no room to map the files, whatever memory there is.
    return open_shards(folder, manifest, numbers, streamed=True)


def _open(folder: Path, record: ShardRecord, first: int, dimension: int, streamed: bool, verified: bool) -> list[Shard]:
    path = folder / SHARDS / record["name"]
    narrations, segments = record["narrations"], record["segments"]
    kind = StreamedArray if streamed else MappedArray
    try:
        offsets, bounds = (
            _array(path / name, shape, dtype, StreamedArray).rows(0, shape[0])
            for name, shape, dtype in ((OFFSETS, (narrations + 1,), np.int64), (BOUNDS, (narrations, 3), np.float32))
        )
        codes = _array(path / CODES, (segments, padded(dimension)), np.int8, kind)
        embeddings = _array(path / EMBEDDINGS, (segments, dimension), np.float16, kind)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise
        raise damaged(path, error) from None
    # Kernels index by these without any check of bounds.
    if offsets[0] != 0 or offsets[-1] != segments or (np.diff(offsets) < 1).any():
        raise damaged(path, f"{OFFSETS} does not divide {segments} segments among {narrations} narrations")
    # A bound that is NaN would exclude nothing, a negative one the best narration.
    if not (np.isfinite(bounds) & (bounds >= 0)).all():
        raise damaged(path, f"{BOUNDS} holds a number that is negative or not finite")
    gone = removed_rows(record)
    if not gone:
        return [Shard(path, first, offsets, bounds, codes, embeddings, verified)]
    parts = []
    for before, row in pairwise([-1, *gone, narrations]):
        start = before + 1
        if start < row:
            rows = int(offsets[start]), int(offsets[row])
            part = offsets[start : row + 1] - offsets[start]
            parts.append(
                Shard(path, first, part, bounds[start:row], codes.part(*rows), embeddings.part(*rows), verified)
            )
            first += row - start
    return parts


# What NumPy raises for a header that is no header.
_HEADER_ERRORS = (ValueError, TypeError, KeyError, SyntaxError, OverflowError, MemoryError, tokenize.TokenError)


def _array(
    path: Path, shape: tuple[int, ...], dtype: type[np.generic], kind: type[MappedArray] | type[StreamedArray]
) -> MappedArray | StreamedArray:
    """An array file whose header says what the manifest says. Raises CorpusError, OSError."""
    try:
        with path.open("rb") as stream:
            version = npy.read_magic(stream)
            header = npy.read_array_header_1_0(stream) if version == (1, 0) else None
            start = stream.tell()
    except _HEADER_ERRORS as error:
        raise damaged(path.parent, f"{path.name}: {error}") from None
    expected = np.dtype(dtype)
    if header != (shape, False, expected) or path.stat().st_size != start + expected.itemsize * math.prod(shape):
        raise damaged(path.parent, f"{path.name} does not hold {expected} {shape}")
    return kind(path, shape, expected, start)
