"""The narration reader: both layouts, every rejection with its place and remedy, duplicates across files."""

import json
from pathlib import Path
from typing import Any

import pytest

from recipe.data.narrations import read_narrations
from recipe.errors import InputError
from recipe.types import Narration, Segment


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def timed(video_id: str = "v", *spans: tuple[Any, Any]) -> dict[str, Any]:
    spans = spans or ((0, 2),)
    return {
        "video_id": video_id,
        "segments": [{"start": start, "end": end, "text": f"text {k}"} for k, (start, end) in enumerate(spans)],
    }


def test_reads_segments_with_times_and_ignores_other_fields(tmp_path: Path) -> None:
    row = timed("v", (0, 2), (2, 2.5)) | {"title": " Tea ", "source": "mine", "timing": "end=next start"}
    row["segments"][0]["key_steps"] = "boil"
    (narration,) = read_narrations(write(tmp_path / "n.jsonl", row))
    assert narration == Narration(
        "v", (Segment("text 0", 0.0, 2.0), Segment("text 1", 2.0, 2.5)), title="Tea", source="mine"
    )


@pytest.mark.parametrize(
    "row",
    [
        {"video_id": "v", "sentences": ["boil", "pour"], "duration": 9.5},
        {"video_id": "v", "segments": [{"text": "boil"}, {"text": " pour ", "start": None, "end": None}]},
    ],
)
def test_no_time_is_invented_for_text_without_times(tmp_path: Path, row: object) -> None:
    (narration,) = read_narrations(write(tmp_path / "n.jsonl", row))
    assert narration.segments == (Segment("boil"), Segment("pour"))
    assert narration.title is None


@pytest.mark.parametrize(
    ("row", "field", "problem"),
    [
        ({"segments": [{"text": "a"}]}, "video_id", "missing"),
        ({"video_id": "v"}, "segments", "no segments"),
        ({"video_id": "v", "segments": "a"}, "segments", "not a list"),
        ({"video_id": "v", "sentences": ["a", " "]}, "sentences", "empty"),
        ({"video_id": "v", "sentences": ["a"], "segments": [{"text": "a"}]}, "sentences", "both"),
        ({"video_id": "v", "segments": ["a"]}, "segments[0]", "not an object"),
        ({"video_id": "v", "segments": [{"start": 0, "end": 1}]}, "segments[0].text", "missing"),
        ({"video_id": "v", "segments": [{"text": "a", "start": 1}]}, "segments[0]", "only one"),
        (timed("v", (True, 2)), "segments[0].start", "True"),
        (timed("v", (5, 6), (4, 7)), "segments[1].start", "before the previous"),
        (timed("v", (5, 6), (None, None)), "segments[1]", "some have none"),
    ],
)
def test_a_bad_narration_is_refused_with_line_and_field(tmp_path: Path, row: object, field: str, problem: str) -> None:
    path = write(tmp_path / "n.jsonl", timed("fine"), row)
    reader = read_narrations(path)
    assert next(reader).video_id == "fine"
    with pytest.raises(InputError) as caught:
        next(reader)
    message = str(caught.value)
    assert message.startswith(f"{path}, line 2, field {field!r}: ")
    assert problem in message
    assert "; " in message


def test_a_video_given_twice_is_refused_or_the_first_is_kept(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", timed("v"), timed("w"))
    second = write(tmp_path / "b.jsonl", {"video_id": "w", "sentences": ["untimed"]}, timed("x"))
    with pytest.raises(InputError, match=r"b\.jsonl, line 1, .*'w'.*a\.jsonl, line 2;"):
        list(read_narrations([first, second]))
    kept = list(read_narrations([first, second], "keep-first"))
    assert [narration.video_id for narration in kept] == ["v", "w", "x"]
    assert kept[1].segments[0].start == 0


@pytest.mark.real_data
def test_real_narrations_are_read_whole(shared_data: Path) -> None:
    folder = shared_data / "narrations"
    files = [folder / "narrations_timed.jsonl", folder / "youcook2_asr_untimed.jsonl"]
    read = [list(read_narrations(file)) for file in files]
    assert [len(narrations) for narrations in read] == [643, 1736]
    assert [sum(len(n.segments) for n in narrations) for narrations in read] == [19_344, 74_801]
    assert all(segment.start is None for narration in read[1] for segment in narration.segments)
    merged = list(read_narrations(files, "keep-first"))
    assert len(merged) == 643 + 1736 - 318
    assert merged[:643] == read[0]
