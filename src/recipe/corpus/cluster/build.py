"""The `ray` engine of the build: the staged shards of a corpus encoded on a Ray cluster by Ray Data.

The shards' numbers are the data set. Each worker process opens the encoder once and turns one number after the other
into a finished shard, on the file system that all machines share; no vector travels. A worker that dies is started
again and its shard begun anew. A shard that fails ends the build, and those that are finished stay.
"""

import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from recipe.config.corpus import EncoderConfig
from recipe.corpus.cluster.search import cluster
from recipe.corpus.encode import encode_shards as encode_shards_here
from recipe.corpus.encoder_identity import differences, recorded_settings
from recipe.corpus.encoders import Encoder, open_encoder
from recipe.corpus.layout import MANIFEST, PLAN, SHARDS, STAGING, read_manifest, shard_name
from recipe.errors import ComputeError, EncoderMismatch, MissingExtra, RecipeError, first_line
from recipe.progress import Advance

try:
    import ray
    import ray.data
except ModuleNotFoundError as error:
    raise MissingExtra("the build on a Ray cluster", "cluster") from error

Opener = Callable[[EncoderConfig], Encoder]


def encode_shards(
    output: Path,
    shards: Sequence[int],
    encoder: EncoderConfig,
    advance: Advance,
    *,
    workers: int | None = None,
    retries: int = 3,
    opener: Opener = open_encoder,
) -> None:
    """Encode the staged shards of these numbers; each is byte for byte what one process makes of it.

    `workers`: processes that encode, in place of as many as the cluster has room for; each takes one CPU, and one GPU
    where the cluster has any. `retries`: how often a shard is begun again after its process died. `advance` counts the
    segments of finished shards. Raises the RecipeError of the first shard that fails,
    EncoderMismatch where a machine holds another model than the build is bound to, and ComputeError where a
    shard's processes keep dying or the cluster has no room for one.
    """
    if not shards:
        return
    output = output.resolve()
    for shard in shards:
        _attempts(output, shard).unlink(missing_ok=True)
    with cluster(workers or 1), _quiet_data():
        whole = ray.cluster_resources()
        needed = {name: 1 for name in ("CPU", "GPU") if name == "CPU" or whole.get(name, 0) > 0}
        count = workers or min(int(whole.get(name, 0)) for name in needed)
        if not count:
            has = ", ".join(f"{whole.get(name, 0):g} {name}s" for name in ("CPU", "GPU"))
            raise ComputeError(f"the cluster has no room for a worker of one {' and one '.join(needed)}: it has {has}.")

        # A block a shard, so that a worker takes one number at a time.
        numbers = ray.data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards))
        numbers.context.execution_no_progress_timeout_s = -1  # a shard may take an hour
        numbers.context.enable_progress_bars = False
        encoded = numbers.map_batches(
            _Encode,
            fn_constructor_args=(output, encoder, opener, retries),
            batch_size=1,
            # One shard at a time: the last ones are shared out evenly.
            compute=ray.data.ActorPoolStrategy(size=min(count, len(shards)), max_tasks_in_flight_per_actor=1),
            num_cpus=1,
            num_gpus=needed.get("GPU", 0),
        )
        try:
            for row in encoded.iter_rows():  # in the order in which shards end
                if row["failure"]:
                    raise pickle.loads(row["failure"])
                advance(row["segments"])
        except ray.exceptions.RayError as error:
            raise ComputeError(
                f"{output}: a process that encodes was lost and could not be replaced ({first_line(error)}); "
                "finished shards are kept: run the same command again, with smaller batches where memory ran out."
            ) from error


class _Encode:
    """Turns a shard's number into a finished shard; a copy of it lives in every worker process."""

    def __init__(self, output: Path, config: EncoderConfig, opener: Opener, retries: int) -> None:
        self._output, self._config, self._opener, self._retries = output, config, opener, retries

    @cached_property
    def _encoder(self) -> Encoder:
        """Opened by a worker's first shard, so that an error is reported as that shard's failure."""
        bound = self._output / (PLAN if (self._output / PLAN).is_file() else MANIFEST)
        recorded = read_manifest(bound)["encoder"]
        encoder = self._opener(recorded_settings(recorded, self._config))
        if encoder.identity != recorded:
            raise EncoderMismatch(
                f"{self._output}: the encoder on {os.uname().nodename} is not the one that the build is bound to: "
                f"{differences(recorded, encoder.identity)}; install the same model on all machines."
            )
        return encoder

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Failures are returned, because Ray adds lines of its own to what is raised."""
        shard = int(batch["shard"][0])
        finished = self._output / SHARDS / shard_name(shard)
        counted: list[int] = []
        try:
            # Ray gives the shard of a process that died to another, without end: count on disk how often that was.
            attempts = _attempts(self._output, shard)
            with attempts.open("ab") as stream:
                stream.write(b".")
            if (times := attempts.stat().st_size) > self._retries + 1:
                raise ComputeError(
                    f"{finished}: all {times - 1} processes that encoded the shard were killed; "
                    "run the same command again, with smaller batches where memory ran out."
                )
            encode_shards_here(self._output, [shard], self._encoder, counted.append)
        except RecipeError as error:
            return {"segments": [0], "failure": [pickle.dumps(error)]}
        except (OSError, RuntimeError, MemoryError) as error:
            lost = ComputeError(f"{finished}: the shard could not be encoded on {os.uname().nodename}: {error!r}.")
            return {"segments": [0], "failure": [pickle.dumps(lost)]}
        return {"segments": [sum(counted)], "failure": [b""]}


def _attempts(output: Path, shard: int) -> Path:
    """The file with one byte for each process that began the shard."""
    return output / STAGING / f".{shard_name(shard)}.begun"


@contextmanager
def _quiet_data() -> Iterator[None]:
    """Keep the messages of Ray Data off the terminal; its log files have them."""
    terminals = [
        handler for handler in logging.getLogger("ray.data").handlers if isinstance(handler, logging.StreamHandler)
    ]
    levels = [handler.level for handler in terminals]
    for handler in terminals:
        handler.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for handler, level in zip(terminals, levels, strict=True):
            handler.setLevel(level)
