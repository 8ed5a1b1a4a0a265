"""The benchmarks measure what they say: their data, their oracle, their peers, their fits, and a quick run of each."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from recipe.alignment.reference import monotone_coverage
from recipe.corpus.store import Corpus

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def synthetic() -> ModuleType:
    pytest.importorskip("numba")
    return importlib.import_module("synthetic")


@pytest.fixture
def peers() -> ModuleType:
    for package in ("faiss", "maxsim_cpu", "threadpoolctl", "numba"):
        pytest.importorskip(package)
    return importlib.import_module("search_peers")


@pytest.fixture
def small(synthetic: ModuleType, tmp_path: Path) -> Corpus:
    """300 synthetic narrations, built."""
    return Corpus.open(synthetic.build(tmp_path / "corpus", 300, 64, shard_size=128))


def test_vectors_depend_on_their_text_alone(synthetic: ModuleType) -> None:
    texts = [segment.text for narration in synthetic.narrations(40) for segment in narration.segments]
    encoder = synthetic.SyntheticEncoder(48)
    whole = encoder.encode(texts)
    np.testing.assert_array_equal(encoder.encode(texts[7:31]), whole[7:31])
    np.testing.assert_array_equal(synthetic.SyntheticEncoder(48).encode(texts[::-1]), whole[::-1])
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1, rtol=1e-6)


def test_a_longer_corpus_begins_with_the_shorter(synthetic: ModuleType) -> None:
    assert list(synthetic.narrations(30)) == list(synthetic.narrations(90))[:30]


def test_the_oracle_is_the_reference(peers: ModuleType, synthetic: ModuleType, small: Corpus) -> None:
    data = peers.Data(np.concatenate([small.embeddings(n) for n in range(len(small))]), small.offsets)
    queries = synthetic.questions(small, 3, 5)
    scores = peers.oracle(data, queries)
    for q, n in ((0, 0), (1, 137), (2, 299)):
        W = queries[q].astype(np.float64) @ small.embeddings(n).astype(np.float64).T
        assert scores[q, n] == pytest.approx(monotone_coverage(W), abs=1e-12)


def test_exact_peers_find_what_the_oracle_finds(peers: ModuleType, synthetic: ModuleType, small: Corpus) -> None:
    data = peers.Data(np.concatenate([small.embeddings(n) for n in range(len(small))]), small.offsets)
    queries = synthetic.questions(small, 4, 5)
    truth = peers.oracle(data, queries)

    def mean_recall(system: object) -> float:
        found = system.found(system.run(queries))  # type: ignore[attr-defined]
        return float(np.mean([peers.recall(*pair, 10) for pair in zip(found, truth, strict=True)]))

    assert mean_recall(peers.NumpyLoop(data, 10)) == 1
    everywhere = peers.FaissInverted(data, 10, lists=8, threads=1)  # all its lists are probed
    assert mean_recall(everywhere) == 1
    for floor in (peers.FaissFlat(data, 10), peers.MaxsimCpu(data, 10)):
        assert 0 < mean_recall(floor) <= 1


def test_equal_scores_count_alike(peers: ModuleType) -> None:
    scores = np.array([0.5, 0.25, 0.5, 0.25, 0.1])
    assert peers.recall(np.array([0, 2, 3]), scores, 3) == 1
    assert peers.recall(np.array([0, 2, 4]), scores, 3) == pytest.approx(2 / 3)


def test_the_slope_is_found(synthetic: ModuleType) -> None:
    for package in ("scipy", "matplotlib"):
        pytest.importorskip(package)
    scale = importlib.import_module("scale")
    rows = [
        {"segments": s, "dimension": d, "one_ms": 2 + s * (3 + 0.02 * d) / 1e6}
        for s, d in ((10**5, 256), (10**6, 256), (10**7, 64))
    ]
    found = scale.fit(rows, "one_ms")
    assert found["ms_a_search"] == pytest.approx(2)
    assert found["ns_per_segment"] == pytest.approx(3)
    assert found["ns_per_segment_and_dimension"] == pytest.approx(0.02)
    assert found["goal_ms"] == pytest.approx(2 + 25 * (3 + 0.02 * 1024))
    assert found["largest_deviation"] < 1e-9


def quick(script: str, target: Path) -> dict[str, dict[str, float]]:
    """The result of a quick run, which also draws its picture."""
    command = [sys.executable, FOLDER / script, "--quick", "--json", target / "r.json", "--plot", target / "r.png"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (target / "r.png").read_bytes().startswith(b"\x89PNG")
    result: dict[str, dict[str, float]] = json.loads((target / "r.json").read_text())["values"]
    return result


@pytest.mark.slow
def test_search_runs(peers: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    result = quick("search.py", tmp_path)
    systems = {name for name, row in result.items() if "recall" in row}
    assert len(systems) == 7
    assert result["certificate"]["same_set_and_order"] == result["certificate"]["queries"] == 64
    assert all(result[name][key] > 0 for name in systems for key in ("one_ms", "batch64_ms", "bytes", "ratio_64"))


@pytest.mark.slow
def test_scale_runs(synthetic: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = quick("scale.py", tmp_path)
    assert result["limited"]["streamed"]
    assert result["limited"]["same_answers"]


def test_an_interval_over_bases_is_students() -> None:
    pytest.importorskip("scipy")
    over_bases = importlib.import_module("comparison").over_bases
    known = over_bases([1.0, 2.0, 3.0])
    half = 4.302653 / 3**0.5  # the quantile of t with two degrees of freedom; the deviation is 1
    assert (known.mean, known.low, known.high) == pytest.approx((2, 2 - half, 2 + half), abs=1e-5)
    assert over_bases([1.0, 3.0]).low is None  # of two values nothing is known
