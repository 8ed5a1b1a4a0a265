"""Chance and floors: expectations against enumeration and sampling, floors by hand."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.evaluation.vpa.baselines import FLOORS, expected, floor_plans, random_plans
from recipe.evaluation.vpa.measures import ActionIds, positions
from recipe.evaluation.vpa.protocol import END, Sample, Taxonomy, cut_samples, read_release
from recipe.types import Procedure, Step

TAXONOMY = Taxonomy({"tea": ("boil", "mint", "pour"), "kite": ("cut", "pour")})
IDS = ActionIds(TAXONOMY)


def sample(goal: str, *target: str, history: tuple[str, ...] = ()) -> Sample:
    return Sample(f"s/{goal}/{len(history)}", "v", "1", goal, history, target, None)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["boil", "mint", "pour", END]), min_size=1, max_size=4), st.booleans())
def test_expectations_are_means_over_every_plan(target: list[str], with_goal: bool) -> None:
    one = sample("tea", *target)
    pool = IDS.pool("tea" if with_goal else None)
    every = np.array(list(itertools.product(pool.tolist(), repeat=len(target))))
    reference = np.repeat(IDS.references([one], len(target)), len(every), axis=0)
    found = expected([one], IDS, len(target), with_goal)
    for exact, values in zip(found, positions(every, reference), strict=True):
        assert exact[0] == pytest.approx(values.mean())


def test_sampling_agrees_with_the_expectation() -> None:
    samples = [sample("tea", "boil", "mint", "mint", "pour"), sample("kite", "cut", "pour", "cut", END)]
    for with_goal in (True, False):
        plans = np.stack(list(random_plans(samples, IDS, 4, with_goal, 4_000)))
        for place, one in enumerate(samples):
            exact = expected([one], IDS, 4, with_goal)
            drawn = positions(plans[:, place], np.repeat(IDS.references([one], 4), 4_000, axis=0))
            for value, values in zip(exact, drawn, strict=True):
                error = max(float(values.std()), (value[0] * (1 - value[0])) ** 0.5) / 4_000**0.5
                assert abs(values.mean() - value[0]) < 5 * error + 1e-12


def test_random_plans_are_of_the_card_and_the_same_again() -> None:
    samples = [sample("tea", "boil", END), sample("kite", "cut", END)] * 20
    first = list(random_plans(samples, IDS, 3, True, 3, seed=1))
    again = list(random_plans(samples, IDS, 3, True, 3, seed=1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    for row, one in zip(first[0], samples, strict=True):
        assert set(IDS.named(row.tolist())) <= set(TAXONOMY.cards[one.goal])
    [every] = random_plans(samples, IDS, 3, False, 1)
    assert set(every.ravel().tolist()) <= set(range(4))


def video(goal: str, *steps: str) -> Procedure:
    return Procedure("crosstask", "v", goal, tuple(Step(step) for step in steps), "train")


TRAINING = [
    video("tea", "boil", "mint", "mint", "pour"),
    video("tea", "boil", "mint", "pour"),
    video("kite", "cut", "pour", "cut"),
]


@pytest.mark.parametrize(
    ("floor", "goal", "history", "plan"),
    [
        ("unigram", "kite", (), ("mint", "mint", "mint")),  # mint and pour three times: mint stands first
        ("goal-unigram", "kite", (), ("cut", "cut", "cut")),
        ("ranked", "kite", (), ("mint", "pour", "boil")),
        ("goal-ranked", "tea", (), ("mint", "boil", "pour")),
        ("goal-ranked", "kite", (), ("cut", "pour")),
        ("goal-bigram", "tea", (), ("boil", "mint", "pour")),
        ("goal-bigram", "tea", ("boil", "mint"), ("pour", END, "mint")),
        ("goal-bigram", "kite", (), ("cut", "pour", "cut")),  # cut leads to pour and to the end: pour stands first
        ("bigram", "kite", ("cut", "pour"), (END, "mint", "pour")),
        ("bigram", "kite", (), ("boil", "mint", "pour")),
    ],
)
def test_floors_by_hand(floor: str, goal: str, history: tuple[str, ...], plan: tuple[str, ...]) -> None:
    known = next(one for one in FLOORS if one == floor)
    assert floor_plans(known, [sample(goal, "pour", history=history)], TRAINING, TAXONOMY, 3) == [plan]


def test_a_goal_without_training_videos_has_an_empty_plan() -> None:
    for floor in FLOORS:
        [plan] = floor_plans(floor, [sample("tea", "pour")], TRAINING[2:], TAXONOMY, 2)
        assert (plan == ()) == floor.startswith("goal-")


@pytest.mark.real_data
def test_the_published_cut_is_calibrated(shared_data: Path) -> None:
    from recipe.evaluation.published import published
    from recipe.evaluation.vpa.baselines import calibrate

    release = read_release(shared_data)
    ids = ActionIds(release.taxonomy())
    samples = cut_samples(release.split("test"), release.cards)
    assert calibrate(samples, ids, published("vpa")).calibrated
    # Without the end of a video as an action, the same row is further away.
    steps = [replace(sample, target=sample.continuation) for sample in samples if len(sample.continuation) >= 4]
    assert not calibrate(steps, ids, published("vpa")).calibrated
