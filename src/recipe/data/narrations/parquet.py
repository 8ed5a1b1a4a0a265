"""Narrations as Parquet, one row a video or one row a segment; read by batches of rows.

A row a video: `video_id` and either `segments`, a list of {text, start, end}, or the lists `text`, `start` and `end`.
A row a segment: `video_id`, `text`, `start`, `end`, all rows of a video together. `title`, `source` and `url` are
optional, and so are `start` and `end` for text without times.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recipe.data.narrations.drafts import (
    Caption,
    Draft,
    Fault,
    Place,
    ReadingOptions,
    ReadingReport,
    caption,
    caption_place,
)
from recipe.data.narrations.files import SourceFile
from recipe.data.narrations.json_files import Lists, list_drafts
from recipe.data.narrations.reading import VideoLog
from recipe.errors import InputError

VIDEOS_AT_ONCE = 64
SEGMENTS_AT_ONCE = 4096

_COLUMNS = ("video_id", "segments", "text", "start", "end", "title", "source", "url")
_NO_LIST = Fault("not a narration", "the list of segments is missing", "give the segments or remove the row")
_NO_SEGMENT = Fault("not a caption", "the segment is missing", "give the segment or remove it")

_Row = dict[str, Any]


def read_parquet(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """One draft a video. Raises InputError for a file that is damaged, has other columns or scatters a video's rows."""
    with _opened(file) as table:
        schema = table.schema_arrow
        kinds = {name: schema.field(name).type for name in schema.names}
        lists = {name for name, kind in kinds.items() if pa.types.is_list(kind) or pa.types.is_large_list(kind)}
        spoken = "segments" if "segments" in kinds else "text"
        for name in ("video_id", spoken):
            if name not in kinds:
                remedy = "give the columns video_id, text, start and end, or video_id and segments"
                raise InputError.at(file.label, f"the file has no column {name!r}", remedy)
        captions: Sequence[Caption | Fault] | Fault
        if spoken not in lists:  # a row a segment, those of a video together
            rows = _rows(table, SEGMENTS_AT_ONCE)
            with VideoLog() as videos:
                for video_id, group in groupby(rows, key=lambda numbered: numbered[1]["video_id"]):
                    members = list(group)
                    numbers, first = [number for number, _ in members], members[0][1]
                    place = Place(file.label, field=f"row {numbers[0]}")
                    if isinstance(video_id, str) and not videos.add(video_id, f"row {numbers[0]}"):
                        began = videos.place(video_id)
                        problem = f"the rows of video {video_id!r} are not together: they began at {began}"
                        raise InputError.at(file.label, problem, "sort the file by video_id", field=place.field)
                    captions = [caption(row) for _, row in members]
                    where = partial(caption_place, Place(file.label), "row {n}{comma}", numbers)
                    title, source, url = first.get("title"), _source(first, options), first.get("url")
                    yield Draft(place, video_id, captions, where, title, source, url=url)
            return
        for number, row in _rows(table, VIDEOS_AT_ONCE):
            place = Place(file.label, field=f"row {number}")
            video_id, title, source = row["video_id"], row.get("title"), _source(row, options)
            if "segments" in row:
                where = partial(caption_place, place, ".segments[{n}]{dot}", None)
                items = row["segments"]
                captions = _NO_LIST
                if items is not None:
                    captions = [_NO_SEGMENT if item is None else caption(item) for item in items]
                yield Draft(place, video_id, captions, where, title, source, url=row.get("url"))
                continue
            text = row["text"]
            none = [None] * len(text or ())
            start, end = (none if row.get(name) is None else row[name] for name in ("start", "end"))
            parsed = list_drafts(place, video_id, Lists(start, end, text, title, source), options, report)
            yield from (draft._replace(url=row.get("url")) for draft in parsed)


@contextmanager
def _opened(file: SourceFile) -> Iterator[pq.ParquetFile]:
    """The table of a file; damage that shows while it is open is an InputError."""
    if file.path is None:
        problem = "Parquet files cannot be read from an archive or compressed"
        raise InputError.at(file.label, problem, "unpack it and give the file")
    try:
        # Without reading ahead, which takes memory and pays for remote files only.
        with pq.ParquetFile(file.path, pre_buffer=False) as table:
            yield table
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise InputError.at(file.label, f"the Parquet file is damaged ({reason})", "fetch or write it again") from None


def _rows(table: pq.ParquetFile, at_once: int) -> Iterator[tuple[int, _Row]]:
    """Number, from 1 on, and columns of each row."""
    columns = [name for name in _COLUMNS if name in table.schema_arrow.names]
    number = 0
    for batch in table.iter_batches(batch_size=at_once, columns=columns, use_threads=False):
        for row in batch.to_pylist():
            number += 1
            yield number, row


def _source(row: _Row, options: ReadingOptions) -> str | None:
    source = row.get("source")
    return source if isinstance(source, str) else options.source
