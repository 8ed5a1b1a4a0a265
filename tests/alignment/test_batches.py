"""Each backend's batch functions, forced by name, against the reference on ragged and grouped input."""

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.alignment.conftest import groups

from recipe.alignment import backends, reference
from recipe.alignment.backends import Backend
from recipe.errors import InputError, MissingExtra

GAP = -1 / 16


@settings(max_examples=60, deadline=None)  # the first call compiles
@given(data=st.data())
def test_backends_equal_the_reference(backend: Backend, data: st.DataObject) -> None:
    """To the last bit: sums are of float64 in the order of the reference, rounded once; ties fall as there."""
    group = data.draw(groups())
    coverage = backend.grouped_monotone_coverage(*group)
    aligned = backend.grouped_needleman_wunsch(*group, GAP)
    for row, n in np.ndindex(coverage.shape):
        mono, score, length = 0.0, 0.0, 0
        if (W := group.similarities(row, n)).size:
            mono, alignment = reference.monotone_coverage(W), reference.needleman_wunsch(W, GAP)
            score, length = alignment.score, len(alignment.path)
        found = coverage[row, n], aligned.score[row, n], aligned.length[row, n]
        assert found == (np.float32(mono), np.float32(score), length)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_free_gaps_and_votes_equal_the_reference(backend: Backend, data: st.DataObject) -> None:
    group = data.draw(groups(calibrated=True))
    found = backend.grouped_free_alignment(*group)
    for row, n in np.ndindex(found.matched.shape):
        W = group.similarities(row, n)
        assert found.matched[row, n] == (reference.free_matching(W).score if W.size else 0.0)
        assert found.covered[row, n] == (reference.free_coverage(W) if W.size else 0.0)
    if group.W.shape[1]:
        parts = [reference.narration_precedence(group.W[a:b].T) for a, b in pairwise(group.offsets)]
        np.testing.assert_allclose(backend.precedence(group.W, group.offsets), sum(parts), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("bounds", "offsets", "reason"),
    [
        ([2], [0, 3, 3], "Offsets"),
        ([2], [0, 9], "Offsets"),
        ([2], [-1, 3], "Offsets"),
        ([2], [], "Offsets"),
        ([3], [0, 5], "Bounds"),
        ([2, 1], [0, 5], "Bounds"),
        ([], [0, 5], "Bounds"),
    ],
)
def test_unusable_layouts_are_refused(backend: Backend, bounds: list[int], offsets: list[int], reason: str) -> None:
    W = np.zeros((5, 2), np.float32)
    functions = backend.grouped_monotone_coverage, backend.grouped_needleman_wunsch, backend.grouped_free_alignment
    for function in functions:
        with pytest.raises(InputError, match=reason):
            function(W, bounds, offsets)


def test_unusable_shapes_and_gaps_are_refused(backend: Backend) -> None:
    with pytest.raises(InputError, match="segments by steps"):
        backend.grouped_monotone_coverage(np.zeros(3), [1], [0, 3])
    with pytest.raises(InputError, match="gap penalty"):
        backend.grouped_needleman_wunsch(np.zeros((3, 1)), [1], [0, 3], 0.5)


def test_a_backend_is_chosen_by_name(without: Callable[[str], None]) -> None:
    assert backends.available()[-1] == "reference"
    assert backends.load("auto") is backends.load(backends.available()[0])
    with pytest.raises(InputError, match="choose auto, cpu, reference"):
        backends.load("tpu")
    without("numba")
    assert backends.available() == ("reference",)
    with pytest.raises(MissingExtra, match=r"\[cpu\]'"):
        backends.load("cpu")


def test_choosing_a_backend_loads_no_numba() -> None:
    code = "import sys, recipe.alignment.backends as b; b.load('reference'); print('numba' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == "False"


def test_a_kernel_without_a_place_for_its_cache_still_compiles() -> None:
    cpu = pytest.importorskip("recipe.alignment.cpu", reason="numba is not installed", exc_type=ImportError)
    namespace: dict[str, object] = {}
    exec("def fill(out):\n    out[0] = 7.0", namespace)  # no source file, hence no cache folder
    out = np.zeros(1)
    cpu.compiled(namespace["fill"])(out)
    assert out[0] == 7.0
