"""The validator: every fault with its line and field, all at once, and one canonical content."""

import gzip
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recipe.types import Example
from recipe_apps.board.validation import SubmissionCheck, check_submission

QUESTIONS = {f"q{number}": Example(f"q{number}", "d", "v", "make tea", ("boil",), (), 1) for number in range(4)}
GOOD = [{"example_id": name, "steps": ["pour", "drink"]} for name in QUESTIONS]


def check(rows: list[Any], plans: int = 1) -> SubmissionCheck:
    data = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows).encode()
    return check_submission(data, QUESTIONS, plans, {"other/1"})


def faults(checked: SubmissionCheck) -> list[tuple[int | None, str]]:
    return [(one.line, one.field) for one in checked.problems]


def replaced(line: int, row: Any) -> list[Any]:
    return [row if number == line else one for number, one in enumerate(GOOD, 1)]


def test_a_good_submission() -> None:
    checked = check(GOOD)
    assert checked.ok
    assert (checked.plans, checked.examples) == (4, 4)
    assert check(replaced(3, {"example_id": "q2", "steps": []})).ok  # a plan may be empty
    rows = [json.loads(line) for line in checked.content.splitlines()]
    assert rows == [{"example_id": name, "sample": 0, "steps": ["pour", "drink"]} for name in QUESTIONS]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("not json", ""),
        ("[1, 2]", ""),
        ('{"example_id": "q1", "steps": ["a"], "steps": ["b"]}', "steps"),
        ('{"example_id": "q1", "steps": ["a"], "sample": NaN}', "sample"),
        ('{"example_id": "q1", "steps": ["a"], "sample": ' + "9" * 5000 + "}", ""),
        ("[" * 100_000, ""),
        ({"example_id": "q1", "steps": ["a"], "step": 1}, "step"),
        ({"example_id": "q1", "steps": ["a"], "sample": 1}, "sample"),
        ({"example_id": "q1", "steps": ["a"], "sample": True}, "sample"),
        ({"example_id": "q1", "steps": ["a"], "sample": -1}, "sample"),
        ({"example_id": "q1", "steps": "a"}, "steps"),
        ({"example_id": "q1"}, "steps"),
        ({"example_id": "q1", "steps": ["a", 2]}, "steps[1]"),
        ({"example_id": "q1", "steps": ["a", " "]}, "steps[1]"),
        ({"example_id": "q1", "steps": ["a\x1b[31m"]}, "steps[0]"),
        ('{"example_id": "q1", "steps": ["\\ud800"]}', "steps[0]"),
        ({"example_id": "q1", "steps": ["a" * 2_001]}, "steps[0]"),
        ({"example_id": "q1", "steps": ["a"] * 101}, "steps"),
        ({"example_id": "q9", "steps": ["a"]}, "example_id"),
        ({"example_id": "other/1", "steps": ["a"]}, "example_id"),
        ({"example_id": 7, "steps": ["a"]}, "example_id"),
        ({"steps": ["a"]}, "example_id"),
        ({"example_id": "q0", "steps": ["a"]}, "sample"),
    ],
)
def test_each_fault_is_told_with_its_line_and_field(row: Any, field: str) -> None:
    checked = check(replaced(2, row))
    assert not checked.ok
    assert checked.content == b""
    assert faults(checked)[0] == (2, field)
    for problem in checked.problems:
        assert problem.sentence().isprintable()
        assert len(problem.sentence()) < 400


def test_all_faults_are_told_at_once() -> None:
    checked = check(
        [GOOD[0], "x", {"example_id": "q1", "steps": ["", "\x00"], "a": 1}, {"example_id": "q9", "steps": []}]
    )
    assert faults(checked) == [
        (2, ""),
        (3, "a"),
        (3, "steps[0]"),
        (3, "steps[1]"),
        (4, "example_id"),
        (None, "example_id"),
    ]
    assert "2 of 4 plans are missing: q2, q3" in checked.problems[-1].problem
    assert "'q0', 'q1', 'q2'" in checked.problems[-2].remedy


def test_many_faults_are_counted() -> None:
    checked = check(["x"] * 250)
    assert (len(checked.problems), checked.more) == (100, 150)
    checked = check([{"example_id": "q0", "steps": []} | {f"x{number}": 1 for number in range(250)}])
    assert (len(checked.problems), checked.more) == (100, 151)  # and that three plans are missing


def test_files_that_are_none() -> None:
    archives = gzip.compress(b"x", mtime=0), b"PK\x03\x04"
    for data in (b"", b"\n \n", *archives, "é\n".encode("latin-1"), b"\xff\xfe{\x00", b"x" * 300_000):
        assert not check_submission(data, QUESTIONS, 1).ok
    assert faults(check([*GOOD, " " * 20_000_000])) == [(None, "")]


def test_several_plans_of_a_question() -> None:
    rows = [one | {"sample": sample} for one in GOOD for sample in (1, 0)]
    assert check(rows, plans=2).ok
    checked = check(rows[:-1], plans=2)
    assert "q3 (plan 0)" in checked.problems[0].problem


plans = st.lists(st.text(st.characters(categories=["L", "N", "Zs"]), min_size=1).filter(str.strip), max_size=4)


@settings(max_examples=40)
@given(st.lists(plans, min_size=4, max_size=4), st.permutations(range(4)), st.booleans())
def test_order_spacing_and_dropped_fields_make_no_other_submission(
    steps: list[list[str]], order: list[int], spaced: bool
) -> None:
    rows = [{"example_id": name, "steps": own} for name, own in zip(QUESTIONS, steps, strict=True)]
    first = check(rows)
    other = [rows[place] | {"text": "a completion", "reward": 0.5, "sample": 0} for place in order]
    written = [json.dumps(row, indent=None, ensure_ascii=spaced, separators=(" , ", " : ")) for row in other]
    second = check_submission(("\r\n".join(written) + "\n\n").encode(), QUESTIONS, 1)
    assert first.ok
    assert second.ok
    assert first.sha == second.sha
    if steps[0] != steps[1]:
        swapped = check([rows[0] | {"steps": steps[1]}, *rows[1:]])
        assert (swapped.sha == first.sha) == (
            [" ".join(s.split()) for s in steps[0]] == [" ".join(s.split()) for s in steps[1]]
        )


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
json_values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@pytest.mark.thorough
@settings(max_examples=60)
@given(st.binary() | st.lists(json_values).map(lambda rows: "\n".join(map(json.dumps, rows)).encode()))
@example(b'{"example_id": "q0", "steps": [')
@example(b'{"example_id": "\\u0000", "steps": []}')
def test_nothing_raises(data: bytes) -> None:
    checked = check_submission(data, QUESTIONS, 1)
    assert not checked.ok
    for problem in checked.problems:
        assert problem.sentence().isprintable()
