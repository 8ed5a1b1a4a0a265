"""What the commands of `recipe evaluate` share: options, reading plans, writing scores with rows, showing them."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recipe.cli import console
from recipe.cli.console import CommandOutput, shows
from recipe.cli.flags import SettingsTable, with_settings

if TYPE_CHECKING:
    from recipe.evaluation.measures import Measure, PlanSelection
    from recipe.evaluation.scores import Row, Scores
    from recipe.planning.admissible import Embed
    from recipe.types import Example

_FIRST: dict[str, tuple[Any, Any]] = {
    "predictions": (Annotated[Path, typer.Argument(help="Predictions, JSON lines.")], inspect.Parameter.empty),
    "examples": (
        Annotated[Path, typer.Option(help="The examples or procedures that were planned for.")],
        inspect.Parameter.empty,
    ),
}
_LAST: dict[str, tuple[Any, Any]] = {
    "split": (Annotated[str, typer.Option(help="Only predictions for examples of this split.")], ""),
    "missing": (
        Annotated[
            Literal["zero", "refuse"], typer.Option(help="Examples without a prediction: empty plans, or an error.")
        ],
        "zero",
    ),
    "output": (
        Annotated[Path | None, typer.Option(help="Scores file to write, X.json; the rows go to X.rows.jsonl.")],
        None,
    ),
    "system": (Annotated[str, typer.Option(help="Name of the system. Default: the file's.")], ""),
    "seed": (Annotated[int, typer.Option(help="Seed of the bootstrap and of what is drawn.")], 0),
}


@dataclass(frozen=True)
class PlanOptions:
    """The options that measures share, with reading, measuring and showing by them."""

    predictions: Path = Path()
    examples: Path = Path()
    split: str = ""
    missing: Literal["zero", "refuse"] = "zero"
    output: Path | None = None
    system: str = ""
    seed: int = 0

    def read(self, missing: Literal["zero", "refuse"] | None = None) -> "tuple[PlanSelection, list[Example]]":
        """The plans for the examples of the split, and the examples of all splits."""
        from recipe.data.examples import read_examples
        from recipe.evaluation.measures import select_plans
        from recipe.planning.prediction_files import read_predictions

        chosen = read_examples(self.examples, self.split)
        known = read_examples(self.examples) if self.split else chosen
        return select_plans(chosen, read_predictions(self.predictions), known, missing or self.missing), known

    def evaluate(
        self, measure: "Measure", selection: "PlanSelection", left_out: Mapping[str, int] | None = None
    ) -> "tuple[Scores, list[Row]]":
        """The scores of the selected plans, and their rows."""
        from recipe.evaluation.measures import measured_rows, summarise

        rows = measured_rows(measure, selection, console.progress())
        skipped = {"other splits": selection.other_splits, **(left_out or {})}
        named, decoding = self.system or self.predictions.stem, selection.decoding
        scores = summarise(measure, named, rows, selection.examples, self.seed, left_out=skipped, decoding=decoding)
        return scores, rows

    def show(self, scores: "Scores", rows: "Sequence[Row] | None" = None) -> CommandOutput:
        """Write the scores, if they have a file, and their rows unless these are written; and show the scores."""
        from recipe.evaluation import measure_named
        from recipe.evaluation.measures import terminal_tables
        from recipe.evaluation.scores import rows_path, write_rows, write_scores

        if self.output is not None:
            if rows is not None:
                write_rows(rows_path(self.output), rows)
            write_scores(self.output, scores)
        file = "" if self.output is None else rows_path(self.output).name
        return CommandOutput(scores, terminal_tables(measure_named(scores.measure), scores, file))


def open_embed(encoder: str, **given: Any) -> "Embed":
    """The encoder of a name, opened; `given` are further arguments of its calls."""
    from recipe.config import EncoderConfig
    from recipe.corpus.encoders import open_encoder

    return functools.partial(open_encoder(EncoderConfig(name=encoder)).encode, **given)


def measure_command(
    *without: str, **tables: SettingsTable
) -> Callable[[Callable[..., CommandOutput]], Callable[..., None]]:
    """Make the command of a measure: its own options, those that all measures share but for some, and its settings.

    The function gets the shared ones as `plans`. That scores and rows can be written is checked first.
    """

    def decorate(command: Callable[..., CommandOutput]) -> Callable[..., None]:
        signature = inspect.signature(command)

        @functools.wraps(command)
        def run(**arguments: Any) -> CommandOutput:
            from recipe.artifacts import require_writable
            from recipe.evaluation.scores import rows_path

            plans = PlanOptions(**{name: arguments.pop(name) for name in (*_FIRST, *_LAST) if name not in without})
            if plans.output is not None:
                require_writable(plans.output)
                require_writable(rows_path(plans.output))
            return command(plans=plans, **arguments)

        first, last = (
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
                for name, (annotation, default) in shared.items()
                if name not in without
            ]
            for shared in (_FIRST, _LAST)
        )
        own = [
            parameter.replace(kind=parameter.KEYWORD_ONLY)
            for name, parameter in signature.parameters.items()
            if name != "plans"
        ]
        run.__signature__ = signature.replace(parameters=[*first, *own, *last])  # type: ignore[attr-defined]
        shown = shows(run)
        return with_settings(**tables)(shown) if tables else shown

    return decorate


def plain_command(kind: "type[Measure]") -> Callable[..., None]:
    """The command of a measure without options of its own, which is opened without settings."""

    def command(plans: PlanOptions) -> CommandOutput:
        selection, _ = plans.read()
        measure = kind()
        measure.require(selection.examples)
        return plans.show(*plans.evaluate(measure, selection))

    command.__doc__ = kind.__doc__
    return measure_command()(command)
