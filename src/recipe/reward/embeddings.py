"""Step texts to vectors, each text encoded once, and what a verifier reads of a corpus."""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from threading import Lock
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from recipe.errors import ComputeError, InputError
from recipe.text import whole_text
from recipe.types import Hit, Narration

Vectors = NDArray[np.float32]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

STEPS_KEPT = 32_768
"""Step embeddings in memory: 128 MiB at 1024 dimensions."""


class TextEncoder(Protocol):
    """What embeds steps: the corpus's own encoder."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Unit-norm float32 [n, d]."""
        ...


class NarrationIndex(Protocol):
    """What a verifier needs of a corpus."""

    @property
    def encoder(self) -> TextEncoder: ...

    @property
    def offsets(self) -> NDArray[np.int64]:
        """First segment of each narration in the corpus, and their number, [N + 1]."""
        ...

    def __len__(self) -> int: ...

    def narration(self, index: int) -> Narration: ...

    def embeddings(self, index: int) -> Vectors:
        """Unit-norm float32 [L, d]."""
        ...

    def similarities(self, narrations: Sequence[int], steps: Vectors) -> tuple[Vectors, NDArray[np.int64]]:
        """Products of all segments of P narrations with steps [n, d], float32 [S, n], and their offsets [P + 1].

        A product does not depend on the other steps and narrations, to the last bit.
        """
        ...

    def search_batch(self, queries: Sequence[Vectors], k: int) -> list[list[Hit]]:
        """For each query [M, d] the k narrations of the highest A_mono, best first, ties in corpus order."""
        ...


class LruCache(Generic[Key, Value]):
    """Keeps the `capacity` values used last; safe to share between threads.

    >>> cache = LruCache[str, int](capacity=2)
    >>> for key in "aba": cache.put(key, ord(key))
    >>> cache.put("c", 99)
    >>> cache.get("b"), cache.get("a")
    (None, 97)
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key) -> Value | None:
        """The value kept for `key`, None where there is none."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Keep `value`, and drop the values used longest ago where the cache is full."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._capacity:
                self._values.popitem(last=False)


class StepEmbeddings:
    """An encoder with a bounded memory, since a policy writes the same steps again; safe to share between threads."""

    def __init__(self, encoder: TextEncoder, capacity: int = STEPS_KEPT) -> None:
        self._encoder = encoder
        self._kept = LruCache[str, Vectors](capacity)

    def by_text(self, texts: Sequence[str]) -> dict[str, Vectors]:
        """A float32 [d] for each distinct text; new texts are encoded in one call. Raises InputError, ComputeError."""
        distinct = dict.fromkeys(texts)
        if any(not text.strip() for text in distinct):
            raise InputError("A step is empty; give every step some text.")
        for text in distinct:
            whole_text("step", text)
        vectors = {text: vector for text in distinct if (vector := self._kept.get(text)) is not None}
        if missing := [text for text in distinct if text not in vectors]:
            try:
                encoded = np.asarray(self._encoder.encode(missing), dtype=np.float32)
            except (OSError, RuntimeError, ValueError) as error:  # what model libraries and connections raise
                raise ComputeError(f"The encoder failed on {len(missing)} steps: {error}.") from error
            if len(encoded) != len(missing) or not np.isfinite(encoded).all():
                raise ComputeError(f"The encoder gave no usable vectors for {len(missing)} steps; check its model.")
            for text, vector in zip(missing, encoded, strict=True):
                vectors[text] = vector
                self._kept.put(text, vector)
        return vectors

    def stacked(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the texts in order, float32 [n, d], n >= 1. Raises InputError, ComputeError."""
        return stacked(self.by_text(texts), texts)


def stacked(vectors: Mapping[str, Vectors], texts: Sequence[str]) -> Vectors:
    """Rows float32 [n, d] of the texts, n >= 1."""
    return np.stack([vectors[text] for text in texts])
