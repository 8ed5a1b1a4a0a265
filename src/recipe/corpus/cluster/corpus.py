"""A corpus whose searches run on a Ray cluster, for whatever takes a `Corpus`."""

from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from recipe.config import EncoderConfig
from recipe.corpus.cluster.search import Placement, ShardedIndex, Vectors
from recipe.corpus.encoders import Encoder
from recipe.corpus.searched import Searched
from recipe.corpus.store import Corpus
from recipe.types import Narration


class ClusterCorpus(Searched):
    """A corpus read here, for its encoder, texts and single vectors, and searched by actors; a context manager.

    Open one with `ClusterCorpus.open`.
    """

    def __init__(self, corpus: Corpus, index: ShardedIndex) -> None:
        self.corpus = corpus
        self.index: ShardedIndex = index

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
    def offsets(self) -> NDArray[np.int64]:
        """Row of each narration's first segment among all segments, as `Corpus.offsets`."""
        return self.corpus.offsets

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
