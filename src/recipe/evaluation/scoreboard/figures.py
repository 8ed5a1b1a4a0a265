"""Figures of the evaluation report: a dot and its interval for every number, one colour a system, as inline SVG."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from recipe.errors import MissingExtra
from recipe.evaluation.judge.verdicts import HIGHEST
from recipe.evaluation.metrics import METRICS
from recipe.evaluation.published import published
from recipe.evaluation.scoreboard.accuracy import (
    CRITERION_NAMES,
    JudgeResults,
    criteria_means,
    dataset_name,
    is_papers,
    normal,
    overall,
    split_name,
)
from recipe.evaluation.scoreboard.differences import SystemDifference
from recipe.evaluation.scoreboard.sources import Board
from recipe.evaluation.scores import DiversityScores, ValidityScores, VpaScores
from recipe.report.colours import INK, MUTED, RULE
from recipe.report.elements import Figure
from recipe.report.html import shown
from recipe.report.plots import MARKERS, STYLE, inline_svg, new_figure
from recipe.stats import Interval

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn
except ModuleNotFoundError as error:
    raise MissingExtra("the report", "report") from error

Colours = Mapping[str, str]
Rows = dict[str, dict[str, Interval]]
"""Rows of a figure by name and system."""
_STYLE = STYLE | {"text.parse_math": False}
"""Names of systems are no formulas."""
_NAME = 60
"""Characters of a name beside a figure."""
_CAPTION = 600
_SPARE = 0.015
"""Room beyond the ends of a scale, for dots on them."""
_WIDTH, _ROW, _GAP = 7.6, 0.2, 0.62
_BAND = 0.5
"""Part of a row's height that its systems share."""
_GOALS = 40
"""Goals that are drawn at most: those where systems differ most."""


def accuracy_figures(results: JudgeResults, number: int, colours: Colours) -> list[Figure]:
    """Accuracy by dataset, macro averages and controls; and the six criteria."""
    datasets = _rows(
        (dataset_name(dataset), system.system, one.accuracy)
        for dataset, split in results.datasets
        for system in results.scores
        for one in system.datasets
        if (one.dataset, one.split) == (dataset, split)
    )
    macro = _rows(
        (f"{split_name(split)}, macro", system.system, one.accuracy)
        for split in results.splits
        for system in results.scores
        for one in system.macro
        if one.split == split and len(results.datasets) > 1
    )
    controls = _rows((f"control: {one.name}", "", one.accuracy) for system in results.scores for one in system.controls)
    rows = datasets | macro | controls
    criteria: Rows = {name: {} for name in CRITERION_NAMES.values()} | _rows(
        (name, system.system, None if value is None else Interval(value))
        for system in results.scores
        for name, value in zip(CRITERION_NAMES.values(), criteria_means(system), strict=True)
    )
    hollow = "; hollow: published, by the same judge" if is_papers(results.judge) else ""
    caption = f"Accuracy by dataset, percent, judge {results.name}: mean and 95% interval{hollow}."
    means = f"Criteria, 0 to {HIGHEST}, judge {results.name}: mean over datasets."
    return [
        _figure(
            _intervals(rows, colours, (0, 100), "percent", _hollow(results, list(rows))), f"accuracy{number}", caption
        ),
        _figure(_intervals(criteria, colours, (0, HIGHEST), "", {}), f"criteria{number}", means),
    ]


def _rows(values: Iterable[tuple[str, str, Interval | None]]) -> Rows:
    """Rows of (row, system, interval) by name and system; values that are not known are left out."""
    rows: Rows = {}
    for name, system, value in values:
        if value is not None:
            rows.setdefault(name, {}).setdefault(system, value)
    return rows


def _hollow(results: JudgeResults, rows: Sequence[str]) -> dict[str, list[float]]:
    """The paper's values of each row, where the judge is the paper's."""
    if not is_papers(results.judge):
        return {}
    table = published("per_dataset")
    names = {normal(name): name for name in rows} | {
        key: f"{split_name(key)}, macro" for key in ("in-domain", "zero-shot")
    }
    return {
        names[column.key]: [row.values[place] or 0.0 for row in table.rows]
        for place, column in enumerate(table.columns)
        if names.get(column.key) in rows
    }


def differences_figures(found: Sequence[SystemDifference]) -> list[Figure]:
    """Every paired difference with its interval."""
    if not found:
        return []
    several = len({one.judge for one in found}) > 1
    rows = {}
    for one in found:
        place = f" · {split_name(one.split)}" if one.split else ""
        by = f" · {one.judge}" if several else ""
        rows[f"{one.first} − {one.second}{place}{by}"] = {"": one.result.difference}
    drawn = _intervals(rows, {}, None, "points of accuracy", {}, zero=True)
    caption = "Paired differences with their 95% intervals; right of 0 the first is better."
    return [_figure(drawn, "differences", caption)]


@mpl.rc_context(_STYLE)
def diversity_figures(board: Board, judges: Sequence[JudgeResults], colours: Colours) -> list[Figure]:
    """Diversity against accuracy, beside the paper's three points.

    The judge of accuracy is the one of most of the systems; on COIN, where it is known, as in the paper.
    """
    found = [scores for _, scores in board.of(DiversityScores)]
    names = {scores.system for scores in found}
    known = [(results.name, accuracy_of(results, "coin")) for results in judges]
    judge, accuracy = max(known, key=lambda one: len(names & one[1].keys()), default=("", {}))
    if not names & accuracy.keys():
        return []
    drawn = new_figure(_WIDTH, 3.8)
    axes = drawn.subplots()
    table = published("diversity")
    for row in table.rows:
        x, y = (value or 0.0 for value in row.values)
        axes.plot(x, y, "D", mfc="none", mec=MUTED, ms=7)
        axes.annotate(f"{row.name}, published", (x, y), (7, -3), textcoords="offset points", color=MUTED, fontsize=8.5)
    for one in found:
        if (height := accuracy.get(one.system)) is None:
            continue
        colour = colours.get(one.system, INK)
        if one.diversity.low is not None and one.diversity.high is not None:
            axes.plot([one.diversity.low, one.diversity.high], [height, height], color=colour, lw=1.6)
        axes.plot(one.diversity.mean, height, "o", color=colour, ms=7)
        axes.annotate(
            shown(one.system, _NAME), (one.diversity.mean, height), (7, 5), textcoords="offset points", color=colour
        )
    axes.set(xlim=(0, 1), ylim=(0, 100), xlabel="procedural diversity", ylabel="accuracy, percent")
    caption = (
        f"Diversity, with its 95% interval, against accuracy by {judge}. Diamonds: the paper's three points on COIN, "
        "published, by other judges of both: not comparable in either direction."
    )
    return [_figure(drawn, "diversity", caption)]


def vpa_figures(board: Board, colours: Colours) -> list[Figure]:
    """Mean accuracy at each horizon, with the published rows that calibrate the protocol or lead the table."""
    found = [scores for _, scores in board.of(VpaScores)]
    if not found:
        return []
    rows = _rows((f"T={one.horizon}", scores.system, one.accuracy) for scores in found for one in scores.horizons)
    table = published("vpa")
    hollow = {}
    for name in rows:
        key = f"{name.removeprefix('T=')}.accuracy"
        keys = [column.key for column in table.columns]
        if key in keys:
            hollow[name] = [row.values[keys.index(key)] or 0.0 for row in table.rows if row.group == "zero-shot"]
    drawn = _intervals(rows, colours, None, "mAcc, percent", hollow)
    return [_figure(drawn, "vpa", "Mean accuracy by horizon, 95% interval; grey: the published zero-shot rows.")]


def validity_figures(board: Board, colours: Colours) -> list[Figure]:
    """Validity with its components, and each goal's validity."""
    found = [scores for _, scores in board.of(ValidityScores)]
    if not found:
        return []
    names = ("score", "order", "coverage", "clean")
    parts = _rows((METRICS[name], one.system, one.metrics.get(name)) for name in names for one in found)
    drawn = [
        _figure(_intervals(parts, colours, (0, 1), "", {}), "validity", "Validity and its components, 95% interval.")
    ]
    goals = {goal: [one.by_goal[goal] for one in found if goal in one.by_goal] for one in found for goal in one.by_goal}
    if goals:
        apart = sorted(goals, key=lambda goal: (min(goals[goal]) - max(goals[goal]), goal))[:_GOALS]
        rows = {
            goal: {one.system: Interval(one.by_goal[goal]) for one in found if goal in one.by_goal}
            for goal in sorted(apart, key=lambda goal: (sum(goals[goal]) / len(goals[goal]), goal))
        }
        widest = f"the {len(apart)} of {len(goals)} goals where systems differ most"
        caption = f"Validity of {widest if len(apart) < len(goals) else 'each goal'}, the lowest first."
        drawn.append(_figure(_intervals(rows, colours, (0, 1), "", {}), "goals", caption))
    return drawn


def accuracy_of(results: JudgeResults, dataset: str = "") -> dict[str, float]:
    """Accuracy by system: on one dataset where it is known, else over all plans."""
    found = {}
    for system in results.scores:
        on_dataset = [one for one in system.datasets if normal(one.dataset) == dataset]
        value = overall(on_dataset or system.datasets)
        if value is not None:
            found[system.system] = value
    return found


@mpl.rc_context(_STYLE)
def _intervals(
    rows: Mapping[str, Mapping[str, Interval]],
    colours: Colours,
    limits: tuple[float, float] | None,
    label: str,
    hollow: Mapping[str, Sequence[float]],
    zero: bool = False,
) -> Drawn:
    """One line of dots for each row, one dot with its interval for each system, grey diamonds for `hollow` values."""
    systems = list(dict.fromkeys(system for values in rows.values() for system in values if system))
    each = max(1, len(systems))
    drawn = new_figure(_WIDTH, _GAP + len(rows) * (0.14 + _ROW * each**0.75) + 0.25 * (len(systems) > 1))
    axes = drawn.subplots()
    for line, (name, values) in enumerate(rows.items()):
        for other in hollow.get(name, ()):
            axes.plot(other, line, "D", mfc="none", mec=MUTED, ms=5, lw=1)
        for system, value in values.items():
            offset = (systems.index(system) - (each - 1) / 2) * _BAND / each if system else 0.0
            _draw(axes, value, line + offset, colours.get(system, INK), MARKERS[0])
    axes.set_yticks(range(len(rows)), [shown(name, _NAME) for name in rows], color=INK)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    for line in range(1, len(rows)):
        axes.axhline(line - 0.5, color=RULE, lw=0.6)
    if zero:
        axes.axvline(0, color=MUTED, lw=1)
    if limits is not None:
        spare = _SPARE * (limits[1] - limits[0])
        axes.set_xlim(limits[0] - spare, limits[1] + spare)
    axes.set_xlabel(label)
    if len(systems) > 1:
        _legend(drawn, systems, colours)
    return drawn


def _draw(axes: Axes, value: Interval, height: float, colour: str, marker: str) -> None:
    if value.low is not None and value.high is not None:
        axes.plot([value.low, value.high], [height, height], color=colour, lw=1.8)
    axes.plot(value.mean, height, marker, color=colour, ms=5.5)


def _legend(drawn: Drawn, systems: Sequence[str], colours: Colours) -> None:
    marks = [
        mpl.lines.Line2D([], [], color=colours.get(one, INK), marker="o", lw=1.8, label=shown(one, _NAME))
        for one in systems
    ]
    drawn.legend(handles=marks, loc="outside upper left", ncols=4, frameon=False, fontsize=8.5)


def _figure(drawn: Drawn, name: str, caption: str) -> Figure:
    with warnings.catch_warnings():
        # Text stays text in the SVG, and the reader's fonts have more letters than the one it is measured by.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        return Figure(inline_svg(drawn, name, escape(shown(caption, _CAPTION))), caption)
