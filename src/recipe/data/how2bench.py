"""How2Bench (Chang et al., 2026, arXiv 2602.08808): 7,000 procedures from the web, written for tests only.

    how2bench*.{jsonl,parquet,arrow}    {"source_example_id" or "id", "goal", "steps": [text], "topic", "url", ...}

Rows of How2Mine's export are read too, and JSON lines in .gz or .zst. A row without an id, a goal or steps is left out,
as the publisher's own reader leaves it out; blank steps are dropped.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from recipe.data.narrations.drafts import DEFAULTS, Fault
from recipe.data.narrations.files import source_files
from recipe.data.narrations.how2mine import WebProcedure, web_procedures
from recipe.errors import InputError
from recipe.types import Procedure, Step

NAME = "how2bench"
_FILE = re.compile(r"how2bench.*\.(jsonl|ndjson|parquet|arrow)(\.gz|\.zst)?", re.IGNORECASE)
_REMEDY = "use the files of huggingface.co/datasets/how2everything/how2bench"


def read_how2bench(folder: Path) -> list[Procedure]:
    """The procedures of the files in `folder`, ordered by id, all of split test; steps have no times.

    Raises InputError with file, line or row and field where there is no file, a file is damaged, a field is of the
    wrong kind or an id occurs twice.
    """
    procedures: dict[str, Procedure] = {}
    for row in _rows(folder):
        if not row.lacks_nothing:
            continue
        for name, value in (("id", row.own_id), ("goal", row.goal)):
            if not isinstance(value, str):
                raise _bad(row, name, f"{value!r} is not a string", _REMEDY)
        if isinstance(row.steps, Fault) or not isinstance(row.steps, list):
            raise _bad(row, "steps", "not a list", _REMEDY)
        for index, step in enumerate(row.steps):
            if not isinstance(step, str):
                raise _bad(row, f"steps[{index}]", f"{step!r} is not a string", _REMEDY)
        steps = tuple(Step(step.strip()) for step in row.steps if step.strip())
        procedure = Procedure(NAME, str(row.own_id).strip(), str(row.goal).strip(), steps, "test")
        if procedures.setdefault(procedure.video_id, procedure) is not procedure:
            raise _bad(row, "id", f"{procedure.video_id!r} occurs twice", "give each procedure once")
    return [procedures[name] for name in sorted(procedures)]


def incomplete_rows(folder: Path) -> dict[str, tuple[str, ...]]:
    """The rows without id, goal or steps, by file and place. Raises InputError as `read_how2bench`."""
    lacking = [row.place for row in _rows(folder) if not row.lacks_nothing]
    return {f"{place.file}, {place.field or f'line {place.line}'}": ("",) for place in lacking}


def _rows(folder: Path) -> Iterator[WebProcedure]:
    paths = sorted(path for path in folder.glob("how2bench*") if path.is_file() and _FILE.fullmatch(path.name))
    if not paths:
        raise InputError.at(folder / "how2bench.jsonl", "the file does not exist", _REMEDY)
    for path in paths:
        for file in source_files(path):
            yield from web_procedures(file, DEFAULTS)


def _bad(row: WebProcedure, field: str, problem: str, remedy: str) -> InputError:
    before = f"{row.place.field}, " if row.place.field else ""
    return InputError.at(row.place.file, problem, remedy, line=row.place.line, field=f"{before}{field}")
