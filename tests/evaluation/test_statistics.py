"""Intervals against closed forms, the definition of the bootstrap, and their coverage."""

import itertools
import math
import random
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recipe import stats
from recipe.errors import ComputeError
from recipe.stats import macro_interval, mean_interval, paired_interval

floats = st.floats(-10, 10)


def test_resampling_equals_the_enumeration_of_all_draws() -> None:
    sums, sizes = np.array([3.0, 1.0, 8.0]), np.array([2.0, 1.0, 4.0])
    draws = [list(draw) for draw in itertools.product(range(3), repeat=3)]
    every = np.array([sums[draw].sum() / sizes[draw].sum() for draw in draws])
    totals = stats.resampled_totals(np.stack([sums, sizes], axis=1))
    sampled = totals[:, 0] / totals[:, 1]
    for bound in np.linspace(every.min(), every.max(), 9) + 0.01:
        assert (sampled < bound).mean() == pytest.approx((every < bound).mean(), abs=0.02)
    assert sampled.mean() == pytest.approx(every.mean(), abs=0.02)


def test_one_value_a_cluster_is_the_ordinary_bootstrap() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=40)
    ours = mean_interval(values, [str(n) for n in range(40)])
    means = rng.choice(values, size=(40_000, 40)).mean(1)
    assert [ours.low, ours.high] == pytest.approx(np.quantile(means, stats.expanded_levels(40)), abs=0.02)


def test_clusters_of_equal_values_widen_the_interval_as_theory_says() -> None:
    base = np.random.default_rng(1).normal(size=50)
    repeated, goals = np.repeat(base, 20), np.repeat([str(n) for n in range(50)], 20)
    whole = mean_interval(repeated, list(goals))
    single = mean_interval(base, [str(n) for n in range(50)])
    assert (whole.mean, whole.low, whole.high) == pytest.approx((single.mean, single.low, single.high))
    assert (whole.observations, whole.clusters) == (1000, 50)


@pytest.mark.parametrize(("freedom", "known"), [(2, 4.3027), (3, 3.1824), (7, 2.3646), (23, 2.0687), (99, 1.9842)])
def test_student_quantiles_match_the_table(freedom: int, known: float) -> None:
    tail, upper = stats.expanded_levels(freedom + 1)
    assert upper == 1 - tail
    assert -NormalDist().inv_cdf(tail) == pytest.approx(known * math.sqrt((freedom + 1) / freedom), rel=5e-5)


@pytest.mark.parametrize(
    ("values", "datasets", "clusters", "reason", "sign"),
    [
        ([0.0, 1.0], "aa", "uu", "one cluster", None),
        ([0.4] * 5, "a" * 5, "uvwxy", "all equal", None),
        ([0.4] * 6, "a" * 6, "uvwxyz", "all equal", 1),
        ([-0.4] * 6, "a" * 6, "uvwxyz", "all equal", -1),
        ([0.0] * 2, "aa", "uv", "all equal", 0),
        ([0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2], "aaaa", "uvwx", "all equal", None),
        ([0.0] * 17 + [1.0] * 3, "a" * 20, "abcdefghijklmnopqrst", "few differ", None),
        ([0.0] * 14 + [1.0] * 6, "a" * 20, "abcdefghijklmnopqrst", "", 1),
        ([0.0, 0.0, 1.0], "aaa", "uvw", "few differ", None),
        ([0.0, 1.0], "aa", "uv", "", 0),
        ([1.0, 2.0, 5.0, 7.0], "aabb", "uvww", "one cluster", None),
        ([1.0] * 12, "a" * 6 + "b" * 6, "uvwxyz" * 2, "all equal", 1),
        ([1.0] * 6 + [2.0] * 6, "a" * 6 + "b" * 6, "uvwxyz" * 2, "few differ", None),
        ([0.0] * 4 + [1.0] * 2 + [0.0] * 5 + [1.0], "a" * 6 + "b" * 6, "uvwxyz" * 2, "few differ", None),
        ([0.0] * 2 + [1.0] * 4 + [0.0] * 2 + [1.0] * 4, "a" * 6 + "b" * 6, "uvwxyz" * 2, "few differ", None),
        ([0.0] * 5 + [1.0] * 4 + [0.0] * 5 + [1.0] * 4, "a" * 9 + "b" * 9, "abcdefghi" * 2, "", 1),
    ],
)
def test_a_missing_interval_says_why(
    values: list[float], datasets: str, clusters: str, reason: str, sign: int | None
) -> None:
    """A dataset whose videos are all equal tells no spread, and several need eight that differ."""
    found = macro_interval(values, list(datasets), list(clusters))
    assert (found.reason, found.sign) == (reason, sign)
    assert (found.low is None) == (found.high is None) == bool(reason)
    means = [np.mean([v for v, own in zip(values, datasets, strict=True) if own == name]) for name in set(datasets)]
    assert found.mean == pytest.approx(np.mean(means))


def test_two_and_three_clusters_have_the_t_interval() -> None:
    for values, student in (([1.0, 4.0], 12.7062), ([1.0, 2.0, 6.0], 4.3027)):
        found = mean_interval(values, list("abc")[: len(values)])
        half = student * np.std(values, ddof=1) / math.sqrt(len(values))
        assert (found.low, found.high) == pytest.approx((found.mean - half, found.mean + half), rel=1e-4)


def test_a_dataset_of_two_has_one_degree_of_freedom_beside_a_large_one() -> None:
    rng = np.random.default_rng(0)
    few, many = [0.0, 0.01], rng.normal(size=200)  # two that are alike by chance
    found = macro_interval([*few, *many], ["a"] * 2 + ["b"] * 200, [str(n) for n in range(202)])
    spread = math.sqrt(np.var(few, ddof=1) / 2 + many.var(ddof=1) / 200) / 2
    assert found.high is not None
    assert found.high - found.mean > 11 * spread


def test_clusters_of_unequal_size_have_fewer_degrees_of_freedom() -> None:
    assert stats._Clustered(np.zeros((1, 7)), np.full(7, 3.0)).freedom() == pytest.approx(6)
    shares = np.array([0.5, 0.25, 0.125, 0.125])
    # By its definition: the trace squared over that of the square, for values that are independent.
    away = np.eye(4) - np.outer(np.ones(4), shares)
    form = away.T @ np.diag(shares**2) @ away @ np.diag(1 / shares)
    wanted = np.trace(form) ** 2 / np.trace(form @ form)
    assert stats._Clustered(np.zeros((1, 4)), 8 * shares).freedom() == pytest.approx(wanted)


def test_the_jackknife_by_its_definition() -> None:
    sums, sizes = np.array([3.0, 1.0, 8.0, 2.0]), np.array([2.0, 1.0, 4.0, 3.0])
    without = np.array([np.delete(sums, n).sum() / np.delete(sizes, n).sum() for n in range(4)])
    wanted = 3 / 4 * np.square(without - sums.sum() / sizes.sum()).sum()
    assert stats._Clustered(sums[None], sizes).jackknife() == pytest.approx([wanted])


def held(found: stats.Interval, truth: float) -> bool:
    """Whether an interval holds the truth, or says that there is none."""
    return found.low is None or found.high is None or found.low <= truth <= found.high


@pytest.mark.parametrize("chance", [0.02, 0.05, 0.1])
def test_rare_events_hold_what_is_promised(chance: float) -> None:
    rng = np.random.default_rng(12)
    videos = np.repeat(np.arange(20), 3).astype(str).tolist()
    found = [
        mean_interval((rng.random(60) < np.repeat(rng.beta(chance, 1 - chance, size=20), 3)).astype(float), videos)
        for _ in range(300)
    ]
    assert np.mean([held(one, chance) for one in found]) >= 0.91
    assert all(one.low is None or one.low < one.mean for one in found)  # never of no width


@pytest.mark.parametrize(
    ("compute", "values"),
    [
        (mean_interval, ([], [])),
        (mean_interval, ([math.nan], ["a"])),
        (mean_interval, ([math.inf, 1.0], ["a", "a"])),
        (paired_interval, ([1.0], [1.0, 2.0], ["a", "b"])),
        (macro_interval, ([], [], [])),
        (macro_interval, ([1.0], ["a", "b"], ["u"])),
        (macro_interval, ([1.0], ["a"], [])),
    ],
)
def test_what_has_no_mean_or_no_pair_is_an_error(
    compute: Callable[..., stats.Interval], values: tuple[Any, ...]
) -> None:
    with pytest.raises(ComputeError):
        compute(*values)


@settings(max_examples=20)
@example([(3.0 ** (n % 5), n % 2, "abcdefgh"[n]) for n in range(8)])  # leans to one side
@given(st.lists(st.tuples(floats, floats, st.sampled_from("abcd")), min_size=2, max_size=12))
def test_differences_are_antisymmetric_and_hold_their_mean(rows: list[tuple[float, float, str]]) -> None:
    first, second, goals = zip(*rows, strict=True)
    there, back = paired_interval(first, second, goals), paired_interval(second, first, goals)
    assert there.mean == pytest.approx(-back.mean)
    if there.low is not None and there.high is not None and back.low is not None and back.high is not None:
        assert there.low <= there.mean + 1e-9
        assert there.mean <= there.high + 1e-9
        assert (there.low, there.high) == pytest.approx((-back.high, -back.low), abs=1e-9)


def several(rng: np.random.Generator, sizes: tuple[int, ...]) -> tuple[list[float], list[str], list[str]]:
    """Datasets of so many videos, each of one to nine values that share a part; all of mean 0."""
    rows = [
        (shared + rng.normal(), str(dataset), str(video))
        for dataset, videos in enumerate(sizes)
        for video in range(videos)
        for shared in [rng.normal()]
        for _ in range(rng.integers(1, 10))
    ]
    values, datasets, videos = zip(*rows, strict=True)
    return list(values), list(datasets), list(videos)


def test_one_dataset_is_the_mean_interval_itself() -> None:
    values, _, videos = several(np.random.default_rng(2), (9,))
    assert macro_interval(values, ["coin"] * len(values), videos, seed=3) == mean_interval(values, videos, seed=3)


def test_every_dataset_weighs_the_same() -> None:
    found = macro_interval([1.0, 1.0, 1.0, 1.0, 4.0, 6.0], list("aaaabb"), list("uvwxuv"))
    assert (found.mean, found.observations, found.clusters) == (3.0, 6, 6)


def test_datasets_of_the_same_videos_are_drawn_apart() -> None:
    values = np.random.default_rng(5).normal(size=200)
    videos = [str(n) for n in range(200)]
    one = mean_interval(values, videos)
    both = macro_interval([*values, *values], ["a"] * 200 + ["b"] * 200, videos * 2)
    assert one.low is not None
    assert both.low is not None
    assert both.mean == pytest.approx(one.mean)
    assert both.mean - both.low == pytest.approx((one.mean - one.low) / math.sqrt(2), rel=0.05)


@settings(max_examples=20)
@example([(0.0, "a", "u"), (2.5761999911581085e-302, "a", "v")], random.Random(0))
@example([(0.0, "a", "u"), (2.2090435768369382e-88, "a", "v")], random.Random(0))
@given(
    st.lists(st.tuples(floats, st.sampled_from("ab"), st.sampled_from("uvwx")), min_size=2, max_size=14), st.randoms()
)
def test_a_macro_interval_holds_its_mean_and_knows_no_order(
    rows: list[tuple[float, str, str]], shuffled: random.Random
) -> None:
    found = macro_interval(*zip(*rows, strict=True))
    other = macro_interval(*zip(*shuffled.sample(rows, len(rows)), strict=True))
    assert other.mean == pytest.approx(found.mean)
    if found.low is None or found.high is None:
        assert other.low is None
    else:
        assert found.low - 1e-9 <= found.mean <= found.high + 1e-9
        assert (other.low, other.high) == pytest.approx((found.low, found.high))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sizes", "trials", "low", "high"),
    [
        *((sizes, 300, 0.91, 1.0) for sizes in ((2,), (3,), (5,), (2, 200), (3, 40, 40, 40))),
        ((8,), 300, 0.90, 0.98),
        ((5, 8, 12), 300, 0.90, 0.98),
        pytest.param((5, 8, 12), 4000, 0.925, 0.965, marks=pytest.mark.slow),
        pytest.param((8,) * 7, 4000, 0.935, 0.965, marks=pytest.mark.slow),
        pytest.param((30, 60, 100), 2000, 0.935, 0.965, marks=pytest.mark.slow),
    ],
)
def test_intervals_hold_what_is_promised(sizes: tuple[int, ...], trials: int, low: float, high: float) -> None:
    rng = np.random.default_rng(8)
    assert low <= np.mean([held(macro_interval(*several(rng, sizes)), 0) for _ in range(trials)]) <= high
