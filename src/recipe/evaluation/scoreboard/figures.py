"""Figures of the evaluation report: a dot and its interval for every number, one colour a system, as inline SVG."""

from collections.abc import Collection, Iterator, Mapping, Sequence

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
from recipe.report.elements import Figure
from recipe.report.plots import Mark, Point, inline_svg, intervals, scatter
from recipe.stats import Interval

Colours = Mapping[str, str]
_GOALS = 40
"""Goals that are drawn at most: those where systems differ most."""


def accuracy_figures(results: JudgeResults, number: int, colours: Colours) -> list[Figure]:
    """Accuracy by dataset, macro averages and controls; and the six criteria."""
    marks = [
        Mark(dataset_name(dataset), one.accuracy, system.system)
        for dataset, split in results.datasets
        for system in results.scores
        for one in system.datasets
        if (one.dataset, one.split) == (dataset, split)
    ]
    marks += [
        Mark(f"{split_name(split)}, macro", one.accuracy, system.system)
        for split in results.splits
        for system in results.scores
        for one in system.macro
        if one.split == split and len(results.datasets) > 1
    ]
    controls = {one.name: one.accuracy for system in reversed(results.scores) for one in system.controls}
    marks += [Mark(f"control: {name}", accuracy) for name, accuracy in controls.items()]
    if is_papers(results.judge):
        marks += _published_accuracy({mark.row for mark in marks})
    criteria = [
        Mark(name, None if value is None else Interval(value), system.system)
        for system in results.scores
        for name, value in zip(CRITERION_NAMES.values(), criteria_means(system), strict=True)
    ]
    hollow = "; hollow: published, by the same judge" if is_papers(results.judge) else ""
    caption = f"Accuracy by dataset, percent, judge {results.name}: mean and 95% interval{hollow}."
    means = f"Criteria, 0 to {HIGHEST}, judge {results.name}: mean over datasets."
    accuracy = intervals(marks, colours=colours, xlim=(0, 100), unit="percent")
    return [
        Figure(inline_svg(accuracy, f"accuracy{number}", caption), caption),
        Figure(inline_svg(intervals(criteria, colours=colours, xlim=(0, HIGHEST)), f"criteria{number}", means), means),
    ]


def _published_accuracy(rows: Collection[str]) -> Iterator[Mark]:
    """The paper's values of the rows that it prints."""
    table = published("per_dataset")
    names = {normal(name): name for name in rows} | {
        key: f"{split_name(key)}, macro" for key in ("in-domain", "zero-shot")
    }
    for place, column in enumerate(table.columns):
        if names.get(column.key) in rows:
            for row in table.rows:
                yield Mark(names[column.key], Interval(row.values[place] or 0.0), hollow=True)


def differences_figures(found: Sequence[SystemDifference]) -> list[Figure]:
    """Every paired difference with its interval."""
    if not found:
        return []
    several = len({one.judge for one in found}) > 1
    marks = []
    for one in found:
        place = f" · {split_name(one.split)}" if one.split else ""
        by = f" · {one.judge}" if several else ""
        marks.append(Mark(f"{one.first} − {one.second}{place}{by}", one.result.difference))
    drawn = intervals(marks, colours={}, unit="points of accuracy", line=0)
    caption = "Paired differences with their 95% intervals; right of 0 the first is better."
    return [Figure(inline_svg(drawn, "differences", caption), caption)]


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
    points = [
        Point(f"{row.name}, published", Interval(row.values[0] or 0.0), Interval(row.values[1] or 0.0), hollow=True)
        for row in published("diversity").rows
    ]
    points += [
        Point(one.system, one.diversity, Interval(accuracy[one.system])) for one in found if one.system in accuracy
    ]
    drawn = scatter(
        points,
        colours=colours,
        xlabel="procedural diversity",
        ylabel="accuracy, percent",
        xlim=(0, 1),
        ylim=(0, 100),
    )
    caption = (
        f"Diversity, with its 95% interval, against accuracy by {judge}. Diamonds: the paper's three points on COIN, "
        "published, by other judges of both: not comparable in either direction."
    )
    return [Figure(inline_svg(drawn, "diversity", caption), caption)]


def vpa_figures(board: Board, colours: Colours) -> list[Figure]:
    """Mean accuracy at each horizon, with the published rows that calibrate the protocol or lead the table."""
    found = [scores for _, scores in board.of(VpaScores)]
    if not found:
        return []
    marks = [Mark(f"T={one.horizon}", one.accuracy, scores.system) for scores in found for one in scores.horizons]
    table = published("vpa")
    keys = [column.key for column in table.columns]
    for name in dict.fromkeys(mark.row for mark in marks):
        if (key := f"{name.removeprefix('T=')}.accuracy") in keys:
            values = [row.values[keys.index(key)] or 0.0 for row in table.rows if row.group == "zero-shot"]
            marks += [Mark(name, Interval(value), hollow=True) for value in values]
    drawn = intervals(marks, colours=colours, unit="mAcc, percent")
    caption = "Mean accuracy by horizon, 95% interval; grey: the published zero-shot rows."
    return [Figure(inline_svg(drawn, "vpa", caption), caption)]


def validity_figures(board: Board, colours: Colours) -> list[Figure]:
    """Validity with its components, and each goal's validity."""
    found = [scores for _, scores in board.of(ValidityScores)]
    if not found:
        return []
    names = ("score", "order", "coverage", "clean")
    parts = [Mark(METRICS[name], one.metrics.get(name), one.system) for name in names for one in found]
    caption = "Validity and its components, 95% interval."
    drawn = [Figure(inline_svg(intervals(parts, colours=colours, xlim=(0, 1)), "validity", caption), caption)]
    goals = {goal: [one.by_goal[goal] for one in found if goal in one.by_goal] for one in found for goal in one.by_goal}
    if goals:
        apart = sorted(goals, key=lambda goal: (min(goals[goal]) - max(goals[goal]), goal))[:_GOALS]
        marks = [
            Mark(goal, Interval(one.by_goal[goal]), one.system)
            for goal in sorted(apart, key=lambda goal: (sum(goals[goal]) / len(goals[goal]), goal))
            for one in found
            if goal in one.by_goal
        ]
        widest = f"the {len(apart)} of {len(goals)} goals where systems differ most"
        caption = f"Validity of {widest if len(apart) < len(goals) else 'each goal'}, the lowest first."
        drawn.append(Figure(inline_svg(intervals(marks, colours=colours, xlim=(0, 1)), "goals", caption), caption))
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
