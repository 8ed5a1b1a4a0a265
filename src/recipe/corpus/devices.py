"""Encoding on several devices of one machine: a process for each, which takes one shard after another."""

from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from recipe.children import assigned, start_worker
from recipe.config import EncoderConfig
from recipe.corpus.encode import EncodingJob, encode_shards, on_device
from recipe.corpus.encoders import EncoderIdentity, differences, open_encoder, recorded_settings
from recipe.corpus.layout import shard_name
from recipe.errors import ComputeError, EncoderMismatch, RecipeError
from recipe.progress import Advance


@dataclass(slots=True)
class _Worker:
    """A process, its connection, and the shard that it was given last."""

    device: str
    process: BaseProcess
    connection: Connection
    shard: int | None = None


def encode_on_devices(job: EncodingJob, advance: Advance) -> None:
    """Encode the shards, each whole on one of the devices; `advance` counts segments.

    Raises what a process raises first, and ComputeError where one dies; shards that are finished are kept.
    """
    waiting = iter(job.shards)
    workers = [_start(job, device) for device in job.devices[: len(job.shards)]]
    try:
        busy = {worker.connection: worker for worker in workers}
        while busy:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                if not _listen(worker, waiting, advance):
                    del busy[worker.connection]
    finally:
        for worker in workers:
            worker.process.terminate()
            worker.process.join()
            worker.connection.close()


def _start(job: EncodingJob, device: str) -> _Worker:
    recorded = job.encoder.identity
    settings = on_device(recorded_settings(recorded, job.settings), device)
    return _Worker(device, *start_worker(_serve, job.output, settings, recorded))


def _listen(worker: _Worker, waiting: Iterator[int], advance: Advance) -> bool:
    """Act on one message: segments done, a request for a shard (None), or an error. False when the process is done."""
    try:
        message = worker.connection.recv()
        if message is None:
            worker.shard = next(waiting, None)
            worker.connection.send(worker.shard)
    except (EOFError, ConnectionError):
        worker.process.join()
        if worker.process.exitcode:
            raise _died(worker) from None
        return False
    if isinstance(message, Exception):
        raise message
    advance(message or 0)
    return True


def _died(worker: _Worker) -> ComputeError:
    code = worker.process.exitcode or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    at = "" if worker.shard is None else f" at shard {shard_name(worker.shard)}"
    return ComputeError(
        f"the process on device {worker.device} {how}{at}; finished shards are kept: "
        "run the same command again, with a smaller batch size where memory ran out."
    )


def _serve(connection: Connection, output: Path, settings: EncoderConfig, recorded: EncoderIdentity) -> None:
    """Encode shards in a worker process until none is left."""
    try:
        encoder = open_encoder(settings)
        if difference := differences(recorded, encoder.identity):
            raise EncoderMismatch(f"the encoder on device {settings.device} is another than the build's: {difference}.")
        encode_shards(output, assigned(connection), encoder, connection.send)
    except (RecipeError, OSError) as error:
        connection.send(error)
