"""Rows: whatever JSON stands in a field, a file is read or one line says where the fault lies."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import raises_input

from recipe.corpus.excluded import read_excluded
from recipe.data.examples import read_examples
from recipe.data.histories import read_histories
from recipe.data.procedures import read_procedures
from recipe.errors import InputError
from recipe.evaluation.agreement import read_ratings
from recipe.planning.prediction_files import read_predictions
from recipe.rows import Count, Seconds, Stripped, Text, Texts, write_rows
from recipe.tables import read_rows


@dataclass(frozen=True, slots=True)
class Part:
    text: Text
    at: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Thing:
    name: Text
    words: Texts = ()
    note: Stripped = ""
    count: Count = 0
    share: float | None = None
    done: bool = False
    kind: Literal["a", "b"] = "a"
    parts: tuple[Part, ...] = ()


GOOD: dict[str, Any] = {"name": "n", "parts": [{"text": "t", "at": 1}]}


def written(folder: Path, *objects: object) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in objects), encoding="utf-8")
    return path


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("field", "value", "facts"),
    [
        ("name", None, ["None"]),
        ("name", " \u001f ", []),
        ("name", "a\ud800", ["half a character"]),
        ("words", "boil", ["'boil'"]),
        ("words[1]", ["a", " "], []),
        ("words[0]", [["x"] * 100_000], []),
        ("note", 3, ["3"]),
        ("note", "x" * 100_000 + "\ud800", []),
        ("count", True, ["True"]),
        ("count", 1.0, ["1.0"]),
        ("count", "1", ["'1'"]),
        ("count", -1, ["-1", "0"]),
        ("count", 10**400, []),
        ("share", True, ["True"]),
        ("share", float("inf"), ["inf"]),
        ("share", float("nan"), ["nan"]),
        ("share", 10**400, []),
        ("share", {"a\nb": "c\n" * 1000}, []),
        ("done", 1, ["1"]),
        ("kind", "c", ["'c'", "'a'", "'b'"]),
        ("parts", {}, []),
        ("parts[1]", [{"text": "a"}, "b"], ["'b'"]),
        ("parts[0].text", [{}], ["missing"]),
        ("parts[0].at", [{"text": "a", "at": -0.5}], ["-0.5"]),
        ("parts[1].txt", [{"text": "a"}, {"txt": "b"}], ["'text'"]),
        ("parts", nested(500), []),
        ("nmae", "x", ["'name'"]),
        ("zzz", "x", ["name, words, note, count, share, done, kind, parts"]),
        ("a\nb", 1, []),
    ],
)
def test_a_fault_is_named_in_one_line(tmp_path: Path, field: str, value: object, facts: list[str]) -> None:
    name = field.partition("[")[0]
    path = written(tmp_path, GOOD, GOOD | {name: value})
    with raises_input(path, 2, field, *facts):
        list(read_rows(path, Thing))


@pytest.mark.parametrize(
    "line",
    [
        *("3", "null", "[]", '{"name": "a"} {}', '{"name": "a"}, {"name": "b"}', '{"a":', "NaN"),
        *('{"name": ' + "[" * 100_000, '{"count": 1' + "0" * 5_000 + "}"),
    ],
)
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, GOOD)
    path.write_text(f"{path.read_text()}\n{line}\n")
    with raises_input(path, 3):
        list(read_rows(path, Thing))


def test_a_row_that_occurs_twice_is_named_with_its_first_line(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD, GOOD | {"name": "m"}, GOOD | {"count": 1}, GOOD | {"name": "m" + " "})
    with raises_input(path, 4, "count", "line 2"):
        list(read_rows(path, Thing, unique=("name", "count")))


texts = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["a", " ", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9) | st.just("text"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(field=st.sampled_from([*Thing.__slots__, "other"]), value=json_values)
def test_any_value_of_a_field_is_read_or_named(
    tmp_path_factory: pytest.TempPathFactory, field: str, value: object
) -> None:
    path = written(tmp_path_factory.mktemp("any"), GOOD, GOOD | {field: value})
    try:
        rows = list(read_rows(path, Thing))
    except InputError as error:
        sentence = str(error)
    else:
        assert [line for line, _ in rows] == [1, 2]
        assert write_rows(path, (row for _, row in rows)) == 2
        assert list(read_rows(path, Thing)) == rows
        return
    assert sentence.startswith((f"{path}, line 2, field '{field}", f'{path}, line 2, field "{field}'))
    assert "\n" not in sentence
    assert len(sentence) < len(str(path)) + 1_000


READERS: dict[str, tuple[Callable[[Path], object], dict[str, Any], str]] = {
    "examples": (
        read_examples,
        {"goal": "g", "history": ["a"], "continuation": ["b"], "cut": 1, "told_history": [], "until": 2},
        "example_id",
    ),
    "procedures": (read_procedures, {"source": "s", "goal": "g", "steps": [{"text": "a", "start": 1}]}, "video_id"),
    "histories": (read_histories, {"history": ["a"], "seconds": 2.5, "tokens_in": 3, "until": None}, "example_id"),
    "predictions": (read_predictions, {"steps": ["a"], "sample": 0, "reward": 0.5, "decoding": None}, "example_id"),
    "ratings": (read_ratings, {"clarity": 3, "sample": 1}, "example_id"),
    "excluded": (read_excluded, {"steps": [{"text": "a"}], "goal": ""}, "video_id"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("reader", READERS)
@given(data=st.data())
def test_every_reader_reads_any_value_or_names_it(
    tmp_path_factory: pytest.TempPathFactory, reader: str, data: st.DataObject
) -> None:
    read, good, key = READERS[reader]
    field, value = data.draw(st.sampled_from([*good, key])), data.draw(json_values)
    path = written(tmp_path_factory.mktemp("any"), good | {key: "first"}, good | {key: "second"} | {field: value})
    try:
        read(path)
    except InputError as error:
        sentence = str(error)
    else:
        return
    assert sentence.startswith(f"{path}, line 2")
    assert "field " in sentence or reader == "ratings"  # a plan that is rated twice is named by its lines
    assert "\n" not in sentence
    assert len(sentence) < len(str(path)) + 1_000
