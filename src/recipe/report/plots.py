"""Figures in one style, as SVG inside a page."""

import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from textwrap import fill
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.errors import MissingExtra
from recipe.report.colours import DARK, INK, MUTED, RULE, variable
from recipe.report.html import shown
from recipe.report.numbers import format_number
from recipe.stats import Interval

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator
except ModuleNotFoundError as error:
    raise MissingExtra("the report", "report") from error

STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    # Texts stay texts, which a reader can search and select, in the page's font.
    "svg.fonttype": "none",
    "svg.hashsalt": "recipe",  # the same ids each time
    "text.parse_math": False,  # names of systems are no formulas
    "lines.solid_capstyle": "round",
}

DASHED = (0, (4, 3))
WIDTH = 7.6
"""Of a figure, in inches."""
MARKERS = ("o", "D", "s", "^")
"""Of series without a colour, in order of appearance."""
# Maximum characters of a name next to a figure, and of a figure's description.
_NAME, _DESCRIPTION = 60, 600
# Part of a row's height that its series share.
_BAND = 0.55


class Mark(NamedTuple):
    """A value in a figure of intervals."""

    row: str
    value: Interval | None
    """None keeps a place for the row."""
    series: str = ""
    """Tells it from the other marks of its row, by colour or else by shape."""
    panel: str = ""
    """Title of the panel, where there are several side by side."""
    hollow: bool = False
    """A value of another origin, such as a published one: a hollow diamond in the middle of the row."""
    note: str = ""
    """Small text below the mark."""


@rc_context(STYLE)
def intervals(
    rows: Iterable[Mark],
    *,
    colours: Mapping[str, str],
    xlim: tuple[float, float] | None = None,
    unit: str = "",
    line: float | None = None,
    digits: int | None = None,
    part: Figure | SubFigure | None = None,
) -> Figure:
    """A dot with its 95% interval for each value; rows from top to bottom, panels side by side.

    Args:
        rows: Rows, series and panels stand in the order of their first mark.
        colours: Of series, or of rows whose marks have no series with a colour.
        unit: Label of the axis that all panels share; without it each panel has an axis of its own.
        line: A value that is marked in all rows, such as 0 for differences.
        digits: Decimals of the means that are written above the marks.
        part: Where to draw; without it, in a figure of its own, of a fitting height.

    """
    marks = list(rows)
    names = list(dict.fromkeys(mark.row for mark in marks))
    titles = list(dict.fromkeys(mark.panel for mark in marks)) or [""]
    series = list(dict.fromkeys(mark.series for mark in marks if mark.series and mark.value is not None))
    heads = [fill(title, 12 if len(titles) > 2 else 40) for title in titles]
    repeats = Counter((mark.panel, mark.row) for mark in marks if not mark.series and not mark.hollow)
    most = max(1, len(series), *repeats.values())
    texts = (digits is not None) + any(mark.note for mark in marks)
    height = 0.65 + len(names) * (0.16 + 0.2 * most**0.75 + 0.08 * texts)
    height += 0.2 * max(head.count("\n") + bool(head) for head in heads)
    figure = part or new_figure(WIDTH, height, gap=0.06)
    shapes = {name: MARKERS[i % len(MARKERS)] if name not in colours else "o" for i, name in enumerate(series)}
    panels = figure.subplots(1, len(titles), squeeze=False, sharex=bool(unit), sharey=True)[0]
    drawn = Counter[tuple[str, str]]()
    for mark in marks:
        if mark.value is None:
            continue
        panel, y = panels[titles.index(mark.panel)], float(names.index(mark.row))
        tint = colours.get(mark.series) or colours.get(mark.row)
        mean, low, high = mark.value.mean, mark.value.low, mark.value.high
        if mark.hollow:
            panel.plot(mean, y, "D", markerfacecolor="none", markeredgecolor=tint or MUTED, markersize=5.5)
        else:
            own = (mark.panel, mark.row)
            # A series keeps its place in every row, also where another is missing.
            index, places = (series.index(mark.series), len(series)) if mark.series else (drawn[own], repeats[own])
            drawn[own] += not mark.series
            y += (index - (places - 1) / 2) * _BAND / places
            if low is not None and high is not None:
                panel.plot([low, high], [y, y], color=tint or INK, linewidth=2.2, alpha=0.55)
            panel.plot(mean, y, shapes.get(mark.series, "o"), color=tint or INK, markersize=5.8)
        if digits is not None and not mark.hollow:
            _annotate(panel, format_number(mean, digits), (mean, y), (0, 6), tint or INK, ha="center", va="bottom")
        if mark.note:
            _annotate(panel, mark.note, (mean, y), (0, -6), MUTED, ha="center", va="top")
    _label_rows(panels[0], names)
    for panel, head in zip(panels, heads, strict=True):
        panel.set_title(head)
        panel.set_xlabel(unit)
        panel.grid(visible=False, axis="y")
        panel.tick_params(axis="y", labelleft=panel is panels[0])
        for row in range(1, len(names)):
            panel.axhline(row - 0.5, color=RULE, linewidth=0.6)
        if line is not None:
            panel.axvline(line, color=MUTED, linewidth=1, linestyle=DASHED)
        panel.locator_params(axis="x", nbins=3 if len(titles) > 2 else 4)
        panel.margins(x=0.12)
        if xlim is not None:
            spare = 0.015 * (xlim[1] - xlim[0])
            panel.set_xlim(xlim[0] - spare, xlim[1] + spare)
    if len(series) > 1:
        _legend(figure, series, [colours.get(name, MUTED) for name in series], [shapes[name] for name in series])
    return figure.get_figure(root=True)


class Point(NamedTuple):
    """A point of a scatter plot; its name is written next to it."""

    name: str
    x: Interval
    y: Interval
    hollow: bool = False
    """A point of another origin, such as a published one: a hollow diamond."""


@rc_context(STYLE)
def scatter(
    points: Iterable[Point],
    *,
    colours: Mapping[str, str],
    xlabel: str,
    ylabel: str,
    xlim: tuple[float, float] | None = None,
    ylim: tuple[float, float] | None = None,
) -> Figure:
    """Points with their 95% intervals in both directions."""
    figure = new_figure(WIDTH, 3.8)
    panel = figure.subplots()
    for name, x, y, hollow in points:
        tint = colours.get(name, MUTED if hollow else INK)
        if x.low is not None and x.high is not None:
            panel.plot([x.low, x.high], [y.mean, y.mean], color=tint, linewidth=1.6)
        if y.low is not None and y.high is not None:
            panel.plot([x.mean, x.mean], [y.low, y.high], color=tint, linewidth=1.6)
        fill_colour = "none" if hollow else tint
        panel.plot(x.mean, y.mean, "D" if hollow else "o", color=tint, markerfacecolor=fill_colour, markersize=7)
        _annotate(panel, shown(name, _NAME), (x.mean, y.mean), (7, -3) if hollow else (7, 5), tint)
    panel.set(xlim=xlim, ylim=ylim, xlabel=xlabel, ylabel=ylabel)
    return figure


class Line(NamedTuple):
    """A line in a figure of curves."""

    panel: str
    """Title of its panel."""
    name: str
    """Gives its colour; several lines of one name in a panel are runs, drawn thin below their mean."""
    x: Sequence[float] | Sequence[str]
    y: Sequence[float | Interval | None]
    """None where nothing was logged."""
    hollow: bool = False
    """Values of another origin, such as published ones: hollow diamonds without a line."""


@rc_context(STYLE)
def curves(
    lines: Iterable[Line],
    *,
    colours: Mapping[str, str],
    xlabel: str,
    ylabel: str = "",
    smoothed: bool = False,
    levels: Mapping[str, Sequence[tuple[str, float]]] | None = None,
) -> Figure:
    """Lines with the 95% intervals of their points, a panel for each title.

    Args:
        lines: At least one; panels and names stand in the order of their first line.
        ylabel: Label of the axis that all panels share; without it each panel has an axis of its own.
        smoothed: Draw the running mean, over a single line as it was logged.
        levels: Named values that are marked across a panel, by its title.

    """
    lines = list(lines)
    titles, names = (list(dict.fromkeys(values)) for values in zip(*(line[:2] for line in lines), strict=True))
    across = min(3, len(titles)) if ylabel else 3
    rows = -(-len(titles) // across)
    height = 2.6 if across == 1 else 0.5 + (2.7 if ylabel else 1.9) * rows
    figure = new_figure(WIDTH, height, gap=0.06)
    grid = figure.subplots(rows, across, squeeze=False, sharey=bool(ylabel))
    runs = Counter((line.panel, line.name) for line in lines)
    several = max(runs.values()) > 1
    for panel in grid.flat[len(titles) :]:
        panel.set_visible(False)
    for title, panel in zip(titles, grid.flat, strict=False):
        for name in names:
            own = [line for line in lines if (line.panel, line.name) == (title, name)]
            tint = colours.get(name, INK)
            means = [
                np.array(
                    [
                        np.nan if value is None else value.mean if isinstance(value, Interval) else value
                        for value in line.y
                    ]
                )
                for line in own
            ]
            smooth = [_running_mean(y, smoothing_window(len(y))) if smoothed else y for y in means]
            for line, y, mean in zip(own, means, smooth, strict=True):
                if line.hollow:
                    panel.plot(line.x, y, "D", markerfacecolor="none", markeredgecolor=tint, markersize=5.5)
                elif smoothed:
                    panel.plot(line.x, mean if several else y, color=tint, linewidth=0.8, alpha=0.4)
                else:
                    panel.plot(line.x, y, "o-", color=tint, markersize=4.5)
                for x, value in zip(line.x, line.y, strict=True):
                    if isinstance(value, Interval) and value.low is not None and value.high is not None:
                        panel.plot([x, x], [value.low, value.high], color=tint, linewidth=1.4, alpha=0.6)
            if smoothed and own and len({len(y) for y in smooth}) == 1:
                panel.plot(own[0].x, np.mean(smooth, axis=0), color=tint, linewidth=2)
        panel.set_title(fill(title, 40 if across < 3 else 26))
        if smoothed:
            panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        panel.locator_params(axis="y", nbins=5)
        bottom, top = panel.get_ylim()
        index = -np.inf
        for name, height in sorted(levels.get(title, ()) if levels else (), key=lambda level: level[1]):
            panel.axhline(height, color=MUTED, linewidth=0.8, linestyle=DASHED)
            if name:  # at the right edge; names of near lines are moved apart
                index = max((height - bottom) / (top - bottom), index + 0.065)
                panel.annotate(
                    shown(name, _NAME),
                    (1, height),
                    (1.02, index),
                    xycoords=("axes fraction", "data"),
                    textcoords="axes fraction",
                    fontsize=7,
                    color=MUTED,
                    va="center",
                )
    figure.supxlabel(xlabel, color=MUTED, fontsize=9)
    grid[0][0].set_ylabel(ylabel)
    if len(names) > 1:
        _legend(figure, names, [colours.get(name, INK) for name in names], [""] * len(names))
    return figure


def name_ends(panel: Axes, ends: Sequence[tuple[str, float, float, str]]) -> None:
    """Write texts after the ends of lines: text, x, y and colour of each; those of two near lines are moved apart."""
    low, high = panel.get_ylim()
    heights = [y for _, _, y, _ in ends]
    apart = 110 * (max(heights) - min(heights)) / (high - low) if heights else 0.0
    shift = max(0.0, (14 - apart) / 2) if len(ends) == 2 else 0.0
    for text, x, y, tint in sorted(ends, key=lambda end: -end[2]):
        _annotate(panel, shown(text, _NAME), (x, y), (9, shift), tint)
        shift = -shift


def smoothing_window(steps: int) -> int:
    """Steps that a running mean covers: an odd number, small compared with a short run.

    >>> smoothing_window(4), smoothing_window(20), smoothing_window(60)
    (1, 3, 7)
    """
    return min(7, steps // 6 | 1)


def _running_mean(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Centred means over `window` values [n], fewer at the ends; NaN counts as missing.

    >>> _running_mean(np.array([1.0, 2.0, 6.0]), 3).tolist()
    [1.5, 3.0, 4.0]
    """
    kernel, known, start = np.ones(window), np.isfinite(values), window // 2
    # The mode `same` gives as many values as the kernel has, where that is longer.
    total, count = (
        np.convolve(part, kernel)[start : start + len(values)] for part in (np.where(known, values, 0.0), known)
    )
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


@rc_context(STYLE)
def stacked(
    rows: Mapping[str, Mapping[str, float]],
    *,
    colours: Mapping[str, str],
    unit: str,
    line: float,
    notes: Mapping[str, str],
) -> Figure:
    """A bar for each row, made of its parts in the order of `colours`; a line across at a value, a note after each."""
    figure = new_figure(WIDTH, 1.25 + 0.42 * len(rows))
    panel = figure.subplots()
    for index, (name, parts) in enumerate(rows.items()):
        left = 0.0
        for kind, tint in colours.items():
            panel.barh(index, parts.get(kind, 0.0), left=left, height=0.62, color=tint)
            left += parts.get(kind, 0.0)
        _annotate(panel, notes[name], (max(left, line), index), (6, 0), INK)
    panel.axvline(line, color=INK, linewidth=1, linestyle=DASHED)
    _label_rows(panel, list(rows))
    panel.set_xlim(0, 1.3 * max(1.2 * line, *(sum(parts.values()) for parts in rows.values())))
    panel.grid(visible=False, axis="y")
    panel.set_xlabel(unit)
    kinds = [kind for kind in colours if any(kind in parts for parts in rows.values())]
    _legend(figure, kinds, [colours[kind] for kind in kinds], ["s"] * len(kinds))
    return figure


def _annotate(
    panel: Axes,
    text: str,
    point: tuple[float, float],
    offset: tuple[float, float],
    colour: str,
    ha: Literal["left", "center", "right"] = "left",
    va: Literal["bottom", "center", "top"] = "center",
) -> None:
    """Write a text next to a point, `offset` points away."""
    panel.annotate(
        # A mark at the very edge of a panel would lose its text by clipping.
        text,
        point,
        offset,
        textcoords="offset points",
        ha=ha,
        va=va,
        color=colour,
        fontsize=8.5,
        annotation_clip=False,
    )


def _legend(figure: Figure | SubFigure, names: Sequence[str], tints: Sequence[str], shapes: Sequence[str]) -> None:
    """Name series by colour and shape above the panels of a figure, which grows by it."""
    handles = [
        Line2D([], [], color=tint, marker=shape, linewidth=2, label=shown(name, _NAME))
        for name, tint, shape in zip(names, tints, shapes, strict=True)
    ]
    columns = max(1, min(4, 105 // (8 + max(len(shown(name, _NAME)) for name in names))))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False, fontsize=8.5)
    if isinstance(figure, Figure):
        figure.set_figheight(figure.get_figheight() + 0.1 + 0.17 * -(-len(names) // columns))


def new_figure(width: float, height: float, gap: float = 0.02) -> Figure:
    """An empty figure of a size in inches; `gap` is the space between panels as a share of their width."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=gap))


def _label_rows(panel: Axes, names: Sequence[str]) -> None:
    """Names of the rows 0, 1, ... from top to bottom."""
    panel.set_yticks(range(len(names)), [shown(name, _NAME) for name in names], fontsize=10)
    panel.set_ylim(len(names) - 0.5, -0.65)
    for label in panel.get_yticklabels():
        label.set_color(INK)


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an `<svg>` element whose ids start with `name`; `description` is for readers who cannot see it."""
    buffer = io.StringIO()
    with rc_context(STYLE), warnings.catch_warnings():
        # Text stays text in the SVG, and the reader's fonts have more letters than the one it is measured by.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Figures of one page share its ids.
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\g<1>#{name}-", svg)
    svg = re.sub(r"font: ([\d. ]*?[\d.]+px) [^;\"]*", r"font: \1 var(--sans)", svg)
    for colour in DARK:
        svg = re.sub(colour, f"var({variable(colour)})", svg, flags=re.IGNORECASE)
    title = f"<title>{escape(shown(description, _DESCRIPTION))}</title>"
    return re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', lambda tag: f'<svg {tag[1]} role="img">{title}', svg, count=1)
