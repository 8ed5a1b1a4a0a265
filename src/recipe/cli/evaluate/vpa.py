"""`recipe evaluate vpa`: Visual Planning for Assistance on CrossTask."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recipe.cli import console
from recipe.cli.console import CommandOutput
from recipe.cli.evaluate.runner import PlanOptions, measure_command, open_embed
from recipe.cli.vpa import CrossTask

if TYPE_CHECKING:
    from recipe.evaluation.scores import Scores
    from recipe.evaluation.vpa.run import ReferenceRow
    from recipe.report.elements import Table

_MEASURES = {"success_rate": "SR", "accuracy": "mAcc", "iou": "mIoU"}


@measure_command("predictions", "examples", "split", "missing")
def vpa(
    plans: PlanOptions,
    root: CrossTask,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Score a baseline: random, random-goal, or unigram, ranked, bigram, each of these also as goal-..."
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
    supervised: Annotated[bool, typer.Option("--supervised", help="The planner was trained on CrossTask.")] = False,
    training: Annotated[
        Literal["train", "train+validation"], typer.Option(help="Videos that baselines are counted in.")
    ] = "train+validation",
    draws: Annotated[int, typer.Option(min=1, help="Random plans of each sample.")] = 150,
    show_published: Annotated[
        bool, typer.Option("--published/--no-published", help="Show the paper's rows next to the results.")
    ] = True,
) -> CommandOutput:
    """Score plans over CrossTask's actions: success rate, accuracy and IoU of the next 1, 3 and 4 actions.

    Steps in free words are mapped to the nearest action. Every run reports whether its protocol is calibrated.

    Example: recipe evaluate vpa --root data --baseline random-goal --json

    Example: recipe evaluate vpa --root data --predictions plans.jsonl --system mine --output vpa.json
    """
    from functools import partial

    from recipe.artifacts import to_json
    from recipe.evaluation.measures import select_plans, summarise
    from recipe.evaluation.scores import rows_path, write_rows, write_scores
    from recipe.evaluation.vpa.baselines import FLOORS
    from recipe.evaluation.vpa.run import VpaMeasure, open_task
    from recipe.models.sampling import Decoding
    from recipe.planning.prediction_files import read_predictions

    if (baseline is None) == (predictions is None):
        raise typer.BadParameter("give one of --baseline and --predictions.", param_hint="--baseline")

    embed = partial(open_embed, encoder, progress=console.progress())
    task, seed = open_task(root, training), plans.seed
    examples, decoding = [sample.example() for sample in task.samples], tuple[Decoding, ...]()
    if baseline is not None:
        past = "oracle" if baseline.endswith("bigram") else ""
        measure = VpaMeasure(task, embed, history=past, supervised=baseline in FLOORS)
        rows, name = measure.baseline_rows(baseline, seed, draws), baseline
        if baseline not in FLOORS:
            measure.settings["draws"] = str(draws)
            del measure.settings["training"]
    elif predictions is not None:
        measure = VpaMeasure(task, embed, encoder, history, within_goal, margin, supervised)
        planned = read_predictions(predictions)
        rows, name = measure.rows(examples, planned), predictions.stem
        decoding = select_plans(examples, planned, task.cuts).first().decoding
    measure.settings["seed"] = str(seed)
    scores = summarise(measure, plans.system or name, rows, examples, seed, decoding=decoding)
    if plans.output is not None:
        write_rows(rows_path(plans.output), rows)
        write_scores(plans.output, scores)
    calibration = task.calibration
    others = [row for row in task.references(scores.system) if show_published or not row.published]
    shown = {"calibrated": calibration.calibrated, "apart": calibration.apart, "sentence": calibration.sentence}
    beside = [row._asdict() for row in others]
    value = to_json(scores) | {"calibration": shown, "beside": beside}
    return CommandOutput(value, [_table(scores, others, show_published)])


def _table(scores: "Scores", others: "list[ReferenceRow]", show_published: bool) -> "Table":
    """The result above the rows that it is read against; intervals and warnings as notes."""
    from recipe.evaluation.published import published
    from recipe.evaluation.vpa.protocol import HORIZONS
    from recipe.report.elements import Cell, Heading, Table, row

    columns = published("vpa").columns
    figures = {name: value.mean for name, value in scores.overall.values.items()}
    supervised = ", supervised" * scores.extras["supervised"]
    rows = [row(f"{scores.system}{supervised}", *(figures.get(column.key) for column in columns))]
    for other in others:
        section = f"published, {other.group}" if other.published else "on the same samples"
        cells = (Cell(other.figures.get(column.key), 1) for column in columns)
        rows.append(row(other.system, *cells, section=section))

    notes = list[str]()
    for horizon in HORIZONS:
        values = {short: scores.overall.values.get(f"{horizon}.{name}") for name, short in _MEASURES.items()}
        bounds = ", ".join(f"{name} {Cell(value).small or 'none'}" for name, value in values.items())
        if (mean := values["mAcc"]) is not None:
            samples = f"{mean.observations:,} samples of {mean.clusters:,} videos"
            notes.append(f"T={horizon}: {samples}; 95% intervals: {bounds}")
    notes.append(scores.settings["calibration"])
    if show_published:
        notes.append("Most Probable is shown as published; no baseline here reproduces those rows.")
    if scores.settings["history"] == "oracle":
        notes.append("The true history was read; published systems read a history from the video.")
    if scores.settings.get("admissible actions") == "the goal's card":
        notes.append("Steps were mapped to the goal's card alone, which is easier than mapping to all actions.")
    if counts := scores.extras.get("remap", {}):
        line = f"{counts['steps']:,.0f} steps read, {counts['steps_that_are_actions']:,.0f} of them actions as they are"
        if "mean_margin" in counts:
            share = f"{100 * counts['share_below_margin']:.0f} % below {counts['margin_asked_for']:g}"
            line += f"; mean margin of the others {counts['mean_margin']:.3f}, {share}"
        notes.append(line)
        missing = (
            f"{counts['missing_predictions']:,.0f} samples without a prediction, {counts['empty_plans']:,.0f} empty"
        )
        shorter = f"{counts['shorter_plans']:,.0f} shorter than the largest T: missing positions are wrong"
        notes.append(f"{missing} plans, {shorter}")

    return Table(
        caption=f"CrossTask, {scores.identity['taxonomy']} actions, percent",
        first="system",
        headings=tuple(Heading(_MEASURES[column.key.partition(".")[2]], column.group) for column in columns),
        rows=tuple(rows),
        notes=tuple(notes),
    )
