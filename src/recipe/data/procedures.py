"""Procedures as JSON lines: the plain format for a benchmark of your own.

One object a line, times in seconds:

    {"source", "video_id", "goal", "split", "steps": [{"text", "start", "end"}]}
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from recipe.artifacts import json_line, text_lines
from recipe.errors import InputError
from recipe.rows import Seconds, Text, parse_row, write_rows
from recipe.types import Procedure, Step

SPLITS = ("train", "val", "test")
"""The names of the splits, in every file of the project."""


@dataclass(frozen=True)
class _StepRow:
    text: Text
    start: Seconds | None = None
    end: Seconds | None = None


@dataclass(frozen=True)
class _ProcedureRow:
    """A procedure as its line has it."""

    source: Text
    video_id: Text
    goal: Text
    steps: Annotated[tuple[_StepRow, ...], Field(min_length=1, fail_fast=True)]
    split: Literal["", "train", "val", "test"] = ""


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
    return write_rows(path, procedures)


def read_procedures(path: Path, on_bad: Literal["error", "skip"] = "error") -> ProcedureFile:
    """The procedures of a file. A step's times may be absent or null, a procedure's split absent or empty.

    Raises InputError with file, line, field and remedy for a field that is missing, empty, of the wrong kind
    or unknown, for steps whose starts go back in time, and for a video that occurs twice in one source.
    `skip` leaves such rows out and returns them with the reason; a line that is not JSON is always an error.
    """
    content = ProcedureFile([], [])
    lines: dict[tuple[str, str], int] = {}
    for line, text in text_lines(path):
        try:
            row = parse_row(path, line, text, _ProcedureRow)
            last = 0.0
            for index, step in enumerate(row.steps):
                if step.start is None:
                    continue
                field = f"steps[{index}]"
                if step.end is not None and step.end < step.start:
                    problem = f"{step.end:g} lies before the start, {step.start:g}"
                    raise InputError.at(path, problem, "give times with end >= start", line=line, field=f"{field}.end")
                if step.start < last:
                    problem = f"{step.start:g} lies before the start of an earlier step, {last:g}"
                    remedy = "list the steps in the order they were performed"
                    raise InputError.at(path, problem, remedy, line=line, field=f"{field}.start")
                last = step.start
            key = (row.source, row.video_id)
            if (first := lines.setdefault(key, line)) != line:
                problem = f"{key[1]!r} of source {key[0]!r} is already in line {first}"
                raise InputError.at(path, problem, "give each video once", line=line, field="video_id")
        except InputError as error:
            json_line(path, line, text)  # an error in any case
            if on_bad == "error":
                raise
            content.skipped.append(SkippedRow(line, str(error)))
        else:
            steps = tuple(Step(step.text, step.start, step.end) for step in row.steps)
            content.procedures.append(Procedure(row.source, row.video_id, row.goal, steps, row.split))
    return content
