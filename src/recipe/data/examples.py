"""Examples as JSON lines: what `recipe data prepare` writes and what training and evaluation read.

One object a line with the fields of `recipe.types.Example`. A file is read whole or not at all: a planner that is
trained on half of its examples looks like a worse method.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from recipe.errors import InputError, listed
from recipe.rows import Count, Seconds, Steps, Stripped, Text, Texts, read_rows, write_rows
from recipe.types import Example, Supervision


@dataclass(frozen=True, kw_only=True)
class _ExampleRow:
    """An example as its line has it."""

    example_id: Text
    source: Stripped = ""
    video_id: Stripped = ""
    goal: Text
    history: Texts
    continuation: Steps = ()
    cut: Count = -1
    """-1, which no line can hold, stands for the history's length."""
    split: Stripped = ""
    supervision: Supervision = "annotated"
    until: Seconds | None = None
    told_history: Texts | None = None
    worded: bool = False


def write_examples(path: Path, examples: Iterable[Example]) -> int:
    """Write examples as JSON lines, all or nothing and the same bytes each time; returns their number."""
    return write_rows(path, examples)


def read_examples(path: Path, split: str = "", *, questions: bool = False) -> list[Example]:
    """The examples of a file in file order; `split` keeps those of one split, the empty string all.

    With `questions` they may come without continuations, as a board gives them out to be planned for.

    `example_id`, `goal`, `history` and `continuation` are required, the history as an empty list where nothing has been
    done; `cut` defaults to the history's length, `until` to None for a time that is not known, and `told_history` to
    None; an empty list there is a history in which Phi saw no step. `worded` defaults to false.
    Raises InputError with file, line, field and remedy for a field that is missing, empty, of the wrong kind
    or unknown, for an `example_id` that occurs twice, and for a split that no example is in.
    """
    examples = []
    for line, row in read_rows(path, _ExampleRow, unique=("example_id",)):
        done = len(row.history)
        if not questions and not row.continuation:
            raise InputError.at(path, "the field is missing", "add it", line=line, field="continuation")
        if row.cut >= 0 and row.cut < min(done, 1):
            remedy = "give the number of steps done before the cut, at least 1 where there is a history"
            raise InputError.at(path, f"{row.cut} is no cut point", remedy, line=line, field="cut")
        examples.append(Example(**(vars(row) | {"cut": done if row.cut < 0 else row.cut})))
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
