"""Stage 1: exact against the reference for any shapes, ties in corpus order, independent of shards and threads."""

import importlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recipe.alignment.reference import monotone_coverage
from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.matches import best_matches
from recipe.corpus.search import Block, best_hits, coverage_scores
from recipe.corpus.store import Corpus
from recipe.errors import InputError, MissingExtra
from recipe.types import Hit, Narration, Segment

pytest.importorskip("numba", reason="corpus search needs numba")


def unit(generator: np.random.Generator, rows: int, dimension: int) -> NDArray[np.float32]:
    vectors = generator.standard_normal((rows, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def block(generator: np.random.Generator, lengths: list[int], dimension: int) -> Block:
    vectors = unit(generator, sum(lengths), dimension).astype(np.float16)
    return Block(vectors, np.cumsum([0, *lengths], dtype=np.int64))


def expected(blocks: list[Block], queries: NDArray[np.float32]) -> list[float]:
    """A_mono by the reference on the widened vectors, in float64."""
    scores = []
    for vectors, offsets in blocks:
        W = queries.astype(np.float64) @ vectors.astype(np.float64).T
        scores += [monotone_coverage(W[:, a:b]) for a, b in pairwise(offsets)]
    return scores


LENGTHS = st.lists(st.lists(st.integers(1, 70), min_size=1, max_size=6), min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.integers(1, 11), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_scores_are_the_references(lengths: list[list[int]], steps: int, dimension: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    blocks = [block(generator, shard, dimension) for shard in lengths]
    queries = unit(generator, steps, dimension)
    np.testing.assert_allclose(coverage_scores(blocks, queries), expected(blocks, queries), atol=2e-6)


def test_scores_do_not_depend_on_shards_threads_or_place() -> None:
    generator = np.random.default_rng(3)
    lengths = generator.integers(1, 50, size=60).tolist()
    whole = block(generator, lengths, 67)
    queries = unit(generator, 5, 67)
    scores = coverage_scores([whole], queries, threads=1)
    apart = [Block(whole.embeddings[a:b], np.array([0, b - a])) for a, b in pairwise(whole.offsets)]
    np.testing.assert_array_equal(scores, coverage_scores(apart, queries, threads=4))


def test_narrations_larger_than_a_chunk_are_scored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(4)
    blocks = [block(generator, [3, 90, 1, 2], 16)]
    queries = unit(generator, 4, 16)
    scores = coverage_scores(blocks, queries)
    monkeypatch.setattr("recipe.corpus.search._CHUNK_BYTES", 100)
    np.testing.assert_array_equal(scores, coverage_scores(blocks, queries))


@given(st.lists(st.sampled_from([0.25, 0.5, 0.75]), min_size=1, max_size=12), st.integers(1, 15))
def test_the_best_come_first_and_ties_in_corpus_order(scores: list[float], k: int) -> None:
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[:k]
    assert best_hits(np.float32(scores), k) == [Hit(index, scores[index]) for index in order]


def test_search_finds_the_narration_that_says_the_steps_in_order(tmp_path: Path) -> None:
    said = [["stir", "boil", "pour"], ["pour", "boil", "stir"], ["salt"], ["boil", "pour", "stir"], ["salt"]]
    narrations = [Narration(f"v{i}", tuple(map(Segment, texts))) for i, texts in enumerate(said)]
    config = CorpusConfig(encoder=EncoderConfig(name="hash:64"), shard_size=2)
    corpus = Corpus.open(build_corpus(narrations, tmp_path / "c", config))
    hits = corpus.search(["boil", "pour", "stir"], k=99)
    assert len(hits) == 5
    assert hits[0].narration == 3
    assert hits[0].score == pytest.approx(1, abs=1e-3)
    assert [hit.narration for hit in hits if said[hit.narration] == ["salt"]] == [2, 4]
    assert hits[:2] == corpus.search_vectors(corpus.encoder.encode(["boil", "pour", "stir"]), 2)
    W = corpus.encoder.encode(["boil", "pour", "stir"]) @ corpus.embeddings(3).T
    assert hits[0].score == pytest.approx(monotone_coverage(W), abs=1e-6)


def test_searches_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    config = CorpusConfig(encoder=EncoderConfig(name="hash:8"))
    corpus = Corpus.open(build_corpus([Narration("v", (Segment("boil"),))], tmp_path / "c", config))
    with pytest.raises(InputError, match="there are no steps"):
        corpus.search([])
    with pytest.raises(InputError, match="k = 0"):
        corpus.search(["boil"], k=0)
    for shape in [(0, 8), (2, 7), (8,)]:
        with pytest.raises(InputError, match="have shape"):
            corpus.search_vectors(np.zeros(shape, np.float32))
    with pytest.raises(InputError, match="not finite"):
        corpus.search_vectors(np.full((1, 8), np.nan, np.float32))


def test_absent_numba_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name="numba")

    monkeypatch.setattr(importlib, "import_module", absent)
    blocks = [block(np.random.default_rng(0), [1], 4)]
    with pytest.raises(MissingExtra, match=r"the corpus index needs .*recipe-planner\[cpu\]"):
        coverage_scores(blocks, np.ones((1, 4), np.float32))


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_matches_attain_the_score_in_order(steps: int, segments: int, seed: int) -> None:
    W = np.random.default_rng(seed).uniform(-1, 1, (steps, segments)).astype(np.float32)
    matches = best_matches(W)
    assert [match.step for match in matches] == list(range(steps))
    assert [match.segment for match in matches] == sorted(match.segment for match in matches)
    assert np.mean([match.similarity for match in matches]) == pytest.approx(monotone_coverage(W), abs=1e-6)
