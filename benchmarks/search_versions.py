"""The certified search of two versions of the code in turns: what a change of its kernels is worth, end to end.

    git worktree add OLD COMMIT
    python benchmarks/search_versions.py --before OLD [--corpus FOLDER] [--quick]

Each version is a process of its own with one thread, and both answer the same tasks of search.py in turns: one query of
8 steps, 64 queries, and 16 histories of 6 steps with 4 completions of 2. Times are of the processor, so that others
on the machine disturb them less; a ratio is the median over rounds, each with both versions in a row. The hits must be
equal to the last bit. The corpora are made by synthetic.py: 12,000 narrations with d = 384, and 3,000 with d = 1024,
many of which survive. With --corpus there is one more, of real embeddings.

A second table shows what coarser codes of steps cost: bounds and survivors with codes of 8 bits, with those of 7 bits,
and with those that this processor's instructions take. The default takes about three minutes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from common import ROOT, add_json, table, write_result
from synthetic import Vectors, build, questions

from recipe.corpus.index import Index
from recipe.corpus.scan import quantise
from recipe.corpus.scan.certificate import SearchResult
from recipe.corpus.scan.scores import choose
from recipe.corpus.store import Corpus
from recipe.errors import InputError

K = 25
STEPS = 8
ROUNDS = {"one query": 40, "64 queries": 9, "16 histories x 4": 9}
SYNTHETIC = {384: 12_000, 1024: 3_000}
"""Narrations by their dimension."""


def tasks(folder: Path) -> dict[str, list[Vectors]]:
    """The queries of each task, the same in every process."""
    corpus = Corpus.open(folder)
    many = questions(corpus, 64, STEPS)
    return dict(zip(ROUNDS, (many[:1], many, questions(corpus, 64, STEPS, shared=6, each=4)), strict=True))


def answer(folder: Path) -> None:
    """Search the corpus for each task that standard input names; a line of JSON is the answer."""
    index, queries = Index.open(folder, threads=1), tasks(folder)
    for line in sys.stdin:
        began = time.process_time()
        results = index.search(queries[line.strip()], K)
        seconds = time.process_time() - began
        hits = [[(hit.narration, hit.score.hex()) for hit in result.hits] for result in results]
        print(json.dumps({"ms": 1e3 * seconds, "hits": hits, **survivors(results)}), flush=True)


def survivors(results: Sequence[SearchResult]) -> dict[str, float]:
    """What the certificates of a task's queries say."""
    counts = [result.certificate.survivors for result in results]
    bound = statistics.median(result.certificate.bound for result in results)
    return {"bound": bound, "survivors": statistics.median(counts), "most survivors": max(counts)}


def compare(folder: Path, before: Path, shortened: bool) -> dict[str, Any]:
    """Each task's times and survivors in both versions, and the ratio of the times."""
    children = {
        name: subprocess.Popen(
            [sys.executable, __file__, "--answer", str(folder)],
            env=os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, tree in {"before": before, "now": ROOT}.items()
    }
    result: dict[str, Any] = {}
    for task, rounds in ROUNDS.items():
        times: dict[str, list[float]] = {name: [] for name in children}
        for turn in range(1 + (2 if shortened else rounds)):
            order = list(children) if turn % 2 else list(reversed(children))  # neither always follows the other
            answers = {name: ask(children[name], task) for name in order}
            if answers["before"]["hits"] != answers["now"]["hits"]:
                raise InputError(f"{folder}: the hits of the two versions differ; task: {task}.")
            for name in children if turn else ():  # the first may compile
                times[name].append(answers[name]["ms"])
        ratio = statistics.median(old / new for old, new in zip(times["before"], times["now"], strict=True))
        result[task] = {f"ms {name}": statistics.median(values) for name, values in times.items()} | {
            "times faster": ratio,
            "survivors before": answers["before"]["survivors"],
            "survivors now": answers["now"]["survivors"],
            "rounds_ms": times,
        }
    for child in children.values():
        child.communicate()
    return result


def ask(child: "subprocess.Popen[str]", task: str) -> dict[str, Any]:
    """A version's answer to a task."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(task + "\n")
    child.stdin.flush()
    line = child.stdout.readline()
    if not line:
        raise InputError(f"the search ended early: {child.args!r}; see its message above.")
    found: dict[str, Any] = json.loads(line)
    return found


def coarseness(folder: Path) -> dict[str, dict[str, float]]:
    """Bound and survivors of 64 queries by the codes of their steps."""
    queries = tasks(folder)["64 queries"]
    index = Index.open(folder, isa="portable")
    rows = {"8 bits: at most 127": survivors(index.search(queries, K))}
    with patch.object(quantise, "LARGEST", 63):
        rows["7 bits: at most 63"] = survivors(index.search(queries, K))
    if choose(None) == "avx2":
        rows["8 bits: neighbours sum to at most 128"] = survivors(Index.open(folder, isa="avx2").search(queries, K))
    return rows


def main() -> None:
    """Print both tables and write them where --json says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300 and 75 narrations: checks the script, not the speed")
    parser.add_argument("--before", type=Path, help="a clone or worktree of the other version")
    parser.add_argument("--corpus", type=Path, help="also compare on this corpus, made by `recipe corpus build`")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    add_json(parser, "search-8bit")
    options = parser.parse_args()
    if options.answer:
        answer(options.answer)
        return
    if options.before is None or not (options.before / "src" / "recipe").is_dir():
        parser.error(f"--before: there is no src/recipe in {options.before}; name a worktree of another commit")

    values: dict[str, Any] = {"isa": choose(None)}
    git = ["git", "-C", str(options.before), "rev-parse", "--short", "HEAD"]
    values["before"] = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    body: list[str | dict[str, Any]] = [
        f"One thread, {STEPS} steps a query, k = {K}; medians of processor time in ms, re-scoring included. `before` "
        f"is commit {values['before']}, whose AVX2 multiplies numbers of 16 bits. The hits of both are equal to the "
        "last bit."
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folders = {
            f"synthetic_{dimension}": build(
                Path(temporary) / str(dimension), count // (40 if options.quick else 1), dimension
            )
            for dimension, count in SYNTHETIC.items()
        }
        if options.corpus:
            folders["real"] = options.corpus
        for name, folder in folders.items():
            corpus = Corpus.open(folder)
            title = (
                f"{len(corpus):,} narrations, {int(corpus.offsets[-1]):,} segments, d = {corpus.dimension}, "
                f"encoder {corpus.manifest['encoder']['name']}"
            )
            times, codes = compare(folder, options.before, options.quick), coarseness(folder)
            values[name] = {"tasks": times, "codes": codes}
            shown = {task: {key: row[key] for key in row if key != "rounds_ms"} for task, row in times.items()}
            body += [table(shown, "task", title), table(codes, "codes of the steps of 64 queries")]
    for part in body:
        rows = [part] if isinstance(part, str) else [part.get("title", ""), part["columns"], *part["rows"]]
        print(*rows, sep="\n")
    write_result(
        options.json,
        values,
        title="AVX2 without VNNI: products of 8-bit codes compared with those of 16-bit numbers",
        guide="search.md",
        body=body,
        partial=options.quick,
    )


if __name__ == "__main__":
    main()
