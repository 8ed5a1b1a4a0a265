"""Typed rows: JSON as a row, whose errors name file, line and field in one sentence, and a writer of JSON lines.

A row is a dataclass whose annotations say what a field may hold. Types are strict: true is no number, 1.0 is no whole
number, and no number is infinite. A field that the dataclass lacks is an error unless it is to be ignored; a half of a
character is always one. An optional field that is null, or NaN and no number, is not given.
"""

import difflib
import json
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, to_jsonable_python
from pydantic_core import from_json as parse_json

from recipe.artifacts import ESCAPED_HALF, json_line, require_whole, write_jsonl
from recipe.errors import InputError, RecipeError

Row = TypeVar("Row")
Unknown = Literal["forbid", "ignore"]
"""What happens to a field that the dataclass lacks."""
# Characters of a text that an error quotes.
_SHOWN = 60
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = _SHOWN
# Problem and remedy by pydantic's type of an error; the braces are its context.
_WORDS: Mapping[str, tuple[str, str]] = {
    "missing": ("the field is missing", "add it"),
    "string_type": ("{input} is no text", "give a text"),
    "int_type": ("{input} is no whole number", "give a whole number"),
    "float_type": ("{input} is no number", "give a number"),
    "bool_type": ("{input} is neither true nor false", "give true or false"),
    "finite_number": ("{input} is not finite", "give a finite number, or null for none"),
    "list_type": (
        "{input} is no list of items",
        "write a list in JSON, or in a cell of CSV each item on a line of its own",
    ),
    "dict_type": ("{input} is no JSON object", "give a JSON object"),
    "literal_error": ("{input} is unknown", "give {expected}"),
    "greater_than": ("{input} is not more than {gt:g}", "give more"),
    "greater_than_equal": ("{input} is less than {ge:g}", "give {ge:g} or more"),
    "less_than": ("{input} is not less than {lt:g}", "give less"),
    "less_than_equal": ("{input} is more than {le:g}", "give {le:g} or less"),
    "string_too_short": ("the text is empty", "give a text"),
    "too_short": ("the list has too few items", "give at least {min_length}"),
    "too_long": ("the list has too many items", "give at most {max_length}"),
}
_SAME = {
    "int_from_float": "int_type",
    "missing_argument": "missing",
    "missing_keyword_only_argument": "missing",
    "int_parsing": "int_type",
    "int_parsing_size": "int_type",
    "float_parsing": "float_type",
    "bool_parsing": "bool_type",
    "tuple_type": "list_type",
    "dataclass_type": "dict_type",
    "model_type": "dict_type",
    "model_attributes_type": "dict_type",
}
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def not_blank(text: str) -> str:
    """A text without the white space around it. Raises ValueError for a blank one."""
    if not (text := text.strip()):
        raise ValueError("the text is empty; give a text")
    return text


Text = Annotated[str, AfterValidator(not_blank)]
"""A text that is not blank, stripped."""
Stripped = Annotated[str, AfterValidator(str.strip)]
"""A text that may be blank, stripped."""
Texts = Annotated[tuple[Text, ...], Field(fail_fast=True)]
"""Texts that are not blank; the first that is none ends the reading."""
Steps = Annotated[Texts, Field(min_length=1)]
"""At least one text that is not blank."""
Seconds = Annotated[float, Field(ge=0)]
"""A time or a duration, finite and not negative."""
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
"""A whole number from 0."""


class FieldFault(NamedTuple):
    """What is wrong with a value, where it lies, and what to do."""

    field: str
    problem: str
    remedy: str


def faults_of(error: ValidationError, kind: Any, depth: int = 0) -> Iterator[FieldFault]:
    """The faults of a value of `kind` in words; `depth` is how many levels below the value that was read it lies.

    Unknown fields go first: a misspelt one leaves another missing.
    """
    # Stable: of other errors the first in the row stays first.
    for details in sorted(error.errors(include_url=False), key=lambda details: details["type"] not in _UNKNOWN):
        location = details["loc"][depth:]
        yield FieldFault(_field_name(location), *_worded(details, location, kind))


def _field_name(location: Iterable[int | str]) -> str:
    """A place in a JSON value; of a long name the beginning.

    >>> _field_name(("steps", 1, "text"))
    'steps[1].text'
    """
    steps = (f"[{step}]" if isinstance(step, int) else f".{step:.{_SHOWN}}" for step in location)
    return "".join(steps).removeprefix(".")


def _worded(error: ErrorDetails, location: tuple[int | str, ...], kind: Any) -> tuple[str, str]:
    """Problem and remedy."""
    if error["type"] in _UNKNOWN:
        return _unknown(str(location[-1]), _fields_at(kind, location[:-1]))
    words = _WORDS.get(_SAME.get(error["type"], error["type"]))
    if words is None:  # of a validator, which gives both, or a type of error that no row has so far
        message = error["msg"].removeprefix("Value error, ")
        problem, _, remedy = message.rpartition("; ")
        return (problem, remedy) if problem else (f"{message[0].lower()}{message[1:]}", "correct it")
    values = error.get("ctx", {}) | {"input": quoted_value(error["input"])}
    return words[0].format_map(values), words[1].format_map(values)


def _unknown(name: str, known: Sequence[str]) -> tuple[str, str]:
    near = difflib.get_close_matches(name[:_SHOWN], known, n=1, cutoff=0.5)
    remedy = f"rename it to {near[0]!r} or remove it" if near else f"known fields are {', '.join(known)}"
    return "the field is unknown", remedy


def quoted_value(value: object) -> str:
    """The beginning of a JSON value, on one line.

    >>> quoted_value(["boil"] * 1_000)
    "['boil', 'boil', 'boil', 'boil', 'boil', 'boil', ...]"
    """
    return f"{_BRIEF.repr(value):.{2 * _SHOWN}}"


def _fields_at(kind: Any, location: Iterable[int | str]) -> list[str]:
    """The fields of the dataclass that lies at `location` in a value of `kind`."""
    for step in (*location, None):
        while arguments := get_args(kind):
            kind = arguments[0]
        if isinstance(step, str):
            kind = get_type_hints(kind).get(step, kind)
    hints = get_type_hints(kind).items()
    return [name for name, hint in hints if not name.startswith("_") and get_origin(hint) is not ClassVar]


@cache
def _reader(kind: Any, unknown: Unknown) -> TypeAdapter[Any]:
    """The reader of a list of one row, because pydantic takes no settings with a bare dataclass."""
    return TypeAdapter(tuple[kind], config=ConfigDict(extra=unknown, strict=True, allow_inf_nan=False))


def validated(text: str, kind: type[Row], unknown: Unknown = "forbid", context: object = None) -> Row:
    """A JSON text as a row; `context` is for validators of the kind. Raises ValidationError, one level too deep."""
    # A class can be hashed, which mypy denies.
    rows: tuple[Row] = _reader(kind, unknown).validate_json(f"[{text}]", context=context)  # type: ignore[arg-type]
    return rows[0]


def parse_row(path: Path | str, line: int, text: str, kind: type[Row], unknown: Unknown = "forbid") -> Row:
    """A line of JSON as a row. Raises InputError that names the first fault."""
    # Few lines have either; of all others pydantic reads the text itself, without Python's values between.
    if "null" in text or "NaN" in text:
        text = json.dumps(_given(json_line(path, line, text), kind))
    try:
        return validated(text, kind, unknown)
    except ValidationError as error:
        values = json_line(path, line, text)
        if ESCAPED_HALF.search(text):
            require_whole(path, line, values)
        if unknown == "forbid":  # before pydantic's errors, which take a kilobyte for each of a million fields
            known = _fields_at(kind, ())
            for name in values:
                if name not in known:
                    raise InputError.at(path, *_unknown(name, known), line=line, field=_field_name([name])) from None
        first = next(faults_of(error, kind, depth=1))
        if not first.field:  # find the field that Python reads and pydantic does not
            for name, value in values.items():
                try:
                    parse_json(json.dumps({name: value}))
                except (ValueError, RecursionError):
                    problem = "the value is nested too deeply, or holds a number of too many digits"
                    raise InputError.at(path, problem, "give plain values", line=line, field=name) from None
        raise InputError.at(path, first.problem, first.remedy, line=line, field=first.field or None) from None


def _given(values: Mapping[str, Any], kind: Any) -> Mapping[str, Any]:
    """A row without the optional fields that are null, or NaN where no number with a fraction is expected."""
    optional = {own.name for own in fields(kind) if own.default is not MISSING}
    numbers = {name for name, hint in get_type_hints(kind).items() if float in (hint, *get_args(hint))}
    absent = {name for name, value in values.items() if value is None or (value != value and name not in numbers)}
    return {name: value for name, value in values.items() if name not in absent & optional}


def from_json(raw: Any, kind: type[Row], origin: str) -> Row:
    """The value of `kind` that `recipe.artifacts.to_json` wrote; `origin` names its file, or its part of one.

    Raises InputError, in the words of a row, for a part that is missing, unknown or of the wrong kind.
    """
    reader = TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid", strict=True))  # type: ignore[valid-type]
    remedy = "recreate the report with this version"
    try:
        [value] = reader.validate_json(json.dumps([raw]))
    except RecipeError as error:  # of the kind itself, as for a mean that is not finite
        raise InputError.at(origin, f"{error}".rstrip("."), remedy) from None
    except ValidationError as error:
        first = next(faults_of(error, kind, depth=1))
        part = first.field if first.field.startswith("[") else f".{first.field}"
        raise InputError.at(f"{origin}{part}".rstrip("."), first.problem, remedy) from None
    return cast(Row, value)


def write_rows(path: Path | str, rows: Iterable[object]) -> int:
    """Write dataclasses as JSON lines, all or nothing; a field of None is left out. Returns the number of rows."""
    values: Iterable[dict[str, Any]] = map(to_jsonable_python, rows)
    return write_jsonl(path, ({name: value for name, value in row.items() if value is not None} for row in values))
