"""Figures of an experiment's report: its marks and lines for `report.plots`, and drift and lengths."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recipe.artifacts import atomic_path, fingerprint, to_json
from recipe.errors import InputError, MissingExtra
from recipe.evaluation.metrics import METRICS, REWARDS, Difference, regime_colours
from recipe.evaluation.validity.measure import PlanLengths, Reranking
from recipe.report.colours import DARK_GREY, GREEN, INK, MUTED
from recipe.report.plots import DASHED, STYLE, Line, Mark, curves, intervals, name_ends, new_figure
from recipe_studies.experiments.results import NAMES, SPLITS, Curve, Results, ValidationCurve, load_results

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.ticker import MaxNLocator
except ModuleNotFoundError as error:
    raise MissingExtra("the report", "report") from error

DRIFT = "root of the KL of a plan, √nats"
SERIES = {
    "validity": "exact validity",
    "matched_f1": "matched step F1 with the reference",
    "f1": "step F1 with the reference",
    "length": "steps in a plan",
    "reward": "reward, each its own",
    "copied": "share copied from the history",
    "repeated": "share repeated in the plan",
    "clipped": "share cut at the token limit",
}
"""Series of curves in the order of their panels, with their names in words."""
SERIES_OF_ONE_RUN = SERIES | {"reward": "reward", "kl": "KL to the reference policy", "gated": "share below the gate"}
KEY_SERIES = {"validity": "exact validity", "reward": "reward, each its own", "length": "steps in a plan"}
"""Series of the picture that a page begins with."""
CHANGES = ("score", "matched_f1", "matched_ordered_f1", "f1", "ordered_f1", "coverage", "clean", "steps", "repeats")
"""Metrics whose paired differences are drawn, one panel each, where they are known."""


def means_figure(results: Results, part: Figure | SubFigure | None = None) -> Figure:
    """Mean and interval of the main metric by regime, one panel a split."""
    metric = results.main_metric()
    marks = [
        Mark(row.regime, row.metrics[metric], panel=SPLITS.get(row.split, row.split))
        for row in (*results.scores, *results.controls)
        if metric in row.metrics
    ]
    colours = regime_colours(mark.row for mark in marks)
    return intervals(
        marks, colours=colours, unit=METRICS.get(metric, metric), digits=3 if metric == "reward" else 2, part=part
    )


def differences_figure(differences: Sequence[Difference], metrics: Sequence[str] = CHANGES) -> Figure | None:
    """Paired differences to the baseline, one panel a metric; None where there are none to draw."""
    splits = {change.split for change in differences}
    marks = [
        Mark(row.regime, row.value, SPLITS.get(row.split, row.split) if len(splits) > 1 else "", METRICS[name])
        for name in metrics
        for row in differences
        if row.metric == name
    ]
    return intervals(marks, colours=regime_colours(mark.row for mark in marks), line=0) if marks else None


def seeds_figure(by_seed: Sequence[Difference], metric: str) -> Figure | None:
    """The change of a metric by every run alone, one panel a split and one row a regime; None without such runs."""
    marks = [
        Mark(row.regime, row.value, panel=SPLITS.get(row.split, row.split)) for row in by_seed if row.metric == metric
    ]
    colours = regime_colours(mark.row for mark in marks)
    return intervals(marks, colours=colours, unit=f"change of {METRICS[metric]}", line=0) if marks else None


def reranking_figure(rerankings: Sequence[Reranking]) -> Figure:
    """What each verifier's choice among N samples gains, between their mean and the best, one panel a split."""
    several = len({choice.verifier for choice in rerankings}) > 1
    colours = {"mean sample": DARK_GREY, "verifier's choice": GREEN, "best sample": INK}
    verifiers = dict.fromkeys(choice.verifier for choice in rerankings)
    rows = {name: f"chosen by {name}" if several else "verifier's choice" for name in verifiers}
    colours |= {row: REWARDS.get(verifier, INK) for verifier, row in rows.items() if several}
    splits = {choice.split: choice for choice in reversed(rerankings)}
    metric = rerankings[0].metric
    marks = [Mark("mean sample", first.mean, panel=SPLITS.get(split, split)) for split, first in splits.items()]
    marks += [
        Mark(rows[choice.verifier], choice.best, panel=SPLITS.get(choice.split, choice.split)) for choice in rerankings
    ]
    marks += [Mark("best sample", first.oracle, panel=SPLITS.get(split, split)) for split, first in splits.items()]
    digits = 3 if metric == "reward" else 2
    return intervals(marks, colours=colours, unit=METRICS.get(metric, metric), digits=digits)


def training_figure(runs: Sequence[Curve], titles: dict[str, str]) -> Figure | None:
    """Series over training by their titles, one panel each; None where none was logged."""
    lines = [
        Line(title, run.regime, run.steps, run.series[name])
        for name, title in titles.items()
        for run in runs
        if name in run.series
    ]
    colours = regime_colours(run.regime for run in runs)
    return curves(lines, colours=colours, xlabel="training step", smoothed=True) if lines else None


@mpl.rc_context(STYLE)
def lengths_figure(lengths: Sequence[PlanLengths]) -> Figure:
    """Shares of plans by number of steps, one row a regime and one column a split."""
    regimes = list(dict.fromkeys(part.regime for part in lengths))
    splits = list(dict.fromkeys(part.split for part in lengths))
    figure = new_figure(7.6, 0.7 + 0.55 * len(regimes))
    panels = figure.subplots(len(regimes), len(splits), squeeze=False, sharex=True, sharey=True)
    colours = regime_colours(regimes)
    peak = max(max(part.counts) / max(1, sum(part.counts)) for part in lengths)
    panels[0][0].set_ylim(0, 1.5 * peak)  # shared by all; the labels stand above the bars
    for part in lengths:
        panel = panels[regimes.index(part.regime)][splits.index(part.split)]
        shares = np.array(part.counts) / max(1, sum(part.counts))
        panel.bar(range(len(shares)), shares, width=0.85, color=colours[part.regime])
        mean = float(np.dot(shares, range(len(shares))))
        panel.annotate(f"mean {mean:.1f}", (0.99, 0.9), xycoords="axes fraction", ha="right", va="top", color=MUTED)
    for row, regime in zip(panels, regimes, strict=True):
        row[0].set_ylabel(regime, rotation=0, ha="right", va="center", color=colours[regime], fontsize=10)
    for panel in panels.flat:
        panel.set_yticks([])
        panel.grid(visible=False)
        panel.spines["left"].set_visible(False)
    for split, top, bottom in zip(splits, panels[0], panels[-1], strict=True):
        bottom.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        top.set_title(SPLITS.get(split, split))
        bottom.set_xlabel("steps in a plan")
    return figure


@mpl.rc_context(STYLE)
def drift_figure(runs: Sequence[ValidationCurve], part: Figure | SubFigure | None = None) -> Figure:
    """The measure of all runs against the root of KL; below it each reward, as a share of its own rise."""
    colours, measure = regime_colours(run.regime for run in runs), runs[0].measure
    rows = 1 + (measure != "reward")
    figure = part or new_figure(5.2, 4.0)
    panels = figure.subplots(rows, 1, squeeze=False, sharex=True, height_ratios=(2, 1)[:rows])
    top, bottom = panels[0][0], panels[-1][0]
    ends = []
    for run in runs:
        if measure != "reward":
            _draw_drift(top, run, colours[run.regime], [point.measured for point in run.points])
        rewards = [point.reward for point in run.points]
        low, rise = rewards[0], max(rewards) - rewards[0]
        _draw_drift(bottom, run, colours[run.regime], [(reward - low) / (rise or 1.0) for reward in rewards])
        last = run.points[-1]
        ends.append((run.regime, math.sqrt(max(0.0, last.kl)), last.measured, colours[run.regime]))
    name_ends(top, ends)
    bottom.set_ylim(-0.25, 1.25)
    bottom.set_yticks([0, 1], ["base", "highest"])
    bottom.set_title("each reward, on its own scale")
    if measure != "reward":
        top.set_title(f"{NAMES.get(measure, measure)} of plans while a reward trains")
    bottom.set_xlabel(f"drift from the base: {DRIFT}")
    return figure.get_figure(root=True)


def _draw_drift(panel: Axes, curve: ValidationCurve, colour: str, values: Sequence[float]) -> None:
    """A run's values against the root of KL: a point a validation, the chosen one ringed."""
    drift = [math.sqrt(max(0.0, point.kl)) for point in curve.points]
    panel.plot(drift, values, "-", color=colour, linewidth=1, alpha=0.45)
    panel.plot(drift, values, "o", color=colour, markersize=5)
    panel.axhline(values[0], color=MUTED, linewidth=0.8, linestyle=DASHED)
    chosen = curve.points.index(curve.chosen)
    panel.plot(
        drift[chosen], values[chosen], "o", color=colour, markersize=12, markerfacecolor="none", markeredgewidth=2
    )
    panel.margins(x=0.08, y=0.2)
    panel.locator_params(nbins=5)


def curves_hash(results: Results) -> str:
    """Names the curves of results: an SVG that shows them holds it, so that a picture can be told from another's."""
    return fingerprint(to_json(results.curves))


@mpl.rc_context(STYLE | {"svg.fonttype": "path"})
def key_figure(run_dir: Path, target: Path) -> None:
    """The finding of `report.json` in one picture, PNG or SVG by the name of `target`.

    It shows validity, reward and length while each reward trains where the page begins with a plan; else the regimes
    and, where runs validated, their drift while training. Raises InputError where the results hold no scores.
    """
    results = load_results(run_dir / "report.json")
    if not results.scores:
        raise InputError("the results hold no scores; there is no key figure to draw.")
    description = ""
    if results.opening is not None and (drawn := training_figure(results.curves, KEY_SERIES)) is not None:
        figure, description = drawn, curves_hash(results)
    elif results.validations:
        figure = new_figure(10.4, 3.9, gap=0.06)
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1.15, 1))[0]
        means_figure(results, left)
        drift_figure(results.validations, right)
    else:
        figure = means_figure(results)
    figure.set_facecolor("white")
    with atomic_path(target) as partial:
        kind = target.suffix.lstrip(".") or "png"
        metadata = {"Date": None, "Description": description} if kind == "svg" else {"Software": None}
        figure.savefig(partial, format=kind, dpi=160, facecolor="white", metadata=metadata)
