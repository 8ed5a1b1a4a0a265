"""Examples: what `recipe data prepare` writes and what training and evaluation read, also of a file of procedures.

A row has the fields of `recipe.types.Example`, or those of a whole procedure (`recipe.data.procedures`). A file is read
whole or not at all: a planner that is trained on half of its examples looks like a worse method.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from recipe.data.procedures import ProcedureRow, procedure_rows
from recipe.data.supervision import cut_at, cut_points
from recipe.errors import InputError, listed
from recipe.rows import write_rows
from recipe.types import Example


def write_examples(path: Path | str, examples: Iterable[Example]) -> int:
    """Write examples as JSON lines, all or nothing and the same bytes each time; returns their number."""
    return write_rows(path, examples)


def read_examples(path: Path | str, split: str = "", *, questions: bool = False) -> list[Example]:
    """The examples of a file in file order; `split` keeps those of one split, the empty string all.

    With `questions` they may come without continuations, as a board gives them out to be planned for.

    `cut` defaults to the history's length, `until` to None for a time that is not known, and `told_history` to None; an
    empty list there is a history in which Phi saw no step. A row without an id is named by a hash of its goal and
    steps. A whole procedure is cut as `recipe data prepare` cuts it: at four places in the split train, else at one.
    Raises InputError with file, line, field and remedy as `procedure_rows` does, for a procedure of one step, for a
    continuation that is missing, for an example that occurs twice, and for a split that no example is in.
    """
    examples: list[Example] = []
    lines: dict[str, int] = {}
    for line, row in procedure_rows(path):
        if row.steps is not None:
            procedure = row.procedure()
            points = cut_points(procedure.video_id, len(procedure.steps), 4 if row.split == "train" else 1)
            if not points:
                remedy = "give two steps or more, or history and continuation"
                raise InputError.at(path, "one step cannot be cut in two", remedy, line=line, field="steps")
            cut = [cut_at(procedure, point) for point in points]
        else:
            if not questions and not row.continuation:
                raise InputError.at(path, "the field is missing", "add it", line=line, field="continuation")
            cut = [_example(row)]
        for example in cut:
            if (first := lines.get(example.example_id)) is not None:
                given = f"{example.example_id!r} was" if row.example_id or row.video_id else "goal and steps were"
                field = "example_id" if row.steps is None else "video_id"
                raise InputError.at(
                    path, f"{given} already given in line {first}", "give each once", line=line, field=field
                )
            lines[example.example_id] = line
        examples += cut
    chosen = [example for example in examples if split in ("", example.split)]
    if split and not chosen:
        present = Counter(example.split for example in examples)
        counts = ", ".join(
            f"{count} in {name!r}" if name else f"{count} in none" for name, count in sorted(present.items())
        )
        problem = f"no example is in split {split!r} (the file has {counts or 'no example'})"
        raise InputError.at(path, problem, "set split to one of these, or to '' for all examples")
    return chosen


def _example(row: ProcedureRow) -> Example:
    """The example of a row that is cut."""
    history = row.history or ()
    cut = len(history) if row.cut < 0 else row.cut
    source, video_id, example_id = row.source, row.video_id, row.example_id
    if not example_id:
        made = row.procedure()
        source, video_id, example_id = made.source, made.video_id, f"{made.source}/{made.video_id}/{cut}"
    return Example(
        example_id, source, video_id, row.goal, history, row.continuation, cut, row.split, row.supervision, row.until,
        row.told_history, row.worded,
    )  # fmt: skip


def read_training_examples(path: Path | str, split: str = "") -> list[Example]:
    """As `read_examples`; raises InputError for examples without a history, too, which are for planning only.

    Training never asks for a plan from the start (paper, section 3.1: 1 <= t < T).
    """
    examples = read_examples(path, split)
    if empty := [example.example_id for example in examples if not example.history]:
        problem = f"{len(empty):,} of {len(examples):,} examples have no history ({listed(empty)})"
        raise InputError.at(path, problem, "train on examples with one step done or more", field="history")
    return examples
