"""Splits that never leak, gold that is valid, and noisy pre-training text that is not."""

from collections import Counter
from dataclasses import replace
from statistics import mean

import pytest
from tests.world.lists import orders

from recipe.errors import InputError
from recipe.types import Example
from recipe.world.examples import FEWEST_LEFT, SPLITS, TextNoise, cut_split, draw_examples, noisy_examples
from recipe.world.graph import LABEL_WORDINGS, TaskGraph, World
from recipe.world.validity import plan_key, score_plan


def cut_point(world: World, example: Example) -> tuple[str, tuple[str | None, ...]]:
    return example.goal, plan_key(world, example.goal, example.history)


@pytest.fixture(scope="module", params=SPLITS)
def drawn(world: World, request: pytest.FixtureRequest) -> list[Example]:
    return draw_examples(world, request.param, 200, seed=1)


def test_gold_is_valid_and_long_enough(world: World, drawn: list[Example]) -> None:
    for example in drawn:
        assert score_plan(world, example.goal, example.history, example.continuation).perfect
        assert len(example.history) == example.cut >= 1
        assert len(example.continuation) >= FEWEST_LEFT
        assert example.source == "world"


def test_ids_and_prompts_are_unique(drawn: list[Example]) -> None:
    assert len({example.example_id for example in drawn}) == len(drawn) == 200
    assert len({(example.goal, example.history) for example in drawn}) == len(drawn)


def test_texts_are_label_wordings(world: World, drawn: list[Example]) -> None:
    labels = {wording for known in world.wordings.values() for wording in known[:LABEL_WORDINGS]}
    assert all({*example.history, *example.continuation} <= labels for example in drawn)


def test_draws_are_stable_and_extend(world: World) -> None:
    assert draw_examples(world, "train", 30, seed=5) == draw_examples(world, "train", 70, seed=5)[:30]
    assert draw_examples(world, "train", 30, seed=5) != draw_examples(world, "train", 30, seed=6)


def test_splits_share_no_cut_point(world: World) -> None:
    """Over many seeds: what is tested on has never been trained on."""
    trained = {cut_point(world, e) for seed in range(5) for e in draw_examples(world, "train", 400, seed)}
    tested = {cut_point(world, e) for seed in range(5) for e in draw_examples(world, "test_cuts", 200, seed)}
    assert not trained & tested
    held_out = {goal for goal, graph in world.goals.items() if graph.held_out}
    assert {example.goal for example in draw_examples(world, "test_goals", 50)} == held_out
    assert not {goal for goal, _ in trained | tested} & held_out
    assert {goal for goal, _ in trained} | held_out == set(world.goals)


def test_the_split_of_a_cut_point_never_changes(world: World) -> None:
    graph = world.graph("cook potato soup")
    golden = {("peel-potatoes", "cut-potatoes", "melt-butter"): "test_cuts", ("peel-onion",): "train"}
    assert {history: cut_split(graph, history) for history in golden} == golden


def test_about_a_quarter_of_the_cut_points_is_tested(world: World) -> None:
    graph = world.graph("build a wooden stool")
    cuts = {order[:at] for order in orders(graph) for at in range(1, len(order) - 1)}
    share = mean(cut_split(graph, cut) == "test_cuts" for cut in cuts)
    assert 0.15 < share < 0.35


def test_prompts_repeat_only_when_they_run_out(world: World) -> None:
    chain = TaskGraph("chain", "d", {"boil-water": (), "steep-tea": ("boil-water",), "strain-tea": ("steep-tea",)})
    small = World({"chain": chain}, world.wordings, world.talk)
    split = cut_split(chain, ("boil-water",))
    examples = draw_examples(small, split, 8)
    assert len({(example.goal, example.history) for example in examples[:2]}) == 2
    assert len({example.example_id for example in examples}) == 8
    other = "test_cuts" if split == "train" else "train"
    with pytest.raises(InputError, match=f"no cut point in split '{other}'"):
        draw_examples(small, other, 1)


def test_an_unknown_split_is_an_error(world: World) -> None:
    with pytest.raises(InputError, match="test_goals"):
        draw_examples(world, "validation", 1)


def test_careless_text_is_fluent_but_wrong_about_half_of_the_time(world: World) -> None:
    examples = noisy_examples(world, 2000)
    results = [score_plan(world, e.goal, e.history, e.continuation) for e in examples]
    assert 0.5 <= mean(result.score for result in results) <= 0.6
    assert {example.goal for example in examples} == set(world.goals)
    assert max(result.unrecognised for result in results) == 0
    for part in ("repeated", "copied", "alien"):
        assert mean(getattr(result, part) for result in results) > 0.03
    assert len({example.example_id for example in examples}) == len(examples)
    assert {example.split for example in examples} == {"careless"}


def test_careful_text_is_valid(world: World) -> None:
    careful = TextNoise(drop=0, swap=0, alien=0, repeat=0, stop=0)
    for example in noisy_examples(world, 100, goals=["mop the floor"], noise=careful):
        assert example.goal == "mop the floor"
        assert score_plan(world, example.goal, example.history, example.continuation).perfect


def test_systematic_errors_are_the_same_in_a_share_of_a_goals_texts(world: World) -> None:
    goals = ["mop the floor", "brew a pot of tea", "make pancakes"]
    still = TextNoise(drop=0, swap=0, alien=0, repeat=0, stop=0)
    recognise = world.recogniser.step

    def steps(share: float, seed: int = 0) -> dict[str, list[list[str | None]]]:
        texts: dict[str, list[list[str | None]]] = {goal: [] for goal in goals}
        for example in noisy_examples(world, 1500, seed, goals, replace(still, systematic=share)):
            own = world.graph(example.goal).steps
            if len(example.history) == 1:  # cut at the same place
                texts[example.goal].append([recognise(text, own) for text in example.continuation])
        return texts

    def foreign(texts: list[list[str | None]], goal: str) -> Counter[str | None]:
        return Counter(step for plan in texts for step in plan if step not in world.graph(goal).steps)

    assert all(not foreign(texts, goal) for goal, texts in steps(0.0).items())
    for share in (0.35, 0.9):
        for goal, texts in steps(share).items():
            own, wrong = world.graph(goal), foreign(texts, goal)
            # A few foreign steps, always the same, each in its share of the texts.
            assert 1 <= len(wrong) <= 2
            assert all(abs(count / len(texts) - share) < 0.2 for count in wrong.values())
            # A required step is missing in its share of the texts.
            present = Counter(step for plan in texts for step in {*plan})
            missing = [1 - present[step] / len(texts) for step in own.required]
            assert any(abs(rate - share) < 0.2 for rate in missing)
    assert steps(0.9) == steps(0.9) != steps(0.9, seed=1)
