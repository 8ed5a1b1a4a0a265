"""JSON lines of narrations, and of procedures read as narrations: which fields count, and videos that come twice."""

from pathlib import Path
from typing import Any

import pytest

from recipe.artifacts import write_jsonl
from recipe.data.narrations import ReadingOptions, ReadingReport, read_narrations
from recipe.data.procedures import read_procedures
from recipe.errors import InputError
from recipe.types import Narration, Segment

GOOD: dict[str, Any] = {
    "source": "mine",
    "video_id": "v1",
    "goal": "brew tea",
    "steps": [{"text": "boil", "start": 1, "end": 2.5}, {"text": "pour", "start": 2, "end": 4}],
}


def written(folder: Path, *rows: dict[str, Any], name: str = "n.jsonl") -> Path:
    write_jsonl(folder / name, rows)
    return folder / name


def read(path: Path, report: ReadingReport | None = None, **options: Any) -> list[Narration]:
    return list(read_narrations(path, options=ReadingOptions(**options), report=report))


def test_narrations_are_read_and_other_fields_ignored(tmp_path: Path) -> None:
    spoken = [{"start": 0, "end": 2, "text": "text 0", "key_steps": "boil"}, {"start": 2, "end": 2.5, "text": "text 1"}]
    row = {"video_id": "v", "segments": spoken, "title": " Tea ", "source": "mine", "timing": "end=next start"}
    segments = Segment("text 0", 0.0, 2.0), Segment("text 1", 2.0, 2.5)
    assert read(written(tmp_path, row)) == [Narration("v", segments, "Tea", "mine")]


@pytest.mark.parametrize(
    "row",
    [
        {"video_id": "v", "sentences": ["boil", "pour"], "duration": 9.5},
        {"video_id": "v", "segments": [{"text": "boil"}, {"text": " pour ", "start": None, "end": None}]},
    ],
)
def test_no_time_is_invented_for_text_without_times(tmp_path: Path, row: dict[str, Any]) -> None:
    assert read(written(tmp_path, row)) == [Narration("v", (Segment("boil"), Segment("pour")))]


def test_a_video_given_twice_is_refused_or_the_first_is_kept(tmp_path: Path) -> None:
    timed = {"video_id": "w", "segments": [{"text": "timed", "start": 0, "end": 2}]}
    first = written(tmp_path, timed | {"video_id": "v"}, timed, name="a.jsonl")
    second = written(tmp_path, {"video_id": "w", "sentences": ["late"]}, timed | {"video_id": "x"}, name="b.jsonl")
    with pytest.raises(InputError, match=r"b\.jsonl, line 1, .*'w'.*a\.jsonl, line 2;"):
        list(read_narrations([first, second]))
    kept = list(read_narrations([first, second], "keep-first"))
    assert [(one.video_id, one.segments[0].text) for one in kept] == [("v", "timed"), ("w", "timed"), ("x", "timed")]


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


@pytest.mark.real_data
def test_youcook2_as_narrations(shared_data: Path) -> None:
    report = ReadingReport()
    found = read(shared_data / "youcook2" / "procedures.jsonl", report)
    assert (len(found), report.segments, report.no_goal) == (1_790, 13_829, 19)
    assert sum(narration.title is None for narration in found) == 19
    assert report.files == {"procedures": 1}


@pytest.mark.real_data
def test_real_narrations_are_read_whole(shared_data: Path) -> None:
    folder = shared_data / "narrations"
    files = [folder / "narrations_timed.jsonl", folder / "youcook2_asr_untimed.jsonl"]
    found = [read(file) for file in files]
    assert [len(narrations) for narrations in found] == [643, 1736]
    assert [sum(len(n.segments) for n in narrations) for narrations in found] == [19_344, 74_801]
    assert all(segment.start is None for narration in found[1] for segment in narration.segments)
    merged = list(read_narrations(files, "keep-first"))
    assert len(merged) == 643 + 1736 - 318
    assert merged[:643] == found[0]
