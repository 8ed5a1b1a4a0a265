"""Figures of an experiment's report: means, over-optimisation, training curves, differences and seeds."""

import math
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recipe.artifacts import atomic_path
from recipe.errors import InputError, MissingExtra
from recipe.evaluation.metrics import CONTROL, METRICS, REWARDS, regime_colours
from recipe.evaluation.validity.measure import Difference, Lengths, Reranking
from recipe.report.colours import BLUE, DARK_GREY, GREEN, INK, MUTED, VERMILION
from recipe.report.numbers import format_number
from recipe.report.plots import MARKERS, STYLE, label_rows, new_figure
from recipe.stats import Interval
from recipe_studies.experiments.over_optimisation import DRIFT, NAMES, draw_drift
from recipe_studies.experiments.results import SPLITS, Curve, ProbePlan, Results, ValidationCurve

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.ticker import MaxNLocator
except ModuleNotFoundError as error:
    raise MissingExtra("the report", "report") from error

_LINE = 0.055
"""Height of a small line of text, as a share of a panel."""
WINDOW = 7
"""Training steps that a running mean covers at most."""
SERIES = {
    "kl": "KL to the reference policy",
    "gated": "share below the gate",
    "clipped": "share cut at the token limit",
}
"""Series of a curve beside those of the over-optimisation figure, with their names in words."""
TITLES = {
    "validity": "exact validity",
    "matched_f1": "matched step F1 with the reference",
    "f1": "step F1 with the reference",
    "length": "steps in a plan",
    "reward": "reward, each its own",
    "copied": "share copied from the history",
    "repeated": "share repeated in the plan",
    "clipped": "share cut at the token limit",
}
"""Series of curves in the order of their panels, where several runs are drawn."""
COLUMNS = 3
"""Panels of that figure side by side."""
CHANGES = ("score", "matched_f1", "matched_ordered_f1", "f1", "ordered_f1", "coverage", "clean", "steps", "repeats")
"""Metrics whose paired differences are drawn, one panel each; those of them that are known."""


@mpl.rc_context(STYLE)
def means_figure(results: Results, metric: str) -> Figure:
    """Mean and interval of a metric by regime, one panel a split."""
    rows = len({row.regime for row in (*results.scores, *results.controls) if metric in row.metrics})
    figure = new_figure(7.6, 0.9 + 0.4 * rows, gap=0.06)
    _draw_means(figure, results, metric)
    return figure


@mpl.rc_context(STYLE)
def over_optimisation_figure(curve: Curve) -> Figure:
    """Reward, and exact validity where known, over training; below them the plans' length."""
    figure = new_figure(7.6, 3.6)
    _draw_over_optimisation(figure, curve)
    return figure


@mpl.rc_context(STYLE)
def training_figure(curves: Sequence[Curve]) -> Figure | None:
    """The other series of the training runs, one panel each; None where none was logged."""
    names = [name for name in SERIES if any(name in curve.series for curve in curves)]
    if not names:
        return None
    figure = new_figure(7.6, 2.1)
    panels = figure.subplots(1, max(3, len(names)), squeeze=False)[0]
    colours = regime_colours(curve.regime for curve in curves)
    for name, panel in zip(names, panels, strict=False):
        for curve in curves:
            if name in curve.series:
                _trace(panel, curve, name, colours[curve.regime])
        panel.set_title(SERIES[name])
        panel.set_xlabel("training step")
        panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        panel.set_ylim(bottom=0)
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    return figure


@mpl.rc_context(STYLE)
def curves_figure(curves: Sequence[Curve]) -> Figure | None:
    """Every series over training, one panel each: a thin line a run, a thick one for the mean of a regime's runs."""
    names = [name for name in TITLES if any(name in curve.series for curve in curves)]
    if not names:
        return None
    rows = -(-len(names) // COLUMNS)
    figure = new_figure(7.6, 0.4 + 2.0 * rows, gap=0.06)
    panels = figure.subplots(rows, COLUMNS, squeeze=False)
    colours = regime_colours(curve.regime for curve in curves)
    for name, panel in zip(names, panels.flat, strict=False):
        for regime in colours:
            runs = [curve for curve in curves if curve.regime == regime and name in curve.series]
            lines = [_smoothed(run, name)[1] for run in runs]
            for run, line in zip(runs, lines, strict=True):
                panel.plot(run.steps, line, color=colours[regime], linewidth=0.8, alpha=0.45)
            if lines and len({len(line) for line in lines}) == 1:
                panel.plot(runs[0].steps, np.mean(lines, axis=0), color=colours[regime], linewidth=2)
        panel.set_title(TITLES[name])
        panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        panel.yaxis.set_major_locator(MaxNLocator(4))
    for panel in panels.flat[len(names) :]:
        panel.set_visible(False)
    for panel in panels[-1]:
        panel.set_xlabel("training step")
    handles = [mpl.lines.Line2D([], [], color=tint, linewidth=2, label=regime) for regime, tint in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    return figure


@mpl.rc_context(STYLE)
def law_figure(results: Results) -> Figure:
    """Gains over the base against the number of covering narrations, one panel a split; other arms as lines across."""
    splits = list(dict.fromkeys(one.split for one in results.law))
    arms = dict.fromkeys(curve.regime for curve in results.curves)
    metric = results.main_metric()
    figure = new_figure(7.6, 3.4, gap=0.06)
    panels = figure.subplots(1, len(splits), squeeze=False, sharey=True)[0]
    for split, panel in zip(splits, panels, strict=True):
        points = [one for one in results.law if one.split == split]
        panel.axhline(0, color=MUTED, linewidth=1)
        lines = (
            ("after training", GREEN, [one.trained for one in points]),
            ("chosen among samples of the base", BLUE, [one.chosen for one in points]),
        )
        for (label, colour, gains), shift in zip(lines, (-0.05, 0.05), strict=True):
            places = [place + shift for place in range(len(points))]
            panel.plot(places, [gain.mean for gain in gains], color=colour, marker="o", markersize=4, label=label)
            for place, gain in zip(places, gains, strict=True):
                if gain.low is not None:
                    panel.plot([place, place], [gain.low, gain.high], color=colour, linewidth=1)
        others = sorted(
            (one.value.mean, one.regime.removeprefix(CONTROL))
            for one in results.differences
            if (one.split, one.baseline, one.metric) == (split, "base", metric)
            and one.regime in arms
            and not one.regime.endswith("covering narrations")
        )
        for height, _ in others:
            panel.axhline(height, color=MUTED, linewidth=0.8, linestyle="--")
        panel.set_xticks(range(len(points)), [str(one.narrations) for one in points])
        _label_lines(panel, others)
        panel.set_xlabel("narrations of a goal")
        panel.set_title(SPLITS.get(split, split))
    panels[0].set_ylabel(f"gain in {METRICS.get(metric, metric)}")
    panels[0].legend(frameon=False, fontsize=9)
    return figure


def _label_lines(panel: Axes, lines: Sequence[tuple[float, str]]) -> None:
    """Name lines across, by rising height, at the right edge; names of near lines are moved apart."""
    bottom, top = panel.get_ylim()
    heights: list[float] = []
    for height, _ in lines:
        place = (height - bottom) / (top - bottom)
        heights.append(max(place, heights[-1] + _LINE) if heights else place)
    for (height, name), place in zip(lines, heights, strict=True):
        panel.annotate(
            name,
            (1, height),
            (1.02, place),
            xycoords=("axes fraction", "data"),
            textcoords="axes fraction",
            fontsize=7,
            color=MUTED,
            va="center",
        )


@mpl.rc_context(STYLE)
def seeds_figure(by_seed: Sequence[Difference], metric: str, name: str) -> Figure | None:
    """The change of a metric by every run alone, one panel a split and one row a regime; None without such runs."""
    shown = [one for one in by_seed if one.metric == metric]
    if not shown:
        return None
    regimes = list(dict.fromkeys(one.regime for one in shown))
    splits = list(dict.fromkeys(one.split for one in shown))
    figure = new_figure(7.6, 0.9 + 0.5 * len(regimes), gap=0.06)
    panels = _split_panels(figure, splits, f"change of {name}")
    colours = regime_colours(regimes)
    for split, panel in zip(splits, panels, strict=True):
        panel.axvline(0, color=MUTED, linewidth=1)
        for one in (one for one in shown if one.split == split):
            seeds = [other.seed for other in shown if (other.split, other.regime) == (split, one.regime)]
            place = regimes.index(one.regime) + 0.18 * (seeds.index(one.seed) - (len(seeds) - 1) / 2)
            _bar(panel, one.value, place, colours[one.regime])
    label_rows(panels[0], regimes)
    return figure


@mpl.rc_context(STYLE)
def differences_figure(differences: Sequence[Difference], metrics: Sequence[str] = CHANGES) -> Figure | None:
    """Paired differences to the baseline, one panel a metric; None where there are none to draw."""
    names = [name for name in metrics if any(one.metric == name for one in differences)]
    regimes = list(dict.fromkeys(one.regime for one in differences))
    if not names:
        return None
    figure = new_figure(7.6, 1.35 + 0.5 * len(regimes), gap=0.06)
    panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for name, panel in zip(names, panels, strict=True):
        _draw_differences(panel, [one for one in differences if one.metric == name], regimes)
        panel.set_title(fill(METRICS[name], 12 if len(names) > 2 else 40))
    label_rows(panels[0], regimes)
    splits = list(dict.fromkeys(one.split for one in differences))
    if len(splits) > 1:
        handles = [
            mpl.lines.Line2D(
                [], [], color=MUTED, marker=marker, linestyle="none", markersize=5, label=SPLITS.get(split, split)
            )
            for marker, split in zip(cycle(MARKERS), splits, strict=False)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(splits), frameon=False, fontsize=9)
    return figure


@mpl.rc_context(STYLE)
def lengths_figure(lengths: Sequence[Lengths]) -> Figure:
    """Shares of plans by number of steps, one row a regime and one column a split."""
    regimes = list(dict.fromkeys(one.regime for one in lengths))
    splits = list(dict.fromkeys(one.split for one in lengths))
    figure = new_figure(7.6, 0.7 + 0.55 * len(regimes))
    panels = figure.subplots(len(regimes), len(splits), squeeze=False, sharex=True, sharey=True)
    colours = regime_colours(regimes)
    peak = max(max(one.counts) / max(1, sum(one.counts)) for one in lengths)
    panels[0][0].set_ylim(0, 1.5 * peak)  # shared by all; the labels stand above the bars
    for one in lengths:
        panel = panels[regimes.index(one.regime)][splits.index(one.split)]
        shares = np.array(one.counts) / max(1, sum(one.counts))
        panel.bar(range(len(shares)), shares, width=0.85, color=colours[one.regime])
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
def reranking_figure(rerankings: Sequence[Reranking]) -> Figure:
    """What each verifier's choice among N samples gains, between their mean and the best, one panel a split."""
    splits = list(dict.fromkeys(one.split for one in rerankings))
    verifiers = list(dict.fromkeys(one.verifier for one in rerankings))
    figure = new_figure(7.6, 1.2 + 0.3 * (len(verifiers) + 2), gap=0.06)
    panels = _split_panels(figure, splits, METRICS.get(rerankings[0].metric, rerankings[0].metric))
    for split, panel in zip(splits, panels, strict=True):
        own = [one for one in rerankings if one.split == split]
        chosen = [(one.best, REWARDS.get(one.verifier, INK) if len(own) > 1 else GREEN) for one in own]
        for place, (value, colour) in enumerate([(own[0].mean, DARK_GREY), *chosen, (own[0].oracle, INK)]):
            _bar(panel, value, place, colour)
            _note(panel, _short(value.mean, own[0].metric), (value.mean, place), colour)
    choices = [f"chosen by {name}" for name in verifiers] if len(verifiers) > 1 else ["verifier's choice"]
    label_rows(panels[0], ("mean sample", *choices, "best sample"))
    return figure


@mpl.rc_context(STYLE)
def probes_figure(probes: Sequence[ProbePlan]) -> Figure:
    """Mean reward of every kind of probe plan, and its validity where that is known, one panel each."""
    validity = [plan.validity for plan in probes if plan.validity is not None]
    known = {"reward": [plan.parts.total for plan in probes]}
    if len(validity) == len(probes):
        known["validity"] = validity
    figure = new_figure(7.6, 0.7 + 0.3 * len(probes), gap=0.06)
    panels = figure.subplots(1, len(known), squeeze=False, sharey=True)[0]
    for (name, values), panel in zip(known.items(), panels, strict=True):
        panel.barh(range(len(probes)), values, height=0.6, color=VERMILION if name == "reward" else INK)
        panel.axvline(0, color=MUTED, linewidth=1)
        panel.set_title(name)
        panel.locator_params(axis="x", nbins=5)
    label_rows(panels[0], [plan.name for plan in probes])
    return figure


@mpl.rc_context(STYLE | {"svg.fonttype": "path"})
def key_figure(results: Results, target: Path) -> None:
    """The finding in one picture, as PNG or SVG by the name of `target`: regimes and over-optimisation.

    Raises InputError where the results hold neither scores nor curves.
    """
    curves = [curve for curve in results.curves if "reward" in curve.series]
    if not results.scores or not (curves or results.validations):
        raise InputError("the results hold no scores or no training curve; there is no key figure to draw.")
    figure = new_figure(10.4, 3.9, gap=0.06)
    halves: Any = figure.subfigures(1, 2, width_ratios=(1.15, 1))
    left, right = halves
    _draw_means(left, results, results.main_metric())
    if results.validations:
        _draw_bought(right, results.validations)
    else:
        _draw_over_optimisation(right, curves[0])
    figure.set_facecolor("white")
    with atomic_path(target) as partial:
        kind = target.suffix.lstrip(".") or "png"
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(partial, format=kind, dpi=160, facecolor="white", metadata=metadata)


@mpl.rc_context(STYLE)
def bought_figures(results: Results) -> tuple[Figure, Figure]:
    """The halves of the key figure of runs that validated, each as a figure."""
    regimes, drift = new_figure(5.6, 4.0, gap=0.06), new_figure(5.2, 4.0)
    _draw_means(regimes, results, results.main_metric())
    _draw_bought(drift, results.validations)
    return regimes, drift


def _draw_bought(figure: Figure | SubFigure, curves: Sequence[ValidationCurve]) -> None:
    """The measure of all runs against the root of KL; below it each reward, as a share of its own rise."""
    colours, measure = regime_colours(curve.regime for curve in curves), curves[0].measure
    shows_measure = measure != "reward"
    panels = figure.subplots(
        1 + shows_measure, 1, squeeze=False, sharex=True, height_ratios=(2, 1)[: 1 + shows_measure]
    )
    top, bottom = panels[0][0], panels[-1][0]
    ends = []
    for curve in curves:
        if shows_measure:
            draw_drift(top, curve, colours[curve.regime], steps=False)
        rewards = [point.reward for point in curve.points]
        low, rise = rewards[0], max(rewards) - rewards[0]
        draw_drift(bottom, curve, colours[curve.regime], [(one - low) / (rise or 1.0) for one in rewards], steps=False)
        ends.append((math.sqrt(max(0.0, curve.points[-1].kl)), curve.points[-1].measured))
    gap = _nudge(top, [up for _, up in ends]) if len(ends) == 2 else 0.0
    for curve, (across, up) in zip(curves, ends, strict=True):
        shift = gap if up == max(end for _, end in ends) else -gap
        _note_at(top, curve.regime, (across, up), shift, colours[curve.regime])
    bottom.set_ylim(-0.25, 1.25)
    bottom.set_yticks([0, 1], ["base", "highest"])
    bottom.set_title("each reward, on its own scale")
    if shows_measure:
        top.set_title(f"{NAMES.get(measure, measure)} of plans while a reward trains")
    bottom.set_xlabel(f"drift from the base: {DRIFT}")


def _draw_means(figure: Figure | SubFigure, results: Results, metric: str) -> None:
    rows = [row for row in (*results.scores, *results.controls) if metric in row.metrics]
    splits = list(dict.fromkeys(row.split for row in rows))
    regimes = list(dict.fromkeys(row.regime for row in rows))
    colours = regime_colours(regimes)
    panels = _split_panels(figure, splits, METRICS.get(metric, metric))
    for split, panel in zip(splits, panels, strict=True):
        for row in rows:
            if row.split == split:
                value, place, colour = row.metrics[metric], regimes.index(row.regime), colours[row.regime]
                _bar(panel, value, place, colour)
                _note(panel, _short(value.mean, metric), (value.mean, place), colour)
    label_rows(panels[0], regimes)


def _draw_over_optimisation(figure: Figure | SubFigure, curve: Curve) -> None:
    colour = regime_colours([curve.regime])[curve.regime]
    lines = [("reward", colour), ("validity", INK)]
    drawn = [(name, tint) for name, tint in lines if name in curve.series]
    has_length = "length" in curve.series
    panels = figure.subplots(1 + has_length, 1, squeeze=False, sharex=True, height_ratios=(2, 1)[: 1 + has_length])
    top, bottom = panels[0][0], panels[-1][0]
    ends = [_trace(top, curve, name, tint) for name, tint in drawn]
    gap = 0.0 if len(ends) < 2 else _nudge(top, ends)
    for (name, tint), end in zip(drawn, ends, strict=True):
        shift = gap if end == max(ends) else -gap
        _note_right(top, {"reward": "reward", "validity": "exact validity"}[name], curve, end, shift, tint)
    top.set_title(f"{curve.regime}: what is rewarded and what is true" if len(drawn) > 1 else f"{curve.regime}: reward")
    if has_length:
        end = _trace(bottom, curve, "length", MUTED)
        _note_right(bottom, "steps in a plan", curve, end, 0, MUTED)
    bottom.set_xlabel("training step")
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def _draw_differences(panel: Axes, differences: Sequence[Difference], regimes: Sequence[str]) -> None:
    colours = regime_colours(regimes)
    splits = list(dict.fromkeys(one.split for one in differences))
    panel.axvline(0, color=MUTED, linewidth=1)
    for one in differences:
        place = regimes.index(one.regime) + 0.3 * (splits.index(one.split) - (len(splits) - 1) / 2)
        _bar(panel, one.value, place, colours[one.regime], MARKERS[splits.index(one.split) % len(MARKERS)])
    panel.locator_params(axis="x", nbins=3)
    panel.margins(x=0.15)


def _split_panels(figure: Figure | SubFigure, splits: Sequence[str], label: str) -> Sequence[Axes]:
    """A panel for each split, side by side, with shared axes and the label of x."""
    panels: Sequence[Axes] = figure.subplots(1, len(splits), squeeze=False, sharex=True, sharey=True)[0]
    for split, panel in zip(splits, panels, strict=True):
        panel.set_title(SPLITS.get(split, split))
        panel.set_xlabel(label)
        panel.locator_params(axis="x", nbins=5)
    return panels


def _bar(panel: Axes, value: Interval, place: float, colour: str, marker: str = "o") -> None:
    """A mean as a mark on the bar of its interval."""
    if value.low is not None and value.high is not None:
        panel.plot([value.low, value.high], [place, place], color=colour, linewidth=2.6, alpha=0.4)
    panel.plot([value.mean], [place], marker, color=colour, markersize=6)


def _trace(panel: Axes, curve: Curve, name: str, colour: str) -> float:
    """A series as logged, faint, and its running mean; returns where that ends."""
    values, smooth = _smoothed(curve, name)
    panel.plot(curve.steps, values, color=colour, linewidth=0.8, alpha=0.35)
    panel.plot(curve.steps, smooth, color=colour, linewidth=2)
    known = smooth[np.isfinite(smooth)]
    return float(known[-1]) if known.size else 0.0


def _smoothed(curve: Curve, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A series as logged, NaN where a step logged nothing, and its running mean."""
    values = np.array([np.nan if value is None else value for value in curve.series[name]], dtype=np.float64)
    return values, running_mean(values, smoothing_window(len(values)))


def smoothing_window(steps: int) -> int:
    """Steps that a running mean covers: an odd number, small beside a short run.

    >>> smoothing_window(4), smoothing_window(20), smoothing_window(60)
    (1, 3, 7)
    """
    return min(WINDOW, steps // 6 | 1)


def running_mean(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Centred means over `window` values [n], fewer at the ends; NaN counts as missing.

    >>> running_mean(np.array([1.0, 2.0, 6.0]), 3).tolist()
    [1.5, 3.0, 4.0]
    """
    kernel = np.ones(window)
    known = np.isfinite(values)
    start = window // 2
    total, count = (
        np.convolve(part, kernel)[start : start + len(values)] for part in (np.where(known, values, 0.0), known)
    )
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _nudge(panel: Axes, ends: Sequence[float]) -> float:
    """Points by which two labels must move apart to be read."""
    low, high = panel.get_ylim()
    apart = abs(ends[0] - ends[1]) / (high - low) * 110
    return max(0.0, (14 - apart) / 2)


def _short(value: float, metric: str) -> str:
    return format_number(value, 3 if metric == "reward" else 2)


def _note(panel: Axes, text: str, point: tuple[float, float], colour: str) -> None:
    """A label above a mark."""
    style: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "color": colour}
    panel.annotate(text, point, (0, 7), fontsize=8.5, **style)


def _note_right(panel: Axes, text: str, curve: Curve, value: float, shift: float, colour: str) -> None:
    """A label with the value after the end of a line."""
    shown = format_number(value, 1 if value >= 2 else 2)
    _note_at(panel, f"{text} {shown}", (curve.steps[-1], value), shift, colour)


def _note_at(panel: Axes, text: str, point: tuple[float, float], shift: float, colour: str) -> None:
    """A label after a point."""
    style: dict[str, Any] = {"textcoords": "offset points", "ha": "left", "va": "center", "color": colour}
    panel.annotate(text, point, (9, shift), annotation_clip=False, **style)
