"""A table on a terminal."""

from itertools import groupby

from rich.table import Table as RichTable
from rich.text import Text

from recipe.report.elements import Cell, Row, Table


def terminal_table(table: Table) -> RichTable:
    """The table for rich, without its notes; columns of one group share a column, and bounds follow their mean."""
    title = f"{table.caption} ({table.about})" if table.about else table.caption
    drawn = RichTable(title=Text(title) if title else None)
    drawn.add_column(Text(table.first), overflow="fold")
    places = range(len(table.headings))
    groups = [
        (name, list(members) if name else [place])
        for name, some in groupby(places, key=lambda place: table.headings[place].group)
        for members in [list(some)]
        for place in ([members[0]] if name else members)
    ]
    widths = [
        max(len(table.headings[place].text), *(len(_text(row.cells[place])) for row in table.rows), 0)
        for place in places
    ]
    for name, members in groups:
        numeric = any(row.cells[place].numeric for row in table.rows for place in members)
        texts = [table.headings[place].text for place in members]
        heading = f"{name}\n{_packed(texts, widths, members)}" if name else texts[0]
        drawn.add_column(Text(heading), justify="right" if numeric else "left", no_wrap=numeric)
    section = ""
    for row in table.rows:
        if row.section and row.section != section:
            drawn.add_section()
            drawn.add_row(Text(row.section, style="italic"))
        section = row.section
        drawn.add_row(_name(row), *(_cells([row.cells[place] for place in some], widths, some) for _, some in groups))
    return drawn


def _name(row: Row) -> Text:
    return Text(f"{row.name}, {row.about}" if row.about else row.name)


def _text(cell: Cell) -> str:
    return f"{cell.text}, {cell.small}" if cell.small else cell.text


def _cells(cells: list[Cell], widths: list[int], places: list[int]) -> Text:
    if len(cells) == 1:
        return Text(_text(cells[0]), style="bold" if cells[0].clear else "")
    return Text(_packed([_text(cell) for cell in cells], widths, places))


def _packed(texts: list[str], widths: list[int], places: list[int]) -> str:
    return "  ".join(text.rjust(widths[place]) for text, place in zip(texts, places, strict=True))
