"""The corpus folder: names, columns and manifest that the builder writes and the store reads.

    manifest.json                     written last: encoder, counts, checksums, corpus id
    build.json                        the same settings while a build is under way
    shards/00000/embeddings.npy       float16 [segments, d], unit norm, segments in narration order
    shards/00000/narrations.parquet   video_id, title, source, first segment, count
    shards/00000/segments.parquet     narration, start, end, text; times null where the source has none

Row numbers count from 0 within a shard, so that each shard can be read alone.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from recipe.corpus.encoders import EncoderIdentity
from recipe.types import Narration, Segment

FORMAT = 1
MANIFEST, PLAN, SHARDS = "manifest.json", "build.json", "shards"
EMBEDDINGS, NARRATIONS, SEGMENTS = "embeddings.npy", "narrations.parquet", "segments.parquet"
FILES = (EMBEDDINGS, NARRATIONS, SEGMENTS)

_NARRATION_COLUMNS = pa.schema(
    [
        pa.field("video_id", pa.string(), nullable=False),
        pa.field("title", pa.string()),
        pa.field("source", pa.string()),
        pa.field("first_segment", pa.int64(), nullable=False),
        pa.field("segments", pa.int64(), nullable=False),
    ]
)
_SEGMENT_COLUMNS = pa.schema(
    [
        pa.field("narration", pa.int64(), nullable=False),
        pa.field("start", pa.float64()),
        pa.field("end", pa.float64()),
        pa.field("text", pa.string(), nullable=False),
    ]
)


class Plan(TypedDict):
    """What a build is bound to from its first shard to its last."""

    format: int
    encoder: EncoderIdentity
    shard_size: int


class FileRecord(TypedDict):
    """Size and checksum of one file of a shard."""

    bytes: int
    sha256: str


class ShardRecord(TypedDict):
    """One shard in the manifest."""

    name: str
    narrations: int
    timed: int
    segments: int
    files: dict[str, FileRecord]


class Manifest(Plan):
    """The whole corpus in figures; `id` is a hash over everything that defines it."""

    narrations: int
    timed: int
    segments: int
    shards: list[ShardRecord]
    id: str


def shard_name(index: int) -> str:
    """Folder name of the shard with this index."""
    return f"{index:05d}"


def write_narrations(folder: Path, narrations: Sequence[Narration]) -> None:
    """Write a shard's two tables; the same narrations give the same bytes."""
    counts = [len(narration.segments) for narration in narrations]
    table = {
        "video_id": [narration.video_id for narration in narrations],
        "title": [narration.title for narration in narrations],
        "source": [narration.source for narration in narrations],
        "first_segment": [0, *accumulate(counts[:-1])],
        "segments": counts,
    }
    segments = [(row, segment) for row, narration in enumerate(narrations) for segment in narration.segments]
    rows = {
        "narration": [row for row, _ in segments],
        "start": [segment.start for _, segment in segments],
        "end": [segment.end for _, segment in segments],
        "text": [segment.text for _, segment in segments],
    }
    pq.write_table(pa.table(table, schema=_NARRATION_COLUMNS), folder / NARRATIONS, compression="zstd")
    pq.write_table(pa.table(rows, schema=_SEGMENT_COLUMNS), folder / SEGMENTS, compression="zstd")


def read_narrations(folder: Path) -> Iterator[Narration]:
    """The narrations of a shard, in corpus order. Raises pyarrow's errors for damaged files."""
    segments = pq.read_table(folder / SEGMENTS, schema=_SEGMENT_COLUMNS, memory_map=True)
    texts, starts, ends = (segments.column(name).to_pylist() for name in ("text", "start", "end"))
    for row in pq.read_table(folder / NARRATIONS, schema=_NARRATION_COLUMNS, memory_map=True).to_pylist():
        span = slice(row["first_segment"], row["first_segment"] + row["segments"])
        spoken = zip(texts[span], starts[span], ends[span], strict=True)
        yield Narration(row["video_id"], tuple(Segment(*item) for item in spoken), row["title"], row["source"])


def read_counts(folder: Path) -> list[int]:
    """Number of segments of each narration of a shard. Raises pyarrow's errors for damaged files."""
    counts: list[int] = pq.read_table(folder / NARRATIONS, columns=["segments"]).column("segments").to_pylist()
    return counts
