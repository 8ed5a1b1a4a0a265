"""Between the trainer and the reward: a step's completions become rewards, a readable record, and metrics.

A completion that could not be scored is None, never a number: the trainer leaves it out of its group. The watchdog sees
what the trainer sees; what it finds is told once.
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
from recipe.reward.watchdog import Finding, Watchdog, as_rollout
from recipe.text import parse_plan
from recipe.types import Malformed, Reward

Tell = Callable[[Finding], None]
"""Where a finding goes, once."""
PARTS = ("steps", "aligned_history", "aligned_full", "rho", "gated")
PART = "part/"
"""Before the names of a reward's further parts, in a trainer's metrics."""


class RewardFunction:
    """The reward as the trainer calls it; writes `step-NNNNN.jsonl` into `folder` as it goes."""

    __name__ = "verifier"

    def __init__(self, scorer: Scorer, folder: Path, longest: int, watchdog: Watchdog, tell: Tell) -> None:
        # The verifier's encoder likes one large batch better than one for each prompt.
        prefetch = scorer.prepare if isinstance(scorer, Verifier) else None
        self._reward, self._folder, self._longest = trainer_reward(scorer, prefetch), folder, longest
        self._watchdog, self._tell = watchdog, tell

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
        malformed = [isinstance(parse_plan(text), Malformed) for text in texts]
        rows = [
            {
                "example_id": name,
                "goal": aim,
                "history": list(done),
                "completion": text,
                "malformed": bad,
                "clipped": len(tokens) >= self._longest,
                "reward": None if reward is None else asdict(reward),
            }
            for name, aim, done, text, bad, tokens, reward in zip(
                example_id, goal, history, texts, malformed, completion_ids, rewards, strict=True
            )
        ]
        step = trainer_state.global_step + 1
        write_jsonl(self._folder / f"step-{step:05d}.jsonl", rows)
        # From the record, so that a run that is resumed from its records has seen the same.
        for finding in self._watchdog.observe(step, [as_rollout(row) for row in rows]):
            self._tell(finding)
        for name, value in (reward_metrics(rewards, malformed) | self._watchdog.metrics()).items():
            log_metric(name, value)
        return [None if reward is None else reward.total for reward in rewards]


def reward_metrics(rewards: Sequence[Reward | None], malformed: Sequence[bool]) -> dict[str, float]:
    """Means over a step's completions, for the parts of the reward over those that were scored."""
    scored = [reward for reward in rewards if reward is not None]
    means = {"malformed": fmean(malformed), "unscored": 1 - len(scored) / len(rewards)}
    if not scored:
        return means
    means |= {name: fmean(getattr(reward, name) for reward in scored) for name in PARTS}
    covered = [reward.coverage for reward in scored if reward.coverage is not None]
    if covered:
        means |= {"coverage": fmean(covered), "abstained": fmean(reward.abstained for reward in scored)}
    named = dict.fromkeys(name for reward in scored for name in reward.parts)
    return means | {f"{PART}{name}": fmean(r.parts[name] for r in scored if name in r.parts) for name in named}
