"""Validity is 1 for exactly the valid completions: enumerated on small graphs, drawn on the packaged goals."""

import random
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.world.lists import orders

from recipe.errors import InputError
from recipe.types import Reward
from recipe.world.examples import draw_examples
from recipe.world.graph import TaskGraph, World
from recipe.world.load import load_world
from recipe.world.validity import ValidityScorer, plan_key, score_key, score_plan

WORLD = load_world()
GOALS = sorted(WORLD.goals)


@st.composite
def graphs(draw: st.DrawFn) -> TaskGraph:
    """Random task graphs of two to six steps, some of them optional."""
    count = draw(st.integers(2, 6))
    names = [f"do-{letter}" for letter in "abcdef"[:count]]
    after = {
        name: tuple(other for other in names[:index] if draw(st.integers(0, 2)) == 0)
        for index, name in enumerate(names)
    }
    optional = frozenset(name for name in names[1:] if draw(st.integers(0, 3)) == 0)
    return TaskGraph("goal", "domain", after, optional)


def closure(graph: TaskGraph) -> set[tuple[str, str]]:
    """All pairs (a, b) where a has to come before b, directly or through others."""
    pairs = {(earlier, later) for later, direct in graph.after.items() for earlier in direct}
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= more
    return pairs


def valid(graph: TaskGraph, order: tuple[str, ...]) -> bool:
    """By definition: all required steps, none twice, no pair of the closure the wrong way round."""
    place = {step: index for index, step in enumerate(order)}
    whole = graph.required <= place.keys() <= graph.after.keys() and len(place) == len(order)
    return whole and all(place[a] < place[b] for a, b in closure(graph) if a in place and b in place)


@given(graphs())
def test_orders_are_exactly_the_valid_ones(graph: TaskGraph) -> None:
    everything = [order for count in range(len(graph.after) + 1) for order in permutations(graph.after, count)]
    expected = {order for order in everything if valid(graph, order)}
    found = list(orders(graph))
    assert len(found) == len(set(found))
    assert set(found) == expected


@given(graphs(), st.integers(0, 5))
def test_a_score_of_one_means_valid_and_nothing_else(graph: TaskGraph, cut: int) -> None:
    """Every sequence of steps after every history that a valid order begins with."""
    order = next(orders(graph))
    history = order[: min(cut, len(order) - 1)]
    rest = [step for step in graph.after if step not in history]
    for count in range(1, len(rest) + 1):
        for plan in permutations(rest, count):
            result = score_key(graph, history, plan)
            assert result.perfect == (result.score == 1.0)
            assert result.perfect == valid(graph, (*history, *plan))
            assert 0.0 <= result.score <= 1.0


@given(graphs(), st.randoms(use_true_random=False))
def test_draws_are_valid(graph: TaskGraph, rng: random.Random) -> None:
    assert valid(graph, graph.draw(rng))


@given(st.sampled_from(GOALS), st.randoms(use_true_random=False), st.data())
def test_valid_orders_of_the_packaged_goals_score_one(goal: str, rng: random.Random, data: st.DataObject) -> None:
    graph = WORLD.graph(goal)
    order = graph.draw(rng)
    cut = data.draw(st.integers(0, len(order) - 1))
    said = [rng.choice(WORLD.wordings[step]) for step in order]
    result = score_plan(WORLD, goal, said[:cut], said[cut:])
    assert result.perfect
    assert result.score == 1.0
    assert (result.repeated, result.copied, result.alien, result.unrecognised) == (0, 0, 0, 0)


@given(st.sampled_from(GOALS), st.randoms(use_true_random=False), st.data())
def test_any_single_corruption_costs(goal: str, rng: random.Random, data: st.DataObject) -> None:
    graph = WORLD.graph(goal)
    order = graph.draw(rng)
    cut = data.draw(st.integers(1, len(order) - 2))
    history, plan = order[:cut], order[cut:]
    at = data.draw(st.integers(0, len(plan)))
    foreign = rng.choice([step for step in WORLD.wordings if step not in graph.after])
    inserted = {
        "repeated": rng.choice(plan[:at] or plan[:1]) if at else None,
        "copied": rng.choice(history),
        "alien": foreign,
        "unrecognised": None,
    }
    for kind, step in inserted.items():
        if kind == "repeated" and not at:
            continue
        result = score_key(graph, history, (*plan[:at], step, *plan[at:]))
        assert getattr(result, kind) == pytest.approx(1 / (len(plan) + 1))
        assert result.coverage == result.order == 1.0
        assert result.score < 1
    for index, step in enumerate(plan):
        dropped = score_key(graph, history, plan[:index] + plan[index + 1 :])
        assert dropped.perfect == (step in graph.optional)
    for index in range(len(plan) - 1):
        swapped = (*plan[:index], plan[index + 1], plan[index], *plan[index + 2 :])
        waits = plan[index] in graph.before(plan[index + 1], set(order))
        result = score_key(graph, history, swapped)
        assert result.perfect == (not waits)
        assert (result.order < 1) == waits


@pytest.fixture
def tea() -> TaskGraph:
    after = {"boil": (), "leaves": (), "pour": ("boil", "leaves"), "steep": ("pour",), "honey": ("steep",)}
    return TaskGraph("tea", "kitchen", after, frozenset({"honey"}))


def test_the_formula_by_hand(tea: TaskGraph) -> None:
    # pour before leaves breaks one of three pairs; one of three required steps is missing; one line of three is alien.
    result = score_key(tea, ("boil",), ("pour", "leaves", "fly"))
    assert result.order == pytest.approx(1 / 2)
    assert result.coverage == pytest.approx(2 / 3)
    assert result.clean == pytest.approx(2 / 3)
    assert result.score == pytest.approx(1 / 2 * 2 / 3)
    # A required step that is nowhere breaks the pair that waits for it.
    assert score_key(tea, ("boil", "leaves"), ("steep",)).order == 0.0


def test_plans_without_a_use_score_zero(tea: TaskGraph) -> None:
    assert score_key(tea, ("boil",), ()).score == 0.0
    assert score_key(tea, ("boil",), (None, "fly")).score == 0.0
    assert score_key(tea, ("boil",), ("boil",)).score == 0.0
    # Nothing is left that is required: only what is useful counts.
    done = ("boil", "leaves", "pour", "steep")
    assert score_key(tea, done, ("honey",)).perfect
    assert score_key(tea, done, ("boil",)).score == 0.0


def test_an_optional_step_can_come_too_late() -> None:
    graph = TaskGraph(
        "bread", "", {"shape": (), "score": ("shape",), "bake": ("score",), "cool": ("bake",)}, frozenset({"score"})
    )
    assert score_key(graph, ("shape", "bake"), ("cool",)).perfect
    assert score_key(graph, ("shape", "bake"), ("cool", "score")).order == pytest.approx(2 / 3)


def test_a_history_out_of_order_costs_nothing(tea: TaskGraph) -> None:
    assert score_key(tea, ("pour", "boil"), ("leaves", "steep")).perfect


def test_an_unknown_goal_is_an_error(world: World) -> None:
    with pytest.raises(InputError):
        score_plan(world, "fly to the moon", [], ["boil the water"])


def test_plan_keys_ignore_wording(world: World) -> None:
    goal = "brew a pot of tea"
    first = plan_key(world, goal, ["Boil the water.", "dance"])
    second = plan_key(world, goal, ["bring the water to a boil", "sing"])
    assert first == second == ("boil-water", None)


def test_a_plan_is_paid_its_validity(world: World) -> None:
    for example in draw_examples(world, "test_cuts", 5):
        plans = [example.continuation, example.continuation[::-1], example.history, ()]
        [outcomes] = ValidityScorer(world).score_groups([(example.goal, example.history, plans)])
        rewards = [outcome for outcome in outcomes if isinstance(outcome, Reward)]
        assert len(rewards) == len(plans)
        known = [score_plan(world, example.goal, example.history, plan) for plan in plans]
        assert [reward.total for reward in rewards] == [one.score for one in known]
        assert [reward.parts["clean"] for reward in rewards] == [one.clean for one in known]
        assert rewards[0].total == 1.0
        assert rewards[-1].total == 0.0
        assert [reward.steps for reward in rewards] == [len(plan) for plan in plans]


def test_an_unknown_goal_is_an_error_for_its_own_plans(world: World) -> None:
    example = draw_examples(world, "test_cuts", 1)[0]
    unknown, known = ValidityScorer(world).score_groups(
        [("brew a pot of toe", (), [("stir",)] * 2), (example.goal, example.history, [example.continuation])]
    )
    assert [type(one) for one in (*unknown, *known)] == [InputError, InputError, Reward]
    assert "no goal 'brew a pot of toe'" in str(unknown[0])
