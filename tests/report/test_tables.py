"""One table value on a page, in Markdown and on a terminal."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from tests.conftest import NARROW, assert_fits

from recipe.report.elements import Cell, Heading, NamedValues, Section, Table, headings, row
from recipe.report.html import page_environment
from recipe.report.markdown import render_markdown
from recipe.report.terminal import terminal_table
from recipe.stats import Interval

TABLE = Table(
    caption="Accuracy",
    first="system",
    headings=(*headings("judge", "change"), Heading("SR", "T=3"), Heading("mAcc", "T=3"), Heading("SR", "T=4")),
    rows=(
        row("base <b>", "a [judge]", Cell(Interval(2.0, 1.0, 3.0), signed=True), Cell(0, 1), None, 1234),
        row("other", "b", Cell(Interval(-0.1, -1.0, 3.0), signed=True), 10.0, 20.25, 3, section="published"),
    ),
    about="percent",
    notes=("A note with [brackets].",),
)


def on_terminal(table: Table, width: int = 100) -> str:
    console = Console(width=width, record=True, file=StringIO())
    console.print(terminal_table(table, width))
    return console.export_text()


def test_every_form_shows_the_same_figures() -> None:
    page = page_environment("recipe.report").get_template("elements.html.jinja")
    html = str(page.module.table(TABLE))  # type: ignore[attr-defined]
    markdown = render_markdown("Title", [], [Section("a", "A", "a", blocks=(TABLE,))])
    for text in (html, markdown, on_terminal(TABLE)):
        for figure in ("+2.0", "+1.0 to +3.0", "−0.1", "−1.0 to +3.0", "0.0", "–", "1,234", "20.2", "published", "T=3"):
            assert figure in text, figure
    assert "base &lt;b&gt;" in html
    assert "<b>+2.0</b>" in html
    assert "**+2.0**" in markdown


def test_markdown_names_how_it_was_run() -> None:
    """As the page does: a section of names and values alone is no empty heading."""
    settings = NamedValues((("command", "recipe reproduce main"), ("seed", "0 | <b>")))
    lines = render_markdown("Title", [], [Section("run", "Run", "Run", blocks=(settings, TABLE))]).split("\n")
    first = lines.index("* command: recipe reproduce main")
    assert lines[first + 1 : first + 3] == ["* seed: 0 | &lt;b>", ""]
    assert lines[first + 3].startswith("**Accuracy**")


def test_columns_of_one_group_share_a_column_of_the_terminal() -> None:
    lines = on_terminal(TABLE).splitlines()
    assert [line.count("┃") for line in lines if "mAcc" in line] == [6]
    assert any("a [judge]" in line and "base <b>" in line for line in lines)
    [first] = [line for line in lines if "base <b>" in line]
    assert first.split("│")[4].split() == ["0.0", "–"]


WIDE = Table(
    caption="Coverage",
    first="task",
    headings=headings("a sentence", *(f"figure {number}" for number in range(9))),
    rows=tuple(
        row(
            f"arrange the ingredients of dish {number}",
            "It is covered by antidisestablishmentarianism and by several other narrations",
            *(Cell(Interval(number + part / 7, number - 1.0, number + 1.0), 3).split()[part % 2] for part in range(9)),
        )
        for number in range(3)
    ),
)


@pytest.mark.parametrize("width", NARROW)
@pytest.mark.parametrize("columns", range(1, 11))
def test_a_narrow_terminal_folds_texts_and_cuts_no_figure(width: int, columns: int) -> None:
    """Texts fold first, and what does not fit then is one record below the other."""
    narrow = replace(
        WIDE, headings=WIDE.headings[:columns], rows=tuple(row._replace(cells=row.cells[:columns]) for row in WIDE.rows)
    )
    for table in (TABLE, narrow):
        shown = assert_fits(table, width)
        for heading in table.headings:
            assert all(word in shown for word in heading.text.split())


@pytest.mark.parametrize(
    ("cell", "text", "small"),
    [
        (Cell(Interval(0.174, 0.1, 0.2), 0, percent=True), "17 %", "10 to 20"),
        (Cell(-0.034, 0, percent=True, signed=True), "−3 pp", ""),
        (Cell(-0.0001, 2, signed=True), "0.00", ""),
        (Cell(0.0002, 3, least=0.001), "< 0.001", ""),
        (Cell(12, note="3 videos"), "12", "3 videos"),
        (Cell(Interval(1.0)), "1.0", ""),
        (Cell(Interval(0.5, 0.4, 0.6), 2).split()[0], "0.50", ""),
        (Cell(Interval(0.5, 0.4, 0.6), 2).split()[1], "0.40 to 0.60", ""),
    ],
)
def test_a_cell_shows_its_value_as_its_format_says(cell: Cell, text: str, small: str) -> None:
    assert (cell.text, cell.small) == (text, small)
