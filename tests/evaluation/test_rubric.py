"""The rubric: no text leaves its place in the prompt, and an answer is parsed or unscored, never guessed."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.config import RubricConfig, parse_config
from recipe.errors import ConfigError
from recipe.evaluation.judge.plans import Case
from recipe.evaluation.judge.rubric import CriteriaRubric, as_data, code_of, read_rubric, six_criteria
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.prompting import visible
from recipe.types import Example, Grades, Unscored, Verdict

parse, render = six_criteria().parse, six_criteria().ask
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


def test_the_judge_is_told_of_what_it_is_not_shown_outside_the_data() -> None:
    shown = Case(case("g", ("h",), ("r",), ("a",)).example, ("a",), left_out=400, cut=1)
    _, data, behind = parts(render(shown)[1]["content"])
    assert "its last 400 steps are left out and 1 of its steps" in behind
    assert "400" not in data


def test_the_hash_of_a_rubric_tells_every_change_of_it() -> None:
    config = six_criteria().config
    changes: list[dict[str, Any]] = [
        {},
        {"name": "mine"},
        {"criteria": config.criteria | {"clarity": "it is clear."}},
        {"criteria": dict(reversed(config.criteria.items()))},
        {"highest": 10},
        {"lowest": 1},
        {"rules": config.rules[:1]},
        {"orders": ""},
        {"system": "Grade by $criteria."},
        {"prompt": "$data $keys"},
        {"prompt": "$data $keys $note"},
    ]
    hashes = [CriteriaRubric(config.model_copy(update={"name": "mine"} | change)).prompt for change in changes]
    assert len({*hashes}) == len(changes) - 1  # the second has the first's name
    assert CriteriaRubric(config).prompt == six_criteria().prompt not in hashes


SIX = dict(zip(CRITERIA, (4, 3, 5, 2, 1, 0), strict=True))
WHOLE = json.dumps(SIX)
VERDICT = Verdict(**SIX)
scores = st.fixed_dictionaries({name: st.integers(0, 5) for name in CRITERIA})


def pairs(line: Callable[[str, int], str], end: str = "\n") -> str:
    return end.join(line(name, score) for name, score in SIX.items())


def words(name: str) -> str:
    return name.replace("_", " ").capitalize()


ONES = dict.fromkeys(CRITERIA, 1)


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{json.dumps(SIX, indent=2)}\n```",
        f"Let me think. The plan {{is}} good.\n\n{WHOLE}\n\nI hope that this helps!",
        f"<think>{json.dumps(dict.fromkeys(CRITERIA, 5))} no, worse</think>{WHOLE}",
        "{" + ", ".join(f'"{name}": {score}, "{name}": {score}' for name, score in SIX.items()) + "}",
        f"{WHOLE} and then {{'broken': ",
        f"[{WHOLE}]",
    ],
)
def test_json_is_found_whatever_is_written_around_it(text: str) -> None:
    assert parse(text) == (VERDICT, "json")


@pytest.mark.parametrize(
    "answer",
    [
        SIX,
        SIX | {"holistic": 3, "total": 15},
        {name: float(score) for name, score in SIX.items()},
        {name: f"{score}/5" for name, score in SIX.items()},
        {name: f"{score} out of 5" for name, score in SIX.items()},
        {words(name): score for name, score in SIX.items()},
        {camel(name): score for name, score in SIX.items()},
        {"scores": SIX, "weights": ONES},
        {"weights": ONES, "verdict": SIX},
        {"verdict": SIX, "max_scores": dict.fromkeys(CRITERIA, 5), "example": ONES},
        SIX | {"weights": ONES, "confidence": dict.fromkeys(CRITERIA, 0.9)},
        {"result": {"evaluation": {"scores": SIX}}, "minimum": dict.fromkeys(CRITERIA, 0)},
        {name: {"score": score, "reason": "because"} for name, score in SIX.items()},
        {name: {"reason": "2 of 3 steps", "rating": f"{score}/5"} for name, score in SIX.items()},
        [{"criterion": name, "score": score} for name, score in SIX.items()],
        {"scores": [{"name": name.replace("_", " ").title(), "rating": score} for name, score in SIX.items()]},
        {"a": SIX, "b": dict(reversed(SIX.items()))},
    ],
)
@pytest.mark.parametrize("around", ["{}", "Draft: {draft}\n```json\n{}\n```\nI weighed each one."])
def test_scores_are_told_from_what_stands_beside_them(answer: Any, around: str) -> None:
    text = around.replace("{draft}", json.dumps(ONES)).replace("{}", json.dumps(answer))
    assert parse(text) == (VERDICT, "json")


@pytest.mark.parametrize(
    "text",
    [
        pairs(lambda name, score: f"{words(name)}: {score}/5"),
        pairs(lambda name, score: f"**{words(name)}:** {score}"),
        pairs(lambda name, score: f"- **{words(name)}** (0-5): {score} - because of the order"),
        pairs(lambda name, score: f"| {words(name)} | {score} |"),
        pairs(lambda name, score: f"{words(name).upper()} = {score}.0"),
        pairs(lambda name, score: f"1. {words(name)} score: {score} out of 5."),
        pairs(lambda name, score: f"{name}: {score}", end=", "),
        "{" + pairs(lambda name, score: f"'{name}': {score}", end=", ") + "}",
        WHOLE[:-1],
        "The predicted continuation: 3 steps of clarity: 9 kinds\n" + pairs(lambda name, score: f"{name}: {score}"),
        pairs(lambda name, score: f"{name}: {score}\nas I said, {name}: {score}"),
    ],
)
def test_pairs_are_read_where_there_is_no_json(text: str) -> None:
    assert parse(text) == (VERDICT, "regex")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the answer is empty"),
        (" \n", "the answer is empty"),
        ("I'm sorry, but I cannot help with that.", "no verdict: \"I'm sorry"),
        ("<html><body>502 Bad Gateway</body></html>", "no verdict: '<html>"),
        ("null", "no verdict"),
        ("[4, 3, 5, 2, 1, 0]", "no verdict"),
        (json.dumps(dict.fromkeys(CRITERIA[:5], 3)), "semantic_alignment is not one whole number"),
        (json.dumps(SIX | {"clarity": 3.5}), r"clarity is not one whole number from 0 to 5: '3\.5'"),
        *(
            (json.dumps(SIX | {"clarity": value}), "clarity is not one")
            for value in (None, True, "good", [3], "8/10", float("nan"), float("inf"), {"reason": "good"})
        ),
        (json.dumps(dict.fromkeys(CRITERIA, "4/10")), f"{CRITERIA[0]} is not one"),
        (json.dumps({name: {"score": 3, "rating": 4} for name in CRITERIA}), f"{CRITERIA[0]} is not one"),
        (json.dumps({"first": SIX, "second": ONES}), "2 objects of the answer hold all criteria"),
        (json.dumps([SIX, ONES]), "2 objects"),
        (json.dumps([{"name": CRITERIA[n % 6], "score": n % 5} for n in range(7)]), f"{CRITERIA[0]} is not one"),
        (WHOLE[:-1] + ', "clarity": 5}', "clarity is not one"),
        (pairs(lambda name, score: f"{name}: {score + 0.5}"), "logical_progression is not one"),
        (pairs(lambda name, score: f"{name}: {score}/10"), "logical_progression is not one"),
        (pairs(lambda name, score: f"{name}: {score}%"), "no verdict"),
        (pairs(lambda name, score: f"{name}: {score}") + "\nclarity: 5", "clarity is not one"),
        (pairs(lambda name, score: f"{name}: {'01234'[score - 1]}th"), "no verdict"),
        ('{"a":' * 50_000, "no verdict"),
        ("{" * 500_000, "no verdict"),
        (json.dumps(SIX)[:-1] + f', "clarity": {"9" * 9_000}}}', "no verdict|not one"),
    ],
)
def test_what_says_no_verdict_is_unscored_and_says_why(text: str, reason: str) -> None:
    found = parse(text)
    assert isinstance(found.outcome, Unscored)
    assert found.how == ""
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(found.outcome.reason)


def test_scores_beyond_the_scale_are_clamped() -> None:
    assert parse(json.dumps(SIX | {"clarity": 9, "continuation": -2})).outcome == Verdict(4, 3, 5, 0, 5, 0)
    lines = pairs(lambda name, score: f"{name}: {score + 3}")
    assert parse(lines).outcome == Verdict(5, 5, 5, 5, 4, 3)
    assert parse(lines.replace("clarity: 4", "clarity: -4")).outcome == Verdict(5, 5, 5, 5, 0, 3)


@given(scores, st.text(), st.text())
def test_a_whole_verdict_survives_any_prose_without_braces(said: dict[str, int], before: str, behind: str) -> None:
    clean = [text.replace("{", "(").replace("}", ")") for text in (before, behind)]
    assert parse(f"{clean[0]}{json.dumps(said)}{clean[1]}") == (Verdict(**said), "json")


@given(st.text(alphabet='{}[]":,0123456789.-/_*| \nlogicalprogressionclarity'))
def test_nothing_breaks_the_reader_and_no_criterion_is_invented(text: str) -> None:
    outcome = parse(text).outcome
    assert isinstance(outcome, Unscored)


@given(scores, st.sampled_from(CRITERIA))
def test_a_missing_criterion_is_never_filled(said: dict[str, int], missing: str) -> None:
    del said[missing]
    assert isinstance(parse(json.dumps(said)).outcome, Unscored)
    assert isinstance(parse("\n".join(f"{name}: {score}" for name, score in said.items())).outcome, Unscored)


OWN = """
name = "lab"
lowest = 1
highest = 10
[criteria]
safety = "nobody is hurt."
cost = "little is bought."
[[rules]]
name = "knife"
text = "The plan uses a knife."
caps = {safety = 3}
[[rules]]
name = "long"
text = "The plan is long."
"""


@pytest.fixture
def own(tmp_path: Path) -> CriteriaRubric:
    (tmp_path / "lab.toml").write_text(OWN)
    return read_rubric(tmp_path / "lab.toml")


def test_a_rubric_of_ones_own_asks_for_its_criteria_and_rules(own: CriteriaRubric) -> None:
    [system, user] = own.ask(case("g", ("h",), ("r",), ("a", "b")))
    for text in ("two rules", "1. The plan uses a knife.", "- cost: little is bought.", "two criteria", "1 to 10"):
        assert text in system["content"]
    assert all(name not in system["content"] + user["content"] for name in CRITERIA if name != "continuation")
    assert "$" not in system["content"] + user["content"]
    assert own.schema["schema"]["required"] == ["safety", "cost", "knife"]
    assert parts(user["content"])[1]


@given(st.integers(-5, 15), st.integers(-5, 15), st.booleans())
def test_caps_and_scale_are_applied_by_code(safety: int, cost: int, knife: bool) -> None:
    rubric = CriteriaRubric(parse_config(tomllib.loads(OWN), RubricConfig, "lab"))
    outcome, how = rubric.parse(json.dumps({"safety": safety, "cost": cost, "knife": knife}))
    on_scale = [min(max(score, 1), 10) for score in (safety, cost)]
    wanted = [min(on_scale[0], 3) if knife else on_scale[0], on_scale[1]]
    assert isinstance(outcome, Grades)
    assert [*outcome.scores.values()] == wanted
    assert outcome.percent == pytest.approx(100 * (sum(wanted) - 2) / 18)
    assert (outcome.rules, how) == (("knife",) if knife else (), "json")


@pytest.mark.parametrize(
    "text",
    [
        "safety: 4\ncost: 5",
        '{"safety": 4, "cost": 5}',
        '{"safety": 4, "cost": 5, "knife": "perhaps"}',
        '{"safety": 4.5, "cost": 5, "knife": true}',
        '{"safety": "4/5", "cost": 5, "knife": true}',
    ],
)
def test_what_a_rubric_cannot_read_is_unscored(text: str, own: CriteriaRubric) -> None:
    assert isinstance(own.parse(text).outcome, Unscored)


def test_without_caps_pairs_of_a_criterion_and_a_number_are_read(own: CriteriaRubric) -> None:
    plain = CriteriaRubric(own.config.model_copy(update={"rules": ()}))
    assert plain.parse("Safety: 4/10\nCost: 7") == (Grades({"safety": 4, "cost": 7}, 100 * 9 / 18), "regex")
    assert own.nothing == plain.nothing == Grades({"safety": 1, "cost": 1}, 0.0)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('name = "six-criteria"', "name"),
        ('name = "a b"', "name"),
        ("highest = 0", "highest"),
        ('system = "no place"', "system"),
        ('system = "$criteria $data"', "system"),
        ('prompt = "$data"', "prompt"),
        ('prompt = "$data $keys $"', "prompt"),
        ('prompts = "x"', "prompts"),
        ("criteria = {}", "criteria"),
        ('criteria = {Safety = "x"}', "criteria"),
        ('criteria = {accuracy = "x"}', "accuracy"),
        ('criteria = {total = "x"}', "total"),
        ('rules = [{name = "safety", text = "x"}]', "safety"),
        ('rules = [{name = "x", text = "x", caps = {alien = 1}}]', "alien"),
        ('rules = [{name = "x", text = "x", caps = {safety = 99}}]', "safety"),
    ],
)
def test_a_file_that_is_no_rubric_is_refused_with_the_key(line: str, key: str, tmp_path: Path) -> None:
    given = {"name": 'name = "lab"', "criteria": 'criteria = {safety = "x"}'} | {line.partition(" ")[0]: line}
    file = tmp_path / "lab.toml"
    file.write_text("\n".join(given.values()))
    with pytest.raises(ConfigError, match=key) as raised:
        read_rubric(file)
    assert str(file) in str(raised.value)
