"""The evidence behind a reward, gathered: no narration decides alone, so each step is asked of the whole pool."""

from collections.abc import Sequence
from typing import Protocol

from recipe.config import RewardConfig
from recipe.reward.explanation.records import (
    AlignedNarration,
    Explanation,
    Ground,
    Match,
    StepEvidence,
    best_matches,
)
from recipe.reward.method import NarrationIndex, PooledAlignment
from recipe.reward.prompts import Steps, as_steps
from recipe.types import Reward


class Explained(Protocol):
    """What an explanation asks of a verifier."""

    @property
    def corpus(self) -> NarrationIndex: ...

    @property
    def config(self) -> RewardConfig: ...

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]: ...

    def align(self, history: Sequence[str], continuation: Sequence[str], goal: str) -> list[PooledAlignment]: ...


def explain(verifier: Explained, history: Sequence[str], continuation: Sequence[str], goal: str) -> Explanation:
    """The reward of one continuation, what each of its steps adds, and how the pool aligns with it.

    A step adds R(c) - R(c without it), all scored in one call: with n steps that costs n + 1 rewards. Raises as
    `Verifier.score`.
    """
    h, plan = as_steps(history), as_steps(continuation)
    shorter = [plan[:i] + plan[i + 1 :] for i in range(len(plan))]
    reward, *without = verifier.score(h, [plan, *shorter], goal)
    narrations = tuple(_aligned(verifier.corpus, pooled) for pooled in verifier.align(h, plan, goal))
    return Explanation(
        goal=goal,
        history=h,
        continuation=plan,
        config=verifier.config,
        reward=reward,
        evidence=_evidence(h, plan, reward, without, narrations),
        narrations=narrations,
    )


def _aligned(corpus: NarrationIndex, pooled: PooledAlignment) -> AlignedNarration:
    W = pooled.similarities
    return AlignedNarration(
        index=pooled.hit.narration,
        narration=corpus.narration(pooled.hit.narration),
        retrieved=pooled.hit.score,
        score=pooled.score,
        matches=tuple(Match(i, k, round(float(W[i, k]), 4)) for i, k in pooled.matches),
        similarities=tuple(tuple(round(value, 4) for value in row) for row in W.tolist()),
    )


def _evidence(
    h: Steps, plan: Steps, reward: Reward, without: Sequence[Reward], narrations: Sequence[AlignedNarration]
) -> tuple[StepEvidence, ...]:
    shorter: list[Reward | None] = [*[None] * len(h), *without]
    grounds = _grounds(len(h) + len(plan), narrations)
    return tuple(
        StepEvidence(
            text=text,
            in_history=i < len(h),
            without=None if missing is None else missing.total,
            gated_without=missing is not None and missing.gated,
            contribution=None if missing is None else reward.total - missing.total,
            matched_in=len(found),
            mean_similarity=sum(ground.similarity for ground in found) / len(found) if found else None,
            grounds=found,
        )
        for i, (text, missing, found) in enumerate(zip(h + plan, shorter, grounds, strict=True))
    )


def _grounds(steps: int, narrations: Sequence[AlignedNarration]) -> list[tuple[Ground, ...]]:
    """For each step its best segment in every narration that matches it, most similar first, ties in pool order."""
    found: list[list[Ground]] = [[] for _ in range(steps)]
    for aligned in narrations:
        for match in best_matches(aligned.matches).values():
            found[match.step].append(Ground(aligned.index, match.segment, match.similarity))
    return [tuple(sorted(grounds, key=lambda ground: -ground.similarity)) for grounds in found]
