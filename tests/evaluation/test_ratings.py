"""Ratings of people as they come out of spreadsheets, what is refused, and sheets that are read back."""

import contextlib
import csv
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import raises_input

from recipe.errors import InputError
from recipe.evaluation.judge.verdicts import CRITERIA, Judgement
from recipe.evaluation.people.ratings import COLUMNS, Rating, cell, item_code, read_ratings, write_sheet
from recipe.types import Example, Unscored, Verdict

HEADER = (
    "Example ID,Rater,Sample,Logical progression,Temporal Alignment,spatial-grounding,CONTINUATION,Clarity ,"
    "Semantic_alignment\n"
)
FIVE = Verdict(5, 5, 5, 5, 5, 5)


def written(folder: Path, text: str, name: str = "ann.csv") -> Path:
    (folder / name).write_bytes(text.encode())
    return folder / name


def test_a_table_as_people_write_it(tmp_path: Path) -> None:
    rows = 'a,Ann,0,5,4,3,2,1,0\n\n"b, the second",,1,4.0, 3 ,,,,\nc,Bob,,,,,,,\n'
    found = read_ratings(written(tmp_path, "\ufeff" + HEADER + rows))
    assert found == [  # the third row is not rated yet
        Rating("Ann", dict(zip(CRITERIA, range(5, -1, -1), strict=True)), example_id="a"),
        Rating("ann", {"logical_progression": 4, "temporal_alignment": 3}, example_id="b, the second", sample=1),
    ]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators(separator: str, tmp_path: Path) -> None:
    path = written(tmp_path, (HEADER + "a,Ann,0,5,4,3,2,1,0\r\n").replace(",", separator))
    assert read_ratings(path)[0].scores["clarity"] == 1


def test_json_lines_flat_or_as_rows_of_a_judge(tmp_path: Path) -> None:
    rows = [
        {"example_id": "a", "rater": "Ann", "Clarity": 3, "control": "shuffled"},
        {"item": "p1", "scores": {"clarity": 2}, "comment": "too long"},
    ]
    found = read_ratings(written(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "bob.jsonl"))
    assert found == [
        Rating("Ann", {"clarity": 3}, example_id="a", control="shuffled"),
        Rating("bob", {"clarity": 2}, item="p1", comment="too long"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "field", "facts"),
    [
        ("", 1, None, []),
        ("example_id,goal\na,b\n", 1, None, []),
        ("goal,clarity\na,3\n", 1, None, ["item"]),
        ("example_id,clarty\na,3\n", 1, "clarty", ["'clarity'"]),
        ("example_id,clarity,Clarity\na,3,3\n", 1, None, ["'clarity'"]),
        ("example_id,clarity\na,6\n", 2, "clarity", ["6", "5"]),
        ("example_id,clarity\na,3.5\n", 2, "clarity", ["'3.5'"]),
        ("example_id,clarity\na,-1\n", 2, "clarity", ["'-1'"]),
        ("example_id,clarity\na,good\nb,3\n\nc,bad\n", 2, "clarity", ["'good'", "lines 5"]),
        ("example_id,clarity\n,3\n", 2, "example_id", []),
        ("example_id,item,clarity\na,p1,3\n", 2, "example_id", []),
        ("example_id,clarity,sample\na,3,first\n", 2, "sample", ["'first'"]),
        ("example_id,clarity\na,3\na,4\n", 3, None, ["line 2"]),
        ("example_id,clarity\na,\n", None, None, []),
        ("example_id,clarity\na,3,4\n", 2, None, ["3", "2"]),
        ('example_id,clarity\n"a,3\n', 2, None, []),
        (f"example_id,clarity\na,{'9' * 5000}\n", 2, "clarity", ["999"]),
    ],
)
def test_bad_tables_are_refused_in_one_sentence(
    text: str, line: int | None, field: str | None, facts: list[str], tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    with raises_input(path, line, field, *facts):
        read_ratings(path)


def test_bad_json_lines_and_files_that_are_none_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"example_id": "a", "claritty": 3}), "ann.jsonl")
    with raises_input(path, 1, "claritty", "'clarity'"):
        read_ratings(path)
    path = written(tmp_path, json.dumps({"example_id": "a", "scores": {"clarity": 3.5}}), "ann.jsonl")
    with raises_input(path, 1, "clarity", "3.5"):
        read_ratings(path)
    with raises_input(tmp_path / "none.csv"):
        read_ratings(tmp_path / "none.csv")
    path = tmp_path / "latin.csv"
    path.write_bytes(b"example_id,clarity\na\xff,3\n")
    with raises_input(path, None, None, "UTF-8"):
        read_ratings(path)


@given(st.text(max_size=60))
def test_no_text_of_a_row_can_break_the_reader(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.csv"
        path.write_text("example_id,clarity\n" + text, encoding="utf-8", errors="replace")
        with contextlib.suppress(InputError):
            read_ratings(path)


EXAMPLES = {
    name: Example(name, "s", "v", goal, ("boil the water",), ("pour it", "=steep"), 1)
    for name, goal in (("a", "make tea"), ("b", '=HYPERLINK("x")'), ("c", "crêpe\u202e 包饺子"))
}


def judged(name: str, *steps: str, sample: int = 0, control: str = "") -> Judgement:
    return Judgement(name, FIVE, sample=sample, control=control, judge="J", steps=steps, text="five stars")


def test_a_sheet_hides_who_wrote_what_and_is_read_back(tmp_path: Path) -> None:
    rows = [
        judged("a", "pour it"),
        judged("a", "pour it", sample=1),
        judged("b", "-1", "x" * 40_000),
        judged("c", "包"),
        judged("c", "stir", control="shuffled"),
        Judgement("a", Unscored("none"), sample=2),
    ]
    sheet = tmp_path / "sheet.csv"
    assert write_sheet(sheet, rows, EXAMPLES, seed=1) == 4  # equal plans once, and none without a plan
    first = sheet.read_bytes()
    assert write_sheet(sheet, rows[::-1], EXAMPLES, seed=1) == 4
    assert sheet.read_bytes() == first
    write_sheet(sheet, rows, EXAMPLES, seed=2)
    assert sheet.read_bytes() != first
    assert write_sheet(sheet, rows, EXAMPLES, seed=2, limit=3) == 3
    assert write_sheet(sheet, rows, EXAMPLES, seed=2) == 4
    text = sheet.read_text("utf-8-sig")
    assert not [word for word in ("five stars", "shuffled", "sample", "judge") if word in text]
    table = list(csv.DictReader(text.splitlines(keepends=True)))
    assert tuple(table[0]) == COLUMNS
    goals = {row["goal"] for row in table}
    assert goals == {"make tea", '\'=HYPERLINK("x")', "crêpe  包饺子"}
    for row in table:
        row["clarity"], row["comment"] = "4", "=1"
    with sheet.open("w", newline="", encoding="utf-8") as stream:
        filled = csv.DictWriter(stream, COLUMNS)
        filled.writeheader()
        filled.writerows(table)
    found = read_ratings(sheet)
    assert {one.item for one in found} == {item_code(row) for row in rows if row.steps}
    assert {one.rater for one in found} == {"sheet"}


@given(st.text())
def test_no_cell_is_a_formula_or_longer_than_a_spreadsheet_takes(text: str) -> None:
    shown = cell(text)
    assert not shown.startswith(("=", "+", "-", "@"))
    assert len(shown) <= 32_767


def test_a_sheet_of_nothing_or_of_unknown_examples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no plan to rate"):
        write_sheet(tmp_path / "s.csv", [judged("a")], EXAMPLES)
    with pytest.raises(InputError, match="first 'z'"):
        write_sheet(tmp_path / "s.csv", [judged("z", "pour")], EXAMPLES)
