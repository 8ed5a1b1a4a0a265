"""A table on a terminal: no column is left out, and no figure is cut, however narrow it is."""

import textwrap
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from recipe.report.elements import Cell, Table

# Letters of a word of a name that stay on one line, at most; longer ones fold.
_NAME = 24
# Letters of a word of another text that do.
_WORD = 12


def terminal_table(table: Table, width_of_terminal: int) -> RenderableType:
    """The table for rich in so many columns, without its notes.

    Columns of one group share a column, and bounds follow their mean. Where the width is too small, texts and headings
    fold first. Where the figures do not fit side by side even then, each row is a record: a line for each cell.
    """
    shared = [places for name, places in table.groups() if name]
    columns = sorted([*shared, *([index] for name, places in table.groups() if not name for index in places)])
    numbers = table.numeric()
    numeric = [any(numbers[index] for index in column) for column in columns]
    names = [f"{row.name}, {row.about}" if row.about else row.name for row in table.rows]

    # The heading and the texts of each column; in a shared one, each figure stands below its own heading.
    grid = [[heading.text for heading in table.headings], *([_text(cell) for cell in row.cells] for row in table.rows)]
    widest = [max(len(line[index]) for line in grid) for index in range(len(table.headings))]
    titles, texts = list[str](), list[list[str]]()
    for column in columns:
        packed = [line[column[0]] for line in grid]
        if len(column) > 1:
            packed = ["  ".join(line[index].rjust(widest[index]) for index in column) for line in grid]
        group = table.headings[column[0]].group
        titles.append(f"{group}\n{packed[0]}" if group else packed[0])
        texts.append(packed[1:])

    # What each column needs at least: figures all of their width, texts their longest word.
    widths = [max([1, *map(len, shown)]) for shown in texts]
    between = 3 * (len(columns) + 1) + 1
    # Headings fold only where it helps: the first try keeps each on one line.
    for folded in (False, True):
        if folded:
            titles = [
                title if "\n" in title else textwrap.fill(title, max(width, _longest([title], _WORD)))
                for title, width in zip(titles, widths, strict=True)
            ]
        least = [_longest(names, _NAME)]
        for title, width, shown, figures in zip(titles, widths, texts, numeric, strict=True):
            needed = max(width, *map(len, title.split("\n"))) if figures else _longest([title, *shown], _WORD)
            least.append(needed)
        if fits := sum(least) + between <= width_of_terminal:
            break

    caption = Text(f"{table.caption} ({table.about})" if table.about else table.caption)
    if not fits:
        return Group(*([Text(caption.plain, "italic")] if caption else []), *_records(table, names))
    drawn = RichTable(title=caption or None)
    drawn.add_column(Text(table.first), overflow="fold", min_width=least[0])
    for heading, figures, needed in zip(titles, numeric, least[1:], strict=True):
        # Rich would take width from every column alike.
        drawn.add_column(
            Text(heading), justify="right" if figures else "left", no_wrap=figures, overflow="fold", min_width=needed
        )
    section = ""
    for number, row in enumerate(table.rows):
        if row.section not in ("", section):
            drawn.add_section()
            drawn.add_row(Text(row.section, style="italic"))
        section = row.section
        clear = (len(column) == 1 and row.cells[column[0]].clear for column in columns)
        cells = (Text(shown[number], "bold" if marked else "") for shown, marked in zip(texts, clear, strict=True))
        drawn.add_row(Text(names[number]), *cells)
    return drawn


def _records(table: Table, names: Sequence[str]) -> list[RenderableType]:
    """The rows below each other: its name, and below it each cell with its heading."""
    records = list[RenderableType]()
    section = ""
    for name, row in zip(names, table.rows, strict=True):
        if row.section not in ("", section):
            records.append(Text(row.section, "italic"))
        section = row.section
        cells = RichTable.grid(padding=(0, 2))
        cells.add_column(overflow="fold")
        cells.add_column(overflow="fold")
        for heading, cell in zip(table.headings, row.cells, strict=True):
            words = f"{heading.group}, {heading.text}" if heading.group else heading.text
            cells.add_row(Text(words), Text(_text(cell), "bold" if cell.clear else ""))
        records += [Text(name, "bold"), Padding(cells, (0, 0, 0, 2), expand=False)]
    return records


def _longest(texts: Sequence[str], most: int) -> int:
    """Letters of the longest word that is not folded: a number, or one of at most `most` letters."""
    words = [word for text in texts for word in text.split()]
    numbers = [len(word) for word in words if any(map(str.isdigit, word)) and not any(map(str.isalpha, word))]
    return max([1, *numbers, min(max(map(len, words), default=1), most)])


def _text(cell: Cell) -> str:
    return f"{cell.text}, {cell.small}" if cell.small else cell.text
