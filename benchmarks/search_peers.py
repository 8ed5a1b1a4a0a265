"""What the search is compared with: its peers, and what the machine can do at best, measured in the same run."""

import math
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import faiss
import llvmlite.binding as llvm
import maxsim_cpu
import numba
import numpy as np
import torch
from common import once
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from recipe.alignment import cpu

Vectors = NDArray[np.float32]
Queries = Sequence[Vectors]
Ids = NDArray[np.int64]

PROBES, CANDIDATES = 8, 200
"""Lists of the inverted file that a step looks into, and segments that it brings home."""


class Data(NamedTuple):
    """The vectors in float32 [S, d], and the rows at which the narrations begin, int64 [N + 1]."""

    vectors: Vectors
    offsets: Ids


class System(Protocol):
    """A way to the k narrations of the highest A_mono, or near to it."""

    bytes: int
    """Size of what it searches in."""

    def run(self, queries: Queries) -> Any:
        """The timed part: the answers to all queries, in the system's own form."""
        ...

    def found(self, answers: Any) -> list[Ids]:
        """The narrations of each answer, best first."""
        ...


def best(scores: NDArray[Any], k: int) -> Ids:
    """The k highest of [N], best first, ties in order."""
    return np.argsort(-scores, kind="stable")[:k]


class NumpyLoop:
    """A loop over narrations: one matrix product for all queries at once, then the recursion of A_mono, in float32.

    All queries have the same number of steps.
    """

    def __init__(self, data: Data, k: int) -> None:
        self._data, self._k = data, k
        self.bytes = data.vectors.nbytes

    def run(self, queries: Queries) -> Vectors:
        stacked = np.stack(queries)
        columns = stacked.reshape(-1, stacked.shape[2])
        bounds = self._data.offsets.tolist()
        scores = np.empty((len(queries), len(bounds) - 1), dtype=np.float32)
        for n in range(len(bounds) - 1):
            W = columns @ self._data.vectors[bounds[n] : bounds[n + 1]].T
            scores[:, n] = coverage(W.reshape(*stacked.shape[:2], -1))
        return scores

    def found(self, answers: Vectors) -> list[Ids]:
        return [best(scores, self._k) for scores in answers]


def coverage(W: NDArray[Any]) -> NDArray[Any]:
    """A_mono of similarities [Q, M, L]: [Q]."""
    D = np.zeros_like(W[:, 0])
    for i in range(W.shape[1]):
        D = np.maximum.accumulate(W[:, i] + D, axis=1)
    return np.asarray(D[:, -1] / W.shape[1])


def oracle(data: Data, queries: Queries) -> NDArray[np.float64]:
    """A_mono of every query with every narration in float64: [Q, N]."""
    stacked = np.stack(queries).astype(np.float64)
    columns = stacked.reshape(-1, stacked.shape[2])
    offsets = data.offsets
    scores = np.empty((len(queries), len(offsets) - 1))
    pieces = np.unique(np.searchsorted(offsets, np.arange(0, offsets[-1] + 8192, 8192)).clip(max=len(offsets) - 1))
    for first, last in pairwise(pieces.tolist()):
        rows = data.vectors[offsets[first] : offsets[last]].astype(np.float64)
        W = (columns @ rows.T).reshape(*stacked.shape[:2], -1)
        starts = offsets[first : last + 1] - offsets[first]
        for n in range(last - first):
            scores[:, first + n] = coverage(W[..., starts[n] : starts[n + 1]])
    return scores


class FaissFlat:
    """faiss IndexFlatIP: the k nearest segments of each step, without order and without narrations.

    An easier question, and the floor of any two-stage system on it. Narrations are ranked by what their segments
    found bring to each step, which costs nothing here: it is not timed.
    """

    def __init__(self, data: Data, k: int) -> None:
        self._index = faiss.IndexFlatIP(data.vectors.shape[1])
        self._index.add(data.vectors)
        self._narration, self._k = owners(data.offsets), k
        self.bytes = data.vectors.nbytes

    def run(self, queries: Queries) -> tuple[list[int], Vectors, Ids]:
        return [len(steps) for steps in queries], *self._index.search(np.concatenate(queries), self._k)

    def found(self, answers: tuple[list[int], Vectors, Ids]) -> list[Ids]:
        counts, similarities, segments = answers
        ends = np.cumsum(counts)[:-1]
        return [
            self._ranked(*pair)
            for pair in zip(np.split(similarities, ends), np.split(self._narration[segments], ends), strict=True)
        ]

    def _ranked(self, similarities: Vectors, narrations: Ids) -> Ids:
        candidates, place = np.unique(narrations, return_inverse=True)
        reached = np.zeros((len(similarities), len(candidates)), np.float32)
        step = np.repeat(np.arange(len(similarities)), similarities.shape[1])
        np.maximum.at(reached, (step, place.ravel()), similarities.ravel())
        return candidates[best(reached.sum(axis=0), self._k)]


class FaissInverted:
    """faiss IndexIVFFlat for candidates, then A_mono of all narrations with a segment among them.

    Re-scoring is a gather, a matrix product and the compiled programme, one query a thread. The vectors that it
    reads are those of the index, counted once.
    """

    def __init__(self, data: Data, k: int, lists: int, threads: int) -> None:
        self._data, self._k, self._threads = data, k, threads
        self._narration = owners(data.offsets)
        quantiser = faiss.IndexFlatIP(data.vectors.shape[1])
        self._index = faiss.IndexIVFFlat(quantiser, data.vectors.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
        self._index.cp.max_points_per_centroid = 39
        self._index.train(data.vectors)
        self._index.add(data.vectors)
        self._index.nprobe = PROBES
        self.bytes = data.vectors.nbytes + quantiser.ntotal * data.vectors[:1].nbytes + 8 * len(data.vectors)

    def run(self, queries: Queries) -> list[Ids]:
        _, segments = self._index.search(np.concatenate(queries), CANDIDATES)
        near = np.split(segments, np.cumsum([len(steps) for steps in queries])[:-1])
        with (
            threadpool_limits(1 if len(queries) > 1 else self._threads, "blas"),
            ThreadPoolExecutor(self._threads) as pool,
        ):
            return list(pool.map(self._rescored, queries, near))

    def found(self, answers: list[Ids]) -> list[Ids]:
        return answers

    def _rescored(self, steps: Vectors, segments: Ids) -> Ids:
        candidates = np.unique(self._narration[segments[segments >= 0]])
        first, last = self._data.offsets[candidates], self._data.offsets[candidates + 1]
        starts = np.concatenate([[0], np.cumsum(last - first)])
        rows = np.arange(starts[-1]) + np.repeat(first - starts[:-1], last - first)
        scores = cpu.grouped_monotone_coverage(self._data.vectors[rows] @ steps.T, [len(steps)], starts)[0]
        return candidates[best(scores, self._k)]


class MaxsimCpu:
    """maxsim-cpu: MaxSim of every narration, without order; it takes one query at a time."""

    def __init__(self, data: Data, k: int) -> None:
        self._narrations = np.split(data.vectors, data.offsets[1:-1])
        self._k = k
        self.bytes = data.vectors.nbytes

    def run(self, queries: Queries) -> list[Vectors]:
        return [maxsim_cpu.maxsim_scores_variable(steps, self._narrations) for steps in queries]

    def found(self, answers: list[Vectors]) -> list[Ids]:
        return [best(scores, self._k) for scores in answers]


def owners(offsets: Ids) -> Ids:
    """The narration of each row: [S]."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def recall(found: Ids, scores: NDArray[np.float64], k: int) -> float:
    """Share of the k best by the oracle's scores [N] that are among the found, ties counting alike."""
    threshold = np.partition(scores, -k)[-k]
    return float((scores[found[:k]] >= threshold).sum() / k)


_ACCUMULATORS = 12
"""Independent sums: enough to hide the latency of a dot product, few enough to stay in registers."""
_LANES = ir.VectorType(ir.IntType(32), 16)
_BYTES = ir.VectorType(ir.IntType(8), 64)


def measure_limits(threads: int, gigabytes: float, side: int) -> dict[str, float]:
    """GB/s read from memory; GFLOP/s and GOP/s of matrix products [side, side] and of int8 dot products.

    A limit that this processor has no instruction for is left out.
    """
    torch.set_num_threads(threads)
    limits = {"read_gb_per_s": _read_bandwidth(threads, gigabytes), **_products(threads, side)}
    if llvm.get_host_cpu_features().get("avx512vnni"):
        limits["int8_dot_gop_per_s"] = _int8_dots(threads)
    return limits


def _read_bandwidth(threads: int, gigabytes: float) -> float:
    numbers = np.ones(int(gigabytes * 1e9) // 8, dtype=np.int64)
    parts = np.array_split(numbers, threads)
    return numbers.nbytes / 1e9 / _seconds(lambda: _on_threads(_total, [(part,) for part in parts]), threads)


def _products(threads: int, side: int) -> dict[str, float]:
    floats = torch.randn(side, side)
    halves = floats.bfloat16()
    bytes_ = torch.randint(-127, 128, (side, side), dtype=torch.int8)
    operations = 2 * side**3 / 1e9
    return {
        "sgemm_gflop_per_s": operations / _seconds(lambda: torch.mm(floats, floats), threads),
        "torch_bf16_gflop_per_s": operations / _seconds(lambda: torch.mm(halves, halves), threads),
        "torch_int8_gop_per_s": operations / _seconds(lambda: torch._int_mm(bytes_, bytes_), threads),
    }


def _int8_dots(threads: int) -> float:
    turns = 20_000_000
    operations = 2 * threads * turns * _ACCUMULATORS * 64 / 1e9
    return operations / _seconds(lambda: _on_threads(_dot_products, [(turns,)] * threads), threads)


def _seconds(task: Callable[[], object], threads: int) -> float:
    once(task, threads)
    return statistics.median(once(task, threads)[0] for _ in range(5))


def _on_threads(kernel: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> None:
    with ThreadPoolExecutor(len(arguments)) as pool:
        if not all(math.isfinite(result) for result in pool.map(lambda values: kernel(*values), arguments)):
            raise AssertionError("a measuring kernel gave no number")


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def _total(numbers: NDArray[np.int64]) -> int:
    total = 0
    for number in numbers:
        total += number
    return total


def _dots(typing_context: Any, turns: Any) -> Any:
    """`turns` times the accumulators' `vpdpbusd`, from registers alone."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pattern = builder.trunc(arguments[0], ir.IntType(8))
        seed = builder.insert_element(ir.Constant(_BYTES, None), pattern, ir.Constant(ir.IntType(32), 0))
        sums = [cgutils.alloca_once_value(builder, ir.Constant(_LANES, None)) for _ in range(_ACCUMULATORS)]
        kind = ir.FunctionType(_LANES, [_LANES, _BYTES, _BYTES])
        dot = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
        with cgutils.for_range(builder, arguments[0], intp=ir.IntType(64)):
            for total in sums:
                builder.store(builder.call(dot, [builder.load(total), seed, seed]), total)
        result = builder.load(sums[0])
        for total in sums[1:]:
            result = builder.add(result, builder.load(total))
        first = builder.extract_element(result, ir.Constant(ir.IntType(32), 0))
        return builder.sext(first, ir.IntType(64))

    return types.int64(types.int64), generate


_dots_intrinsic = intrinsic(_dots)


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def _dot_products(turns: int) -> Any:
    return _dots_intrinsic(turns)
