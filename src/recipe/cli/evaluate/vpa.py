"""`recipe evaluate vpa`: Visual Planning for Assistance on CrossTask."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recipe.cli import console
from recipe.cli.vpa.protocol_options import CrossTask, Order, ProtocolName, RuleName, TaxonomyName

if TYPE_CHECKING:
    from recipe.evaluation.vpa.run import Result, Task
    from recipe.planning.admissible import Embed


def vpa(
    root: CrossTask,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Score what needs no model: random, random-goal, or unigram, ranked, bigram, each also as goal-..."
        ),
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="Score predictions for the examples of `recipe vpa examples`, JSON lines.")
    ] = None,
    encoder: Annotated[str, typer.Option(help="Maps steps to actions: minilm, hash:256, hub id or folder.")] = "minilm",
    within_goal: Annotated[
        bool, typer.Option("--within-goal", help="Map to the actions of the goal's card alone, which is easier.")
    ] = False,
    margin: Annotated[float, typer.Option(min=0, max=2, help="Report the share of steps mapped by less.")] = 0.05,
    history: Annotated[str, typer.Option(help="Where the planner's histories are from, for the table.")] = "oracle",
    system: Annotated[str, typer.Option(help="Name in tables; by default the file's or the baseline's.")] = "",
    supervised: Annotated[bool, typer.Option("--supervised", help="The planner was trained on CrossTask.")] = False,
    protocol: ProtocolName = "shared",
    rule: RuleName = "vlamp",
    order: Order = "file",
    taxonomy: TaxonomyName = "105",
    training: Annotated[
        Literal["train", "train+validation"], typer.Option(help="Videos that baselines are counted in.")
    ] = "train+validation",
    draws: Annotated[int, typer.Option(min=1, help="Random plans of each sample.")] = 150,
    seed: Annotated[int, typer.Option(help="Seed of random plans and of the bootstrap.")] = 0,
    show_published: Annotated[
        bool, typer.Option("--published/--no-published", help="Show the paper's rows beside the results.")
    ] = True,
    output: Annotated[
        Path | None, typer.Option(help="Scores file to write, JSON; its rows go beside it as X.rows.jsonl.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score plans over CrossTask's actions: success rate, accuracy and IoU of the next 1, 3 and 4 actions.

    Steps in free words are taken for the nearest action. Every run says whether its protocol is calibrated.

    Example: recipe evaluate vpa --root data --baseline random-goal --json

    Example: recipe evaluate vpa --root data --predictions plans.jsonl --system mine --output vpa.json
    """
    from dataclasses import replace

    from recipe.artifacts import require_writable, write_jsonl
    from recipe.evaluation.scores import rows_path, write_scores
    from recipe.evaluation.vpa.run import open_task, run_baseline, run_predictions
    from recipe.planning.predictions import read_predictions

    if (baseline is None) == (predictions is None):
        raise typer.BadParameter("give one of --baseline and --predictions.", param_hint="--baseline")
    if output is not None:
        require_writable(output)
    task = open_task(root, protocol, rule, order, taxonomy == "133", training)
    if baseline is not None:
        result = run_baseline(task, baseline, seed, draws)
    elif predictions is not None:
        result = run_predictions(
            task, read_predictions(predictions), lambda: _embed(encoder), system or predictions.stem, history,
            within_goal, margin, {"encoder": encoder}, supervised, seed,
        )  # fmt: skip
    if system:
        result = result._replace(scores=replace(result.scores, system=system))
    if output is not None:
        write_scores(output, result.scores)
        write_jsonl(rows_path(output), result.rows)
    _show(task, result, show_published, json)


def _embed(name: str) -> "Embed":
    from functools import partial

    from recipe.config import EncoderConfig
    from recipe.corpus.encoders import open_encoder

    return partial(open_encoder(EncoderConfig(name=name)).encode, progress=console.progress())


def _show(task: "Task", result: "Result", show_published: bool, json: bool) -> None:
    from recipe.cli.evaluate.vpa_table import show_scores
    from recipe.evaluation.results import to_json
    from recipe.evaluation.vpa.beside import beside

    found = beside(task, result.scores)
    if json:
        rows = [row._asdict() for row in found.rows if show_published or not row.published]
        calibration = {"calibrated": found.calibration.calibrated, "apart": found.calibration.apart}
        console.print_json(
            to_json(result.scores)
            | {"calibration": calibration | {"sentence": found.calibration.sentence}, "beside": rows}
        )
    else:
        show_scores(result.scores, found, show_published)
