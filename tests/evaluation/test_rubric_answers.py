"""What judges answer: read where it says six scores, unscored where it does not, and never guessed."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.evaluation.judge.rubric import parse
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.types import Unscored, Verdict

SIX = dict(zip(CRITERIA, (4, 3, 5, 2, 1, 0), strict=True))
WHOLE = json.dumps(SIX)
VERDICT = Verdict(**SIX)
scores = st.fixed_dictionaries({name: st.integers(0, 5) for name in CRITERIA})


def pairs(line: Callable[[str, int], str], end: str = "\n") -> str:
    return end.join(line(name, score) for name, score in SIX.items())


def words(name: str) -> str:
    return name.replace("_", " ").capitalize()


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        f"```json\n{json.dumps(SIX, indent=2)}\n```",
        f"Let me think. The plan {{is}} good.\n\n{WHOLE}\n\nI hope that this helps!",
        f"<think>{json.dumps(dict.fromkeys(CRITERIA, 5))} no, worse</think>{WHOLE}",
        json.dumps({"scores": SIX, "note": "fine"}),
        json.dumps(SIX | {"holistic": 3, "total": 15}),
        json.dumps({name: float(score) for name, score in SIX.items()}),
        json.dumps({name: f"{score}/5" for name, score in SIX.items()}),
        json.dumps({words(name): score for name, score in SIX.items()}),
        "{" + ", ".join(f'"{name}": {score}, "{name}": {score}' for name, score in SIX.items()) + "}",
        f"{WHOLE} and then {{'broken': ",
        f"[{WHOLE}]",
    ],
)
def test_json_is_found_whatever_is_written_around_it(text: str) -> None:
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
        (json.dumps(SIX | {"clarity": None}), "clarity is not one"),
        (json.dumps(SIX | {"clarity": True}), "clarity is not one"),
        (json.dumps(SIX | {"clarity": "good"}), "clarity is not one"),
        (json.dumps(SIX | {"clarity": [3]}), "clarity is not one"),
        (json.dumps(SIX | {"clarity": "8/10"}), "clarity is not one"),
        (json.dumps(SIX | {"clarity": float("nan")}), "clarity is not one"),
        (json.dumps(SIX | {"clarity": float("inf")}), "clarity is not one"),
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
