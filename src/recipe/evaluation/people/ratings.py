"""Ratings that people gave: blind sheets, tables read back, and verdicts made from them.

*Ratings* are tables (CSV) or JSON lines: any of the six criteria, each from 0 to 5. A row names its plan by `item`, the
code of a rating sheet, or by `example_id` with `sample` (0) and `control`. `rater` is the file's name where it is left
out. Names of columns may be written as people write them: `Logical progression`. A criterion may be left empty; a row
without any is not rated yet and left out.

*Sheets* name neither the system nor the judge, and do not say which plans are controls. Rows are shuffled by a seed.
`item` is a code of the plan, so that a filled sheet is read back beside the verdicts that it was made from, and no
other file has to be kept. Texts cannot be formulas of a spreadsheet.

*Verdicts*: several people are the repeats of one judge. Means are over them first. A verdict needs all six criteria;
ratings of fewer are left out and counted, and still count where raters are compared. A sheet may hold the plans of
several systems: for each of them the items of the others are left out and counted.
"""

import csv
import difflib
import io
import json
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from recipe.artifacts import JsonObject, fingerprint, not_a_file, read_jsonl, write_text
from recipe.errors import InputError, listed
from recipe.evaluation.judge.verdicts import CRITERIA, HIGHEST, Judgement
from recipe.evaluation.scores import JudgeIdentity, PlanId
from recipe.prompting import visible
from recipe.rows import Stripped, parse_row, quoted_value
from recipe.text import format_plan
from recipe.types import Example, Verdict

LONGEST = 1 << 24
"""Characters of one field at most."""
COLUMNS = ("item", "goal", "history", "reference", "plan", *CRITERIA, "comment")
_LONGEST = 30_000
"""Characters of a cell; spreadsheets take 32,767."""
_CODE = 12
_MOST_COLUMNS = 1_000
_FORMULA = ("=", "+", "-", "@")
_SCORE = re.compile(r"\s*([0-9]+)(\.0*)?\s*")
_NEAR = 0.8
"""Similarity from which on an unknown column is taken for a misspelt criterion."""


@dataclass(frozen=True, slots=True)
class Rating:
    """One person's rating of one plan, at least on one criterion."""

    rater: str
    scores: dict[str, int]
    """By criterion; those left empty are absent."""
    item: str = ""
    """Code of a rating sheet, empty where the plan is named by the next three."""
    example_id: str = ""
    sample: int = 0
    control: str = ""
    comment: str = ""


def read_ratings(path: Path) -> list[Rating]:
    """The ratings of a file in file order; rows that are not rated yet are left out.

    JSON lines where the file's name ends in `.jsonl`, else a table. The file is taken whole or not at all. Raises
    InputError with file, line, field and remedy for the first score that is none, naming the other bad lines; for a
    criterion's column that is missing or misspelt; for a row without a plan; and for a plan that one rater rated twice.
    """
    if not path.is_file():
        raise not_a_file(path)
    ratings, faults = list[Rating](), dict[int, InputError]()
    lines: dict[tuple[object, ...], int] = {}
    for line, values in _json_rows(path) if path.suffix.lower() == ".jsonl" else _table_rows(path):
        filled = {name: value for name, value in values.items() if value is not None and str(value).strip()}
        try:
            row: Any = parse_row(path, line, json.dumps(filled), _Row, "ignore")
            scores = {name: score for name in CRITERIA if (score := getattr(row, name)) is not None}
            if scores and bool(row.item) == bool(row.example_id):
                problem, remedy = "the row names no plan, or two", "give an item of a rating sheet or an example_id"
                raise InputError.at(path, problem, remedy, line=line, field="example_id")
        except InputError as error:
            faults[line] = error
            continue
        if not scores:
            continue
        key = (row.rater or path.stem, row.item, row.example_id, row.sample, row.control)
        if (first := lines.setdefault(key, line)) != line:
            problem = f"{key[0]} rated this plan in line {first} already"
            raise InputError.at(path, problem, "keep one of the two", line=line)
        ratings.append(Rating(str(key[0]), scores, *key[1:], row.comment))
    if faults:
        fault, *_ = faults.values()
        if others := [str(line) for line in faults][1:]:
            raise InputError(f"{str(fault)[:-1]}; lines {listed(others)} cannot be read either.")
        raise fault
    if not ratings:
        raise InputError.at(path, "no row holds a rating", f"rate plans on {listed(CRITERIA)}")
    return ratings


def read_people(paths: Iterable[Path]) -> list[Rating]:
    """The ratings of several files. Raises InputError where one name rates in two of them."""
    ratings: list[Rating] = []
    for path in paths:
        new = read_ratings(path)
        if again := {rating.rater for rating in ratings} & {rating.rater for rating in new}:
            problem = f"{min(again)!r} also rates in a file before"
            raise InputError.at(path, problem, "name raters apart in a column 'rater', or rename the file")
        ratings += new
    return ratings


def _json_rows(path: Path) -> Iterator[tuple[int, JsonObject]]:
    """Rows with plain names; scores may stand in an object of their own, as in rows of a judge."""
    for line, row in read_jsonl(path):
        scores = row.get("scores", {})
        if not isinstance(scores, dict):
            raise InputError.at(path, "no object of scores", "give criteria with scores", line=line, field="scores")
        flat = {_plain_name(name): value for name, value in (row | scores).items()}
        _require_known(path, line, flat)
        yield line, flat


def _table_rows(path: Path) -> Iterator[tuple[int, JsonObject]]:
    """Rows below the header, each with the line that it begins on; comma, semicolon or tab, as the header has it."""
    csv.field_size_limit(LONGEST)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            first = stream.readline()
            delimiter = max(",;\t", key=first.count)
            stream.seek(0)
            table = csv.reader(stream, delimiter=delimiter, strict=True)
            header = [_plain_name(name) for name in next(table, [])]
            if len(header) > _MOST_COLUMNS:
                problem = f"the table has {len(header):,} columns"
                raise InputError.at(path, problem, f"keep {_MOST_COLUMNS:,} or fewer", line=1)
            if twice := [name for name, times in Counter(header).items() if name and times > 1]:
                raise InputError.at(path, f"two columns are called {twice[0]!r}", "keep one of them", line=1)
            _require_known(path, 1, header)
            if not set(header) & set(CRITERIA):
                raise InputError.at(path, "no column is a criterion", f"name columns {', '.join(CRITERIA)}", line=1)
            if not set(header) & {"item", "example_id"}:
                raise InputError.at(path, "no column names the plans", "add a column 'item' or 'example_id'", line=1)
            begins = table.line_num + 1
            for fields in table:
                if any(field.strip() for field in fields):
                    if len(fields) != len(header):
                        problem = f"the row has {len(fields)} fields and the header {len(header)}"
                        raise InputError.at(path, problem, "put texts with separators in quotes", line=begins)
                    yield begins, dict(zip(header, fields, strict=True))
                begins = table.line_num + 1
    except UnicodeDecodeError:
        raise InputError.at(path, "the text is not UTF-8", "save the table as CSV in UTF-8") from None
    except csv.Error as error:
        raise InputError.at(path, f"not valid CSV ({error})", "repair the file", line=table.line_num) from None


def _plain_name(name: str) -> str:
    """A column's name as this module writes it: lower case, with underscores."""
    return re.sub(r"[\W_]+", "_", name.strip().lower()).strip("_")


def _require_known(path: Path, line: int, names: Iterable[str]) -> None:
    """Raise InputError for a name that is nearly a criterion's."""
    for name in names:
        if name not in CRITERIA and (near := difflib.get_close_matches(name, CRITERIA, n=1, cutoff=_NEAR)):
            raise InputError.at(path, "the column is unknown", f"rename it to {near[0]!r}", line=line, field=name)


def _whole(value: object) -> int:
    """A whole number that JSON or a table holds, `4.0` and ` 4 ` included. Raises ValueError."""
    read = _SCORE.fullmatch(str(value))
    if read is None or len(read[1]) > 9:
        raise ValueError(f"{quoted_value(value)} is no whole number; give one from 0, or leave it empty")
    return int(read[1])


_TEXTS = ("item", "example_id", "control", "rater", "comment")
_Score = Annotated[int, Field(le=HIGHEST), BeforeValidator(_whole)]
_Row = make_dataclass(
    "_Row",
    [
        *((name, Stripped, "") for name in _TEXTS),
        ("sample", Annotated[int, BeforeValidator(_whole)], 0),
        *((name, _Score | None, None) for name in CRITERIA),
    ],
)


def item_code(judged: Judgement) -> str:
    """The code that a sheet shows for a plan; equal plans for one example have one code and are rated once."""
    # It begins with a letter, because spreadsheets write codes of digits as numbers.
    return f"p{fingerprint([judged.example_id, list(judged.steps)])[:_CODE]}"


def write_sheet(
    path: Path, judged: Iterable[Judgement], examples: Mapping[str, Example], seed: int = 0, limit: int | None = None
) -> int:
    """Write the sheet of the plans that were judged, or of `limit` drawn ones, all or nothing; returns its rows.

    Raises InputError for a plan whose example is not among `examples`, and where verdicts hold no plan.
    """
    plans = {item_code(judgement): judgement for judgement in judged if judgement.steps}
    if not plans:
        raise InputError.at(path, "there is no plan to rate", "give verdicts that hold the plans' steps")
    unknown = sorted({judgement.example_id for judgement in plans.values()} - set(examples))
    if unknown:
        problem = f"{len(unknown)} plans are for examples that are not in --examples, first {unknown[0]!r}"
        raise InputError.at(path, problem, "give the examples that were planned for")
    codes = sorted(plans)
    random.Random(seed).shuffle(codes)
    codes = codes[:limit]
    stream = io.StringIO(newline="")
    # All cells in quotes: in some languages a spreadsheet parts them at semicolons.
    table = csv.writer(stream, quoting=csv.QUOTE_ALL)
    table.writerow(COLUMNS)
    for code in codes:
        example = examples[plans[code].example_id]
        history = format_plan(example.history) or "nothing yet"
        texts = (example.goal, history, format_plan(example.continuation), format_plan(plans[code].steps))
        table.writerow([code, *map(cell, texts), *("" for _ in CRITERIA), ""])
    write_text(path, "\ufeff" + stream.getvalue())  # the mark that spreadsheets know UTF-8 by
    return len(codes)


def cell(text: str) -> str:
    """A text as a cell of a spreadsheet: no formula, no hidden characters, no longer than a cell.

    >>> cell("=SUM(A1)"), cell("-1+2"), cell("boil \\u202ewater")
    ("'=SUM(A1)", "'-1+2", 'boil  water')
    """
    shown = visible(text).strip()
    shown = shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
    # A sign in full width, or in small, computes as well.
    return f"'{shown}" if unicodedata.normalize("NFKC", shown[:1]).startswith(_FORMULA) else shown


def rated_plans(ratings: Iterable[Rating], judged: Iterable[Judgement]) -> list[tuple[Rating, dict[PlanId, Judgement]]]:
    """Each rating with the plans that it is of: several where samples of an example are equal, for a sheet's item.

    Raises InputError for a rating of a plan that is not among `judged`, since nothing could be compared with it.
    """
    named = {judgement.plan_id: judgement for judgement in judged}
    items: dict[str, dict[PlanId, Judgement]] = {}
    for key, judgement in named.items():
        items.setdefault(item_code(judgement), {})[key] = judgement
    rated, unknown = [], []
    for rating in ratings:
        key = PlanId(rating.example_id, rating.sample, rating.control)
        plans = items.get(rating.item, {}) if rating.item else {key: named[key]} if key in named else {}
        rated.append((rating, plans))
        unknown += [] if plans else [rating.item or rating.example_id]
    if unknown:
        raise InputError(
            f"{len(unknown)} ratings are of plans that no judge's file holds: {listed(unknown)}; "
            "give the verdicts that the sheet was made from."
        )
    return rated


class HumanVerdicts(NamedTuple):
    """People as one judge."""

    identity: JudgeIdentity
    rows: list[Judgement]
    incomplete: int
    """Ratings without all six criteria, left out."""
    of_others: int
    """Ratings of items that are no plans of this system, left out."""


def human_verdicts(ratings: Sequence[Rating], judged: Iterable[Judgement]) -> HumanVerdicts:
    """The verdicts that ratings are; `judged` are verdicts on the same plans, from which the sheet was made.

    Raises InputError for a rating by `example_id` of a plan that is not among them, for a plan that one person rated
    under two names, and where no rating of these plans has all six criteria.
    """
    judged = list(judged)
    items = {item_code(judgement) for judgement in judged}
    of_system = [rating for rating in ratings if not rating.item or rating.item in items]
    people = list(dict.fromkeys(rating.rater for rating in ratings))
    name = f"human: {', '.join(people)}"
    rows: dict[tuple[PlanId, int], Judgement] = {}
    incomplete = 0
    for rating, plans in rated_plans(of_system, judged):
        if len(rating.scores) < len(CRITERIA):
            incomplete += 1
            continue
        verdict, repeat = Verdict(**rating.scores), people.index(rating.rater)
        text = f"{rating.rater}: {rating.comment}" if rating.comment else rating.rater
        for plan, shown in plans.items():
            if (plan, repeat) in rows:
                raise InputError(f"{rating.rater} rated sample {plan.sample} of {plan.example_id!r} twice; keep one.")
            rows[plan, repeat] = Judgement(
                plan.example_id, verdict, plan.sample, repeat, plan.control, name, "human", shown.steps, text=text
            )
    if not rows:
        raise InputError(
            f"none of {len(ratings)} ratings is of these plans and has all six criteria; give the verdicts that the "
            "sheet was made from, or compare with `recipe evaluate agreement`, which takes ratings of fewer."
        )
    identity = JudgeIdentity(name, "human", settings={"raters": str(len(people))})
    return HumanVerdicts(identity, list(rows.values()), incomplete, len(ratings) - len(of_system))
