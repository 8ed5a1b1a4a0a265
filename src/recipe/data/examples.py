"""Examples as JSON lines: what `recipe data prepare` writes and what training and evaluation read.

One object a line with the fields of `recipe.types.Example`. A file is read whole or not at all: a planner that is
trained on half of its examples looks like a worse method.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_args

from recipe.artifacts import JsonObject, only_fields, read_jsonl, text_field, text_list_field, write_jsonl
from recipe.data.procedures import seconds_field
from recipe.errors import InputError, listed
from recipe.types import Example, Supervision

_FIELDS = tuple(field.name for field in fields(Example))
_SUPERVISION: tuple[Supervision, ...] = get_args(Supervision)


def write_examples(path: Path, examples: Iterable[Example]) -> int:
    """Write examples as JSON lines, all or nothing and the same bytes each time; returns their number."""
    return write_jsonl(path, map(_row, examples))


def _row(example: Example) -> dict[str, Any]:
    row = asdict(example)
    if example.told_history is None:
        del row["told_history"]
    if not example.worded:
        del row["worded"]
    return row


def read_examples(path: Path, split: str = "", *, questions: bool = False) -> list[Example]:
    """The examples of a file in file order; `split` keeps those of one split, the empty string all.

    With `questions` they may come without continuations, as a board gives them out to be planned for.

    `example_id`, `goal`, `history` and `continuation` are required, the history as an empty list where nothing has been
    done; `cut` defaults to the history's length, `until` to None for a time that is not known, and `told_history` to
    None; an empty list there is a history in which Phi saw no step. `worded` defaults to false.
    Raises InputError with file, line, field and remedy for a field that is missing, empty, of the wrong kind
    or unknown, for an `example_id` that occurs twice, and for a split that no example is in.
    """
    lines: dict[str, int] = {}
    examples = []
    for line, row in read_jsonl(path):
        example = _example(path, line, row, questions)
        if (first := lines.setdefault(example.example_id, line)) != line:
            problem = f"{example.example_id!r} was already used in line {first}"
            raise InputError.at(path, problem, "make ids unique", line=line, field="example_id")
        examples.append(example)
    chosen = [example for example in examples if split in ("", example.split)]
    if split and not chosen:
        present = Counter(example.split or "(none)" for example in examples)
        counts = ", ".join(f"{name} ({count})" for name, count in sorted(present.items()))
        raise InputError.at(path, f"no example is in split {split!r}", f"splits in the file: {counts}")
    return chosen


def read_training_examples(path: Path, split: str = "") -> list[Example]:
    """As `read_examples`; raises InputError for examples without a history, too, which are for planning only.

    Training never asks for a plan from the start (paper, section 3.1: 1 <= t < T).
    """
    examples = read_examples(path, split)
    if empty := [example.example_id for example in examples if not example.history]:
        problem = f"{len(empty):,} of {len(examples):,} examples have no history ({listed(empty)})"
        raise InputError.at(path, problem, "train on examples with one step done or more", field="history")
    return examples


def _example(path: Path, line: int, row: JsonObject, question: bool) -> Example:
    only_fields(path, line, row, _FIELDS)
    supervision = row.get("supervision", "annotated")
    if supervision not in _SUPERVISION:
        remedy = f"give one of {', '.join(_SUPERVISION)}"
        raise InputError.at(path, f"{supervision!r} is unknown", remedy, line=line, field="supervision")
    history = _history(path, line, row, "history")
    return Example(
        example_id=text_field(path, line, row, "example_id"),
        source=_optional_text(path, line, row, "source"),
        video_id=_optional_text(path, line, row, "video_id"),
        goal=text_field(path, line, row, "goal"),
        history=history,
        continuation=() if question and "continuation" not in row else text_list_field(path, line, row, "continuation"),
        cut=_cut(path, line, row, len(history)),
        split=_optional_text(path, line, row, "split"),
        supervision=supervision,
        until=seconds_field(path, line, "until", row.get("until")),
        told_history=None if row.get("told_history") is None else _history(path, line, row, "told_history"),
        worded=_worded(path, line, row),
    )


def _history(path: Path, line: int, row: JsonObject, field: str) -> tuple[str, ...]:
    return () if row.get(field) == [] else text_list_field(path, line, row, field)


def _worded(path: Path, line: int, row: JsonObject) -> bool:
    value = row.get("worded", False)
    if not isinstance(value, bool):
        raise InputError.at(path, f"{value!r} is not true or false", "give true or false", line=line, field="worded")
    return value


def _optional_text(path: Path, line: int, row: JsonObject, field: str) -> str:
    value = row.get(field, "")
    if not isinstance(value, str):
        raise InputError.at(path, f"{value!r} is not a string", "give a string", line=line, field=field)
    return value.strip()


def _cut(path: Path, line: int, row: JsonObject, default: int) -> int:
    value = row.get("cut", default)
    if not isinstance(value, int) or isinstance(value, bool) or value < min(default, 1):
        remedy = "give the number of steps done before the cut, at least 1 where there is a history"
        raise InputError.at(path, f"{value!r} is no cut point", remedy, line=line, field="cut")
    return value
