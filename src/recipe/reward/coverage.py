"""How far a corpus knows a task, in words that hold for any corpus, reward and size of pool (docs/audit.md).

A prompt is a goal and the steps s that are done. Narrations are searched for by the goal and by s, in turns, and
b_1 >= b_2 >= ... are the best values of B(s) / |s| among them (B as in `recipe.reward.grounded`); q is the mean over
random narrations. The statistic is the match, in which the i-th narration weighs 1 / i:

    match = (sum over i of (b_i - q) / i) / (sum over i of 1 / i)

How high a match is without any narration of the task depends on the corpus: speech says a little of everything. So the
mean of the matches of s and of the goal is compared with that of prompts that no corpus of everyday videos is about
(`foreign.txt`). Above 99% of these the corpus knows the task, above 90% it knows it in part. A corpus that does know
some of them would ask too much of others: no limit is further from their median than so many standard deviations, which
are estimated from the median absolute deviation.

Which narrations of a pool are about the task is a question of its own: the pool has a fixed size, and a corpus may tell
a task once or a thousand times. The fit of a narration with segments y_k to a goal g and a history of steps s_i is the
mean, with the weights of `_FIT`, of centred cosines

    max_k <g, y_k>,   <g, mean_k y_k>,   mean over i of max_k <s_i, y_k>

A narration is about the task where its fit is above `LEAST_FIT` and at least `NEAR_BEST` of the best one's, which was
found with MiniLM on half of the goals of the world, of step lists and of speech (benchmarks/pool_size.py).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.alignment import backends
from recipe.artifacts import cache_folder, fingerprint, read_json, write_json
from recipe.corpus.near_copies import without_copies
from recipe.data.video_ids import VideoIds
from recipe.errors import ComputeError, InputError, RecipeError
from recipe.progress import SILENT, Progress
from recipe.reward.baselines import centred
from recipe.reward.embeddings import LruCache, NarrationIndex, Vectors
from recipe.reward.grounded import SimilarityBaseline, calibrated
from recipe.rows import Text, Texts

Floats = NDArray[np.float64]
Embed = Callable[[Sequence[str]], Vectors]

RANKS = 50
"""Narrations that a sequence of steps is compared with."""
FAR = 40
"""Random narrations, which say what chance gives."""
FEWEST = 8
"""Narrations of a corpus whose coverage can be measured."""
_FIT = (1.0, 0.5, 0.5)
"""Weights of the segment nearest to the goal, of the narration as a whole, of the segments nearest to the history."""
LEAST_FIT, NEAR_BEST = 0.5, 0.75
"""Fit above which a narration can be about a task, and the share of the best fit that it needs."""
_PROMPTS_KEPT = 256
"""Prompts whose narrations are kept: those of all plans under way."""
CoverageState = Literal["known", "partly", "unknown"]
_LIMITS = {"partly": (0.90, 2.0), "known": (0.99, 4.0)}
"""Share of foreign prompts below each state, and the most standard deviations from their median."""
_NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
_SENTENCES: dict[CoverageState, str] = {
    "known": "The corpus knows this task.",
    "partly": "The corpus knows this task in part.",
    "unknown": "The corpus does not know this task.",
}
_FURTHER: dict[CoverageState, str] = {
    "known": "",
    "partly": " Read the evidence of each step.",
    "unknown": " The plan is a guess of the model, and nothing supports it.",
}
"""What follows for a plan that a model writes."""


@dataclass(frozen=True)
class TaskPrompt:
    """A prompt of a task."""

    goal: Text
    history: Texts
    video_id: str = ""
    """Its video, which does not cover it; empty where it is not known."""


class PromptCoverage(NamedTuple):
    """How far a corpus knows the task of a prompt."""

    match: float
    """The mean of the matches of goal and history, or of the one that is there."""
    state: CoverageState
    history_match: float | None = None
    """The match of the history alone, by which the coverage law predicts; None without a history."""

    @property
    def sentence(self) -> str:
        """The state in words."""
        return _SENTENCES[self.state]


def sentence_of_plan(covered: PromptCoverage | None) -> str:
    """What to know of a plan that a model writes for a prompt: how far the corpus knows its task, and what follows.

    None stands for a corpus that is too small to tell.
    """
    if covered is None:
        return f"The corpus has fewer than {FEWEST} narrations: nothing tells whether it knows this task."
    return f"{covered.sentence}{_FURTHER[covered.state]}"


class CorpusCoverage:
    """What one corpus knows. The first question also asks it for foreign prompts; of a folder, that answer is kept."""

    def __init__(self, corpus: NarrationIndex, embed: Embed, progress: Progress = SILENT) -> None:
        self._corpus, self._embed, self._progress = corpus, embed, progress
        self._limits: dict[str, dict[str, float]] = {}
        self._about = LruCache[tuple[TaskPrompt, tuple[int, ...]], dict[int, float]](_PROMPTS_KEPT)

    @cached_property
    def _baseline(self) -> SimilarityBaseline:
        return SimilarityBaseline.of(self._corpus)

    def of(self, prompts: Sequence[TaskPrompt]) -> list[PromptCoverage | None]:
        """The coverage of each prompt, in order; None where the corpus has fewer than 8 narrations.

        Raises InputError for a prompt without any text.
        """
        if len(self._corpus) < FEWEST:
            return [None] * len(prompts)
        if not self._limits:
            self._limits = self._known_limits()
        covered = list[PromptCoverage | None]()
        for prompt, (value, of_history) in zip(prompts, self._values(prompts), strict=True):
            limits = self._limits["both" if prompt.goal.strip() and prompt.history else "one"]
            state: CoverageState = "unknown"
            if value > limits["known"]:
                state = "known"
            elif value > limits["partly"]:
                state = "partly"
            covered.append(PromptCoverage(value, state, of_history))
        return covered

    def narrations_about(self, prompt: TaskPrompt, pool: Sequence[int]) -> dict[int, float]:
        """The narrations of a pool that are about the task, each with its fit as a share of the best one's.

        Of near-copies the one that fits best stands for all. Empty for a prompt without any text.
        """
        numbers = sorted(set(pool))
        goal = (prompt.goal,) if prompt.goal.strip() else ()
        texts = [*goal, *prompt.history]
        if not texts or not numbers:
            return {}
        if (known := self._about.get((prompt, tuple(numbers)))) is not None:
            return known
        x = centred(self._embed(texts), self._baseline.mean)
        similarities, offsets = self._baseline.similarities(self._corpus, numbers, x)
        nearest = np.array([similarities[first:end].max(axis=0) for first, end in pairwise(offsets)])
        parts = list[Vectors]()
        if goal:
            whole = centred(np.stack([self._corpus.embeddings(n).mean(axis=0) for n in numbers]), self._baseline.mean)
            parts = [nearest[:, 0], whole @ x[0]]
        if prompt.history:
            parts.append(nearest[:, len(goal) :].mean(axis=1))
        fit = np.average(parts, axis=0, weights=_FIT[: len(parts)])
        least = max(LEAST_FIT, NEAR_BEST * float(fit.max()))
        best = [k for k in np.argsort(-fit, kind="stable") if fit[k] >= least]
        narrations = [self._corpus.narration(numbers[k]) for k in best]
        distinct = without_copies([" ".join(segment.text for segment in own.segments) for own in narrations])
        about = {numbers[best[place]]: float(fit[best[place]] / fit.max()) for place in distinct}
        self._about.put((prompt, tuple(numbers)), about)
        return about

    def _values(self, prompts: Sequence[TaskPrompt]) -> list[tuple[float, float | None]]:
        """The mean of the matches of goal and history of each prompt, of which one may be empty, and the history's."""
        asked: list[TaskPrompt] = []
        owners: list[int] = []
        for number, prompt in enumerate(prompts):
            forms = [steps for steps in ((prompt.goal,) if prompt.goal.strip() else (), prompt.history) if steps]
            if not forms:
                raise InputError("a prompt has neither a goal nor a step that is done; give one of them.")
            asked += [TaskPrompt(prompt.goal, steps, prompt.video_id) for steps in forms]
            owners += [number] * len(forms)
        values = matches(self._corpus, asked, self._embed, progress=self._progress, baseline=self._baseline)
        sums = np.bincount(owners, values, len(prompts)) / np.bincount(owners, minlength=len(prompts))
        last = dict(zip(owners, values, strict=True))  # the history's comes after the goal's
        return [
            (float(value), last[number] if prompt.history else None)
            for number, (prompt, value) in enumerate(zip(prompts, sums, strict=True))
        ]

    def _known_limits(self) -> dict[str, dict[str, float]]:
        """The limits of prompts with a goal and a history, and of those with a goal alone."""
        manifest, kept = getattr(self._corpus, "manifest", None), None
        if manifest is not None:
            name = fingerprint([manifest["id"], manifest["encoder"], [[p.goal, *p.history] for p in foreign_prompts()]])
            kept = cache_folder() / "coverage" / f"{name[:32]}.json"
            # Made again where it is not there or damaged.
            with suppress(RecipeError, KeyError, TypeError, ValueError):
                held = read_json(kept)
                return {form: {state: float(held[form][state]) for state in _LIMITS} for form in ("both", "one")}
        foreign = foreign_prompts()
        limits = {
            form: _limits([value for value, _ in self._values(prompts)])
            for form, prompts in (("both", foreign), ("one", [TaskPrompt(prompt.goal, ()) for prompt in foreign]))
        }
        if kept is not None:
            with suppress(OSError, RecipeError):  # a home that cannot be written to costs time and nothing else
                write_json(kept, limits)
        return limits


@cache
def foreign_prompts() -> tuple[TaskPrompt, ...]:
    """Prompts that no corpus of everyday videos is about: law, surgery, finance, war, fables and nonsense."""
    lines = files(__package__).joinpath("foreign.txt").read_text(encoding="utf-8").split("\n")
    rows = [[part.strip() for part in line.split("|")] for line in lines if line and not line.startswith("#")]
    return tuple(TaskPrompt(goal, tuple(history)) for goal, *history in rows)


def _limits(foreign: Sequence[float]) -> dict[str, float]:
    """The match above which each state begins, from the matches of foreign prompts."""
    values = np.asarray(foreign, np.float64)
    median = float(np.median(values))
    spread = _NORMAL * float(np.median(np.abs(values - median)))
    return {
        state: min(float(np.quantile(values, share)), median + most * spread)
        for state, (share, most) in _LIMITS.items()
    }


def matches(
    corpus: NarrationIndex,
    prompts: Sequence[TaskPrompt],
    embed: Embed,
    seed: int = 0,
    progress: Progress = SILENT,
    baseline: SimilarityBaseline | None = None,
) -> list[float]:
    """The match of each prompt, in order; narrations of its own video are passed over. `seed` draws random narrations.

    `baseline` is that of the corpus, where it is at hand. Raises ComputeError for a corpus of fewer than 8 narrations.
    """
    if len(corpus) < FEWEST:
        raise ComputeError(f"A corpus of {len(corpus)} narrations is too small for this; {FEWEST} are needed.")
    queries = [((prompt.goal,) if prompt.goal.strip() else (), prompt.history) for prompt in prompts]
    searches = list(dict.fromkeys(steps for own in queries for steps in own if steps))
    texts = sorted({text for steps in searches for text in steps})
    vectors = dict(zip(texts, embed(texts), strict=True)) if texts else {}
    stacks = [np.stack([vectors[text] for text in steps]) for steps in searches]
    hits = dict(zip(searches, corpus.search_batch(stacks, RANKS + 1), strict=True))
    baseline, backend = baseline or SimilarityBaseline.of(corpus), backends.load("auto")
    order = np.random.default_rng(seed).permutation(len(corpus))
    videos = dict[int, str]()
    values = []
    with progress.task("Match narrations", len(prompts)) as advance:
        for prompt, own_queries in zip(prompts, queries, strict=True):
            turns = zip(*(hits[steps] for steps in own_queries if steps), strict=False)
            ranked = dict.fromkeys(hit.narration for turn in turns for hit in turn)
            others = list(ranked)
            far = [int(number) for number in order[: FAR + len(ranked) + 1] if int(number) not in ranked]
            if prompt.video_id:
                for number in (*others, *far):
                    if number not in videos:
                        videos[number] = corpus.narration(number).video_id
                own = VideoIds([prompt.video_id])
                others, far = ([n for n in numbers if not own.may_be(videos[n])] for numbers in (others, far))
            others, far = others[:RANKS], far[:FAR]
            x = centred(np.stack([vectors[step] for step in prompt.history]), baseline.mean)
            similarities, offsets = baseline.similarities(corpus, [*others, *far], x)
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
