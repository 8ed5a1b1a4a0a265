"""The reference against theory: all assignments and paths of small matrices, closed forms, golden values."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from recipe.alignment.reference import (
    free_coverage,
    free_matching,
    monotone_coverage,
    narration_precedence,
    needleman_wunsch,
)
from recipe.errors import InputError

Matrix = NDArray[np.float64]
Path_ = tuple[tuple[int | None, int | None], ...]

# Multiples of 1/64 with a gap of 1/16: sums are exact, so that ties are ties in every number format.
EXACT_GAP = -1 / 16
exact_matrices = st.tuples(st.integers(1, 4), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(-16, 64).map(lambda n: n / 64))
)
# As calibrated similarities are: none below 0, and many 0.
calibrated = exact_matrices.map(lambda W: np.maximum(W - 0.5, 0))


def all_assignments(W: Matrix) -> Iterator[float]:
    M, L = W.shape
    for chosen in itertools.combinations_with_replacement(range(L), M):
        yield float(sum(W[i, k] for i, k in enumerate(chosen)) / M)


def all_paths(M: int, L: int) -> Iterator[Path_]:
    """All monotone lattice paths from (0, 0) to (M, L) with match, skipped-step and skipped-segment moves."""
    if not M and not L:
        yield ()
    if M and L:
        yield from ((*path, (M - 1, L - 1)) for path in all_paths(M - 1, L - 1))
    if M:
        yield from ((*path, (M - 1, None)) for path in all_paths(M - 1, L))
    if L:
        yield from ((*path, (None, L - 1)) for path in all_paths(M, L - 1))


def value(W: Matrix, path: Path_, gap: float) -> float:
    return sum(gap if i is None or k is None else float(W[i, k]) for i, k in path)


def preference(path: Path_) -> list[int]:
    """Sort key of the tie order, compared move by move from (M, L) back to (0, 0)."""
    return [1 if k is None else 2 if i is None else 0 for i, k in reversed(path)]


@given(exact_matrices)
def test_coverage_is_the_best_of_all_monotone_assignments(W: Matrix) -> None:
    assert monotone_coverage(W) == pytest.approx(max(all_assignments(W)), abs=1e-12)


@given(exact_matrices)
def test_alignment_is_the_first_of_the_best_paths_in_tie_order(W: Matrix) -> None:
    paths = list(all_paths(*W.shape))
    best = max(value(W, path, EXACT_GAP) for path in paths)
    expected = min((path for path in paths if value(W, path, EXACT_GAP) == best), key=preference)
    alignment = needleman_wunsch(W, EXACT_GAP)
    assert alignment.path == expected
    assert alignment.score == pytest.approx(np.clip(best / len(expected), 1e-6, 1), abs=1e-12)


def test_tie_order_decides_the_length() -> None:
    # A match of -0.125 costs what two gaps of -0.0625 cost, in one move instead of two.
    assert needleman_wunsch([[-0.125]], EXACT_GAP).path == ((0, 0),)
    # Both orders of the two gaps are optimal: backwards the skipped step comes first.
    assert needleman_wunsch([[-0.5]], EXACT_GAP).path == ((None, 0), (0, None))


def test_one_step_takes_its_best_segment_at_the_gap_of_the_paper() -> None:
    W = np.array([[0.1, -0.4, 0.9, 0.3]])
    assert monotone_coverage(W) == 0.9
    assert needleman_wunsch(W).score == pytest.approx((0.9 - 3 * 0.05) / 4)


def best_matching(W: Matrix) -> float:
    """Over every way to pair some steps with some segments, both rising."""
    M, L = W.shape
    return max(
        sum(W[i, k] for i, k in zip(steps, segments, strict=True))
        for size in range(min(M, L) + 1)
        for steps in itertools.combinations(range(M), size)
        for segments in itertools.combinations(range(L), size)
    )


def best_coverage(W: Matrix) -> float:
    """Over every rising way to give each segment to a step, or to none."""
    M, L = W.shape
    owners = (o for o in itertools.product(range(-1, M), repeat=L) if rising([i for i in o if i >= 0]))
    return max(sum(W[i, k] for k, i in enumerate(owner) if i >= 0) for owner in owners)


def rising(owners: list[int]) -> bool:
    return all(a <= b for a, b in itertools.pairwise(owners))


@given(calibrated)
def test_matching_is_the_best_of_all(W: Matrix) -> None:
    found = free_matching(W)
    matches = [(i, k) for i, k in found.path if i is not None and k is not None]
    assert found.score == best_matching(W)
    assert sum(W[i, k] for i, k in matches) == found.score
    assert all(W[i, k] > 0 for i, k in matches)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(matches))


@given(calibrated)
def test_coverage_is_the_best_of_all(W: Matrix) -> None:
    assert free_coverage(W) == best_coverage(W)


@given(calibrated)
def test_precedence_counts_every_pair_of_segments(W: Matrix) -> None:
    M, L = W.shape
    counted = [[sum(W[i, k] * W[j, m] for k in range(L) for m in range(k + 1, L)) for j in range(M)] for i in range(M)]
    np.testing.assert_array_equal(narration_precedence(W), counted)


@pytest.mark.parametrize(
    ("W", "reason"),
    [
        ([0.1, 0.2], "matrix of steps by segments"),
        (np.empty((0, 3)), "at least one step"),
        (np.empty((3, 0)), "at least one step and one segment"),
        ([[0.1, np.nan]], "NaN"),
        ([[0.1, np.inf]], "infinity"),
    ],
)
def test_unusable_similarities_are_refused(W: Matrix, reason: str) -> None:
    for function in (monotone_coverage, needleman_wunsch):
        with pytest.raises(InputError, match=reason):
            function(W)


@pytest.mark.parametrize("gap", [0.1, np.nan, -np.inf])
def test_unusable_gaps_are_refused(gap: float) -> None:
    with pytest.raises(InputError, match="gap penalty"):
        needleman_wunsch([[0.5]], gap)


def test_golden_values(shared_golden: Path) -> None:
    cases = json.loads((shared_golden / "alignment.json").read_text())["cases"]
    assert cases
    for case in cases:
        W = np.array(case["W"])
        alignment = needleman_wunsch(W)
        assert monotone_coverage(W) == pytest.approx(case["mono"], abs=1e-12)
        assert alignment.score == pytest.approx(case["nw_score"], abs=1e-12)
        assert len(alignment.path) == case["nw_path_length"]
        if case["history_steps"]:
            history = needleman_wunsch(W[: case["history_steps"]])
            assert history.score == pytest.approx(case["nw_history_score"], abs=1e-12)
