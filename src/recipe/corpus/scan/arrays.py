"""The arrays of a shard: mapped into memory, or read piece by piece where they are larger than it."""

import os
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from recipe.errors import CorpusError


class Spans(NamedTuple):
    """Rows in spans: the p-th of those asked for is rows[offsets[numbers[p]]:offsets[numbers[p] + 1]]."""

    rows: NDArray[Any]
    offsets: NDArray[np.int64]
    numbers: NDArray[np.int64]


class Rows(Protocol):
    """A two-dimensional array on disk."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its numbers."""
        ...

    def rows(self, first: int, last: int) -> NDArray[Any]:
        """Rows first:last, contiguous. Raises CorpusError where they cannot be read."""
        ...

    def spans(self, offsets: NDArray[np.int64], numbers: NDArray[np.int64]) -> Spans:
        """An array that holds the rows offsets[n]:offsets[n + 1] of each n in numbers [P]. Raises CorpusError."""
        ...


class Mapped:
    """An array whose pages the system reads when they are touched, and keeps while there is room."""

    def __init__(self, path: Path) -> None:
        self._array = np.asarray(np.load(path, mmap_mode="r"))
        self.shape, self.dtype = self._array.shape, self._array.dtype

    def rows(self, first: int, last: int) -> NDArray[Any]:
        """Rows first:last, contiguous."""
        return self._array[first:last]

    def spans(self, offsets: NDArray[np.int64], numbers: NDArray[np.int64]) -> Spans:
        """The array itself, with the spans as they are."""
        return Spans(self._array, offsets, numbers)


class Streamed:
    """An array that is read into fresh memory at every call, and takes none between them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as stream:
            if npy.read_magic(stream) != (1, 0):
                raise ValueError("not an array of version 1.0")
            self.shape, _, self.dtype = npy.read_array_header_1_0(stream)
            self._start = stream.tell()

    def rows(self, first: int, last: int) -> NDArray[Any]:
        """Rows first:last, contiguous. Raises CorpusError where they cannot be read."""
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
        """The spans asked for and no others, each once. Raises CorpusError where they cannot be read."""
        found, places = np.unique(numbers, return_inverse=True)
        parts = [self.rows(int(offsets[n]), int(offsets[n + 1])) for n in found]
        return Spans(np.concatenate(parts), np.cumsum([0, *map(len, parts)]), places)
