"""Who encodes the shards of a build: this process, a process for each device, or a Ray cluster."""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from recipe.config import EncoderConfig
from recipe.corpus.building.shards import encode_shards
from recipe.corpus.encoders import Encoder
from recipe.errors import ConfigError
from recipe.progress import Advance

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
        importlib.import_module("recipe.corpus.building.devices").encode_on_devices(work, advance)
    else:
        encode_shards(work.output, work.shards, work.encoder, advance)


def _ray(work: Work, advance: Advance) -> None:
    cluster = importlib.import_module("recipe.corpus.cluster.build")
    cluster.encode_shards(work.output, work.shards, work.settings, advance)


ENGINES: dict[Engine, Callable[[Work, Advance], None]] = {"local": _local, "ray": _ray}
