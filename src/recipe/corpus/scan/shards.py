"""Shards opened for a search: codes and vectors mapped into memory or read piece by piece, offsets and bounds in it."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from recipe.corpus.layout import (
    BOUNDS,
    CODES,
    EMBEDDINGS,
    OFFSETS,
    SHARDS,
    Manifest,
    ShardRecord,
    damaged,
    padded,
    require_files,
)
from recipe.errors import CorpusError
from recipe.memory import available


class Spans(NamedTuple):
    """Rows in spans: the p-th requested span is rows[offsets[numbers[p]]:offsets[numbers[p] + 1]]."""

    rows: NDArray[Any]
    offsets: NDArray[np.int64]
    numbers: NDArray[np.int64]


class DiskArray(Protocol):
    """A two-dimensional array on disk."""

    @property
    def shape(self) -> tuple[int, ...]:
        """DiskArray and columns."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its numbers."""
        ...

    def rows(self, first: int, last: int) -> NDArray[Any]:
        """DiskArray first:last, contiguous. Raises CorpusError where they cannot be read."""
        ...

    def spans(self, offsets: NDArray[np.int64], numbers: NDArray[np.int64]) -> Spans:
        """An array that holds the rows offsets[n]:offsets[n + 1] of each n in numbers [P]. Raises CorpusError."""
        ...


class MappedArray:
    """An array whose pages the system reads when they are touched, and keeps while there is room."""

    def __init__(self, path: Path) -> None:
        self._array = np.asarray(np.load(path, mmap_mode="r"))
        self.shape, self.dtype = self._array.shape, self._array.dtype

    def rows(self, first: int, last: int) -> NDArray[Any]:
        """DiskArray first:last, contiguous."""
        return self._array[first:last]

    def spans(self, offsets: NDArray[np.int64], numbers: NDArray[np.int64]) -> Spans:
        """The array itself, with the spans as they are."""
        return Spans(self._array, offsets, numbers)


class StreamedArray:
    """An array that is read into fresh memory at every call, and takes none between them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as stream:
            if npy.read_magic(stream) != (1, 0):
                raise ValueError("not an array of version 1.0")
            self.shape, _, self.dtype = npy.read_array_header_1_0(stream)
            self._start = stream.tell()

    def rows(self, first: int, last: int) -> NDArray[Any]:
        """DiskArray first:last, contiguous. Raises CorpusError where they cannot be read."""
        array = np.empty((last - first, *self.shape[1:]), self.dtype)
        view, at = array.data.cast("B"), self._start + first * array.strides[0]
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            while view:
                count = os.preadv(descriptor, [view], at)
                if count == 0:
                    raise CorpusError(f"{self._path}: the file ends early; run `recipe corpus verify` on the corpus.")
                view, at = view[count:], at + count
        finally:
            os.close(descriptor)
        return array

    def spans(self, offsets: NDArray[np.int64], numbers: NDArray[np.int64]) -> Spans:
        """The requested spans and no others, each once. Raises CorpusError where they cannot be read."""
        unique, places = np.unique(numbers, return_inverse=True)
        parts = [self.rows(int(offsets[n]), int(offsets[n + 1])) for n in unique]
        return Spans(np.concatenate(parts), np.cumsum([0, *map(len, parts)]), places)


class Shard(NamedTuple):
    """One shard; S segments of N narrations, the first of which has the number `first` in the corpus."""

    folder: Path
    first: int
    offsets: NDArray[np.int64]
    """[N + 1]: first segment of each narration."""
    bounds: NDArray[np.float32]
    """[N, 3]: scale, residual and norm (`recipe.corpus.scan.quantise.Codes`)."""
    codes: DiskArray
    """int8 [S, D]."""
    embeddings: DiskArray
    """float16 [S, d]."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


class Bounds(NamedTuple):
    """Bounds on what the codes of N narrations lose, in float64."""

    scales: NDArray[np.float64]
    """[N]: scale of a narration's codes."""
    errors: NDArray[np.float64]
    """[N, 2]: largest residual and largest norm."""
    largest: NDArray[np.float64]
    """[2]: the same over all narrations."""


def joined_bounds(shards: Sequence[Shard]) -> Bounds:
    """The bounds of the shards' narrations in turn."""
    bounds = np.concatenate([shard.bounds for shard in shards]).astype(np.float64)
    scales, errors = np.ascontiguousarray(bounds[:, 0]), np.ascontiguousarray(bounds[:, 1:])
    return Bounds(scales, errors, errors.max(axis=0))


def open_shards(
    folder: Path, manifest: Manifest, numbers: Sequence[int] | None = None, streamed: bool | None = None
) -> list[Shard]:
    """The shards of these numbers, or all; streamed by default where the codes exceed the memory.

    Raises CorpusError for a shard that is missing or damaged.
    """
    first = np.cumsum([0, *(shard["narrations"] for shard in manifest["shards"])])
    chosen = range(len(manifest["shards"])) if numbers is None else numbers
    records = [manifest["shards"][number] for number in chosen]
    if streamed is None:
        size = sum(shard["files"][CODES]["bytes"] for shard in records)
        free = available()
        streamed = free is not None and size > free
    dimension = manifest["encoder"]["dimension"]
    try:
        return [
            _open(folder, record, int(first[number]), dimension, streamed)
            for number, record in zip(chosen, records, strict=True)
        ]
    except OSError as error:
        if streamed or error.errno != errno.ENOMEM:
            raise
    # A limit on addresses (ulimit -v) leaves no room to map the files, whatever memory there is.
    return open_shards(folder, manifest, numbers, streamed=True)


def _open(folder: Path, record: ShardRecord, first: int, dimension: int, streamed: bool) -> Shard:
    here = folder / SHARDS / record["name"]
    require_files(here, record)
    kind = StreamedArray if streamed else MappedArray
    try:
        codes, embeddings = kind(here / CODES), kind(here / EMBEDDINGS)
        offsets, bounds = np.load(here / OFFSETS), np.load(here / BOUNDS)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise
        raise damaged(here, error) from None
    except ValueError as error:
        raise damaged(here, error) from None
    for name, array, shape, dtype in (
        (EMBEDDINGS, embeddings, (offsets[-1], dimension), np.float16),
        (CODES, codes, (offsets[-1], padded(dimension)), np.int8),
        (BOUNDS, bounds, (len(offsets) - 1, 3), np.float32),
    ):
        if array.shape != shape or array.dtype != dtype:
            raise damaged(here, f"{name} holds {array.dtype} {array.shape}")
    return Shard(here, first, offsets, bounds, codes, embeddings)
