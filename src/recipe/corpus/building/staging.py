"""Staging: the narrations, read once as a stream and cut into shards, lie on disk before the first is encoded.

Every fault of the input shows here, before hours of encoding; what comes after needs no input any more.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from recipe.artifacts import atomic_path, remove
from recipe.corpus.layout import SHARDS, STAGING, TABLES, ShardRecord, file_records, shard_name, write_tables
from recipe.errors import CorpusError, InputError
from recipe.progress import Progress
from recipe.types import Narration

SHARD_SEGMENTS = 1 << 18
"""A shard takes no further narration beyond this many segments, so that one shard always fits in memory."""


def stage(narrations: Iterable[Narration], output: Path, size: int, progress: Progress) -> list[ShardRecord]:
    """Stage all narrations, at most `size` a shard, in place of what was staged before.

    Raises InputError where there are no narrations, or one has no segments or a text that is not valid Unicode.
    """
    remove(output / STAGING)
    records = []
    with progress.task("reading narrations") as advance:
        for index, batch in enumerate(_batches(narrations, size)):
            records.append(_write(output, shard_name(index), batch))
            advance(len(batch))
    if not records:
        raise InputError("there are no narrations to build a corpus from; give at least one.")
    return records


def restage(
    narrations: Iterable[Narration], output: Path, size: int, recorded: Sequence[ShardRecord], progress: Progress
) -> None:
    """Compare the narrations with the shards on record, and stage again those that have been deleted since.

    Raises CorpusError where the narrations are others.
    """
    compared = 0
    with progress.task("comparing narrations") as advance:
        for batch in _batches(narrations, size):
            name = shard_name(compared)
            if compared == len(recorded):
                raise _changed(output, name, "the input goes on with narrations that the build has not")
            if _content(batch) != recorded[compared]["content"]:
                raise _changed(output, name, "the shard holds other narrations than the input")
            if not present(output, compared):
                _write(output, name, batch)
            compared += 1
            advance(len(batch))
    if compared < len(recorded):
        raise _changed(output, shard_name(compared), "the input ends before this shard")


def present(output: Path, index: int) -> bool:
    """True where the shard is finished, or staged."""
    return any((output / place / shard_name(index)).is_dir() for place in (SHARDS, STAGING))


def _changed(output: Path, name: str, problem: str) -> CorpusError:
    return CorpusError(
        f"{output / SHARDS / name}: {problem}; "
        "the input has changed since this build began: choose another folder or delete this one."
    )


def _batches(narrations: Iterable[Narration], size: int) -> Iterator[list[Narration]]:
    batch: list[Narration] = []
    segments = 0
    for narration in narrations:
        if not narration.segments:
            raise InputError(f"narration {narration.video_id!r} has no segments; leave it out.")
        if batch and (len(batch) == size or segments + len(narration.segments) > SHARD_SEGMENTS):
            yield batch
            batch, segments = [], 0
        batch.append(narration)
        segments += len(narration.segments)
    if batch:
        yield batch


def _write(output: Path, name: str, batch: list[Narration]) -> ShardRecord:
    content = _content(batch)
    with atomic_path(output / STAGING / name) as partial:
        partial.mkdir()
        write_tables(partial, batch)
        files = file_records(partial, TABLES)
    return ShardRecord(
        name=name,
        content=content,
        narrations=len(batch),
        segments=sum(len(narration.segments) for narration in batch),
        timed=sum(narration.segments[0].start is not None for narration in batch),
        files=files,
    )


def _content(batch: list[Narration]) -> str:
    """SHA-256 over what the narrations say, whatever the version of the table format."""
    digest = hashlib.sha256()
    for narration in batch:
        spoken = [[segment.text, segment.start, segment.end] for segment in narration.segments]
        line = json.dumps([narration.video_id, narration.title, narration.source, spoken], ensure_ascii=False)
        try:
            digest.update(f"{line}\n".encode())
        except UnicodeEncodeError:
            raise InputError(
                f"narration {narration.video_id!r} has a text that is not valid Unicode; correct it or leave it out."
            ) from None
    return digest.hexdigest()
