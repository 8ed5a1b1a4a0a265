"""How well a corpus covers each task, and the audit to expect of a reward there: the coverage law (docs/audit.md).

The law is a curve over the match of a prompt. Narrations are searched for by the goal and by the steps s that are done,
in turns, and b_1 >= b_2 >= ... are the best values of B(s) / |s| among them (B as in `recipe.reward.grounded`); q is
the mean over random narrations. In the match the i-th narration weighs 1 / i,

    match = (sum over i of (b_i - q) / i) / (sum over i of 1 / i)

because each further narration of a task adds less, as it does to the quality of the reward. The law says something of
tasks that the corpus knows (`recipe.reward.coverage`) alone: it was fitted on such tasks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recipe.alignment import backends
from recipe.artifacts import read_json, to_json
from recipe.audit.perturb import FEWEST_STEPS, MOST_STEPS, AuditProcedure, cut_at
from recipe.audit.score import RANDOM_NARRATIONS, in_percent
from recipe.data.procedures import procedure_rows
from recipe.data.video_ids import VideoIds
from recipe.errors import ComputeError, InputError
from recipe.progress import SILENT, Progress
from recipe.report.elements import Cell, Table, headings, row
from recipe.reward.baselines import centred
from recipe.reward.coverage import FEWEST_NARRATIONS, RANKS, CorpusCoverage, CoverageState, Embed, TaskPrompt
from recipe.reward.embeddings import NarrationIndex
from recipe.reward.grounded import SimilarityBaseline, calibrated
from recipe.reward.scorer import prompt_outcomes
from recipe.reward.verifier import Verifier
from recipe.stats import Interval
from recipe.text import same_goal
from recipe.types import Reward

Floats = NDArray[np.float64]

LAW = "coverage_law.json"
_KNOWN: Mapping[CoverageState, Cell] = {
    "known": Cell("yes", shade=60),
    "partly": Cell("in part"),
    "unknown": Cell("no", shade=-60),
}


def read_tasks(path: Path, seed: int = 0) -> list[TaskPrompt]:
    """The prompts of a file: whole procedures cut as the audit cuts them, and examples with or without continuations.

    A prompt may have a goal alone. Raises InputError as `procedure_rows`, and for a file without a row.
    """
    prompts = []
    for _, line in procedure_rows(path):
        history = line.history or ()
        if line.steps is not None:
            procedure = AuditProcedure.of(line.procedure())
            history = procedure.steps[: (len(procedure.steps) + 1) // 2]
            # Others have no cut in the audit: half of their steps are done.
            if FEWEST_STEPS <= len(procedure.steps) <= MOST_STEPS:
                history = cut_at(procedure, seed).history
        prompts.append(TaskPrompt(line.goal, history, line.video_id))
    if not prompts:
        raise InputError.at(path, "the file holds no task", "give one object with goal and history a line")
    return prompts


def spread_prompts(prompts: Sequence[TaskPrompt], limit: int) -> list[TaskPrompt]:
    """At most `limit` prompts of each task, at even distances in the file."""
    by_task: dict[str, list[TaskPrompt]] = {}
    for prompt in prompts:
        by_task.setdefault(same_goal(prompt.goal), []).append(prompt)
    counts = {task: min(limit, len(own)) for task, own in by_task.items()}
    return [own[i * len(own) // counts[task]] for task, own in by_task.items() for i in range(counts[task])]


@dataclass(frozen=True, slots=True)
class CoverageLaw:
    """The gain of a verifier's audit over R0 as a function of the match, as `benchmarks/coverage_law.py` fitted it."""

    verifier: str
    encoder: str
    relevance: float
    """MEAN of R0 on the prompts that it was fitted on."""
    base: float
    rise: float
    scale: float
    zero: float
    """The match without a covering narration. gain(x) = base + rise (1 - exp(-max(x - zero, 0) / scale))"""
    between: float
    """Standard deviation between data sets: of measured minus predicted gain, each set predicted from the others."""
    grid: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    """95% band of the curve on `grid`, by a bootstrap over goals."""
    one_video: float
    growth: float
    """match(k) = zero + one_video log(1 + growth k) with k covering step lists."""
    record: Mapping[str, Any]
    """The measured points, and the test on sources that it was not fitted on."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "CoverageLaw":
        """A law from its JSON."""
        return cls(**{**values, **{name: tuple(values[name]) for name in ("grid", "low", "high")}})

    def gain(self, match: float) -> float:
        """Expected MEAN minus that of R0.

        >>> law = CoverageLaw("v", "e", .7, 0.0, .2, .5, .1, .03, (0.0, 1.0), (0.0, .1), (0.0, .3), .3, 2.0, {})
        >>> law.gain(0.1), round(law.gain(50.0), 6), law.interval(1.0).low < .1
        (0.0, 0.2, True)
        """
        return self.base + self.rise * (1.0 - math.exp(-max(match - self.zero, 0.0) / self.scale))

    def interval(self, match: float) -> Interval:
        """The expected gain with the 95% interval for a data set that the law has not seen."""
        mean = self.gain(match)
        ends = (float(np.interp(match, self.grid, end)) for end in (self.low, self.high))
        # The band of the curve and the spread between data sets are independent: their squares add up.
        low, high = (math.hypot(end - mean, 1.96 * self.between) for end in ends)
        return Interval(mean, mean - low, mean + high)

    def videos(self, match: float) -> float:
        """How many covering step lists give this match: the effective number of covering narrations."""
        # The inverse of match(k), so that covering narrations of other words and lengths count in one unit.
        return math.expm1(max(match - self.zero, 0.0) / self.one_video) / self.growth

    def match_for(self, gain: float) -> float | None:
        """The match at which this gain is expected; None where the law does not reach it."""
        # The inverse of gain(x): x = zero - scale log(1 - (gain - base) / rise), which exists below base + rise.
        share = (gain - self.base) / self.rise
        if share <= 0:
            return self.zero
        return None if share >= 1 else self.zero - self.scale * math.log1p(-share)

    def missing(self, match: float, target: float) -> int | None:
        """Covering videos that are expected to raise MEAN from that at this match to `target`; None where no number
        does.
        """
        needed = self.match_for(target - self.relevance)
        # 1e-9, so that rounding does not ask for one video more.
        return None if needed is None else max(math.ceil(self.videos(needed) - self.videos(match) - 1e-9), 0)


@cache
def known_laws() -> dict[str, CoverageLaw]:
    """The laws of the package by their verifier."""
    laws = (CoverageLaw.of(values) for values in read_json(Path(__file__).with_name(LAW))["laws"])
    return {law.verifier: law for law in laws}


@dataclass(frozen=True, slots=True)
class TaskCoverage:
    """One task of a file; what no law says is None, and so is what a reward is worth on a task that is not known."""

    task: str
    prompts: int
    match: float
    """Mean over its prompts."""
    state: CoverageState
    """How far the corpus knows it: what half of its prompts are at least."""
    coverage: float | None
    """Mean of `Reward.coverage`, which `min_coverage` of training reads; None where the verifier reports none."""
    videos: float | None
    """Effective number of covering narrations, counted in step lists."""
    gain: Interval | None
    """Expected MEAN minus that of R0."""
    mean: float | None
    """Expected MEAN."""
    missing: int | None
    """Further covering videos to the target; 0 where it is reached, None where the law does not reach it."""

    @property
    def covered(self) -> bool | None:
        """Whether a gain over R0 is to be expected: its whole interval lies above 0, and the corpus knows the task."""
        if self.state == "unknown":
            return False
        return None if self.gain is None or self.gain.sign is None else self.gain.sign == 1

    def advice(self, target: float) -> str:
        """What to do about the task, one thing, in words; empty where neither the corpus nor a law says.

        Of a task that the corpus does not know, or knows in part, it says neither to train nor what to expect.
        """
        if self.state != "known":
            return {"unknown": "leave out", "partly": "look at the evidence"}[self.state]
        if self.gain is None:
            return ""
        if self.covered or self.missing == 0:
            return "train"
        if self.missing is None:
            return "leave out"
        return f"add {self.missing} more video{'s' * (self.missing != 1)} to reach {100 * target:.0f}"


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """All tasks, those that are covered least first."""

    tasks: tuple[TaskCoverage, ...]
    target: float
    law: CoverageLaw | None
    settings: Mapping[str, Any]
    cautions: tuple[str, ...]

    @property
    def answer(self) -> str:
        """How many tasks the corpus knows, and what to expect, in sentences."""
        count = len(self.tasks)
        known, partly = (sum(task.state == state for task in self.tasks) for state in ("known", "partly"))
        knows = (
            f"The corpus knows {known} of {count} tasks, {partly} in part, and does not know {count - known - partly}."
        )
        predicted = [task.mean for task in self.tasks if task.mean is not None]
        if self.law is None or not predicted:
            return f"{knows} How well the reward will work on them is not predicted."
        covered = sum(bool(task.covered) for task in self.tasks)
        reached = sum(task.missing == 0 for task in self.tasks)
        mean = float(np.mean(predicted))
        return (
            f"{knows} The reward is expected to be better than relevance, which reads no corpus, on {covered} of them. "
            f"On those that it knows it is expected to prefer the true plan in {100 * mean:.0f}% of comparisons "
            f"(relevance: {100 * self.law.relevance:.0f}%); {reached} of them reach the target of "
            f"{100 * self.target:.0f}%."
        )

    def table(self, limit: int | None = None, brief: bool = False) -> Table:
        """The tasks as a table, the least covered first, `limit` of them at most; `brief` is for a terminal."""
        notes = [
            "known: whether the corpus knows the task, for any reward.",
            "true plan preferred: percent of comparisons with corrupted plans in which the reward is expected to "
            "prefer the true one, as recipe reward audit measures it; 50 is chance. gain: the same less that of "
            "relevance, a control that reads no corpus, in points, with the 95% interval for a data set that the law "
            "has not seen.",
            "videos: so many step lists of the task give this match. match: how well the narrations match what is "
            "done. coverage: the mean that the reward reports, which a number in min_coverage of training reads.",
        ]
        further = headings("videos", "match", "coverage", "prompts")
        return Table(
            f"Coverage of {len(self.tasks)} tasks",
            "task",
            (*headings("known", "advice", "true plan preferred", "gain"), *(() if brief else further)),
            rows=tuple(
                row(
                    task.task,
                    _KNOWN[task.state],
                    task.advice(self.target),
                    Cell(None if task.mean is None else 100 * task.mean, 0),
                    Cell(None if task.gain is None else in_percent(task.gain), 0, signed=True),
                    *(() if brief else (Cell(task.videos, 1), Cell(task.match, 2), Cell(task.coverage, 2))),
                    *(() if brief else (task.prompts,)),
                )
                for task in self.tasks[:limit]
            ),
            notes=tuple(notes[:2] if brief else notes),
        )

    def to_json(self) -> dict[str, Any]:
        """The report as plain values, shares in 0..1; without the law, which is that of the package."""
        return {
            "settings": to_json(self.settings),
            "answer": self.answer,
            "cautions": to_json(self.cautions),
            "relevance": None if self.law is None else self.law.relevance,
            "leave_out": [task.task for task in self.tasks if task.advice(self.target) == "leave out"],
            "tasks": [to_json(task) | {"advice": task.advice(self.target)} for task in self.tasks],
        }


def task_coverage(
    prompts: Sequence[TaskPrompt],
    values: Sequence[float],
    states: Sequence[CoverageState],
    coverages: Sequence[float | None],
    law: CoverageLaw | None,
    target: float,
) -> list[TaskCoverage]:
    """The tasks of prompts with these matches, states and coverages of the reward; the least covered first."""
    rising: tuple[CoverageState, ...] = ("unknown", "partly", "known")
    by_task: dict[str, list[int]] = {}
    for index, prompt in enumerate(prompts):
        by_task.setdefault(same_goal(prompt.goal), []).append(index)
    tasks = []
    for places in by_task.values():
        match = float(np.mean([values[index] for index in places]))
        known = [value for index in places if (value := coverages[index]) is not None]
        # The upper median: half of the prompts, or more, are known at least so well.
        state = sorted((states[index] for index in places), key=rising.index)[len(places) // 2]
        # The law was fitted to matches of histories, on tasks that the corpora knew.
        predicting = law if state == "known" and any(prompts[index].history for index in places) else None
        gain = None if predicting is None else predicting.interval(match)
        tasks.append(
            TaskCoverage(
                task=prompts[places[0]].goal,
                prompts=len(places),
                match=match,
                state=state,
                coverage=float(np.mean(known)) if known else None,
                videos=None if predicting is None else predicting.videos(match),
                gain=gain,
                mean=None if predicting is None or gain is None else min(predicting.relevance + gain.mean, 1.0),
                missing=None if predicting is None else predicting.missing(match, target),
            )
        )
    return sorted(tasks, key=lambda task: (task.match, task.task))


def measure_tasks(
    verifier: Verifier,
    encoder: str,
    prompts: Sequence[TaskPrompt],
    target: float,
    record: Mapping[str, Any],
    progress: Progress = SILENT,
) -> CoverageReport:
    """The coverage of each task by the verifier's corpus, with what its law predicts where there is one.

    `encoder` is the name of the corpus's encoder, `target` a MEAN in 0..1; `record` is kept as it is. Raises
    ComputeError for a corpus that is too small.
    """
    name, law = verifier.config.verifier, known_laws().get(verifier.config.verifier)
    cautions = []
    if law is None:
        known = ", ".join(known_laws()) or "no verifier"
        cautions.append(
            f"There is no coverage law for {name} (there is one for {known}), so that no quality is predicted; "
            "benchmarks/coverage_law.py fits one."
        )
    elif encoder != law.encoder:
        cautions.append(
            f"The law was fitted with the encoder {law.encoder}; with {encoder} trust the order of tasks only."
        )
    if law is not None and name == "grounded" and verifier.config.grounded.self_trained:
        cautions.append(
            "The law was fitted to the grounded reward alone; what the self-trained net adds here is what its own test "
            "says, in self-trained.json."
        )
    if count := sum(not prompt.history for prompt in prompts):
        cautions.append(
            f"{count} of {len(prompts)} prompts have no step that is done: for them the goal alone says whether the "
            "task is known, which is less certain, and nothing is predicted."
        )
    covered = [own for own in CorpusCoverage(verifier.corpus, verifier.embed, progress).of(prompts) if own is not None]
    if len(covered) < len(prompts):
        count = len(verifier.corpus)
        raise ComputeError(f"A corpus of {count} narrations is too small for this; {FEWEST_NARRATIONS} are needed.")
    # Where no step is done the goal is matched, for the order of tasks; nothing is predicted from it.
    asked = [prompt if prompt.history else replace(prompt, history=prompt.goals) for prompt in prompts]
    values = matches(verifier.corpus, asked, verifier.embed, progress=progress)
    outcomes = prompt_outcomes(verifier, [(prompt.goal, prompt.history) for prompt in prompts])
    reported = [outcome.coverage if isinstance(outcome, Reward) else None for outcome in outcomes]
    return CoverageReport(
        tasks=tuple(task_coverage(prompts, values, [own.state for own in covered], reported, law, target)),
        target=target,
        law=law,
        settings=dict(record) | {"verifier": verifier.config.verifier, "encoder": encoder, "target": target},
        cautions=tuple(cautions),
    )


def matches(
    corpus: NarrationIndex,
    prompts: Sequence[TaskPrompt],
    embed: Embed,
    progress: Progress = SILENT,
) -> list[float]:
    """The match of each prompt, in order; narrations of its own video are passed over.

    Raises ComputeError for a corpus of fewer than 8 narrations.
    """
    if len(corpus) < FEWEST_NARRATIONS:
        raise ComputeError(
            f"A corpus of {len(corpus)} narrations is too small for this; {FEWEST_NARRATIONS} are needed."
        )
    queries = [(prompt.goals, prompt.history) for prompt in prompts]
    searches = list(dict.fromkeys(steps for own in queries for steps in own if steps))
    texts = sorted({text for steps in searches for text in steps})
    vectors = dict(zip(texts, embed(texts), strict=True)) if texts else {}
    stacks = [np.stack([vectors[text] for text in steps]) for steps in searches]
    # One more, because the prompt's own video may be among them; so of the random ones below.
    hits = dict(zip(searches, corpus.search_batch(stacks, RANKS + 1), strict=True))
    baseline, backend = SimilarityBaseline.of(corpus), backends.load("auto")
    # The same random narrations for all prompts and in every run, so that a match says the same again.
    order = np.random.default_rng(0).permutation(len(corpus))
    videos = dict[int, str]()
    values = []
    with progress.task("Match narrations", len(prompts)) as advance:
        for prompt, own_queries in zip(prompts, queries, strict=True):
            turns = zip(*(hits[steps] for steps in own_queries if steps), strict=False)
            ranked = dict.fromkeys(hit.narration for turn in turns for hit in turn)
            others = list(ranked)
            far = [int(number) for number in order[: RANDOM_NARRATIONS + len(ranked) + 1] if int(number) not in ranked]
            if prompt.video_id:
                for number in (*others, *far):
                    if number not in videos:
                        videos[number] = corpus.narration(number).video_id
                own = VideoIds([prompt.video_id])
                others, far = ([n for n in numbers if not own.may_be(videos[n])] for numbers in (others, far))
            others, far = others[:RANKS], far[:RANDOM_NARRATIONS]
            x = centred(np.stack([vectors[step] for step in prompt.history]), baseline.mean)
            similarities, offsets = baseline.similarities(corpus, [*others, *far], x)
            # b_i - q of the docstring: best values of B(s) / |s|, less the mean of it over random narrations.
            W = calibrated(similarities, baseline.floors(x))
            matched = backend.grouped_free_alignment(W, [0, len(x)], offsets).matched[1] / len(x)
            chance = float(matched[len(others) :].mean()) if far else 0.0
            values.append(ranked_mean(matched[: len(others)]) - chance)
            advance(1)
    return values


def ranked_mean(values: Floats) -> float:
    """The mean of values with weights 1 / i from the highest to the lowest, RANKS of them; missing ones are 0.

    >>> round(ranked_mean(np.array([0.0, 1.0])) * sum(1 / i for i in range(1, RANKS + 1)), 9)
    1.0
    """
    weights = 1.0 / np.arange(1, RANKS + 1)
    best = np.sort(values)[::-1][:RANKS]
    return float(best @ weights[: len(best)] / weights.sum())
