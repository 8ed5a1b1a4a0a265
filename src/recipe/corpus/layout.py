"""The corpus folder: names, columns and manifest that the builder writes and the store reads.

    manifest.json                     written last: encoder, counts, checksums, corpus id
    inputs.json                       the files that were read: a rebuild need not read them again
    shards/00000/embeddings.npy       float16 [segments, d], unit norm, segments in narration order
    shards/00000/codes.npy            int8 [segments, D], the same rotated and quantised, D = d up to a multiple of 64
    shards/00000/bounds.npy           float32 [narrations, 3]: scale of the codes, largest residual, largest norm
    shards/00000/offsets.npy          int64 [narrations + 1], first segment of each narration
    shards/00000/narrations.parquet   video_id, title, source, first segment, count; url where any has one
    shards/00000/segments.parquet     narration, start, end, text; times null where the source has none

While a build is under way there are also

    build.json                        the settings that the build is bound to
    staged.json                       written when all narrations are staged: counts and checksums of every shard
    staging/00000/                    a shard before its texts are encoded: offsets and both tables
    staging/00000/shard.json          its record for the manifest, written just before it appears in shards/

A corpus that grows (`recipe.corpus.change`) can also have

    earlier/ID.json                   a manifest of before, while a process still has that corpus open
    .change/                          what a change has staged and encoded so far, until its manifest is written

Row numbers count from 0 within a shard, so that each shard can be read alone. Rows of removed narrations stay in a
shard's files; the manifest names them, and every reader here leaves them out.
"""

import fcntl
import io
import os
import re
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NotRequired, cast, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from recipe.artifacts import file_sha256, fingerprint, read_json
from recipe.corpus.encoder_identity import EncoderIdentity
from recipe.errors import CorpusError, InputError
from recipe.types import Narration, Segment

FORMAT = 3
CHANGED_FORMAT = 4
"""The format of a corpus with removed narrations, or with shards under other names than a build gives them."""
MANIFEST, INPUTS, SHARDS = "manifest.json", "inputs.json", "shards"
EARLIER = "earlier"
PLAN, STAGED, STAGING, RECORD = "build.json", "staged.json", "staging", "shard.json"
EMBEDDINGS, NARRATIONS, SEGMENTS = "embeddings.npy", "narrations.parquet", "segments.parquet"
CODES, BOUNDS, OFFSETS = "codes.npy", "bounds.npy", "offsets.npy"
TABLES = (OFFSETS, NARRATIONS, SEGMENTS)
"""What a shard holds before its texts are encoded."""
FILES = (EMBEDDINGS, CODES, BOUNDS, *TABLES)
# Names of shards; those of a build count from 0.
_NAME = re.compile(r"\d{5,}")

_NARRATION_COLUMNS = pa.schema(
    [
        pa.field("video_id", pa.string(), nullable=False),
        pa.field("title", pa.string()),
        pa.field("source", pa.string()),
        pa.field("first_segment", pa.int64(), nullable=False),
        pa.field("segments", pa.int64(), nullable=False),
    ]
)
# A shard without addresses has no column for them.
_WITH_URL = _NARRATION_COLUMNS.append(pa.field("url", pa.string()))
_SEGMENT_COLUMNS = pa.schema(
    [
        pa.field("narration", pa.int64(), nullable=False),
        pa.field("start", pa.float64()),
        pa.field("end", pa.float64()),
        pa.field("text", pa.string(), nullable=False),
    ]
)


class BuildPlan(TypedDict):
    """What a build is bound to from its first shard to its last."""

    format: int
    encoder: EncoderIdentity
    shard_size: int
    reading: dict[str, Any] | None
    """How the input was read, as settings; None where narrations were handed over in Python."""
    exclusions: dict[str, Any] | None
    """What identifies the videos and texts that were kept out; None where nothing was."""


class FileRecord(TypedDict):
    """Size and checksum of one file of a shard."""

    bytes: int
    sha256: str


class CorpusCounts(TypedDict):
    """What a shard or a corpus holds; `timed` are the narrations with times."""

    narrations: int
    timed: int
    segments: int


class RemovedRows(TypedDict):
    """Narrations of a shard that were removed from the corpus and that its files still hold."""

    rows: list[int]
    """Their rows in the shard, in order."""
    timed: int
    """How many of them have times."""
    segments: int
    """Segments of all of them."""


class ShardRecord(CorpusCounts):
    """One shard in the manifest, with the counts of what its files hold; `content` is a hash over texts and times."""

    name: str
    content: str
    files: dict[str, FileRecord]
    removed: NotRequired[RemovedRows]


class Manifest(BuildPlan, CorpusCounts):
    """The whole corpus in figures; `id` is a hash over everything that defines it."""

    read: dict[str, Any] | None
    """What reading the input kept and dropped; None where narrations were handed over in Python."""
    shards: list[ShardRecord]
    id: str


_MANIFEST, _PLAN = TypeAdapter(Manifest), TypeAdapter(BuildPlan)


def live_counts(shard: ShardRecord) -> CorpusCounts:
    """The counts of a shard without the narrations that were removed."""
    removed = shard.get("removed", RemovedRows(rows=[], timed=0, segments=0))
    return CorpusCounts(
        narrations=shard["narrations"] - len(removed["rows"]),
        timed=shard["timed"] - removed["timed"],
        segments=shard["segments"] - removed["segments"],
    )


def removed_rows(shard: ShardRecord) -> list[int]:
    """Rows of a shard whose narrations were removed, in order."""
    return shard["removed"]["rows"] if "removed" in shard else []


def total_counts(shards: Sequence[ShardRecord]) -> CorpusCounts:
    """The counts of a corpus of these shards, without the narrations that were removed."""
    counts = [live_counts(shard) for shard in shards]
    return CorpusCounts(
        narrations=sum(count["narrations"] for count in counts),
        timed=sum(count["timed"] for count in counts),
        segments=sum(count["segments"] for count in counts),
    )


def format_of(shards: Sequence[ShardRecord]) -> int:
    """The format of a corpus of these shards: `FORMAT` wherever a build could have written them."""
    # So that versions of recipe which know no changes can read a corpus that only grew.
    as_built = all(shard["name"] == shard_name(index) for index, shard in enumerate(shards))
    return FORMAT if as_built and not any("removed" in shard for shard in shards) else CHANGED_FORMAT


def corpus_id(manifest: Mapping[str, Any]) -> str:
    """The hash over all that defines a corpus: its settings, its reading and the checksums of its shards."""
    # The counts of the corpus are left out, because they follow from its shards.
    return fingerprint([{key: manifest[key] for key in (*get_type_hints(BuildPlan), "read")}, manifest["shards"]])


def padded(dimension: int) -> int:
    """D, the length of the codes of vectors of this dimension: whole cache lines, the unit of every kernel."""
    return -(-dimension // 64) * 64


def shard_name(index: int) -> str:
    """Folder name of the shard with this index."""
    return f"{index:05d}"


def write_tables(folder: Path, narrations: Sequence[Narration]) -> None:
    """Write a shard's offsets and two tables; the same narrations give the same bytes. Raises InputError."""
    counts = [len(narration.segments) for narration in narrations]
    offsets = [0, *accumulate(counts)]
    table = {
        "video_id": [narration.video_id for narration in narrations],
        "title": [narration.title for narration in narrations],
        "source": [narration.source for narration in narrations],
        "first_segment": offsets[:-1],
        "segments": counts,
    }
    segments = [segment for narration in narrations for segment in narration.segments]
    rows = {
        "narration": np.repeat(np.arange(len(counts)), counts),
        "start": [segment.start for segment in segments],
        "end": [segment.end for segment in segments],
        "text": [segment.text for segment in segments],
    }
    urls = [narration.url for narration in narrations]
    columns, extra = (_WITH_URL, {"url": urls}) if any(urls) else (_NARRATION_COLUMNS, {})
    write_array(folder / OFFSETS, np.asarray(offsets, dtype=np.int64))
    tables = {
        NARRATIONS: pa.table(table | extra, schema=columns),
        SEGMENTS: pa.table(rows, schema=_SEGMENT_COLUMNS),
    }
    for name, content in tables.items():
        written = io.BytesIO()  # through memory, so that a full disk raises Python's OSError
        pq.write_table(content, written, compression="zstd")
        (folder / name).write_bytes(written.getbuffer())


def write_array(path: Path, array: NDArray[np.generic]) -> None:
    """The bytes of `np.save`, which reports a full disk unclearly."""
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(array))
        stream.write(array.data)


def file_records(folder: Path, names: Sequence[str] = FILES) -> dict[str, FileRecord]:
    """Sizes and checksums of a shard's files as they lie on disk."""
    return {name: FileRecord(bytes=(folder / name).stat().st_size, sha256=file_sha256(folder / name)) for name in names}


def require_files(folder: Path, shard: ShardRecord) -> None:
    """Check the sizes of a shard's files, which is quick. Raises CorpusError."""
    for name, record in shard["files"].items():
        size = (folder / name).stat().st_size if (folder / name).is_file() else None
        if size != record["bytes"]:
            problem = "is missing" if size is None else f"has {size} bytes, not {record['bytes']}"
            raise damaged(folder, f"{name} {problem}")


def require_unchanged(folder: Path, shard: ShardRecord, names: Sequence[str]) -> None:
    """Compare files of a shard with their checksums. Raises CorpusError."""
    for name in names:
        try:
            sha256 = file_sha256(folder / name)
        except OSError as error:
            raise damaged(folder, error) from None
        if sha256 != shard["files"][name]["sha256"]:
            raise damaged(folder, f"{name} differs from its checksum")


def read_table(folder: Path, name: str, columns: Sequence[str]) -> pa.Table:
    """Some columns of a shard's table. Raises CorpusError where they cannot be read, or lack a value that must be."""
    known = _WITH_URL if name == NARRATIONS else _SEGMENT_COLUMNS
    schema = pa.schema([known.field(column) for column in columns])
    try:
        # `pq.read_table` would import pandas.
        with pq.ParquetFile(folder / name, memory_map=True) as file:
            held = file.read(list(columns))
        there = {column: held[column] for column in held.column_names}
        nothing = {field.name: pa.nulls(len(held), field.type) for field in schema if field.name not in there}
        table = pa.table({**there, **nothing}).select(schema.names).cast(schema)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise damaged(folder, error) from None
    if lacking := [field.name for field in schema if not field.nullable and table.column(field.name).null_count]:
        raise damaged(folder, f"{name} lacks values of {lacking[0]!r}")
    return table


def read_live(folder: Path, shard: ShardRecord, name: str, columns: Sequence[str]) -> pa.Table:
    """Columns of a shard's table without removed narrations, from a file that matches its checksum.

    Raises CorpusError.
    """
    require_unchanged(folder, shard, (name,))
    of_narrations = name == NARRATIONS
    table = read_table(folder, name, columns if of_narrations else ("narration", *columns))
    # Of a table that was written wrongly, its checksum says nothing.
    if len(table) != (rows := shard["narrations" if of_narrations else "segments"]):
        raise damaged(folder, f"{name} has {len(table)} rows, not {rows}")
    if of_narrations:
        return table.take(live_rows(shard))
    return table.filter(np.isin(table["narration"].to_numpy(), removed_rows(shard), invert=True)).select(columns)


def live_rows(shard: ShardRecord) -> NDArray[np.int64]:
    """Rows of a shard whose narrations were not removed, in order."""
    return np.delete(np.arange(shard["narrations"]), removed_rows(shard))


def read_narrations(folder: Path, shard: ShardRecord, rows: NDArray[np.int64] | None = None) -> list[Narration]:
    """Narrations of a shard, from tables that match their checksums: those of some rows, or all that are not removed.

    Raises CorpusError.
    """
    require_unchanged(folder, shard, (NARRATIONS, SEGMENTS))
    segments = read_table(folder, SEGMENTS, ("text", "start", "end"))
    table = read_table(folder, NARRATIONS, _WITH_URL.names)
    firsts, counts = (table[name].to_numpy() for name in ("first_segment", "segments"))
    # Checksums find damage; this finds tables that were written wrongly, before their rows lead to other texts.
    complete = (len(table), len(segments), counts.sum()) == (shard["narrations"], shard["segments"], shard["segments"])
    if not complete or counts.min() < 1 or not np.array_equal(firsts, np.cumsum([0, *counts[:-1]])):
        raise damaged(folder, f"{NARRATIONS} does not divide the rows of {SEGMENTS} among its narrations")
    chosen = live_rows(shard) if rows is None else rows
    spans = [np.arange(firsts[row], firsts[row] + counts[row]) for row in chosen]
    spoken = segments.take(np.concatenate([np.zeros(0, np.int64), *spans]))
    said = map(Segment, *(column.to_pylist() for column in spoken.columns))
    return [
        Narration(row["video_id"], tuple(islice(said, row["segments"])), row["title"], row["source"], row["url"])
        for row in table.take(chosen).to_pylist()
    ]


def damaged(shard: Path, problem: str | Exception) -> CorpusError:
    """The error for a shard that cannot be read; libraries explain in several lines, of which one is shown."""
    # No build makes a shard of a changed corpus again, and none is at hand for a corpus that was pulled.
    reason = str(problem).strip().partition("\n")[0].rstrip(".")
    return CorpusError(
        f"{shard}: the shard is damaged ({reason}); copy it again from where the corpus is whole or, if the corpus was "
        "built here and not changed since, delete this shard and run the same `recipe corpus build` again, which makes "
        "only the missing shards."
    )


def read_manifest(path: Path) -> dict[str, Any]:
    """The values of a manifest or of the settings of a build under way. Raises CorpusError where it is damaged."""
    try:
        values = read_json(path)
    except InputError as error:
        reason = str(error).removeprefix(f"{path}: ").partition(";")[0]
        raise _unusable(path, reason) from None
    if not isinstance(values, dict):
        raise _unusable(path, "not a JSON object")
    if values.get("format") not in (FORMAT, CHANGED_FORMAT):
        raise CorpusError(
            f"{path}: the corpus is of format {values.get('format')!r} where this version of recipe reads {FORMAT} and "
            f"{CHANGED_FORMAT}; build the corpus again, or use the version that wrote it."
        )
    try:
        # Strictly: a number written as text, or `true` for 1, is damage, too.
        (_MANIFEST if path.name == MANIFEST else _PLAN).validate_python(values, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(step) for step in first["loc"])
        absent = first["type"] == "missing"
        problem = f"{key!r} is missing" if absent else f"{key!r}: {first['msg'][0].lower()}{first['msg'][1:]}"
        raise _unusable(path, problem) from None
    return values


def open_manifest(folder: Path) -> Manifest:
    """The manifest of a finished corpus. Raises CorpusError."""
    path = folder / MANIFEST
    if not path.is_file():
        if (folder / PLAN).is_file():
            raise CorpusError(f"{folder}: the build is not finished; run the same `recipe corpus build` again.")
        raise CorpusError(f"{folder}: no corpus here ({MANIFEST} is missing); check the path or build one.")
    manifest = cast(Manifest, read_manifest(path))
    # The names must be those that builds and changes give, and the counts and the id follow from the rest.
    shards = manifest["shards"]
    for index, shard in enumerate(shards):
        if not _NAME.fullmatch(shard["name"]) or set(shard["files"]) != set(FILES):
            raise _unusable(path, f"shard {index} has another name or other files than a build gives it")
        rows = removed_rows(shard)
        # A shard of which nothing is left leaves the manifest: none is empty.
        if rows != sorted({row for row in rows if 0 <= row < shard["narrations"]}) or len(rows) == shard["narrations"]:
            raise _unusable(path, f"shard {index} does not hold the narrations that were removed from it")
    if len({shard["name"] for shard in shards}) < len(shards) or manifest["format"] != format_of(shards):
        raise _unusable(path, "its shards have other names than its format gives them")
    counts = total_counts(shards)
    if not shards or corpus_id(manifest) != manifest["id"] or counts != {key: manifest[key] for key in counts}:  # type: ignore[literal-required]
        raise _unusable(path, "the corpus id or a count does not match the rest of the file")
    return manifest


class HeldManifest:
    """The manifest of a finished corpus; while the object lives, no change deletes a file that the manifest names.

    It holds a shared lock on the manifest's file. A change that replaces the file keeps the old one under another name
    for as long as somebody holds it (`recipe.corpus.change`).
    """

    def __init__(self, folder: Path) -> None:
        """Raises CorpusError."""
        path = folder / MANIFEST
        while True:
            self.manifest: Manifest
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except OSError:
                self.manifest = open_manifest(folder)  # which tells why it cannot be opened
                continue  # a change has just put it there
            # Closing the file gives up its lock.
            released = weakref.finalize(self, os.close, descriptor)
            with suppress(OSError):  # a file system without locks: its readers are not waited for
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self.manifest = open_manifest(folder)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return
            released()  # a change came in between: what is locked is not what was read


def _unusable(path: Path, problem: str) -> CorpusError:
    return CorpusError(
        f"{path}: the file is damaged ({problem}); copy the corpus again, or delete its folder and build it again."
    )
