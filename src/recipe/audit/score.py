"""The rewards of every audited continuation, controls, shares of wins, and coverage by the corpus.

What cannot be computed is unscored, never zero.

A share is P(true > corrupted) with ties half: by class, by group and over classes. MEAN is the mean of the classes'
shares; the same number is a mean over prompts of each prompt's weighted wins, and that is what its interval resamples.

Coverage is a statistic of the corpus alone. The steps s of a whole procedure are matched with narrations one to one and
in order, with free gaps (B) and calibrated similarities (W), both those of `recipe.reward.grounded`:

    kappa(s) = (mean of B over the 10 narrations nearest to s - mean of B over 40 random ones) / |s|

A procedure's kappa is compared with those of 4 mixtures: as many steps, each from a procedure of another goal of the
same source. A corpus that knows single steps but no such procedure gives both alike.
"""

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.alignment import backends
from recipe.audit.classes import CORRUPTIONS, GROUP_OF, GROUPS, Group
from recipe.audit.perturb import TRUE, AuditProcedure, AuditPrompt, Embed, Selection
from recipe.errors import ComputeError
from recipe.progress import SILENT, Progress
from recipe.reward.baselines import RelevanceScorer, centred
from recipe.reward.coverage import FEWEST_NARRATIONS
from recipe.reward.embeddings import NarrationIndex, Vectors
from recipe.reward.grounded import SimilarityBaseline, calibrated
from recipe.reward.scorer import PromptGroup, Scorer, Steps, batches, outcomes_of, plain_reward
from recipe.stats import Interval, mean_interval
from recipe.text import same_goal
from recipe.types import Reward

Array = NDArray[np.float64]

PADDED = (0, 1, 2, 4, 8, 16)
"""Numbers of generic steps after the true continuation."""
LENGTH, RELEVANCE = "length", "relevance"
"""Names of the controls."""
NEAREST_NARRATIONS = 10
"""Narrations that are nearest to a procedure."""
RANDOM_NARRATIONS = 40
"""Random narrations, which say what chance gives."""
MIXTURES = 4
"""Mixtures that a procedure is compared with."""
TIE = 1e-6
"""Rewards that are no further apart, also in proportion, are equal: so much is rounding, which differs by processor."""


Key = tuple[str, str]
"""Source and video id of a prompt."""


class NamedScorer(NamedTuple):
    """A reward under its name."""

    name: str
    scorer: Scorer
    caution: str = ""
    """What a reader must know of it before its figures."""

    def score(self, prompts: Sequence[AuditPrompt], progress: Progress = SILENT) -> "AuditScores":
        """All continuations of each prompt; a prompt that a failure concerns is unscored."""
        began = time.perf_counter()
        groups = []
        for prompt in prompts:
            padded = [prompt.true + prompt.padding[:count] for count in PADDED]
            sampled = [plan for plans in prompt.samples.values() for plan in plans]
            groups.append(PromptGroup(prompt.goal, prompt.history, [*prompt.variants.values(), *padded, *sampled]))
        scored, unscored = list[ScoredPrompt](), list[str]()
        waiting = iter(prompts)
        with progress.task(f"Audit {self.name}", len(prompts)) as advance:
            for batch in batches(groups):
                for outcomes in outcomes_of(self.scorer, batch):
                    prompt = next(waiting)
                    made = outcomes[: len(prompt.variants) + len(PADDED)]
                    rewards = [outcome for outcome in made if isinstance(outcome, Reward)]
                    if len(rewards) < len(made):
                        reason = next(outcome for outcome in made if not isinstance(outcome, Reward))
                        unscored.append(f"{prompt.source}/{prompt.video_id}: {reason}")
                        continue
                    names = list(prompt.variants)
                    named = dict(zip(names, rewards, strict=False))
                    rest = (outcome if isinstance(outcome, Reward) else None for outcome in outcomes[len(made) :])
                    samples = {system: list(islice(rest, len(plans))) for system, plans in prompt.samples.items()}
                    scored.append(ScoredPrompt(prompt, named, tuple(rewards[len(names) :]), samples))
                advance(len(batch))
        return AuditScores(scored, unscored, time.perf_counter() - began)


class ScoredPrompt(NamedTuple):
    """The rewards of one prompt's continuations."""

    prompt: AuditPrompt
    rewards: dict[str, Reward]
    """By the names of the prompt's variants."""
    padded: tuple[Reward, ...]
    """Of the true continuation with as many generic steps as `PADDED` says."""
    samples: dict[str, list[Reward | None]]
    """Of each system's samples for the prompt; None for a sample that could not be scored."""

    @property
    def key(self) -> Key:
        """What identifies the prompt."""
        return self.prompt.source, self.prompt.video_id


class AuditScores(NamedTuple):
    """What one reward says of all prompts."""

    prompts: list[ScoredPrompt]
    unscored: list[str]
    """Why a prompt has no rewards, one sentence each."""
    seconds: float


class LengthScorer:
    """The number of steps as the reward."""

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        """|c| of each plan."""
        return [[plain_reward(float(len(plan)), len(plan)) for plan in group.plans] for group in groups]


def controls(prompts: Sequence[AuditPrompt], embed: Embed) -> list[NamedScorer]:
    """The rewards that read no corpus: `length`, and R0 as `relevance`, centred by the mean of the procedures' distinct
    steps. What a reward gains over them is what it verifies.
    """
    # Sorted, because a sum in another order rounds otherwise.
    steps = sorted({step for prompt in prompts for step in (*prompt.history, *prompt.true)})
    mean = np.asarray(embed(steps).mean(axis=0), dtype=np.float32)
    return [NamedScorer(LENGTH, LengthScorer()), NamedScorer(RELEVANCE, RelevanceScorer(embed, mean))]


def wins(true: float, other: float) -> float:
    """1 where the true continuation earns more, 0 where less, 1/2 where as much.

    >>> wins(0.3, 0.1), wins(0.2, 0.2), wins(0.2, 0.20000001)
    (1.0, 0.5, 0.5)
    """
    # A half, so that a reward that tells nothing has 50 and not 0.
    return 0.5 if math.isclose(true, other, rel_tol=TIE, abs_tol=TIE) else float(true > other)


def win_table(prompts: Sequence[ScoredPrompt], names: Collection[str] = CORRUPTIONS) -> Array:
    """Wins of the true continuation [prompts, classes]; NaN where a prompt has no such corruption."""
    table = np.full((len(prompts), len(names)), np.nan)
    for row, prompt in enumerate(prompts):
        for column, name in enumerate(names):
            if name in prompt.rewards:
                table[row, column] = wins(prompt.rewards[TRUE].total, prompt.rewards[name].total)
    return table


def prompt_means(table: Array) -> Array:
    """Values [prompts] whose mean is the mean over classes of the classes' means.

    >>> prompt_means(np.array([[1.0, 0.0], [1.0, np.nan]])).mean()
    np.float64(0.5)
    """
    known = np.isfinite(table)
    sizes = known.sum(axis=0)
    present = sizes > 0
    # Every class weighs the same, however many prompts have it.
    weights = len(table) / (present.sum() * np.maximum(sizes, 1))
    return np.asarray((np.where(known, table, 0.0) * weights).sum(axis=1), dtype=np.float64)


def group_means(table: Array, goals: Sequence[str]) -> dict[Group, Interval]:
    """The mean over the classes of each group that has any."""
    means = {}
    for group in GROUPS:
        own = table[:, [GROUP_OF[name] == group for name in CORRUPTIONS]]
        if np.isfinite(own).any():
            means[group] = mean_interval(prompt_means(own), goals)
    return means


def known_share(values: Sequence[float] | Array, goals: Sequence[str]) -> Interval | None:
    """The mean of what is known; None where nothing is."""
    known = [(value, goal) for value, goal in zip(values, goals, strict=True) if np.isfinite(value)]
    return mean_interval([value for value, _ in known], [goal for _, goal in known]) if known else None


def paired_difference(scored: Sequence[ScoredPrompt], baseline: Sequence[ScoredPrompt]) -> Interval | None:
    """MEAN less the baseline's, on the prompts that both scored."""
    common = {prompt.key for prompt in scored} & {prompt.key for prompt in baseline}
    if not common:
        return None
    first, second = ([prompt for prompt in prompts if prompt.key in common] for prompts in (scored, baseline))
    # Paired: both rewards judge the same prompts, whose difficulty falls out of the difference.
    gains = prompt_means(win_table(first)) - prompt_means(win_table(second))
    return mean_interval(gains, [same_goal(scored.prompt.goal) for scored in first])


def in_percent(share: Interval) -> Interval:
    """A share, or a difference of shares, in percent points."""
    low, high = (None if end is None else 100 * end for end in (share.low, share.high))
    return replace(share, mean=100 * share.mean, low=low, high=high)


def percent(share: float) -> str:
    """A share in percent without the sign, to the nearest whole number.

    >>> percent(0.553)
    '55'
    """
    return f"{100 * share:.0f}"


def bounds(share: Interval) -> str:
    """The 95% interval of a share in brackets, or why there is none.

    >>> bounds(Interval(0.5, 0.452, 0.61)), bounds(Interval(0.5, reason="one cluster"))
    (' [45, 61]', ' (no interval: one cluster)')
    """
    if share.low is None or share.high is None:
        return f" (no interval: {share.reason})" if share.reason else ""
    return f" [{percent(share.low)}, {percent(share.high)}]"


class ProcedureCoverage(NamedTuple):
    """How far the corpus covers one procedure, and mixtures in its place."""

    performed: AuditProcedure
    kappa: float
    mixed: tuple[float, ...]
    """kappa of each mixture."""

    @property
    def wins(self) -> float:
        """The share of the mixtures that are covered less, those covered alike as halves."""
        return float(np.mean([wins(self.kappa, kappa) for kappa in self.mixed]))


def corpus_coverage(
    corpus: NarrationIndex, selection: Selection, embed: Embed, seed: int = 0, progress: Progress = SILENT
) -> list[ProcedureCoverage]:
    """kappa of each audited procedure and of its mixtures; where a source has one goal only, there are no mixtures and
    its procedures are left out.

    Raises ComputeError for a corpus of fewer than 8 narrations: near and random ones would be the same.
    """
    if len(corpus) < FEWEST_NARRATIONS:
        raise ComputeError(
            f"a corpus of {len(corpus)} narrations is too small to measure its coverage; it takes {FEWEST_NARRATIONS}."
        )
    # Of each audited procedure 4 mixtures: as many steps, each of a procedure of its source with another goal.
    by_goal: dict[str, dict[str, list[AuditProcedure]]] = {}
    for procedure in selection.usable:
        by_goal.setdefault(procedure.source, {}).setdefault(same_goal(procedure.goal), []).append(procedure)
    mixtures: dict[AuditProcedure, list[Steps]] = {}
    for procedure in selection.audited:
        random = procedure.random(seed, "mixed")
        others = [videos for goal, videos in by_goal[procedure.source].items() if goal != same_goal(procedure.goal)]
        if foreign := [video for videos in others for video in videos]:
            mixtures[procedure] = [
                tuple(random.choice(random.choice(foreign).steps) for _ in procedure.steps) for _ in range(MIXTURES)
            ]
    if not mixtures:
        return []
    sequences = [steps for procedure, mixed in mixtures.items() for steps in (procedure.steps, *mixed)]
    distinct = sorted({step for steps in sequences for step in steps})
    vectors = dict(zip(distinct, embed(distinct), strict=True))
    mean = np.mean(list(vectors.values()), axis=0)
    queries = [np.stack([vectors[step] for step in steps]) for steps in sequences]
    # Of a small corpus ten would be most of it, and what is left would be no chance to compare with.
    nearest = corpus.search_batch(queries, min(NEAREST_NARRATIONS, len(corpus) // 4))
    baseline, backend = SimilarityBaseline.of(corpus), backends.load("auto")
    # The same random narrations for all, so that their chance is the same for a procedure and its mixtures.
    order = np.random.default_rng(seed).permutation(len(corpus))
    # Centred segments of narrations; kept, because the random narrations are the same for all.
    segments: dict[int, Vectors] = {}
    kappas = []
    with progress.task("Cover procedures", len(sequences)) as advance:
        for query, hits in zip(queries, nearest, strict=True):
            # Ten and not one: a single chance match would count as coverage.
            near = [hit.narration for hit in hits]
            far = [int(index) for index in order[: RANDOM_NARRATIONS + len(near)] if int(index) not in near][
                :RANDOM_NARRATIONS
            ]
            for index in (*near, *far):
                if index not in segments:
                    segments[index] = centred(corpus.embeddings(index), baseline.mean)
            narrations = [segments[index] for index in (*near, *far)]
            x = centred(query, mean)
            W = calibrated(np.concatenate(narrations) @ x.T, baseline.floors(x))
            offsets = np.cumsum([0, *map(len, narrations)])
            # kappa(s) of the docstring above: B by the free matching of the grounded reward, per step.
            matched = backend.grouped_free_alignment(W, [0, len(query)], offsets).matched[1]
            kappas.append(float(matched[: len(near)].mean() - matched[len(near) :].mean()) / len(query))
            advance(1)
    rest = iter(kappas)
    return [ProcedureCoverage(performed, next(rest), tuple(islice(rest, MIXTURES))) for performed in mixtures]
