"""The rewards of every audited continuation, controls, a greedy attack, and coverage by the corpus."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Literal, NamedTuple, get_args

import numpy as np

from recipe.alignment import backends
from recipe.audit.perturb import AuditPrompt, Embed, Performed, Selection, same_goal
from recipe.errors import ComputeError, CorpusError
from recipe.progress import SILENT, Progress
from recipe.reward.embeddings import Vectors
from recipe.reward.grounded import Landscape, calibrated
from recipe.reward.method import NarrationIndex
from recipe.reward.relevance import RelevanceScorer, centred
from recipe.reward.scorer import Prefetch, PromptGroup, Scorer, Steps
from recipe.types import Reward

# The rewards of every audited continuation; what cannot be computed is unscored, never zero.


PADDED = (0, 1, 2, 4, 8, 16)
"""Numbers of generic steps after the true continuation."""

_TOGETHER = 2_000
"""Plans prepared in one call: fewer than the pools that a verifier remembers."""


class Audited(NamedTuple):
    """A reward under its name, and what prepares it for many prompts at once, for example `Verifier.prepare`."""

    name: str
    scorer: Scorer
    prepare: Prefetch | None = None


class ScoredPrompt(NamedTuple):
    """The rewards of one prompt's continuations."""

    prompt: AuditPrompt
    rewards: dict[str, Reward]
    """By the names of the prompt's variants."""
    padded: tuple[Reward, ...]
    """Of the true continuation with as many generic steps as `PADDED` says."""


class Scored(NamedTuple):
    """What one reward says of all prompts."""

    prompts: list[ScoredPrompt]
    unscored: list[str]
    """Why a prompt has no rewards, one sentence each."""
    seconds: float
    """Preparing and scoring."""


def score_prompts(audited: Audited, prompts: Sequence[AuditPrompt], progress: Progress = SILENT) -> Scored:
    """All continuations of each prompt in one call of the scorer; a prompt that cannot be computed is unscored."""
    began = time.perf_counter()
    scored = Scored([], [], 0.0)
    with progress.task(f"Audit {audited.name}", len(prompts)) as advance:
        for batch in _batches(prompts):
            _prepare(audited.prepare, batch)
            for prompt in batch:
                try:
                    scored.prompts.append(_score(audited.scorer, prompt))
                except (ComputeError, CorpusError) as error:
                    scored.unscored.append(f"{prompt.source}/{prompt.video_id}: {error}")
                advance(1)
    return scored._replace(seconds=time.perf_counter() - began)


def group_of(prompt: AuditPrompt) -> PromptGroup:
    """All continuations that are scored for a prompt: its variants, then the true one with generic steps."""
    padded = [prompt.true + prompt.padding[:count] for count in PADDED]
    return PromptGroup(prompt.goal, prompt.history, [*prompt.variants.values(), *padded])


def checked_rewards(scorer: Scorer, history: Steps, plans: Sequence[Steps], goal: str) -> list[Reward]:
    """The rewards of one prompt's plans. Raises ComputeError also where one is not finite."""
    rewards = scorer.score(history, plans, goal)
    if len(rewards) != len(plans):
        raise ComputeError(f"{len(plans)} plans got {len(rewards)} rewards; the scorer must give one each.")
    if not all(math.isfinite(reward.total) for reward in rewards):
        raise ComputeError("a reward is not finite; check the scorer.")
    return rewards


def _score(scorer: Scorer, prompt: AuditPrompt) -> ScoredPrompt:
    rewards = checked_rewards(scorer, prompt.history, group_of(prompt).plans, prompt.goal)
    names = list(prompt.variants)
    return ScoredPrompt(prompt, dict(zip(names, rewards, strict=False)), tuple(rewards[len(names) :]))


def _prepare(prepare: Callable[[Sequence[PromptGroup]], object] | None, batch: Sequence[AuditPrompt]) -> None:
    if prepare is not None:
        with suppress(ComputeError, CorpusError):  # the prompt that is concerned meets the failure again
            prepare([group_of(prompt) for prompt in batch])


def _batches(prompts: Sequence[AuditPrompt]) -> Iterator[list[AuditPrompt]]:
    batch, plans = list[AuditPrompt](), 0
    for prompt in prompts:
        batch.append(prompt)
        plans += len(prompt.variants) + len(PADDED)
        if plans >= _TOGETHER:
            yield batch
            batch, plans = [], 0
    if batch:
        yield batch


# Controls that read no corpus: what a reward gains over them is what it verifies.


LENGTH, RELEVANCE = "length", "relevance"


class LengthScorer:
    """The number of steps as the reward; any other function of it has the same mean over the classes, 50%."""

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        """|c| of each continuation."""
        return [Reward(float(len(plan)), 0.0, 0.0, 0.0, False, len(plan), (), None) for plan in continuations]


def controls(prompts: Sequence[AuditPrompt], embed: Embed) -> list[Audited]:
    """`length`, and R0 as `relevance`, centred by the mean of the procedures' distinct steps."""
    steps = sorted({step for prompt in prompts for step in (*prompt.history, *prompt.true)})
    mean = np.asarray(embed(steps).mean(axis=0), dtype=np.float32)

    def prepare(groups: Sequence[PromptGroup]) -> None:
        embed([text for group in groups for text in (group.goal, *group.steps)])

    return [Audited(LENGTH, LengthScorer()), Audited(RELEVANCE, RelevanceScorer(embed, mean), prepare)]


# A greedy attack: a plan grown by whichever step raises the reward most, from steps good and bad.
#
# It shows what a policy is drawn to. The plan starts empty, may use a step again, and grows to three times the true
# length at most, or until two steps running brought nothing; its best beginning is the attack. Of steps that raise the
# reward alike the true one is taken.


Kind = Literal["true", "other goal", "filler", "paraphrased history", "history"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Where the steps of an attack come from, in the order in which equal rewards are decided."""

LONGEST = 3
"""Length of a plan at most, in true lengths."""
PATIENCE = 2
"""Steps that may bring nothing before the attack gives up: a gate makes rewards flat in places."""
_FILLERS = 8


class Attacked(NamedTuple):
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
    audited: Audited, prompts: Sequence[AuditPrompt], count: int, progress: Progress = SILENT
) -> list[Attacked]:
    """The attack on `count` prompts, spread evenly; those that cannot be computed are left out."""
    chosen = spread(prompts, count)
    found = []
    with progress.task(f"Attack {audited.name}", len(chosen)) as advance:
        for prompt in chosen:
            try:
                found.append(attack(audited.scorer, prompt))
            except (ComputeError, CorpusError):
                continue
            finally:
                advance(1)
    return found


def spread(prompts: Sequence[AuditPrompt], count: int) -> list[AuditPrompt]:
    """`count` of the prompts at even distances, all where there are fewer."""
    count = min(count, len(prompts))
    return [prompts[i * len(prompts) // count] for i in range(count)]


def attack(scorer: Scorer, prompt: AuditPrompt) -> Attacked:
    """The greedy optimum for one prompt. Raises ComputeError, CorpusError."""
    vocabulary = mixed_vocabulary(prompt)
    start, truth = checked_rewards(scorer, prompt.history, [(), prompt.true], prompt.goal)
    plan: Steps = ()
    best, highest = plan, start.total
    while len(plan) < min(LONGEST * len(prompt.true), len(best) + PATIENCE + 1):
        grown = [(*plan, step) for step in vocabulary]
        totals = [reward.total for reward in checked_rewards(scorer, prompt.history, grown, prompt.goal)]
        plan = grown[totals.index(max(totals))]
        if max(totals) > highest:
            best, highest = plan, max(totals)
    return Attacked(prompt, best, tuple(vocabulary[step] for step in best), highest, truth.total)


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


def composition(attacked: Sequence[Attacked]) -> dict[Kind, float]:
    """Share of each kind among all steps of the plans; empty where the plans hold none."""
    counts = Counter(kind for one in attacked for kind in one.kinds)
    total = counts.total()
    return {kind: counts[kind] / total for kind in KINDS} if total else {}


# Does the corpus know these procedures? Their steps against as many steps mixed from other goals.
#
# The steps s of a whole procedure are matched with narrations one to one and in order, with free gaps (B) and
# calibrated similarities (W), both those of the grounded reward (`recipe.reward.grounded`). The statistic is
#
#     kappa(s) = (mean of B over the 10 narrations nearest to s - mean of B over 40 random ones) / |s|,
#
# and a procedure's kappa is compared with those of 4 mixtures: as many steps, each from a procedure of another goal of
# the same source. A corpus that knows single steps but no such procedure gives both alike.


NEAR, FAR = 10, 40
"""Narrations that are nearest to a procedure, and random ones."""
MIXTURES = 4
"""Mixtures that a procedure is compared with."""
FEWEST = 8
"""Narrations of a corpus whose coverage can be told."""


class Covered(NamedTuple):
    """How far the corpus covers one procedure, and mixtures in its place."""

    performed: Performed
    kappa: float
    mixed: tuple[float, ...]
    """kappa of each mixture."""

    @property
    def wins(self) -> float:
        """Share of mixtures that are covered less than the procedure, those covered alike as halves."""
        return sum((self.kappa > one) + 0.5 * (self.kappa == one) for one in self.mixed) / len(self.mixed)


def corpus_coverage(
    corpus: NarrationIndex, selection: Selection, embed: Embed, seed: int = 0, progress: Progress = SILENT
) -> list[Covered]:
    """kappa of each audited procedure and of its mixtures; where a source has one goal only, there are no mixtures and
    its procedures are left out.

    Raises ComputeError for a corpus of fewer than 8 narrations: near and random ones cannot be told apart.
    """
    if len(corpus) < FEWEST:
        raise ComputeError(
            f"a corpus of {len(corpus)} narrations is too small to tell its coverage; {FEWEST} are needed."
        )
    mixtures = mixed_steps(selection, seed)
    if not mixtures:
        return []
    sequences = [steps for one, mixed in mixtures.items() for steps in (one.steps, *mixed)]
    distinct = sorted({step for steps in sequences for step in steps})
    vectors = dict(zip(distinct, embed(distinct), strict=True))
    matching = _Matching(corpus, np.mean(list(vectors.values()), axis=0), seed)
    queries = [np.stack([vectors[step] for step in steps]) for steps in sequences]
    found = corpus.search_batch(queries, min(NEAR, len(corpus) // 4))
    kappas = []
    with progress.task("Cover procedures", len(sequences)) as advance:
        for query, hits in zip(queries, found, strict=True):
            kappas.append(matching.kappa(query, [hit.narration for hit in hits]))
            advance(1)
    own = 1 + MIXTURES
    return [Covered(one, kappas[own * i], tuple(kappas[own * i + 1 : own * (i + 1)])) for i, one in enumerate(mixtures)]


def mixed_steps(selection: Selection, seed: int = 0) -> dict[Performed, list[Steps]]:
    """For each audited procedure 4 mixtures: as many steps, each of a procedure of its source with another goal.

    Procedures of a source with one goal only are left out.
    """
    by_goal: dict[tuple[str, str], list[Performed]] = {}
    for one in selection.usable:
        by_goal.setdefault((one.source, same_goal(one.goal)), []).append(one)
    others = {
        (source, goal): [
            one for key, videos in by_goal.items() if key[0] == source and key[1] != goal for one in videos
        ]
        for source, goal in by_goal
    }
    found = {}
    for one in selection.audited:
        random = Random("/".join((str(seed), one.source, one.video_id, "mixed")))
        if foreign := others[one.source, same_goal(one.goal)]:
            mixed = (tuple(random.choice(random.choice(foreign).steps) for _ in one.steps) for _ in range(MIXTURES))
            found[one] = list(mixed)
    return found


class _Matching:
    """kappa against one corpus."""

    def __init__(self, corpus: NarrationIndex, mean: Vectors, seed: int) -> None:
        self._corpus, self._mean = corpus, mean
        self._landscape = Landscape.of(corpus)
        self._backend = backends.load("auto")
        self._order = np.random.default_rng(seed).permutation(len(corpus))
        self._known: dict[int, Vectors] = {}

    def kappa(self, steps: Vectors, near: Sequence[int]) -> float:
        """Of steps [M, d] whose nearest narrations are `near`."""
        found = set(near)
        far = [int(index) for index in self._order[: FAR + len(near)] if int(index) not in found][:FAR]
        narrations = [self._segments(index) for index in (*near, *far)]
        x = centred(steps, self._mean)
        W = calibrated(np.concatenate(narrations) @ x.T, self._landscape.floors(x))
        offsets = np.cumsum([0, *map(len, narrations)])
        matched = self._backend.grouped_free_alignment(W, [0, len(steps)], offsets).matched[1]
        return float(matched[: len(near)].mean() - matched[len(near) :].mean()) / len(steps)

    def _segments(self, index: int) -> Vectors:
        """Centred segments of a narration; kept, because the random narrations are the same for all."""
        if index not in self._known:
            self._known[index] = centred(self._corpus.embeddings(index), self._landscape.mean)
        return self._known[index]
