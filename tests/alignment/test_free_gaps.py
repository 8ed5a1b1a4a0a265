"""Alignments with free gaps and order votes: the reference against enumeration."""

from itertools import combinations, pairwise, product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from recipe.alignment import reference

Matrix = NDArray[np.float64]


@st.composite
def similarities(draw: st.DrawFn, most_steps: int = 4, most_segments: int = 5) -> Matrix:
    """Multiples of 1/64, so that sums are exact; about half are 0, as calibrated similarities are."""
    M, L = draw(st.integers(1, most_steps)), draw(st.integers(1, most_segments))
    values = draw(st.lists(st.integers(-64, 64), min_size=M * L, max_size=M * L))
    return np.maximum(np.reshape(values, (M, L)), 0) / 64


def best_matching(W: Matrix) -> float:
    """Over every way to pair some steps with some segments, both rising."""
    M, L = W.shape
    return max(
        sum(W[i, k] for i, k in zip(steps, segments, strict=True))
        for size in range(min(M, L) + 1)
        for steps in combinations(range(M), size)
        for segments in combinations(range(L), size)
    )


def best_coverage(W: Matrix) -> float:
    """Over every rising way to give each segment to a step, or to none."""
    M, L = W.shape
    owners = (o for o in product(range(-1, M), repeat=L) if _rising([i for i in o if i >= 0]))
    return max(sum(W[i, k] for k, i in enumerate(owner) if i >= 0) for owner in owners)


def _rising(owners: list[int]) -> bool:
    return all(a <= b for a, b in pairwise(owners))


@given(similarities())
def test_matching_is_the_best_of_all(W: Matrix) -> None:
    found = reference.free_matching(W)
    matches = [(i, k) for i, k in found.path if i is not None and k is not None]
    assert found.score == best_matching(W)
    assert sum(W[i, k] for i, k in matches) == found.score
    assert all(W[i, k] > 0 for i, k in matches)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(matches))


@given(similarities(3, 4))
def test_coverage_is_the_best_of_all(W: Matrix) -> None:
    assert reference.free_coverage(W) == best_coverage(W)


@given(similarities())
def test_precedence_counts_every_pair_of_segments(W: Matrix) -> None:
    M, L = W.shape
    counted = [[sum(W[i, k] * W[j, m] for k in range(L) for m in range(k + 1, L)) for j in range(M)] for i in range(M)]
    np.testing.assert_array_equal(reference.narration_precedence(W), counted)


@given(similarities())
def test_a_narration_told_backwards_reverses_the_vote(W: Matrix) -> None:
    np.testing.assert_array_equal(reference.narration_precedence(W[:, ::-1]), reference.narration_precedence(W).T)
