"""The rewards of every audited continuation, controls, a greedy attack, and coverage by the corpus.

What cannot be computed is unscored, never zero.

The attack shows what a policy is drawn to. It grows a plan by whichever step, good or bad, raises the reward most. The
plan starts empty, may use a step again, and grows to three times the true length at most, or until two steps running
brought nothing; its best beginning is the attack. Of steps that raise the reward alike the true one is taken.

Coverage is a statistic of the corpus alone. The steps s of a whole procedure are matched with narrations one to one and
in order, with free gaps (B) and calibrated similarities (W), both those of `recipe.reward.grounded`:

    kappa(s) = (mean of B over the 10 narrations nearest to s - mean of B over 40 random ones) / |s|

A procedure's kappa is compared with those of 4 mixtures: as many steps, each from a procedure of another goal of the
same source. A corpus that knows single steps but no such procedure gives both alike.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random
from typing import Literal, NamedTuple, get_args

import numpy as np

from recipe.alignment import backends
from recipe.audit.perturb import AuditProcedure, AuditPrompt, Embed, Selection, same_goal
from recipe.errors import ComputeError
from recipe.progress import SILENT, Advance, Progress
from recipe.reward.embeddings import NarrationIndex, Vectors
from recipe.reward.grounded import SimilarityBaseline, calibrated
from recipe.reward.relevance import RelevanceScorer, centred
from recipe.reward.scorer import Outcome, PromptGroup, Scorer, Steps, batches, checked_outcomes, plain_reward
from recipe.types import Reward

PADDED = (0, 1, 2, 4, 8, 16)
"""Numbers of generic steps after the true continuation."""
LENGTH, RELEVANCE = "length", "relevance"
"""Names of the controls."""
Kind = Literal["true", "other goal", "filler", "paraphrased history", "history", "goal"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Where the steps of an attack come from, in the order in which equal rewards are decided."""
LONGEST = 3
"""Length of a plan at most, in true lengths."""
PATIENCE = 2
"""Steps that may bring nothing before the attack gives up: a gate makes rewards flat in places."""
_FILLERS = 8
_REWORDED = 4
"""Lines of the goal in other words that the attack may use, beside the goal itself."""
NEAR, FAR = 10, 40
"""Narrations that are nearest to a procedure, and random ones."""
MIXTURES = 4
"""Mixtures that a procedure is compared with."""
FEWEST = 8
"""Narrations of a corpus whose coverage can be measured."""


class NamedScorer(NamedTuple):
    """A reward under its name."""

    name: str
    scorer: Scorer


class ScoredPrompt(NamedTuple):
    """The rewards of one prompt's continuations."""

    prompt: AuditPrompt
    rewards: dict[str, Reward]
    """By the names of the prompt's variants."""
    padded: tuple[Reward, ...]
    """Of the true continuation with as many generic steps as `PADDED` says."""


class AuditScores(NamedTuple):
    """What one reward says of all prompts."""

    prompts: list[ScoredPrompt]
    unscored: list[str]
    """Why a prompt has no rewards, one sentence each."""
    seconds: float


def score_prompts(audited: NamedScorer, prompts: Sequence[AuditPrompt], progress: Progress = SILENT) -> AuditScores:
    """All continuations of each prompt; a prompt that a failure concerns is unscored."""
    began = time.perf_counter()
    scored, unscored = list[ScoredPrompt](), list[str]()
    waiting = iter(prompts)
    with progress.task(f"Audit {audited.name}", len(prompts)) as advance:
        for batch in batches([group_of(prompt) for prompt in prompts]):
            for outcomes in checked_outcomes(audited.scorer, batch):
                prompt = next(waiting)
                rewards = [outcome for outcome in outcomes if isinstance(outcome, Reward)]
                if len(rewards) < len(outcomes):
                    reason = next(outcome for outcome in outcomes if not isinstance(outcome, Reward))
                    unscored.append(f"{prompt.source}/{prompt.video_id}: {reason}")
                    continue
                names = list(prompt.variants)
                named = dict(zip(names, rewards, strict=False))
                scored.append(ScoredPrompt(prompt, named, tuple(rewards[len(names) :])))
            advance(len(batch))
    return AuditScores(scored, unscored, time.perf_counter() - began)


def group_of(prompt: AuditPrompt) -> PromptGroup:
    """All continuations that are scored for a prompt: its variants, then the true one with generic steps."""
    padded = [prompt.true + prompt.padding[:count] for count in PADDED]
    return PromptGroup(prompt.goal, prompt.history, [*prompt.variants.values(), *padded])


class LengthScorer:
    """The number of steps as the reward."""

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        """|c| of each plan."""
        return [[plain_reward(float(len(plan)), len(plan)) for plan in group.plans] for group in groups]


def controls(prompts: Sequence[AuditPrompt], embed: Embed) -> list[NamedScorer]:
    """The rewards that read no corpus: `length`, and R0 as `relevance`, centred by the mean of the procedures' distinct
    steps. What a reward gains over them is what it verifies.
    """
    steps = sorted({step for prompt in prompts for step in (*prompt.history, *prompt.true)})
    mean = np.asarray(embed(steps).mean(axis=0), dtype=np.float32)
    return [NamedScorer(LENGTH, LengthScorer()), NamedScorer(RELEVANCE, RelevanceScorer(embed, mean))]


class AttackPlan(NamedTuple):
    """The plan that the attack ends with."""

    prompt: AuditPrompt
    steps: Steps
    kinds: tuple[Kind, ...]
    """Where each step comes from."""
    reward: float
    true_reward: float
    """Of the true continuation."""

    @property
    def repeated(self) -> int:
        """Steps that the plan already holds."""
        return len(self.steps) - len(set(self.steps))


def attack_prompts(
    audited: NamedScorer, prompts: Sequence[AuditPrompt], count: int, progress: Progress = SILENT
) -> list[AttackPlan]:
    """The attack on `count` prompts, spread evenly; those that cannot be computed are left out."""
    chosen = spread(prompts, count)
    with progress.task(f"Attack {audited.name}", len(chosen)) as advance:
        return attack(audited.scorer, chosen, advance)


def spread(prompts: Sequence[AuditPrompt], count: int) -> list[AuditPrompt]:
    """`count` of the prompts at even distances, all where there are fewer."""
    count = min(count, len(prompts))
    return [prompts[i * len(prompts) // count] for i in range(count)]


def attack(scorer: Scorer, prompts: Sequence[AuditPrompt], advance: Advance = lambda _: None) -> list[AttackPlan]:
    """The greedy optimum for each prompt that can be scored; all plans grow together, so that each round is one call.

    `advance` counts the prompts that are finished.
    """
    running = [_Attack(prompt) for prompt in prompts]
    attacks = running
    while running:
        outcomes = checked_outcomes(scorer, [one.group() for one in running])
        for one, own in zip(running, outcomes, strict=True):
            one.choose(own)
        left = [one for one in running if one.goes_on]
        advance(len(running) - len(left))
        running = left
    return [one.result() for one in attacks if not one.failed]


class _Attack:
    """The attack on one prompt: the plan so far, and the best beginning of it."""

    def __init__(self, prompt: AuditPrompt) -> None:
        self.prompt, self.failed = prompt, False
        self._vocabulary = mixed_vocabulary(prompt)
        self._plan: Steps = ()
        self._best: Steps = ()
        self._rewards: tuple[float, float] | None = None
        """Of the best beginning, and of the true continuation."""

    @property
    def goes_on(self) -> bool:
        limit = min(LONGEST * len(self.prompt.true), len(self._best) + PATIENCE + 1)
        return not self.failed and len(self._plan) < limit

    def group(self) -> PromptGroup:
        """The plans of the next round: no steps and the true continuation first, then the plan with each step."""
        plans = [(), self.prompt.true] if self._rewards is None else self._grown()
        return PromptGroup(self.prompt.goal, self.prompt.history, plans)

    def choose(self, outcomes: Sequence[Outcome]) -> None:
        """Take the plan with the highest reward; the first of equals."""
        totals = [outcome.total for outcome in outcomes if isinstance(outcome, Reward)]
        if len(totals) < len(outcomes):
            self.failed = True
        elif self._rewards is None:
            self._rewards = totals[0], totals[1]
        else:
            highest = max(totals)
            self._plan = self._grown()[totals.index(highest)]
            if highest > self._rewards[0]:
                self._best, self._rewards = self._plan, (highest, self._rewards[1])

    def result(self) -> AttackPlan:
        kinds = tuple(self._vocabulary[step] for step in self._best)
        reward, true = self._rewards or (0.0, 0.0)
        return AttackPlan(self.prompt, self._best, kinds, reward, true)

    def _grown(self) -> list[Steps]:
        return [(*self._plan, step) for step in self._vocabulary]


def mixed_vocabulary(prompt: AuditPrompt) -> dict[str, Kind]:
    """Steps with their kinds; a text that occurs in several is of the first."""
    vocabulary: dict[str, Kind] = {}
    for step, kind in _sources(prompt):
        vocabulary.setdefault(step, kind)
    return vocabulary


def _sources(prompt: AuditPrompt) -> Iterator[tuple[str, Kind]]:
    foreign = prompt.variants.get("offgoal", ())
    paraphrased = prompt.variants.get("paraphrased_history", ())[: len(prompt.history)]
    yield from ((step, "true") for step in prompt.true)
    yield from ((step, "other goal") for step in foreign)
    yield from ((step, "filler") for step in prompt.padding[:_FILLERS])
    yield from ((step, "paraphrased history") for step in paraphrased)
    yield from ((step, "history") for step in prompt.history)
    if prompt.edition != "v1":
        yield from ((step, "goal") for step in (prompt.goal, *prompt.variants["goal_reworded"][:_REWORDED]))


def composition(attacked: Sequence[AttackPlan]) -> dict[Kind, float]:
    """Share of each kind among all steps of the plans; empty where the plans hold none."""
    counts = Counter(kind for one in attacked for kind in one.kinds)
    total = counts.total()
    kinds = [kind for kind in KINDS if kind != "goal" or any(one.prompt.edition != "v1" for one in attacked)]
    return {kind: counts[kind] / total for kind in kinds} if total else {}


class ProcedureCoverage(NamedTuple):
    """How far the corpus covers one procedure, and mixtures in its place."""

    performed: AuditProcedure
    kappa: float
    mixed: tuple[float, ...]
    """kappa of each mixture."""

    @property
    def wins(self) -> float:
        """Share of mixtures that are covered less than the procedure, those covered alike as halves."""
        return sum((self.kappa > one) + 0.5 * (self.kappa == one) for one in self.mixed) / len(self.mixed)


def corpus_coverage(
    corpus: NarrationIndex, selection: Selection, embed: Embed, seed: int = 0, progress: Progress = SILENT
) -> list[ProcedureCoverage]:
    """kappa of each audited procedure and of its mixtures; where a source has one goal only, there are no mixtures and
    its procedures are left out.

    Raises ComputeError for a corpus of fewer than 8 narrations: near and random ones would be the same.
    """
    if len(corpus) < FEWEST:
        raise ComputeError(
            f"a corpus of {len(corpus)} narrations is too small to measure its coverage; {FEWEST} are needed."
        )
    mixtures = mixed_steps(selection, seed)
    if not mixtures:
        return []
    sequences = [steps for one, mixed in mixtures.items() for steps in (one.steps, *mixed)]
    distinct = sorted({step for steps in sequences for step in steps})
    vectors = dict(zip(distinct, embed(distinct), strict=True))
    matching = _Matching(corpus, np.mean(list(vectors.values()), axis=0), seed)
    queries = [np.stack([vectors[step] for step in steps]) for steps in sequences]
    nearest = corpus.search_batch(queries, min(NEAR, len(corpus) // 4))
    kappas = []
    with progress.task("Cover procedures", len(sequences)) as advance:
        for query, hits in zip(queries, nearest, strict=True):
            kappas.append(matching.kappa(query, [hit.narration for hit in hits]))
            advance(1)
    rest = iter(kappas)
    return [ProcedureCoverage(one, next(rest), tuple(islice(rest, MIXTURES))) for one in mixtures]


def mixed_steps(selection: Selection, seed: int = 0) -> dict[AuditProcedure, list[Steps]]:
    """For each audited procedure 4 mixtures: as many steps, each of a procedure of its source with another goal.

    Procedures of a source with one goal only are left out.
    """
    by_goal: dict[str, dict[str, list[AuditProcedure]]] = {}
    for one in selection.usable:
        by_goal.setdefault(one.source, {}).setdefault(same_goal(one.goal), []).append(one)
    mixtures = {}
    for one in selection.audited:
        random = Random("/".join((str(seed), one.source, one.video_id, "mixed")))
        others = [videos for goal, videos in by_goal[one.source].items() if goal != same_goal(one.goal)]
        if foreign := [video for videos in others for video in videos]:
            mixed = (tuple(random.choice(random.choice(foreign).steps) for _ in one.steps) for _ in range(MIXTURES))
            mixtures[one] = list(mixed)
    return mixtures


class _Matching:
    """kappa against one corpus."""

    def __init__(self, corpus: NarrationIndex, mean: Vectors, seed: int) -> None:
        self._corpus, self._mean = corpus, mean
        self._baseline = SimilarityBaseline.of(corpus)
        self._backend = backends.load("auto")
        self._order = np.random.default_rng(seed).permutation(len(corpus))
        self._kept: dict[int, Vectors] = {}

    def kappa(self, steps: Vectors, near: Sequence[int]) -> float:
        """Of steps [M, d] whose nearest narrations are `near`."""
        far = [int(index) for index in self._order[: FAR + len(near)] if int(index) not in near][:FAR]
        narrations = [self._segments(index) for index in (*near, *far)]
        x = centred(steps, self._mean)
        W = calibrated(np.concatenate(narrations) @ x.T, self._baseline.floors(x))
        offsets = np.cumsum([0, *map(len, narrations)])
        matched = self._backend.grouped_free_alignment(W, [0, len(steps)], offsets).matched[1]
        return float(matched[: len(near)].mean() - matched[len(near) :].mean()) / len(steps)

    def _segments(self, index: int) -> Vectors:
        """Centred segments of a narration; kept, because the random narrations are the same for all."""
        if index not in self._kept:
            self._kept[index] = centred(self._corpus.embeddings(index), self._baseline.mean)
        return self._kept[index]
