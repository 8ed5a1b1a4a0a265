"""The rewards of every audited continuation; what cannot be computed is unscored, never zero."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from recipe.errors import ComputeError, CorpusError
from recipe.progress import SILENT, Progress
from recipe.reward.adapters.batch import Prefetch, Scorer
from recipe.reward.audit.corruptions import AuditPrompt
from recipe.reward.prompts import PromptGroup, Steps
from recipe.types import Reward

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
