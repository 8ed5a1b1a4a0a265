"""Narrations whose vectors are made, not encoded.

A vector is a common mean, the topic of its narration, the stage of its topic that the narration has reached there, and
noise, all with the power-law spectrum of text embeddings: narrations of one topic share stages in the same order. Every
vector depends on its own text alone ("narration segment length"), so that corpora of any size, built in any order by
any number of workers, agree where they overlap.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.encoder_identity import EncoderIdentity
from recipe.corpus.store import Corpus
from recipe.errors import InputError
from recipe.progress import SILENT, Progress
from recipe.types import Narration, Segment

Vectors = NDArray[np.float32]

SHORTEST, LONGEST, MEAN_LENGTH = 2, 120, 21
TOPICS, STAGES = 400, 40
NOISE = 0.6
"""Norm of what a query differs by from the narration it was drawn from, before both have norm 1."""
_BLOCK = 256
"""Narrations encoded at once: bounds the memory."""


def lengths(narrations: int, seed: int = 0) -> NDArray[np.int64]:
    """Segments of each narration: log-normal, 2 to 120, mean about 21."""
    drawn = np.random.default_rng(seed).lognormal(np.log(MEAN_LENGTH) - 0.18, 0.6, narrations)
    return np.clip(np.round(drawn), SHORTEST, LONGEST).astype(np.int64)


def narrations(count: int, seed: int = 0) -> Iterator[Narration]:
    """The first `count` narrations; each segment's text says which it is."""
    for n, length in enumerate(lengths(count, seed).tolist()):
        yield Narration(f"video-{n}", tuple(Segment(f"{n} {k} {length}") for k in range(length)))


class SyntheticEncoder:
    """Stands in for a sentence encoder: reads where a segment lies and gives that place's vector."""

    def __init__(self, dimension: int, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self._dimension, self._seed = dimension, seed
        self._spectrum = spectrum(dimension)
        self._mean = 0.55 * self._draw(generator, 1)
        self._topics = 0.5 * self._draw(generator, TOPICS)
        self._stages = 0.45 * self._draw(generator, TOPICS * STAGES)

    @property
    def identity(self) -> EncoderIdentity:
        """What a corpus records about its encoder."""
        return {
            "name": "synthetic",
            "revision": str(self._seed),
            "task": None,
            "dtype": "float32",
            "dimension": self._dimension,
            "weights": None,
        }

    def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> Vectors:
        """Unit-norm float32 [n, d], one row a text, in the order given."""
        places = np.fromstring(" ".join(texts), dtype=np.int64, sep=" ").reshape(-1, 3)
        starts = np.flatnonzero(np.diff(places[:, 0], prepend=-1))
        bounds = [*starts[::_BLOCK].tolist(), len(places)]
        vectors = np.empty((len(places), self._dimension), dtype=np.float32)
        with progress.task("encoding texts", len(texts)) as advance:
            for first, last in pairwise(bounds):
                vectors[first:last] = self._block(places[first:last])
                advance(last - first)
        return vectors

    def _block(self, places: NDArray[np.int64]) -> Vectors:
        narration, segment, length = places.T
        jitter, noise = np.empty(len(places)), np.empty((len(places), self._dimension), np.float32)
        starts = np.flatnonzero(np.diff(narration, prepend=-1)).tolist()
        topics = np.empty(len(places), np.int64)
        for first, last in zip(starts, [*starts[1:], len(places)], strict=True):
            chosen = segment[first:last]
            generator = np.random.Generator(np.random.Philox(key=[self._seed, narration[first]]))
            topics[first:last] = generator.integers(TOPICS)
            jitter[first:last] = generator.standard_normal(LONGEST)[chosen]
            noise[first:last] = self._draw(generator, chosen.max() + 1)[chosen]
        stage = np.clip(np.rint(segment / length * STAGES + 4 * jitter), 0, STAGES - 1).astype(np.int64)
        noise *= 0.5
        noise += self._mean
        noise += self._topics[topics]
        noise += self._stages[topics * STAGES + stage]
        return unit(noise)

    def _draw(self, generator: np.random.Generator, rows: int) -> Vectors:
        """Float32 [rows, d] of expected squared norm 1."""
        return generator.standard_normal((rows, self._dimension), dtype=np.float32) * self._spectrum


def spectrum(dimension: int) -> Vectors:
    """Standard deviations of the coordinates, falling as a power law, of norm 1: float32 [d]."""
    falling = np.arange(1, dimension + 1, dtype=np.float32) ** np.float32(-0.4)
    return falling / np.linalg.norm(falling)


def unit(vectors: Vectors) -> Vectors:
    """Rows of norm 1."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def build(folder: Path, count: int, dimension: int, shard_size: int = 4096, progress: Progress = SILENT) -> Path:
    """The project's own build of the first `count` narrations; what is finished there is kept."""
    encoder = SyntheticEncoder(dimension)
    config = CorpusConfig(encoder=EncoderConfig(name="synthetic"), shard_size=shard_size)
    return build_corpus(narrations(count), folder, config, progress, encoder=encoder)


def questions(corpus: Corpus, count: int, steps: int, shared: int = 0, each: int = 1, seed: int = 1) -> list[Vectors]:
    """Queries of unit-norm steps [steps, d]: segments of a narration in their order, and noise.

    With `shared`, `each` of them in a row have their first `shared` steps in common and the rest of their own: the
    completions of one history.
    """
    generator = np.random.default_rng(seed)
    falling = spectrum(corpus.dimension)
    long_enough = np.flatnonzero(np.diff(corpus.offsets) >= steps)
    if not len(long_enough):
        raise InputError(f"no narration has {steps} segments to draw queries from; ask for fewer steps.")
    drawn: list[Vectors] = []
    for turn in range(count):
        if turn % each == 0:
            rows = corpus.embeddings(int(generator.choice(long_enough)))
            rows = rows[np.sort(generator.choice(len(rows), steps, replace=False))]
        noise = generator.standard_normal(rows.shape, dtype=np.float32) * falling
        asked = unit(rows + np.float32(NOISE) * noise)
        if turn % each:
            asked[:shared] = drawn[-1][:shared]
        drawn.append(asked)
    return drawn
