"""Stage 1 against faiss: the exact A_mono scan beside the exact inner-product search over the same vectors.

    python benchmarks/search.py [--quick] [--json FILE]

faiss answers an easier question: the nearest segments of each step alone, without order and without narrations. It
is the floor that a two-stage system on it would start from. Both read the same synthetic unit vectors, each with
two threads, in one run; times are medians of wall time. The scan's result is checked against float64.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads of one side would slow the other

import numpy as np
from numpy.typing import NDArray

from recipe.artifacts import write_json
from recipe.corpus.search import Block, best_hits, coverage_scores

THREADS = 2
K = 25


class Corpus(NamedTuple):
    """Synthetic narrations and one query."""

    block: Block
    queries: NDArray[np.float32]


class Row(NamedTuple):
    """One line of the table."""

    method: str
    median_ms: float
    best_ms: float
    megabytes: float


def synthetic(narrations: int, length: int, dimension: int, steps: int, seed: int = 0) -> Corpus:
    """Correlated unit vectors: a common mean, a topic for each narration, noise; the query is a noisy narration."""
    generator = np.random.default_rng(seed)
    topics = generator.standard_normal((200, dimension), dtype=np.float32)
    mean = generator.standard_normal(dimension, dtype=np.float32)
    vectors = np.empty((narrations * length, dimension), dtype=np.float16)
    for n in range(narrations):
        noise = generator.standard_normal((length, dimension), dtype=np.float32)
        vectors[n * length : (n + 1) * length] = unit(mean + topics[n % len(topics)] + 1.2 * noise)
    chosen = np.sort(generator.choice(length, steps, replace=steps > length))
    noise = generator.standard_normal((steps, dimension), dtype=np.float32)
    queries = unit(vectors[chosen].astype(np.float32) + noise / np.sqrt(dimension))
    return Corpus(Block(vectors, np.arange(0, narrations * length + 1, length)), queries)


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of norm 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def exact_scores(corpus: Corpus, length: int) -> NDArray[np.float64]:
    """A_mono in float64 by whole-array NumPy, for narrations of equal length: [N]."""
    W = corpus.queries.astype(np.float64) @ corpus.block.embeddings.astype(np.float64).T
    D = np.zeros((W.shape[1] // length, length))
    for row in W:
        D = row.reshape(-1, length) + np.maximum.accumulate(D, axis=1)
    best: NDArray[np.float64] = D.max(axis=1)
    return best / len(W)


def interleaved(methods: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each method, taken in turns, so that a busy machine slows all alike."""
    times: dict[str, list[float]] = {name: [] for name in methods}
    for method in methods.values():
        method()
    for _ in range(repeats):
        for name, method in methods.items():
            began = time.perf_counter()
            method()
            times[name].append((time.perf_counter() - began) * 1e3)
    return times


def faiss_search(corpus: Corpus) -> Callable[[], object]:
    """IndexFlatIP over the same vectors in float32."""
    import faiss

    faiss.omp_set_num_threads(THREADS)
    index = faiss.IndexFlatIP(corpus.queries.shape[1])
    for first in range(0, len(corpus.block.embeddings), 1 << 15):
        index.add(corpus.block.embeddings[first : first + (1 << 15)].astype(np.float32))
    return lambda: index.search(corpus.queries, K)


def main() -> None:
    """Print the table and the ratio; write them where --json says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1,000 narrations: checks the script, not the speed")
    parser.add_argument("--narrations", type=int, default=20_000)
    parser.add_argument("--length", type=int, default=21, help="segments of a narration")
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    narrations = 1_000 if options.quick else options.narrations
    corpus = synthetic(narrations, options.length, options.dimension, options.steps)

    def scan() -> NDArray[np.float32]:
        scores = coverage_scores([corpus.block], corpus.queries, THREADS)
        best_hits(scores, K)
        return scores

    times = interleaved({"recipe": scan, "faiss": faiss_search(corpus)}, options.repeats)
    error = float(np.abs(scan() - exact_scores(corpus, options.length)).max())
    size = corpus.block.embeddings.nbytes / 1e6
    rows = [
        Row("recipe: A_mono, exact, top 25 narrations", *summary(times["recipe"]), size),
        Row("faiss IndexFlatIP: top 25 segments a step", *summary(times["faiss"]), 2 * size),
    ]
    ratio = rows[1].median_ms / rows[0].median_ms
    report(rows, f"{narrations:,} narrations x {options.length}, d={options.dimension}, {options.steps} steps")
    print(f"faiss / recipe: {ratio:.1f}; largest error against float64: {error:.1e}")
    if options.json:
        setting = vars(options) | {"narrations": narrations, "json": None, "threads": THREADS, "k": K}
        result = {"setting": setting, "rows": [row._asdict() for row in rows], "ratio": ratio, "error": error}
        write_json(options.json, result)


def summary(times: list[float]) -> tuple[float, float]:
    """Median and best."""
    return statistics.median(times), min(times)


def report(rows: list[Row], setting: str) -> None:
    """The table."""
    print(f"{setting}, {THREADS} threads\n{'method':44}{'median ms':>11}{'best ms':>10}{'MB':>8}")
    for row in rows:
        print(f"{row.method:44}{row.median_ms:11.1f}{row.best_ms:10.1f}{row.megabytes:8.0f}")


if __name__ == "__main__":
    main()
