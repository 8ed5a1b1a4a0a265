"""Figures in one style, as SVG inside a page."""

import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from textwrap import fill
from typing import Literal, NamedTuple

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
    "svg.fonttype": "none",
    "svg.hashsalt": "recipe",
    "text.parse_math": False,  # names of systems are no formulas
    "lines.solid_capstyle": "round",
}

DASHED = (0, (4, 3))
WIDTH = 7.6
"""Of a figure, in inches."""
MARKERS = ("o", "D", "s", "^")
"""Of series without a colour, in order of appearance."""
_NAME, _DESCRIPTION = 60, 600
"""Characters of a name beside a figure, and of the description of one."""
_BAND = 0.55
"""Part of a row's height that its series share."""


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
) -> Figure:
    """A dot with its 95% interval for each value; rows from top to bottom, panels side by side.

    Args:
        rows: At least one mark; rows, series and panels stand in the order of their first mark.
        colours: Of series, or of rows whose marks have no series with a colour.
        unit: Label of the axis that all panels share; without it each panel has an axis of its own.
        line: A value that is marked in all rows, such as 0 for differences.
        digits: Decimals of the means that are written above the marks.

    """
    marks = list(rows)
    lines = {mark.row for mark in marks}
    slots = max(Counter((mark.panel, mark.row) for mark in marks if not mark.hollow).values(), default=1)
    texts = (digits is not None) + any(mark.note for mark in marks)
    heads = (max(_title(panel, marks).count("\n") + bool(panel) for panel in _panels(marks)), len(_series(marks)) > 1)
    height = 0.65 + len(lines) * (0.16 + 0.2 * slots**0.75 + 0.08 * texts) + 0.2 * heads[0] + 0.25 * heads[1]
    figure = new_figure(WIDTH, height, gap=0.06)
    draw_intervals(figure, marks, colours=colours, xlim=xlim, unit=unit, line=line, digits=digits)
    return figure


def draw_intervals(
    figure: Figure | SubFigure,
    marks: Sequence[Mark],
    *,
    colours: Mapping[str, str],
    xlim: tuple[float, float] | None = None,
    unit: str = "",
    line: float | None = None,
    digits: int | None = None,
) -> None:
    """Draw `intervals` into a figure or a part of one."""
    names, titles, series = list(dict.fromkeys(mark.row for mark in marks)), _panels(marks), _series(marks)
    shapes = {name: MARKERS[i % len(MARKERS)] if name not in colours else "o" for i, name in enumerate(series)}
    panels = figure.subplots(1, len(titles), squeeze=False, sharex=bool(unit), sharey=True)[0]
    repeats = Counter[tuple[str, ...]]()
    slots: dict[tuple[str, int], int] = {}
    places = []
    for mark in marks:
        own = (mark.panel, mark.row, mark.series)
        places.append((mark.series, repeats[own]))
        if not mark.hollow and mark.value is not None:
            slots.setdefault(places[-1], len(slots))
            repeats[own] += 1
    for mark, place in zip(marks, places, strict=True):
        if mark.value is None:
            continue
        panel, height = panels[titles.index(mark.panel)], float(names.index(mark.row))
        tint = colours.get(mark.series) or colours.get(mark.row)
        mean, low, high = mark.value.mean, mark.value.low, mark.value.high
        if mark.hollow:
            panel.plot(mean, height, "D", markerfacecolor="none", markeredgecolor=tint or MUTED, markersize=5.5)
        else:
            height += (slots[place] - (len(slots) - 1) / 2) * _BAND / len(slots)
            if low is not None and high is not None:
                panel.plot([low, high], [height, height], color=tint or INK, linewidth=2.2, alpha=0.55)
            panel.plot(mean, height, shapes.get(mark.series, "o"), color=tint or INK, markersize=5.8)
        if digits is not None and not mark.hollow:
            annotate(panel, format_number(mean, digits), (mean, height), (0, 6), tint or INK, ha="center", va="bottom")
        if mark.note:
            annotate(panel, mark.note, (mean, height), (0, -6), MUTED, ha="center", va="top")
    label_rows(panels[0], names)
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(_title(title, marks))
        panel.set_xlabel(unit)
        panel.grid(visible=False, axis="y")
        panel.tick_params(axis="y", labelleft=panel is panels[0])
        for row in range(1, len(names)):
            panel.axhline(row - 0.5, color=RULE, linewidth=0.6)
        if line is not None:
            panel.axvline(line, color=MUTED, linewidth=1, linestyle=DASHED)
        panel.locator_params(axis="x", nbins=3 if len(titles) > 2 else 6)
        panel.margins(x=0.12)
        if xlim is not None:
            spare = 0.015 * (xlim[1] - xlim[0])
            panel.set_xlim(xlim[0] - spare, xlim[1] + spare)
    if len(series) > 1:
        legend(figure, series, [colours.get(name, MUTED) for name in series], [shapes[name] for name in series])


class Point(NamedTuple):
    """A point of a scatter plot; its name stands beside it."""

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
        annotate(panel, shown(name, _NAME), (x.mean, y.mean), (7, -3) if hollow else (7, 5), tint)
    panel.set(xlim=xlim, ylim=ylim, xlabel=xlabel, ylabel=ylabel)
    return figure


def _panels(marks: Sequence[Mark]) -> list[str]:
    return list(dict.fromkeys(mark.panel for mark in marks))


def _series(marks: Sequence[Mark]) -> list[str]:
    return list(dict.fromkeys(mark.series for mark in marks if mark.series and mark.value is not None))


def _title(panel: str, marks: Sequence[Mark]) -> str:
    return fill(panel, 12 if len(_panels(marks)) > 2 else 40)


def annotate(
    panel: Axes,
    text: str,
    point: tuple[float, float],
    offset: tuple[float, float],
    colour: str,
    ha: Literal["left", "center", "right"] = "left",
    va: Literal["bottom", "center", "top"] = "center",
) -> None:
    """Write a text beside a point, `offset` points away."""
    panel.annotate(
        text, point, offset, textcoords="offset points", ha=ha, va=va, color=colour, fontsize=8.5, annotation_clip=False
    )


def legend(figure: Figure | SubFigure, names: Sequence[str], tints: Sequence[str], shapes: Sequence[str]) -> None:
    """Name series by colour and shape above the panels."""
    handles = [
        Line2D([], [], color=tint, marker=shape, linewidth=2, label=shown(name, _NAME))
        for name, tint, shape in zip(names, tints, shapes, strict=True)
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=8.5)


def new_figure(width: float, height: float, gap: float = 0.02) -> Figure:
    """An empty figure of a size in inches; `gap` is the space between panels as a share of their width."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=gap))


def label_rows(panel: Axes, names: Sequence[str]) -> None:
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
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\g<1>#{name}-", svg)
    svg = re.sub(r"font: ([\d. ]*?[\d.]+px) [^;\"]*", r"font: \1 var(--sans)", svg)
    for colour in DARK:
        svg = re.sub(colour, f"var({variable(colour)})", svg, flags=re.IGNORECASE)
    title = f"<title>{escape(shown(description, _DESCRIPTION))}</title>"
    return re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', lambda tag: f'<svg {tag[1]} role="img">{title}', svg, count=1)
