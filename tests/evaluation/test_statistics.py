"""Intervals against closed forms, the definition of the bootstrap, and their coverage."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.errors import ComputeError
from recipe.evaluation import statistics
from recipe.evaluation.statistics import mean_interval, paired_interval

floats = st.floats(-10, 10)


def test_resampling_equals_the_enumeration_of_all_draws() -> None:
    sums, sizes = np.array([3.0, 1.0, 8.0]), np.array([2.0, 1.0, 4.0])
    draws = [list(draw) for draw in itertools.product(range(3), repeat=3)]
    every = np.array([sums[draw].sum() / sizes[draw].sum() for draw in draws])
    sampled = statistics._resampled_means(sums, sizes, seed=0)
    for bound in np.linspace(every.min(), every.max(), 9) + 0.01:
        assert (sampled < bound).mean() == pytest.approx((every < bound).mean(), abs=0.02)
    assert sampled.mean() == pytest.approx(every.mean(), abs=0.02)


def test_one_value_a_cluster_is_the_ordinary_bootstrap() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=40)
    ours = mean_interval(values, [str(n) for n in range(40)])
    means = rng.choice(values, size=(40_000, 40)).mean(1)
    assert [ours.low, ours.high] == pytest.approx(np.quantile(means, statistics._levels(40)), abs=0.02)


def test_large_samples_give_the_normal_interval() -> None:
    values = np.random.default_rng(0).normal(size=500)
    ours = mean_interval(values, [str(n) for n in range(500)])
    half = 1.96 * values.std(ddof=1) / math.sqrt(500)
    assert ours.low == pytest.approx(values.mean() - half, abs=0.008)
    assert ours.high == pytest.approx(values.mean() + half, abs=0.008)


def test_clusters_of_equal_values_widen_the_interval_as_theory_says() -> None:
    base = np.random.default_rng(1).normal(size=50)
    repeated, goals = np.repeat(base, 20), np.repeat([str(n) for n in range(50)], 20)
    whole = mean_interval(repeated, list(goals))
    single = mean_interval(base, [str(n) for n in range(50)])
    assert (whole.mean, whole.low, whole.high) == pytest.approx((single.mean, single.low, single.high))
    assert (whole.observations, whole.clusters) == (1000, 50)


@pytest.mark.parametrize(("freedom", "known"), [(2, 4.3027), (3, 3.1824), (7, 2.3646), (23, 2.0687), (99, 1.9842)])
def test_student_quantiles_match_the_table(freedom: int, known: float) -> None:
    tail, upper = statistics._levels(freedom + 1)
    assert upper == 1 - tail
    assert -NormalDist().inv_cdf(tail) == pytest.approx(known * math.sqrt((freedom + 1) / freedom), rel=5e-5)


def test_constant_values_have_an_interval_of_no_width() -> None:
    assert mean_interval([0.4] * 6, list("aabbcc")).low == pytest.approx(0.4)


def test_a_single_goal_has_no_interval() -> None:
    interval = mean_interval([0.0, 1.0], ["tea", "tea"])
    assert (interval.mean, interval.low, interval.high) == (0.5, None, None)


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, 1.0]])
def test_what_cannot_be_averaged_is_an_error(values: list[float]) -> None:
    with pytest.raises(ComputeError):
        mean_interval(values, ["a"] * len(values))


def test_unpaired_values_are_an_error() -> None:
    with pytest.raises(ComputeError, match="cannot be paired"):
        paired_interval([1.0], [1.0, 2.0], ["a", "b"])


@settings(max_examples=20)
@given(st.lists(st.tuples(floats, floats, st.sampled_from("abcd")), min_size=2, max_size=12))
def test_differences_are_antisymmetric_and_hold_their_mean(rows: list[tuple[float, float, str]]) -> None:
    first, second, goals = zip(*rows, strict=True)
    there, back = paired_interval(first, second, goals), paired_interval(second, first, goals)
    assert there.mean == pytest.approx(-back.mean)
    if there.low is not None and there.high is not None and back.low is not None and back.high is not None:
        assert there.low <= there.mean + 1e-9
        assert there.mean <= there.high + 1e-9
        assert (there.low, there.high) == pytest.approx((-back.high, -back.low), abs=1e-9)


def test_coverage_with_eight_goals_is_near_what_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "DRAWS", 1500)
    rng = np.random.default_rng(7)
    goals = np.repeat(list("abcdefgh"), 12)
    held = 0
    for trial in range(400):
        values = np.repeat(rng.normal(size=8), 12) + rng.normal(size=96)
        interval = mean_interval(values, list(goals), seed=trial)
        assert interval.low is not None
        assert interval.high is not None
        held += interval.low <= 0 <= interval.high
    assert 0.91 <= held / 400 <= 0.98
