"""The arrays of a shard: mapped into memory, or read piece by piece where they are larger than it."""

import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from recipe.errors import CorpusError


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


class Mapped:
    """An array whose pages the system reads when they are touched, and keeps while there is room."""

    def __init__(self, path: Path) -> None:
        self._array = np.asarray(np.load(path, mmap_mode="r"))
        self.shape, self.dtype = self._array.shape, self._array.dtype

    def rows(self, first: int, last: int) -> NDArray[Any]:
        """Rows first:last, contiguous."""
        return self._array[first:last]


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
