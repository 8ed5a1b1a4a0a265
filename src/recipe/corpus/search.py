"""Stage 1: the narrations of the highest A_mono, exactly, over a whole corpus."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.corpus.kernels import kernels
from recipe.types import Hit

_CHUNK_BYTES = 4 << 20
"""Embeddings handed to a thread at a time: small enough that threads end together."""


class Block(NamedTuple):
    """Consecutive narrations: their vectors, float16 [S, d], and the rows they begin at, int64 [N + 1]."""

    embeddings: NDArray[np.float16]
    offsets: NDArray[np.int64]


def coverage_scores(
    blocks: Sequence[Block], queries: NDArray[np.float32], threads: int | None = None
) -> NDArray[np.float32]:
    """A_mono of the steps, float32 queries [M, d], with each narration of the blocks in turn: float32 [N].

    A narration's score depends on its own rows only, whatever the threads and blocks, so that equal
    narrations tie exactly. Raises MissingExtra where Numba is not installed.
    """
    kernel = kernels("scan")
    steps = len(queries)
    padded = np.zeros((-(-steps // kernel.STEPS) * kernel.STEPS, queries.shape[1]), dtype=np.float32)
    padded[:steps] = queries
    scores = np.empty(sum(len(block.offsets) - 1 for block in blocks), dtype=np.float32)
    work = []
    start = 0
    for block in blocks:
        bits = block.embeddings.view(np.uint16)
        part = scores[start : start + len(block.offsets) - 1]
        work += [(bits, block.offsets, padded, steps, first, last, part) for first, last in _chunks(block)]
        start += len(part)
    with ThreadPoolExecutor(threads or _cores()) as pool:
        for _ in pool.map(lambda arguments: kernel.coverage(*arguments), work):
            pass
    return scores


def best_hits(scores: NDArray[np.float32], k: int) -> list[Hit]:
    """The k highest scores, best first, equal scores in corpus order; all where there are fewer than k.

    >>> best_hits(np.float32([0.25, 0.5, 0.25, 0.5]), 3)
    [Hit(narration=1, score=0.5), Hit(narration=3, score=0.5), Hit(narration=0, score=0.25)]
    """
    k = min(k, len(scores))
    threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
    candidates = np.flatnonzero(scores >= threshold)
    order = np.argsort(-scores[candidates], kind="stable")[:k]
    return [Hit(int(narration), float(scores[narration])) for narration in candidates[order]]


def _chunks(block: Block) -> list[tuple[int, int]]:
    rows = max(1, _CHUNK_BYTES // max(1, block.embeddings[:1].nbytes))
    bounds = [0]
    while bounds[-1] < len(block.offsets) - 1:
        end = int(np.searchsorted(block.offsets, block.offsets[bounds[-1]] + rows, side="right")) - 1
        bounds.append(max(end, bounds[-1] + 1))
    return list(pairwise(bounds))


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
