"""Narrations as CSV tables: HowTo100M's release, HTM-AA, and the titles of HowTo100M."""

import csv
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from recipe.artifacts import text_lines
from recipe.data.narrations.drafts import Caption, Draft, Fault, Place, ReadingOptions, ReadingReport, caption_place
from recipe.data.narrations.files import HEAD, MOST_CHARACTERS, SourceFile
from recipe.data.video_ids import video_name
from recipe.errors import InputError
from recipe.rows import Stripped
from recipe.tables import delimiter_of, opened, read_rows
from recipe.types import Narration


def rows(file: SourceFile, encoding: str, columns: Sequence[str]) -> Iterator[tuple[int, Sequence[str] | Fault]]:
    """Line and fields of each row below the header, in the order of `columns`, or why the row has them not.

    Raises InputError where a column is missing or the file is no CSV.
    """
    # `lines` bounds a row already; the limit of the module itself is 131,072 characters.
    csv.field_size_limit(MOST_CHARACTERS)
    text = file.lines(encoding)
    first = [*islice(text, 1)]
    # Strict, so that a quote that is not closed is an error, and not a field with the rest of the file.
    table = csv.reader(chain(first, text), delimiter=delimiter_of("".join(first)), strict=True)
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
                yield table.line_num, Fault("row of another length", problem, "correct the row")
            else:
                yield table.line_num, [fields[place] for place in places]
    except csv.Error as error:
        raise InputError.at(file.label, f"not valid CSV ({error})", "repair the file", line=table.line_num) from None


def seconds(field: str) -> object:
    """A time as a number; what is no number stays as it is, and is refused later as a bad time."""
    try:
        return float(field)
    except ValueError:
        return field


def read_howto100m_csv(file: SourceFile, options: ReadingOptions, _report: ReadingReport) -> Iterator[Draft]:
    """HowTo100M captions as the MIL-NCE release has them: one CSV a video, `start,end,text`; the name is the video id.

    Raises InputError for a file that is no such table.
    """
    table = list(rows(file, options.encoding, ("start", "end", "text")))
    where = partial(caption_place, Place(file.label), "{part}", [line for line, _ in table], on_line=True)
    captions: list[Caption | Fault] = []
    for _, fields in table:
        if isinstance(fields, Fault):
            captions.append(fields)
        else:
            start, end, text = fields
            captions.append(Caption(text, seconds(start), seconds(end)))
    source = options.source or "howto100m"
    yield Draft(Place(file.label), video_name(file.name).id, captions, where, source=source)


_TABLES = """
CREATE TABLE videos (number INTEGER PRIMARY KEY, video TEXT UNIQUE);
CREATE TABLE captions (video INTEGER, line INTEGER, time TEXT, text TEXT, PRIMARY KEY (video, line)) WITHOUT ROWID;
"""


def read_htm_aa(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """HTM-AA: one CSV of all videos, `vid,timestamp,text`, a moment for each sentence (Han et al., CVPR 2022).

    A sentence has a moment and no length, so its segment begins and ends there. The rows of a video may lie apart: they
    are brought together on disk, in the order in which the videos first appear. Raises InputError for a file that is
    no such table or, unless bad rows are skipped, for a row.
    """
    with closing(sqlite3.connect("", isolation_level=None, check_same_thread=False)) as database:
        # A negative size counts KiB. Nothing of it outlives the process, so that no crash needs a journal.
        database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA cache_size = -65536; {_TABLES} BEGIN;")
        for line, fields in rows(file, options.encoding, ("vid", "timestamp", "text")):
            if isinstance(fields, Fault):
                if options.bad == "error":
                    raise fields.at(Place(file.label, line))
                report.skipped_captions[fields.reason] += 1
                continue
            video, time, text = fields
            database.execute("INSERT OR IGNORE INTO videos (video) VALUES (?)", (video,))
            query = "INSERT INTO captions SELECT number, ?, ?, ? FROM videos WHERE video = ?"
            database.execute(query, (line, time, text, video))
        query = (
            "SELECT videos.video, line, time, text FROM captions JOIN videos ON captions.video = number ORDER BY number"
        )
        for video, group in groupby(database.execute(f"{query}, line"), key=itemgetter(0)):
            numbers: list[int] = []
            captions: list[Caption | Fault] = []
            for _, line, time, text in group:
                numbers.append(line)
                captions.append(Caption(text, moment := seconds(time), moment))
            place, where = Place(file.label, numbers[0], "vid"), partial(_sentence_place, file.label, numbers)
            yield Draft(place, video, captions, where, source=options.source or "htm-aa")


def _sentence_place(label: str, lines: list[int], index: int, part: str) -> Place:
    return Place(label, lines[index], "timestamp" if part in ("start", "end") else part or None)


@dataclass(frozen=True)
class _TitleRow:
    video_id: Stripped = ""
    id: Stripped = ""
    title: Stripped = ""


def read_titles(path: Path) -> dict[str, str]:
    """Title of each video of a file, the first that is given; blank titles are left out.

    The file has lines of a video id, a tab and a title, or rows in any form of `recipe.tables` with `video_id`, or
    `id`, and `title` (`yt-dlp --print "%(.{id,title})j"`). Raises InputError for another layout or a row that cannot be
    used, with its line.
    """
    titles: dict[str, str] = {}
    with opened(path) as stream:
        head = stream.readline(HEAD).decode(errors="replace")
        stream.seek(0)
        tabs = "\t" in head and not re.match(r"\W*(\{|(video.?id|id|title)\s*\t)", head, re.IGNORECASE)
        named: Iterable[tuple[int, Any]] = (
            text_lines(path, stream) if tabs else read_rows(path, _TitleRow, unknown="ignore")
        )
        for number, row in named:
            video, tab, title = row.partition("\t") if tabs else (row.video_id or row.id, "\t", row.title)
            if not video.strip() or not tab:
                raise InputError.at(path, "the row names no video", "give its id, a tab and its title", line=number)
            if title.strip():
                titles.setdefault(video.strip(), " ".join(title.split()))
    if not titles:
        raise InputError.at(path, "the file holds no title", "give lines of a video id, a tab and a title")
    return titles


def with_titles(
    narrations: Iterable[Narration], titles: Mapping[str, str], report: ReadingReport
) -> Iterator[Narration]:
    """The narrations; those without a title get that of their video. Counts go to `report`."""
    for narration in narrations:
        title = titles.get(narration.video_id) if narration.title is None else None
        report.titled += title is not None
        report.untitled += narration.title is None and title is None
        yield replace(narration, title=title) if title else narration
