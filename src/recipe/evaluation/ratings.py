"""Ratings that people gave, from a table (CSV) or JSON lines: any of the six criteria, each from 0 to 5.

A row names its plan by `item`, the code of a rating sheet, or by `example_id` with `sample` (0) and `control`. `rater`
is the file's name where it is left out. Names of columns may be written as people write them: `Logical progression`.
A criterion may be left empty; a row without any is not rated yet and counted as such.
"""

import csv
import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from recipe.artifacts import JsonObject, not_a_file, read_jsonl
from recipe.errors import InputError, listed
from recipe.evaluation.verdicts import CRITERIA, HIGHEST

LONGEST = 1 << 24
"""Characters of one field at most."""
_NAMES = ("item", "example_id", "sample", "control", "rater", "comment")
_SCORE = re.compile(r"\s*([0-9]+)(\.0*)?\s*")
_NEAR = 0.8
"""Likeness from which on an unknown column is taken for a misspelt criterion."""
_REMEDY = f"give an integer from 0 to {HIGHEST}, or leave it empty"


@dataclass(frozen=True, slots=True)
class Rating:
    """What one person says of one plan, at least on one criterion."""

    rater: str
    scores: dict[str, int]
    """By criterion; those left empty are absent."""
    item: str = ""
    """Code of a rating sheet, empty where the plan is named by the next three."""
    example_id: str = ""
    sample: int = 0
    control: str = ""
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Ratings:
    """The ratings of a file."""

    ratings: tuple[Rating, ...]
    empty: int
    """Rows that are not rated yet."""


def read_ratings(path: Path) -> Ratings:
    """The ratings of a file in file order: JSON lines where its name ends in `.jsonl`, else a table.

    The file is taken whole or not at all. Raises InputError with file, line, field and remedy for the first score that
    is none, naming the other bad lines; for a criterion's column that is missing or misspelt; for a row without a plan;
    and for a plan that one rater rated twice.
    """
    if not path.is_file():
        raise not_a_file(path)
    lines = _json_rows(path) if path.suffix.lower() == ".jsonl" else _table(path)
    ratings, faults, empty = [], [], 0
    seen: dict[tuple[object, ...], int] = {}
    for line, row in lines:
        try:
            rating = _rating(path, line, row)
        except _Fault as fault:
            faults.append((line, fault))
            continue
        if not rating.scores:
            empty += 1
            continue
        _require_first(path, line, rating, seen)
        ratings.append(rating)
    if faults:
        raise _all_of(path, faults)
    if not ratings:
        raise InputError.at(path, "no row holds a rating", f"rate plans on {listed(CRITERIA)}")
    return Ratings(tuple(ratings), empty)


class _Fault(Exception):
    """A field that cannot be read."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(field, problem, remedy)
        self.field, self.problem, self.remedy = field, problem, remedy


def _all_of(path: Path, faults: list[tuple[int, _Fault]]) -> InputError:
    """The first fault, with the lines of the others."""
    (line, first), *others = faults
    more = f"; lines {listed([str(other) for other, _ in others])} cannot be read either" if others else ""
    return InputError.at(path, first.problem, first.remedy + more, line=line, field=first.field)


def _require_first(path: Path, line: int, rating: Rating, seen: dict[tuple[object, ...], int]) -> None:
    key = (rating.rater, rating.item, rating.example_id, rating.sample, rating.control)
    if (first := seen.setdefault(key, line)) != line:
        problem = f"{rating.rater} rated this plan in line {first} already"
        raise InputError.at(path, problem, "keep one of the two", line=line)


def _json_rows(path: Path) -> Iterator[tuple[int, JsonObject]]:
    """Rows with plain names; scores may stand in an object of their own, as in rows of a judge."""
    for line, row in read_jsonl(path):
        scores = row.get("scores", {})
        if not isinstance(scores, dict):
            raise InputError.at(path, "no object of scores", "give criteria with scores", line=line, field="scores")
        flat = {_plain(name): value for name, value in (row | scores).items()}
        _require_no_typing_error(path, line, flat)
        yield line, flat


def _table(path: Path) -> Iterator[tuple[int, JsonObject]]:
    """Rows below the header, each with the line that it begins on; comma, semicolon or tab, as the header has it."""
    csv.field_size_limit(LONGEST)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            first = stream.readline()
            delimiter = max(",;\t", key=first.count)
            stream.seek(0)
            table = csv.reader(stream, delimiter=delimiter, strict=True)
            header = [_plain(name) for name in next(table, [])]
            _require_columns(path, header)
            begins = table.line_num + 1
            for fields in table:
                if any(field.strip() for field in fields):
                    _require_length(path, begins, fields, header)
                    yield begins, dict(zip(header, fields, strict=True))
                begins = table.line_num + 1
    except UnicodeDecodeError:
        raise InputError.at(path, "the text is not UTF-8", "save the table as CSV in UTF-8") from None
    except csv.Error as error:
        raise InputError.at(path, f"not valid CSV ({error})", "repair the file", line=table.line_num) from None


def _plain(name: str) -> str:
    """A column's name as this module writes it: lower case, with underscores."""
    return re.sub(r"[\W_]+", "_", name.strip().lower()).strip("_")


def _require_columns(path: Path, header: list[str]) -> None:
    if twice := [name for name in header if name and header.count(name) > 1]:
        raise InputError.at(path, f"two columns are called {twice[0]!r}", "keep one of them", line=1)
    _require_no_typing_error(path, 1, header)
    if not set(header) & set(CRITERIA):
        raise InputError.at(path, "no column is a criterion", f"name columns {', '.join(CRITERIA)}", line=1)
    if not set(header) & {"item", "example_id"}:
        raise InputError.at(path, "no column names the plans", "add a column 'item' or 'example_id'", line=1)


def _require_no_typing_error(path: Path, line: int, names: Iterable[str]) -> None:
    for name in names:
        if name in CRITERIA:
            continue
        if near := difflib.get_close_matches(name, CRITERIA, n=1, cutoff=_NEAR):
            raise InputError.at(path, "the column is unknown", f"rename it to {near[0]!r}", line=line, field=name)


def _require_length(path: Path, line: int, fields: list[str], header: list[str]) -> None:
    if len(fields) != len(header):
        problem = f"the row has {len(fields)} fields and the header {len(header)}"
        raise InputError.at(path, problem, "put texts with separators in quotes", line=line)


def _rating(path: Path, line: int, row: JsonObject) -> Rating:
    item, example_id, control, rater, comment = (
        _text(row, name) for name in ("item", "example_id", "control", "rater", "comment")
    )
    scores = {name: score for name in CRITERIA if (score := _number(row, name, HIGHEST)) is not None}
    if scores and bool(item) == bool(example_id):
        problem = "two names of the plan" if item else "the plan is not named"
        raise _Fault("example_id", problem, "give an item of a rating sheet or an example_id")
    return Rating(rater or path.stem, scores, item, example_id, _number(row, "sample", None) or 0, control, comment)


def _text(row: JsonObject, name: str) -> str:
    value = row.get(name) or ""
    if not isinstance(value, str):
        raise _Fault(name, f"{value!r} is not a string", "give a string")
    return value.strip()


def _number(row: JsonObject, name: str, highest: int | None) -> int | None:
    """A whole number that JSON or a table holds, `4.0` and ` 4 ` included; None where it is empty."""
    value = row.get(name)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    read = None if isinstance(value, bool) else _SCORE.fullmatch(str(value))
    if read is None or len(read[1]) > 9 or (highest is not None and int(read[1]) > highest):
        remedy = "give a whole number from 0" if highest is None else _REMEDY
        shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:40]}..."
        raise _Fault(name, f"{shown} is no {'number of a sample' if highest is None else 'score'}", remedy)
    return int(read[1])
