"""The prompt of a planner: a chat in a file, remembered by what was trained with it."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.artifacts import write_json
from recipe.errors import InputError
from recipe.plan_text import parse_plan
from recipe.prompting import PLAIN, PlannerPrompt, open_prompt, remembered_prompt
from recipe.text import planner_messages, video_messages
from recipe.types import Example, Frames

TEXT = "[system]\nPlan for $5.\n\n[user]\nWhat?\n[assistant]\n1. this\n\n[user]\nDone: ${done}\nFor $goal: $$1\n"


@given(st.text(), st.lists(st.text()))
def test_the_plain_prompt_asks_as_ever(goal: str, history: list[str]) -> None:
    assert PLAIN.chat(goal, history) == planner_messages(goal, history)


def test_a_file_holds_a_chat_and_values_are_no_templates() -> None:
    chat = PlannerPrompt.parse("mine", TEXT, "mine.txt").chat("$done", ["a [user] b", "$goal"])
    assert chat == [
        {"role": "system", "content": "Plan for $5."},
        {"role": "user", "content": "What?"},
        {"role": "assistant", "content": "1. this"},
        {"role": "user", "content": "Done: 1. a [user] b\n2. $goal\nFor $done: $1"},
    ]


def test_a_clip_stands_where_the_steps_do() -> None:
    clip = Frames(np.zeros((2, 4, 4, 3), np.uint8), np.arange(2) / 2, 2.0)
    plain, expected = PLAIN.video_chat("make $5 tea", clip), video_messages("make $5 tea", clip)
    assert [str(message) for message in plain] == [str(message) for message in expected]
    *_, last = PlannerPrompt.parse("mine", TEXT, "mine.txt").video_chat("tea", clip)
    before, seen, after = last["content"]
    assert (before["text"], after["text"], seen["type"]) == ("Done: ", "\nFor tea: $1", "video")
    assert seen["video"] is clip


def test_the_packaged_example_is_in_the_planners_own_format() -> None:
    prompt = open_prompt("one-example")
    *shown, last = prompt.chat("make tea", ["boil water"])
    assert [message["role"] for message in shown] == ["system", "user", "assistant"]
    assert [shown[0], last] == planner_messages("make tea", ["boil water"])
    assert len(parse_plan(shown[2]["content"]).steps) == 4


def test_training_reads_what_phi_was_told() -> None:
    fields = {"example_id": "a", "source": "s", "video_id": "v", "goal": "g", "history": ("x",), "continuation": ("y",)}
    example = Example(**fields, cut=1, split="")
    assert PLAIN.training_chat(example) == planner_messages("g", ["x"])
    assert PLAIN.training_chat(Example(**fields, cut=1, split="", told_history=())) == planner_messages("g", [])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Goal: $goal\n$done", "begins without"),
        ("[system]\n\n[user]\n$goal $done", "empty"),
        ("[user]\na\n[user]\n$goal $done", "user, user"),
        ("[system]\na\n[user]\n$goal $done\n[assistant]\nx", "assistant"),
        ("[user]\n$goal\n[assistant]\nb\n[user]\n$goal $done", r"\[user\] takes"),
        ("[user]\n$goal", r"\$goal and \$done"),
        ("[user]\n$goal $done $done", r"\$goal and \$done"),
        ("[user]\n$goal $done $5", r"\$goal and \$done"),
        ("[user]\n$goal $done $more", r"\$goal and \$done"),
    ],
)
def test_what_is_no_prompt_is_refused(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text(text)
    with pytest.raises(InputError, match=rf"p\.txt: .*{named}"):
        open_prompt(str(tmp_path / "p.txt"))


def test_a_name_that_is_none_lists_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="plain, one-example, or a file"):
        open_prompt("two-examples")
    for path in (tmp_path, tmp_path / "absent.txt"):
        with pytest.raises(InputError):
            open_prompt(str(path))


def test_a_model_remembers_its_prompt(tmp_path: Path) -> None:
    assert remembered_prompt(tmp_path) is remembered_prompt("smollm2") is PLAIN
    write_json(tmp_path / "card.json", {"stage": "sft"})
    assert remembered_prompt(tmp_path) is PLAIN
    write_json(tmp_path / "card.json", {"prompt": {"name": "mine", "text": TEXT}})
    assert remembered_prompt(tmp_path) == PlannerPrompt.parse("mine", TEXT, "")
    write_json(tmp_path / "card.json", {"prompt": {"name": "mine"}})
    with pytest.raises(InputError, match=r"card\.json.*prompt"):
        remembered_prompt(tmp_path)
