"""Alignments with free gaps and order votes: the reference against enumeration, each backend against the reference."""

from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recipe.alignment import backends, reference
from recipe.alignment.backends import Backend
from recipe.errors import InputError

Matrix = NDArray[np.float64]


@pytest.fixture(scope="module", params=list(backends.BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param not in backends.available():
        pytest.skip(f"the packages of backend {request.param} are not installed")
    return backends.load(request.param)


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


@settings(max_examples=30, deadline=None)  # the first call compiles
@given(data=st.data())
def test_backends_equal_the_reference(backend: Backend, data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    steps = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    W = np.maximum(rng.integers(-32, 64, (sum(lengths), sum(steps))), 0).astype(np.float32) / 64
    bounds, offsets = np.cumsum(steps), np.cumsum([0, *lengths])
    found = backend.grouped_free_alignment(W, bounds, offsets)
    for row in range(len(bounds)):
        own = [*range(bounds[0]), *(range(bounds[row - 1], bounds[row]) if row else ())]
        for n, (a, b) in enumerate(pairwise(offsets)):
            part = W[a:b, own].T
            assert found.matched[row, n] == (reference.free_matching(part).score if own else 0.0)
            assert found.covered[row, n] == (reference.free_coverage(part) if own else 0.0)
    if sum(steps):
        parts = [reference.narration_precedence(W[a:b].T) for a, b in pairwise(offsets)]
        np.testing.assert_allclose(backend.precedence(W, offsets), sum(parts), rtol=1e-12, atol=0)


def test_what_no_narration_owns_changes_nothing(backend: Backend) -> None:
    W = np.full((6, 3), np.nan, np.float32)
    W[2:5] = [[0.5, 0.0, 0.25], [0.0, 0.75, 0.0], [0.25, 0.0, 1.0]]
    found = backend.grouped_free_alignment(W, [1, 3], [2, 5])
    assert found.matched.tolist() == [[0.5], [2.25]]
    assert found.covered.tolist() == [[0.75], [2.25]]


def test_bounds_outside_the_columns_are_refused(backend: Backend) -> None:
    with pytest.raises(InputError, match="Bounds"):
        backend.grouped_free_alignment(np.zeros((2, 2)), [3], [0, 2])
