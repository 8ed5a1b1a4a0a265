"""Between the trainer and the reward: a step's completions become rewards, a readable record, and metrics.

A completion that could not be scored is None, never a number: the trainer leaves it out of its group.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from recipe.artifacts import write_jsonl
from recipe.reward.adapters import Scorer, trainer_reward
from recipe.reward.verifier import Verifier
from recipe.text import parse_plan
from recipe.types import Malformed, Reward


class RewardFunction:
    """The reward as the trainer calls it; writes `step-NNNNN.jsonl` into `folder` as it goes."""

    __name__ = "verifier"

    def __init__(self, scorer: Scorer, folder: Path) -> None:
        # The verifier's encoder likes one large batch better than one for each prompt.
        prefetch = scorer.prepare if isinstance(scorer, Verifier) else None
        self._reward, self._folder = trainer_reward(scorer, prefetch), folder

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        *,
        example_id: Sequence[str],
        goal: Sequence[str],
        history: Sequence[Sequence[str]],
        trainer_state: Any,
        log_metric: Callable[[str, float], None],
        **_: Any,
    ) -> list[float | None]:
        began = time.monotonic()
        texts = [str(turns[0]["content"]) for turns in completions]
        rewards = self._reward(goal, history, texts)
        log_metric("reward_seconds", time.monotonic() - began)
        plans = [parse_plan(text) for text in texts]
        malformed = [isinstance(plan, Malformed) for plan in plans]
        for name, value in reward_metrics(rewards, malformed).items():
            log_metric(name, value)
        rows = (
            {
                "example_id": name,
                "goal": aim,
                "history": list(done),
                "completion": text,
                "malformed": bad,
                "reward": None if reward is None else asdict(reward),
            }
            for name, aim, done, text, bad, reward in zip(
                example_id, goal, history, texts, malformed, rewards, strict=True
            )
        )
        write_jsonl(self._folder / f"step-{trainer_state.global_step + 1:05d}.jsonl", rows)
        return [None if reward is None else reward.total for reward in rewards]


def reward_metrics(rewards: Sequence[Reward | None], malformed: Sequence[bool]) -> dict[str, float]:
    """Means over a step's completions, for the parts of the reward over those that were scored."""
    scored = [reward for reward in rewards if reward is not None]
    means = {"malformed": fmean(malformed), "unscored": 1 - len(scored) / len(rewards)}
    if scored:
        means["steps"] = fmean(reward.steps for reward in scored)
        means["aligned_history"] = fmean(reward.aligned_history for reward in scored)
        means["aligned_full"] = fmean(reward.aligned_full for reward in scored)
        means["rho"] = fmean(reward.rho for reward in scored)
        means["gated"] = fmean(reward.gated for reward in scored)
    return means
