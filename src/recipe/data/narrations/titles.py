"""Titles for HowTo100M: the wikiHow task that each video was found with, from `HowTo100M_v1.csv` and `task_ids.csv`."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from recipe.data.narrations.csv_rows import rows
from recipe.data.narrations.drafts import Fault, Place
from recipe.data.narrations.files import opened_files
from recipe.data.narrations.text import lines
from recipe.errors import InputError
from recipe.types import Narration


def titled(narrations: Iterable[Narration], videos: Path, tasks: Path) -> Iterator[Narration]:
    """The narrations, those without a title with their video's task for one; what is known of videos lies on disk.

    `videos` has the columns video_id and task_id, `tasks` lines of a task's number, a tab and its name. Raises
    InputError for files of another layout.
    """
    names = _names(tasks)
    with _tasks(videos) as database:
        for narration in narrations:
            query = "SELECT task FROM videos WHERE video = ?"
            found = database.execute(query, (narration.video_id,)).fetchone() if narration.title is None else None
            name = names.get(found[0]) if found else None
            yield replace(narration, title=name) if name else narration


def _names(tasks: Path) -> dict[str, str]:
    """Name of each task; lines that begin with no number, such as a header, are passed over."""
    names = {}
    for file in opened_files(tasks):
        for line in lines(file, "utf-8"):
            number, _, name = line.strip().partition("\t" if "\t" in line else ",")
            if number.isdigit() and name.strip():
                names[number] = name.strip()
    if not names:
        raise InputError.at(tasks, "no line holds a task's number and name", "give task_ids.csv of HowTo100M")
    return names


@contextmanager
def _tasks(videos: Path) -> Iterator[sqlite3.Connection]:
    """The task of each video, the first one that is named, in a private temporary database."""
    with closing(sqlite3.connect("", isolation_level=None, check_same_thread=False)) as database:
        database.executescript("PRAGMA journal_mode = OFF; PRAGMA cache_size = -16384; BEGIN;")
        database.execute("CREATE TABLE videos (video TEXT PRIMARY KEY, task TEXT) WITHOUT ROWID")
        for file in opened_files(videos):
            for line, fields in rows(file, "utf-8", ("video_id", "task_id")):
                if isinstance(fields, Fault):
                    raise fields.at(Place(file.label, line))
                database.execute("INSERT OR IGNORE INTO videos VALUES (?, ?)", tuple(fields))
        yield database
