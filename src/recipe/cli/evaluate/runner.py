"""What the commands of `recipe evaluate` share: reading plans, writing scores with their rows, and showing them.

A measure that an installed package adds has a command made here, with the options that all share.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recipe.cli import console
from recipe.errors import InputError

if TYPE_CHECKING:
    from recipe.evaluation.measures import Measure, PlanSelection
    from recipe.evaluation.scores import Row, Scores
    from recipe.types import Example

Examples = Annotated[Path, typer.Option(help="The examples that were planned for.")]
Split = Annotated[str, typer.Option(help="Only predictions for examples of this split.")]
MissingPlans = Annotated[
    Literal["zero", "refuse"], typer.Option(help="Examples without a prediction: empty plans, or an error.")
]
Output = Annotated[Path | None, typer.Option(help="Scores file to write, JSON; rows go beside it as X.rows.jsonl.")]
System = Annotated[str, typer.Option(help="Name of the system. Default: the file's.")]
Seed = Annotated[int, typer.Option(help="Seed of the bootstrap and of what is drawn.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def require_outputs(output: Path | None) -> None:
    """Check before long work that scores and rows can be written."""
    from recipe.artifacts import require_writable
    from recipe.evaluation.scores import rows_path

    if output is not None:
        require_writable(output)
        require_writable(rows_path(output))


def evaluate_plans(
    measure: "Measure",
    selection: "PlanSelection",
    system: str,
    seed: int,
    left_out: Mapping[str, int] | None = None,
) -> "tuple[Scores, list[Row]]":
    """The scores of the selected plans, and their rows."""
    from recipe.evaluation.measures import measured_rows, summarise

    rows = measured_rows(measure, selection, console.progress())
    skipped = {"other splits": selection.other_splits, **(left_out or {})}
    scores = summarise(measure, system, rows, selection.examples, seed, left_out=skipped, decoding=selection.decoding)
    return scores, rows


def read_plans(
    predictions: Path, examples: Path, split: str, missing: Literal["zero", "refuse"]
) -> "tuple[PlanSelection, list[Example]]":
    """The plans of a file for the examples of a split, and the examples of all splits."""
    from recipe.data.examples import read_examples
    from recipe.evaluation.measures import select_plans
    from recipe.planning.predictions import read_predictions

    wanted = read_examples(examples, split)
    known = read_examples(examples) if split else wanted
    return select_plans(wanted, read_predictions(predictions), known, missing), known


def write_and_show(scores: "Scores", rows: "Sequence[Row]", output: Path | None, as_json: bool) -> None:
    """Write scores with their rows, if they have a file, and show them."""
    from recipe.evaluation.scores import rows_path, write_rows, write_scores

    if output is not None:
        write_rows(rows_path(output), rows)
        write_scores(output, scores)
    show(scores, output, as_json)


def show(scores: "Scores", output: Path | None, as_json: bool) -> None:
    """Print scores as JSON or as tables."""
    from recipe.artifacts import to_json
    from recipe.evaluation.measures import measure_named, terminal_tables
    from recipe.evaluation.scores import rows_path

    if as_json:
        console.print_json(to_json(scores))
        return
    for table in terminal_tables(
        measure_named(scores.measure), scores, "" if output is None else rows_path(output).name
    ):
        console.print_table(table)


def measure_command(name: str) -> Callable[..., None]:
    """The command of a measure of an installed package, which is opened without settings."""
    from recipe.evaluation.measures import measure_named

    try:
        about = measure_named(name).__doc__
    except InputError as error:  # only this command cannot be used
        about = str(error)

    def command(
        predictions: Annotated[Path, typer.Argument(help="Predictions, JSON lines.")],
        examples: Examples,
        split: Split = "",
        missing: MissingPlans = "zero",
        output: Output = None,
        system: System = "",
        seed: Seed = 0,
        as_json: AsJson = False,
    ) -> None:
        require_outputs(output)
        selection, _ = read_plans(predictions, examples, split, missing)
        measure = measure_named(name)()
        measure.require(selection.examples)
        write_and_show(*evaluate_plans(measure, selection, system or predictions.stem, seed), output, as_json)

    command.__doc__ = about
    return command
