"""Procedures read as narrations: steps are segments, the goal the title, and the file is told from other JSON lines."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.artifacts import write_jsonl
from recipe.data.narrations import ReadingOptions, ReadingReport, read_narrations
from recipe.data.procedures import read_procedures, write_procedures
from recipe.errors import InputError
from recipe.types import Narration, Procedure, Segment, Step

GOOD: dict[str, Any] = {
    "source": "mine",
    "video_id": "v1",
    "goal": "brew tea",
    "split": "train",
    "steps": [{"text": "boil", "start": 1, "end": 2.5}, {"text": "pour", "start": 2, "end": 4}],
}


def written(folder: Path, *rows: dict[str, Any], name: str = "procedures.jsonl") -> Path:
    write_jsonl(folder / name, rows)
    return folder / name


def read(path: Path, report: ReadingReport | None = None, **options: Any) -> list[Narration]:
    return list(read_narrations(path, options=ReadingOptions(**options), report=report))


def test_steps_are_segments_and_the_goal_is_the_title(tmp_path: Path) -> None:
    report = ReadingReport()
    expected = Narration("v1", (Segment("boil", 1.0, 2.5), Segment("pour", 2.0, 4.0)), "brew tea", "mine")
    assert read(written(tmp_path, GOOD), report) == [expected]
    assert (report.files, report.lines()) == ({"procedures": 1}, [])
    assert read(tmp_path / "procedures.jsonl", format="procedures") == [expected]


def test_a_procedure_of_ones_own_is_a_goal_and_texts(tmp_path: Path) -> None:
    rows = [{"goal": " brew tea ", "steps": ["boil ", "pour"]}, {"video_id": "v", "goal": "sew", "steps": ["cut"]}]
    path, report = written(tmp_path, *rows), ReadingReport()
    own = [Narration(p.video_id, tuple(Segment(s.text) for s in p.steps), p.goal) for p in read_procedures(path)[0]]
    assert read(path, report) == own
    assert report.files == {"procedures": 1}
    with pytest.raises(InputError, match="line 1, field 'video_id'"):
        read(written(tmp_path, {"goal": "", "steps": ["boil"]}))


@pytest.mark.parametrize("goal", ["", "  ", None])
def test_an_empty_goal_is_no_title_and_is_counted(tmp_path: Path, goal: str | None) -> None:
    path = written(tmp_path, GOOD, {**GOOD, "video_id": "v2", "goal": goal})
    report = ReadingReport()
    assert [narration.title for narration in read(path, report)] == ["brew tea", None]
    assert report.lines() == ["1 procedure without a goal, read without a title"]
    with pytest.raises(InputError, match="line 2, field 'goal'"):
        read_procedures(path)


@pytest.mark.parametrize("step", [{"text": "wait"}, {"text": "wait", "start": 3}, {"text": "wait", "end": None}])
def test_steps_of_a_procedure_that_lacks_a_time_are_read_without_times(tmp_path: Path, step: dict[str, Any]) -> None:
    path = written(tmp_path, {**GOOD, "steps": [*GOOD["steps"], step]})
    assert len(read_procedures(path).procedures) == 1
    (narration,) = read(path)
    assert narration.segments == (Segment("boil"), Segment("pour"), Segment("wait"))


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"steps": None}, "steps", "no captions"),
        ({"steps": []}, "steps", "no captions"),
        ({"goal": 3}, "goal", "bad goal"),
        ({"source": 3}, "source", "bad source"),
        ({"video_id": ""}, "video_id", "no video id"),
        ({"steps": [3]}, "steps[0]", "not a caption"),
        ({"steps": [{"text": " ", "start": 1, "end": 2}]}, "steps[0].text", "blank text"),
        ({"steps": [{"text": "a", "start": 3, "end": 2}]}, "steps[0].end", "end before start"),
        (
            {"steps": [{"text": "a", "start": 3, "end": 4}, {"text": "b", "start": 2, "end": 4}]},
            "steps[1].start",
            "out of order",
        ),
    ],
)
def test_what_cannot_be_used_is_named_or_counted(
    tmp_path: Path, change: dict[str, Any], field: str, reason: str
) -> None:
    path = written(tmp_path, GOOD, {**GOOD, "video_id": "v2", **change}, {**GOOD, "video_id": "v3"})
    with pytest.raises(InputError) as caught:
        read(path)
    assert f"{path}, line 2, field {field!r}" in str(caught.value)
    report = ReadingReport()
    found = [narration.video_id for narration in read(path, report, bad="skip")]
    assert [name for name in found if name != "v2"] == ["v1", "v3"]
    assert (report.skipped_captions + report.skipped_narrations)[reason] == 1
    assert report.no_goal == 0


ROWS: list[tuple[dict[str, Any], str]] = [
    (GOOD, "procedures"),
    ({"steps": GOOD["steps"], "goal": None, "video_id": "v"}, "procedures"),
    ({"video_id": "v", "segments": [{"text": "a"}], "goal": "g", "steps": []}, "jsonl"),
    ({"video_id": "v", "sentences": ["a"], "goal": "g", "steps": GOOD["steps"]}, "jsonl"),
    ({"video_id": "v", "sentences": ["a"], "goal": "g"}, "jsonl"),
]


@pytest.mark.parametrize("name", ["n.jsonl", "n.ndjson", "n", "n.json", "n.jsonl.gz"])
@pytest.mark.parametrize(("row", "expected"), ROWS)
def test_procedures_are_told_from_narrations(tmp_path: Path, name: str, row: dict[str, Any], expected: str) -> None:
    text = "\ufeff\n" + json.dumps(row) + "\n"
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    report = ReadingReport()
    assert len(read(tmp_path / name, report)) == 1
    assert report.files == {expected: 1}


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(str.strip).filter(bool)


@st.composite
def procedures(draw: st.DrawFn) -> Procedure:
    spans = sorted(draw(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)), min_size=1, max_size=4)))
    steps = tuple(Step(draw(texts), start, start + length) for start, length in spans)
    return Procedure("mine", draw(texts), draw(texts), steps, draw(st.sampled_from(["", "train", "val", "test"])))


@settings(max_examples=40, deadline=None)
@given(st.lists(procedures(), min_size=1, max_size=3, unique_by=lambda procedure: procedure.video_id))
def test_whatever_is_written_as_procedures_is_read_as_narrations(
    tmp_path_factory: pytest.TempPathFactory, value: list[Procedure]
) -> None:
    path = tmp_path_factory.mktemp("step_lists") / "procedures.jsonl"
    write_procedures(path, value)
    assert read(path) == [
        Narration(p.video_id, tuple(Segment(s.text, s.start, s.end) for s in p.steps), p.goal, p.source) for p in value
    ]


@pytest.mark.real_data
def test_youcook2_as_narrations(shared_data: Path) -> None:
    report = ReadingReport()
    found = read(shared_data / "youcook2" / "procedures.jsonl", report)
    assert (len(found), report.segments, report.no_goal) == (1_790, 13_829, 19)
    assert sum(narration.title is None for narration in found) == 19
    assert report.files == {"procedures": 1}
