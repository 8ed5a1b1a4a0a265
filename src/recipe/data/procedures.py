"""Procedures as JSON lines: the plain format for a benchmark of your own.

One object a line, times in seconds:

    {"source", "video_id", "goal", "split", "steps": [{"text", "start", "end"}]}
"""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Literal, NamedTuple

from recipe.artifacts import JsonObject, only_fields, read_jsonl, require_whole, text_field, write_jsonl
from recipe.errors import InputError
from recipe.types import Procedure, Step

SPLITS = ("train", "val", "test")
"""The names of the splits, in every file of the project."""

_FIELDS = ("source", "video_id", "goal", "split", "steps")
_STEP_FIELDS = ("text", "start", "end")


class SkippedRow(NamedTuple):
    """A row that holds no usable procedure, and why."""

    line: int
    reason: str


class ProcedureFile(NamedTuple):
    """The procedures of a file, in file order, and the rows that were left out."""

    procedures: list[Procedure]
    skipped: list[SkippedRow]


def write_procedures(path: Path, procedures: Iterable[Procedure]) -> int:
    """Write procedures as JSON lines, all or nothing; returns their number."""
    return write_jsonl(path, (asdict(procedure) for procedure in procedures))


def read_procedures(path: Path, on_bad: Literal["error", "skip"] = "error") -> ProcedureFile:
    """The procedures of a file. A step's times may be absent or null, a procedure's split absent or empty.

    Raises InputError with file, line, field and remedy for a field that is missing, empty, of the wrong kind
    or unknown, for steps whose starts go back in time, and for a video that occurs twice in one source.
    `skip` leaves such rows out and returns them with the reason; a line that is not JSON is always an error.
    """
    found = ProcedureFile([], [])
    lines: dict[tuple[str, str], int] = {}
    for line, row in read_jsonl(path, whole=False):
        try:
            procedure = _procedure(path, line, row)
            key = (procedure.source, procedure.video_id)
            if (first := lines.setdefault(key, line)) != line:
                problem = f"{key[1]!r} of source {key[0]!r} is already in line {first}"
                raise InputError.at(path, problem, "give each video once", line=line, field="video_id")
        except InputError as error:
            if on_bad == "error":
                raise
            found.skipped.append(SkippedRow(line, str(error)))
        else:
            found.procedures.append(procedure)
    return found


def _procedure(path: Path, line: int, row: JsonObject) -> Procedure:
    require_whole(path, line, row)
    only_fields(path, line, row, _FIELDS)
    split = row.get("split", "")
    if split not in ("", *SPLITS):
        remedy = f"give one of {', '.join(SPLITS)}, or leave it out"
        raise InputError.at(path, f"{split!r} is no split", remedy, line=line, field="split")
    return Procedure(
        source=text_field(path, line, row, "source"),
        video_id=text_field(path, line, row, "video_id"),
        goal=text_field(path, line, row, "goal"),
        steps=_steps(path, line, row),
        split=split,
    )


def _steps(path: Path, line: int, row: JsonObject) -> tuple[Step, ...]:
    value = row.get("steps")
    if not isinstance(value, list) or not value:
        problem = "the field is missing" if "steps" not in row else "the list is empty or not a list"
        raise InputError.at(path, problem, "give the steps as objects with 'text'", line=line, field="steps")
    steps = tuple(_step(path, line, f"steps[{index}]", item) for index, item in enumerate(value))
    last = 0.0
    for index, step in enumerate(steps):
        if step.start is not None and step.start < last:
            problem = f"{step.start:g} lies before the start of an earlier step, {last:g}"
            remedy = "list the steps in the order they were performed"
            raise InputError.at(path, problem, remedy, line=line, field=f"steps[{index}].start")
        last = last if step.start is None else step.start
    return steps


def _step(path: Path, line: int, place: str, item: object) -> Step:
    if not isinstance(item, dict):
        remedy = "give an object with 'text' and, where known, 'start' and 'end'"
        raise InputError.at(path, "not a JSON object", remedy, line=line, field=place)
    named = {f"{place}.{field}": value for field, value in item.items()}
    only_fields(path, line, named, [f"{place}.{field}" for field in _STEP_FIELDS])
    text = text_field(path, line, named, f"{place}.text")
    start, end = (seconds_field(path, line, f"{place}.{field}", item.get(field)) for field in ("start", "end"))
    if start is not None and end is not None and end < start:
        problem = f"{end:g} lies before the start, {start:g}"
        raise InputError.at(path, problem, "give times with end >= start", line=line, field=f"{place}.end")
    return Step(text, start, end)


def seconds_field(path: Path, line: int, field: str, value: object) -> float | None:
    """A time of a JSON line, finite and not negative, or None where it is null. Raises InputError."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= sys.float_info.max:
        problem, remedy = f"{value!r:.60} is no time", "give seconds from the start of the video, or null"
        raise InputError.at(path, problem, remedy, line=line, field=field)
    return value
