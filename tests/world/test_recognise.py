"""Every wording is recognised; blends of one step's wordings mostly; foreign text is not."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.world.graph import Recogniser, World


def blend(first: str, second: str) -> str:
    """The first half of one text and the second half of another."""
    head, tail = first.split(), second.split()
    return " ".join(head[: max(1, len(head) // 2)] + tail[len(tail) // 2 :])


def test_every_wording_is_its_step(world: World) -> None:
    for step, known in world.wordings.items():
        for wording in known:
            assert world.recogniser.step(wording) == step
            assert world.recogniser.step(f"  {wording.capitalize()}. ") == step


def test_most_blends_of_one_step_are_recognised_and_hardly_any_as_another(world: World) -> None:
    outcome: Counter[str] = Counter()
    for graph in world.goals.values():
        for step in graph.after:
            for first in world.wordings[step]:
                for second in world.wordings[step]:
                    if first != second:
                        found = world.recogniser.step(blend(first, second), graph.after)
                        outcome["right" if found == step else "none" if found is None else "wrong"] += 1
    assert outcome["right"] / outcome.total() > 0.75
    assert outcome["wrong"] / outcome.total() < 0.02


def test_blends_of_two_steps_are_seldom_taken_for_a_third(world: World) -> None:
    rng = random.Random(0)
    steps = list(world.wordings)
    wrong = 0
    for _ in range(1000):
        one, other = rng.sample(steps, 2)
        text = blend(rng.choice(world.wordings[one]), rng.choice(world.wordings[other]))
        wrong += world.recogniser.step(text) not in (one, other, None)
    assert wrong < 20


def test_talk_is_not_a_step(world: World) -> None:
    for line in (*world.talk.small_talk, *world.talk.closings):
        assert world.recogniser.step(line) is None


@given(text=st.text(max_size=60))
def test_any_text_is_answered(text: str, world: World) -> None:
    assert world.recogniser.step(text) in {None, *world.wordings}


RECOGNISER = Recogniser(
    {
        "boil-water": ("boil the water", "bring the water to a boil", "heat the water until it bubbles"),
        "boil-milk": ("boil the milk", "bring the milk to a boil", "heat the milk until it bubbles"),
        "fold-paper": ("fold the paper", "crease the paper", "bend the paper in half"),
    }
)


@pytest.mark.parametrize(
    ("text", "own", "step"),
    [
        ("bring the water until it bubbles", (), "boil-water"),
        ("fold the paper in half", (), "fold-paper"),
        ("bring it to a boil", (), None),  # water or milk
        ("", (), None),
        ("?!", (), None),
        ("sing a song in the rain", (), None),
        ("heat the milk water until it bubbles", (), None),
        ("heat the milk water until it bubbles", ("boil-milk",), "boil-milk"),  # the goal at hand decides
    ],
)
def test_near_texts_find_their_step_and_others_none(text: str, own: tuple[str, ...], step: str | None) -> None:
    assert RECOGNISER.step(text, own) == step
