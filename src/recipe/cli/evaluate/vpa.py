"""`recipe evaluate vpa`: Visual Planning for Assistance on CrossTask."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from recipe.cli import console
from recipe.cli.vpa import CrossTask, Order, ProtocolName, RuleName, TaxonomyName

if TYPE_CHECKING:
    from recipe.evaluation.scores import VpaScores
    from recipe.evaluation.vpa.run import Beside, Result, Task
    from recipe.planning.admissible import Embed
    from recipe.stats import Interval

# How the result of `recipe evaluate vpa` is shown: one table with what it is read against, then what to know of it.


_MEASURES = {"success_rate": "SR", "accuracy": "mAcc", "iou": "mIoU"}


def show_scores(scores: "VpaScores", found: "Beside", show_published: bool) -> None:
    """Print the result, what stands beside it, its intervals, and the sentences that go with it."""
    from recipe.evaluation.vpa.run import figures_of

    groups: dict[str, list[str]] = {}
    for column in found.columns.columns:
        groups.setdefault(column.group, []).append(column.key)
    table = Table(title=f"CrossTask, {scores.protocol} protocol, {scores.taxonomy} actions, percent")
    table.add_column("system", overflow="fold")
    for group, keys in groups.items():
        names = "".join(f"{_MEASURES[key.partition('.')[2]]:>5}" for key in keys)
        table.add_column(f"{group}\n{names}", justify="right", no_wrap=True)
    kind = ", supervised" if scores.supervised else ""
    _add(table, groups, f"[bold]{escape(scores.system)}[/]{kind}", figures_of(scores))
    section = ""
    for row in found.rows:
        if row.published and not show_published:
            continue
        heading = f"published, {row.group}" if row.published else "on the same samples"
        if heading != section:
            table.add_section()
            table.add_row(f"[italic]{heading}[/]")
            section = heading
        _add(table, groups, escape(row.system), row.figures)
    console.out.print(table)
    for line in (*_intervals(scores), *_sentences(scores, found, show_published)):
        console.out.print(line, highlight=False, markup=False, soft_wrap=True)


def _add(table: Table, groups: dict[str, list[str]], name: str, figures: dict[str, float]) -> None:
    cells = ("".join(f"{figures[key]:5.1f}" if key in figures else "     " for key in keys) for keys in groups.values())
    table.add_row(name, *cells)


def _intervals(scores: "VpaScores") -> list[str]:
    lines = []
    for one in scores.horizons:
        measured = (one.success_rate, one.accuracy, one.iou)
        bounds = ", ".join(f"{name} {_bounds(value)}" for name, value in zip(_MEASURES.values(), measured, strict=True))
        lines.append(f"T={one.horizon}: {one.samples:,} samples of {one.videos:,} videos; 95% intervals: {bounds}")
    return lines


def _bounds(value: "Interval") -> str:
    return "none" if value.low is None or value.high is None else f"{value.low:.1f} to {value.high:.1f}"


def _sentences(scores: "VpaScores", found: "Beside", show_published: bool) -> list[str]:
    lines = [found.calibration.sentence]
    if show_published:
        lines.append("Most Probable is shown as published; no baseline here reproduces those rows.")
    if scores.history == "oracle":
        lines.append("The true history was read; published systems read one that was told from the video.")
    if scores.settings.get("admissible actions") == "the goal's card":
        lines.append("Steps were mapped to the goal's card alone, which is easier than mapping to all actions.")
    return lines + _mapping(scores.remap)


def _mapping(counts: dict[str, float]) -> list[str]:
    if not counts:
        return []
    line = f"{counts['steps']:,.0f} steps read, {counts['steps_that_are_actions']:,.0f} of them actions as they are"
    if "mean_margin" in counts:
        share = f"{100 * counts['share_below_margin']:.0f} % below {counts['margin_asked_for']:g}"
        line += f"; mean margin of the others {counts['mean_margin']:.3f}, {share}"
    short = (
        f"{counts['missing_predictions']:,.0f} samples without a prediction, {counts['empty_plans']:,.0f} empty plans, "
        f"{counts['shorter_plans']:,.0f} shorter than the largest T: missing positions are wrong"
    )
    return [line, short]


# `recipe evaluate vpa`: Visual Planning for Assistance on CrossTask.


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
    from recipe.artifacts import to_json
    from recipe.evaluation.vpa.run import beside

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
