"""Examples survive the round trip, and a file that cannot be used says exactly why."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import raises_input

from recipe.data.examples import read_examples, read_training_examples, write_examples
from recipe.errors import InputError
from recipe.types import Example

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(str.strip).filter(bool)
rows = st.builds(
    Example,
    example_id=texts,
    source=texts,
    video_id=texts,
    goal=texts,
    history=st.lists(texts, max_size=3).map(tuple),
    continuation=st.lists(texts, min_size=1, max_size=3).map(tuple),
    cut=st.integers(1, 9),
    split=st.sampled_from(["", "train", "test"]),
    supervision=st.sampled_from(["annotated", "weak"]),
    until=st.none() | st.floats(0, 1e9),
    told_history=st.none() | st.lists(texts, max_size=3).map(tuple),
)
GOOD = {"example_id": "s/v/1", "goal": "brew tea", "history": ["boil"], "continuation": ["pour", "drink"]}


def written(folder: Path, *objects: dict[str, Any]) -> Path:
    path = folder / "examples.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in objects))
    return path


@given(examples=st.lists(rows, min_size=1, max_size=4, unique_by=lambda example: example.example_id))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, examples: list[Example]) -> None:
    path = tmp_path_factory.mktemp("round") / "examples.jsonl"
    assert write_examples(path, examples) == len(examples)
    assert read_examples(path) == examples


def test_optional_fields_have_defaults(tmp_path: Path) -> None:
    (example,) = read_examples(written(tmp_path, {**GOOD, "history": ["boil", "steep"]}))
    assert (example.cut, example.split, example.source, example.supervision) == (2, "", "", "annotated")
    assert (example.until, example.told_history) == (None, None)


def test_a_history_that_phi_told_is_written_where_there_is_one(tmp_path: Path) -> None:
    (example,) = read_examples(written(tmp_path, {**GOOD, "told_history": []}))
    assert example.told_history == ()
    write_examples(tmp_path / "told.jsonl", [example])
    assert json.loads((tmp_path / "told.jsonl").read_text())["told_history"] == []
    write_examples(tmp_path / "plain.jsonl", [replace(example, told_history=None)])
    assert "told_history" not in json.loads((tmp_path / "plain.jsonl").read_text())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("example_id", "a\ud800"),
        ("example_id", 7),
        ("goal", "  "),
        ("goal", None),
        ("history", None),
        ("history", "boil"),
        ("history[0]", [" "]),
        ("continuation[1]", ["pour", " "]),
        ("continuation", ["pour", "\udfff"]),
        ("continuation", []),
        ("cut", 0),
        ("cut", -1),
        ("cut", True),
        ("cut", None),
        ("cut", 1.0),
        ("split", 3),
        ("supervision", "strong"),
        ("until", -0.5),
        ("until", float("inf")),
        ("until", float("nan")),
        ("until", "0:41"),
        ("until", True),
        ("told_history[0]", [""]),
        ("worded", 1),
        ("continuaton", ["x"]),
        ("zzz", 1),
    ],
)
def test_a_bad_field_is_named(tmp_path: Path, field: str, value: object) -> None:
    name = field.partition("[")[0]
    path = written(tmp_path, GOOD, {**GOOD, "example_id": "s/v/2", name: value})
    with raises_input(path, 2, field):
        read_examples(path)


def test_a_board_gives_out_questions_without_continuations(tmp_path: Path) -> None:
    path = written(tmp_path, {name: value for name, value in GOOD.items() if name != "continuation"})
    assert read_examples(path, questions=True)[0].continuation == ()
    with raises_input(path, 1, "continuation"):
        read_examples(path)
    path = written(tmp_path, {**GOOD, "continuation": []})
    with raises_input(path, 1, "continuation"):
        read_examples(path, questions=True)


def test_nothing_may_have_been_done_yet_but_not_in_training(tmp_path: Path) -> None:
    start = {**GOOD, "example_id": "s/v/0", "history": []}
    path = written(tmp_path, GOOD, start)
    _, example = read_examples(path)
    assert (example.history, example.cut) == ((), 0)
    with pytest.raises(InputError, match=r"'history': 1 of 2 examples have no history \(s/v/0\)"):
        read_training_examples(path)
    assert len(read_training_examples(written(tmp_path, GOOD))) == 1


@pytest.mark.parametrize("field", GOOD)
def test_a_missing_field_is_named(tmp_path: Path, field: str) -> None:
    path = written(tmp_path, {key: value for key, value in GOOD.items() if key != field})
    with raises_input(path, 1, field):
        read_examples(path)


def test_a_repeated_id_is_named_with_its_first_line(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD, {**GOOD, "example_id": "other"}, GOOD)
    with raises_input(path, 3, "example_id", "line 1"):
        read_examples(path)


def test_a_split_selects(tmp_path: Path) -> None:
    first, second = {**GOOD, "split": "train"}, {**GOOD, "example_id": "s/v/2", "split": "test"}
    path = written(tmp_path, first, second)
    assert [example.example_id for example in read_examples(path, "test")] == ["s/v/2"]
    with pytest.raises(InputError, match=r"'val'.*test \(1\), train \(1\)"):
        read_examples(path, "val")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    example = Example("s/v/1", "s", "v", "g", ("a",), ("b",), 1)
    write_examples(path, [example])
    before = path.read_bytes()

    def broken() -> Any:
        yield example
        raise InputError("the source broke off")

    with pytest.raises(InputError, match="broke off"):
        write_examples(path, broken())
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["examples.jsonl"]
