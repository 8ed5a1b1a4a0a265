"""Stage 1 for steps given as texts or vectors, wherever the index lies: in this process, on GPUs or with actors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from recipe.corpus.encoders import Encoder
from recipe.corpus.scan.certificate import Found
from recipe.errors import InputError
from recipe.types import Hit


class Searcher(Protocol):
    """What answers queries of vectors: an `Index`, or several."""

    def search(self, queries: Sequence[NDArray[np.float32]], k: int = 25) -> list[Found]:
        """For each query [M_i, d] the k narrations of the highest A_mono."""
        ...


class Searched(ABC):
    """An encoder and an index; this is stage 1 (paper, section 3.2)."""

    index: Searcher

    @property
    @abstractmethod
    def encoder(self) -> Encoder:
        """The encoder of the index."""

    def search(self, steps: Sequence[str], k: int = 25) -> list[Hit]:
        """The k narrations of the highest A_mono with `steps`, best first, ties in corpus order.

        Raises InputError where there are no steps, and what the index raises.
        """
        if not steps:
            raise InputError("there are no steps to search with; give at least one.")
        return self.search_vectors(self.encoder.encode(steps), k)

    def search_many(self, queries: Sequence[Sequence[str]], k: int = 25) -> list[list[Hit]]:
        """The same for many lists of steps, each distinct step encoded and multiplied once. Raises as `search`."""
        if not all(queries):
            raise InputError("a query has no steps; give each at least one.")
        texts = {step: None for query in queries for step in query}
        vectors = dict(zip(texts, self.encoder.encode(list(texts)), strict=True)) if texts else {}
        return self.search_batch([np.stack([vectors[step] for step in query]) for query in queries], k)

    def search_vectors(self, queries: NDArray[np.float32], k: int = 25) -> list[Hit]:
        """The same for one query given as unit-norm vectors, float32 [M, d]. Raises what the index raises."""
        return self.search_batch([queries], k)[0]

    def search_batch(self, queries: Sequence[NDArray[np.float32]], k: int = 25) -> list[list[Hit]]:
        """The same for many queries, in one scan; steps that recur are multiplied once. Raises as `search_vectors`."""
        return [found.hits for found in self.index.search(queries, k)]
