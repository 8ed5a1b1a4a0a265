"""A report before it is rendered: sections of paragraphs, tables and figures, as plain values."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from recipe.report.numbers import format_number
from recipe.stats import Interval

Kind = Literal["system", "published", "control"]
NONE = "–"
"""Stands where there is no number."""


class Cell(NamedTuple):
    """A value and what stands small below it, such as its interval."""

    text: str
    small: str = ""
    clear: bool = False
    """Whether it is emphasised: an interval that excludes 0."""


class Row(NamedTuple):
    """A row; `kind` tells a system's own figures from published ones and from controls."""

    name: str
    cells: tuple[Cell, ...]
    kind: Kind = "system"
    about: str = ""
    """What stands small below the name."""


class Heading(NamedTuple):
    """A column's heading and the group that it stands under, if any."""

    text: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; every row has a cell for every heading."""

    caption: str
    first: str
    """Heading of the column of names."""
    headings: tuple[Heading, ...]
    rows: tuple[Row, ...]
    about: str = ""
    """What the caption adds in small: intervals, units."""
    notes: tuple[str, ...] = ()
    folded: bool = False
    """Whether the page shows it on demand only."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawn figure as an `<svg>` element, and the sentence below it."""

    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report with its address on the page."""

    name: str
    title: str
    short: str
    """The title in the page's navigation."""
    paragraphs: tuple[str, ...] = ()
    blocks: tuple[Table | Figure, ...] = ()
    warnings: tuple[str, ...] = ()
    """Sentences that nobody may overlook."""
    findings: tuple[str, ...] = ()
    """What was found, one sentence each."""


def measured(value: Interval | None, digits: int = 1) -> Cell:
    """A mean with its interval below it.

    >>> measured(Interval(46.55, 44.1, 49.0)), measured(None)
    (Cell(text='46.5', small='44.1 to 49.0', clear=False), Cell(text='–', small='', clear=False))
    """
    if value is None:
        return Cell(NONE)
    if value.low is None or value.high is None:
        return Cell(format_number(value.mean, digits))
    bounds = f"{format_number(value.low, digits)} to {format_number(value.high, digits)}"
    return Cell(format_number(value.mean, digits), bounds)


def difference(value: Interval, digits: int = 1) -> Cell:
    """A difference with its sign, emphasised where its interval excludes 0.

    >>> difference(Interval(2.0, 1.0, 3.0))
    Cell(text='+2.0', small='+1.0 to +3.0', clear=True)
    """
    if value.low is None or value.high is None:
        return Cell(signed(value.mean, digits))
    bounds = f"{signed(value.low, digits)} to {signed(value.high, digits)}"
    return Cell(signed(value.mean, digits), bounds, clear=value.low > 0 or value.high < 0)


def signed(value: float, digits: int) -> str:
    """A number with its sign; none before a zero."""
    shown = format_number(value, digits)
    return shown if value < 0 or not shown.strip("0.") else f"+{shown}"


def plain(value: float | None, digits: int = 1) -> Cell:
    """A number, or the mark that there is none."""
    return Cell(NONE if value is None else format_number(value, digits))


def count(value: float) -> Cell:
    """A whole number with its thousands apart."""
    return Cell(f"{round(value):,}")
