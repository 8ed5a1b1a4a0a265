"""Step texts to vectors, each text encoded once: a policy writes the same steps over and over."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from threading import Lock
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from recipe.errors import ComputeError, InputError

# A bounded memory of computed values that threads share.


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """Keeps the `capacity` values used last.

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

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value kept for `key`, None where there is none."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Keep `value`, and forget what was used longest ago where the cache is full."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._capacity:
                self._values.popitem(last=False)


# Step texts to vectors, each text encoded once: a policy writes the same steps over and over.


Vectors = NDArray[np.float32]


STEPS_KEPT = 32_768
"""Step embeddings in memory: 128 MiB at 1024 dimensions."""


class TextEncoder(Protocol):
    """What embeds steps: the corpus's own encoder."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Unit-norm float32 [n, d]."""
        ...


class StepEmbeddings:
    """An encoder with a bounded memory; safe to share between threads."""

    def __init__(self, encoder: TextEncoder, capacity: int = STEPS_KEPT) -> None:
        self._encoder = encoder
        self._known = LruCache[str, Vectors](capacity)

    def __call__(self, texts: Sequence[str]) -> list[Vectors]:
        """A float32 [d] for each text; new texts are encoded in one call. Raises InputError, ComputeError."""
        if any(not text.strip() for text in texts):
            raise InputError("A step is empty; give every step some text.")
        distinct = dict.fromkeys(texts)
        vectors = {text: vector for text in distinct if (vector := self._known.get(text)) is not None}
        if missing := [text for text in distinct if text not in vectors]:
            for text, vector in zip(missing, self._encode(missing), strict=True):
                vectors[text] = vector
                self._known.put(text, vector)
        return [vectors[text] for text in texts]

    def stacked(self, texts: Sequence[str]) -> Vectors:
        """The same as one float32 [n, d], n >= 1."""
        return np.stack(self(texts))

    def _encode(self, texts: Sequence[str]) -> Vectors:
        try:
            vectors = np.asarray(self._encoder.encode(texts), dtype=np.float32)
        except (OSError, RuntimeError, ValueError) as error:  # what model libraries and connections raise
            raise ComputeError(f"The encoder failed on {len(texts)} steps: {error}.") from error
        if len(vectors) != len(texts) or not np.isfinite(vectors).all():
            raise ComputeError(f"The encoder gave no usable vectors for {len(texts)} steps; check its model.")
        return vectors
