"""What is asked of a scorer, and how a batch of a trainer's rows is scored."""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, Protocol

from recipe.errors import ComputeError, CorpusError, InputError
from recipe.text import plan_steps
from recipe.types import Reward

# What a verifier is asked about at once: a prompt and the plans proposed for it.


Steps = tuple[str, ...]


class PromptGroup(NamedTuple):
    """The plans that continue one history towards one goal; they share what depends on the prompt only."""

    goal: str
    history: Steps
    plans: list[Steps]

    @classmethod
    def of(cls, goal: str, history: Sequence[str], plans: Sequence[Sequence[str]]) -> "PromptGroup":
        """The group of any sequences of steps. Raises InputError for a text where steps are due."""
        return cls(goal, as_steps(history), [as_steps(plan) for plan in plans])

    @property
    def steps(self) -> list[str]:
        """The texts of h and of every plan, in order."""
        return [step for steps in (self.history, *self.plans) for step in steps]


def as_steps(texts: Sequence[str]) -> Steps:
    """The steps as a tuple. Raises InputError for one text, which is a sequence of characters."""
    if isinstance(texts, str):
        raise InputError(f"Steps are a list of texts, not one text ({texts[:40]!r}); split it into steps.")
    return tuple(texts)


# A trainer's batch: rows of goals, histories and completions in, for each the reward or why there is none.


_LOG = logging.getLogger(__name__)


class Scorer(Protocol):
    """Anything that rewards the continuations of one prompt: the verifier, or exact validity in a world."""

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        """The reward of each continuation, in order. Raises ComputeError where one cannot be computed."""
        ...


class Row(NamedTuple):
    """A prompt, and the text that a policy wrote for it."""

    goal: str
    history: Steps
    completion: str


Failure = ComputeError | CorpusError | InputError
"""Why a row has no reward; any other error is a fault of the program and is raised."""

Prefetch = Callable[[Sequence[PromptGroup]], object]
"""Given all groups of a batch before they are scored one by one."""

TrainerReward = Callable[[Sequence[str], Sequence[Sequence[str]], Sequence[str]], list[Reward | None]]
"""(goals, histories, completion texts), one entry a row -> each row's reward with its parts, or None."""


def trainer_reward(scorer: Scorer, prefetch: Prefetch | None = None) -> TrainerReward:
    """A function for a trainer that takes None for a row without a reward; the rest is as in `score_rows`.

    Raises InputError where not one row of a batch can be used: that is a fault of the setup, not of a completion.
    """

    def rewards(
        goals: Sequence[str], histories: Sequence[Sequence[str]], completions: Sequence[str]
    ) -> list[Reward | None]:
        columns = zip(goals, histories, completions, strict=True)
        rows = [Row(goal, as_steps(history), text) for goal, history, text in columns]
        return or_none(score_rows(scorer, rows, prefetch))

    return rewards


def or_none(outcomes: Sequence[Reward | Failure]) -> list[Reward | None]:
    """None in place of each failure. Raises InputError where that is all there is."""
    unusable = [outcome for outcome in outcomes if isinstance(outcome, InputError)]
    if unusable and len(unusable) == len(outcomes):
        raise unusable[0]
    return [outcome if isinstance(outcome, Reward) else None for outcome in outcomes]


def score_rows(scorer: Scorer, rows: Sequence[Row], prefetch: Prefetch | None = None) -> list[Reward | Failure]:
    """The reward of each row, or why it has none, with a warning in the log: never a number in its place.

    Rows with equal goal and history are a group, scored in one call; a scorer that has a `concurrency`, as the
    service's client does, is given so many groups at a time. A completion that holds no steps is scored as an empty
    plan. Where a group cannot be used, each of its plans is tried by itself. `prefetch` is given all groups first,
    for example `Verifier.prepare`: steps are then encoded, and the corpus scanned, once instead of for each prompt.
    """
    owners: dict[tuple[str, Steps], list[int]] = {}
    for number, row in enumerate(rows):
        owners.setdefault((row.goal, row.history), []).append(number)
    plans = [plan_steps(row.completion) for row in rows]
    groups = [PromptGroup(*prompt, [plans[number] for number in numbers]) for prompt, numbers in owners.items()]
    if prefetch is not None:
        with suppress(ComputeError, CorpusError, InputError):  # the group that is concerned meets the failure again
            prefetch(groups)
    outcomes: list[Reward | Failure | None] = [None] * len(rows)
    for numbers, scored in zip(owners.values(), _score_all(scorer, groups), strict=True):
        for number, outcome in zip(numbers, scored, strict=True):
            outcomes[number] = outcome
    return [outcome for outcome in outcomes if outcome is not None]


def _score_all(scorer: Scorer, groups: Sequence[PromptGroup]) -> Iterator[Sequence[Reward | Failure]]:
    workers = getattr(scorer, "concurrency", 1)
    if workers == 1 or len(groups) < 2:
        yield from (_score(scorer, group) for group in groups)
        return
    with ThreadPoolExecutor(min(workers, len(groups))) as pool:
        yield from pool.map(lambda group: _score(scorer, group), groups)


def _score(scorer: Scorer, group: PromptGroup) -> Sequence[Reward | Failure]:
    failure: Failure
    try:
        return scorer.score(group.history, group.plans, group.goal)
    except InputError as error:
        if len(group.plans) > 1:
            return [one for plan in group.plans for one in _score(scorer, group._replace(plans=[plan]))]
        failure = error
    except (ComputeError, CorpusError) as error:
        failure = error
    _LOG.warning("no reward for %d completions of %r: %s", len(group.plans), group.goal, failure)
    return [failure] * len(group.plans)
