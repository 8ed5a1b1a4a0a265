"""HTM-AA: one CSV of all videos, `vid,timestamp,text`, a moment in seconds for each sentence (Han et al., CVPR 2022).

A sentence has a moment and no length, so its segment begins and ends there. The rows of a video may lie apart: they are
brought together on disk, in the order in which the videos first appear.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import groupby
from operator import itemgetter

from recipe.data.narrations.csv_rows import rows, seconds
from recipe.data.narrations.drafts import Caption, Draft, Fault, Place
from recipe.data.narrations.files import Opened
from recipe.data.narrations.options import ReadingOptions
from recipe.data.narrations.report import ReadingReport

_TABLES = """
CREATE TABLE videos (number INTEGER PRIMARY KEY, video TEXT UNIQUE);
CREATE TABLE captions (video INTEGER, line INTEGER, time TEXT, text TEXT, PRIMARY KEY (video, line)) WITHOUT ROWID;
"""


def read(file: Opened, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """One draft a video. Raises InputError for a file that is no such table or, unless bad rows are skipped, a row."""
    with closing(sqlite3.connect("", isolation_level=None, check_same_thread=False)) as database:
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
            yield _draft(file.label, video, list(group), options.source or "htm-aa")


def _draft(label: str, video: str, found: list[tuple[str, int, str, str]], source: str) -> Draft:
    captions = [Caption(text, time := seconds(moment), time) for _, _, moment, text in found]
    where = partial(_row_place, label, [line for _, line, _, _ in found])
    return Draft(Place(label, found[0][1], "vid"), video, captions, where, source=source)


def _row_place(label: str, lines: list[int], index: int, part: str) -> Place:
    return Place(label, lines[index], "timestamp" if part in ("start", "end") else part or None)
