"""HowTo100M captions as the MIL-NCE release has them: one CSV a video, `start,end,text`, in a folder or an archive.

The video id is the file's name.
"""

from collections.abc import Iterator
from functools import partial

from recipe.data.narrations.csv_rows import Row, rows, seconds
from recipe.data.narrations.drafts import Caption, Draft, Fault, Place
from recipe.data.narrations.files import Opened
from recipe.data.narrations.names import video_id
from recipe.data.narrations.options import ReadingOptions
from recipe.data.narrations.report import ReadingReport


def read(file: Opened, options: ReadingOptions, _report: ReadingReport) -> Iterator[Draft]:
    """The draft of the file's video. Raises InputError for a file that is no such table."""
    table = list(rows(file, options.encoding, ("start", "end", "text")))
    where = partial(_row_place, file.label, [row.line for row in table])
    source = options.source or "howto100m"
    yield Draft(Place(file.label), video_id(file.name), [_caption(row) for row in table], where, source=source)


def _caption(row: Row) -> Caption | Fault:
    if isinstance(row.fields, Fault):
        return row.fields
    start, end, text = row.fields
    return Caption(text, seconds(start), seconds(end))


def _row_place(label: str, lines: list[int], index: int, part: str) -> Place:
    return Place(label, lines[index], part or None)
