"""Stage 1 compared with its peers, in one run: the 25 narrations of highest A_mono, exact or as near as each comes.

    python benchmarks/search.py [--quick] [--corpus FOLDER] [--plot FILE]

One table: the certified search over 8-bit codes and the exact scan of the float16 vectors, next to faiss (exact
segments; an inverted file with re-scoring), maxsim-cpu and a NumPy loop, at three tasks: one query of 8 steps, 64
queries, and 64 that are 16 histories of 6 steps with 4 completions of 2. Recall is against A_mono in float64 of all
narrations. No peer computes A_mono over a corpus, so recall says how far its answer can stand in for ours.

All search the same vectors, made by common.py and built into a corpus by `build_corpus` (20,000 narrations,
d = 1024: about 1.3 GB, kept in --folder, else removed); the peers get them in float32. They take turns, each with
all threads, and a pause between two lets threads go to sleep. Times are medians of wall time. What the machine could
do at best is measured in the same run (search_peers.py). With --corpus, exactness, survivors and the peers' recall are
also taken on a corpus of real embeddings.

Needs the extra `bench`. The default takes about ten minutes and 10 GB of memory on two cores; --quick half a minute.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

# Before any library reads them: threads that spin while they wait would slow whoever measures next.
os.environ.update(OMP_WAIT_POLICY="PASSIVE", OMP_NUM_THREADS=str(len(os.sched_getaffinity(0))))

import faiss
import matplotlib.pyplot as plt
import numpy as np
from common import Timing, add_json, interleaved, picture, processor, write_result
from common import table as cells
from matplotlib.axes import Axes
from numpy.typing import NDArray
from search_peers import (
    CANDIDATES,
    PROBES,
    Data,
    FaissFlat,
    FaissInverted,
    Ids,
    MaxsimCpu,
    NumpyLoop,
    System,
    best,
    measure_limits,
    oracle,
    recall,
)
from synthetic import Vectors, build, questions

from recipe.corpus.index import Index, SearchResult
from recipe.corpus.layout import padded
from recipe.corpus.scan.quantise import Queries
from recipe.corpus.scan.scores import ApproximateScores, Bounds, choose, integer_scores
from recipe.corpus.store import Corpus

THREADS = len(os.sched_getaffinity(0))
K = 25
STEPS = 8
BATCH = 64
ONE, MANY, SHARED = "one", "batch64", "shared64"
UNCERTIFIED = "recipe int8, not certified"
SLOW = {"maxsim-cpu": 8}
"""Queries of a batch that are run, where a batch is no more than single queries to the system; the time is scaled."""
LISTS = 2048
RATIOS = {"one": ONE, "64": MANY}


Result = dict[str, Any]
TASKS = {"one_ms": "one query", "batch64_ms": "64 queries", "shared64_ms": "16 histories x 4"}
CERTIFIED = "recipe int8, certified"
OURS, THEIRS, LIMIT = "#0072b2", "#b9bec4", "#d55e00"


def system_rows(result: Result) -> dict[str, Result]:
    """The entries of a result that are systems: the certified search, the rest of ours, the peers, each by its time."""
    rows = [(name, row) for name, row in result.items() if isinstance(row, dict) and "recall" in row]
    return dict(sorted(rows, key=lambda pair: (pair[0] != CERTIFIED, not ours(pair[0]), pair[1]["batch64_ms"])))


def ours(name: str) -> bool:
    """True for the systems of this project."""
    return name.startswith("recipe")


def table(result: Result) -> str:
    """One line a system: times, how many times ours is faster, recall and size."""
    corpus = result["corpus"]
    titles = "".join(f"{title:>18}" for title in TASKS.values())
    lines = [
        "{narrations:,} narrations, {segments:,} segments, d = {dimension}, encoder {encoder}".format(**corpus),
        f"{'median ms':30}{titles}{'x one':>8}{'x 64':>8}{'recall':>8}{'GB':>7}",
    ]
    for name, row in system_rows(result).items():
        times = "".join(f"{row[task]:18,.1f}" for task in TASKS)
        ratios = f"{row['ratio_one']:8.1f}{row['ratio_64']:8.1f}"
        lines.append(f"{name:30}{times}{ratios}{row['recall']:8.3f}{row['bytes'] / 1e9:7.2f}")
    certificate = result["certificate"]
    lines.append(
        "certified answers equal to float64 in set and order: {same_set_and_order} of {queries}; "
        "re-scored a query: median {survivors_median:g}, most {survivors_most:g}".format(**certificate)
    )
    return "\n".join(lines)


def body(result: Result) -> list[str | dict[str, Any]]:
    """The same for the results page, a table a corpus."""
    parts: list[str | dict[str, Any]] = [
        f"Medians in ms, {STEPS} steps a query, k = {K}, {THREADS} threads. IndexFlatIP brings the {K} nearest "
        "segments of each "
        f"step, the inverted file {CANDIDATES} segments a step by {PROBES} probes, whose narrations are scored by "
        "A_mono. Of a "
        f"batch, maxsim-cpu runs {SLOW['maxsim-cpu']} queries, and its time is scaled."
    ]
    for part in filter(None, (result, result.get("real"))):
        rows = {
            name: {title: row[key] for key, title in TASKS.items()}
            | {
                "times ours, one": row["ratio_one"],
                "64": row["ratio_64"],
                "recall": row["recall"],
                "GB": row["bytes"] / 1e9,
            }
            for name, row in system_rows(part).items()
        }
        head, *_, certified = table(part).splitlines()
        parts += [f"{head}; {certified}.", cells(rows, "system")]
    shares = {name: {"": f"{value:.1%}"} for name, value in result["shares"].items()}
    machine = {name: {"": value} for name, value in result["limits"].items()}
    return [*parts, cells(machine, "limit of the machine"), cells(shares, "share of a limit that is reached")]


def limits(result: Result) -> str:
    """The machine's limits, and how near to them ours comes."""
    lines = [f"{name:56}{value:9.1f}" for name, value in result["limits"].items()]
    lines += [f"{name:56}{value:9.1%}" for name, value in result["shares"].items()]
    return "\n".join(lines)


def plot(result: Result, target: Path) -> None:
    """Bars of time on a logarithmic axis, one query and the batch, with ratio and recall; a row of them a corpus."""
    parts = [part for part in (result, result.get("real")) if part]
    figure = plt.figure(figsize=(11, 3.6 * len(parts)), layout="constrained")
    for rows, part in zip(figure.subfigures(len(parts), 1, squeeze=False)[:, 0], parts, strict=True):
        axes = rows.subplots(1, 2, sharey=True)
        for axis, task, ratio in zip(axes, ("one_ms", "batch64_ms"), ("ratio_one", "ratio_64"), strict=True):
            _bars(axis, system_rows(part), task, ratio)
            axis.set_title(TASKS[task], loc="left", fontsize=10, pad=16)
            if floor := part.get("floors", {}).get(task):
                axis.axvline(floor, color=LIMIT, linestyle="--", linewidth=1.2, zorder=0.5)
                axis.text(floor, -0.7, f"{part['floors'][task + '_is']}: {duration(floor)}", color=LIMIT, fontsize=8)
        axes[0].set_yticks(range(len(system_rows(part))), list(system_rows(part)))
        axes[0].invert_yaxis()
        words = "{narrations:,} narrations, {segments:,} segments, d = {dimension:,}, encoder {encoder}"
        rows.suptitle(words.format(**part["corpus"]), x=0.01, ha="left", fontsize=11, fontweight="bold")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=160)
    plt.close(figure)


def _bars(axis: Axes, rows: dict[str, Result], task: str, ratio: str) -> None:
    times = [row[task] for row in rows.values()]
    colours = [OURS if ours(name) else THEIRS for name in rows]
    axis.barh(range(len(rows)), times, color=colours, height=0.62)
    axis.set_xscale("log")
    axis.set_xlim(min(times) / 4, max(times) * 80)
    axis.set_xlabel("milliseconds, median")
    axis.spines[["top", "right"]].set_visible(False)
    for place, row in enumerate(rows.values()):
        slower = "" if place == 0 else f"{row[ratio]:{'.0f' if row[ratio] > 99 else '.2g'}} times, "
        label = f"{duration(row[task])}, {slower}recall {row['recall']:.3f}"
        axis.text(
            row[task] * 1.25, place, label, va="center", fontsize=8, bbox={"fc": "white", "ec": "none", "pad": 0.8}
        )


def duration(milliseconds: float) -> str:
    """In words, three digits."""
    return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else f"{milliseconds / 1e3:.3g} s"


class Certified:
    """This project: codes of 8 bits, and whatever could still reach the best 25 re-scored in float64."""

    def __init__(self, folder: Path) -> None:
        self._index = Index.open(folder)
        self.bytes = size(folder, "codes.npy", "bounds.npy", "embeddings.npy")

    def run(self, queries: Sequence[Vectors]) -> list[SearchResult]:
        return self._index.search(queries, K)

    def found(self, answers: list[SearchResult]) -> list[Ids]:
        return [np.array([hit.narration for hit in answer.hits]) for answer in answers]


class CodesOnly:
    """The certified search's first part alone: approximate scores of every narration from the codes."""

    def __init__(self, folder: Path) -> None:
        self._index = Index.open(folder)
        self._bounds = Bounds.of(self._index.shards)
        self.bytes = size(folder, "codes.npy", "bounds.npy")

    def run(self, queries: Sequence[Vectors]) -> ApproximateScores:
        return integer_scores(self._index.shards, self._bounds, Queries.quantised(queries, choose(None)))

    def found(self, answers: ApproximateScores) -> list[Ids]:
        scores = answers.sums[:, : len(answers.factors)] * answers.scales[:, None]
        return [best(column, K) for column in scores.T]


class Scan:
    """This project: A_mono of every narration from the float16 vectors, a query at a time."""

    def __init__(self, folder: Path) -> None:
        self._index = Index.open(folder)
        self.bytes = size(folder, "embeddings.npy")

    def run(self, queries: Sequence[Vectors]) -> list[Ids]:
        return [best(self._index.coverage(steps), K) for steps in queries]

    def found(self, answers: list[Ids]) -> list[Ids]:
        return answers


class Row(NamedTuple):
    """A system's line of the table; times in milliseconds."""

    times: dict[str, Timing]
    recall: float
    bytes: int


def size(folder: Path, *names: str) -> int:
    """Bytes of these files in all shards of a corpus."""
    return sum(path.stat().st_size for name in names for path in folder.glob(f"shards/*/{name}"))


def systems(folder: Path, data: Data) -> dict[str, System]:
    """Ours and theirs over one corpus, their indexes built."""
    lists = min(LISTS, len(data.vectors) // 39)
    return {
        CERTIFIED: Certified(folder),
        UNCERTIFIED: CodesOnly(folder),
        "recipe float16 scan": Scan(folder),
        f"faiss IVF{lists} + A_mono": FaissInverted(data, K, lists, THREADS),
        "faiss IndexFlatIP": FaissFlat(data, K),
        "maxsim-cpu": MaxsimCpu(data, K),
        "NumPy loop": NumpyLoop(data, K),
    }


def widened(corpus: Corpus) -> Data:
    """All vectors of a corpus in float32."""
    offsets = corpus.offsets
    vectors = np.empty((offsets[-1], corpus.dimension), np.float32)
    for n in range(len(corpus)):
        vectors[offsets[n] : offsets[n + 1]] = corpus.embeddings(n)
    return Data(vectors, offsets)


def measure_all(
    compared: dict[str, System],
    tasks: dict[str, list[Vectors]],
    truth: NDArray[np.float64],
    repeats: int,
    budget: float,
) -> dict[str, Row]:
    """Times of all systems at all tasks, taken in turns, and their recall at the batch."""
    runs = {
        (name, task): partial(system.run, queries[: SLOW.get(name)])
        for task, queries in tasks.items()
        for name, system in compared.items()
    }
    first, recalls = {}, {}
    for (name, task), run in runs.items():
        began = time.perf_counter()
        answers = run()
        first[name, task] = time.perf_counter() - began
        if task == MANY:
            found = compared[name].found(answers)
            recalls[name] = statistics.fmean(recall(ids, truth[q], K) for q, ids in enumerate(found))
    times = interleaved(runs, first, THREADS, repeats, budget)
    return {
        name: Row(
            {task: scaled(times[name, task], name, len(tasks[task])) for task in tasks}, recalls[name], system.bytes
        )
        for name, system in compared.items()
    }


def scaled(taken: Timing, name: str, queries: int) -> Timing:
    """The time of all queries from that of the first few."""
    factor = queries / min(queries, SLOW.get(name, queries))
    rounds = tuple(wall * factor for wall in taken.rounds_ms)
    return Timing(taken.median_ms * factor, taken.best_ms * factor, taken.cpu_ms * factor, rounds)


def agreement(answers: list[SearchResult], truth: NDArray[np.float64]) -> dict[str, float]:
    """Certified answers against the oracle's scores [Q, N]: how many agree in set and order, and what it took."""
    same = [
        [hit.narration for hit in answer.hits] == best(scores, K).tolist()
        for answer, scores in zip(answers, truth, strict=True)
    ]
    survivors = [answer.certificate.survivors for answer in answers]
    return {
        "queries": len(answers),
        "same_set_and_order": sum(same),
        "survivors_median": statistics.median(survivors),
        "survivors_most": max(survivors),
        "bound_median": statistics.median(answer.certificate.bound for answer in answers),
    }


def examine(folder: Path, repeats: int, budget: float) -> dict[str, Any]:
    """The whole comparison over one corpus, as it is written to --json."""
    corpus = Corpus.open(folder)
    data = widened(corpus)
    tasks = {
        MANY: questions(corpus, BATCH, STEPS),
        SHARED: questions(corpus, BATCH, STEPS, shared=6, each=4),
    }
    tasks = {ONE: tasks[MANY][:1], **tasks}
    truth = oracle(data, tasks[MANY])
    compared = systems(folder, data)
    rows = measure_all(compared, tasks, truth, repeats, budget)
    ours = rows[CERTIFIED].times
    result: dict[str, Any] = {name: row_json(row, ours) for name, row in rows.items()}
    result["certificate"] = agreement(compared[CERTIFIED].run(tasks[MANY]), truth)
    result["corpus"] = {
        "narrations": len(corpus),
        "segments": int(corpus.offsets[-1]),
        "dimension": corpus.dimension,
        "encoder": corpus.manifest["encoder"]["name"],
    }
    return result


def row_json(row: Row, ours: dict[str, Timing]) -> dict[str, Any]:
    """One system in --json; a ratio says how many times ours is faster."""
    ratios = {f"ratio_{key}": row.times[task].median_ms / ours[task].median_ms for key, task in RATIOS.items()}
    short = {f"{task}_ms": taken.median_ms for task, taken in row.times.items()}
    return {
        **short,
        **ratios,
        "recall": row.recall,
        "bytes": row.bytes,
        "timings": {task: taken._asdict() for task, taken in row.times.items()},
    }


def shares(result: dict[str, Any], machine: dict[str, float]) -> dict[str, Any]:
    """What ours takes of the machine: of the memory's speed for one query, of the int8 peak for the batch."""
    corpus, ours, scan = result["corpus"], result[CERTIFIED], result[UNCERTIFIED]
    codes = corpus["segments"] * padded(corpus["dimension"])
    memory_ms = codes / machine["read_gb_per_s"] / 1e6
    peak = machine.get("int8_dot_gop_per_s", machine["torch_int8_gop_per_s"])
    compute_ms = 2 * codes * BATCH * STEPS / peak / 1e6
    return {
        "floors": {
            "one_ms": memory_ms,
            "one_ms_is": "reading the codes",
            "batch64_ms": compute_ms,
            "batch64_ms_is": "int8 products at peak",
        },
        "shares": {
            "read bandwidth, one query": memory_ms / ours["one_ms"],
            "int8 peak, 64 queries": compute_ms / ours["batch64_ms"],
            "certificate and re-scoring over the scan, one query": overhead(ours, scan, ONE),
            "certificate and re-scoring over the scan, 64 queries": overhead(ours, scan, MANY),
        },
    }


def overhead(ours: dict[str, Any], scan: dict[str, Any], task: str) -> float:
    """How much longer the certified search takes than its scan: the median over rounds, each with both in a row."""
    rounds = zip(*(row["timings"][task]["rounds_ms"] for row in (ours, scan)), strict=False)
    return float(statistics.median(whole / part for whole, part in rounds)) - 1


def main() -> None:
    """Print the tables and limits; write them where --json and --plot say."""
    options = arguments()
    faiss.omp_set_num_threads(THREADS)
    machine = measure_limits(THREADS, *((0.2, 1024) if options.quick else (1.5, 4096)))
    with tempfile.TemporaryDirectory() as temporary:
        folder = build(options.folder or Path(temporary) / "corpus", options.narrations, options.dimension)
        result = examine(folder, options.repeats, options.budget)
    result |= {"limits": machine, "setting": setting(options)} | shares(result, machine)
    print(table(result), limits(result), sep="\n\n")
    if options.corpus:
        result["real"] = examine(options.corpus, options.repeats, options.budget)
        print("", table(result["real"]), sep="\n")
    if options.plot:
        plot(result, options.plot)
    write_result(
        options.json,
        result,
        title="Certified search compared with its peers",
        guide="search.md",
        body=[*body(result), *picture(options.plot, "Time of one query and of 64, by system")],
        partial=options.quick,
    )


def arguments() -> argparse.Namespace:
    """The options, with those of --quick."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="1,000 narrations, d = 128: checks the script, not the speed"
    )
    parser.add_argument("--narrations", type=int, default=20_000)
    parser.add_argument("--dimension", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=15, help="runs of each system at each task")
    parser.add_argument("--budget", type=float, default=10, help="seconds for the runs of one system at one task")
    parser.add_argument("--folder", type=Path, help="keep the corpus here, and use it again")
    parser.add_argument("--corpus", type=Path, help="also compare on this corpus, made by `recipe corpus build`")
    add_json(parser, "search")
    parser.add_argument("--plot", type=Path, help="also draw it into this PNG file")
    options = parser.parse_args()
    if options.quick:
        options.narrations, options.dimension, options.repeats, options.budget = 1_000, 128, 3, 0.5
    return options


def setting(options: argparse.Namespace) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "processor": processor(),
        "threads": THREADS,
        "load_average": os.getloadavg()[0],
        "repeats": options.repeats,
        "k": K,
        "steps": STEPS,
        "queries_timed_of_a_batch": SLOW,
        "versions": {name: version(name) for name in ("numpy", "numba", "torch", "faiss-cpu", "maxsim-cpu")}
        | {"python": platform.python_version()},
    }


if __name__ == "__main__":
    main()
