"""A corpus in memory, so that the verifier is tested against the equations and nothing else."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from recipe.alignment.reference import monotone_coverage
from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.encoders import HashEncoder
from recipe.errors import ComputeError
from recipe.types import Hit, Narration, Segment

TALKS = {
    "tea": ["boil the water", "warm the pot", "put tea leaves in the pot", "pour the water", "wait five minutes"],
    "eggs": ["crack two eggs", "whisk the eggs with milk", "melt butter in a pan", "pour the eggs", "stir slowly"],
    "tyre": ["lift the car", "remove the bolts", "take off the wheel", "mount the spare wheel", "lower the car"],
    "toast": ["slice the bread", "toast the bread", "melt butter in a pan", "spread butter on the toast"],
    "chat": ["hello everyone and welcome back"],
}


class CountingEncoder(HashEncoder):
    """Remembers what it was asked to encode."""

    def __init__(self) -> None:
        super().__init__(128)
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str], *_: object) -> NDArray[np.float32]:  # type: ignore[override]
        self.calls.append(list(texts))
        return super().encode(texts)


@pytest.fixture
def encoder_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one word, and only there."""
    encode = HashEncoder.encode

    def failing(self: HashEncoder, texts: Sequence[str], *rest: Any) -> Any:
        if any("unspeakable" in text for text in texts):
            raise ComputeError("the encoder is down")
        return encode(self, texts, *rest)

    monkeypatch.setattr(HashEncoder, "encode", failing)


class MemoryCorpus:
    def __init__(self, talks: dict[str, list[str]]) -> None:
        self.encoder = CountingEncoder()
        self.narrations = [
            Narration(name, tuple(Segment(text, 10.0 * k, 10.0 * k + 8) for k, text in enumerate(texts)), name.title())
            for name, texts in talks.items()
        ]
        self.vectors = [HashEncoder(128).encode(texts) for texts in talks.values()]
        self.searches = 0

    def __len__(self) -> int:
        return len(self.narrations)

    @property
    def offsets(self) -> NDArray[np.int64]:
        return np.cumsum([0, *map(len, self.vectors)])

    def narration(self, index: int) -> Narration:
        return self.narrations[index]

    def embeddings(self, index: int) -> NDArray[np.float32]:
        return self.vectors[index]

    def similarities(
        self, narrations: Sequence[int], steps: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        vectors = [self.vectors[number] for number in narrations]
        products = np.concatenate(
            [np.zeros((0, len(steps)), np.float32), *(np.einsum("sd,nd->sn", rows, steps) for rows in vectors)]
        )
        return products, np.cumsum([0, *map(len, vectors)])

    def search_batch(self, queries: Sequence[NDArray[np.float32]], k: int) -> list[list[Hit]]:
        self.searches += 1
        return [self.search_vectors(query, k) for query in queries]

    def search_vectors(self, query: NDArray[np.float32], k: int) -> list[Hit]:
        scores = [monotone_coverage(query @ vectors.T) for vectors in self.vectors]
        order = sorted(range(len(scores)), key=lambda n: -scores[n])
        return [Hit(n, scores[n]) for n in order[:k]]


@pytest.fixture
def corpus() -> MemoryCorpus:
    return MemoryCorpus(TALKS)


@pytest.fixture(scope="session")
def talks_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same narrations on disk; no test writes to it."""
    config = CorpusConfig(encoder=EncoderConfig(name="hash:128"))
    return build_corpus(MemoryCorpus(TALKS).narrations, tmp_path_factory.mktemp("talks") / "corpus", config)


@pytest.fixture
def folder(talks_folder: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may write beside."""
    return Path(shutil.copytree(talks_folder, tmp_path / "corpus"))
