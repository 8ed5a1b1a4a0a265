"""Sheets for people to rate plans on: a table that tells nothing of the system, the judge or what is a control.

Rows are shuffled by a seed. `item` is a code of the plan, so that a filled sheet is read back beside the verdicts that
it was made from, and no other file has to be kept. Texts cannot be formulas of a spreadsheet.
"""

import csv
import io
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from recipe.artifacts import fingerprint, write_text
from recipe.errors import InputError
from recipe.evaluation.verdicts import CRITERIA, Judged
from recipe.prompting import visible
from recipe.text import format_plan
from recipe.types import Example

COLUMNS = ("item", "goal", "history", "reference", "plan", *CRITERIA, "comment")
_LONGEST = 30_000
"""Characters of a cell; spreadsheets take 32,767."""
_CODE = 12
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


class PlanKey(NamedTuple):
    """Which plan was judged: those of one system differ in this."""

    example_id: str
    sample: int
    control: str


def plan_key(judged: Judged) -> PlanKey:
    """The key of the plan that a judgement is of."""
    return PlanKey(judged.example_id, judged.sample, judged.control)


def item_code(judged: Judged) -> str:
    """The code that a sheet shows for a plan; equal plans for one example have one code and are rated once."""
    # It begins with a letter, because spreadsheets write codes of digits as numbers.
    return f"p{fingerprint([judged.example_id, list(judged.steps)])[:_CODE]}"


def write_sheet(
    path: Path, judged: Iterable[Judged], examples: Mapping[str, Example], seed: int = 0, limit: int | None = None
) -> int:
    """Write the sheet of the plans that were judged, or of `limit` drawn ones, all or nothing; returns its rows.

    Raises InputError for a plan whose example is not among `examples`, and where verdicts hold no plan.
    """
    plans = {item_code(one): one for one in judged if one.steps}
    if not plans:
        raise InputError.at(path, "there is no plan to rate", "give verdicts that hold the plans' steps")
    unknown = sorted({one.example_id for one in plans.values()} - set(examples))
    if unknown:
        problem = f"{len(unknown)} plans are for examples that are not in --examples, first {unknown[0]!r}"
        raise InputError.at(path, problem, "give the examples that were planned for")
    codes = sorted(plans)
    random.Random(seed).shuffle(codes)
    codes = codes[:limit]
    stream = io.StringIO(newline="")
    table = csv.writer(stream)
    table.writerow(COLUMNS)
    table.writerows(_row(code, plans[code].steps, examples[plans[code].example_id]) for code in codes)
    write_text(path, "\ufeff" + stream.getvalue())  # the mark that spreadsheets know UTF-8 by
    return len(codes)


def _row(code: str, steps: Sequence[str], example: Example) -> list[str]:
    texts = (
        example.goal,
        format_plan(example.history) or "nothing yet",
        format_plan(example.continuation),
        format_plan(steps),
    )
    return [code, *map(cell, texts), *("" for _ in CRITERIA), ""]


def cell(text: str) -> str:
    """A text as a cell of a spreadsheet: no formula, no hidden characters, no longer than a cell.

    >>> cell("=SUM(A1)"), cell("-1+2"), cell("boil \\u202ewater")
    ("'=SUM(A1)", "'-1+2", 'boil  water')
    """
    shown = visible(text).strip()
    shown = shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
