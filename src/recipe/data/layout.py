"""What readers of published files share: checked shapes, splits by lists, and the publisher of a file."""

from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from recipe.artifacts import read_json
from recipe.errors import InputError
from recipe.types import Step

# Whose annotations a JSON file holds, told from what is in it, so that a file in the wrong folder is named.


def publisher_of(value: object) -> str | None:
    """The benchmark that publishes JSON of this shape, by its name in `BENCHMARKS`; None where none does.

    One entry is looked at, so a file with a fault further on is still told.

    >>> publisher_of({"repot_0029": {"task": "repotting plant", "task_id": 4, "steps": []}})
    'niv'
    """
    if not isinstance(value, dict):
        return None
    return next((name for name, fits in _SHAPES.items() if fits(value)), None)


def _coin(value: dict[str, object]) -> bool:
    return _has(_entry(value.get("database")), "class", "annotation")


def _captaincook4d(value: dict[str, object]) -> bool:
    return _has(_entry(value), "recording_id", "steps")


def _niv(value: dict[str, object]) -> bool:
    return _has(_entry(value), "task", "steps")


def _egoexo4d(value: dict[str, object]) -> bool:
    return "taxonomy" in value or _has(_entry(value.get("annotations")), "scenario", "segments")


def _egoper(value: dict[str, object]) -> bool:
    return _has(_entry(value), "segments", "action2idx")


_SHAPES: dict[str, Callable[[dict[str, object]], bool]] = {
    "coin": _coin,
    "captaincook4d": _captaincook4d,
    "niv": _niv,
    "egoexo4d": _egoexo4d,
    "egoper": _egoper,
}


def _entry(value: object) -> object:
    return next(iter(value.values()), None) if isinstance(value, dict) else None


def _has(value: object, *fields: str) -> bool:
    return isinstance(value, dict) and all(field in value for field in fields)


# What readers of published files share: checked shapes, splits by lists, errors that say where a file differs.


Text = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def forward(span: tuple[float, float]) -> tuple[float, float]:
    """A (start, end) as it is. Raises ValueError, to be told with the field, where it ends before its start."""
    if span[1] < span[0]:
        raise ValueError(f"the end, {span[1]:g}, lies before the start, {span[0]:g}")
    return span


Span = Annotated[tuple[Seconds, Seconds], AfterValidator(forward)]
"""Start and end."""


class Published(BaseModel):
    """Base of the layouts of published JSON; fields that a reader does not need may come and go."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_strip_whitespace=True)


Layout = TypeVar("Layout", bound=BaseModel)


def read_published_json(path: Path, kind: type[Layout], remedy: str, *, of: str) -> Layout:
    """A JSON file as `kind`, published by benchmark `of`.

    Raises InputError naming the field, for example database.LtRSn-ntcLY.class, or the benchmark that it belongs to.
    """
    value = read_json(path)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        if (other := publisher_of(value)) not in (None, of):
            raise InputError.at(path, f"this is an annotation file of {other}, not of {of}", remedy) from None
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or None
        problem = first["msg"].removeprefix("Value error, ")
        raise InputError.at(path, problem[0].lower() + problem[1:], remedy, field=field) from None


def read_lines(path: Path, remedy: str) -> list[str]:
    """The lines of a UTF-8 text file. Raises InputError when it is missing or of another encoding."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (FileNotFoundError, IsADirectoryError):
        problem = "this is a folder" if path.is_dir() else "the file does not exist"
        raise InputError.at(path, problem, remedy) from None
    except UnicodeDecodeError:
        raise InputError.at(path, "the text is not UTF-8", remedy) from None


def in_time_order(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Steps with times by (start, end); equal times keep the order they come in."""
    return tuple(sorted(steps, key=lambda step: (step.start, step.end)))


class Listed(NamedTuple):
    """A video in the list of a split, and where it stands there."""

    video: str
    split: str
    path: Path
    line: int | None = None
    field: str | None = None


def splits_of(listed: Iterable[Listed], annotated: Container[str], remedy: str) -> dict[str, str]:
    """Video id to split. Raises InputError for a listed video that is not among `annotated` or is in two splits."""
    splits: dict[str, str] = {}
    for video, split, path, line, field in listed:
        if video not in annotated:
            raise InputError.at(path, f"video {video!r} is not annotated", remedy, line=line, field=field)
        if splits.setdefault(video, split) != split:
            problem = f"video {video!r} is in split {splits[video]!r} too"
            raise InputError.at(path, problem, remedy, line=line, field=field)
    return splits
