"""The scans of stage 1 over the shards: integers over codes, float32 over vectors, float64 for a few narrations."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numba.core.registry import cpu_target
from numpy.typing import NDArray

from recipe.corpus.layout import EMBEDDINGS, damaged
from recipe.corpus.scan import floats, integers
from recipe.corpus.scan.certificate import Exact
from recipe.corpus.scan.integers import LANES, STEPS
from recipe.corpus.scan.quantise import Queries, cache_lines, lay_out, scratch
from recipe.corpus.scan.shards import Shard
from recipe.errors import ConfigError

# What each instruction set of the integer scan needs, best first; every processor has the last.
_FEATURES = {
    "vnni": ("avx512f", "avx512bw", "avx512vl", "avx512vnni"),
    "avx2": ("avx2",),
    "portable": (),
}
SINGLE_COLUMNS = 12
"""Unique steps up to which queries are taken one by one; a panel of 16 columns would be multiplied in vain."""
SINGLE_QUERIES = 3
CHUNK_BYTES = 16 << 20
"""Vectors handed to a thread at a time, at most: long enough that the system spreads the threads over the cores."""
# Pieces for each thread, at least: short enough that threads end together.
_CHUNKS = 4
PAIRS_AT_ONCE = 128
"""Pairs handed to a thread at a time in exact scoring."""
# The unit roundoff u of float32.
_EPSILON = 2.0**-24


class PackedQueries(NamedTuple):
    """Queries as a kernel of `integers` takes them."""

    packed: NDArray[Any]
    starts: NDArray[np.int32]
    """What the sums start from: -128 times the sum of a step's codes where 128 is added to the codes of segments."""
    columns: NDArray[np.int32]
    kinds: NDArray[np.int32] | None
    """How the columns lie; None where queries are taken one by one."""

    @property
    def width(self) -> int:
        """Columns that the sums of the queries take: one each, or those of whole groups of `LANES`."""
        return len(self.columns) * (1 if self.kinds is None else LANES)

    def scan(
        self, codes: NDArray[np.int8], offsets: NDArray[np.int64], first: int, last: int, sums: NDArray[np.int32]
    ) -> None:
        """Write M A_mono of the codes of every query with the narrations first:last to sums [N, width].

        codes: those of these narrations [S, D]; offsets [N + 1]: as of `integers.scan_single`.
        """
        arguments = (codes, offsets, self.packed, self.starts, self.columns)
        if self.kinds is None:
            integers.scan_single(*arguments, first, last, sums)
        else:
            W, best = scratch((integers.TILE, self.starts.size), np.int32), scratch(self.columns.shape, np.int32)
            integers.scan_batch(*arguments, self.kinds, W, best, first, last, sums)


def available() -> tuple[str, ...]:
    """The instruction sets that Numba's code may use on this machine, best first."""
    features = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
    return tuple(isa for isa, needs in _FEATURES.items() if all(f"+{need}" in features for need in needs))


def choose(isa: str | None) -> str:
    """`isa`, or the best instruction set there is. Raises ConfigError for one that does not run here."""
    usable = available()
    if isa is not None and isa not in usable:
        raise ConfigError(f"instruction set {isa!r} does not run on this processor; choose one of {', '.join(usable)}.")
    return isa or usable[0]


def prepare(queries: Queries) -> PackedQueries:
    """Pack the steps for their instruction set."""
    isa, (unique, d) = queries.isa, queries.codes.shape
    single = unique <= SINGLE_COLUMNS and len(queries.steps) <= SINGLE_QUERIES
    kinds: NDArray[np.int32] | None = None
    if single:
        zeros = int((queries.steps < 0).any())  # a row of them, for what follows a query's last step
        rows = np.zeros((-(-(unique + zeros) // STEPS) * STEPS, d), np.int16)
        rows[:unique] = queries.codes
        columns = np.ascontiguousarray(np.where(queries.steps < 0, unique, queries.steps), np.int32)
    else:
        positions, columns, kinds, width = lay_out(queries)
        rows = np.zeros((width, d), np.int16)
        rows[positions] = queries.codes

    packed: NDArray[Any]
    if isa == "vnni" and single:  # int32 [columns, D / 4], four codes in one number, for the tiles of `tile_dots`
        packed = cache_lines(rows.astype(np.int8)).view(np.int32)
    elif isa == "vnni":  # uint8 [columns / 16, D / 4, 16, 4], codes + 128, for `panel_dots`
        unsigned = (rows + 128).astype(np.uint8)
        packed = cache_lines(unsigned.reshape(len(rows) // LANES, LANES, -1, 4).swapaxes(1, 2))
    elif isa == "avx2":  # int16 [columns, D / 2], two codes in one number, for the same
        packed = cache_lines(rows.astype(np.int8)).view(np.int16)
    else:
        packed = cache_lines(rows.astype(np.int8))
    # The tiles of VNNI and AVX2 take unsigned codes of segments: flipping their sign bit has added 128.
    added = -128 if packed.dtype in (np.int32, np.int16) else 0
    starts: NDArray[np.int32] = (added * rows.sum(axis=1, dtype=np.int64)).astype(np.int32)
    return PackedQueries(packed, starts, columns, kinds)


class ApproximateScores(NamedTuple):
    """Scores of Q queries with N narrations, each within a bound: see `recipe.corpus.scan.certificate.BoundedScores`.

    A score is sums [N, >= Q] * scales [N] * factors [Q]; its bound is errors [N, 2] . weights [Q, 2].
    """

    method: str
    sums: NDArray[Any]
    scales: NDArray[np.float64]
    factors: NDArray[np.float64]
    errors: NDArray[np.float64]
    weights: NDArray[np.float64]
    bounds: NDArray[np.float64]
    """[Q]: no narration's error bound is larger."""

    def best(self, k: int) -> NDArray[np.int64]:
        """[Q, k]: the narrations of the k highest scores."""
        chosen = np.empty((len(self.factors), k), np.int64)
        floats.best(self.sums, self.scales, chosen)
        return chosen

    def reaching(self, thresholds: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Narrations and queries of all pairs whose score + bound is not below the query's threshold."""
        room = 1 << 16
        while True:
            narrations, queries = np.empty(room, np.int64), np.empty(room, np.int64)
            count = floats.reaching(*self[1:6], thresholds, narrations, queries)
            if count <= room:
                return narrations[:count], queries[:count]
            # Counted to the end at the first try, so that the second one has the room.
            room = count


class Bounds(NamedTuple):
    """Bounds on what the codes of N narrations lose, in float64."""

    scales: NDArray[np.float64]
    """[N]: scale of a narration's codes."""
    errors: NDArray[np.float64]
    """[N, 2]: largest residual and largest norm."""
    largest: NDArray[np.float64]
    """[2]: the same over all narrations."""

    @classmethod
    def of(cls, shards: Sequence[Shard]) -> "Bounds":
        """The bounds of the shards' narrations in turn."""
        bounds = np.concatenate([shard.bounds for shard in shards]).astype(np.float64)
        # Columns of their own: the kernels read each narration's numbers as neighbours.
        scales, errors = np.ascontiguousarray(bounds[:, 0]), np.ascontiguousarray(bounds[:, 1:])
        return cls(scales, errors, errors.max(axis=0))


def integer_scores(
    shards: Sequence[Shard], bounds: Bounds, queries: Queries, threads: int | None = None
) -> ApproximateScores:
    """Scores from the codes, with the instructions that the queries are for; bounds: those of the shards."""
    prepared = prepare(queries)
    narrations = len(bounds.scales)
    sums = np.empty((narrations, prepared.width), np.int32)

    def work(shard: Shard, first: int, last: int, start: int) -> None:
        codes = shard.codes.rows(shard.offsets[first], shard.offsets[last])
        prepared.scan(codes, shard.offsets, first, last, sums[start : start + len(shard)])

    _in_parallel(work, _chunks(shards, shards[0].codes.shape[1], threads), threads)
    # A_mono divides by M; the sums are of all M steps.
    factors = queries.scale / queries.lengths
    # With q' and x' the decoded step and segment, <q, x> - <q', x'> = <q, x - x'> + <q - q', x'>, of which the size is
    # at most ||q|| ||x - x'|| + ||q - q'|| ||x'|| (Cauchy and Schwarz). A_mono is a mean over steps and a maximum over
    # assignments, and neither makes an error larger.
    weights = np.stack([queries.norms, queries.residuals], axis=1)
    return ApproximateScores("int8", sums, bounds.scales, factors, bounds.errors, weights, weights @ bounds.largest)


def float_scores(shards: Sequence[Shard], query: NDArray[np.float32], threads: int | None = None) -> ApproximateScores:
    """Scores of one query [M, d] from the float16 vectors, in float32.

    A narration's score depends on its own rows only, whatever the threads and shards.
    """
    steps, d = query.shape
    padded = np.zeros((-(-steps // floats.STEPS) * floats.STEPS, d), np.float32)
    padded[:steps] = query
    scores = np.empty(sum(map(len, shards)), np.float32)

    def work(shard: Shard, first: int, last: int, start: int) -> None:
        vectors = shard.embeddings.rows(shard.offsets[first], shard.offsets[last])
        part = scores[start : start + len(shard)]
        floats.coverage(vectors.view(np.uint16), shard.offsets, padded, steps, first, last, part)
        _require_finite(shard, part[first:last])

    _in_parallel(work, _chunks(shards, 2 * d, threads), threads)
    # Each dot product is d / 8 fused operations a lane and a few that join lanes and add the rest; then M sums.
    operations = d / floats.LANES + 2 * floats.LANES + 2 * (d % floats.LANES) + steps
    longest = max(float((shard.bounds[:, 1] + shard.bounds[:, 2]).max()) for shard in shards)
    # n operations lose at most n u / (1 - n u) of their absolute values (Higham, 2002); 1.02 covers the divisor.
    slack = 1.02 * _EPSILON * operations * longest * float(np.linalg.norm(query.astype(np.float64), axis=1).sum())
    unit = np.ones(len(scores))
    errors = np.stack([unit, 0 * unit], axis=1)
    weights = np.array([[slack, 0.0]])
    return ApproximateScores("exact", scores[:, None], unit, unit[:1], errors, weights, weights[:, 0])


def exact_scorer(shards: Sequence[Shard], queries: Queries, threads: int | None = None) -> Exact:
    """A_mono in float64 of pairs, narrations [P], counted over the shards in turn, and queries [P], as a function."""
    # The queries' vectors [Q, M, d], with rows of zeros up to a multiple of what a tile takes.
    count, longest = queries.steps.shape
    steps = np.zeros((count, -(-longest // floats.STEPS) * floats.STEPS, queries.vectors.shape[1]))
    steps[:, :longest][queries.steps >= 0] = queries.vectors[queries.steps[queries.steps >= 0]]
    starts = np.cumsum([0, *map(len, shards)])

    def exact(narrations: NDArray[np.int64], owners: NDArray[np.int64]) -> NDArray[np.float64]:
        scores = np.empty(len(narrations))

        def work(shard: Shard, start: int, pairs: NDArray[np.int64]) -> None:
            vectors, offsets, numbers = shard.embeddings.spans(shard.offsets, narrations[pairs] - start)
            part = np.empty(len(pairs))
            bits = vectors.view(np.uint16)
            floats.coverage_of_pairs(bits, offsets, steps, queries.lengths, numbers, owners[pairs], part)
            _require_finite(shard, part)
            scores[pairs] = part

        order = np.argsort(narrations, kind="stable")  # a narration's queries one after the other, while it is at hand
        bounds = np.searchsorted(narrations[order], starts)
        pieces = (
            (shards[n], int(starts[n]), order[at : min(at + PAIRS_AT_ONCE, last)])
            for n, (first, last) in enumerate(pairwise(bounds))
            for at in range(first, last, PAIRS_AT_ONCE)
        )
        _in_parallel(work, pieces, threads if len(order) > PAIRS_AT_ONCE else 1)
        return scores

    return exact


def _require_finite(shard: Shard, scores: NDArray[np.floating]) -> None:
    """Checksums tell of damage, not of what was written wrongly: scores of such vectors cannot be ranked."""
    if not np.isfinite(scores).all():
        raise damaged(shard.folder, f"{EMBEDDINGS} holds a number that is not finite")


def _in_parallel(work: Callable[..., None], tasks: Iterable[tuple[Any, ...]], threads: int | None = None) -> None:
    """Call `work` with each of the tasks, on this thread and as many more as make a thread a core."""
    remaining, lock = iter(tasks), Lock()

    def run() -> None:
        while True:
            with lock:
                task = next(remaining, None)
            if task is None:
                return
            work(*task)

    # This thread works too: a search of a small corpus starts no other.
    others = (threads or _cores()) - 1
    helpers = [_pool(os.getpid(), others).submit(run) for _ in range(others)]
    try:
        run()
    finally:
        with lock:
            for _ in remaining:  # after an error nothing new is begun; else there is nothing left
                pass
        wait(helpers)
    for helper in helpers:
        helper.result()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that stay for the next search; those of a parent do not live on in a fork, hence its number."""
    return ThreadPoolExecutor(threads, thread_name_prefix=f"search-{process}")


def _chunks(shards: Sequence[Shard], row_bytes: int, threads: int | None) -> Iterator[tuple[Shard, int, int, int]]:
    """Shard, first and last narration of each piece, and how many narrations precede the shard."""
    total = row_bytes * sum(int(shard.offsets[-1]) for shard in shards)
    size = min(CHUNK_BYTES, total // (_CHUNKS * (threads or _cores())))
    rows = max(1, size // row_bytes)
    start = 0
    for shard in shards:
        first = 0
        while first < len(shard):
            end = int(np.searchsorted(shard.offsets, shard.offsets[first] + rows, side="right")) - 1
            last = max(end, first + 1)
            yield shard, first, last, start
            first = last
        start += len(shard)


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
