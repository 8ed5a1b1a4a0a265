"""Procedure files: strict by default, and nothing is left out without being told."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import raises_input

from recipe.data.procedures import read_procedures, write_procedures
from recipe.types import Procedure, Step

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(str.strip).filter(bool)
times = st.one_of(st.none(), st.floats(0, 1e4))


@st.composite
def procedures(draw: st.DrawFn) -> Procedure:
    starts = sorted(draw(st.lists(st.floats(0, 1e4), min_size=1, max_size=4)))
    steps = tuple(Step(draw(texts), start, draw(st.sampled_from([None, start + 1.0]))) for start in starts)
    split = draw(st.sampled_from(["", "train", "val", "test"]))
    return Procedure(draw(texts), draw(texts), draw(texts), steps, split)


GOOD: dict[str, Any] = {
    "source": "mine",
    "video_id": "v1",
    "goal": "brew tea",
    "split": "train",
    "steps": [{"text": "boil", "start": 1, "end": 2.5}, {"text": "pour", "start": 2, "end": None}],
}


def written(folder: Path, *objects: dict[str, Any]) -> Path:
    path = folder / "procedures.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in objects))
    return path


@given(value=st.lists(procedures(), min_size=1, max_size=3, unique_by=lambda p: (p.source, p.video_id)))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, value: list[Procedure]) -> None:
    path = tmp_path_factory.mktemp("round") / "procedures.jsonl"
    assert write_procedures(path, value) == len(value)
    assert read_procedures(path) == (value, [])


def test_times_and_split_may_be_absent(tmp_path: Path) -> None:
    row = {"source": "mine", "video_id": "v", "goal": "g", "steps": [{"text": " boil "}]}
    assert read_procedures(written(tmp_path, row)).procedures == [Procedure("mine", "v", "g", (Step("boil"),))]


@pytest.mark.parametrize(
    ("change", "field", "facts"),
    [
        ({"goal": ""}, "goal", []),
        ({"goal": "a\ud800"}, "goal", []),
        ({"steps": []}, "steps", []),
        ({"steps": ["boil"]}, "steps[0]", ["boil"]),
        ({"steps": [{"text": ""}]}, "steps[0].text", []),
        ({"steps": [{"text": "a"}, {"txt": "b"}]}, "steps[1].txt", ["text"]),
        ({"steps": [{"text": "a", "start": "1"}]}, "steps[0].start", ["'1'"]),
        ({"steps": [{"text": "a", "start": -1}]}, "steps[0].start", ["-1"]),
        ({"steps": [{"text": "a", "start": float("nan")}]}, "steps[0].start", ["nan"]),
        ({"steps": [{"text": "a", "start": 3, "end": 2}]}, "steps[0].end", ["3", "2"]),
        (
            {"steps": [{"text": "a", "start": 3}, {"text": "b"}, {"text": "c", "start": 2}]},
            "steps[2].start",
            ["3", "2"],
        ),
        ({"split": "training"}, "split", ["train", "val", "test"]),
        ({"splits": "train"}, "splits", ["'split'"]),
        ({"video_id": "v1"}, "video_id", ["line 1"]),
    ],
)
def test_a_bad_field_is_named_or_skipped(tmp_path: Path, change: dict[str, Any], field: str, facts: list[str]) -> None:
    path = written(tmp_path, GOOD, {**GOOD, "video_id": "v2", **change}, {**GOOD, "video_id": "v3"})
    with raises_input(path, 2, field, *facts):
        read_procedures(path)
    found = read_procedures(path, on_bad="skip")
    assert [procedure.video_id for procedure in found.procedures] == ["v1", "v3"]
    [(line, reason)] = found.skipped
    assert line == 2
    assert field in reason


def test_broken_json_is_an_error_even_when_skipping(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    path.write_text(path.read_text() + '{"source": \n')
    with raises_input(path, 2):
        read_procedures(path, on_bad="skip")


@pytest.mark.real_data
def test_youcook2(shared_data: Path) -> None:
    path = shared_data / "youcook2" / "procedures.jsonl"
    with raises_input(path, 1430, "goal"):
        read_procedures(path)
    found = read_procedures(path, on_bad="skip")
    assert (len(found.procedures), len(found.skipped)) == (1790 - 19, 19)
    assert all("field 'goal'" in row.reason for row in found.skipped)
    assert sum(procedure.split == "train" for procedure in found.procedures) == 1333
    assert len({procedure.goal for procedure in found.procedures}) == 89
