"""Stage 1: the float64 oracle's answer on every path, for any shapes and the hardest corpora, with its certificate."""

import errno
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from indexed import oracle, same, unit, write_corpus
from numpy.typing import NDArray
from tests.conftest import built_corpus

pytest.importorskip("numba", reason="the corpus index needs numba")

from recipe.alignment.reference import monotone_coverage
from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.index import Index, SearchResult
from recipe.corpus.scan.quantise import Queries, rotate
from recipe.corpus.scan.scores import Bounds, available, exact_scorer, float_scores, integer_scores, prepare
from recipe.corpus.store import Corpus, best_segments
from recipe.data.narrations import read_narrations
from recipe.errors import ConfigError, CorpusError, InputError
from recipe.types import Narration, Segment

Vectors = NDArray[np.float32]


def split(vectors: Vectors, lengths: list[int]) -> list[Vectors]:
    return np.split(vectors, np.cumsum(lengths)[:-1])


def random_corpus(generator: np.random.Generator, d: int, narrations: int = 120) -> list[Vectors]:
    lengths = generator.integers(1, 50, narrations).tolist()
    return split(unit(generator, sum(lengths), d), lengths)


def clustered(generator: np.random.Generator, d: int) -> list[Vectors]:
    topics = unit(generator, 6, d)
    lengths = generator.integers(1, 40, 120).tolist()
    noise = unit(generator, sum(lengths), d)
    mixed = topics[np.repeat(generator.integers(0, 6, 120), lengths)] + 0.3 * noise
    return split(mixed / np.linalg.norm(mixed, axis=1, keepdims=True), lengths)


def near_tied(generator: np.random.Generator, d: int) -> list[Vectors]:
    one = unit(generator, 8, d)
    wobble = [one + 1e-3 * generator.standard_normal((8, d)).astype(np.float32) / np.sqrt(d) for _ in range(120)]
    return [(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32) for vectors in wobble]


def duplicated(generator: np.random.Generator, d: int) -> list[Vectors]:
    few = [unit(generator, 6, d) for _ in range(4)]
    return [few[n] for n in generator.integers(0, 4, 120)]


def all_equal(generator: np.random.Generator, d: int) -> list[Vectors]:
    return [np.repeat(unit(generator, 1, d), 5, axis=0)] * 150


def one_sided(generator: np.random.Generator, d: int) -> list[Vectors]:
    """One component holds almost all of a vector: the worst case of a code without rotation."""
    vectors = 0.01 * unit(generator, 360, d)
    vectors[np.arange(360), generator.integers(0, d, 360)] = 1
    return split(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), [3] * 120)


CORPORA = [random_corpus, clustered, near_tied, duplicated, all_equal, one_sided]


@pytest.mark.parametrize("make", CORPORA)
@pytest.mark.parametrize("d", [24, 200])
def test_the_hits_are_the_oracles(make: Any, d: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(d)
    narrations = make(generator, d)
    index = Index.open(write_corpus(tmp_path / "c", narrations, shard_size=70))
    queries = [unit(generator, m, d) for m in (1, 2, 5, 8, 13)]
    queries += [narrations[n][:6] for n in (0, 17, 99)]  # queries that the corpus answers with a score of almost 1
    best = [oracle(index, query, 25) for query in queries]
    for k in (1, 25):
        for query, wanted, result in zip(queries, best, index.search(queries, k), strict=True):
            assert same(result.hits, wanted[:k])
            assert result.certificate.threshold == result.hits[-1].score
            assert result == index.search([query], k)[0]._replace(certificate=result.certificate)


LENGTHS = st.lists(st.integers(1, 70), min_size=1, max_size=12)


@settings(max_examples=20, deadline=None)
@given(LENGTHS, st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 90), st.integers(0, 2**32 - 1))
def test_integer_sums_are_the_same_for_every_isa(lengths: list[int], steps: list[int], d: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    size = -(-d // 64) * 64
    codes = generator.integers(-127, 128, (offsets[-1], size), dtype=np.int8)
    shared = unit(generator, 4, d)
    chosen = [np.concatenate([shared[: m % 4], unit(generator, m, d)]) for m in steps]
    for isa in available():
        queries = Queries.quantised(chosen, isa)
        wanted = np.empty((len(lengths), len(steps)), np.int64)
        for q, row in enumerate(queries.steps):
            W = queries.codes[row[row >= 0]].astype(np.int64) @ codes.astype(np.int64).T
            wanted[:, q] = [round(monotone_coverage(W[:, a:b]) * len(W)) for a, b in pairwise(offsets)]
        np.testing.assert_array_equal(sums(codes, offsets, queries)[:, : len(steps)], wanted)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.sampled_from([64, 128, 384]), st.integers(0, 2**32 - 1), st.sampled_from([-127, 0, 127]))
def test_the_largest_codes_do_not_overflow(steps: int, size: int, seed: int, segment: int) -> None:
    """Steps of few large components, which come near the limit of 16 bits, with the largest codes of segments."""
    generator = np.random.default_rng(seed)
    wanted_codes = generator.choice([0, 0, 0, 1, -1], (steps, size)) * generator.uniform(0.9, 1, (steps, size))
    wanted_codes[:, generator.integers(size)] = 1
    vectors = (wanted_codes @ rotate(np.eye(size)).T).astype(np.float32)
    codes = np.full((6, size), segment, np.int8)
    codes[1::2] = generator.choice([-127, 127], (3, size))
    for isa in available():
        queries = Queries.quantised([vectors], isa)
        W = queries.codes[queries.steps[0]].astype(np.int64) @ codes.astype(np.int64).T
        wanted = [[round(monotone_coverage(W[:, k : k + 1]) * steps)] for k in range(6)]
        np.testing.assert_array_equal(sums(codes, np.arange(7), queries), wanted)


def sums(codes: NDArray[np.int8], offsets: NDArray[np.int64], queries: Queries) -> NDArray[np.int32]:
    """By the kernel for these queries, in two pieces."""
    prepared, narrations = prepare(queries), len(offsets) - 1
    result = np.empty((narrations, prepared.width), np.int32)
    for first, last in pairwise(sorted({0, narrations // 2, narrations})):
        prepared.scan(codes[offsets[first] : offsets[last]], offsets, first, last, result)
    return result


def test_an_instruction_set_that_does_not_run_here_is_refused(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "c", random_corpus(np.random.default_rng(1), 16, 3))
    with pytest.raises(ConfigError, match=r"'sve'.*portable"):
        Index.open(folder, isa="sve").search([unit(np.random.default_rng(2), 2, 16)])


def test_streamed_and_cut_corpora_and_every_isa_answer_alike(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    narrations = random_corpus(generator, 48, 300)
    queries = [unit(generator, m, 48) for m in (3, 7)]
    whole = Index.open(write_corpus(tmp_path / "a", narrations))
    folder = write_corpus(tmp_path / "b", narrations, shard_size=37)
    wanted = whole.search(queries)
    assert [found.hits for found in Index.open(folder, streamed=True, threads=3).search(queries)] == [
        found.hits for found in wanted
    ]
    parts = [Index.open(folder, shards=numbers) for numbers in ([0, 5, 3], [1, 2], [8, 4, 6, 7])]
    assert sum(map(len, parts)) == len(whole) == 300
    merged = [SearchResult.merged(found, 25) for found in zip(*(part.search(queries) for part in parts), strict=True)]
    assert [found.hits for found in merged] == [found.hits for found in wanted]
    assert [found.certificate.threshold for found in merged] == [found.certificate.threshold for found in wanted]
    for isa in available():  # codes of steps are coarser for one of them, hence its bounds
        forced = Index.open(folder, isa=isa)
        assert [found.hits for found in forced.search(queries)] == [found.hits for found in wanted]
        assert forced.search(queries[:1])[0].hits == wanted[0].hits
    assert Index.open(whole.folder, threads=60).search(queries) == wanted  # in pieces of few narrations
    np.testing.assert_array_equal(whole.coverage(queries[0]), Index.open(folder, streamed=True).coverage(queries[0]))


def test_codes_that_exceed_the_memory_or_cannot_be_mapped_are_streamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOMEM, "no address space")

    generator = np.random.default_rng(8)
    folder = write_corpus(tmp_path / "c", random_corpus(generator, 16), shard_size=50)
    query, mapped = unit(generator, 3, 16), Index.open(folder)
    assert {type(shard.codes).__name__ for shard in mapped.shards} == {"MappedArray"}
    for name, value in (("available", lambda: 1000), ("MappedArray", full)):
        with monkeypatch.context() as patched:
            patched.setattr(f"recipe.corpus.scan.shards.{name}", value)
            streamed = Index.open(folder)
        assert {type(shard.embeddings).__name__ for shard in streamed.shards} == {"StreamedArray"}
        assert streamed.search([query]) == mapped.search([query])


@pytest.mark.real_data
def test_the_hits_are_the_oracles_on_real_narrations(shared_data: Path, tmp_path: Path) -> None:
    narrations = list(read_narrations(shared_data / "narrations" / "narrations_timed.jsonl"))
    config = CorpusConfig(encoder=EncoderConfig(name="hash:256"), shard_size=200)
    corpus = Corpus.open(build_corpus(narrations, tmp_path / "c", config))
    generator = np.random.default_rng(10)
    for narration in generator.choice(len(narrations), 25, replace=False):
        said = [segment.text for segment in narrations[narration].segments]
        steps = [said[k] for k in np.sort(generator.integers(0, len(said), int(generator.integers(1, 9))))]
        query = corpus.encoder.encode(steps)
        (found,) = corpus.index.search([query])
        assert found.certificate.method == "int8"
        assert same(found.hits, oracle(corpus.index, query, 25))


def test_what_8_bits_cannot_tell_apart_is_scanned_in_full(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    index = Index.open(write_corpus(tmp_path / "c", all_equal(generator, 32) * 3))
    (found,) = index.search([unit(generator, 3, 32)], 5)
    assert [hit.narration for hit in found.hits] == [0, 1, 2, 3, 4]
    assert found.certificate.method == "exact"
    assert found.certificate.survivors == 450
    long = unit(generator, 1100, 32)  # sums of 1,100 steps of 64 codes would not fit 31 bits
    (found,) = index.search([long], 5)
    assert same(found.hits, oracle(index, long, 5))
    assert found.certificate.method == "exact"


@pytest.mark.parametrize("isa", available())
def test_errors_stay_below_the_certified_bounds(isa: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(4)
    index = Index.open(write_corpus(tmp_path / "c", clustered(generator, 40)))
    query = unit(generator, 5, 40)
    queries = Queries.quantised([query], isa)
    true = exact_scorer(index.shards, queries)(np.arange(120), np.zeros(120, np.int64))
    for found in (
        integer_scores(index.shards, Bounds.of(index.shards), queries),
        float_scores(index.shards, query),
    ):
        error = np.abs(found.sums[:, 0] * found.scales * found.factors[0] - true)
        assert (error <= found.errors @ found.weights[0]).all()
        assert error.max() > 0.001 * found.bounds[0]  # a bound that is never approached at all would prove little


@pytest.mark.parametrize(("loser", "isa"), [("segment", "portable"), *(("step", isa) for isa in available())])
def test_the_worst_errors_reach_the_bounds_and_do_not_pass_them(loser: str, isa: str, tmp_path: Path) -> None:
    """A step along what a segment's code loses, or a segment along what a step's code loses, itself coded exactly."""
    basis = rotate(np.eye(64))
    one = unit(np.random.default_rng(11), 1, 64).astype(np.float16 if loser == "segment" else np.float32)
    turned = rotate(one)
    scale = np.abs(turned).max() / 127 if loser == "segment" else Queries.quantised([one], isa).scale
    lost = turned - scale * np.rint(turned / scale)
    along = np.rint(lost / np.abs(lost).max() * 127) @ basis.T
    other = (along / np.linalg.norm(along)).astype(np.float32)
    segment, step = (one.astype(np.float32), other) if loser == "segment" else (other, one)
    index = Index.open(write_corpus(tmp_path / "c", [segment]))
    stored = index.shards[0].embeddings.rows(0, 1).astype(np.float64)
    queries = Queries.quantised([step], isa)
    scores = integer_scores(index.shards, Bounds.of(index.shards), queries)
    true = float((stored @ step.T.astype(np.float64))[0, 0])
    error = abs(scores.sums[0, 0] * scores.scales[0] * scores.factors[0] - true)
    assert 0.9 * scores.bounds[0] < error <= scores.bounds[0]


def test_scores_of_the_whole_corpus_are_the_references(tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    corpus = Index.open(write_corpus(tmp_path / "c", random_corpus(generator, 67), shard_size=100))
    query = unit(generator, 6, 67)
    wanted = {hit.narration: hit.score for hit in oracle(corpus, query, len(corpus))}
    np.testing.assert_allclose(corpus.coverage(query), [wanted[n] for n in range(len(corpus))], atol=2e-6)


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
    batch = [corpus.encoder.encode(steps) for steps in (["salt"], ["boil", "pour", "stir"])]
    assert corpus.search_batch(batch, 2) == [corpus.search(["salt"], 2), hits[:2]]
    W = corpus.encoder.encode(["boil", "pour", "stir"]) @ corpus.embeddings(3).T
    assert hits[0].score == pytest.approx(monotone_coverage(W), abs=1e-6)


def test_searches_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    corpus = built_corpus(tmp_path / "c", [Narration("v", (Segment("boil"),))], "hash:8")
    with pytest.raises(InputError, match="there are no steps"):
        corpus.search([])
    with pytest.raises(InputError, match="k = 0"):
        corpus.search(["boil"], k=0)
    for shape in [(0, 8), (2, 7), (8,)]:
        with pytest.raises(InputError, match="have shape"):
            corpus.search_vectors(np.zeros(shape, np.float32))
    with pytest.raises(InputError, match="not finite"):
        corpus.search_vectors(np.full((1, 8), np.nan, np.float32))
    with pytest.raises(InputError, match=r"no shard 1; .* 1"):
        Index.open(tmp_path / "c", shards=[1])


def test_a_file_cut_short_under_a_streamed_index_is_named(tmp_path: Path) -> None:
    generator = np.random.default_rng(6)
    folder = write_corpus(tmp_path / "c", random_corpus(generator, 16))
    index = Index.open(folder, streamed=True)
    codes = folder / "shards" / "00000" / "codes.npy"
    codes.write_bytes(codes.read_bytes()[:-100])
    with pytest.raises(CorpusError, match=r"codes\.npy: .*ends early"):
        index.search([unit(generator, 2, 16)])


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_matches_attain_the_score_in_order(steps: int, segments: int, seed: int) -> None:
    W = np.random.default_rng(seed).uniform(-1, 1, (steps, segments)).astype(np.float32)
    chosen = best_segments(W)
    assert chosen == sorted(chosen)
    assert W[range(steps), chosen].mean() == pytest.approx(monotone_coverage(W), abs=1e-6)
