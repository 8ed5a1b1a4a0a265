"""Procedures from the web, as How2Everything publishes them (arXiv 2602.08808): How2Mine, How2Train and How2Bench.

Two layouts, told apart by their keys, a row a procedure, as JSON lines, Parquet or Arrow:

    {"id" or "source_example_id", "goal", "steps": [text], "topic", "resources", "url", "source_text"}
    {"source_example": {"id", "topic", "url", "text"}, "final_procedure": {"goal", "steps", "resources"}}

Each step becomes a segment without times, the goal the title, and the address is kept. Topic, resources and the text of
the page are not read. A row without an id gets one from a hash of what it holds.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from importlib import import_module
from typing import Any, NamedTuple

from recipe.data.narrations.drafts import Caption, Draft, Fault, Place, ReadingOptions, ReadingReport, caption_place
from recipe.data.narrations.files import HEAD, SourceFile
from recipe.data.narrations.json_files import BAD_GOAL, BAD_SOURCE, NO_STEPS, objects

SOURCE = "how2mine"
"""Source of rows that name none."""
COLUMNS = (
    *("id", "source_example_id", "video_id", "goal", "steps", "url", "source"),
    *("source_example.id", "source_example.url", "final_procedure.goal", "final_procedure.steps"),
)
"""The columns of a table that are read."""
_NO_OBJECT = Fault("not a procedure", "not an object", "give the object of How2Mine's export")


class WebProcedure(NamedTuple):
    """The fields of a row, unchecked, from either layout."""

    place: Place
    id: object
    goal: object
    steps: object
    url: object
    source: object
    within: str = ""
    """What stands before `goal` and `steps` in messages."""

    @property
    def title(self) -> str | None:
        """The goal, None where it is empty or no text."""
        return (self.goal.strip() or None) if isinstance(self.goal, str) else None

    @property
    def own_id(self) -> object:
        """The id as the row has it, a number as text; None where it is missing or blank."""
        number = isinstance(self.id, int) and not isinstance(self.id, bool)
        return str(self.id) if number else None if _blank(self.id) else self.id

    @property
    def lacks_nothing(self) -> bool:
        """Whether there are an id, a goal and a step that is not blank, of whatever kind."""
        steps = self.steps if isinstance(self.steps, list) else [self.steps]
        return not (_blank(self.own_id) or _blank(self.goal) or all(map(_blank, steps)))


def _blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def is_web_procedure(row: Iterable[str], steps: object) -> bool:
    """Whether a row with these keys, or a table with these columns, is a procedure of either layout.

    >>> is_web_procedure({"goal": "", "steps": ["boil"]}, ["boil"]), is_web_procedure({"goal": "", "steps": []}, [{}])
    (True, False)
    """
    keys = set(row)
    if {"source_example", "final_procedure"} <= keys:
        return True
    texts = isinstance(steps, list) and bool(steps) and isinstance(steps[0], str)
    return {"goal", "steps"} <= keys and texts and not keys & {"segments", "sentences"}


def read_how2mine(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """One draft a row. Raises InputError for a damaged file and for a line that is not a JSON object."""
    for row in web_procedures(file, options):
        captions: Sequence[Caption | Fault] | Fault
        if isinstance(row.steps, Fault):
            captions = row.steps
        elif not isinstance(row.goal, str | None):
            captions = BAD_GOAL._replace(part=f"{row.within}goal")
        elif not isinstance(row.source, str | None):
            captions = BAD_SOURCE
        elif not isinstance(row.steps, list) or not row.steps:
            captions = NO_STEPS._replace(part=f"{row.within}steps")
        else:
            captions = list(map(Caption, row.steps))
        report.no_goal += row.title is None and not isinstance(captions, Fault)
        own = row.source.strip() if isinstance(row.source, str) else ""
        content = json.dumps([row.goal, row.steps, row.url], default=str).encode()
        video = f"{SOURCE}-{sha256(content).hexdigest()[:16]}" if row.own_id is None else row.own_id
        where = partial(caption_place, row.place._replace(field=None), f"{row.within}steps[{{n}}]", None)
        yield Draft(row.place, video, captions, where, row.title, own or options.source or SOURCE, True, row.url, True)


def web_procedures(file: SourceFile, options: ReadingOptions) -> Iterator[WebProcedure]:
    """The rows of a file of any of the three kinds. Raises InputError as `read_how2mine`."""
    if file.stream.peek(HEAD)[:6].startswith((b"PAR1", b"ARROW1")):
        rows_of = import_module(f"{__package__}.parquet").rows_of  # with pyarrow, which is heavy
        return (
            _fields(Place(file.label, field=f"row {number}"), row, f"row {number}, ")
            for number, row in rows_of(file, COLUMNS)
        )
    return (_fields(Place(file.label, number), row) for number, row in objects(file, options.encoding))


def _fields(place: Place, row: dict[str, Any], before: str = "") -> WebProcedure:
    """`before` stands before the name of a field in messages."""
    if "final_procedure" not in row:
        own = next((row[name] for name in ("source_example_id", "id", "video_id") if row.get(name) is not None), None)
        return WebProcedure(place, own, row.get("goal"), row.get("steps"), row.get("url"), row.get("source"), before)
    origin, procedure = row.get("source_example"), row["final_procedure"]
    if not isinstance(origin, dict) or not isinstance(procedure, dict):
        part = "final_procedure" if isinstance(origin, dict) else "source_example"
        return WebProcedure(place, row.get("id"), None, _NO_OBJECT._replace(part=f"{before}{part}"), None, None)
    own = row.get("id") if origin.get("id") is None else origin["id"]
    url, within = origin.get("url"), f"{before}final_procedure."
    return WebProcedure(place, own, procedure.get("goal"), procedure.get("steps"), url, row.get("source"), within)
