"""How far a corpus knows a task, in words that hold for any corpus, reward and size of pool (docs/audit.md).

A prompt is a goal g and steps s_i that are done. A narration with segments y_k is near it in three parts,

    p_1 = max_k <g, y_k>,   p_2 = <g, mean_k y_k>,   p_3 = mean over i of max_k <s_i, y_k>

cosines of vectors that are centred by the mean of many everyday tasks (`everyday_tasks.txt`): the encoder's common
part, which no corpus changes. P_j is the best p_j among the narrations that goal and history find. How high it is
without any narration of the task depends on the corpus, for speech says a little of everything: the floor b_j is the
lower quartile of P_j over the everyday tasks, so that a corpus may know three in four of them, and at most
`HIGHEST_FLOOR`, so that it may know all. The fit of the prompt is

    fit = mean over j of (P_j - b_j) / (1 - b_j)

0 is what the corpus says of any task, 1 the task in the same words. From `LIMITS` on the corpus knows the task in
part, or knows it, provided that a narration is about it. The limits were found on half of the fields and goals of step
lists and speech, and tested on the other half (benchmarks/known_tasks.py).

Which narrations of a pool are about the task is a question of its own: the pool has a fixed size, and a corpus may tell
a task once or a thousand times. Here all vectors are centred by the mean of the corpus, which tells tasks of one field
apart. The fit of one narration is the mean of its p_j with the weights of `_FIT`. It is about the task where its fit is
above `LEAST_FIT` and at least `NEAR_BEST` of the best one's, which was found with MiniLM on half of the goals of the
world, of step lists and of speech (benchmarks/pool_size.py).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.artifacts import cache_folder, fingerprint, read_json, write_json
from recipe.corpus.near_copies import without_copies
from recipe.data.video_ids import VideoIds
from recipe.errors import InputError, RecipeError
from recipe.progress import SILENT, Progress
from recipe.reward.baselines import centred
from recipe.reward.embeddings import LruCache, NarrationIndex, Vectors
from recipe.reward.grounded import SimilarityBaseline
from recipe.rows import Text, Texts

Floats = NDArray[np.float64]
Embed = Callable[[Sequence[str]], Vectors]

RANKS = 50
"""Narrations that are found for the goal, and for the history."""
FEWEST_NARRATIONS = 8
"""Narrations of a corpus whose coverage can be measured."""
FLOOR, HIGHEST_FLOOR = 0.25, 0.45
"""Share of everyday tasks that a corpus is assumed not to know, and what a corpus that knows them all may ask."""
# Weights of the segment nearest to the goal, of the narration as a whole, of the segments nearest to the history.
_FIT = (1.0, 0.5, 0.5)
LEAST_FIT, NEAR_BEST = 0.5, 0.75
"""Fit above which a narration can be about a task, and the share of the best fit that it needs."""
# Prompts whose narrations are kept: those of all plans under way.
_PROMPTS_KEPT = 256
CoverageState = Literal["known", "partly", "unknown"]
LIMITS: dict[CoverageState, float] = {"partly": 0.20, "known": 0.30}
"""Fit from which on a prompt is in each state."""
_SENTENCES: dict[CoverageState, str] = {
    "known": "The corpus knows this task.",
    "partly": "The corpus knows this task in part.",
    "unknown": "The corpus does not know this task.",
}
# What follows for a plan that a model writes.
_FURTHER: dict[CoverageState, str] = {
    "known": "",
    "partly": " Read the evidence of each step.",
    "unknown": " The plan is a guess of the model, and nothing supports it.",
}


@dataclass(frozen=True)
class TaskPrompt:
    """A prompt of a task."""

    goal: Text
    history: Texts
    video_id: str = ""
    """Its video, which does not cover it; empty where it is not known."""

    @property
    def goals(self) -> Texts:
        """The goal, if there is one."""
        return (self.goal,) if self.goal.strip() else ()


class PromptCoverage(NamedTuple):
    """How far a corpus knows the task of a prompt."""

    fit: float
    """0 is what the corpus says of any task, 1 the task in the same words."""
    state: CoverageState

    @property
    def sentence(self) -> str:
        """The state in words."""
        return _SENTENCES[self.state]


def sentence_of_plan(covered: PromptCoverage | None) -> str:
    """What to know of a plan that a model writes for a prompt: how far the corpus knows its task, and what follows.

    None stands for a corpus that is too small to tell.
    """
    if covered is None:
        return f"The corpus has fewer than {FEWEST_NARRATIONS} narrations: nothing tells whether it knows this task."
    return f"{covered.sentence}{_FURTHER[covered.state]}"


class CorpusCoverage:
    """What one corpus knows. The first question also asks it for everyday tasks; of a folder, that answer is kept."""

    def __init__(self, corpus: NarrationIndex, embed: Embed, progress: Progress = SILENT) -> None:
        self._corpus, self._embed, self._progress = corpus, embed, progress
        self._about = LruCache[tuple[TaskPrompt, tuple[int, ...]], dict[int, float]](_PROMPTS_KEPT)

    @cached_property
    def _baseline(self) -> SimilarityBaseline:
        return SimilarityBaseline.of(self._corpus)

    @cached_property
    def _everyday(self) -> tuple[SimilarityBaseline, Floats]:
        """What centres texts by everyday tasks, and the floor of each part."""
        tasks, kept = everyday_tasks(), None
        if (manifest := getattr(self._corpus, "manifest", None)) is not None:
            asked = [[prompt.goal, *prompt.history] for prompt in tasks]
            name = fingerprint([manifest["id"], manifest["encoder"], RANKS, FLOOR, HIGHEST_FLOOR, asked])
            kept = cache_folder() / "coverage" / f"{name[:32]}.json"
            # Made again where it is not there or damaged.
            with suppress(RecipeError, KeyError, TypeError, ValueError):
                held = read_json(kept)
                mean, floors = np.array(held["mean"], np.float32), np.array(held["floors"], np.float64)
                if mean.shape == self._baseline.mean.shape and floors.shape == (len(_FIT),):
                    return replace(self._baseline, mean=mean), floors
        mean = self._embed([text for prompt in tasks for text in (prompt.goal, *prompt.history)]).mean(axis=0)
        baseline = replace(self._baseline, mean=mean)
        with self._progress.task("Ask the corpus for everyday tasks", len(tasks)) as advance:
            best = []
            for task, (steps, numbers) in zip(tasks, self._searched(tasks), strict=True):
                best.append(self._parts(baseline, task, steps, numbers).max(axis=1))
                advance(1)
        floors = np.minimum(np.quantile(best, FLOOR, axis=0), HIGHEST_FLOOR)
        if kept is not None:
            with suppress(OSError, RecipeError):  # a home that cannot be written to costs time and nothing else
                write_json(kept, {"mean": mean.tolist(), "floors": floors.tolist()})
        return baseline, floors

    def of(self, prompts: Sequence[TaskPrompt]) -> list[PromptCoverage | None]:
        """The coverage of each prompt, in order; None where the corpus has fewer than 8 narrations.

        Raises InputError for a prompt without any text.
        """
        if len(self._corpus) < FEWEST_NARRATIONS:
            return [None] * len(prompts)
        if any(not prompt.goals and not prompt.history for prompt in prompts):
            raise InputError("a prompt has neither a goal nor a step that is done; give one of them.")
        baseline, floors = self._everyday
        covered = list[PromptCoverage | None]()
        for prompt, (steps, numbers) in zip(prompts, self._searched(prompts), strict=True):
            fit, about = 0.0, False
            if numbers:
                floor = floors[[*(0, 1)[: 2 * len(prompt.goals)], *([2] if prompt.history else [])]]
                best = self._parts(baseline, prompt, steps, numbers).max(axis=1)
                fit = float(np.mean((best - floor) / (1.0 - floor)))
                about = bool(_fits(self._parts(self._baseline, prompt, steps, numbers)).max() >= LEAST_FIT)
            state: CoverageState = "unknown"
            if fit >= LIMITS["partly"]:
                state = "known" if about and fit >= LIMITS["known"] else "partly"
            covered.append(PromptCoverage(fit, state))
        return covered

    def narrations_about(self, prompt: TaskPrompt, pool: Sequence[int]) -> dict[int, float]:
        """The narrations of a pool that are about the task, each with its fit as a share of the best one's.

        Of near-copies the one that fits best stands for all. Empty for a prompt without any text.
        """
        numbers = sorted(set(pool))
        texts = [*prompt.goals, *prompt.history]
        if not texts or not numbers:
            return {}
        if (known := self._about.get((prompt, tuple(numbers)))) is not None:
            return known
        fit = _fits(self._parts(self._baseline, prompt, self._embed(texts), numbers))
        least = max(LEAST_FIT, NEAR_BEST * float(fit.max()))
        best = [k for k in np.argsort(-fit, kind="stable") if fit[k] >= least]
        narrations = [self._corpus.narration(numbers[k]) for k in best]
        distinct = without_copies([" ".join(segment.text for segment in own.segments) for own in narrations])
        about = {numbers[best[place]]: float(fit[best[place]] / fit.max()) for place in distinct}
        self._about.put((prompt, tuple(numbers)), about)
        return about

    def _searched(self, prompts: Sequence[TaskPrompt]) -> Iterator[tuple[Vectors, list[int]]]:
        """The vectors of each prompt's texts, and the narrations that these find, less those of its video."""
        searches = list(dict.fromkeys(steps for own in prompts for steps in (own.goals, own.history) if steps))
        texts = sorted({text for steps in searches for text in steps})
        vectors = dict(zip(texts, self._embed(texts), strict=True)) if texts else {}
        stacks = [np.stack([vectors[text] for text in steps]) for steps in searches]
        # One more than is needed, because the prompt's own video may be among them.
        hits = dict(zip(searches, self._corpus.search_batch(stacks, RANKS + 1), strict=True))
        for prompt in prompts:
            rankings = (hits[steps] for steps in (prompt.goals, prompt.history) if steps)
            numbers = sorted({hit.narration for ranked in rankings for hit in ranked})
            if prompt.video_id:
                own = VideoIds([prompt.video_id])
                numbers = [n for n in numbers if not own.may_be(self._corpus.narration(n).video_id)]
            yield np.stack([vectors[text] for text in (*prompt.goals, *prompt.history)]), numbers

    def _parts(
        self, baseline: SimilarityBaseline, prompt: TaskPrompt, steps: Vectors, numbers: Sequence[int]
    ) -> Floats:
        """The parts [P, N] that a prompt has, of its texts' vectors with some narrations."""
        x, goals = centred(steps, baseline.mean), len(prompt.goals)
        similarities, offsets = baseline.similarities(self._corpus, numbers, x)
        nearest = np.array([similarities[first:end].max(axis=0) for first, end in pairwise(offsets)])
        parts = list[Vectors]()
        if goals:
            whole = centred(np.stack([self._corpus.embeddings(n).mean(axis=0) for n in numbers]), baseline.mean)
            parts = [nearest[:, 0], whole @ x[0]]
        if prompt.history:
            parts.append(nearest[:, goals:].mean(axis=1))
        return np.array(parts, np.float64)


def _fits(parts: Floats) -> Floats:
    """The fit [N] of narrations, from their parts [P, N]."""
    return np.asarray(np.average(parts, axis=0, weights=_FIT[: len(parts)]))


@cache
def everyday_tasks() -> tuple[TaskPrompt, ...]:
    """Household and other everyday tasks of many fields, with steps that are done."""
    lines = files(__package__).joinpath("everyday_tasks.txt").read_text(encoding="utf-8").split("\n")
    rows = [[part.strip() for part in line.split("|")] for line in lines if line and not line.startswith("#")]
    return tuple(TaskPrompt(goal, tuple(history)) for _, goal, *history in rows)
