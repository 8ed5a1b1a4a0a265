"""`recipe evaluate validity`: plans against task graphs."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from recipe.cli import console
from recipe.cli.evaluate import runner
from recipe.cli.reward_options import Config, Method, open_verifier


def validity(
    predictions: Annotated[Path, typer.Argument(help="Predictions, JSON lines.")],
    examples: runner.Examples,
    graphs: Annotated[
        Path | None,
        typer.Option(help="Task graphs: a JSON file, a folder of them, or CaptainCook4D. Default: the embedded world."),
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="With --graphs: encoder that matches lines: minilm, hash:256, hub id or folder.")
    ] = "minilm",
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="With --graphs: least similarity of a line to its step. Default: measured."),
    ] = None,
    split_lines: Annotated[
        bool, typer.Option("--split-lines", help="With --graphs: a line may name steps joined by 'and' or 'then'.")
    ] = False,
    split: runner.Split = "",
    missing: runner.MissingPlans = "zero",
    skip_goals: Annotated[
        bool, typer.Option("--skip-goals", help="Leave out examples whose goal has no task graph.")
    ] = False,
    verdicts: Annotated[
        list[Path] | None, typer.Option(help="A judge's scores or verdicts on the same plans, to compare with.")
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="Corpus folder: plans are rewarded, too.")] = None,
    method: Method = None,
    config: Config = None,
    output: runner.Output = None,
    system: runner.System = "",
    seed: runner.Seed = 0,
    as_json: runner.AsJson = False,
) -> None:
    """Score plans against their goals' task graphs, where every valid order is right: no judge, no network.

    Example: recipe evaluate validity predictions.jsonl --examples runs/demo/data/test.jsonl

    Example: recipe evaluate validity plans.jsonl --examples test.jsonl --graphs data/captaincook4d --output v.json
    """
    from recipe.artifacts import to_json
    from recipe.evaluation.validity.scores import (
        ValidityMeasure,
        agreement_sentence,
        agreement_with,
        agreements,
        read_judged,
    )
    from recipe.planning.rerank import reward_predictions

    runner.require_outputs(output)
    judges = [judge for path in verdicts or () for judge in read_judged(path)]
    measure = ValidityMeasure(graphs, None, encoder, threshold, split_lines)
    selection, _ = runner.read_plans(predictions, examples, split, "zero")
    kept, left_out = measure.known(selection.examples, skip_goals)
    selection = selection.of(kept, missing)
    if corpus is not None:
        verifier = open_verifier(corpus, config, method)
        rewarded = reward_predictions(verifier, selection.examples, selection.predictions, console.progress())
        selection = selection._replace(predictions=[*rewarded])
    scores, rows = runner.evaluate_plans(measure, selection, system or predictions.stem, seed, left_out)
    agreement = [to_json(agreement_with(judge, own, measure.scored, seed)) for judge, own in judges]
    if agreement:
        scores = replace(scores, extras=scores.extras | {"agreement": agreement})
        scores = replace(scores, findings=(*scores.findings, *map(agreement_sentence, agreements(scores))))
    runner.write_and_show(scores, rows, output, as_json)
