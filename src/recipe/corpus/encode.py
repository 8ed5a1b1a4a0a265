"""Staged shards to finished ones: encoded, quantised, checksummed, renamed into place.

A shard's vectors depend on its own narrations only, so the bytes are the same wherever and in whatever order shards are
encoded.
"""

import importlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.artifacts import atomic_path, read_json, write_json
from recipe.config import EncoderConfig
from recipe.corpus.encoders import Encoder
from recipe.corpus.layout import (
    BOUNDS,
    CODES,
    EMBEDDINGS,
    OFFSETS,
    RECORD,
    SEGMENTS,
    SHARDS,
    STAGING,
    TABLES,
    FileRecord,
    damaged,
    file_records,
    read_table,
    shard_name,
    write_array,
)
from recipe.corpus.scan import kernels
from recipe.errors import ComputeError, ConfigError
from recipe.progress import Advance, Progress

_TEXTS = 1 << 14
"""Texts encoded at a time: bounds the memory of their float32 vectors."""


Engine = Literal["local", "ray"]


class EncodingJob(NamedTuple):
    """Staged shards to encode, and the encoder."""

    output: Path
    shards: Sequence[int]
    settings: EncoderConfig
    encoder: Encoder
    """The encoder that `settings` name, open in this process."""
    devices: tuple[str, ...] = ()
    """Devices of this machine that share the shards; none: the encoder's own."""


def encode_staged(job: EncodingJob, engine: Engine, advance: Advance) -> None:
    """Encode the shards in this process, in a process for each device, or on a Ray cluster; `advance` counts segments.

    Raises what `encode_shard` raises, ComputeError where a worker dies, ConfigError for devices that the engine
    does not take, and MissingExtra.
    """
    if engine == "ray":
        if job.devices:
            raise ConfigError("engine 'ray' chooses its devices itself; leave them out.")
        cluster = importlib.import_module("recipe.corpus.cluster.build")
        cluster.encode_shards(job.output, job.shards, job.settings, advance)
    elif job.devices:
        importlib.import_module("recipe.corpus.devices").encode_on_devices(job, advance)
    else:
        encode_shards(job.output, job.shards, job.encoder, advance)


def on_device(settings: EncoderConfig, device: str) -> EncoderConfig:
    """The settings on that device; the hash encoder computes wherever its process does."""
    return settings if settings.name.startswith("hash:") else settings.model_copy(update={"device": device})


def encode_shard(output: Path, index: int, encoder: Encoder) -> None:
    """Make the staged shard `index` of the build in `output` a finished one.

    Raises CorpusError for a staged shard that cannot be read, and ComputeError where the encoder gives a vector
    that is not finite.
    """
    encode_shards(output, [index], encoder, lambda _n: None)


def encode_shards(output: Path, shards: Iterable[int], encoder: Encoder, advance: Advance) -> None:
    """The same for several shards; `advance` counts segments.

    While a shard is encoded, the one before is quantised and written in a second thread.
    """
    with ThreadPoolExecutor(1) as background:
        behind: Future[None] | None = None
        for index in shards:
            inner = _InnerProgress(advance)
            embeddings, offsets = _embed(output / STAGING / shard_name(index), encoder, inner)
            inner.complete(len(embeddings))
            if behind is not None:
                behind.result()
            behind = background.submit(_finish, output, shard_name(index), embeddings, offsets)
        if behind is not None:
            behind.result()


def recorded_files(output: Path, index: int) -> dict[str, FileRecord] | None:
    """Sizes and checksums of a finished shard's files, recorded when this build wrote it."""
    record = output / STAGING / shard_name(index) / RECORD
    return read_json(record) if record.is_file() else None


class _InnerProgress:
    """Progress inside a larger task: what the encoder reports advances the one bar of the build."""

    def __init__(self, advance: Advance) -> None:
        self._advance, self._done = advance, 0

    @contextmanager
    def task(self, description: str, total: int | None = None) -> Iterator[Advance]:
        yield self._count

    def complete(self, total: int) -> None:
        """Report what is left of `total` units: recurring texts are not encoded."""
        self._advance(total - self._done)

    def _count(self, n: int) -> None:
        self._done += n
        self._advance(n)


def _embed(staged: Path, encoder: Encoder, progress: Progress) -> tuple[NDArray[np.float16], NDArray[np.int64]]:
    """Embeddings [S, d] and offsets [N + 1] of a staged shard; each distinct text is encoded once."""
    try:
        column = read_table(staged, SEGMENTS, ("text",))[0].combine_chunks().dictionary_encode()
        offsets: NDArray[np.int64] = np.load(staged / OFFSETS)
    except (OSError, ValueError) as error:
        raise damaged(staged, error) from None
    if offsets[-1] != len(column):
        raise damaged(staged, f"{SEGMENTS} has {len(column)} rows, not {offsets[-1]}")
    texts = column.dictionary.to_pylist()
    vectors = np.empty((len(texts), encoder.identity["dimension"]), np.float16)
    for first in range(0, len(vectors), _TEXTS):
        rows = slice(first, first + _TEXTS)
        encoded = encoder.encode(texts[rows], progress)
        if not np.isfinite(encoded).all():
            raise ComputeError("the encoder gave a vector that is not finite; the shard was not written.")
        vectors[rows] = encoded
    return vectors[column.indices.to_numpy()], offsets


def _finish(output: Path, name: str, embeddings: NDArray[np.float16], offsets: NDArray[np.int64]) -> None:
    staged = output / STAGING / name
    codes, bounds = kernels("scan.quantise").quantise(embeddings, offsets)
    with atomic_path(output / SHARDS / name) as partial:
        partial.mkdir()
        for table in TABLES:
            (partial / table).write_bytes((staged / table).read_bytes())
        for file, array in ((EMBEDDINGS, embeddings), (CODES, codes), (BOUNDS, bounds)):
            write_array(partial / file, array)
        write_json(staged / RECORD, file_records(partial))
