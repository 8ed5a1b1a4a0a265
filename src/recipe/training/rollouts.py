"""Between the trainer and the verifier: completions of a step become rewards, a readable record, and metrics.

A completion that could not be scored is None, never a number: the trainer leaves it out of its group.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from recipe.artifacts import write_jsonl
from recipe.errors import ComputeError
from recipe.text import parse_plan
from recipe.types import Malformed, Reward


class Scorer(Protocol):
    """Anything that scores the continuations of one prompt together; `recipe.reward.verifier.Verifier` is
    one.
    """

    def score(
        self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str
    ) -> list[Reward]:
        """One reward for each continuation. Raises ComputeError where there is none."""
        ...


class RewardFunction:
    """The reward in the signature that the trainer calls, writing `completions/step-NNNNN.jsonl` as it
    goes.
    """

    __name__ = "verifier"

    def __init__(self, scorer: Scorer, folder: Path) -> None:
        self._scorer, self._folder = scorer, folder

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
        texts = [turns[0]["content"] for turns in completions]
        plans = [_steps(text) for text in texts]
        rewards = score_groups(self._scorer, goal, history, plans)
        seconds = time.monotonic() - began
        for name, value in reward_metrics(rewards, plans).items():
            log_metric(name, value)
        log_metric("reward_seconds", seconds)
        rows = (
            {
                "example_id": name,
                "goal": aim,
                "history": list(done),
                "completion": text,
                "plan": list(plan or ()),
            }
            | {"reward": None if reward is None else asdict(reward)}
            for name, aim, done, text, plan, reward in zip(
                example_id, goal, history, texts, plans, rewards, strict=True
            )
        )
        write_jsonl(self._folder / f"step-{trainer_state.global_step + 1:05d}.jsonl", rows)
        return [None if reward is None else reward.total for reward in rewards]


def score_groups(
    scorer: Scorer,
    goals: Sequence[str],
    histories: Sequence[Sequence[str]],
    plans: Sequence[Sequence[str] | None],
) -> list[Reward | None]:
    """Rewards in the order of `plans`, those of equal goal and history scored together; None where none can
    be had.

    A plan that is None, a malformed completion, is scored as a plan without steps.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for index, (goal, history) in enumerate(zip(goals, histories, strict=True)):
        groups.setdefault((goal, tuple(history)), []).append(index)
    rewards: list[Reward | None] = [None] * len(plans)
    for (goal, history), members in groups.items():
        try:
            scored = scorer.score(history, [plans[index] or () for index in members], goal)
        except ComputeError:
            continue
        for index, reward in zip(members, scored, strict=True):
            rewards[index] = reward
    return rewards


def reward_metrics(
    rewards: Sequence[Reward | None], plans: Sequence[Sequence[str] | None]
) -> dict[str, float]:
    """Means over a step's completions; over those that were scored for the parts of the reward."""
    scored = [reward for reward in rewards if reward is not None]
    means = {
        "malformed": fmean(plan is None for plan in plans),
        "unscored": 1 - len(scored) / len(rewards),
        "steps": fmean(len(plan or ()) for plan in plans),
    }
    if scored:
        means["aligned_history"] = fmean(reward.aligned_history for reward in scored)
        means["aligned_full"] = fmean(reward.aligned_full for reward in scored)
        means["rho"] = fmean(reward.rho for reward in scored)
        means["gated"] = fmean(reward.gated for reward in scored)
    return means


def _steps(text: str) -> tuple[str, ...] | None:
    plan = parse_plan(text)
    return None if isinstance(plan, Malformed) else plan.steps
