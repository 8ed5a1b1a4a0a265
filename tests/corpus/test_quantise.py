"""Codes: an isometry, bounds that hold for every vector, the same bytes however the vectors are cut."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("numba", reason="the corpus index needs numba")

from recipe.corpus.layout import padded
from recipe.corpus.scan.quantise import quantise, rotate


def vectors(seed: int, rows: int, dimension: int) -> NDArray[np.float16]:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((rows, dimension)) * generator.choice([1.0, 1e-3, 30.0], dimension)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float16)


@pytest.mark.parametrize("dimension", [1, 7, 64, 100, 384, 768, 1024])
def test_the_rotation_keeps_dot_products_and_spreads(dimension: int) -> None:
    x = vectors(0, 40, dimension).astype(np.float64)
    rotated = rotate(x)
    assert rotated.shape == (40, padded(dimension))
    np.testing.assert_allclose(rotated @ rotated.T, x @ x.T, atol=1e-13)
    unit = rotate(np.eye(dimension))
    assert np.abs(unit).max() <= 0.3
    assert (rotate(np.eye(384)) != 0).mean() > 0.5  # blocks of 128, mixed with each other


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 200), st.integers(0, 99))
def test_the_bounds_hold_for_every_vector(lengths: list[int], dimension: int, seed: int) -> None:
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    x = vectors(seed, offsets[-1], dimension)
    codes, bounds = quantise(x, offsets)
    scale, residual, norm = np.repeat(bounds.astype(np.float64), lengths, axis=0).T
    kept = codes * scale[:, None]
    assert np.abs(codes.astype(int)).max() <= 127
    assert (np.linalg.norm(rotate(x) - kept, axis=1) <= residual).all()
    assert (np.linalg.norm(kept, axis=1) <= norm).all()
    assert (residual <= 0.5 * scale * np.sqrt(padded(dimension)) + 1e-6).all()


def test_a_narrations_codes_depend_on_it_alone() -> None:
    """In more vectors than are widened at a time, one narration of more among them."""
    offsets = np.cumsum([0, 3, 2000, 1, 2500, 20, 5000, 7])
    x = vectors(5, offsets[-1], 70)
    codes, bounds = quantise(x, offsets)
    for n, (a, b) in enumerate(pairwise(offsets)):
        alone = quantise(x[a:b], np.array([0, b - a]))
        np.testing.assert_array_equal(codes[a:b], alone[0])
        np.testing.assert_array_equal(bounds[n : n + 1], alone[1])


def test_zero_vectors_have_codes_of_zero() -> None:
    codes, bounds = quantise(np.zeros((2, 8), np.float16), np.array([0, 2]))
    assert not codes.any()
    assert bounds[0, 1] < 1e-8
