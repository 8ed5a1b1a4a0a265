"""The permutation test against enumeration, scipy and its own promise; effects and Holm's adjustment by hand."""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy")
from scipy.stats import permutation_test

from recipe import stats
from recipe.errors import ComputeError
from recipe.stats import adjusted, compare

percents = st.integers(0, 30).map(lambda total: total / 0.3)
rows = st.lists(
    st.tuples(percents, percents, st.sampled_from("uvwxyz"), st.sampled_from("ab")), min_size=1, max_size=14
)


def enumerated(differences: dict[tuple[str, str], list[float]]) -> float:
    """The p-value by its definition; `differences` by dataset and video."""
    names = {dataset for dataset, _ in differences}
    sizes = {name: sum(len(part) for (dataset, _), part in differences.items() if dataset == name) for name in names}
    parts = [sum(part) / sizes[dataset] / len(names) for (dataset, _), part in differences.items()]
    flips = [
        abs(sum(sign * part for sign, part in zip(signs, parts, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(parts))
    ]
    return sum(flip >= abs(sum(parts)) - 1e-7 for flip in flips) / len(flips)


@settings(max_examples=20)
@given(rows)
def test_p_is_the_share_of_all_flips(found: list[tuple[float, float, str, str]]) -> None:
    first, second, videos, datasets = zip(*found, strict=True)
    parts: dict[tuple[str, str], list[float]] = {}
    for one, other, video, dataset in found:
        parts.setdefault((dataset, video), []).append(one - other)
    compared = compare(first, second, videos, datasets)
    assert compared.exact
    assert compared.p_value == pytest.approx(enumerated(parts))


@settings(max_examples=15)
@given(rows, st.randoms())
def test_the_other_way_round_everything_changes_its_sign_only(
    found: list[tuple[float, float, str, str]], shuffled: random.Random
) -> None:
    first, second, videos, datasets = zip(*found, strict=True)
    there, back = compare(first, second, videos, datasets), compare(second, first, videos, datasets)
    assert (there.first, there.second, there.p_value) == (back.second, back.first, back.p_value)
    assert (there.better, there.equal, there.worse) == (back.worse, back.equal, back.better)
    assert there.better + there.equal + there.worse == pytest.approx(1)
    assert there.difference.mean == pytest.approx(there.first - there.second)
    assert (there.effect is None) == (back.effect is None)
    if there.effect is not None and back.effect is not None:
        assert there.effect == pytest.approx(-back.effect)
    other = compare(*zip(*shuffled.sample(found, len(found)), strict=True))
    assert (other.p_value, other.first) == (pytest.approx(there.p_value), pytest.approx(there.first))


@pytest.mark.parametrize("videos", [6, 14, 15, 40])
def test_p_is_that_of_scipy(videos: int) -> None:
    rng = np.random.default_rng(videos)
    first, second = rng.normal(0.25, size=videos), rng.normal(size=videos)
    ours = compare(first, second, [str(n) for n in range(videos)])
    drawn = np.random.default_rng(1)
    theirs = permutation_test((first - second,), np.mean, permutation_type="samples", n_resamples=20_000, rng=drawn)
    assert ours.exact == (videos <= stats.ENUMERATED)
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=1e-12 if ours.exact else 0.02)


def test_effect_and_shares_by_hand() -> None:
    found = compare([3.0, 5.0, 2.0, 9.0], [1.0, 3.0, 2.0, 10.0], list("uuvw"))
    means = [2.0, 0.0, -1.0]  # of the videos
    assert found.difference.mean == 0.75
    assert found.effect == pytest.approx(0.75 / np.std(means, ddof=1))
    assert (found.better, found.equal, found.worse) == (0.5, 0.25, 0.25)


def test_the_effect_over_datasets_pools_what_videos_differ_within_them() -> None:
    found = compare([2.0, 0.0, 11.0, 9.0], [0.0] * 4, list("uvuv"), list("aabb"))
    assert found.difference.mean == 5.5
    assert found.effect == pytest.approx(5.5 / math.sqrt(2))


@pytest.mark.parametrize(
    ("first", "videos", "p_value"),
    [([1.0], ["u"], 1.0), ([1.0, 1.0], ["u", "u"], 1.0), ([0.0, 0.0], ["u", "v"], 1.0), ([1.0, 1.0], ["u", "v"], 0.5)],
)
def test_where_flips_say_little(first: list[float], videos: list[str], p_value: float) -> None:
    found = compare(first, [0.0] * len(first), videos)
    assert (found.p_value, found.exact, found.effect) == (p_value, True, None)


def test_many_videos_that_all_differ_alike_reach_the_smallest_p_of_drawn_flips() -> None:
    found = compare([1.0] * 60, [0.0] * 60, [str(n) for n in range(60)])
    assert (found.p_value, found.exact) == (1 / 10_001, False)


@pytest.mark.parametrize(
    ("first", "second"), [([], []), ([1.0], [1.0, 2.0]), ([math.nan], [0.0]), ([math.inf], [math.inf])]
)
def test_what_cannot_be_compared_is_an_error(first: list[float], second: list[float]) -> None:
    with pytest.raises(ComputeError):
        compare(first, second, ["u"] * len(first))


def null(rng: np.random.Generator, videos: int) -> float:
    """The p-value of two systems that are alike, where examples of a video are."""
    shared = np.repeat(rng.standard_t(4, size=videos), 6)
    first, second = shared + rng.normal(size=6 * videos), rng.normal(size=6 * videos)
    return compare(first, second, [str(n // 6) for n in range(6 * videos)]).p_value


@pytest.mark.parametrize(
    ("videos", "trials", "slack"),
    [(9, 400, 0.06), (30, 150, 0.1), *(pytest.param(n, 4000, 0.02, marks=pytest.mark.slow) for n in (9, 20, 100))],
)
def test_p_is_uniform_where_the_systems_are_alike(videos: int, trials: int, slack: float) -> None:
    rng = np.random.default_rng(videos)
    found = np.array([null(rng, videos) for _ in range(trials)])
    for level in (0.05, 0.25, 0.5, 0.75):
        assert (found <= level).mean() == pytest.approx(level, abs=slack)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_by_its_definition(p_values: list[float]) -> None:
    found = adjusted(p_values)
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    for rank, place in enumerate(order):
        steps = [(len(order) - earlier) * p_values[order[earlier]] for earlier in range(rank + 1)]
        assert found[place] == min(1.0, max(steps))
    assert all(one >= raw for one, raw in zip(found, p_values, strict=True))
