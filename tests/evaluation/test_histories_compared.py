"""`recipe evaluate histories`: histories of Phi's against annotated ones, by hand, by property, and refused."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy")
from tests.conftest import Recipe

from recipe.artifacts import read_json
from recipe.data.examples import write_examples
from recipe.data.histories import History, write_histories
from recipe.types import Example


def example(name: str, goal: str, video: str, *history: str) -> Example:
    return Example(name, "s", video, goal, history, ("pour tea",), len(history), "test", until=3.0)


EXAMPLES = [
    example("a", "tea", "v1", "boil water", "cut bread", "dig hole"),
    example("b", "tea", "v1", "boil water"),
    example("c", "tea", "v2", "fold paper", "boil water"),
    example("d", "hole", "v3", "dig hole", "dig hole"),
]


class Compared:
    """The command on histories that are given by example, in order."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe, self.folder = recipe, folder

    def files(self, histories: dict[str, Sequence[str]], examples: Sequence[Example], until: float) -> tuple[Any, ...]:
        write_examples(self.folder / "e", examples)
        write_histories(self.folder / "h", [History(name, tuple(own), until) for name, own in histories.items()])
        files = ("--examples", self.folder / "e", "--histories", self.folder / "h", "--encoder", "hash:512")
        return ("evaluate", "histories", *files)

    def __call__(self, histories: dict[str, Sequence[str]], examples: Sequence[Example] = EXAMPLES) -> dict[str, Any]:
        printed = self.recipe.json(*self.files(histories, examples, 3.0), "--output", self.folder / "scores.json")
        assert printed == read_json(self.folder / "scores.json")
        return dict(printed["measures"])


@pytest.fixture
def compared(recipe: Recipe, tmp_path: Path) -> Compared:
    return Compared(recipe, tmp_path)


def test_measures_by_hand(compared: Compared) -> None:
    """Other words of an annotated step are that step: its nearest."""
    perceived = {
        "a": ["dig the hole", "boil water"],
        "b": [],
        "c": ["fold paper", "now boil water", "pour tea", "pour the tea"],
        "d": ["dig hole", "dig hole"],
    }
    f1 = (4 / 5, 0, 4 / 6, 1)
    by_hand = {
        "f1": f1,
        # With the next of another video of its goal: a with c, c with a; b with c.
        "f1_same_goal": (2 / 4, 0, 2 / 7),
        # With the next of another goal: a, b and c with d; d with a.
        "f1_other_goal": (2 / 4, 0, 0, 2 / 5),
        "ordered_f1": (2 / 5, 0, 4 / 6, 1),
        "order": (0, 1, 1),  # b has no two steps in common
        "steps": (2, 0, 4, 2),
        "annotated_steps": (3, 1, 2, 2),
        "length_error": (-1, -1, 2, 0),
        "length_apart": (1, 1, 2, 0),
        "empty": (0, 1, 0, 0),
    }
    found = compared(perceived)
    assert {name: one["observations"] for name, one in found.items()} == {
        name: len(values) for name, values in by_hand.items()
    }
    for name, values in by_hand.items():
        assert found[name]["mean"] == pytest.approx(np.mean(values)), name
    assert found["f1_same_goal"]["clusters"] == 1
    assert found["f1"]["low"] is not None
    nothing = compared(dict.fromkeys("abcd", ()))
    assert set(found) - set(nothing) == {"order"}
    assert nothing["f1"]["mean"] == 0.0
    exact = compared({one.example_id: one.history for one in EXAMPLES})
    assert exact["f1"]["mean"] == exact["ordered_f1"]["mean"] == 1.0


@pytest.mark.thorough
def test_order_is_kendalls_tau_of_the_common_steps(compared: Compared) -> None:
    words = ("alpha", "beta", "gamma", "delta", "omega")
    histories = st.lists(st.sampled_from(words), max_size=5, unique=True)

    @settings(max_examples=25)
    @given(histories, histories.filter(bool))
    def by_definition(first: list[str], second: list[str]) -> None:
        examples = [example("a", "tea", "v1", *second), example("b", "hole", "v2", *words)]
        found = compared({"a": first, "b": []}, examples)
        common = [step for step in first if step in second]
        pairs = [second.index(x) < second.index(y) for x, y in itertools.combinations(common, 2)]
        assert ("order" in found) == bool(pairs)
        assert not pairs or found["order"]["mean"] == pytest.approx(np.mean(pairs))

    by_definition()


def test_histories_of_another_cut_and_none_are_refused(compared: Compared, recipe: Recipe) -> None:
    exact = {one.example_id: one.history for one in EXAMPLES}
    files = compared.files({name: own for name, own in exact.items() if name != "d"}, EXAMPLES, 3.0)
    code, _, err = recipe(*files)
    assert (code, "1 of 4 examples" in err) == (1, True)
    code, out, _ = recipe(*files, "--skip-missing")
    assert (code, "1 without a history left out" in out) == (0, True)
    code, _, err = recipe(*compared.files(exact, EXAMPLES, 9.0))
    assert (code, "9 s" in err) == (1, True)
