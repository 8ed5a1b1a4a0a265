"""A report before it is rendered: sections of paragraphs, tables and figures, as plain values.

One table value is rendered as a page (`html`), as Markdown (`markdown`) and on a terminal (`terminal`):

    table = Table("Accuracy", "system", headings("judge", "accuracy", "plans"), rows=(
        row("base", "proxy", Interval(46.5, 44.1, 49.0), 120),
        row("grpo", "proxy", Cell(Interval(51.2, 48.0, 54.4), digits=2), 120),
    ))
    console.print_table(table)

Values that are not cells become cells: a text stays, an int is a count, a float or an interval gets one digit. Columns
that hold a number are aligned to the right.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from recipe.report.numbers import format_number, format_signed
from recipe.stats import Interval

NONE = "–"
"""Stands where there is no number."""

Value = str | int | float | Interval | None


class Cell(NamedTuple):
    """A value with its format; an interval shows its mean, and its bounds small below it."""

    value: Value
    digits: int | None = None
    """After the point; without it an int is a count, and other numbers have one digit."""
    percent: bool = False
    """Whether the value is a share, shown in percent."""
    signed: bool = False
    """Whether it is a difference: with its sign, and emphasised where the interval excludes 0."""
    least: float = 0.0
    """A smaller value is shown as less than this, such as a p-value."""
    note: str = ""
    """Small text below a value without an interval."""
    part: Literal["all", "mean", "bounds"] = "all"
    """The part of an interval that is shown."""
    shade: int = 0
    """From -100 to 100: how strongly a page colours the cell as low or high."""
    hint: str = ""
    """What a page shows where the cell is pointed at."""

    @property
    def text(self) -> str:
        """The value as text.

        >>> Cell(Interval(46.55, 44.1, 49.0)).text, Cell(1234).text, Cell(None).text, Cell(2e-4, 3, least=0.001).text
        ('46.5', '1,234', '–', '< 0.001')
        """
        if self.value is None:
            return NONE
        if isinstance(self.value, str):
            return self.value
        if self.digits is None and isinstance(self.value, int):
            return f"{self.value:,}"
        if self.part == "bounds":
            return self._bounds()
        number = self.value.mean if isinstance(self.value, Interval) else float(self.value)
        if 0 <= number < self.least:  # a p-value of 0.000 would claim certainty
            return f"< {self.least:g}"
        return self._number(number) + ((" pp" if self.signed else " %") if self.percent else "")

    @property
    def small(self) -> str:
        """The bounds of the interval or why there is none, or the note.

        >>> Cell(Interval(0.5, -0.1, 0.6), 2, signed=True).small, Cell(Interval(0.5, 0.4, 0.6), 0, percent=True).small
        ('−0.10 to +0.60', '40 to 60')
        """
        return self._bounds() or self.note if self.part == "all" else ""

    @property
    def clear(self) -> bool:
        """Whether it is a difference whose interval excludes 0."""
        return self.signed and isinstance(self.value, Interval) and self.value.sign in (1, -1)

    @property
    def numeric(self) -> bool:
        """Whether it holds a number."""
        return isinstance(self.value, int | float | Interval)

    def split(self) -> tuple["Cell", "Cell"]:
        """The mean and the bounds as cells of two columns."""
        return self._replace(part="mean"), self._replace(part="bounds")

    def _bounds(self) -> str:
        if not isinstance(self.value, Interval):
            return ""
        if self.value.low is None or self.value.high is None:
            return f"no interval: {self.value.reason}" if self.value.reason else ""
        return f"{self._number(self.value.low)} to {self._number(self.value.high)}"

    def _number(self, number: float) -> str:
        form: Callable[[float, int], str] = format_signed if self.signed else format_number
        return form(100 * number if self.percent else number, 1 if self.digits is None else self.digits)


def difference_text(value: Interval, digits: int = 3) -> str:
    """A difference with its bounds, or with the reason why it has none.

    >>> difference_text(Interval(-0.25, -0.5, 0.0)), difference_text(Interval(0.1, reason="one goal"), 1)
    ('−0.250 [−0.500, 0.000]', '+0.1 (no interval: one goal)')
    """
    bounds = f" (no interval: {value.reason})" if value.reason else ""
    if value.low is not None and value.high is not None:
        bounds = f" [{format_signed(value.low, digits)}, {format_signed(value.high, digits)}]"
    return format_signed(value.mean, digits) + bounds


class TableRow(NamedTuple):
    """A row of a table."""

    name: str
    cells: tuple[Cell, ...]
    kind: str = ""
    """A class of the style sheet for rows of another origin, such as `published`."""
    about: str = ""
    """Small text below the name."""
    section: str = ""
    """A heading above the first of neighbouring rows of one section."""


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
    rows: tuple[TableRow, ...]
    about: str = ""
    """Small text next to the caption: intervals, units."""
    notes: tuple[str, ...] = ()
    folded: bool = False
    """Whether a page shows it on demand only."""

    def numeric(self) -> list[bool]:
        """Whether each column holds a number, or nothing; one of texts is aligned to the left."""
        columns = ([row.cells[index] for row in self.rows] for index in range(len(self.headings)))
        return [any(cell.numeric for cell in cells) or not any(cell.value for cell in cells) for cells in columns]

    def groups(self) -> list[tuple[str, list[int]]]:
        """Neighbouring columns of one group, by its name; columns without a group together."""
        places = groupby(range(len(self.headings)), key=lambda index: self.headings[index].group)
        return [(name, list(members)) for name, members in places]


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawn figure as an `<svg>` element, and the sentence below it."""

    svg: str
    caption: str


class MarkedStep(NamedTuple):
    """A line of a plan."""

    text: str
    mark: str = ""
    """Stands before it; its number, unless given."""
    kind: str = ""
    """A class of the style sheet, such as `valid`."""
    about: str = ""
    """Small text after it."""
    hint: str = ""
    """What a page shows where the mark is pointed at."""
    quote: str = ""
    """What somebody says of it, below it."""
    source: str = ""
    """Who says that, and where."""


class PlanColumn(NamedTuple):
    """A plan among others."""

    title: str
    """Names who made it, and gives its colour."""
    steps: tuple[MarkedStep, ...]
    about: str = ""
    """Small text next to the title."""
    below: str = ""
    """Small text after the steps."""


@dataclass(frozen=True, slots=True)
class Plans:
    """Plans side by side; on pages only."""

    plans: tuple[PlanColumn, ...]
    title: str = ""
    about: str = ""
    """Small text next to the title."""
    history: str = ""
    """What was done before."""
    legend: tuple[MarkedStep, ...] = ()
    """Meanings of the marks."""


@dataclass(frozen=True, slots=True)
class NamedValues:
    """Names with their values, such as settings."""

    pairs: tuple[tuple[str, str], ...]


Block = Table | Figure | Plans | NamedValues | str
"""A part of a section; a text is HTML (`markupsafe.Markup`), on pages only."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report with its address on the page."""

    name: str
    title: str
    short: str
    """The title in the page's navigation."""
    paragraphs: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    warnings: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    """One sentence each."""
    folded: bool = False
    """Whether a page shows its blocks on demand only."""


def row(name: str, *values: Value | Cell, kind: str = "", about: str = "", section: str = "") -> TableRow:
    """A row of values or cells."""
    cells = tuple(value if isinstance(value, Cell) else Cell(value) for value in values)
    return TableRow(name, cells, kind, about, section)


def headings(*names: str | Heading) -> tuple[Heading, ...]:
    """Headings without a group, among others that have one."""
    return tuple(Heading(name) if isinstance(name, str) else name for name in names)
