"""Rows of a CSV file with a header, each with the line that it ends on."""

import csv
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recipe.data.narrations.drafts import Fault
from recipe.data.narrations.files import Opened
from recipe.data.narrations.text import lines
from recipe.errors import InputError

LONGEST = 1 << 24
"""Characters of one field at most."""


class Row(NamedTuple):
    """The fields asked for, in the order asked for, or why the row has them not."""

    line: int
    fields: Sequence[str] | Fault


def rows(file: Opened, encoding: str, columns: Sequence[str]) -> Iterator[Row]:
    """The rows below the header. Raises InputError where a column is missing or the file is no CSV."""
    csv.field_size_limit(LONGEST)
    table = csv.reader(lines(file, encoding), strict=True)
    try:
        header = [name.strip().lower() for name in next(table, [])]
        if missing := [name for name in columns if name not in header]:
            remedy = f"give a table with the columns {', '.join(columns)}"
            raise InputError.at(file.label, f"the header has no column {missing[0]!r}", remedy, line=1)
        places = [header.index(name) for name in columns]
        for fields in table:
            if not fields:
                continue
            if len(fields) != len(header):
                problem = f"the row has {len(fields)} fields and the header {len(header)}"
                yield Row(table.line_num, Fault("row of another length", problem, "correct the row"))
            else:
                yield Row(table.line_num, [fields[place] for place in places])
    except csv.Error as error:
        raise InputError.at(file.label, f"not valid CSV ({error})", "repair the file", line=table.line_num) from None


def seconds(field: str) -> object:
    """A time as a number; what is no number stays as it is, and is refused later as a bad time."""
    try:
        return float(field)
    except ValueError:
        return field
