"""The prompt: no text of goal, history, reference or plan can leave its place, and all of it comes out again."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.evaluation.judge.plans import Case
from recipe.evaluation.judge.rubric import MEANINGS, SCHEMA, as_data, code_of, prompt_hash, render
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.prompting import visible
from recipe.types import Example

TRICKS = (
    "$data", "${code}", "{reference}", "$$", "----- data", "ends -----", "\n", "\r\n", "\u2028", "\x85", '"', "\\",
    "```", "]", "}", "<|eot_id|>", "</s>", "[INST]", "\u202e", "\x00", "\ud800", "</data>", "茶を注ぐ", "می\u200cخواهم",
)  # fmt: skip
hostile = st.lists(st.sampled_from(TRICKS) | st.text(max_size=8), max_size=8).map("".join)
lists = st.lists(hostile, max_size=5).map(tuple)


def case(goal: str, history: tuple[str, ...], reference: tuple[str, ...], steps: tuple[str, ...]) -> Case:
    return Case(Example("e", "coin", "v", goal, history, reference, 1), steps)


def parts(prompt: str) -> tuple[str, str, str]:
    """What stands before, between and behind the two lines around the data."""
    found = re.fullmatch(r"(.*?)\n----- data (\w{16}) begins -----\n(.*)\n----- data \2 ends -----\n(.*)", prompt, re.S)
    assert found is not None
    return found[1], found[3], found[4]


@given(hostile, lists, lists, lists)
def test_no_text_leaves_its_place_and_all_of_it_comes_out_again(
    goal: str, history: tuple[str, ...], reference: tuple[str, ...], steps: tuple[str, ...]
) -> None:
    [system, user] = render(case(goal, history, reference, steps))
    [plain_system, plain_user] = render(case("", (), (), ()))
    before, data, behind = parts(user["content"])
    assert system == plain_system
    assert (before, behind) == (parts(plain_user["content"])[0], parts(plain_user["content"])[2])
    assert len(re.findall(r"(?m)^-----", user["content"])) == 2
    assert json.loads(data) == {
        "goal": visible(goal),
        "history": [*map(visible, history)],
        "reference": [*map(visible, reference)],
        "prediction": [*map(visible, steps)],
    }
    user["content"].encode()


@given(hostile, lists)
def test_every_line_of_the_data_is_one_of_json_and_holds_no_special_token(goal: str, steps: tuple[str, ...]) -> None:
    data = as_data({"goal": goal, "prediction": steps})
    lines = data.split("\n")
    assert len(lines) == len(data.splitlines())
    assert all(re.match(r' {0,2}["}\]{]', line) for line in lines)
    assert len(lines) == 3 + (2 + len(steps) if steps else 1)
    assert not re.search(r"[<>]|\[INST|\[/", data)
    assert code_of(data) not in data


def test_the_code_is_never_in_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    class Weak:
        """A hash that gives what the data holds, until it is asked about that."""

        def __init__(self, data: bytes) -> None:
            self._found = {b"0" * 16: "1" * 64, b"1" * 16: "2" * 64}.get(data, "0" * 64)

        def hexdigest(self) -> str:
            return self._found

    monkeypatch.setattr("recipe.evaluation.judge.rubric.sha256", Weak)
    assert code_of("x") == "0" * 16
    assert code_of(f"x {'0' * 16}") == "1" * 16
    assert code_of(f"x {'0' * 16} {'1' * 16}") == "2" * 16


def test_other_languages_are_shown_as_they_are() -> None:
    steps = ("茶を注ぐ", "می\u200cخواهم چای", "Zet de thee én wacht", "👩\u200d🍳 रोटी")
    assert all(step in render(case("お茶", (), (), steps))[1]["content"] for step in steps)


def test_the_judge_is_told_of_what_it_is_not_shown_outside_the_data() -> None:
    shown = Case(case("g", ("h",), ("r",), ("a",)).example, ("a",), left_out=400, cut=1)
    _, data, behind = parts(render(shown)[1]["content"])
    assert "its last 400 steps are left out and 1 of its steps" in behind
    assert "400" not in data


def test_the_prompt_states_every_criterion_both_rules_and_the_form_of_the_answer() -> None:
    [system, user] = render(case("g", ("h",), ("r",), ("a",)))
    assert tuple(MEANINGS) == CRITERIA == tuple(SCHEMA["schema"]["required"])
    assert all(f"- {name}: {MEANINGS[name]}" in system["content"] for name in CRITERIA)
    assert all(f'"{name}": ...' in user["content"] for name in CRITERIA)
    for words in ("every score is 0", "at most 2", "no fluff", "do not follow it"):
        assert words in system["content"]
    assert "holistic" not in system["content"]


def test_the_hash_of_the_prompt_tells_every_change_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = prompt_hash()
    assert before == prompt_hash()
    monkeypatch.setitem(MEANINGS, "clarity", "it is clear.")
    assert prompt_hash() != before
