"""Each backend's batch functions, forced by name, against the reference on ragged and grouped input."""

import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recipe.alignment import backends, reference
from recipe.alignment.backends import Backend
from recipe.errors import InputError, MissingExtra

GAP = -1 / 16
ATOL = 1e-5


class Group(NamedTuple):
    W: NDArray[np.float32]
    bounds: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def similarities(self, row: int, n: int) -> NDArray[np.float32]:
        steps = (
            [*range(self.bounds[0]), *range(self.bounds[row - 1], self.bounds[row])]
            if row
            else [*range(self.bounds[0])]
        )
        return self.W[self.offsets[n] : self.offsets[n + 1], steps].T


@st.composite
def groups(draw: st.DrawFn, *, exact: bool = False, lead: int = 0) -> Group:
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    steps = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (lead + sum(lengths), sum(steps))
    W = rng.integers(-16, 64, shape) / 64 if exact else rng.uniform(-1, 1, shape)
    return Group(W.astype(np.float32), np.cumsum(steps), lead + np.cumsum([0, *lengths]))


@pytest.fixture(scope="module", params=list(backends.BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param not in backends.available():
        pytest.skip(f"the packages of backend {request.param} are not installed")
    return backends.load(request.param)


def expected(group: Group) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    shape = group.bounds.size, group.offsets.size - 1
    mono, score, length = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64)
    for row in range(shape[0]):
        for n in range(shape[1]):
            if (W := group.similarities(row, n)).size:
                alignment = reference.needleman_wunsch(W, GAP)
                mono[row, n] = reference.monotone_coverage(W)
                score[row, n], length[row, n] = alignment.score, len(alignment.path)
    return mono, score, length


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_backends_agree_with_the_reference(backend: Backend, data: st.DataObject) -> None:
    group = data.draw(groups())
    mono, score, length = expected(group)
    aligned = backend.grouped_needleman_wunsch(*group, GAP)
    np.testing.assert_allclose(backend.grouped_monotone_coverage(*group), mono, rtol=0, atol=ATOL)
    np.testing.assert_allclose(aligned.score, score, rtol=0, atol=ATOL)
    np.testing.assert_array_equal(aligned.length, length)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_carried_length_is_the_length_of_the_traceback_under_ties(backend: Backend, data: st.DataObject) -> None:
    group = data.draw(groups(exact=True))
    _, score, length = expected(group)
    aligned = backend.grouped_needleman_wunsch(*group, GAP)
    np.testing.assert_array_equal(aligned.length, length)
    np.testing.assert_array_equal(aligned.score, score.astype(np.float32))


def test_the_comparison_sees_a_small_fault(backend: Backend) -> None:
    rng = np.random.default_rng(0)
    group = Group(rng.uniform(0.2, 1, (40, 6)).astype(np.float32), np.array([3, 6]), np.array([0, 15, 40]))
    faulty = group._replace(W=group.W * np.float32(1.0001))
    mono, score, _ = expected(group)
    for wrong, right in [
        (backend.grouped_monotone_coverage(*faulty), mono),
        (backend.grouped_needleman_wunsch(*faulty, GAP).score, score),
    ]:
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(wrong, right, rtol=0, atol=ATOL)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_rows_outside_the_offsets_change_nothing(backend: Backend, data: st.DataObject) -> None:
    group = data.draw(groups(lead=2))
    padded = np.full((group.W.shape[0] + 3, group.W.shape[1]), np.nan, np.float32)
    padded[2:-3] = group.W[2:]
    np.testing.assert_array_equal(
        backend.grouped_monotone_coverage(padded, group.bounds, group.offsets),
        backend.grouped_monotone_coverage(*group),
    )
    for with_padding, without in zip(
        backend.grouped_needleman_wunsch(padded, group.bounds, group.offsets, GAP),
        backend.grouped_needleman_wunsch(*group, GAP),
        strict=True,
    ):
        np.testing.assert_array_equal(with_padding, without)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_group_is_its_sequences_one_by_one(backend: Backend, data: st.DataObject) -> None:
    group = data.draw(groups())
    together = backend.grouped_needleman_wunsch(*group, GAP)
    for row in range(1, group.bounds.size):
        steps = [*range(group.bounds[0]), *range(group.bounds[row - 1], group.bounds[row])]
        alone = backend.grouped_needleman_wunsch(group.W[:, steps], [len(steps)], group.offsets, GAP)
        np.testing.assert_array_equal(alone.score[0], together.score[row])


@settings(max_examples=20, deadline=None)
@given(data=st.data(), k=st.integers(1, 5))
def test_one_more_narration_never_lowers_the_threshold_of_the_pool(
    backend: Backend, data: st.DataObject, k: int
) -> None:
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=k + 1, max_size=9))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    W, offsets = rng.uniform(-1, 1, (sum(lengths), 3)).astype(np.float32), np.cumsum([0, *lengths])
    with_it = np.sort(backend.grouped_monotone_coverage(W, [3], offsets)[0])[-k]
    without = np.sort(backend.grouped_monotone_coverage(W, [3], offsets[:-1])[0])[-k]
    assert with_it >= without


def test_sequences_without_steps_score_zero(backend: Backend) -> None:
    W, offsets = np.ones((4, 2), np.float32), [0, 1, 4]
    mono = backend.grouped_monotone_coverage(W, [0, 2, 2], offsets)
    aligned = backend.grouped_needleman_wunsch(W, [0, 2, 2], offsets)
    for row in (0, 2):
        assert not mono[row].any()
        assert not aligned.score[row].any()
        assert not aligned.length[row].any()
    np.testing.assert_allclose(mono[1], 1)


def test_hopeless_similarities(backend: Backend) -> None:
    W, offsets = np.full((5, 3), -1, np.float32), [0, 1, 5]
    np.testing.assert_array_equal(backend.grouped_monotone_coverage(W, [3], offsets)[0], [-1, -1])
    aligned = backend.grouped_needleman_wunsch(W, [3], offsets)
    np.testing.assert_array_equal(aligned.score[0], np.float32([1e-6, 1e-6]))
    np.testing.assert_array_equal(aligned.length[0], [4, 7])


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
    with pytest.raises(InputError, match=reason):
        backend.grouped_monotone_coverage(W, bounds, offsets)
    with pytest.raises(InputError, match=reason):
        backend.grouped_needleman_wunsch(W, bounds, offsets)


def test_unusable_shapes_and_gaps_are_refused(backend: Backend) -> None:
    with pytest.raises(InputError, match="segments by steps"):
        backend.grouped_monotone_coverage(np.zeros(3), [1], [0, 3])
    with pytest.raises(InputError, match="gap penalty"):
        backend.grouped_needleman_wunsch(np.zeros((3, 1)), [1], [0, 3], 0.5)


def test_a_backend_is_chosen_by_name() -> None:
    assert backends.available()[-1] == "reference"
    assert backends.load("auto") is backends.load(backends.available()[0])
    with pytest.raises(InputError, match="choose auto, cpu, reference"):
        backends.load("tpu")


def test_an_absent_package_is_named_with_its_extra(without: Callable[[str], None]) -> None:
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
