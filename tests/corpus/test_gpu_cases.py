"""The GPU's scan against integers and float64: on a GPU with -m gpu, without one through Triton's interpreter.

Triton decides when it is loaded whether kernels are interpreted, so that `test_gpu.py` runs this file in a process of
its own with TRITON_INTERPRET=1.
"""

import os
import shutil
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = [] if INTERPRETED else [pytest.mark.gpu]
ROWS = 16 if INTERPRETED else 128
"""Narrations in lock-step: the interpreter is slow."""


@pytest.fixture(scope="module")
def torch() -> Any:
    module = pytest.importorskip("torch")
    pytest.importorskip("triton")
    if not INTERPRETED and not module.cuda.is_available():
        pytest.skip("no CUDA device here")
    return module


def launch(columns: int = 64, narrow: int = 64) -> Any:
    from recipe.corpus.gpu.scan import Launch

    return Launch(rows=ROWS, columns=columns, narrow=narrow)


def place(torch: Any, array: NDArray[Any]) -> Any:
    return torch.from_numpy(array).to("cpu" if INTERPRETED else "cuda")


def expected(
    vectors: NDArray[Any], offsets: NDArray[np.int64], steps: NDArray[Any], queries: NDArray[np.int32]
) -> NDArray[Any]:
    """M A_mono [N, Q] by the recursion itself, in the arrays' own arithmetic."""
    similarities = steps @ vectors.T
    sums = np.empty((len(offsets) - 1, len(queries)), similarities.dtype)
    for n, (a, b) in enumerate(pairwise(offsets)):
        for q, query in enumerate(queries):
            D = np.zeros(b - a, similarities.dtype)
            for step in query[query >= 0]:
                D = similarities[step, a:b] + np.maximum.accumulate(D)
            sums[n, q] = D.max()
    return sums


def codes_of(generator: np.random.Generator, rows: int, D: int) -> NDArray[np.int8]:
    return generator.integers(-127, 128, (rows, D)).astype(np.int8)


def some(M: int, Q: int, of: int = 9) -> list[list[int]]:
    """Q queries of M steps, the last one shorter."""
    queries = np.random.default_rng(M).integers(0, of, (Q, M))
    queries[-1, M - M // 3 :] = -1
    return queries.tolist()


def beginnings(*lengths: int) -> list[list[int]]:
    """Four completions of two steps for each history, of which the lengths are given."""
    generator = np.random.default_rng(8)
    rows = []
    for length in lengths:
        history = generator.integers(0, 25, length).tolist()
        rows += [[*history, *generator.integers(0, 25, 2).tolist()] for _ in range(4)]
    return [row + [-1] * (max(lengths) + 2 - len(row)) for row in rows]


RAGGED = [3, 1, 5, 16, 2, 9, 17, 1, 1, 7, 4, 4, 4, 6, 2, 1, 3, 8, 12]
CASES = {
    "ragged": (RAGGED, some(3, 5), 64),
    "one segment each": ([1] * 37, some(3, 5), 64),
    "one narration": ([5], some(3, 5), 64),
    "longer than a group is wide": ([1, ROWS + 5, 2], some(3, 5), 64),
    "one step": ([3, 1, 5, 2, 7, 1], some(1, 1), 64),
    "many steps": ([3, 1, 5, 2, 7, 1], some(20, 2), 64),
    "a padded dimension": ([5, 4, 3], some(12, 3), 192),
    "a wide one": ([5, 4, 3], some(8, 1), 256),
    "several blocks, the last one not full": ([10, 20, 3, 7], some(5, 11, of=30), 64),
    "equal queries": ([4] * 5, [[0, 1], [2, 1], [0, 1], [0, 0]], 64),
    "shared beginnings of one length": ([12, 1, 8, 9, 3], beginnings(6, 6, 6), 64),
    "shared beginnings of several": ([12, 1, 8, 9, 3], beginnings(3, 7, 1), 64),
    "shared beginnings and none": ([12, 1, 8, 9, 3], beginnings(0, 5), 64),
    "one that another begins with": ([9, 11], [[*range(7), n] for n in (7, -1, 2)] + [[0, 1, *[-1] * 6]], 64),
}


ALIKE = ("ragged", "equal queries", "shared beginnings of several")


@pytest.mark.parametrize(
    ("case", "signs"),
    [*((case, "any") for case in CASES), *product(ALIKE, ("negative", "equal", "largest"))],
)
def test_sums_are_the_recursions(torch: Any, case: str, signs: str) -> None:
    """To the last bit, whatever the numbers of narrations, steps, queries and dimensions.

    Negative similarities are not beaten by padding: neither by steps of zeros nor by the segments that a shorter
    narration lacks beside a longer one.
    """
    from recipe.corpus.gpu.scan import scan, segments

    lengths, asked, D = CASES[case]
    generator, queries = np.random.default_rng(D), np.asarray(asked, np.int32)
    codes, steps = codes_of(generator, sum(lengths), D), codes_of(generator, 30, D)
    if signs == "negative":
        codes, steps = np.abs(codes), -np.abs(steps)
    elif signs == "equal":
        codes[:] = codes[:1]
    elif signs == "largest":
        codes[:], steps[:] = 127, -127
    offsets = np.cumsum([0, *lengths])
    wide = expected(codes.astype(np.int64), offsets, steps.astype(np.int64), queries)
    columns = 32 if case.startswith("several blocks") else 64
    for narrow in (columns, 0):  # segments one by one, and in pairs
        here = segments(place(torch, codes), offsets, launch(columns, narrow))
        found = scan(here, place(torch, steps), queries).cpu().numpy()
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, wide)


def test_queries_that_are_too_long_are_refused(torch: Any) -> None:
    from recipe.corpus.gpu.scan import fits, scan, segments
    from recipe.errors import InputError

    assert fits(128, 1024, torch.int8)
    assert not fits(129, 64, torch.float16)
    assert not fits(128, 1088, torch.int8)  # 128 * 1088 * 127**2 passes 2**31
    assert fits(128, 1088, torch.float16)
    here = segments(place(torch, np.zeros((1, 64), np.int8)), np.array([0, 1]), launch())
    with pytest.raises(InputError, match="129 steps, too many"):
        scan(here, place(torch, np.zeros((1, 64), np.int8)), np.zeros((1, 129), np.int32))


def test_float16_sums_are_within_their_bound(torch: Any) -> None:
    from recipe.corpus.gpu.scan import scan, segments

    generator = np.random.default_rng(10)
    offsets = np.cumsum([0, 4, 1, 13, 7])
    vectors, steps = (generator.standard_normal((rows, 192), dtype=np.float32) for rows in (25, 9))
    queries = generator.integers(0, 9, (5, 6)).astype(np.int32)
    x, q = (place(torch, array).half() for array in (vectors, steps))
    found = scan(segments(x, offsets, launch()), q, queries).cpu().numpy()
    exact_x, exact_q = (tensor.double().cpu().numpy() for tensor in (x, q))
    exact = expected(exact_x, offsets, exact_q, queries)
    bound = (192 + 6) * 2.0**-23 * 6 * np.linalg.norm(exact_x, axis=1).max() * np.linalg.norm(exact_q, axis=1).max()
    assert 0 < np.abs(found - exact).max() <= bound


@pytest.mark.parametrize("block", [256, 8, 1])
@pytest.mark.parametrize("chunk", [1 << 18, 16])
def test_the_best_and_those_that_may_be(torch: Any, monkeypatch: pytest.MonkeyPatch, block: int, chunk: int) -> None:
    from recipe.corpus.gpu import scan

    monkeypatch.setattr(scan, "BLOCK", block)
    monkeypatch.setattr(scan, "_CHUNK", max(block, chunk))
    monkeypatch.setattr(scan, "_PAIRS", 5)
    generator = np.random.default_rng(11)
    sums = generator.integers(-9, 10, (50, 3)).astype(np.int32)
    known, asked = generator.uniform(0.1, 1, (3, 50, 1)), generator.uniform(0.1, 1, (3, 1, 3))
    scores = sums * known[0] * asked[0]
    uppers = scores + known[1] * asked[2] + known[2] * asked[1]
    bounds = scan.ErrorBounds(*place(torch, known)), scan.ErrorBounds(*place(torch, asked))
    these = scan.Estimates.of(place(torch, sums), *bounds)
    estimates, narrations = these.best(7)
    np.testing.assert_allclose(estimates.cpu(), -np.sort(-scores, axis=0)[:7])
    np.testing.assert_allclose(np.take_along_axis(scores, narrations.cpu().numpy(), 0), estimates.cpu())
    assert all(len(set(column)) == 7 for column in narrations.T.tolist())
    assert len(these.best(99)[0]) == 50
    for thresholds in (np.sort(scores, axis=0)[-7], np.full(3, -99.0), np.full(3, 99.0)):
        rows, queries = these.reaching(place(torch, thresholds))
        pairs = sorted(zip(rows.tolist(), queries.tolist(), strict=True))
        assert pairs == sorted(map(tuple, np.argwhere(uppers >= thresholds).tolist()))


def build(folder: Any, narrations: list[list[str]], shard_size: int) -> Any:
    """A corpus of these texts."""
    from recipe.config import CorpusConfig, EncoderConfig
    from recipe.corpus.build import build_corpus
    from recipe.types import Narration, Segment

    config = CorpusConfig(encoder=EncoderConfig(name="hash:96"), shard_size=shard_size)
    spoken = [Narration(f"v{n}", tuple(map(Segment, texts))) for n, texts in enumerate(narrations)]
    return build_corpus(spoken, folder, config)


DEVICES = ("cpu",) if INTERPRETED else ("cuda",)


@pytest.fixture(scope="module")
def corpus(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Narrations of few words, so that many score nearly alike, and some exactly: every fifth is said twice."""
    pytest.importorskip("numba")
    generator = np.random.default_rng(12)
    words = [f"w{n}" for n in range(12)]
    narrations: list[list[str]] = []
    for n in range(90):
        texts = [" ".join(generator.choice(words, 3)) for _ in range(generator.integers(1, 12))]
        narrations.append(narrations[n - 40] if n >= 40 and n % 5 == 0 else texts)
    return build(tmp_path_factory.mktemp("gpu") / "corpus", narrations, shard_size=35)


def asked(generator: np.random.Generator, lengths: Sequence[int]) -> list[NDArray[np.float32]]:
    from recipe.config import EncoderConfig
    from recipe.corpus.encoders import open_encoder

    encoder = open_encoder(EncoderConfig(name="hash:96"))
    texts = [[" ".join(generator.choice([f"w{n}" for n in range(12)], 3)) for _ in range(M)] for M in lengths]
    return [encoder.encode(steps) for steps in texts]


@pytest.mark.parametrize("precision", ["int8", "float16"])
@pytest.mark.parametrize("devices", [DEVICES, DEVICES * 2], ids=["one device", "two"])
def test_the_search_is_the_certified_one(corpus: Any, precision: Any, devices: tuple[str, ...]) -> None:
    """Scores, order, ties and thresholds are those of the search on the processor, and of float64 in NumPy."""
    from recipe.alignment.reference import monotone_coverage
    from recipe.corpus.gpu.index import GpuIndex
    from recipe.corpus.index import Index
    from recipe.corpus.store import Corpus

    queries = asked(np.random.default_rng(13), [4, 1, 6])
    queries.append(np.concatenate([queries[0], queries[1]]))
    index = GpuIndex.open(corpus, devices=devices, precision=precision)
    assert len(index._parts) == len(devices)
    found = index.search(queries, 25)
    there = Index.open(corpus).search(queries, 25)
    opened = Corpus.open(corpus)
    for query, here, host in zip(queries, found, there, strict=True):
        assert here.hits == host.hits
        assert here.certificate.method == precision
        assert here.certificate.threshold == here.hits[-1].score
        assert 25 <= here.certificate.survivors <= 90
        W = [query.astype(np.float64) @ opened.embeddings(n).astype(np.float64).T for n in range(90)]
        exact = np.array([monotone_coverage(w) for w in W])
        order = np.lexsort((np.arange(90), -exact.round(12)))[:25]
        assert [hit.narration for hit in here.hits] == order.tolist()
        np.testing.assert_allclose([hit.score for hit in here.hits], exact[order], atol=1e-12)


def test_numbers_of_some_shards_are_those_of_the_corpus(corpus: Any) -> None:
    from recipe.corpus.gpu.index import GpuIndex

    queries = asked(np.random.default_rng(14), [3])
    (some,) = GpuIndex.open(corpus, [1, 2], devices=DEVICES).search(queries, 99)
    (whole,) = GpuIndex.open(corpus, devices=DEVICES).search(queries, 99)
    assert len(whole.hits) == 90
    assert some.hits == [hit for hit in whole.hits if hit.narration >= 35]


@pytest.mark.parametrize("precision", ["int8", "float16"])
def test_removed_narrations_are_not_found(corpus: Any, tmp_path: Any, compacted_above: Any, precision: Any) -> None:
    from recipe.corpus import change
    from recipe.corpus.gpu.index import GpuIndex
    from recipe.corpus.index import Index
    from recipe.corpus.store import Corpus

    compacted_above(50)
    folder = shutil.copytree(corpus, tmp_path / "changed")
    ids = list(Corpus.open(folder).video_ids)
    change.remove_narrations(folder, [ids[number] for number in (0, 7, 8, 40, 89)])
    queries = asked(np.random.default_rng(16), [3, 2])
    index = GpuIndex.open(folder, devices=DEVICES, precision=precision)
    assert len(index) == 85
    assert [found.hits for found in index.search(queries, 85)] == [
        found.hits for found in Index.open(folder).search(queries, 85)
    ]


def test_scores_too_close_for_codes_are_still_exact(torch: Any, tmp_path: Any) -> None:
    from recipe.corpus.gpu.index import GpuIndex

    pytest.importorskip("numba")
    folder = build(tmp_path / "same", [["stir the pot"]] * 300, shard_size=400)
    (found,) = GpuIndex.open(folder, devices=DEVICES).search(asked(np.random.default_rng(15), [2]), 3)
    assert [hit.narration for hit in found.hits] == [0, 1, 2]
    assert found.certificate.method == "exact"


@pytest.mark.parametrize("name", ["cuda:99", "gpu"])
def test_a_device_that_is_not_there(corpus: Any, name: str) -> None:
    from recipe.corpus.gpu.index import GpuIndex
    from recipe.errors import ConfigError

    with pytest.raises(ConfigError, match=f"there is no GPU '{name}' here"):
        GpuIndex.open(corpus, devices=[name])


def test_memory_that_is_too_small_is_told(corpus: Any, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from recipe.corpus.gpu.index import DeviceShards
    from recipe.corpus.index import Index
    from recipe.errors import ConfigError

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (12_345, 99_999))
    with pytest.raises(ConfigError, match=r"need 1,\d{3},\d{3},\d{3} bytes on cuda:0, of which 12,345 are free"):
        DeviceShards.place(Index.open(corpus).shards, 0, torch.device("cuda:0"), "int8")
