"""`recipe evaluate match`: plans against annotated continuations, beside controls."""

from pathlib import Path
from typing import Annotated

import typer

from recipe.cli.evaluate import runner


def match(
    predictions: Annotated[Path, typer.Argument(help="Predictions, JSON lines.")],
    examples: runner.Examples,
    annotated: Annotated[
        list[Path] | None,
        typer.Option(help="More examples whose steps the control of labels draws from, such as those of training."),
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="Encoder that matches lines: minilm, hash:256, hub id or folder.")
    ] = "minilm",
    split: runner.Split = "",
    missing: runner.MissingPlans = "zero",
    output: runner.Output = None,
    system: runner.System = "",
    seed: runner.Seed = 0,
    as_json: runner.AsJson = False,
) -> None:
    """Compare plans with the annotated continuation, step by step, beside plans that are no planner's: no judge.

    Example: recipe evaluate match predictions.jsonl --examples test.jsonl

    Example: recipe evaluate match plans.jsonl --examples test.jsonl --annotated train.jsonl --output match.json
    """
    from recipe.data.examples import read_examples
    from recipe.evaluation.match import MatchMeasure

    runner.require_outputs(output)
    selection, known = runner.read_plans(predictions, examples, split, missing)
    labelled = [*known, *(example for path in annotated or () for example in read_examples(path))]
    measure = MatchMeasure(encoder=encoder, annotated=labelled, seed=seed)
    scores, rows = runner.evaluate_plans(measure, selection, system or predictions.stem, seed)
    runner.write_and_show(scores, rows, output, as_json)
