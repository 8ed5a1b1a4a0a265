"""What a trainer calls: rows of goals, histories and completions in, one reward or None a row out."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from recipe.errors import ComputeError, CorpusError
from recipe.reward.prompts import PromptGroup, Steps
from recipe.text import parse_plan
from recipe.types import Plan, Reward

_LOG = logging.getLogger(__name__)


class Scorer(Protocol):
    """Anything that rewards the continuations of one prompt: the verifier, or exact validity in a world."""

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        """The reward of each continuation, in order. Raises ComputeError where one cannot be computed."""
        ...


Prefetch = Callable[[Sequence[PromptGroup]], object]
"""Given all groups of a batch before they are scored one by one."""

TrainerReward = Callable[[Sequence[str], Sequence[Sequence[str]], Sequence[str]], list[Reward | None]]
"""(goals, histories, completion texts), one entry a row -> each row's reward with its parts, or None."""


def trainer_reward(scorer: Scorer, prefetch: Prefetch | None = None) -> TrainerReward:
    """A function for a trainer's batch: rows with equal goal and history are a group, scored in one call.

    A completion that holds no steps is scored as an empty plan. A group that cannot be computed gives None
    for its rows and a warning in the log, never a number. `prefetch` is given all groups of the batch first,
    for example `Verifier.prepare`: steps are then encoded, and the corpus scanned, once instead of for each prompt.
    """

    def rewards(
        goals: Sequence[str], histories: Sequence[Sequence[str]], completions: Sequence[str]
    ) -> list[Reward | None]:
        groups: dict[tuple[str, Steps], list[int]] = {}
        for row, (goal, history, _) in enumerate(zip(goals, histories, completions, strict=True)):
            groups.setdefault((goal, tuple(history)), []).append(row)
        plans = [_steps(text) for text in completions]
        if prefetch is not None:
            with suppress(ComputeError, CorpusError):  # the group that is concerned meets the failure again
                prefetch([PromptGroup(*prompt, [plans[row] for row in rows]) for prompt, rows in groups.items()])
        result: list[Reward | None] = [None] * len(plans)
        for (goal, history), rows in groups.items():
            for row, reward in zip(rows, _score(scorer, history, [plans[row] for row in rows], goal), strict=True):
                result[row] = reward
        return result

    return rewards


def _steps(completion: str) -> Steps:
    plan = parse_plan(completion)
    return plan.steps if isinstance(plan, Plan) else ()


def _score(scorer: Scorer, history: Steps, plans: Sequence[Steps], goal: str) -> Sequence[Reward | None]:
    try:
        return scorer.score(history, plans, goal)
    except (ComputeError, CorpusError) as error:
        _LOG.warning("no reward for %d completions of %r: %s", len(plans), goal, error)
        return [None] * len(plans)
