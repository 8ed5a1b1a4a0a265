"""The GPU's scan against integers and float64: on a GPU with -m gpu, without one through Triton's interpreter.

Triton decides when it is loaded whether kernels are interpreted, so that `test_gpu.py` runs this file in a process of
its own with TRITON_INTERPRET=1.
"""

import os
from collections.abc import Sequence
from itertools import pairwise
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


def launch(columns: int = 64) -> Any:
    from recipe.corpus.gpu_scan import Launch

    return Launch(rows=ROWS, columns=columns)


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


def check(
    torch: Any, codes: NDArray[np.int8], lengths: Sequence[int], steps: Any, queries: Any, columns: int = 64
) -> None:
    """The kernel's sums are the recursion's, to the last bit."""
    from recipe.corpus.gpu_scan import scan, segments

    offsets = np.cumsum([0, *lengths])
    queries = np.asarray(queries, np.int32)
    here = segments(place(torch, codes), offsets, launch(columns))
    found = scan(here, place(torch, steps), queries).cpu().numpy()
    assert found.dtype == np.int32
    wide = expected(codes.astype(np.int64), offsets, steps.astype(np.int64), queries)
    np.testing.assert_array_equal(found, wide)


def codes_of(generator: np.random.Generator, rows: int, D: int, low: int = -127) -> NDArray[np.int8]:
    return generator.integers(low, 128, (rows, D)).astype(np.int8)


RAGGED = [3, 1, 5, 16, 2, 9, 17, 1, 1, 7, 4, 4, 4, 6, 2, 1, 3, 8, 12]
LENGTHS = {
    "ragged": RAGGED,
    "one segment each": [1] * 37,
    "one narration": [5],
    "longer than a group is wide": [1, 2 * ROWS + 5, 2],
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_narrations_of_any_length(torch: Any, lengths: list[int]) -> None:
    generator = np.random.default_rng(1)
    steps = codes_of(generator, 9, 64)
    check(torch, codes_of(generator, sum(lengths), 64), lengths, steps, generator.integers(0, 9, (5, 3)))


@pytest.mark.parametrize(("M", "Q"), [(1, 1), (8, 1), (12, 3), (20, 2)])
def test_any_number_of_steps(torch: Any, M: int, Q: int) -> None:
    generator = np.random.default_rng(M)
    steps = codes_of(generator, 9, 64)
    check(torch, codes_of(generator, sum(RAGGED), 64), RAGGED, steps, generator.integers(0, 9, (Q, M)))


@pytest.mark.parametrize("D", [128, 192, 256])
def test_any_padded_dimension(torch: Any, D: int) -> None:
    generator = np.random.default_rng(D)
    steps = codes_of(generator, 4, D)
    check(torch, codes_of(generator, 12, D), [5, 4, 3], steps, [[0, 1, 2, 3], [2, 2, 1, -1]])


def test_several_blocks_the_last_one_not_full(torch: Any) -> None:
    generator = np.random.default_rng(5)
    steps = codes_of(generator, 30, 64)
    queries = generator.integers(0, 30, (11, 5))
    check(torch, codes_of(generator, 40, 64), [10, 20, 3, 7], steps, queries, columns=32)


def test_negative_similarities_are_not_beaten_by_padding(torch: Any) -> None:
    """Neither by the steps of zeros nor by the segments that a shorter narration lacks beside a longer one."""
    generator = np.random.default_rng(6)
    steps = -codes_of(generator, 4, 64, low=1)
    codes = codes_of(generator, 17, 64, low=1)
    check(torch, codes, [1, 2, 6, 8], steps, [[0, 1, 2, -1, -1], [3, 2, 1, 0, 1], [1, -1, -1, -1, -1]])


def test_largest_sums(torch: Any) -> None:
    check(torch, np.full((6, 128), 127, np.int8), [2, 4], np.full((1, 128), -127, np.int8), [[0] * 16])


def test_equal_vectors_and_equal_queries(torch: Any) -> None:
    generator = np.random.default_rng(7)
    steps = codes_of(generator, 3, 64)
    same = np.repeat(codes_of(generator, 1, 64), 20, axis=0)
    check(torch, same, [4] * 5, steps, [[0, 1], [2, 1], [0, 1], [0, 0]])


def shared_beginnings(generator: np.random.Generator, histories: Sequence[int], tail: int, steps: int) -> NDArray[Any]:
    """Four completions of `tail` steps for each history, of which the lengths are given."""
    M = max(histories) + tail
    rows = []
    for length in histories:
        history = generator.integers(0, steps, length)
        for _ in range(4):
            completion = np.concatenate([history, generator.integers(0, steps, tail)])
            rows.append(np.pad(completion, (0, M - len(completion)), constant_values=-1))
    return np.array(rows, np.int32)


@pytest.mark.parametrize("histories", [[6], [6, 6, 6], [3, 7, 1], [0, 5]])
def test_shared_beginnings_change_nothing(torch: Any, histories: list[int]) -> None:
    generator = np.random.default_rng(8)
    steps = codes_of(generator, 25, 64)
    queries = shared_beginnings(generator, histories, 2, 25)
    check(torch, codes_of(generator, 33, 64), [12, 1, 8, 9, 3], steps, queries)


def test_a_query_that_another_begins_with(torch: Any) -> None:
    generator = np.random.default_rng(9)
    queries = [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [0, 1, 2, 3, 4, 5, 6, -1],
        [0, 1, 2, 3, 4, 5, 6, 2],
        [0, 1, -1, -1, -1, -1, -1, -1],
    ]
    check(torch, codes_of(generator, 20, 64), [9, 11], codes_of(generator, 8, 64), queries)


def test_sums_beyond_32_bits_are_refused(torch: Any) -> None:
    from recipe.corpus.gpu_scan import scan, segments
    from recipe.errors import InputError

    here = segments(place(torch, np.zeros((1, 1024), np.int8)), np.array([0, 1]), launch())
    with pytest.raises(InputError, match="131 steps, more than the 130"):
        scan(here, place(torch, np.zeros((1, 1024), np.int8)), np.zeros((1, 131), np.int32))


def test_float16_sums_are_within_their_bound(torch: Any) -> None:
    from recipe.corpus.gpu_scan import scan, segments

    generator = np.random.default_rng(10)
    offsets = np.cumsum([0, 4, 1, 30, 7])
    vectors, steps = (generator.standard_normal((rows, 192), dtype=np.float32) for rows in (42, 9))
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
    from recipe.corpus import gpu_rank

    monkeypatch.setattr(gpu_rank, "BLOCK", block)
    monkeypatch.setattr(gpu_rank, "_CHUNK", max(block, chunk))
    monkeypatch.setattr(gpu_rank, "_PAIRS", 5)
    generator = np.random.default_rng(11)
    sums = generator.integers(-9, 10, (50, 3)).astype(np.int32)
    known, asked = generator.uniform(0.1, 1, (3, 50, 1)), generator.uniform(0.1, 1, (3, 1, 3))
    scores = sums * known[0] * asked[0]
    uppers = scores + known[1] * asked[2] + known[2] * asked[1]
    these = gpu_rank.estimate(
        place(torch, sums), gpu_rank.Known(*place(torch, known)), gpu_rank.Asked(*place(torch, asked))
    )
    best = gpu_rank.best(these, 7)
    np.testing.assert_allclose(best.estimates.cpu(), -np.sort(-scores, axis=0)[:7])
    np.testing.assert_allclose(np.take_along_axis(scores, best.narrations.cpu().numpy(), 0), best.estimates.cpu())
    assert all(len(set(column)) == 7 for column in best.narrations.T.tolist())
    assert len(gpu_rank.best(these, 99).estimates) == 50
    for thresholds in (np.sort(scores, axis=0)[-7], np.full(3, -99.0), np.full(3, 99.0)):
        pairs = gpu_rank.reaching(these, place(torch, thresholds))
        found = sorted(zip(pairs.narrations.tolist(), pairs.queries.tolist(), strict=True))
        assert found == sorted(map(tuple, np.argwhere(uppers >= thresholds).tolist()))
