"""The Ray cluster that a corpus is built or searched on: connected to where there is one, else started here."""

import logging
import math
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from recipe.errors import MissingExtra, RecipeError

try:
    import ray
except ModuleNotFoundError as error:
    raise MissingExtra("work on a Ray cluster", "cluster") from error

_OBJECT_STORE = 128 << 20
"""Bytes of shared memory of a cluster started here: only queries, hits and counts travel, never vectors."""

_PATIENCE = 10.0
"""Seconds for a named cluster to accept a connection."""


@contextmanager
def cluster(cpus: float = 1) -> Iterator[None]:
    """A Ray cluster for the time of the context.

    It is the one that this process is connected to, else the one that the environment variable RAY_ADDRESS
    names, else one started on this machine with room for workers of `cpus` CPUs together. What was connected to
    or started here is left or stopped at the end. Raises RecipeError where the named one does not answer.
    """
    if ray.is_initialized():
        yield
        return
    _connect(os.environ.get("RAY_ADDRESS"), cpus)
    try:
        yield
    finally:
        ray.shutdown()


def _connect(address: str | None, cpus: float) -> None:
    if address is None:
        ray.init(
            "local",
            num_cpus=max(os.cpu_count() or 1, math.ceil(cpus)),
            object_store_memory=_OBJECT_STORE,
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
        return
    try:
        _reach(address)
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise RecipeError(
            f"the Ray cluster at RAY_ADDRESS={address} cannot be used ({first_line(error)}); "
            "start it with `ray start --head`, set RAY_AUTH_MODE=token where it asks for a token, "
            "or unset RAY_ADDRESS to work on this machine alone."
        ) from None


def _reach(address: str) -> None:
    """Knock first where the address is HOST:PORT, because Ray itself waits there for many minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if port.isdigit():
        socket.create_connection((host, int(port)), _PATIENCE).close()


def first_line(error: BaseException) -> str:
    """What a library's error says before it goes on for lines."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
