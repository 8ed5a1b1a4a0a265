"""Figures of the evaluation report: a dot and its interval for every number, one colour a system, as inline SVG."""

import warnings
from collections.abc import Mapping, Sequence
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


def accuracy_figures(bench: JudgeResults, number: int, colours: Colours) -> list[Figure]:
    """Accuracy by dataset, and the six criteria."""
    by_dataset = _interval_rows(bench)
    caption = (
        f"Accuracy by dataset, percent, judge {bench.name}: mean and 95% interval"
        f"{'; hollow: published, by the same judge' if is_papers(bench.judge) else ''}."
    )
    drawn = _intervals(by_dataset, colours, (0, 100), "percent", _hollow(bench, list(by_dataset)))
    criteria: dict[str, dict[str, Interval]] = {name: {} for name in CRITERION_NAMES.values()}
    for system in bench.scores:
        for name, value in zip(criteria, criteria_means(system), strict=True):
            if value is not None:
                criteria[name][system.system] = Interval(value)
    lines = f"Criteria, 0 to {HIGHEST}, judge {bench.name}: mean over datasets."
    dots = _intervals(criteria, colours, (0, HIGHEST), "", {})
    return [
        _figure(drawn, f"accuracy{number}", caption),
        _figure(dots, f"criteria{number}", lines),
    ]


def _interval_rows(bench: JudgeResults) -> dict[str, dict[str, Interval]]:
    """Row name to system to interval: datasets, then macro averages, then controls."""
    rows: dict[str, dict[str, Interval]] = {}
    for dataset, split in bench.datasets:
        for system in bench.scores:
            for one in system.datasets:
                if (one.dataset, one.split) == (dataset, split) and one.accuracy is not None:
                    rows.setdefault(dataset_name(dataset), {})[system.system] = one.accuracy
    for split in bench.splits if len(bench.datasets) > 1 else ():
        for system in bench.scores:
            for macro in system.macro:
                if macro.split == split:
                    rows.setdefault(f"{split_name(split)}, macro", {})[system.system] = macro.accuracy
    for system in bench.scores:
        for control in system.controls:
            if control.accuracy is not None:
                rows.setdefault(f"control: {control.name}", {}).setdefault("", control.accuracy)
    return rows


def _hollow(bench: JudgeResults, rows: Sequence[str]) -> dict[str, list[float]]:
    """The paper's values of each row, where the judge is the paper's."""
    if not is_papers(bench.judge):
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


def differences_figure(found: Sequence[SystemDifference]) -> Figure:
    """Every paired difference with its interval."""
    several = len({one.judge for one in found}) > 1
    rows = {}
    for one in found:
        place = f" · {split_name(one.split)}" if one.split else ""
        by = f" · {one.judge}" if several else ""
        rows[f"{one.first} − {one.second}{place}{by}"] = {"": one.result.difference}
    drawn = _intervals(rows, {}, None, "points of accuracy", {}, zero=True)
    return _figure(drawn, "differences", "Paired differences with their 95% intervals; right of 0 the first is better.")


@mpl.rc_context(_STYLE)
def diversity_figure(
    found: Sequence[DiversityScores], judge: str, accuracy: Mapping[str, float], colours: Colours
) -> Figure:
    """Diversity against accuracy by a judge, in percent by system; the paper's three points apart."""
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
    return _figure(drawn, "diversity", caption)


def vpa_figure(found: Sequence[VpaScores], colours: Colours) -> Figure:
    """Mean accuracy at each horizon, with the published rows that calibrate the protocol or lead the table."""
    rows: dict[str, dict[str, Interval]] = {}
    for scores in found:
        for one in scores.horizons:
            rows.setdefault(f"T={one.horizon}", {})[scores.system] = one.accuracy
    table = published("vpa")
    hollow = {}
    for name in rows:
        key = f"{name.removeprefix('T=')}.accuracy"
        keys = [column.key for column in table.columns]
        if key in keys:
            hollow[name] = [row.values[keys.index(key)] or 0.0 for row in table.rows if row.group == "zero-shot"]
    drawn = _intervals(rows, colours, None, "mAcc, percent", hollow)
    return _figure(drawn, "vpa", "Mean accuracy by horizon, 95% interval; grey: the published zero-shot rows.")


def validity_figures(found: Sequence[ValidityScores], colours: Colours) -> list[Figure]:
    """Validity with its components, and each goal's validity."""
    parts: dict[str, dict[str, Interval]] = {}
    for name in ("score", "order", "coverage", "clean"):
        for one in found:
            if name in one.metrics:
                parts.setdefault(METRICS[name], {})[one.system] = one.metrics[name]
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
        shown = (
            f"the {len(apart)} of {len(goals)} goals where systems differ most"
            if len(apart) < len(goals)
            else "each goal"
        )
        caption = f"Validity of {shown}, the lowest first."
        drawn.append(_figure(_intervals(rows, colours, (0, 1), "", {}), "goals", caption))
    return drawn


def accuracy_of(bench: JudgeResults, dataset: str = "") -> dict[str, float]:
    """Accuracy by system: on one dataset where it is known, else over all plans."""
    found = {}
    for system in bench.scores:
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
