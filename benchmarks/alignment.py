"""Both alignment stages compared with Biopython's PairwiseAligner, on one core.

    python benchmarks/alignment.py [--json FILE]

A pair is M steps against L segments. Biopython scores the same global alignment over letters, so each pair gets
one letter for each step and segment and a substitution matrix that holds its similarities; those are built
untimed. Its score is the sum F[M, L], ours comes with the length of the path. Biopython is therefore timed as the
score alone, as an alignment with one path (whose choice among equals is unspecified), and, because handing over a
matrix takes longer than the score, as the score of one matrix again and again. Sums are compared before anything
is timed.
"""

import argparse
import json
import os
import platform
import string
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import Bio
import numba
import numpy as np
from Bio.Align import PairwiseAligner, substitution_matrices
from common import add_json, table, write_result
from numpy.typing import NDArray

from recipe.alignment import cpu
from recipe.alignment.reference import GroupAlignment

GAP = -0.05
LETTERS = string.ascii_letters + string.digits


class Biopython:
    """The pairs [P, L, M] as Biopython takes them."""

    def __init__(self, similarities: NDArray[np.float32]) -> None:
        _, segments, steps = similarities.shape
        alphabet = LETTERS[: steps + segments]
        self.steps, self.segments = alphabet[:steps], alphabet[steps:]
        self.aligner = PairwiseAligner(mode="global", gap_score=GAP)
        self.matrices = []
        for pair in similarities:
            matrix = substitution_matrices.Array(alphabet=alphabet, dims=2)
            matrix.view(np.ndarray)[:steps, steps:] = pair.T
            self.matrices.append(matrix)

    def scores(self) -> list[float]:
        found = []
        for matrix in self.matrices:
            self.aligner.substitution_matrix = matrix
            found.append(self.aligner.score(self.steps, self.segments))
        return found

    def scores_of_one_matrix(self) -> list[float]:
        self.aligner.substitution_matrix = self.matrices[0]
        return [self.aligner.score(self.steps, self.segments) for _ in self.matrices]

    def lengths(self) -> list[int]:
        found = []
        for matrix in self.matrices:
            self.aligner.substitution_matrix = matrix
            found.append(self.aligner.align(self.steps, self.segments)[0].length)
        return found


def measure(run: Callable[[], object], count: int, repeats: int) -> float:
    """Median nanoseconds for one of `count` units, after a first run that is not counted."""
    run()
    seconds = []
    for _ in range(repeats):
        began = perf_counter()
        run()
        seconds.append(perf_counter() - began)
    return median(seconds) / count * 1e9


def benchmark(pairs: int, steps: int, segments: int, repeats: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    similarities = rng.uniform(-0.3, 1.0, (pairs, segments, steps)).astype(np.float32)
    W, offsets = similarities.reshape(-1, steps), np.arange(pairs + 1) * segments
    peer = Biopython(similarities)

    def align() -> GroupAlignment:
        return cpu.grouped_needleman_wunsch(W, [steps], offsets, GAP)

    ours = align()
    difference = np.abs(ours.score[0] * ours.length[0] - peer.scores()).max()
    assert difference < 1e-4, f"Biopython and this project disagree by {difference}"
    ns = {
        "recipe_score_and_length": measure(align, pairs, repeats),
        "biopython_score": measure(peer.scores, pairs, repeats),
        "biopython_score_of_one_matrix": measure(peer.scores_of_one_matrix, pairs, repeats),
        "biopython_align_one_path": measure(peer.lengths, pairs, repeats),
        "recipe_monotone_coverage": measure(lambda: cpu.grouped_monotone_coverage(W, [steps], offsets), pairs, repeats),
    }
    return {
        "pairs": pairs,
        "steps": steps,
        "segments": segments,
        "repeats": repeats,
        "largest_difference_of_sums": float(difference),
        "median_ns_per_pair": ns,
        "times_faster_than": {
            name: value / ns["recipe_score_and_length"] for name, value in ns.items() if name.startswith("biopython")
        },
        "monotone_coverage_cells_per_second": steps * segments / ns["recipe_monotone_coverage"] * 1e9,
        "versions": {"biopython": Bio.__version__, "numba": numba.__version__, "python": platform.python_version()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1600)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--segments", type=int, default=21)
    parser.add_argument("--repeats", type=int, default=15)
    add_json(parser, "search-alignment")
    arguments = parser.parse_args()
    if arguments.steps + arguments.segments > len(LETTERS):
        parser.error(f"Biopython gets one letter each: at most {len(LETTERS)} steps and segments together")
    result = benchmark(arguments.pairs, arguments.steps, arguments.segments, arguments.repeats)
    print(json.dumps(result, indent=2))
    faster = result["times_faster_than"]
    rows = {
        name.replace("_", " "): {"ns a pair": ns, "times ours": faster.get(name)}
        for name, ns in result["median_ns_per_pair"].items()
    }
    write_result(
        arguments.json,
        result,
        title="Both alignment stages compared with Biopython",
        guide="search.md",
        body=[
            f"{arguments.pairs:,} pairs of {arguments.steps} steps and {arguments.segments} segments on one core; "
            "medians of "
            f"{arguments.repeats} runs. Sums differ by {result['largest_difference_of_sums']:.1g} at most.",
            table(rows),
        ],
        partial=arguments.pairs < parser.get_default("pairs"),
    )


if __name__ == "__main__":
    main()
