"""Verdicts as JSON lines: what judges, proxies and people gave each plan; the rows beside a file of judge scores.

One object a line. `example_id` and either `scores`, an integer from 0 to 5 for each of the six criteria, or `unscored`,
the reason that there are none, are required. `sample` (0), `repeat` (0), `control`, `how`, `judge`, `steps`, `flags`
and `text` are optional, so that ratings of people can be written by hand.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from recipe.artifacts import JsonObject, only_fields, read_jsonl, text_field, write_jsonl
from recipe.errors import InputError
from recipe.types import Unscored, Verdict

CRITERIA = tuple(field.name for field in fields(Verdict))
"""The six criteria of the rubric, in its order."""
HIGHEST = 5
FULL = len(CRITERIA) * HIGHEST
"""The highest total."""
_REMEDY = f"give an integer from 0 to {HIGHEST} for each of {', '.join(CRITERIA)}"
_FIELDS = (
    "example_id", "sample", "repeat", "control", "judge", "how", "scores", "unscored", "steps", "flags", "text",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judged:
    """One judgement of one plan."""

    example_id: str
    outcome: Verdict | Unscored
    sample: int = 0
    repeat: int = 0
    control: str = ""
    """Name of the control that the plan is, empty for the system's own."""
    judge: str = ""
    """The judge's name, as in its scores."""
    how: str = ""
    """How the verdict was come by: `json`, `regex`, `rule` (in code, without a call), `proxy` or `human`."""
    steps: tuple[str, ...] = ()
    """The plan that was judged."""
    flags: tuple[str, ...] = ()
    """What was special: `missing`, `empty`, `shortened`."""
    text: str = ""
    """The judge's raw answer."""


def write_verdicts(path: Path, judged: Iterable[Judged]) -> int:
    """Write verdicts as JSON lines, all or nothing; returns their number."""
    return write_jsonl(path, map(_row, judged))


def read_verdicts(path: Path) -> list[Judged]:
    """The verdicts of a file, in file order.

    Raises InputError with file, line, field and remedy for a field that is missing, unknown or of the wrong kind, a
    score that is no integer from 0 to 5, and a judgement that occurs twice.
    """
    seen: dict[tuple[object, ...], int] = {}
    found = []
    for line, row in read_jsonl(path):
        only_fields(path, line, row, _FIELDS)
        judged = _judged(path, line, row)
        key = (judged.example_id, judged.sample, judged.repeat, judged.control, judged.judge)
        if (first := seen.setdefault(key, line)) != line:
            problem = f"{judged.example_id!r} was already judged so in line {first}"
            raise InputError.at(path, problem, "number repeats and samples, or keep one", line=line, field="repeat")
        found.append(judged)
    return found


def _row(judged: Judged) -> JsonObject:
    outcome = judged.outcome
    told: JsonObject = (
        {"unscored": outcome.reason}
        if isinstance(outcome, Unscored)
        else {"scores": {name: getattr(outcome, name) for name in CRITERIA}}
    )
    row: JsonObject = {"example_id": judged.example_id, "sample": judged.sample, "repeat": judged.repeat}
    optional: JsonObject = {
        "control": judged.control,
        "judge": judged.judge,
        "how": judged.how,
        "steps": list(judged.steps),
        "flags": list(judged.flags),
        "text": judged.text,
    }
    return row | told | {name: value for name, value in optional.items() if value}


def _judged(path: Path, line: int, row: JsonObject) -> Judged:
    return Judged(
        example_id=text_field(path, line, row, "example_id"),
        outcome=_outcome(path, line, row),
        sample=_typed(path, line, row, "sample", 0),
        repeat=_typed(path, line, row, "repeat", 0),
        control=_typed(path, line, row, "control", ""),
        judge=_typed(path, line, row, "judge", ""),
        how=_typed(path, line, row, "how", ""),
        steps=_texts(path, line, row, "steps"),
        flags=_texts(path, line, row, "flags"),
        text=_typed(path, line, row, "text", ""),
    )


def _outcome(path: Path, line: int, row: JsonObject) -> Verdict | Unscored:
    if ("scores" in row) == ("unscored" in row):
        raise InputError.at(path, "neither scores nor the reason that there are none", _REMEDY, line=line)
    if "unscored" in row:
        return Unscored(text_field(path, line, row, "unscored"))
    scores = row["scores"]
    if not isinstance(scores, dict) or set(scores) != set(CRITERIA):
        raise InputError.at(path, "the scores are not the six criteria", _REMEDY, line=line, field="scores")
    try:
        return Verdict(**scores)
    except ValueError as error:
        raise InputError.at(path, str(error), _REMEDY, line=line, field="scores") from None


def _typed(path: Path, line: int, row: JsonObject, field: str, default: Any) -> Any:
    value = row.get(field, default)
    if type(value) is not type(default) or (isinstance(value, int) and value < 0):
        kind = "a whole number from 0" if isinstance(default, int) else "a string"
        raise InputError.at(path, f"{value!r} is not {kind}", f"give {kind}, or leave it out", line=line, field=field)
    return value


def _texts(path: Path, line: int, row: JsonObject, field: str) -> tuple[str, ...]:
    value = row.get(field, [])
    if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
        raise InputError.at(path, "no list of strings", "give a list, or leave it out", line=line, field=field)
    return tuple(value)
