"""Narration corpora in every form they are published in, read as a stream of narrations (docs/data.md).

paths -> `files` (folders, archives) -> `reading` (which format) -> a reader of that format -> `drafts` (a narration as
its file has it, and which of its captions are usable) -> narrations, each video once.
"""

from recipe.data.narrations.drafts import DEFAULTS, Duplicates, ReadingOptions, ReadingReport
from recipe.data.narrations.json_files import to_row
from recipe.data.narrations.reading import read_narrations
from recipe.data.narrations.tables import read_titles, with_titles

__all__ = [
    "DEFAULTS",
    "Duplicates",
    "ReadingOptions",
    "ReadingReport",
    "read_narrations",
    "read_titles",
    "to_row",
    "with_titles",
]
