"""Plans in free words against task graphs: every valid order is full, and nothing else that is told apart by words."""

import json
import random
from collections.abc import Sequence
from functools import cache
from itertools import islice, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.world.lists import orders

from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.data.task_graphs import GoalGraph, TaskGraphs, goal_key, read_task_graphs
from recipe.errors import ComputeError, InputError
from recipe.evaluation.validity.readings import (
    MOST_CHARACTERS,
    MOST_LINES,
    GraphReader,
    same_words,
    shown,
    threshold_of,
)
from recipe.world.graph import TaskGraph
from recipe.world.validity import score_key

THRESHOLD = 0.6
embed = open_encoder(EncoderConfig(name="hash:256")).encode


@cache
def minilm() -> GraphReader:
    """The real graphs behind the real encoder, opened once."""
    pytest.importorskip("sentence_transformers")
    folder = Path(__file__).parents[2] / ".." / "shared" / "data" / "captaincook4d"
    if not folder.is_dir():
        pytest.skip("the real data is not beside this checkout")
    return GraphReader(read_task_graphs(folder), open_encoder(EncoderConfig(name="minilm")).encode, THRESHOLD)


def of(*graphs: GoalGraph) -> TaskGraphs:
    return TaskGraphs("here", {goal_key(one.graph.goal): one for one in graphs})


def made(texts: dict[str, str], after: dict[str, Sequence[str]], optional: Sequence[str] = ()) -> GoalGraph:
    graph = TaskGraph("goal", "", {step: tuple(after.get(step, ())) for step in texts}, frozenset(optional))
    return GoalGraph(graph, {step: (text,) for step, text in texts.items()})


def reader(*graphs: GoalGraph, split_lines: bool = False) -> GraphReader:
    return GraphReader(of(*graphs), embed, THRESHOLD, split_lines=split_lines)


PANCAKE = made(
    {"pour": "Pour the batter", "flip": "Flip the pancake", "fry": "Fry the other side", "again": "Flip the pancake",
     "serve": "Serve with syrup"},
    {"flip": ["pour"], "fry": ["flip"], "again": ["fry"], "serve": ["again"]},
)  # fmt: skip


def texts(*plan: str, graph: GoalGraph = PANCAKE) -> list[str]:
    return [graph.wordings[step][0] for step in plan]


@st.composite
def worded_graphs(draw: st.DrawFn) -> GoalGraph:
    """Random graphs of up to seven steps, some optional, whose texts are few, so that several steps share one."""
    count = draw(st.integers(1, 7))
    names = [f"s{n}" for n in range(count)]
    after = {
        name: tuple(other for other in names[:index] if draw(st.integers(0, 2)) == 0)
        for index, name in enumerate(names)
    }
    optional = frozenset(name for name in names[1:] if draw(st.integers(0, 3)) == 0)
    said = {name: (f"{draw(st.sampled_from(['stir', 'boil', 'chop', 'fry']))} the pot",) for name in names}
    # The file order is no valid order, so that nothing leans on it.
    shuffled = draw(st.permutations(names))
    return GoalGraph(TaskGraph("goal", "", {name: after[name] for name in shuffled}, optional), said)


@settings(deadline=None, max_examples=50)
@given(worded_graphs(), st.randoms(use_true_random=False), st.data())
def test_every_valid_order_scores_one_after_every_history(
    own: GoalGraph, rng: random.Random, data: st.DataObject
) -> None:
    order = own.graph.draw(rng)
    said = [own.wordings[step][0] for step in order]
    cut = data.draw(st.integers(0, len(said) - 1)) if said else 0
    if said[cut:]:
        reading = reader(own).read("goal", said[:cut], said[cut:])
        assert reading.score().score == 1.0
        assert {line.status for line in reading.statuses()} == {"valid"}


@settings(deadline=None, max_examples=25)
@given(worded_graphs(), st.data())
def test_a_full_score_means_that_some_reading_is_valid(own: GoalGraph, data: st.DataObject) -> None:
    """By enumeration: a sequence of texts scores 1 exactly if a valid order reads so."""
    valid = {tuple(own.wordings[step][0] for step in order) for order in islice(orders(own.graph), 3000)}
    said = data.draw(st.permutations([own.wordings[step][0] for step in own.graph.after]))
    plan = tuple(said[: data.draw(st.integers(1, len(said)))])
    assert reader(own).read("goal", (), plan).score().perfect == (plan in valid)


@settings(deadline=None, max_examples=25)
@given(worded_graphs(), st.data())
def test_the_choice_is_the_best_of_all_assignments(own: GoalGraph, data: st.DataObject) -> None:
    """Against brute force: no assignment of lines to equally worded steps covers as much and keeps more pairs."""
    steps = list(own.graph.after)
    plan = data.draw(st.permutations(steps))
    said = [own.wordings[step][0] for step in plan]
    chosen = reader(own).read("goal", (), said)
    alike = [order for order in permutations(steps) if [own.wordings[step][0] for step in order] == said]
    best = max(score_key(own.graph, (), order).order for order in alike)
    if not own.graph.optional:
        assert chosen.score().order == pytest.approx(best)
    assert chosen.score().coverage == 1.0


def test_the_same_words_are_told_apart_by_what_they_wait_for() -> None:
    own = reader(PANCAKE)
    order = ("pour", "flip", "fry", "again", "serve")
    assert own.read("goal", (), texts(*order)).plan == order
    assert own.read("Goal ", texts("pour", "flip"), texts("fry", "again", "serve")).plan == ("fry", "again", "serve")
    early = own.read("goal", (), texts("pour", "flip", "again", "fry", "serve"))
    assert [line.status for line in early.statuses()] == ["valid", "valid", "out-of-order", "valid", "valid"]
    once = own.read("goal", (), texts("pour", "flip", "fry", "serve"))
    assert once.missing() == ("Flip the pancake",)
    assert once.score().coverage == 0.8
    thrice = own.read("goal", (), texts("pour", "flip", "fry", "again", "flip", "serve"))
    assert thrice.score().repeated == pytest.approx(1 / 6)


STIRRED = {"a": "Stir the pot", "b": "Stir the pot", "after-b": "Add cream"}


@pytest.mark.parametrize(
    ("graph", "history", "plan", "steps"),
    [
        # Both stirs could come first; what waits for one of them tells which it was.
        (made(STIRRED, {"after-b": ["b"]}), (), ("Stir the pot", "Add cream", "Stir the pot"), "b after-b a"),
        (made(STIRRED, {"after-b": ["b"]}), ("Stir the pot",), ("Add cream", "Stir the pot"), "b after-b a"),
        # A required step is meant before an optional one.
        (made({"maybe": "Stir the pot", "must": "Stir the pot"}, {}, ["maybe"]), (), ("Stir the pot",), "must"),
    ],
)
def test_the_choice_looks_ahead(graph: GoalGraph, history: Sequence[str], plan: Sequence[str], steps: str) -> None:
    reading = reader(graph).read("goal", history, plan)
    assert [*reading.history, *reading.plan] == steps.split()


@pytest.mark.thorough
def test_many_equal_steps_stay_quick_and_full() -> None:
    """Sixty steps in two wordings, in chains of their own: the search follows a bounded number of readings."""
    names = [f"s{n}" for n in range(60)]
    own = made({name: "Fold once" if n % 2 else "Press it" for n, name in enumerate(names)},
               {name: [names[n - 1]] for n, name in enumerate(names) if n})  # fmt: skip
    assert reader(own).read("goal", (), texts(*names, graph=own)).score().score == 1.0
    free = made(dict.fromkeys(names, "Fold once"), {})
    assert reader(free).read("goal", (), ["Fold once"] * 60).score().score == 1.0


def test_an_optional_step_after_what_should_have_waited_for_it_is_seen() -> None:
    own = made({"salt": "Add salt", "stir": "Stir the pot"}, {"stir": ["salt"]}, optional=["salt"])
    assert reader(own).read("goal", (), ["Stir the pot"]).score().perfect
    assert reader(own).read("goal", (), ["Stir the pot", "Add salt"]).score().order == 0


def test_twins_take_a_line_once_the_step_of_its_words_is_done() -> None:
    own = made(
        {"first": "flip it", "second": "flip it again", "serve": "serve it"}, {"second": ["first"], "serve": ["second"]}
    )

    def forgetful(asked: Sequence[str]) -> np.ndarray:
        return embed([text.replace(" again", "") for text in asked])

    twins = GraphReader(of(own), forgetful, THRESHOLD)
    assert twins.read("goal", (), ["Flip it.", "Flip it!", "Serve it"]).plan == ("first", "second", "serve")
    assert twins.read("goal", (), ["so flip it", "and flip it", "serve it"]).plan == ("first", "second", "serve")
    assert not twins.read("goal", (), texts("second", "first", "serve", graph=own)).score().perfect
    assert reader(own).read("goal", (), ["Flip it.", "Flip it!", "Serve it"]).plan == ("first", "first", "serve")


def test_words_without_a_step_are_alien_and_other_words_are_matched() -> None:
    own = reader(PANCAKE)
    reading = own.read("goal", (), ["pour the batter now", "paint the fence"])
    assert reading.plan == ("pour", None)
    assert [line.status for line in reading.statuses()] == ["valid", "alien"]
    assert reading.similarities[0] is not None
    assert THRESHOLD <= reading.similarities[0] < 1
    assert reading.similarities[1] is None


@settings(deadline=None, max_examples=15)
@given(st.lists(st.text(min_size=1, max_size=30), max_size=6), st.lists(st.text(max_size=20), max_size=3))
def test_any_text_is_read(plan: list[str], history: list[str]) -> None:
    reading = reader(PANCAKE, split_lines=True).read("goal", history, plan)
    assert len(reading.lines) == len(reading.plan) == len(reading.similarities) == len(reading.statuses())
    assert 0 <= reading.score().score <= 1
    json.dumps(reading.lines, ensure_ascii=False).encode()


def test_other_plans_and_their_order_change_nothing() -> None:
    lines = ["pour batter", "the pancake", "serve syrup", "boil the pasta water", "Flip the pancake", "fry it"]
    alone = {line: reader(PANCAKE).read("goal", (), [line]) for line in lines}
    together = reader(PANCAKE, made({"x": "Boil the pasta water"}, {}))
    rng = random.Random(0)
    for _ in range(5):
        rng.shuffle(lines)
        together = reader(PANCAKE)
        together.learn(("goal", line) for line in lines)
        assert {line: together.read("goal", (), [line]) for line in lines} == alone


def test_plans_without_end_are_read_from_their_start() -> None:
    order = texts("pour", "flip", "fry", "again", "serve")
    long = reader(PANCAKE).read("goal", (), [*order, *(f"paint fence number {n}" for n in range(3 * MOST_LINES))])
    assert long.unread == 3 * MOST_LINES + 5 - MOST_LINES
    assert long.score().coverage == 1.0
    assert long.score().clean < 0.01
    assert long.statuses()[-1].status == "unknown"
    wide = reader(PANCAKE).read("goal", (), ["x" * 10_000_000])
    assert len(wide.lines[0]) == MOST_CHARACTERS


def test_a_line_is_one_step_unless_lines_are_split() -> None:
    own = made({"water": "boil the water", "beans": "grind the beans", "mix": "chop and mix onions"}, {})
    merged = ["Boil the water and grind the beans", "chop and mix onions"]
    assert reader(own).read("goal", (), merged).score().coverage == pytest.approx(2 / 3)
    split = reader(own, split_lines=True).read("goal", (), merged)
    assert split.lines == ("Boil the water", "grind the beans", "chop and mix onions")
    assert split.score().perfect


def test_an_encoder_that_gives_no_numbers_is_refused() -> None:
    def broken(asked: Sequence[str]) -> np.ndarray:
        return np.full((len(asked), 4), np.nan, dtype=np.float32)

    with pytest.raises(ComputeError, match="not finite"):
        GraphReader(of(PANCAKE), broken, THRESHOLD)


def test_a_threshold_keeps_foreign_steps_out() -> None:
    first = made({"a": "boil the water", "b": "grind the beans"}, {})
    second = GoalGraph(TaskGraph("other", "", {"c": (), "d": ()}), {"c": ("boil the water",), "d": ("paint a fence",)})
    found = threshold_of(of(first, second), embed)
    assert 0 < found < 1
    with pytest.raises(InputError, match="one goal alone; give --threshold"):
        threshold_of(of(first), embed)
    same = GoalGraph(TaskGraph("other", "", {"c": ()}), {"c": ("boil the water",)})
    alone = GoalGraph(TaskGraph("goal", "", {"c": ()}), {"c": ("Boil the water!",)})
    with pytest.raises(InputError, match="the same steps"):
        threshold_of(of(alone, same), embed)


def test_words_are_compared_in_any_script() -> None:
    assert same_words("Wasser kochen!") == same_words("wasser  KOCHEN")
    assert same_words("煮水。") == "煮水"
    assert same_words("→ !") != same_words("← !")
    assert shown("a\x00b\ud800") == "a b"


@pytest.mark.real_data
def test_orders_of_the_real_graphs_score_one() -> None:
    """Drawn ones in two writings after any history, and the first of an enumeration."""
    own, rng = minilm(), random.Random(0)
    for one in own.graphs:
        for order in [one.graph.draw(rng) for _ in range(2)] + list(islice(orders(one.graph), 5)):
            said = [one.wordings[step][0] for step in order]
            cut = rng.randrange(len(said))
            assert own.read(one.graph.goal, said[:cut], said[cut:]).score().score == 1.0
            shouted = [f"  {line.upper()} !" for line in said]
            assert own.read(one.graph.goal, shouted[:cut], shouted[cut:]).score().score == 1.0
