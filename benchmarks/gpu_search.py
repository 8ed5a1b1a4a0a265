"""Stage 1 on one GPU at HowToCaption scale: 25 million segments of 1,024 numbers, against what the device could do.

    PYTHONPATH=src python benchmarks/gpu_search.py [--quick] [--tune]

Codes of 8 bits (25.6 GB) and vectors of 16 bits (51.2 GB) are made on the device in turn. For each of five batches of
queries it gives the scan's time (CUDA events, median), and that of the scan with the ranking that leaves a few
thousand pairs to re-score: the read bandwidth this amounts to, and the rate of the multiplications asked for
(unique steps, padding not counted), next to the bandwidth of a sum and the rate of a large matrix product of the same
kind, measured in the same run. Sums of a slice are compared with the recursion in NumPy: integers exactly, floats
within their bound. Needs torch, triton and numpy only.

Without a GPU, TRITON_INTERPRET=1 and --quick check that the script runs; what they take says nothing.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
from common import add_json, table, write_result
from numpy.typing import NDArray
from triton.runtime.errors import OutOfResources

from recipe.corpus.gpu.scan import (
    ErrorBounds,
    Estimates,
    Launch,
    Segments,
    group,
    plan,
    scan,
    segments,
)

K = 25
MEAN, SHORTEST, LONGEST = 21, 2, 120
"""Segments of a narration."""
CHECKED = 40
"""Narrations that are compared with NumPy."""
KINDS = {"int8": torch.int8, "float16": torch.float16, "bfloat16": torch.bfloat16}
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


class Batch(NamedTuple):
    """Queries as rows of unique steps, int32 [Q, M]."""

    name: str
    queries: NDArray[np.int32]

    @property
    def columns(self) -> int:
        """Unique steps."""
        return len(np.unique(self.queries))


class Time(NamedTuple):
    """Milliseconds."""

    median: float
    best: float


def batches() -> list[Batch]:
    """Queries of 8 steps without anything in common, 64 that share 6, and 16 times 4 that do."""
    return [
        Batch("1 x 8", completions(1, 1, 0, 8)),
        Batch("16 x 8", completions(16, 1, 0, 8)),
        Batch("64 x 8", completions(64, 1, 0, 8)),
        Batch("1 x 64 completions, 6 + 2", completions(1, 64, 6, 2)),
        Batch("16 x 4 completions, 6 + 2", completions(16, 4, 6, 2)),
    ]


def completions(prompts: int, each: int, history: int, tail: int) -> NDArray[np.int32]:
    """`each` queries a prompt, which share its `history` steps and end in `tail` of their own."""
    histories = np.arange(prompts * history).reshape(prompts, 1, history)
    tails = np.arange(prompts * each * tail).reshape(prompts, each, tail) + histories.size
    shared = np.broadcast_to(histories, (prompts, each, history))
    return np.concatenate([shared, tails], axis=2).reshape(prompts * each, -1).astype(np.int32)


def narrations(rows: int, seed: int = 0) -> NDArray[np.int64]:
    """First rows of narrations with log-normal lengths: int64 [N + 1], about `rows` at the end."""
    generator = np.random.default_rng(seed)
    sigma = 0.6
    drawn = generator.lognormal(np.log(MEAN) - sigma**2 / 2, sigma, max(1, rows // MEAN))
    lengths = np.clip(np.rint(drawn), SHORTEST, LONGEST).astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def fill(rows: int, d: int, kind: torch.dtype, device: str) -> torch.Tensor:
    """Vectors [rows, d] as rotated unit vectors are: normal, and for codes the largest near 127."""
    vectors = torch.empty((rows, d), dtype=kind, device=device)
    for part in vectors.split(1 << 18):
        normal = torch.randn(part.shape, device=device)
        part.copy_((normal * 32).round_().clamp_(-127, 127) if kind == torch.int8 else normal / d**0.5)
    return vectors


def rows_used(offsets: NDArray[np.int64], rows: int) -> float:
    """The share of the rows multiplied that are segments, the rest being of narrations shorter than their group's."""
    members = group(offsets, rows)
    lengths = np.where(members >= 0, np.diff(offsets)[members], 0)
    return float(lengths.sum() / (rows * lengths.max(axis=1).sum()))


def timed(work: Callable[[], object], repeats: int) -> Time:
    """Median and best of several runs, each between two CUDA events; the first, which compiles, does not count."""
    work()
    times = []
    for _ in range(repeats):
        if INTERPRETED:
            began = time.perf_counter()
            work()
            times.append((time.perf_counter() - began) * 1e3)
            continue
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return Time(statistics.median(times), min(times))


def bandwidth(vectors: torch.Tensor, repeats: int) -> float:
    """GB/s of a sum over the vectors."""
    # Of 64 bits: a sum of narrower integers first copies all of them to that width.
    whole = vectors.view(torch.int64)
    return float(vectors.numel() * vectors.element_size() / timed(whole.sum, repeats).median / 1e6)


def product(kind: torch.dtype, device: str, repeats: int, size: int) -> float:
    """TFLOP/s or TOP/s of a square matrix product."""
    a, b = (fill(size, size, kind, device) for _ in range(2))
    work = (lambda: torch._int_mm(a, b.t())) if kind == torch.int8 else (lambda: torch.mm(a, b.t()))
    return 2 * size**3 / timed(work, repeats).median / 1e9


def rank(sums: torch.Tensor, known: ErrorBounds, asked: ErrorBounds) -> tuple[torch.Tensor, torch.Tensor]:
    """The best, then all that reach the lowest of them, as a search does between its two re-scorings."""
    these = Estimates.of(sums, known, asked)
    return these.reaching(these.best(K)[0][-1])


def bounds(here: Segments, queries: int) -> tuple[ErrorBounds, ErrorBounds]:
    """Bounds of the size that codes have, for the ranking."""
    device = here.vectors.device
    ones = torch.ones((here.narrations, 1), dtype=torch.float64, device=device)
    one = torch.ones((1, queries), dtype=torch.float64, device=device)
    scale = 1 / (32**2 * here.vectors.shape[1]) if here.vectors.dtype == torch.int8 else 1.0
    return ErrorBounds(ones * scale, ones * 1e-3, ones), ErrorBounds(one / 8, one * 1e-3, one)


def check(here: Segments, steps: torch.Tensor, batch: Batch, sums: torch.Tensor) -> float:
    """The largest error of the first and last narrations' sums. Raises SystemExit where one is wrong."""
    offsets = here.offsets.cpu().numpy()
    some = sorted({*range(min(CHECKED, here.narrations)), *range(max(0, here.narrations - CHECKED), here.narrations)})
    exact = here.vectors.dtype == torch.int8
    wide = np.int64 if exact else np.float64
    q = steps.to(torch.float64).cpu().numpy().astype(wide)
    worst = 0.0
    for n in some:
        x = here.vectors[offsets[n] : offsets[n + 1]].to(torch.float64).cpu().numpy().astype(wide)
        W = (q @ x.T)[batch.queries]
        D = np.zeros_like(W[:, 0])
        for i in range(W.shape[1]):
            D = W[:, i] + np.maximum.accumulate(D, axis=1)
        worst = max(worst, float(np.abs(sums[n].double().cpu().numpy() - D.max(axis=1)).max()))
    d, M = here.vectors.shape[1], batch.queries.shape[1]
    if worst > (0 if exact else (d + M) * 2.0**-23 * 2 * M):
        raise SystemExit(f"{batch.name}: sums differ from NumPy's by {worst}.")
    return worst


def measure(here: Segments, batch: Batch, repeats: int) -> dict[str, Any]:
    """One line of the table, after its check."""
    vectors = here.vectors
    steps = fill(batch.columns, vectors.shape[1], vectors.dtype, str(vectors.device))
    known, asked = bounds(here, len(batch.queries))
    sums = scan(here, steps, batch.queries)
    error = check(here, steps, batch, sums)
    alone = timed(lambda: scan(here, steps, batch.queries), repeats)
    ranked = timed(lambda: rank(scan(here, steps, batch.queries), known, asked), repeats)
    return {
        "batch": batch.name,
        "unique steps": batch.columns,
        "columns": plan(batch.queries, here.launch.columns).columns,
        "scan ms": alone.median,
        "scan best ms": alone.best,
        "ranked ms": ranked.median,
        "read GB/s": vectors.numel() * vectors.element_size() / alone.median / 1e6,
        "T(FL)OP/s": 2 * vectors.numel() * batch.columns / alone.median / 1e9,
        "largest error": error,
    }


def launches() -> Iterator[Launch]:
    """What --tune compares: the default first."""
    yield Launch()
    for columns, paired in ((64, 0), (128, 0), (128, 128), (144, 0), (144, 128)):
        for depth, stages in ((128, 3), (128, 4), (256, 2), (256, 3)):
            yield Launch(columns=columns, paired=paired, depth=depth, stages=stages)


def tune(here: Segments, repeats: int) -> None:
    """Print the time of each launch for each batch; those that do not fit the device are said so."""
    for batch in batches():
        steps = fill(batch.columns, here.vectors.shape[1], here.vectors.dtype, str(here.vectors.device))
        for launch in launches():
            tried = here._replace(launch=launch)
            try:
                taken = timed(partial(scan, tried, steps, batch.queries), repeats)
            except OutOfResources as error:
                print(f"{batch.name:28}{launch} {error}")
            else:
                print(f"{batch.name:28}{launch} {taken.median:9.3f} ms")


def report(kind: str, found: dict[str, Any]) -> None:
    """The table of one kind of vectors."""
    limit, peak = found["read limit GB/s"], found["product T(FL)OP/s"]
    print(f"\n{kind}: {found['GB']:.1f} GB, {found['rows used']:.0%} of the rows that are multiplied are segments")
    print(f"a sum reads {limit:,.0f} GB/s, a matrix product makes {peak:,.0f} T(FL)OP/s")
    heads = ("batch", "steps", "columns", "scan ms", "ranked ms", "of bandwidth", "of product")
    print(f"{heads[0]:28}" + "".join(f"{head:>14}" for head in heads[1:]))
    for row in found["rows"]:
        print(
            f"{row['batch']:28}{row['unique steps']:14}{row['columns']:14}"
            f"{row['scan ms']:14.2f}{row['ranked ms']:14.2f}"
            f"{row['read GB/s'] / limit:14.0%}{row['T(FL)OP/s'] / peak:14.0%}"
        )


def body(kind: str, found: dict[str, Any]) -> list[str | dict[str, Any]]:
    """The same for the results page."""
    limit, peak = found["read limit GB/s"], found["product T(FL)OP/s"]
    columns = ("unique steps", "columns", "scan ms", "ranked ms", "largest error")
    rows = {
        row["batch"]: {name: row[name] for name in columns}
        | {"of bandwidth": f"{row['read GB/s'] / limit:.0%}", "of product": f"{row['T(FL)OP/s'] / peak:.0%}"}
        for row in found["rows"]
    }
    return [
        f"{kind}: {found['segments']:,} segments, {found['GB']:.1f} GB, {found['rows used']:.0%} of the rows that "
        "are multiplied "
        f"are segments. A sum reads {limit:,.0f} GB/s, a matrix product makes {peak:,.0f} T(FL)OP/s.",
        table(rows, "batch"),
    ]


def measure_kind(kind: torch.dtype, options: argparse.Namespace) -> dict[str, Any]:
    """The tables of one kind of vectors, and the device's limits."""
    device = "cpu" if INTERPRETED else "cuda"
    offsets = narrations(options.segments)
    peak = product(kind, device, options.repeats, 64 if INTERPRETED else 8192)
    here = segments(fill(int(offsets[-1]), options.dimension, kind, device), offsets)
    if options.tune:
        tune(here, options.repeats)
    return {
        "GB": here.vectors.numel() * here.vectors.element_size() / 1e9,
        "segments": int(offsets[-1]),
        "narrations": here.narrations,
        "rows used": rows_used(offsets, here.launch.rows),
        "product T(FL)OP/s": peak,
        "read limit GB/s": bandwidth(here.vectors, options.repeats),
        "rows": [measure(here, batch, options.repeats) for batch in batches()],
    }


def main() -> None:
    """Print the tables; write them where --json says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=25_000_000)
    parser.add_argument("--dimension", type=int, default=1024, help="a multiple of 64")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["int8", "float16"])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--tune", action="store_true", help="also compare shapes of the launch")
    parser.add_argument("--quick", action="store_true", help="a small corpus: checks the script, not the speed")
    add_json(parser, "search-gpu")
    options = parser.parse_args()
    if not INTERPRETED and not torch.cuda.is_available():
        raise SystemExit("no CUDA device here; TRITON_INTERPRET=1 with --quick checks that the script runs.")
    if options.quick:
        options.segments, options.dimension, options.repeats = (600, 64, 1) if INTERPRETED else (2_000_000, 1024, 5)
    name = "Triton's interpreter" if INTERPRETED else torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}, {options.segments:,} segments, d = {options.dimension}, K = {K}")
    found = {}
    for kind in options.kinds:
        found[kind] = measure_kind(KINDS[kind], options)
        report(kind, found[kind])
    setting = {key: value for key, value in vars(options).items() if key != "json"}
    software = {"torch": torch.__version__, "triton": triton.__version__}
    write_result(
        options.json,
        {"device": name, "setting": setting, "software": software, "kinds": found},
        title="Search on a GPU",
        guide="search.md",
        body=[part for kind in options.kinds for part in body(kind, found[kind])],
        partial=options.quick or INTERPRETED,
        device=name,
    )


if __name__ == "__main__":
    main()
