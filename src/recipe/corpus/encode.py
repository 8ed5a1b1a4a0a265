"""Encoding of staged shards: in this process, by a process for each device, or on a Ray cluster."""

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow.parquet as pq
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
    shard_name,
    write_array,
)
from recipe.corpus.scan.kernels import kernels
from recipe.errors import ComputeError, ConfigError
from recipe.progress import Advance

# One shard, from its staged tables to a finished folder: encoded, quantised, checksummed, renamed into place.
#
# A shard's vectors depend on its own narrations only: whoever encodes it, and in whatever order, the bytes are the
# same.


_TEXTS = 1 << 14
"""Texts encoded at a time: bounds the memory of their float32 vectors."""


class Staged(NamedTuple):
    """The distinct texts of a staged shard, each segment's row among them [S], and the narrations' first segments."""

    texts: list[str]
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]


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
            staged = _read_staged(output / STAGING / shard_name(index))
            within = _Within(advance)
            embeddings = _embed(staged, encoder, within)
            within.complete(len(embeddings))
            if behind is not None:
                behind.result()
            behind = background.submit(_finish, output, shard_name(index), embeddings, staged.offsets)
        if behind is not None:
            behind.result()


def recorded_files(output: Path, index: int) -> dict[str, FileRecord] | None:
    """Sizes and checksums of a finished shard's files, as noted when this build wrote it."""
    noted = output / STAGING / shard_name(index) / RECORD
    return read_json(noted) if noted.is_file() else None


class _Within:
    """Progress inside a larger task: what the encoder reports moves the one bar of the build."""

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


def _read_staged(folder: Path) -> Staged:
    try:
        column = pq.read_table(folder / SEGMENTS, columns=["text"])["text"].combine_chunks().dictionary_encode()
        offsets = np.load(folder / OFFSETS)
    except (OSError, ValueError) as error:
        raise damaged(folder, error) from None
    if offsets[-1] != len(column):
        raise damaged(folder, f"{SEGMENTS} has {len(column)} rows, not {offsets[-1]}")
    return Staged(column.dictionary.to_pylist(), column.indices.to_numpy(), offsets)


def _embed(staged: Staged, encoder: Encoder, progress: _Within) -> NDArray[np.float16]:
    """Float16 [S, d]; each distinct text is encoded once."""
    vectors = np.empty((len(staged.texts), encoder.identity["dimension"]), np.float16)
    for first in range(0, len(vectors), _TEXTS):
        rows = slice(first, first + _TEXTS)
        encoded = encoder.encode(staged.texts[rows], progress)
        if not np.isfinite(encoded).all():
            raise ComputeError("the encoder gave a vector that is not finite; the shard was not written.")
        vectors[rows] = encoded
    embeddings: NDArray[np.float16] = vectors[staged.rows]
    return embeddings


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


# Who encodes the shards of a build: this process, a process for each device, or a Ray cluster.


Engine = Literal["local", "ray"]


class Work(NamedTuple):
    """Staged shards to encode, and with what."""

    output: Path
    shards: Sequence[int]
    settings: EncoderConfig
    encoder: Encoder
    """The encoder that `settings` name, open in this process."""
    devices: tuple[str, ...] = ()
    """Devices of this machine that share the work; none: the encoder's own."""


def encode_staged(work: Work, engine: Engine, advance: Advance) -> None:
    """Encode the shards on the engine of that name; `advance` counts segments.

    Raises what `encode_shard` raises, ComputeError where a worker dies, ConfigError for devices that the engine
    does not take, and MissingExtra.
    """
    if work.devices and engine != "local":
        raise ConfigError(f"engine {engine!r} chooses its devices itself; leave them out.")
    ENGINES[engine](work, advance)


def on_device(settings: EncoderConfig, device: str) -> EncoderConfig:
    """The settings on that device; the hash encoder computes wherever its process does."""
    return settings if settings.name.startswith("hash:") else settings.model_copy(update={"device": device})


def _local(work: Work, advance: Advance) -> None:
    if work.devices:
        importlib.import_module("recipe.corpus.devices").encode_on_devices(work, advance)
    else:
        encode_shards(work.output, work.shards, work.encoder, advance)


def _ray(work: Work, advance: Advance) -> None:
    cluster = importlib.import_module("recipe.corpus.cluster.build")
    cluster.encode_shards(work.output, work.shards, work.settings, advance)


ENGINES: dict[Engine, Callable[[Work, Advance], None]] = {"local": _local, "ray": _ray}
