"""Staged shards to finished ones: encoded, quantised, checksummed, renamed into place.

`encode_shards` writes every shard, whoever calls it: this process, a process for each device, or the workers of a Ray
cluster. A shard's vectors depend on its own narrations only, so the bytes are the same wherever and in whatever order
shards are encoded.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recipe.artifacts import atomic_path, write_json
from recipe.children import assigned, shared_out
from recipe.config.corpus import EncoderConfig
from recipe.corpus.encoder_identity import EncoderIdentity, differences, recorded_settings
from recipe.corpus.encoders import Encoder, open_encoder
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
    damaged,
    file_records,
    read_table,
    shard_name,
    write_array,
)
from recipe.corpus.scan import kernels
from recipe.errors import ComputeError, EncoderMismatch, RecipeError
from recipe.progress import Advance

TEXTS_AT_ONCE = 1 << 14
"""Texts encoded at a time: bounds the memory of their float32 vectors."""


def on_device(settings: EncoderConfig, device: str) -> EncoderConfig:
    """The settings on that device; the hash encoder computes wherever its process does."""
    return settings if settings.name.startswith("hash:") else settings.model_copy(update={"device": device})


def encode_shards(output: Path, shards: Iterable[int], encoder: Encoder, advance: Advance) -> None:
    """Make the staged shards of these numbers, of the build in `output`, finished ones; `advance` counts segments.

    While a shard is encoded, the one before is quantised and written in a second thread. Raises CorpusError for a
    staged shard that cannot be read, and ComputeError where the encoder gives a vector that is not finite.
    """
    with ThreadPoolExecutor(1) as background:
        writing: Future[None] | None = None
        for index in shards:
            staged = output / STAGING / shard_name(index)
            try:
                column = read_table(staged, SEGMENTS, ("text",))[0].combine_chunks().dictionary_encode()
                offsets: NDArray[np.int64] = np.load(staged / OFFSETS)
            except (OSError, ValueError) as error:
                raise damaged(staged, error) from None
            if offsets[-1] != len(column):
                raise damaged(staged, f"{SEGMENTS} has {len(column)} rows, not {offsets[-1]}")

            # Each distinct text is encoded once, so that the encoder counts fewer texts than there are segments.
            texts = column.dictionary.to_pylist()
            # float16 loses 2^-11 of a component, far less than codes of 8 bits do.
            vectors = np.empty((len(texts), encoder.identity["dimension"]), np.float16)
            progress = _InnerProgress(advance)
            for first in range(0, len(vectors), TEXTS_AT_ONCE):
                rows = slice(first, first + TEXTS_AT_ONCE)
                encoded = encoder.encode(texts[rows], progress)
                if not np.isfinite(encoded).all():
                    raise ComputeError("the encoder gave a vector that is not finite; the shard was not written.")
                vectors[rows] = encoded
            embeddings = vectors[column.indices.to_numpy()]
            advance(len(embeddings) - progress.done)

            # At most one shard waits to be written: memory holds two.
            if writing is not None:
                writing.result()
            writing = background.submit(_write_shard, output, shard_name(index), embeddings, offsets)
        if writing is not None:
            writing.result()


@dataclass
class _InnerProgress:
    """Progress inside a larger task: what the encoder reports advances the one bar of the build."""

    advance: Advance
    done: int = 0

    @contextmanager
    def task(self, description: str, total: int | None = None) -> Iterator[Advance]:
        yield self.count

    def count(self, n: int) -> None:
        self.done += n
        self.advance(n)


def _write_shard(output: Path, name: str, embeddings: NDArray[np.float16], offsets: NDArray[np.int64]) -> None:
    staged = output / STAGING / name
    codes, bounds = kernels("scan.quantise").quantise(embeddings, offsets)
    with atomic_path(output / SHARDS / name) as partial:
        partial.mkdir()
        for table in TABLES:
            (partial / table).write_bytes((staged / table).read_bytes())
        for file, array in ((EMBEDDINGS, embeddings), (CODES, codes), (BOUNDS, bounds)):
            write_array(partial / file, array)
        # Before the shard appears under its name: a finished shard always has its record.
        write_json(staged / RECORD, file_records(partial))


def encode_on_devices(
    output: Path,
    shards: Sequence[int],
    settings: EncoderConfig,
    recorded: EncoderIdentity,
    devices: Sequence[str],
    advance: Advance,
) -> None:
    """Encode the shards, each whole on one of the devices, by a process for each that takes one shard after another.

    Raises what a process raises first, and ComputeError where one dies; shards that are finished are kept.
    """
    settings = recorded_settings(recorded, settings)
    workers = [(device, (output, on_device(settings, device), recorded)) for device in devices[: len(shards)]]
    for done in shared_out(shards, _serve, workers, lambda shard: f" at shard {shard_name(shard)}"):
        advance(done)


def _serve(connection: Connection, output: Path, settings: EncoderConfig, recorded: EncoderIdentity) -> None:
    """Encode shards in a worker process until none is left."""
    try:
        encoder = open_encoder(settings)
        if difference := differences(recorded, encoder.identity):
            raise EncoderMismatch(f"the encoder on device {settings.device} is another than the build's: {difference}.")
        encode_shards(output, assigned(connection), encoder, connection.send)
    except (RecipeError, OSError) as error:
        connection.send(error)
