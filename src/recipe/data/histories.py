"""Histories that Phi reads from videos, as JSON lines: Phi(h_V), the input of a Socratic planner (paper, section 3.1).

One object a line with the fields of `History`, as `recipe perceive` writes them. Each is about the video of one example
before its cut.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from recipe.artifacts import JsonObject, only_fields, read_jsonl, text_field, text_list_field, write_jsonl
from recipe.data.procedures import seconds_field
from recipe.errors import InputError, listed
from recipe.types import Example


@dataclass(frozen=True, slots=True)
class History:
    """The steps that Phi read from an example's video before the cut, with their cost in time and tokens."""

    example_id: str
    history: tuple[str, ...]
    """Steps done, in order; empty where Phi saw none."""
    until: float | None = None
    """Seconds into the video before which every frame was shown; None where the whole of it was."""
    model: str = ""
    prompt: str = ""
    """Hash of the prompt given to Phi."""
    seconds: float = 0.0
    """Wall-clock time of the answer."""
    tokens_in: int = 0
    tokens_out: int = 0


_FIELDS = tuple(field.name for field in fields(History))


def write_histories(path: Path, histories: Iterable[History]) -> int:
    """Write histories as JSON lines, all or nothing; returns their number."""
    return write_jsonl(path, (asdict(history) for history in histories))


def read_histories(path: Path) -> dict[str, History]:
    """Example id to its history, in file order; `example_id` and `history` are required, an empty list is a history.

    Raises InputError with file, line, field and remedy for a field that is missing, of the wrong kind or unknown, and
    for an example that occurs twice.
    """
    histories: dict[str, History] = {}
    lines: dict[str, int] = {}
    for line, row in read_jsonl(path):
        history = _history(path, line, row)
        if (first := lines.setdefault(history.example_id, line)) != line:
            problem = f"{history.example_id!r} already has a history in line {first}"
            raise InputError.at(path, problem, "give each example one", line=line, field="example_id")
        histories[history.example_id] = history
    return histories


def with_histories(examples: Iterable[Example], histories: Mapping[str, History]) -> list[Example]:
    """The examples with Phi's history in place of the annotated one; everything else stays, the cut among it.

    Histories of other examples are passed over. Raises InputError where an example has none, with the number of such
    examples and the first ids, and where a history was read up to another time than the example's.
    """
    examples = list(examples)
    if absent := [example.example_id for example in examples if example.example_id not in histories]:
        raise InputError(
            f"{len(absent):,} of {len(examples):,} examples have no history of Phi's: {listed(absent)}"
            "; run `recipe perceive` on their videos, or leave them out."
        )
    for example in examples:
        if (until := histories[example.example_id].until) != example.until:
            raise InputError(
                f"the history of example {example.example_id!r} was read {_up_to(until)}, but the "
                f"example is cut {_up_to(example.until)}; run `recipe perceive` on the examples that are used here."
            )
    return [replace(example, history=histories[example.example_id].history) for example in examples]


def add_told_histories(
    examples: Iterable[Example], histories: Mapping[str, History]
) -> tuple[list[Example], Counter[str]]:
    """The examples, training ones with Phi's history as `told_history`, and by source how many were left out.

    A training example without a history of Phi's is left out and counted. Examples of the other splits stay as they
    are, since planning and evaluation take a histories file themselves. Raises InputError as `with_histories` does for
    a history that was read up to another time.
    """
    kept, absent = list[Example](), Counter[str]()
    for example in examples:
        if example.split != "train":
            kept.append(example)
        elif example.example_id not in histories:
            absent[example.source] += 1
        else:
            [read] = with_histories([example], histories)
            kept.append(replace(example, told_history=read.history))
    return kept, absent


def _up_to(until: float | None) -> str:
    return "at no known time" if until is None else f"at {until:g} s"


def _history(path: Path, line: int, row: JsonObject) -> History:
    only_fields(path, line, row, _FIELDS)
    return History(
        example_id=text_field(path, line, row, "example_id"),
        history=() if row.get("history") == [] else text_list_field(path, line, row, "history"),
        until=seconds_field(path, line, "until", row.get("until")),
        model=_text(path, line, row, "model"),
        prompt=_text(path, line, row, "prompt"),
        seconds=_number(path, line, row, "seconds", float),
        tokens_in=_number(path, line, row, "tokens_in", int),
        tokens_out=_number(path, line, row, "tokens_out", int),
    )


def _text(path: Path, line: int, row: JsonObject, field: str) -> str:
    value = row.get(field, "")
    if not isinstance(value, str):
        raise InputError.at(path, f"{value!r} is not a string", "give a string", line=line, field=field)
    return value


def _number(path: Path, line: int, row: JsonObject, field: str, kind: type[int] | type[float]) -> Any:
    value = row.get(field, kind())
    wanted = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    if not wanted or not 0 <= value <= sys.float_info.max:
        what, remedy = ("count", "a whole number") if kind is int else ("duration", "seconds")
        raise InputError.at(path, f"{value!r} is no {what}", f"give {remedy}, 0 or more", line=line, field=field)
    return value
