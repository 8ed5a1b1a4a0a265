"""How the result of `recipe evaluate vpa` is shown: one table with what it is read against, then what to know of it."""

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from recipe.cli import console

if TYPE_CHECKING:
    from recipe.evaluation.results import Interval
    from recipe.evaluation.scores import VpaScores
    from recipe.evaluation.vpa.beside import Beside

_MEASURES = {"success_rate": "SR", "accuracy": "mAcc", "iou": "mIoU"}


def show_scores(scores: "VpaScores", found: "Beside", show_published: bool) -> None:
    """Print the result, what stands beside it, its intervals, and the sentences that go with it."""
    from recipe.evaluation.vpa.beside import figures_of

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
