"""Narrations: deterministic, plausible in time, and noisy in each of the promised ways."""

import random
from collections import Counter
from statistics import mean

import pytest
from tests.world.lists import orders, step_lists

from recipe.errors import InputError
from recipe.world.graph import World
from recipe.world.narrator import NarratorStyle, goal_narrations, narrate, narrate_once
from recipe.world.validity import score_plan

TIDY = NarratorStyle(drop=0, swap=0, late=0, merge=0, repeat=0, alien=0)


def test_a_narration_depends_on_seed_and_index_only(world: World) -> None:
    few, many = narrate(world, 5, seed=3), narrate(world, 60, seed=3)
    assert few == many[:5]
    assert narrate(world, 5, seed=4) != few


def test_golden_narration(world: World) -> None:
    first = narrate(world, 1, seed=0)[0]
    assert (first.video_id, first.title, first.source) == ("world-000000", "brew a pot of tea", "world")
    assert len(first.segments) == 18
    assert first.segments[0].text == "today i'm going to show you how to brew a pot of tea"
    assert (first.segments[0].start, first.segments[0].end) == (2.92, 9.71)


def test_goals_take_turns_and_ids_are_unique(world: World) -> None:
    narrations = narrate(world, 2 * len(world.goals))
    assert set(Counter(narration.title for narration in narrations).values()) == {2}
    assert len({narration.video_id for narration in narrations}) == len(narrations)
    assert {narration.title for narration in narrate(world, 4, goals=["build a birdhouse"])} == {"build a birdhouse"}
    with pytest.raises(InputError):
        narrate(world, 1, goals=["build a cathedral"])


def test_narrations_have_about_twenty_segments(world: World) -> None:
    lengths = [len(narration.segments) for narration in narrate(world, 300)]
    assert 18 <= mean(lengths) <= 22
    assert max(lengths) <= 30


def test_times_are_in_order_and_plausible(world: World) -> None:
    for narration in narrate(world, 100):
        clock = 0.0
        for segment in narration.segments:
            assert segment.start is not None
            assert segment.end is not None
            assert clock <= segment.start < segment.end
            assert 0.8 < segment.end - segment.start < 20
            clock = segment.end
        assert 40 < clock < 600


def test_a_tidy_narrator_tells_a_valid_order(world: World) -> None:
    rng = random.Random(1)
    for graph in world.goals.values():
        told = [step for utterance in narrate_once(world, graph, rng, TIDY) for step in utterance.steps]
        assert set(graph.required) <= set(told)
        assert tuple(told) in set(orders(graph)) if len(told) < 8 else len(set(told)) == len(told)


def test_mentions_are_recognisable_in_the_text(world: World) -> None:
    rng = random.Random(2)
    for graph in world.goals.values():
        for utterance in narrate_once(world, graph, rng):
            for step in utterance.steps:
                assert any(wording in utterance.text for wording in world.wordings[step])


@pytest.mark.parametrize("habit", ["drop", "swap", "late", "merge", "repeat", "alien"])
def test_each_habit_shows(world: World, habit: str) -> None:
    """One habit at a time, at its strongest, leaves the trace it is named for."""
    graph = world.graph("build a birdhouse")
    style = NarratorStyle(**{**dict.fromkeys(("drop", "swap", "late", "merge", "repeat", "alien"), 0), habit: 1})
    told = [utterance for utterance in narrate_once(world, graph, random.Random(0), style) if utterance.steps]
    steps = [step for utterance in told for step in utterance.steps]
    orderly = all(
        steps.index(earlier) < steps.index(later)
        for later in graph.after
        if later in steps
        for earlier in graph.after[later]
        if earlier in steps
    )
    traces = {
        "drop": len(steps) == 1,
        "swap": not orderly,
        "late": not orderly,
        "merge": {len(utterance.steps) for utterance in told[:-1]} == {2},
        "repeat": min(Counter(steps).values()) == 2,
        "alien": len(steps) == 2 * len([step for step in steps if step in graph.after]),
    }
    assert traces[habit]


def test_fewer_people_are_the_first_of_more_and_goals_have_ids_of_their_own(world: World) -> None:
    first, second = [*world.goals][:2]
    many = goal_narrations(world, first, 5, seed=3)
    assert goal_narrations(world, first, 2, seed=3) == many[:2]
    assert all(one.title == first for one in many)
    assert len({one.video_id for goal in (first, second) for one in goal_narrations(world, goal, 5, seed=3)}) == 10
    assert not {one.video_id for one in many} & {one.video_id for one in goal_narrations(world, first, 5, seed=4)}


def test_step_lists_are_valid_plans_from_the_start(world: World) -> None:
    for goal in [*world.goals][:6]:
        lists = step_lists(world, goal, 3)
        assert step_lists(world, goal, 1) == lists[:1]
        for one in lists:
            assert score_plan(world, goal, (), [segment.text for segment in one.segments]).perfect


def test_a_cleaner_style_goes_from_a_narrator_to_a_list(world: World) -> None:
    style = NarratorStyle()
    assert style.cleaner(0) == style
    labels = {
        goal: {text for step in graph.steps for text in world.wordings[step]} for goal, graph in world.goals.items()
    }

    def plain(share: float) -> float:
        narrations = narrate(world, 60, 0, style.cleaner(share))
        return mean(s.text in labels[row.title or ""] for row in narrations for s in row.segments)

    shares = [plain(share) for share in (0, 0.3, 0.6, 1)]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert shares[0] < 0.1
