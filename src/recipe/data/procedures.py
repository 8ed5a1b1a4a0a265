"""The file of procedures, one's own and those of benchmarks, in any form of `recipe.tables`.

A row is a goal and either all steps of a procedure, or those that are done and those that follow:

    {"goal", "steps": ["text" or {"text", "start", "end"}]}
    {"goal", "history": ["text"], "continuation": ["text"]}

All other fields are optional (docs/data.md). `read_procedures` reads a row as a whole procedure,
`recipe.data.examples.read_examples` as what is planned for.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_type_hints

from pydantic import BeforeValidator, Field

from recipe.artifacts import fingerprint, json_line
from recipe.errors import InputError
from recipe.rows import Count, Seconds, Steps, Stripped, Text, Texts, not_blank, parse_row, quoted_value, write_rows
from recipe.step_lines import unmarked
from recipe.tables import row_texts
from recipe.types import SPLITS, Procedure, Step, Supervision

OWN = "own"
"""The source of a procedure that names none."""
# Fields of a row that is cut, which a whole procedure must not have.
_OF_EXAMPLES = ("history", "continuation", "example_id", "cut", "supervision", "until", "told_history", "worded")


@dataclass(frozen=True)
class _StepRow:
    text: Text
    start: Seconds | None = None
    end: Seconds | None = None


def _step(value: object) -> object:
    return _StepRow(not_blank(value)) if isinstance(value, str) else value


StepRows = Annotated[tuple[Annotated[_StepRow, BeforeValidator(_step)], ...], Field(fail_fast=True)]
"""Steps, each as a text or as an object; the first that is none ends the reading."""


@dataclass(frozen=True, kw_only=True)
class ProcedureRow:
    """A procedure as its row has it: whole, by `steps`, or cut, by `history` and `continuation`."""

    goal: Text
    steps: Annotated[StepRows, Field(min_length=1)] | None = None
    history: Texts | None = None
    continuation: Steps = ()
    example_id: Stripped = ""
    source: Stripped = ""
    video_id: Stripped = ""
    split: Stripped = ""
    cut: Count = -1
    """-1, which no row can hold, stands for the history's length."""
    supervision: Supervision = "annotated"
    until: Seconds | None = None
    told_history: Texts | None = None
    worded: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """All steps that the row holds."""
        return (*(self.history or ()), *self.continuation, *(step.text for step in self.steps or ()))

    def procedure(self) -> Procedure:
        """The whole procedure; one without ids is named by a hash of its goal and steps."""
        video_id = self.video_id or made_id(self.goal, self.texts)
        timed = None if self.steps is None else tuple(Step(step.text, step.start, step.end) for step in self.steps)
        return Procedure(self.source or OWN, video_id, self.goal, timed or tuple(map(Step, self.texts)), self.split)


def made_id(goal: str, steps: Sequence[str]) -> str:
    """The id of a procedure whose row has none: a hash of its goal and steps."""
    # 48 bits: among a million procedures two share an id with a probability of 0.2%.
    return fingerprint([goal, steps])[:12]


class ProcedureFile(NamedTuple):
    """The procedures of a file, in file order, and the lines of rows that were left out, each with the reason."""

    procedures: list[Procedure]
    skipped: list[tuple[int, str]]


def write_procedures(path: Path | str, procedures: Iterable[Procedure]) -> int:
    """Write procedures as JSON lines, all or nothing; returns their number."""
    return write_rows(path, procedures)


def read_procedures(path: Path | str, on_bad: Literal["error", "skip"] = "error") -> ProcedureFile:
    """The whole procedures of a file. Rows of one video that are cut at different places are one procedure.

    Raises InputError with file, line, field and remedy as `procedure_rows` does, for a history without a continuation,
    and for a video that occurs twice in one source. `skip` leaves such rows out and returns them with the reason; a
    line that is not JSON is always an error.
    """
    content = ProcedureFile([], [])
    known: dict[tuple[str, str], tuple[int, ProcedureRow]] = {}
    for line, text in row_texts(path, get_type_hints(ProcedureRow)):
        try:
            row = _read_row(path, line, text)
            if row.history is not None and not row.continuation:
                problem = "the field is missing, and a history alone is no whole procedure"
                raise InputError.at(path, problem, "add it", line=line, field="continuation")
            procedure = row.procedure()
            key = (procedure.source, procedure.video_id)
            if (same := known.get(key)) is not None:
                # The same steps divided elsewhere, as `recipe data prepare` writes several cuts of a video.
                if row.history is not None and same[1].history is not None and row.texts == same[1].texts:
                    continue
                named = f"{key[1]!r} of source {key[0]!r} is" if row.video_id else "goal and steps are"
                problem = f"{named} already in line {same[0]}"
                raise InputError.at(path, problem, "give each video once", line=line, field="video_id")
            known[key] = line, row
        except InputError as error:
            json_line(path, line, text)  # an error in any case
            if on_bad == "error":
                raise
            content.skipped.append((line, str(error)))
        else:
            content.procedures.append(procedure)
    return content


def procedure_rows(path: Path | str) -> Iterator[tuple[int, ProcedureRow]]:
    """Line number and row of each procedure, in file order.

    Raises InputError with file, line, field and remedy for a field that is missing, empty, of the wrong kind or
    unknown, for steps whose starts go back in time, and for a row that is both whole and cut.
    """
    return ((line, _read_row(path, line, text)) for line, text in row_texts(path, get_type_hints(ProcedureRow)))


def _without_marks(row: ProcedureRow) -> ProcedureRow:
    """A row whose steps have lost the numbers and bullets that people write before them."""
    done = len(row.history or ())
    texts = _unmarked((*(row.history or ()), *row.continuation))
    history = None if row.history is None else texts[:done]
    steps = None
    if row.steps is not None:
        plain = _unmarked([step.text for step in row.steps])
        steps = tuple(replace(step, text=text) for step, text in zip(row.steps, plain, strict=True))
    return replace(row, history=history, continuation=texts[done:], steps=steps)


def _unmarked(steps: Sequence[str]) -> tuple[str, ...]:
    """Steps without their marks; one without a mark, or with nothing else, is what it was to the letter."""
    return tuple(
        own if text in ("", " ".join(own.split())) else text for own, text in zip(steps, unmarked(steps), strict=True)
    )


def _read_row(path: Path | str, line: int, text: str) -> ProcedureRow:
    row = _without_marks(parse_row(path, line, text, ProcedureRow))
    if row.steps is None:
        if row.history is None:
            field, other = ("history", "continuation") if row.continuation else ("steps", "goal")
            problem = f"the field is missing, and a row with '{other}' needs it"
            remedy = "give all steps of the procedure as 'steps', or those that are done as 'history'"
            raise InputError.at(path, problem, remedy, line=line, field=field)
        # A cut of 0 lies before the steps that are done.
        if row.cut >= 0 and row.cut < min(len(row.history), 1):
            remedy = "give the number of steps done before the cut, at least 1 where there is a history"
            raise InputError.at(path, f"{row.cut} is no cut point", remedy, line=line, field="cut")
        return row
    for name in _OF_EXAMPLES:
        if getattr(row, name) != getattr(ProcedureRow, name):
            problem = "the row holds a whole procedure in 'steps', too"
            remedy = "give 'steps' alone, or 'history' with 'continuation'"
            raise InputError.at(path, problem, remedy, line=line, field=name)
    # One step cannot be cut, so that such a row is more likely a table's cell with all steps in it, without a time.
    if len(row.steps) == 1 and row.steps[0].start is None and "|" in row.steps[0].text:
        problem = f"the only step, {quoted_value(row.steps[0].text)}, may be several that bars divide"
        raise InputError.at(path, problem, "give each step as an item of the list", line=line, field="steps")
    if row.split not in ("", *SPLITS):
        remedy = "give 'train', 'val' or 'test', or leave it out"
        raise InputError.at(path, f"{row.split!r} is unknown", remedy, line=line, field="split")
    last = 0.0
    for index, step in enumerate(row.steps):
        if step.start is None:
            continue
        field = f"steps[{index}]"
        if step.end is not None and step.end < step.start:
            problem = f"{step.end:g} lies before the start, {step.start:g}"
            raise InputError.at(path, problem, "give times with end >= start", line=line, field=f"{field}.end")
        # A cut is at the start of a step, and nothing that is to be planned may begin before it.
        if step.start < last:
            problem = f"{step.start:g} lies before the start of an earlier step, {last:g}"
            remedy = "list the steps in the order they were performed"
            raise InputError.at(path, problem, remedy, line=line, field=f"{field}.start")
        last = step.start
    return row
