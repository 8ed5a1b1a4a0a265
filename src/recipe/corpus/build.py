"""Narrations to a corpus on disk, shard by shard; a killed build goes on at its first missing shard."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recipe.artifacts import atomic_path, file_sha256, fingerprint, locked, write_json
from recipe.config import CorpusConfig
from recipe.corpus.encoders import Encoder, differences, open_encoder
from recipe.corpus.kernels import kernels
from recipe.corpus.layout import (
    BOUNDS,
    CODES,
    EMBEDDINGS,
    FILES,
    FORMAT,
    MANIFEST,
    OFFSETS,
    PLAN,
    SHARDS,
    FileRecord,
    Manifest,
    Plan,
    ShardRecord,
    damaged,
    read_manifest,
    read_narrations,
    shard_name,
    write_narrations,
)
from recipe.errors import ComputeError, CorpusError, InputError
from recipe.progress import SILENT, Advance, Progress
from recipe.types import Narration


def build_corpus(
    narrations: Iterable[Narration],
    output: Path,
    config: CorpusConfig,
    progress: Progress = SILENT,
    *,
    encoder: Encoder | None = None,
    total: int | None = None,
) -> Path:
    """Write the corpus of `narrations` to the folder `output`, and return it.

    Shards that a former run of the same build has finished are compared with the narrations and kept: the
    result is byte for byte that of an uninterrupted build. `encoder` stands in for the one that `config`
    names; `total` is the number of segments, where the progress should know it.

    Raises CorpusError where the folder holds another build (other narrations, encoder or shard size),
    InputError where another process is at work in it, where there are no narrations or one has no segments,
    and ComputeError where the encoder gives no finite vector.
    """
    encoder = encoder or open_encoder(config.encoder)
    plan = Plan(format=FORMAT, encoder=encoder.identity, shard_size=config.shard_size)
    with locked(output):
        _bind(output, plan)
        shards = []
        with progress.task("encoding segments", total) as advance:
            for index, batch in enumerate(_batches(narrations, config.shard_size)):
                folder = output / SHARDS / shard_name(index)
                within = _Within(advance)
                if not _kept(folder, batch):
                    _write_shard(folder, batch, encoder, within)
                shards.append(_record(folder, batch))
                within.complete(shards[-1]["segments"])
        if not shards:
            raise InputError("there are no narrations to build a corpus from; give at least one.")
        _finish(output, plan, shards)
    return output


class _Within:
    """Progress inside a larger task: what the encoder reports moves the one bar of the build."""

    def __init__(self, advance: Advance) -> None:
        self._advance, self._done = advance, 0

    @contextmanager
    def task(self, description: str, total: int | None = None) -> Iterator[Advance]:
        yield self._count

    def complete(self, total: int) -> None:
        """Report what is left of `total` units: recurring texts and finished shards are not encoded."""
        self._advance(total - self._done)

    def _count(self, n: int) -> None:
        self._done += n
        self._advance(n)


def _bind(output: Path, plan: Plan) -> None:
    """Hold the folder to one build: record `plan` in a new folder, compare it in one that was begun."""
    begun = next((output / name for name in (MANIFEST, PLAN) if (output / name).is_file()), None)
    if begun is None:
        if any(not path.name.startswith(".") for path in output.iterdir()):
            raise CorpusError(f"{output}: the folder is not empty and holds no corpus; choose another folder.")
        write_json(output / PLAN, plan)
        return
    recorded = read_manifest(begun)
    changed = differences(recorded["encoder"], plan["encoder"]) or differences(recorded, plan)
    if changed:
        raise CorpusError(
            f"{output}: the folder holds a build with other settings: {changed}; "
            "choose another folder or delete this one."
        )


def _batches(narrations: Iterable[Narration], size: int) -> Iterator[list[Narration]]:
    stream = iter(narrations)
    while batch := list(islice(stream, size)):
        for narration in batch:
            if not narration.segments:
                raise InputError(f"narration {narration.video_id!r} has no segments; leave it out.")
        yield batch


def _kept(folder: Path, batch: list[Narration]) -> bool:
    """True where the shard is there and holds exactly these narrations."""
    if not folder.is_dir():
        return False
    if absent := [name for name in FILES if not (folder / name).is_file()]:
        raise damaged(folder, f"{absent[0]} is missing")
    try:
        same = list(read_narrations(folder)) == batch
        rows = len(np.load(folder / EMBEDDINGS, mmap_mode="r"))
    except (OSError, ValueError) as error:
        raise damaged(folder, error) from None
    if not same or rows != sum(len(narration.segments) for narration in batch):
        raise CorpusError(
            f"{folder}: the shard holds other narrations than the input; "
            "the input has changed since this build began: choose another folder or delete this one."
        )
    return True


def _write_shard(folder: Path, batch: list[Narration], encoder: Encoder, progress: Progress) -> None:
    with atomic_path(folder) as partial:
        partial.mkdir(parents=True)
        embeddings = _embed(batch, encoder, progress)
        offsets = np.cumsum([0, *(len(narration.segments) for narration in batch)], dtype=np.int64)
        codes, bounds = kernels("quantise").quantise(embeddings, offsets)
        for name, array in ((EMBEDDINGS, embeddings), (CODES, codes), (BOUNDS, bounds), (OFFSETS, offsets)):
            _save(partial / name, array)
        write_narrations(partial, batch)


def _save(path: Path, array: NDArray[np.generic]) -> None:
    """The bytes of `np.save`, which hides a full disk behind counts of what it wrote."""
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(array))
        stream.write(array.data)


def _embed(batch: list[Narration], encoder: Encoder, progress: Progress) -> NDArray[np.float16]:
    """Float16 [segments, d]; each distinct text is encoded once.

    A shard's vectors depend on its own narrations only, or a resumed build could differ in its last bits.
    """
    rows: dict[str, int] = {}
    index = [rows.setdefault(segment.text, len(rows)) for narration in batch for segment in narration.segments]
    vectors = encoder.encode(list(rows), progress)
    if not np.isfinite(vectors).all():
        raise ComputeError("the encoder gave a vector that is not finite; no shard was written.")
    return vectors.astype(np.float16)[index]


def _record(folder: Path, batch: list[Narration]) -> ShardRecord:
    return ShardRecord(
        name=folder.name,
        narrations=len(batch),
        segments=sum(len(narration.segments) for narration in batch),
        timed=sum(narration.segments[0].start is not None for narration in batch),
        files={
            name: FileRecord(bytes=(folder / name).stat().st_size, sha256=file_sha256(folder / name)) for name in FILES
        },
    )


def _finish(output: Path, plan: Plan, shards: list[ShardRecord]) -> None:
    surplus = output / SHARDS / shard_name(len(shards))
    if surplus.exists():
        raise CorpusError(
            f"{surplus}: the input ends before this shard; "
            "the input has changed since this build began: choose another folder or delete this one."
        )
    manifest = Manifest(
        **plan,
        narrations=sum(shard["narrations"] for shard in shards),
        timed=sum(shard["timed"] for shard in shards),
        segments=sum(shard["segments"] for shard in shards),
        shards=shards,
        id=fingerprint([plan, shards]),
    )
    write_json(output / MANIFEST, manifest)
    (output / PLAN).unlink(missing_ok=True)
