"""Histories of Phi's against annotated ones: values by hand, properties, and what the command refuses."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("scipy")
from tests.conftest import Recipe

from recipe.data.examples import write_examples
from recipe.data.histories import History, write_histories
from recipe.errors import InputError
from recipe.evaluation.histories import MEASURES, compare_histories, order_agreement, summarise_histories
from recipe.types import Example

STEPS = ["boil water", "cut bread", "dig hole", "fold paper", "pour tea"]


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """Each text is its first word's step."""
    words = [step.split()[0] for step in STEPS]
    return np.stack([np.eye(len(STEPS), dtype=np.float32)[words.index(text.split()[0])] for text in texts])


def example(name: str, goal: str, video: str, *history: str) -> Example:
    return Example(name, "s", video, goal, history, ("pour tea",), len(history), "test", until=3.0)


EXAMPLES = [
    example("a", "tea", "v1", "boil water", "cut bread", "dig hole"),
    example("b", "tea", "v1", "boil water"),
    example("c", "tea", "v2", "fold paper", "boil water"),
    example("d", "hole", "v3", "dig hole", "dig hole"),
]


def told(*histories: Sequence[str]) -> dict[str, History]:
    return {
        one.example_id: History(one.example_id, tuple(steps), 3.0)
        for one, steps in zip(EXAMPLES, histories, strict=True)
    }


def test_measures_by_hand() -> None:
    seen = told(["dig it", "boil it"], [], ["fold it", "boil it", "pour it", "pour it"], ["dig", "dig"])
    a, b, c, d = compare_histories(EXAMPLES, seen, embed)
    assert a == {
        "f1": pytest.approx(4 / 5),
        "f1_same_goal": pytest.approx(2 / 4),  # with c: boil
        "f1_other_goal": pytest.approx(2 / 4),  # with d: dig
        "ordered_f1": pytest.approx(2 / 5),
        "order": 0.0,
        "steps": 2.0,
        "annotated_steps": 3.0,
        "length_error": -1.0,
        "length_apart": 1.0,
        "empty": 0.0,
    }
    assert (b["f1"], b["order"], b["empty"]) == (0.0, None, 1.0)
    assert (c["f1"], c["order"], c["length_error"]) == (pytest.approx(4 / 6), 1.0, 2.0)
    assert (d["f1"], d["f1_same_goal"], d["order"]) == (1.0, None, 1.0)
    found = summarise_histories(EXAMPLES, [a, b, c, d])
    assert list(found) == list(MEASURES)
    assert found["empty"].mean == 0.25
    assert (found["order"].observations, found["order"].mean) == (3, pytest.approx(2 / 3))
    assert (found["f1_same_goal"].observations, found["f1_same_goal"].clusters) == (3, 1)
    assert found["f1"].low is not None


def test_measures_that_none_has_are_absent() -> None:
    seen = told([], [], [], [])
    found = summarise_histories(EXAMPLES, compare_histories(EXAMPLES, seen, embed))
    assert set(MEASURES) - set(found) == {"order"}
    assert found["f1"].mean == 0.0


@given(st.lists(st.sampled_from("abcde"), max_size=6), st.lists(st.sampled_from("abcde"), max_size=6))
def test_order_is_kendalls_tau_of_the_common_steps(first: list[str], second: list[str]) -> None:
    share = order_agreement(first, second)
    if len(set(first)) == len(first) and len(set(second)) == len(second):
        common = [step for step in first if step in second]
        pairs = [second.index(x) < second.index(y) for x, y in itertools.combinations(common, 2)]
        assert share == (pytest.approx(np.mean(pairs)) if pairs else None)
    assert share is None or 0 <= share <= 1
    assert order_agreement(first, first) in (None, 1.0)


def test_histories_of_another_cut_and_none_are_refused() -> None:
    seen = told([], [], [], [])
    with pytest.raises(InputError, match="1 of 4 examples have no history"):
        compare_histories(EXAMPLES, {name: one for name, one in seen.items() if name != "c"}, embed)
    seen["c"] = History("c", (), 9.0)
    with pytest.raises(InputError, match="was read at 9 s"):
        compare_histories(EXAMPLES, seen, embed)


def test_the_command(tmp_path: Path, recipe: Recipe) -> None:
    words = (
        "evaluate",
        "histories",
        "--examples",
        tmp_path / "e",
        "--histories",
        tmp_path / "h",
        "--encoder",
        "hash:64",
    )
    write_examples(tmp_path / "e", EXAMPLES)
    exact = [History(one.example_id, one.history, one.until) for one in EXAMPLES]
    write_histories(tmp_path / "h", exact)
    result = recipe.json(*words, "--output", tmp_path / "scores.json")
    assert (result["examples"], result["missing"]) == (4, 0)
    assert result["measures"]["f1"]["mean"] == 1.0
    assert result == json.loads((tmp_path / "scores.json").read_text())
    write_histories(tmp_path / "h", exact[:3])
    assert "1 of 4 examples have no history" in recipe(*words).err
    code, out, _ = recipe(*words, "--skip-missing")
    assert code == 0
    assert "1 without a history left out" in out
