"""The coverage law: the gain of the grounded reward's audit over R0, as a function of how well a corpus covers a task.

    python benchmarks/coverage_law.py --data DATA --speech corpora/youcook2-speech

DATA holds the folders of the benchmarks, as `recipe data` reads them, and `youcook2/procedures.jsonl`. The speech
corpus is built from narrations of YouCook2 by `recipe corpus build`. Every distinct step is encoded once; the corpora
of k = 0, 1, 2, 4, 8, 16 covering videos a task share its vector. Training videos of the audited tasks are step lists of
COIN, CrossTask and CaptainCook4D; the recipes of YouCook2's training videos are always there. The law is fitted on
these three sources, and tested on NIV (step lists) and on YouCook2's validation videos (speech of training videos),
which `--test` measures.

Writes the law to src/recipe/audit/coverage_law.json and all points to the file of `--json`. Points that are there
already are kept; without `--data` they are fitted again. After a change of the verifier or of the audit's classes,
measure `--anew`. The results page names the file with the points of the law in use: what `git show` prints of it can be
given as `--json`.
"""

import argparse
import hashlib
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import add_json, table, write_result
from numpy.typing import NDArray
from scipy.optimize import least_squares

from recipe.alignment import backends
from recipe.artifacts import read_json, write_json
from recipe.audit import coverage
from recipe.audit.coverage import LAW, CoverageLaw, matches
from recipe.audit.perturb import TRUE, AuditPrompt, build_prompts, select
from recipe.audit.score import NamedScorer, controls, prompt_means, win_table
from recipe.config import EncoderConfig, RewardConfig
from recipe.corpus.encoders import open_encoder
from recipe.corpus.store import Corpus
from recipe.data.benchmarks import BENCHMARKS
from recipe.data.procedures import read_procedures
from recipe.progress import LogLines
from recipe.reward.coverage import TaskPrompt
from recipe.reward.embeddings import StepEmbeddings, TextEncoder, Vectors
from recipe.reward.verifier import Verifier
from recipe.stats import mean_interval
from recipe.text import same_goal
from recipe.types import Hit, Narration, Procedure, Segment

PACKAGED = Path(coverage.__file__).parent / LAW
VIDEOS = (0, 1, 2, 4, 8, 16)
SPOKEN = (0, 1, 4, 100)
"""Covering narrations of a task in speech; 100 are all."""
FITTED, LISTED, TOLD = ("coin", "crosstask", "captaincook4d"), "niv", "youcook2"
BOOTSTRAP = 1000


class SharedIndex:
    """A corpus in memory whose vectors are shared with others; searched without a certificate."""

    def __init__(self, encoder: TextEncoder, narrations: Sequence[Narration], vectors: Sequence[Vectors]) -> None:
        self.encoder = encoder
        self._narrations = narrations
        self.offsets: NDArray[np.int64] = np.cumsum([0, *map(len, vectors)])
        self._segments = np.concatenate(vectors)
        self._backend = backends.load("auto")

    def __len__(self) -> int:
        return len(self._narrations)

    def narration(self, index: int) -> Narration:
        return self._narrations[index]

    def embeddings(self, index: int) -> Vectors:
        return self._segments[self.offsets[index] : self.offsets[index + 1]]

    def similarities(self, narrations: Sequence[int], steps: Vectors) -> tuple[Vectors, NDArray[np.int64]]:
        vectors = [self.embeddings(number) for number in narrations]
        products = np.concatenate(
            [np.zeros((0, len(steps)), np.float32), *(np.einsum("sd,nd->sn", rows, steps) for rows in vectors)]
        )
        return products, np.cumsum([0, *map(len, vectors)])

    def search_batch(self, queries: Sequence[Vectors], k: int) -> list[list[Hit]]:
        found = []
        for query in queries:
            [scores] = self._backend.grouped_monotone_coverage(self._segments @ query.T, [len(query)], self.offsets)
            best = np.argsort(-scores, kind="stable")[:k]
            found.append([Hit(int(number), float(scores[number])) for number in best])
        return found


class Audited(NamedTuple):
    """The prompts of a source and what R0 earns on them."""

    prompts: list[AuditPrompt]
    tasks: list[TaskPrompt]
    relevance: NDArray[np.float64]
    """Wins [prompts, classes]."""


Point = dict[str, Any]
"""A task of a source against one corpus: sums over its prompts, and their number."""
Cell = tuple[str, str, int | None]
"""Source, kind and number of covering narrations of a task."""


def main() -> None:
    """Measure, fit, test, write."""
    arguments = _arguments()
    known = [] if arguments.anew or not arguments.json.is_file() else points_of(arguments.json)
    done = {_cell(one) for one in known}
    if arguments.data is None and not known:
        raise SystemExit("there are no points to fit; give --data.")
    points = list(known)
    if arguments.data is not None:
        points += measure(arguments.data, arguments.speech, arguments.limit, arguments.test, done)
    law = fit([one for one in points if one["source"] in FITTED])
    tested = {name: test(law, points, name) for name in (LISTED, TOLD) if any(p["source"] == name for p in points)}
    law["record"] = {"cells": cells(points), "tests": tested}
    others = [one for one in read_json(PACKAGED)["laws"] if one["verifier"] != law["verifier"]]
    write_json(PACKAGED, {"format": 1, "laws": [*others, law]})
    write_result(
        arguments.json,
        {"limit": arguments.limit, "points": points, "law": law},
        title="The coverage law",
        guide="audit.md",
        body=body(law, arguments.limit),
    )
    for cell in law["record"]["cells"]:
        print("  ".join(f"{value:.3f}" if isinstance(value, float) else f"{value!s:14}" for value in cell.values()))
    print(
        {name: law[name] for name in ("zero", "base", "rise", "scale", "between", "one_video", "growth", "relevance")}
    )
    for name, rows in tested.items():
        for row in rows:
            print(name, {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()})


def points_of(file: Path) -> list[Point]:
    """The points of a result. Raises SystemExit where it holds their number only."""
    found = read_json(file)
    known = found.get("values", found)["points"]
    if isinstance(known, int):
        raise SystemExit(f"{file} holds the number of its points only; measure --anew, or name another file.")
    return list(known)


def body(law: dict[str, Any], limit: int) -> list[str | dict[str, Any]]:
    """The law, the gains that it was fitted to, and its test."""
    constants = ", ".join(f"{name} {law[name]:.3f}" for name in ("base", "rise", "zero", "scale"))
    gained: dict[str, dict[str, Any]] = {}
    for cell in law["record"]["cells"]:
        row = gained.setdefault(cell["source"], {"R0, MEAN": cell["relevance"]})
        row[f"{cell['kind']}, {cell['videos'] if cell['videos'] is not None else 'all'} a task"] = {
            "mean": cell["gain"],
            "low": cell["low"],
            "high": cell["high"],
        }
    tests = {
        f"{source}, {row['kind']}, {row['videos']} a task": {
            "match": row["match"],
            "predicted": {"mean": row["predicted"], "low": row["predicted_low"], "high": row["predicted_high"]},
            "measured": {"mean": row["measured"], "low": row["low"], "high": row["high"]},
        }
        for source, rows in law["record"]["tests"].items()
        for row in rows
    }
    return [
        f"gain(x) = base + rise (1 - exp(-max(x - zero, 0) / scale)); {constants} ({law['verifier']}, "
        f"{law['encoder']}). Each "
        f"source predicted from the others misses by {law['between']:.3f} (root mean square).",
        f"Gain of MEAN over R0, with its interval by task; {limit} procedures of each source.",
        table(gained, "source", digits=2),
        *([table(tests, "source", "Test on sources that it was not fitted on", digits=2)] if tests else []),
    ]


def measure(data: Path, speech: Path | None, limit: int, look: bool, done: Collection[Cell]) -> Iterator[Point]:
    """The points of all sources against all corpora that are not done; of test sources only where `look` says so."""
    progress = LogLines(sys.stderr, 60)
    encoder = open_encoder(EncoderConfig(name="minilm"))
    embeddings = StepEmbeddings(encoder, 1 << 20)
    listed = (*FITTED, LISTED) if look else FITTED
    procedures = {name: _read(data, name) for name in (*listed, TOLD)}
    recipes = [one for one in procedures[TOLD] if one.split == "train"]
    texts = {step.text for name in listed for one in procedures[name] for step in one.steps}
    embeddings.by_text(sorted(texts | {step.text for one in recipes for step in one.steps}))
    sources = {name: _audited(_tests(procedures[name], name), limit, embeddings) for name in listed}

    def index(chosen: Sequence[Procedure]) -> SharedIndex:
        narrations = [_narrated(one) for one in chosen]
        stacks = [embeddings.stacked([segment.text for segment in one.segments]) for one in narrations]
        return SharedIndex(encoder, narrations, stacks)

    for groups in ((*FITTED,), (LISTED,)) if look else ((*FITTED,),):
        for videos in VIDEOS:
            covering = [one for name in groups for one in _covering(procedures[name], sources[name], videos)]
            left = [name for name in groups if (name, "lists", videos) not in done]
            if not left:
                continue
            corpus = index([*recipes, *covering])
            for name in left:
                yield from _points(name, "lists", videos, corpus, sources[name], embeddings, progress)
    if speech is None:
        return
    told = Corpus.open(speech)
    goals = {one.video_id: same_goal(one.goal) for one in recipes}
    spoken = [number for number in range(len(told)) if told.narration(number).video_id in goals]
    narrations = {number: told.narration(number) for number in spoken}
    vectors = {number: told.embeddings(number) for number in spoken}
    everything = SharedIndex(encoder, list(narrations.values()), list(vectors.values()))
    for name in (name for name in FITTED if (name, "speech", None) not in done):
        yield from _points(name, "speech", None, everything, sources[name], embeddings, progress)
    if not look or (TOLD, "speech", SPOKEN[-1]) in done:
        return
    every = _audited([one for one in procedures[TOLD] if one.split == "val"], limit, embeddings)
    for fold in (0, 1):
        # Tasks of one half lose their videos; those of the other half are always there.
        places = [place for place, one in enumerate(every.prompts) if _half(same_goal(one.goal)) == fold]
        part = Audited([every.prompts[i] for i in places], [every.tasks[i] for i in places], every.relevance[places])
        for videos in SPOKEN:
            kept, counts = [], dict[str, int]()
            for number in sorted(spoken, key=lambda number: _digest(narrations[number].video_id)):
                goal = goals[narrations[number].video_id]
                counts[goal] = counts.get(goal, 0) + 1
                if _half(goal) != fold or counts[goal] <= videos:
                    kept.append(number)
            corpus = SharedIndex(encoder, [narrations[n] for n in kept], [vectors[n] for n in kept])
            yield from _points(TOLD, "speech", videos, corpus, part, embeddings, progress)


def _points(
    source: str,
    kind: str,
    videos: int | None,
    corpus: SharedIndex,
    audited: Audited,
    embeddings: StepEmbeddings,
    progress: LogLines,
) -> Iterator[Point]:
    """The tasks of a source against one corpus."""
    config = RewardConfig(verifier="grounded")
    verifier = Verifier(corpus, config, embeddings=embeddings)
    scored = NamedScorer(f"{source} {kind} {videos}", verifier).score(audited.prompts, progress)
    if scored.unscored:
        raise SystemExit(scored.unscored[0])
    means, relevance = prompt_means(win_table(scored.prompts)), prompt_means(audited.relevance)
    found = matches(corpus, audited.tasks, embeddings.stacked)
    reported = [one.rewards[TRUE].coverage or 0.0 for one in scored.prompts]
    by_goal: dict[str, list[int]] = {}
    for place, prompt in enumerate(audited.prompts):
        by_goal.setdefault(same_goal(prompt.goal), []).append(place)
    print(source, kind, videos, f"{means.mean():.3f} R0 {relevance.mean():.3f} match {np.mean(found):.3f}", flush=True)
    for goal, places in by_goal.items():
        own = {"mean": means[places], "relevance": relevance[places]}
        own |= {"match": np.take(found, places), "coverage": np.take(reported, places)}
        named = {"source": source, "kind": kind, "videos": videos, "verifier": config.verifier}
        sums = {name: round(float(values.sum()), 6) for name, values in own.items()}
        yield named | {"task": _digest(goal)[:8], "prompts": len(places)} | sums


def fit(points: Sequence[Point]) -> dict[str, Any]:
    """The law as its JSON, with the bootstrap's band and the spread between sources."""
    zero, base, rise, scale = curve(points)
    grid = np.linspace(0.0, 1.0, 41)
    generator, drawn = np.random.default_rng(0), []
    tasks: dict[tuple[str, str], list[Point]] = {}
    for one in points:
        tasks.setdefault((one["source"], one["task"]), []).append(one)
    own = list(tasks.values())
    for _ in range(BOOTSTRAP):
        drawn.append(gains(grid, *curve([p for n in generator.integers(len(own), size=len(own)) for p in own[n]])))
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    residuals = []
    for source in FITTED:
        parameters = curve([one for one in points if one["source"] != source])
        residuals += [
            cell["gain"] - predicted(parameters, members)
            for cell, members in _cells([one for one in points if one["source"] == source])
        ]
    one_video, growth = _growth([cell for cell, _ in _cells(points) if cell["kind"] == "lists"], zero)
    prompts = sum(one["prompts"] for one in points)
    return {
        "verifier": "grounded",
        "encoder": "minilm",
        "relevance": sum(one["relevance"] for one in points) / prompts,
        "zero": zero,
        "base": base,
        "rise": rise,
        "scale": scale,
        "between": float(np.sqrt(np.mean(np.square(residuals)))),
        "grid": grid.tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
        "one_video": one_video,
        "growth": growth,
    }


def gains(match: NDArray[np.float64], zero: float, base: float, rise: float, scale: float) -> NDArray[np.float64]:
    """The curve of `CoverageLaw.gain`."""
    return np.asarray(base + rise * (1.0 - np.exp(-np.maximum(match - zero, 0.0) / scale)))


def curve(points: Sequence[Point]) -> tuple[float, float, float, float]:
    """zero, the mean match without covering step lists; base, rise and scale by least squares over sources and corpora.

    A task's own match is noisy, which would flatten a curve through tasks; each source and corpus is one mean.
    """
    sums: dict[Cell, NDArray[np.float64]] = {}
    for one in points:
        values = np.array([one["prompts"], one["match"], one["mean"] - one["relevance"]])
        sums[_cell(one)] = sums.get(_cell(one), np.zeros(3)) + values
    weight, match, gain = np.array(list(sums.values())).T
    match, gain = match / weight, gain / weight
    zero = float(np.mean([value for key, value in zip(sums, match, strict=True) if key[1:] == ("lists", 0)]))

    def errors(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        base, rise, scale = parameters[0], *np.exp(parameters[1:])
        return np.asarray(np.sqrt(weight) * (gains(match, zero, base, rise, scale) - gain))

    base, rise, scale = least_squares(errors, [0.0, np.log(0.2), np.log(0.1)], bounds=([-1, -6, -5], [1, 1, 1])).x
    return zero, float(base), float(np.exp(rise)), float(np.exp(scale))


def predicted(parameters: tuple[float, float, float, float], members: Sequence[Point]) -> float:
    """The gain that the mean match of some tasks predicts."""
    match = sum(one["match"] for one in members) / sum(one["prompts"] for one in members)
    return float(gains(np.array(match), *parameters))


def _cells(points: Sequence[Point]) -> Iterator[tuple[dict[str, Any], list[Point]]]:
    """Means over the prompts of each source against each corpus, with the interval of the gain by task."""
    for source, kind, videos in dict.fromkeys(map(_cell, points)):
        members = [one for one in points if _cell(one) == (source, kind, videos)]
        prompts = sum(one["prompts"] for one in members)
        sums = {
            name: sum(one[name] for one in members) / prompts for name in ("mean", "relevance", "match", "coverage")
        }
        # Each prompt of a task gets the task's mean: clusters are what the bootstrap draws.
        values = [(one["mean"] - one["relevance"]) / one["prompts"] for one in members for _ in range(one["prompts"])]
        gain = mean_interval(values, [one["task"] for one in members for _ in range(one["prompts"])])
        named = {"source": source, "kind": kind, "videos": videos, "prompts": prompts, "tasks": len(members)}
        yield named | sums | {"gain": gain.mean, "low": gain.low, "high": gain.high}, members


def _cell(one: Point) -> Cell:
    return one["source"], one["kind"], one["videos"]


def cells(points: Sequence[Point]) -> list[dict[str, Any]]:
    """The table of all sources and corpora."""
    return [cell for cell, _ in _cells(points)]


def test(row: dict[str, Any], points: Sequence[Point], source: str) -> list[dict[str, Any]]:
    """Predicted against measured gain of a source that the law was not fitted on."""
    law = CoverageLaw.of({**row, "record": {}})
    rows = []
    for cell, members in _cells([one for one in points if one["source"] == source]):
        gain = predicted((law.zero, law.base, law.rise, law.scale), members)
        around = law.interval(cell["match"])
        rows.append(
            {"kind": cell["kind"], "videos": cell["videos"], "prompts": cell["prompts"], "match": cell["match"]}
            | {"measured": cell["gain"], "low": cell["low"], "high": cell["high"], "predicted": gain}
            | {"predicted_low": around.low, "predicted_high": around.high}
        )
    return rows


def _growth(rows: Sequence[dict[str, Any]], zero: float) -> tuple[float, float]:
    """one_video and growth of match(k) = zero + one_video log(1 + growth k), by least squares over sources and k."""
    videos, match = (np.array([row[name] for row in rows], dtype=np.float64) for name in ("videos", "match"))

    def errors(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        first, growth = np.exp(parameters)
        return np.asarray(zero + first * np.log1p(growth * videos) - match)

    first, growth = np.exp(least_squares(errors, [np.log(0.1), np.log(1.0)]).x)
    return float(first), float(growth)


def _read(data: Path, name: str) -> list[Procedure]:
    if name in BENCHMARKS:
        return BENCHMARKS[name].read(data / name)
    return read_procedures(data / name / "procedures.jsonl", "skip").procedures


def _tests(procedures: Sequence[Procedure], name: str) -> list[Procedure]:
    splits = ("test", "val") if name == "captaincook4d" else ("test",)
    return [one for one in procedures if one.split in splits]


def _audited(procedures: Sequence[Procedure], limit: int, embeddings: StepEmbeddings) -> Audited:
    prompts = build_prompts(select(procedures, 0, limit), embeddings.stacked, 0)
    relevance = controls(prompts, embeddings.stacked)[1]
    tasks = [TaskPrompt(p.goal, p.history, p.video_id) for p in prompts]
    return Audited(prompts, tasks, win_table(relevance.score(prompts).prompts))


def _covering(procedures: Sequence[Procedure], audited: Audited, videos: int) -> list[Procedure]:
    """The first training videos of each audited task, in the order of their digests, so that corpora are nested."""
    wanted = {same_goal(prompt.goal): videos for prompt in audited.prompts}
    chosen = []
    for one in sorted(procedures, key=lambda one: _digest(one.video_id)):
        goal = same_goal(one.goal)
        if one.split == "train" and wanted.get(goal, 0):
            wanted[goal] -= 1
            chosen.append(one)
    return chosen


def _narrated(one: Procedure) -> Narration:
    return Narration(one.video_id, tuple(Segment(step.text) for step in one.steps), source=one.source)


def _half(goal: str) -> int:
    return int(_digest(goal)[0], 16) % 2


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the benchmarks' folders")
    parser.add_argument("--speech", type=Path, help="corpus of YouCook2's speech")
    parser.add_argument("--limit", type=int, default=60, help="procedures of each source")
    parser.add_argument("--test", action="store_true", help="look at the test sources, too")
    parser.add_argument("--anew", action="store_true", help="measure again what --json holds")
    add_json(parser, "audit-coverage")
    return parser.parse_args()


if __name__ == "__main__":
    main()
