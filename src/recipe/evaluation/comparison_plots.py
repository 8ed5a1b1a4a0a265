"""Figures of several regimes and seeds side by side."""

from collections.abc import Sequence
from itertools import groupby

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from recipe.evaluation.plots import (
    MUTED,
    STYLE,
    label_rows,
    new_figure,
    regime_colours,
    running_mean,
    smoothing_window,
)
from recipe.evaluation.results import SPLITS, Curve, Difference

TITLES = {
    "validity": "exact validity",
    "f1": "step F1 with the reference",
    "length": "steps in a plan",
    "reward": "reward, each its own",
    "copied": "share copied from the history",
    "repeated": "share repeated in the plan",
    "clipped": "share cut at the token limit",
}
"""Series of curves in the order of their panels."""
COLUMNS = 3


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
        for regime, runs in groupby(curves, key=lambda curve: curve.regime):
            _draw(panel, [run for run in runs if name in run.series], name, colours[regime])
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


def _draw(panel: Axes, runs: Sequence[Curve], name: str, colour: str) -> None:
    """The runs of one regime, smoothed."""
    lines = []
    for run in runs:
        values = np.array([np.nan if value is None else value for value in run.series[name]], dtype=np.float64)
        lines.append(running_mean(values, smoothing_window(len(values))))
        panel.plot(run.steps, lines[-1], color=colour, linewidth=0.8, alpha=0.45)
    if lines and len({len(line) for line in lines}) == 1:
        panel.plot(runs[0].steps, np.mean(lines, axis=0), color=colour, linewidth=2)


@mpl.rc_context(STYLE)
def seeds_figure(by_seed: Sequence[Difference], metric: str, name: str) -> Figure | None:
    """The change of a metric by every run alone, one panel a split and one row a regime; None without such runs."""
    shown = [one for one in by_seed if one.metric == metric]
    if not shown:
        return None
    regimes = list(dict.fromkeys(one.regime for one in shown))
    splits = list(dict.fromkeys(one.split for one in shown))
    figure = new_figure(7.6, 0.9 + 0.5 * len(regimes), gap=0.06)
    panels = figure.subplots(1, len(splits), squeeze=False, sharex=True, sharey=True)[0]
    colours = regime_colours(regimes)
    for split, panel in zip(splits, panels, strict=True):
        panel.axvline(0, color=MUTED, linewidth=1)
        for one in (one for one in shown if one.split == split):
            seeds = [other.seed for other in shown if (other.split, other.regime) == (split, one.regime)]
            place = regimes.index(one.regime) + 0.18 * (seeds.index(one.seed) - (len(seeds) - 1) / 2)
            if one.value.low is not None and one.value.high is not None:
                panel.plot([one.value.low, one.value.high], [place] * 2, color=colours[one.regime], alpha=0.4)
            panel.plot([one.value.mean], [place], "o", color=colours[one.regime], markersize=5)
        panel.set_title(SPLITS.get(split, split))
        panel.set_xlabel(f"change of {name}")
        panel.locator_params(axis="x", nbins=5)
    label_rows(panels[0], regimes)
    return figure
