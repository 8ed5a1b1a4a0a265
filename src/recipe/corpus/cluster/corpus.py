"""A corpus whose searches run on a Ray cluster, for whatever takes a `Corpus`."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from recipe.config import EncoderConfig
from recipe.corpus.cluster.search import Placement, ShardedIndex, Vectors
from recipe.corpus.encoders import Encoder
from recipe.corpus.store import Corpus
from recipe.errors import InputError
from recipe.types import Hit, Narration


class ClusterCorpus:
    """A corpus read here, for its encoder, texts and single vectors, and searched by actors; a context manager.

    Open one with `ClusterCorpus.open`.
    """

    def __init__(self, corpus: Corpus, index: ShardedIndex) -> None:
        self.corpus = corpus
        self.index = index

    @classmethod
    def open(
        cls, path: Path | str, actors: int, placement: Placement | None = None, *, encoder: EncoderConfig | None = None
    ) -> Self:
        """The corpus in the folder `path`, as `Corpus.open`, searched as by `ShardedIndex.open`. Raises as both."""
        corpus = Corpus.open(path, encoder)
        return cls(corpus, ShardedIndex.open(path, actors, placement or Placement()))

    def close(self) -> None:
        """Stop the actors, and the cluster where it was started for them."""
        self.index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.corpus)

    @property
    def encoder(self) -> Encoder:
        """The corpus's encoder, loaded in this process on first use. Raises EncoderMismatch."""
        return self.corpus.encoder

    def narration(self, index: int) -> Narration:
        """The narration at `index` in corpus order, as `Corpus.narration`."""
        return self.corpus.narration(index)

    def embeddings(self, index: int) -> Vectors:
        """Unit-norm float32 [L, d] of a narration's segments, as `Corpus.embeddings`."""
        return self.corpus.embeddings(index)

    def search(self, steps: Sequence[str], k: int = 25) -> list[Hit]:
        """The k narrations of the highest A_mono with `steps`, best first, ties in corpus order. Raises InputError."""
        return self.search_many([steps], k)[0]

    def search_many(self, queries: Sequence[Sequence[str]], k: int = 25) -> list[list[Hit]]:
        """The same for several lists of steps, in one scan. Raises InputError where one has no steps."""
        if not all(queries):
            raise InputError("there are no steps to search with; give at least one.")
        if not queries:
            return []
        vectors = self.encoder.encode([step for steps in queries for step in steps])
        ends = np.cumsum([len(steps) for steps in queries])
        return [found.hits for found in self.index.search(np.split(vectors, ends[:-1]), k)]

    def search_vectors(self, queries: Vectors, k: int = 25) -> list[Hit]:
        """The same for steps given as unit-norm vectors, float32 [M, d]. Raises as `ShardedIndex.search`."""
        return self.search_batch([queries], k)[0]

    def search_batch(self, queries: Sequence[Vectors], k: int = 25) -> list[list[Hit]]:
        """The same for many queries, in one scan. Raises as `ShardedIndex.search`."""
        return [found.hits for found in self.index.search(queries, k)]
