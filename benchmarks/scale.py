"""Stage 1 at scale: time and memory grow linearly with the corpus, and a corpus larger than memory answers the same.

    python benchmarks/scale.py [--quick] [--folder FOLDER] [--plot FILE]

Three synthetic corpora (common.py) go through the project's own build: 400,000 narrations with d = 256, of which
20,000, 100,000 and all are searched; 1.2 million narrations, 25 million segments, with d = 64; 20,000 with d = 1,024.
Every build and every search is a process of its own, so that its peak memory is its own. Shown for each: seconds to
build and to open; one query of 8 steps and 64 of them, the best wall time of several runs; the peak of resident
memory, which counts mapped files as far as they are in memory, and of memory of the process's own, which does not.

The first corpus is then searched again by a process that may use a third of its size as memory (RLIMIT_AS, which counts
mapped files too, so that they are streamed), after its files were dropped from the page cache: the answers must be
those of before.

From all sizes together follow the nanoseconds for a segment and for each of its dimensions, and from these the time
for 25 million segments of 1,024 dimensions on this processor, next to what one H200 would need at its limits (4.3 TB/s,
1,580 TOP/s; calculated, not measured).

The 1.2 million then grow: 100 narrations are added, 100 are removed, and 0.9 % of all: below the share from which on
shards are written anew, so that searches pass around them. Shown are the seconds of each change, and a query before and
after.

The default takes about twenty minutes and 14 GB of disk on two cores; --quick half a minute.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest.mock import patch

os.environ["OMP_NUM_THREADS"] = "1"

import matplotlib.pyplot as plt
import numpy as np
from common import add_json, once, picture, processor, table, write_result
from matplotlib.axes import Axes
from scipy.optimize import nnls
from synthetic import SyntheticEncoder, build, lengths, questions

from recipe.artifacts import read_json, write_json
from recipe.corpus import change
from recipe.corpus.index import Index
from recipe.corpus.layout import padded
from recipe.corpus.scan.shards import StreamedArray
from recipe.corpus.store import Corpus
from recipe.types import Narration, Segment

K, STEPS, BATCH = 25, 8, 64
CHANGED = 100
"""Narrations of a small change."""
FULL = {
    "wide": (20_000, 100_000, 400_000),
    "wide_dimension": 256,
    "many": 1_200_000,
    "many_dimension": 64,
    "deep": 20_000,
    "deep_dimension": 1024,
    "shard": 4096,
    "limit": None,  # a third of the corpus
    "streamed": None,  # as the index decides
}
QUICK = {
    "wide": (500, 1_000, 2_000),
    "wide_dimension": 128,
    "many": 4_000,
    "many_dimension": 64,
    "deep": 500,
    "deep_dimension": 512,
    "shard": 250,
    "limit": 3 << 30,  # what Python itself takes would not fit into less than this corpus
    "streamed": True,
}
GOAL_SEGMENTS, GOAL_DIMENSION = 25_000_000, 1024
H200_BYTES_PER_S, H200_INT8_PER_S = 4.3e12, 1.58e15

Result = dict[str, Any]
TASKS = {"one_ms": ("one query", "one_query"), "batch64_ms": ("64 queries", "batch64")}
COLOURS = ("#0072b2", "#d55e00")


def report(result: Result) -> str:
    """All figures, a line each."""
    lines = [
        f"{'narrations':>12}{'segments':>12}{'d':>6}{'codes GB':>10}{'open s':>8}{'1 query ms':>12}{'64 ms':>10}"
        f"{'survivors':>11}{'RSS GB':>8}{'own GB':>8}"
    ]
    lines += [_line(row) for row in result["rows"]]
    for name, made in result["builds"].items():
        lines.append(f"build of the {name} corpus: {made['seconds']:.0f} s, peak RSS {made['peak_rss_gb']:.2f} GB")
    return "\n".join(
        [*lines, _limited(result["limited"]), _growth(result["growth"]), *(_cost(result, task) for task in TASKS)]
    )


def body(result: Result, repeats: int) -> list[str | dict[str, Any]]:
    """The same for the results page."""
    columns = {
        "segments": "segments", "dimension": "d", "codes_gb": "codes, GB", "open_s": "opened in s", "one_ms": "one "
        "query, ms",
        "batch64_ms": "64 queries, ms", "survivors": "re-scored a query", "peak_own_gb": "memory of its own, GB",
        "peak_rss_gb": "with mapped files, GB",
    }  # fmt: skip
    rows = {f"{row['narrations']:,}": {title: row[key] for key, title in columns.items()} for row in result["rows"]}
    made = {
        name: {"seconds": one["seconds"], "peak RSS, GB": one["peak_rss_gb"]} for name, one in result["builds"].items()
    }
    return [
        "Synthetic corpora, made by the project's own build; every build and every search runs in its own process. "
        "Times are the "
        f"best of {repeats}.",
        table(rows, "narrations"),
        table(made, "build"),
        _limited(result["limited"]) + ".",
        _growth(result["growth"]) + ".",
        *(_cost(result, task) + "." for task in TASKS),
    ]


def _limited(row: Result) -> str:
    whole = row["codes_gb"] + row["originals_gb"]
    return (
        f"within {row['limit_gb']:.2f} GB of memory, {whole / row['limit_gb']:.2f} times as much to search, not in the "
        f"page cache: {'the same answers' if row['same_answers'] else 'OTHER ANSWERS'} "
        f"({'streamed' if row['streamed'] else 'mapped'}); first query {row['first_ms']:,.0f} ms, "
        f"then {row['one_ms']:,.0f} ms; 64 queries {row['batch64_ms']:,.0f} ms; peak RSS {row['peak_rss_gb']:.2f} GB"
    )


def _growth(row: Result) -> str:
    return (
        f"{row['narrations']:,} narrations: {CHANGED} more are added in {row['add_s']:.1f} s, {CHANGED} removed in "
        f"{row['remove_s']:.1f} s, and 0.9 % in {row['remove_many_s']:.1f} s; one query takes "
        f"{row['query_ms_before']:.1f} ms before, {row['query_ms']:.1f} ms with {CHANGED} removed and "
        f"{row['query_ms_many']:.1f} ms with 0.9 % removed ({row['parts']:,} parts); compacting takes "
        f"{row['compact_s']:.1f} s"
    )


def _cost(result: Result, task: str) -> str:
    title, key = TASKS[task]
    found = result[key]
    return (
        f"{title}: {found['ms_a_search']:.1f} ms, {found['ns_per_segment']:.2f} ns a segment and "
        f"{found['ns_per_segment_and_dimension']:.4f} ns for each of its dimensions (within "
        f"{found['largest_deviation']:.0%}); 25 million segments of 1,024 dimensions: "
        f"{found['goal_ms'] / 1e3:.2f} s here, {result['h200_at_its_limits'][task]:.1f} ms on one H200 at its limits"
    )


def _line(row: Result) -> str:
    return (
        f"{row['narrations']:12,}{row['segments']:12,}{row['dimension']:6}{row['codes_gb']:10.3f}{row['open_s']:8.3f}"
        f"{row['one_ms']:12.1f}{row['batch64_ms']:10.1f}{row['survivors']:11g}{row['peak_rss_gb']:8.2f}{row['peak_own_gb']:8.2f}"
    )


def plot(result: Result, target: Path) -> None:
    """Time of one query and of the batch over the number of segments, and memory next to it."""
    figure, (times, memory) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for marker, rows in zip("os^", _by_dimension(result["rows"]), strict=False):
        size = [row["segments"] / 1e6 for row in rows]
        dimension = f"d = {rows[0]['dimension']:,}"
        for colour, (task, (title, key)) in zip(COLOURS, TASKS.items(), strict=True):
            times.plot(size, [row[task] for row in rows], marker, color=colour, label=f"{title}, {dimension}")
            _fitted(times, result[key], rows[0]["dimension"], colour)
        for colour, kind, words in (
            ("#555555", "peak_rss_gb", "with mapped files"),
            ("#009e73", "peak_own_gb", "its own"),
        ):
            line = "-" if len(rows) > 1 else ""
            memory.plot(size, [row[kind] for row in rows], line + marker, color=colour, label=f"{words}, {dimension}")
    times.set(ylabel="milliseconds, best run")
    times.set_title("Time is linear in segments and dimensions (lines: the fit)", loc="left", fontsize=11)
    memory.set(ylabel="GB at the peak", ylim=(0.05, 20))
    memory.set_title("Memory: vectors are mapped, not loaded", loc="left", fontsize=11)
    for axis in (times, memory):
        axis.set(xscale="log", yscale="log", xlabel="million segments")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_major_formatter("{x:,g}")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8, ncols=2)
    times.set_ylim(top=times.get_ylim()[1] * 10)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=160)
    plt.close(figure)


def _by_dimension(rows: list[Result]) -> list[list[Result]]:
    return [
        [row for row in rows if row["dimension"] == dimension]
        for dimension in sorted({row["dimension"] for row in rows})
    ]


def _fitted(axis: Axes, found: Result, dimension: int, colour: str) -> None:
    """The fitted cost of one dimension as a line."""
    ends = [0.2, 30.0]
    cost = found["ns_per_segment"] + dimension * found["ns_per_segment_and_dimension"]
    axis.plot(ends, [found["ms_a_search"] + cost * million for million in ends], color=colour, linewidth=0.8, alpha=0.6)


def build_worker(folder: str, count: int, dimension: int, shard: int) -> Result:
    """Build a corpus and say what it took."""
    began = time.perf_counter()
    build(Path(folder), count, dimension, shard)
    return {"seconds": time.perf_counter() - began, "peak_rss_gb": peak_rss()}


def search_worker(
    folder: str, shards: int, asked: str, repeats: int, limit: int | None, streamed: bool | None
) -> Result:
    """Open the first shards of a corpus and search them with the queries in a file, within `limit` bytes of memory."""
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    began = time.perf_counter()
    index = Index.open(Path(folder), range(shards), streamed=streamed)
    opened = time.perf_counter() - began
    queries = list(np.load(asked))
    with OwnMemory() as own:
        first = best_ms(lambda: index.search(queries[:1], K), 1)
        found = index.search(queries, K)
    return {
        "open_s": opened,
        "streamed": isinstance(index.shards[0].codes, StreamedArray),
        "first_ms": first,
        "one_ms": best_ms(lambda: index.search(queries[:1], K), repeats),
        "batch64_ms": best_ms(lambda: index.search(queries, K), repeats),
        "survivors": statistics.median(answer.certificate.survivors for answer in found),
        "peak_rss_gb": peak_rss(),
        "peak_own_gb": own.peak / 1e9,
        "hits": [[[hit.narration, hit.score] for hit in answer.hits] for answer in found],
    }


def best_ms(task: Callable[[], object], repeats: int) -> float:
    """Milliseconds of the fastest of several runs: the one that other work on the machine disturbed least."""
    return min(once(task, 1)[0] for _ in range(repeats)) * 1e3


def peak_rss() -> float:
    """Highest resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


class OwnMemory:
    """The highest memory of the process's own, without mapped files, while the context lasts: looked at every 5 ms."""

    def __enter__(self) -> "OwnMemory":
        self.peak, self._done = 0, Event()
        self._watcher = Thread(target=self._watch)
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            lines = Path("/proc/self/status").read_text().splitlines()
            own = next(line.split()[1] for line in lines if line.startswith("RssAnon"))
            self.peak = max(self.peak, int(own) * 1024)


def grow_worker(folder: str, count: int, dimension: int, repeats: int) -> Result:
    """Add narrations to a corpus, remove some and then many, each timed, and search it before and after."""
    # No hub knows it.
    patch.object(change, "open_recorded_encoder", return_value=SyntheticEncoder(dimension)).start()
    corpus = Path(folder)
    queries = list(questions(Corpus.open(corpus), 1, STEPS))
    began_with = Index.open(corpus)
    before = best_ms(lambda: began_with.search(queries, K), repeats)
    new = [
        Narration(f"video-{n}", tuple(Segment(f"{n} {k} {length}") for k in range(length)))
        for n, length in enumerate(lengths(count + CHANGED).tolist())
        if n >= count
    ]
    some, many = (np.linspace(1, count - 2, size).astype(int) for size in (CHANGED, count // 110))
    done = {
        "add_s": once(lambda: change.add_narrations(corpus, new), 1)[0],
        "remove_s": once(lambda: change.remove_narrations(corpus, [f"video-{n}" for n in some]), 1)[0],
    }
    index = Index.open(corpus)
    done |= {"query_ms_before": before, "query_ms": best_ms(lambda: index.search(queries, K), repeats)}
    left = [f"video-{n}" for n in np.setdiff1d(many, some)]
    done["remove_many_s"] = once(lambda: change.remove_narrations(corpus, left), 1)[0]
    index = Index.open(corpus)
    done |= {"parts": len(index.shards), "query_ms_many": best_ms(lambda: index.search(queries, K), repeats)}
    done["compact_s"] = once(lambda: change.compact_corpus(corpus), 1)[0]
    return {"narrations": count, "dimension": dimension, **done, "peak_rss_gb": peak_rss()}


WORKERS: dict[str, Callable[..., Result]] = {"build": build_worker, "search": search_worker, "grow": grow_worker}


def grown(folder: Path, count: int, dimension: int, repeats: int) -> Result:
    """What changing a corpus took. The changed one is a copy whose files are links: no change writes into them."""
    copy = folder.with_name(f"{folder.name}-grown")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy, copy_function=os.link)
    found = alone("grow", str(copy), count, dimension, repeats)
    shutil.rmtree(copy)
    return found


def built(folder: Path, count: int, dimension: int, shard: int) -> Result:
    """What building a corpus took, saved next to it so that a corpus that was kept is not built again."""
    note = folder.with_suffix(".json")
    if not note.is_file():
        write_json(note, alone("build", str(folder), count, dimension, shard))
    found: Result = read_json(note)
    return found


def alone(worker: str, *arguments: object) -> Result:
    """What a worker returns, run in a process of its own."""
    command = [sys.executable, __file__, "--worker", json.dumps([worker, *arguments])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: Result = json.loads(done.stdout)
    return result


def dropped(folder: Path) -> None:
    """Take a corpus's files out of the page cache."""
    for path in folder.glob("shards/*/*.npy"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def asked_of(folder: Path, target: Path) -> Path:
    """A file with the queries to a corpus."""
    np.save(target, np.stack(questions(Corpus.open(folder), BATCH, STEPS)))
    return target


def searched(
    folder: Path, narrations: int, asked: Path, repeats: int, limit: int | None = None, streamed: bool | None = None
) -> Result:
    """One line of the report: the first `narrations` of a corpus, to whole shards, searched."""
    manifest = Corpus.open(folder).manifest
    shards = manifest["shards"][: -(-narrations // manifest["shard_size"])]
    segments, dimension = sum(shard["segments"] for shard in shards), manifest["encoder"]["dimension"]
    return {
        "narrations": sum(shard["narrations"] for shard in shards),
        "segments": segments,
        "dimension": dimension,
        "codes_gb": segments * padded(dimension) / 1e9,
        "originals_gb": segments * dimension * 2 / 1e9,
        "limit_gb": limit and limit / 1e9,
        **alone("search", str(folder), len(shards), str(asked), repeats, limit, streamed),
    }


def fit(rows: list[Result], task: str) -> Result:
    """The law c + S (a + b D), its terms not negative, of the least relative error."""
    S = np.array([row["segments"] for row in rows], dtype=float)
    D = np.array([padded(row["dimension"]) for row in rows], dtype=float)
    t = np.array([row[task] for row in rows]) * 1e6
    terms = np.stack([np.ones(len(t)), S, S * D], axis=1) / t[:, None]
    (c, a, b), _ = nnls(terms, np.ones(len(t)))
    return {
        "ms_a_search": c / 1e6,
        "ns_per_segment": a,
        "ns_per_segment_and_dimension": b,
        "largest_deviation": float(np.abs(terms @ (c, a, b) - 1).max()),
        "goal_ms": (c + GOAL_SEGMENTS * (a + b * GOAL_DIMENSION)) / 1e6,
    }


def h200() -> Result:
    """The goal on one H200 at its limits, in ms: reading the codes once, or multiplying them with all steps."""
    codes = GOAL_SEGMENTS * GOAL_DIMENSION
    products = 2 * codes / H200_INT8_PER_S * 1e3
    read = codes / H200_BYTES_PER_S * 1e3
    return {"one_ms": max(read, STEPS * products), "batch64_ms": max(read, BATCH * STEPS * products)}


def measure(folder: Path, plan: Result, repeats: int) -> Result:
    """Everything, as it is written to --json."""
    rows, builds, asked = [], {}, {}
    for name in ("wide", "many", "deep"):
        sizes = plan[name] if isinstance(plan[name], tuple) else (plan[name],)
        builds[name] = built(folder / name, sizes[-1], plan[f"{name}_dimension"], plan["shard"])
        asked[name] = asked_of(folder / name, folder / f"{name}.npy")
        rows += [searched(folder / name, size, asked[name], repeats) for size in sizes]
    whole = rows[len(plan["wide"]) - 1]
    limit = plan["limit"] or int((whole["codes_gb"] + whole["originals_gb"]) * 1e9 / 3)
    dropped(folder / "wide")
    limited = searched(folder / "wide", plan["wide"][-1], asked["wide"], 1, limit, plan["streamed"])
    same = limited.pop("hits") == whole["hits"]
    for row in rows:
        del row["hits"]
    return {
        "rows": rows,
        "builds": builds,
        "limited": limited | {"same_answers": same},
        "growth": grown(folder / "many", plan["many"], plan["many_dimension"], repeats),
        "one_query": fit(rows, "one_ms"),
        "batch64": fit(rows, "batch64_ms"),
        "h200_at_its_limits": h200(),
        "setting": {
            "processor": processor(),
            "threads": len(os.sched_getaffinity(0)),
            "load_average": os.getloadavg()[0],
            "repeats": repeats,
            "k": K,
            "steps": STEPS,
        },
    }


def main() -> None:
    """Print the report; write it where --json and --plot say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="thousands of narrations: checks the script, not the speed"
    )
    parser.add_argument("--repeats", type=int, default=7, help="runs of every search")
    parser.add_argument("--folder", type=Path, help="keep the corpora here, and go on with them")
    add_json(parser, "search-scale")
    parser.add_argument("--plot", type=Path, help="also draw it into this PNG file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker, *arguments = json.loads(options.worker)
        json.dump(WORKERS[worker](*arguments), sys.stdout)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = measure(folder, QUICK if options.quick else FULL, options.repeats)
    print(report(result))
    if options.plot:
        plot(result, options.plot)
    write_result(
        options.json,
        result,
        title="Search from 20,000 to 1.2 million narrations",
        guide="search.md",
        body=[*body(result, options.repeats), *picture(options.plot, "Time and memory of the search over the corpus")],
        partial=options.quick,
    )


if __name__ == "__main__":
    main()
