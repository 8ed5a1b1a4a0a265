"""`recipe evaluate match`: plans against annotated continuations, beside controls."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recipe.cli import console

if TYPE_CHECKING:
    from recipe.evaluation.scores import MatchScores
    from recipe.report.elements import Row, Table
    from recipe.stats import Interval


def match(
    predictions: Annotated[Path, typer.Argument(help="Predictions, JSON lines.")],
    examples: Annotated[Path, typer.Option(help="The annotated examples that were planned for.")],
    annotated: Annotated[
        list[Path] | None,
        typer.Option(help="More examples whose steps the control of labels draws from, such as those of training."),
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="Encoder that matches lines: minilm, hash:256, hub id or folder.")
    ] = "minilm",
    split: Annotated[str, typer.Option(help="Only predictions for examples of this split.")] = "",
    missing: Annotated[
        Literal["zero", "refuse"], typer.Option(help="Examples without a prediction: empty plans, or an error.")
    ] = "zero",
    output: Annotated[Path | None, typer.Option(help="Scores file to write, JSON; rows of plans go beside.")] = None,
    system: Annotated[str, typer.Option(help="Name of the system. Default: the file's.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap and of the labels that are drawn.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare plans with the annotated continuation, step by step, beside plans that are no planner's: no judge.

    Example: recipe evaluate match predictions.jsonl --examples test.jsonl

    Example: recipe evaluate match plans.jsonl --examples test.jsonl --annotated train.jsonl --output match.json
    """
    from recipe.artifacts import require_writable, to_json, write_jsonl
    from recipe.config import EncoderConfig
    from recipe.corpus.encoders import open_encoder
    from recipe.data.examples import read_examples
    from recipe.evaluation.match import match_rows, match_scores, score_matches
    from recipe.evaluation.matching import StepMatcher
    from recipe.evaluation.scores import rows_path, write_scores
    from recipe.evaluation.validity.scores import select_plans
    from recipe.planning.predictions import read_predictions

    if output is not None:
        require_writable(output)
        require_writable(rows_path(output))
    wanted = read_examples(examples, split)
    known = read_examples(examples) if split else wanted
    labelled = [*known, *(example for path in annotated or () for example in read_examples(path))]
    selection = select_plans(wanted, read_predictions(predictions), None, known, missing)
    matcher = StepMatcher(open_encoder(EncoderConfig(name=encoder)).encode)
    settings = {
        "encoder": encoder,
        "chance": f"{matcher.scale.chance:.3f}",
        "same": f"{matcher.scale.same:.3f}",
        "floor": f"{matcher.floor:.3f}",
    }
    scored = score_matches(matcher, selection.examples, selection.predictions)
    scores = match_scores(system or predictions.stem, matcher, selection, scored, labelled, settings, seed)
    if output is not None:
        write_jsonl(rows_path(output), match_rows(matcher, selection, scored))
        write_scores(output, scores)
    if json:
        console.print_json(to_json(scores))
    else:
        console.print_table(_table(scores))


def _table(scores: "MatchScores") -> "Table":
    """The system and its controls, narrow enough for a terminal of 80 columns; the scores file holds all metrics."""
    from recipe.evaluation.match import MAIN
    from recipe.evaluation.metrics import metric_cell
    from recipe.report.elements import Table, headings, row

    def named(name: str, metrics: "dict[str, Interval]", difference: "Interval | None", section: str = "") -> "Row":
        unordered, _ = metric_cell(metrics["matched_f1"], "matched_f1").split()
        against = metric_cell(difference, MAIN, signed=True)
        return row(name, unordered, metric_cell(metrics[MAIN], MAIN), against, section=section)

    prompts = scores.metrics[MAIN].observations
    return Table(
        caption=f"matched step F1: {prompts} prompts, {scores.samples} samples each",
        first="plans",
        headings=headings("F1", "in order", "system minus control"),
        rows=(
            named(scores.system, scores.metrics, None),
            *(named(one.name, one.metrics, one.difference, "controls") for one in scores.controls),
        ),
        notes=tuple(_notes(scores)),
    )


def _notes(scores: "MatchScores") -> Iterator[str]:
    from recipe.evaluation.match import match_sentences

    yield from match_sentences(scores)
    prompts = max((one.prompts for one in scores.controls), default=0)
    for one in scores.controls:
        if one.prompts < prompts:
            yield f"The control {one.name!r} exists for {one.prompts:,} of {prompts:,} prompts."
    if scores.counts.missing:
        yield f"{scores.counts.missing:,} examples without a prediction count as empty plans."
    yield from (f"{name}: {value}" for name, value in scores.settings.items())
