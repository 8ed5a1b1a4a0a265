"""A table on a terminal."""

from collections.abc import Sequence

from rich.table import Table as RichTable
from rich.text import Text

from recipe.report.elements import Cell, Table


def terminal_table(table: Table) -> RichTable:
    """The table for rich, without its notes; columns of one group share a column, and bounds follow their mean."""
    title = f"{table.caption} ({table.about})" if table.about else table.caption
    drawn = RichTable(title=Text(title) if title else None)
    # Where the columns of numbers need all of the width, the names would be drawn in none.
    longest = max((len(word) for row in table.rows for word in row.name.split()), default=0)
    drawn.add_column(Text(table.first), overflow="fold", min_width=min(longest, 24))
    shared = [places for name, places in table.groups() if name]
    columns = sorted([*shared, *([index] for name, places in table.groups() if not name for index in places)])
    widths = [
        max([len(heading.text), *(len(_text(row.cells[index])) for row in table.rows)])
        for index, heading in enumerate(table.headings)
    ]

    def packed(texts: Sequence[str], column: Sequence[int]) -> str:
        return "  ".join(text.rjust(widths[index]) for text, index in zip(texts, column, strict=True))

    numbers = table.numeric()
    for column in columns:
        numeric = any(numbers[index] for index in column)
        group, texts = table.headings[column[0]].group, [table.headings[index].text for index in column]
        heading = f"{group}\n{packed(texts, column)}" if group else texts[0]
        drawn.add_column(Text(heading), justify="right" if numeric else "left", no_wrap=numeric)
    section = ""
    for row in table.rows:
        if row.section not in ("", section):
            drawn.add_section()
            drawn.add_row(Text(row.section, style="italic"))
        section = row.section
        name = f"{row.name}, {row.about}" if row.about else row.name
        cells = (
            Text(_text(row.cells[column[0]]), style="bold" if row.cells[column[0]].clear else "")
            if len(column) == 1
            else Text(packed([_text(row.cells[index]) for index in column], column))
            for column in columns
        )
        drawn.add_row(Text(name), *cells)
    return drawn


def _text(cell: Cell) -> str:
    return f"{cell.text}, {cell.small}" if cell.small else cell.text
