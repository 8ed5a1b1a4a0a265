"""What readers of published files share: checked shapes, splits by lists, and the publisher of a file.

Errors name the field, and a file of another benchmark by its publisher: files are recognised by their content.
"""

from collections.abc import Container, Iterable
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError

from recipe.artifacts import read_json
from recipe.errors import InputError
from recipe.rows import Seconds, faults_of
from recipe.types import Step


def forward(span: tuple[float, float]) -> tuple[float, float]:
    """A (start, end) as it is. Raises ValueError, which gets the field's name, where it ends before its start."""
    if span[1] < span[0]:
        raise ValueError(f"the end, {span[1]:g}, lies before the start, {span[0]:g}")
    return span


Span = Annotated[tuple[Seconds, Seconds], AfterValidator(forward)]
"""Start and end."""


class Published(BaseModel):
    """Base of the layouts of published JSON; fields that a reader does not need may come and go."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_strip_whitespace=True, allow_inf_nan=False)


Layout = TypeVar("Layout")


def read_published_json(path: Path, kind: type[Layout], remedy: str, *, of: str) -> Layout:
    """A JSON file as `kind`, published by benchmark `of`.

    Raises InputError naming the field, for example database.LtRSn-ntcLY.class, or the benchmark that it belongs to.
    """
    value = read_json(path)
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        if (other := publisher_of(value)) not in (None, of):
            raise InputError.at(path, f"this is an annotation file of {other}, not of {of}", remedy) from None
        first = next(faults_of(error, kind))
        raise InputError.at(path, first.problem, remedy, field=first.field or None) from None


def read_lines(path: Path, remedy: str) -> list[str]:
    """The lines of a UTF-8 text file, divided at line feeds alone.

    Raises InputError when it is missing or of another encoding.
    """
    try:
        # Not splitlines, which divides at U+2028 and form feeds, too. A byte order mark is no part of the first line.
        return path.read_text(encoding="utf-8-sig").split("\n")
    except (FileNotFoundError, IsADirectoryError):
        problem = "this is a folder" if path.is_dir() else "the file does not exist"
        raise InputError.at(path, problem, remedy) from None
    except UnicodeDecodeError:
        raise InputError.at(path, "the text is not UTF-8", remedy) from None


def in_time_order(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Steps with times by (start, end); equal times keep the order they come in."""
    return tuple(sorted(steps, key=lambda step: (step.start, step.end)))


class SplitEntry(NamedTuple):
    """A video in the list of a split, and its place there."""

    video: str
    split: str
    path: Path
    line: int | None = None
    field: str | None = None


def splits_of(entries: Iterable[SplitEntry], annotated: Container[str], remedy: str) -> dict[str, str]:
    """Video id to split. Raises InputError for a listed video that is not among `annotated` or is in two splits."""
    splits: dict[str, str] = {}
    for video, split, path, line, field in entries:
        if video not in annotated:
            raise InputError.at(path, f"video {video!r} is not annotated", remedy, line=line, field=field)
        # Twice in one list is harmless; in two lists a video would be trained on and tested.
        if splits.setdefault(video, split) != split:
            problem = f"video {video!r} is in split {splits[video]!r} too"
            raise InputError.at(path, problem, remedy, line=line, field=field)
    return splits


def publisher_of(value: object) -> str | None:
    """The benchmark that publishes JSON of this shape, by its name in `BENCHMARKS`; None where none does.

    Looks at one entry, so that a file with a fault further on still has a publisher.

    >>> publisher_of({"repot_0029": {"task": "repotting plant", "task_id": 4, "steps": []}})
    'niv'
    """
    if not isinstance(value, dict):
        return None
    entry = _first(value)
    if {"class", "annotation"} <= _first(value.get("database")).keys():
        return "coin"
    # Entries of both have steps, and only those of CaptainCook4D name their recording.
    if {"recording_id", "steps"} <= entry.keys():
        return "captaincook4d"
    if {"task", "steps"} <= entry.keys():
        return "niv"
    if "taxonomy" in value or {"scenario", "segments"} <= _first(value.get("annotations")).keys():
        return "egoexo4d"
    return "egoper" if {"segments", "action2idx"} <= entry.keys() else None


def _first(value: object) -> dict[str, object]:
    """The first entry of a JSON object, empty where it is no object."""
    entry = next(iter(value.values()), None) if isinstance(value, dict) else None
    return entry if isinstance(entry, dict) else {}
