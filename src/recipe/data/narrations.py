"""Narration corpora as JSON lines: what was said in each video, with the times that the source really has.

Two layouts are read, one object a line. `segments` is a list of {"text", "start", "end"}, with times for
all of them or for none; `sentences` is a list of texts without times. `title` and `source` are optional,
and fields that are not named here are ignored. No time is ever invented.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from recipe.artifacts import JsonObject, read_jsonl, text_field, text_list_field
from recipe.errors import InputError
from recipe.types import Narration, Segment

Duplicates = Literal["error", "keep-first"]
"""What to do with a video id that was read before: refuse it, or keep the narration that came first."""


def read_narrations(files: Path | Sequence[Path], duplicates: Duplicates = "error") -> Iterator[Narration]:
    """The narrations of one or more files, in file and line order, read as a stream.

    Raises InputError, with file, line, field and remedy, for a file that is missing or empty, a line that
    is not a narration (no segments, blank text, times that are negative, reversed, unordered or given for
    some segments only), and, unless `duplicates` is `keep-first`, a video id that was read before.
    """
    seen: dict[str, tuple[Path, int]] = {}
    for path in [files] if isinstance(files, Path) else files:
        for line, row in read_jsonl(path):
            narration = _narration(path, line, row)
            if narration.video_id not in seen:
                seen[narration.video_id] = (path, line)
                yield narration
            elif duplicates == "error":
                raise _duplicate(path, line, narration.video_id, *seen[narration.video_id])


def _duplicate(path: Path, line: int, video_id: str, first: Path, first_line: int) -> InputError:
    return InputError.at(
        path,
        f"video {video_id!r} was read before, from {first}, line {first_line}",
        "remove one of them, or ask for duplicates keep-first, which keeps the earlier one",
        line=line,
        field="video_id",
    )


def _narration(path: Path, line: int, row: JsonObject) -> Narration:
    return Narration(
        video_id=text_field(path, line, row, "video_id"),
        segments=_segments(path, line, row),
        title=_optional_text(path, line, row, "title"),
        source=_optional_text(path, line, row, "source"),
    )


def _optional_text(path: Path, line: int, row: JsonObject, field: str) -> str | None:
    if row.get(field) is None:
        return None
    if not isinstance(row[field], str):
        raise InputError.at(path, "not a string", f"give {field!r} as a string or leave it out", line=line, field=field)
    return row[field].strip() or None


def _segments(path: Path, line: int, row: JsonObject) -> tuple[Segment, ...]:
    if "segments" in row and "sentences" in row:
        raise InputError.at(
            path,
            "'segments' and 'sentences' are both given",
            "keep one of them",
            line=line,
            field="sentences",
        )
    if "sentences" in row:
        return tuple(Segment(text) for text in text_list_field(path, line, row, "sentences"))
    items = row.get("segments")
    if not isinstance(items, list) or not items:
        problem = "the list is empty or not a list" if "segments" in row else "the narration has no segments"
        remedy = "give 'segments' as a non-empty list of objects, or 'sentences' as a list of texts"
        raise InputError.at(path, problem, remedy, line=line, field="segments")
    segments = tuple(_segment(path, line, f"segments[{index}]", item) for index, item in enumerate(items))
    _check_times(path, line, segments)
    return segments


def _segment(path: Path, line: int, field: str, item: object) -> Segment:
    if not isinstance(item, dict):
        raise InputError.at(path, "not an object", 'give {"text", "start", "end"}', line=line, field=field)
    text = item.get("text")
    if not isinstance(text, str) or not text.strip():
        problem = "the text is missing, blank or not a string"
        raise InputError.at(path, problem, "give the text or remove the segment", line=line, field=f"{field}.text")
    start, end = (_time(path, line, f"{field}.{name}", item.get(name)) for name in ("start", "end"))
    if (start is None) != (end is None):
        raise InputError.at(path, "only one of 'start' and 'end' is given", "give both or none", line=line, field=field)
    return Segment(text.strip(), start, end)


def _time(path: Path, line: int, field: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        problem = f"the time {value!r} is not a number of seconds from 0 on"
        raise InputError.at(path, problem, "give seconds from the start of the video", line=line, field=field)
    return float(value)


def _check_times(path: Path, line: int, segments: tuple[Segment, ...]) -> None:
    """Times for all segments or for none; no segment ends before it starts; starts never fall."""
    timed = segments[0].start is not None
    previous = 0.0
    for index, segment in enumerate(segments):
        field = f"segments[{index}]"
        if (segment.start is not None) != timed:
            problem = "some segments of the narration have times and some have none"
            raise InputError.at(path, problem, "give times for all segments or for none", line=line, field=field)
        if segment.start is None or segment.end is None:
            continue
        if segment.end < segment.start:
            problem = f"the segment ends at {segment.end:g} s, before its start at {segment.start:g} s"
            raise InputError.at(path, problem, "correct the times", line=line, field=f"{field}.end")
        if segment.start < previous:
            problem = f"the segment starts at {segment.start:g} s, before the previous one at {previous:g} s"
            raise InputError.at(path, problem, "sort the segments by start", line=line, field=f"{field}.start")
        previous = segment.start
