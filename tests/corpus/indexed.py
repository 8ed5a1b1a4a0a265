"""Corpora of chosen vectors, and what an index must answer about them, by the reference in float64."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.reference import monotone_coverage
from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.encoders import HashEncoder
from recipe.corpus.index import Index
from recipe.progress import SILENT, Progress
from recipe.types import Hit, Narration, Segment


class Numbered(HashEncoder):
    """An encoder of texts that are the numbers of its vectors."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        super().__init__(vectors.shape[1])
        self.vectors = vectors

    @property
    def identity(self) -> Any:
        return super().identity | {"name": "numbered"}

    def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
        return self.vectors[[int(text) for text in texts]]


def unit(generator: np.random.Generator, rows: int, dimension: int) -> NDArray[np.float32]:
    vectors = generator.standard_normal((rows, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def write_corpus(folder: Path, narrations: Sequence[NDArray[np.float32]], shard_size: int = 4096) -> Path:
    """A corpus whose narrations have these unit-norm vectors [L, d]."""
    numbers = iter(range(sum(map(len, narrations))))
    spoken = [
        Narration(f"v{n}", tuple(Segment(str(next(numbers))) for _ in vectors)) for n, vectors in enumerate(narrations)
    ]
    config = CorpusConfig(encoder=EncoderConfig(name="numbered"), shard_size=shard_size)
    return build_corpus(spoken, folder, config, encoder=Numbered(np.concatenate(narrations)))


def oracle(index: Index, queries: NDArray[np.float32], k: int) -> list[Hit]:
    """The k best by the reference, on the stored vectors in float64; equal scores in corpus order."""
    scores = []
    for shard in index.shards:
        stored = shard.embeddings.rows(0, int(shard.offsets[-1])).astype(np.float64)
        W = queries.astype(np.float64) @ stored.T
        bounds = zip(shard.offsets[:-1], shard.offsets[1:], strict=True)
        scores += [(monotone_coverage(W[:, a:b]), shard.first + n) for n, (a, b) in enumerate(bounds)]
    best = sorted(scores, key=lambda item: (-item[0], item[1]))[:k]
    return [Hit(number, score) for score, number in best]


def same(found: list[Hit], wanted: list[Hit], tolerance: float = 1e-12) -> bool:
    """Equal scores, and equal narrations wherever the oracle's own rounding leaves no doubt of the order."""
    scores = np.array([[hit.score for hit in hits] for hits in (found, wanted)])
    if not np.allclose(*scores, rtol=0, atol=tolerance):
        return False
    clear = np.abs(np.diff(scores[1], prepend=np.inf, append=-np.inf)) > 2 * tolerance
    certain = clear[:-1] & clear[1:]
    certain[-1] = False  # the one after the last is not known
    return all(a.narration == b.narration for a, b, sure in zip(found, wanted, certain, strict=True) if sure)
