"""Exact search of a corpus larger than one machine or device: shards divided among Ray actors, their best merged.

Each actor returns the exact k best of its shards. The k best of all are among these, so the merge is exact; it is made
only when every shard has been searched.
"""

import logging
import math
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from recipe.config.corpus import EncoderConfig
from recipe.corpus.index import Index
from recipe.corpus.layout import open_manifest
from recipe.corpus.scan import kernels
from recipe.corpus.scan.certificate import SearchResult
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, CorpusError, InputError, MissingExtra, RecipeError, first_line

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
except ModuleNotFoundError as error:
    raise MissingExtra("work on a Ray cluster", "cluster") from error

Vectors = NDArray[np.float32]

# Bytes of shared memory of a cluster started here: only queries, hits and counts travel, never vectors.
_OBJECT_STORE = 128 << 20
# Seconds for a named cluster to accept a connection.
_PATIENCE = 10.0


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
    address = os.environ.get("RAY_ADDRESS")
    if address is None:
        ray.init(
            "local",
            num_cpus=max(os.cpu_count() or 1, math.ceil(cpus)),
            object_store_memory=_OBJECT_STORE,
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    else:
        try:
            # Connect to HOST:PORT first, because Ray itself waits there for many minutes.
            host, _, port = address.rpartition("/")[2].rpartition(":")
            if port.isdigit():
                socket.create_connection((host, int(port)), _PATIENCE).close()
            ray.init(address, logging_level=logging.ERROR, log_to_driver=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise RecipeError(
                f"the Ray cluster at RAY_ADDRESS={address} cannot be used ({first_line(error)}); "
                "start it with `ray start --head`, set RAY_AUTH_MODE=token where it asks for a token, "
                "or unset RAY_ADDRESS to work on this machine alone."
            ) from None
    try:
        yield
    finally:
        ray.shutdown()


Opener = Callable[[Path, Sequence[int]], Index]


@dataclass(frozen=True, slots=True)
class Placement:
    """Resources of an actor, its retries and its time limit."""

    cpus: float = 1
    """Also the threads that it searches with."""
    gpus: float = 0
    """With any, the shards are copied to the GPUs and searched there."""
    retries: int = 2
    """Retries of a search on a part whose actor died and was started again."""
    timeout: float = 600
    """Seconds for all actors to open their shards, and for each search."""

    def open_index(self, folder: Path, shards: Sequence[int]) -> Index:
        """The index of an actor's shards. Raises as `Index.open` and `GpuIndex.open`."""
        threads = max(1, int(self.cpus))
        if not self.gpus:
            return Index.open(folder, shards, threads=threads)
        devices = [f"cuda:{number}" for number in range(math.ceil(self.gpus))]
        index: Index = kernels("gpu.index").GpuIndex.open(folder, shards, devices=devices, threads=threads)
        return index


_DEFAULT = Placement()


class _Actor:
    """Searches some shards; they are opened by the first call, so that their errors arrive as they are."""

    def __init__(self, folder: Path, shards: range, corpus: str, opener: Opener) -> None:
        self._folder, self._shards, self._corpus, self._opener = folder, shards, corpus, opener

    @cached_property
    def _index(self) -> Index:
        identity = open_manifest(self._folder)["id"]
        if identity != self._corpus:
            raise CorpusError(
                f"{self._folder}: an actor found the corpus {identity[:12]}, not {self._corpus[:12]}; "
                "let all machines see the same folder, and open the index again."
            )
        return self._opener(self._folder, self._shards)

    def ready(self) -> int:
        """Open the shards; the number of their narrations."""
        return len(self._index)

    def search(self, queries: Sequence[Vectors], k: int) -> list[SearchResult]:
        return self._index.search(queries, k)


class ShardedIndex(AbstractContextManager["ShardedIndex"]):
    """The index of a corpus, its shards divided among actors; a context manager, safe to share between threads.

    Open one with `ShardedIndex.open`.
    """

    def __init__(
        self, folder: Path, names: Sequence[str], shares: Sequence[range], actors: Sequence[Any], timeout: float
    ) -> None:
        """`names` are those of all shards of the corpus."""
        self._folder, self._names, self._actors, self._timeout = folder, names, actors, timeout
        # The numbers of the shards that each actor searches.
        self.shares = list(shares)
        self._stack = ExitStack()

    @classmethod
    def open(
        cls,
        folder: Path | str,
        actors: int,
        placement: Placement = _DEFAULT,
        *,
        opener: Opener | None = None,
    ) -> Self:
        """Start at most `actors` actors, with even shares of the segments.

        `opener` opens an actor's shards in place of `Index.open`, or of `GpuIndex.open` where an actor has GPUs. All
        machines must see the folder under the same path. Raises InputError for less than one actor, CorpusError for a
        corpus that is damaged or another on some machine, and ComputeError for actors that do not start.
        """
        if actors < 1:
            raise InputError(f"{actors} actors cannot search; give at least 1.")
        folder = Path(folder).resolve()
        opener = opener or placement.open_index
        manifest = open_manifest(folder)
        runs = balanced([shard["segments"] for shard in manifest["shards"]], actors)
        with ExitStack() as stack:
            stack.enter_context(cluster(len(runs) * placement.cpus))
            # Restarted without end, because only the retries of one search tell that its processes keep dying.
            kind = ray.remote(_Actor).options(
                num_cpus=placement.cpus,
                num_gpus=placement.gpus,
                max_restarts=-1,
                max_task_retries=placement.retries,
                scheduling_strategy="SPREAD",
            )
            started = [kind.remote(folder, run, manifest["id"], opener) for run in runs]
            for actor in started:
                stack.callback(ray.kill, actor)
            names = [shard["name"] for shard in manifest["shards"]]
            index = cls(folder, names, runs, started, placement.timeout)
            opened = index._ask([actor.ready.remote() for actor in started])
            if sum(opened) != manifest["narrations"]:
                raise CorpusError(
                    f"{folder}: the actors opened {sum(opened)} narrations of {manifest['narrations']}; "
                    "let each open its own shards, all of them."
                )
            # From here on they are the caller's to stop; after any error above they are stopped here.
            index._stack = stack.pop_all()
        return index

    def search(self, queries: Sequence[Vectors], k: int = 25) -> list[SearchResult]:
        """The k best narrations of the whole corpus for each query, float32 [M_i, d]; ties in corpus order.

        Raises InputError as `Index.search`, and ComputeError, naming the shards, where some could not be searched:
        there is no answer from a part of the corpus.
        """
        # Put once for all actors, which read it from the memory of their machine.
        shared = ray.put(list(queries))
        answers = self._ask([actor.search.remote(shared, k) for actor in self._actors])
        return [SearchResult.merged(results, k) for results in zip(*answers, strict=True)]

    def close(self) -> None:
        """Stop the actors, and the cluster where it was started for them."""
        self._stack.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, answers: Sequence[Any]) -> list[Any]:
        """The answers of all actors, in order. Raises ComputeError, naming the shards, where one is missing."""
        _, late = ray.wait(list(answers), num_returns=len(answers), timeout=self._timeout)
        values, missing, cause = [], [], None
        if late:
            missing = [run for run, answer in zip(self.shares, answers, strict=True) if answer in late]
            free, whole = ray.available_resources(), ray.cluster_resources()
            parts = [f"{free.get(name, 0):g} of {whole.get(name, 0):g} {name}s" for name in ("CPU", "GPU")]
            reason = f"no answer in {self._timeout:g} s; the cluster has {' and '.join(parts)} free"
        else:
            for run, answer in zip(self.shares, answers, strict=True):
                try:
                    values.append(ray.get(answer))
                except RayTaskError as error:
                    if isinstance(error.cause, RecipeError):
                        raise error.cause from None
                    raise
                except RayError as error:
                    missing.append(run)
                    cause = cause or error
            reason = "the processes that search them keep dying"
        if missing:
            ends = [(self._names[run[0]], self._names[run[-1]]) for run in missing]
            spans = [first if first == last else f"{first} to {last}" for first, last in ends]
            raise ComputeError(
                f"{self._folder}: shards {', '.join(spans)} could not be searched ({reason}), so the search has no "
                "result; see that the machines have memory and read the folder, and search again."
            ) from cause
        return values


def balanced(sizes: Sequence[int], parts: int) -> list[range]:
    """At most `parts` runs of consecutive items, the largest sum of sizes in a run as small as can be.

    >>> balanced([5, 1, 1, 1, 4], 3)
    [range(0, 1), range(1, 4), range(4, 5)]
    """
    # Bisection of the largest sum: runs filled in order are the fewest for a limit.
    low, high = max(sizes), sum(sizes)
    while low < high:
        middle = (low + high) // 2
        if len(_runs(sizes, middle)) <= parts:
            high = middle
        else:
            low = middle + 1
    return _runs(sizes, low)


def _runs(sizes: Sequence[int], limit: int) -> list[range]:
    """The fewest runs whose sums stay within `limit`, which no item exceeds."""
    bounds, held = [0], 0
    for index, size in enumerate(sizes):
        if held + size > limit:
            bounds.append(index)
            held = 0
        held += size
    return [range(first, last) for first, last in pairwise([*bounds, len(sizes)])]


class ClusterCorpus(Corpus, AbstractContextManager["ClusterCorpus"]):
    """A corpus that actors search; its encoder, texts and single vectors are read in this process.

    A context manager; open one with `ClusterCorpus.open`.
    """

    index: ShardedIndex

    @classmethod
    def open(  # type: ignore[override]  # actors take the place of devices
        cls, path: Path | str, actors: int, placement: Placement = _DEFAULT, *, encoder: EncoderConfig | None = None
    ) -> Self:
        """The corpus in the folder `path`, as `Corpus.open`, searched as by `ShardedIndex.open`. Raises as both."""
        corpus = Corpus.open(path, encoder)
        return cls(corpus._local, corpus.encoder_config, ShardedIndex.open(path, actors, placement))

    def close(self) -> None:
        """Stop the actors, and the cluster where it was started for them."""
        self.index.close()

    def __exit__(self, *_: object) -> None:
        self.close()
