"""Narrations as Parquet, one row a video or one row a segment; read by batches of rows.

A row a video: `video_id` and either `segments`, a list of {text, start, end}, or the lists `text`, `start` and `end`.
A row a segment: `video_id`, `text`, `start`, `end`, all rows of a video together. `title` and `source` are optional,
and so are `start` and `end` for text without times.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recipe.data.narrations.drafts import Caption, Draft, Fault, Place, ReadingOptions, ReadingReport, caption
from recipe.data.narrations.files import SourceFile
from recipe.data.narrations.parallel import Lists, drafts
from recipe.data.narrations.reading import VideoLog
from recipe.errors import InputError

VIDEOS_AT_ONCE = 64
SEGMENTS_AT_ONCE = 4096

_COLUMNS = ("video_id", "segments", "text", "start", "end", "title", "source")
_NO_LIST = Fault("not a narration", "the list of segments is missing", "give the segments or remove the row")
_NO_SEGMENT = Fault("not a caption", "the segment is missing", "give the segment or remove it")

_Row = dict[str, Any]


def read_parquet(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """One draft a video. Raises InputError for a file that is damaged, has other columns or scatters a video's rows."""
    if file.path is None:
        raise InputError.at(file.label, "a Parquet file cannot be read from an archive", "unpack it and give the file")
    try:
        with pq.ParquetFile(file.path, pre_buffer=False) as table:
            if _row_a_video(file.label, table.schema_arrow):
                yield from _videos(file.label, _rows(table, VIDEOS_AT_ONCE), options, report)
            else:
                yield from _segments(file.label, _rows(table, SEGMENTS_AT_ONCE), options)
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise InputError.at(file.label, f"the Parquet file is damaged ({reason})", "fetch or write it again") from None


def _row_a_video(label: str, schema: Any) -> bool:
    spoken = "segments" if "segments" in schema.names else "text"
    for name in ("video_id", spoken):
        if name not in schema.names:
            remedy = "give the columns video_id, text, start and end, or video_id and segments"
            raise InputError.at(label, f"the file has no column {name!r}", remedy)
    kind = schema.field(spoken).type
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _rows(table: Any, at_once: int) -> Iterator[tuple[int, _Row]]:
    """Number, from 1 on, and columns of each row."""
    columns = [name for name in _COLUMNS if name in table.schema_arrow.names]
    number = 0
    for batch in table.iter_batches(batch_size=at_once, columns=columns, use_threads=False):
        for row in batch.to_pylist():
            number += 1
            yield number, row


def _videos(
    label: str, rows: Iterator[tuple[int, _Row]], options: ReadingOptions, report: ReadingReport
) -> Iterator[Draft]:
    for number, row in rows:
        place = Place(label, field=f"row {number}")
        video_id, title, source = row["video_id"], row.get("title"), _source(row, options)
        if "segments" in row:
            where = partial(place.item, f"{place.field}.segments")
            yield Draft(place, video_id, _captions(row["segments"]), where, title, source)
            continue
        text = row["text"]
        none = [None] * len(text or ())
        start, end = (none if row.get(name) is None else row[name] for name in ("start", "end"))
        yield from drafts(place, video_id, Lists(start, end, text, title, source), options, report)


def _source(row: _Row, options: ReadingOptions) -> str | None:
    source = row.get("source")
    return source if isinstance(source, str) else options.source


def _captions(items: Sequence[_Row | None] | None) -> Sequence[Caption | Fault] | Fault:
    if items is None:
        return _NO_LIST
    return [_NO_SEGMENT if item is None else caption(item) for item in items]


def _segments(label: str, rows: Iterator[tuple[int, _Row]], options: ReadingOptions) -> Iterator[Draft]:
    with VideoLog() as videos:
        for video_id, group in groupby(rows, key=lambda numbered: numbered[1]["video_id"]):
            members = list(group)
            numbers, first = [number for number, _ in members], members[0][1]
            place = Place(label, field=f"row {numbers[0]}")
            if isinstance(video_id, str) and not videos.add(video_id, f"row {numbers[0]}"):
                problem = f"the rows of video {video_id!r} are not together: they began at {videos.place(video_id)}"
                raise InputError.at(label, problem, "sort the file by video_id", field=place.field)
            captions = [Caption(row["text"], row.get("start"), row.get("end")) for _, row in members]
            where = partial(_row_place, label, numbers)
            yield Draft(place, video_id, captions, where, first.get("title"), _source(first, options))


def _row_place(label: str, numbers: list[int], index: int, part: str) -> Place:
    return Place(label, field=f"row {numbers[index]}{', ' if part else ''}{part}")
