"""The one scoring call: groups of plans in, and for each plan its reward or the failure in its place.

A failure (ComputeError, CorpusError, InputError) is a value of the plans concerned and never a number. Any other error
is a fault of the program and is raised.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from recipe.errors import ComputeError, CorpusError, InputError
from recipe.text import as_steps, plan_steps, whole_text
from recipe.types import Plan, Reward

_LOG = logging.getLogger(__name__)

Steps = tuple[str, ...]
Prompt = tuple[str, Steps]
"""Goal and history."""
Failure = ComputeError | CorpusError | InputError
Outcome = Reward | Failure
"""What scoring gives for a plan."""
BATCH = 2_000
"""Plans that a caller hands over in one call at most; bounds the memory of a call."""


class PromptGroup(NamedTuple):
    """The plans that continue one history towards one goal; they share what depends on the prompt only."""

    goal: str
    history: Steps
    plans: list[Steps]

    @classmethod
    def of(cls, goal: str, history: Sequence[str], plans: Sequence[Sequence[str] | Plan]) -> "PromptGroup":
        """The group of any sequences of steps. Raises InputError where a text, steps or plans are something else."""
        if not isinstance(goal, str):
            raise InputError(f"The goal is one text, not {goal!r}; give it as a text.")
        whole_text("goal", goal)
        if isinstance(plans, str | Plan) or any(isinstance(plan, str) for plan in plans):
            raise InputError(
                "Continuations are a list of plans, each a list of steps; put one plan in brackets: [plan]."
            )
        return cls(goal, as_steps(history), [as_steps(plan) for plan in plans])

    @property
    def steps(self) -> list[str]:
        """The texts of h and of every plan, in order."""
        return [step for steps in (self.history, *self.plans) for step in steps]


class Scorer(Protocol):
    """Anything that rewards plans: a verifier, exact validity in a world, the service's client, a control."""

    def score_groups(self, groups: Sequence[PromptGroup]) -> Sequence[Sequence[Outcome]]:
        """For each group the outcome of each of its plans, in order; `try_groups` turns errors into outcomes."""
        ...


def try_groups(
    groups: Sequence[PromptGroup], score: Callable[[Sequence[PromptGroup]], list[list[Reward]]]
) -> list[list[Outcome]]:
    """The outcomes of `score`, which raises where it cannot score all groups.

    Where it fails, each half of the groups is tried by itself, so that a failure reaches its own group only. Each plan
    of a group that cannot be used (InputError) is tried by itself.
    """
    if not groups:
        return []
    try:
        return [list(rewards) for rewards in score(groups)]
    except (ComputeError, CorpusError, InputError) as error:
        if len(groups) > 1:
            middle = len(groups) // 2
            return try_groups(groups[:middle], score) + try_groups(groups[middle:], score)
        [group] = groups
        if isinstance(error, InputError) and len(group.plans) > 1:
            alone = try_groups([group._replace(plans=[plan]) for plan in group.plans], score)
            return [[outcome for [outcome] in alone]]
        return [[error] * len(group.plans)]


def checked_outcomes(scorer: Scorer, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
    """`scorer.score_groups`, with a ComputeError for a reward that is not finite.

    Raises ComputeError where the scorer does not give one outcome for each plan.
    """
    outcomes = scorer.score_groups(groups)
    counts = [[len(own) for own in outcomes], [len(group.plans) for group in groups]]
    if counts[0] != counts[1]:
        raise ComputeError(f"{sum(counts[1])} plans got {sum(counts[0])} rewards; the scorer must give one each.")
    return [[_finite(outcome) for outcome in own] for own in outcomes]


def logged_outcomes(scorer: Scorer, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
    """`checked_outcomes`, with a warning in the log for each group's failures."""
    outcomes = checked_outcomes(scorer, groups)
    for group, own in zip(groups, outcomes, strict=True):
        failures = [f"{outcome}" for outcome in own if not isinstance(outcome, Reward)]
        for reason in dict.fromkeys(failures):
            _LOG.warning("no reward for %d completions of %r: %s", failures.count(reason), group.goal, reason)
    return outcomes


def score_or_raise(scorer: Scorer, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
    """The rewards of all plans of each group. Raises the first failure."""
    return [[reward_of(outcome) for outcome in own] for own in checked_outcomes(scorer, groups)]


def reward_of(outcome: Outcome) -> Reward:
    """The reward. Raises the failure that stands in its place."""
    if isinstance(outcome, Reward):
        return outcome
    raise outcome


def plain_reward(total: float, steps: int, **parts: float) -> Reward:
    """A reward that no corpus is aligned for."""
    return Reward(total, 0.0, 0.0, 0.0, False, steps, (), None, parts=parts)


def batches(groups: Sequence[PromptGroup], plans: int = BATCH) -> Iterator[list[PromptGroup]]:
    """The groups in order, so many in a batch that it holds at least `plans` plans, the last one fewer.

    >>> groups = [PromptGroup("tea", (), [("pour",)] * 3)] * 5
    >>> [len(batch) for batch in batches(groups, 6)]
    [2, 2, 1]
    """
    batch, held = list[PromptGroup](), 0
    for group in groups:
        batch.append(group)
        held += len(group.plans)
        if held >= plans:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _finite(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Reward) and not math.isfinite(outcome.total):
        problem = "The reward is not a finite number"
        return ComputeError(f"{problem}; check the scorer, and the corpus with: recipe corpus verify.")
    return outcome


class Row(NamedTuple):
    """A prompt, and the text that a policy wrote for it."""

    goal: str
    history: Steps
    completion: str

    @classmethod
    def of(cls, goal: object, history: object, completion: object) -> "Row":
        """The row of a text, of any sequence of texts, and of a text. Raises InputError, which names the field."""
        aim = whole_text("goal", goal)
        try:
            done = as_steps(history)
        except InputError as error:
            raise InputError(f"the history is {history!r:.160}: {error}") from None
        return cls(aim, done, whole_text("completion", completion))


def read_rows(read: Callable[..., Row], *columns: Iterable[Any]) -> list[Row | InputError]:
    """What `read` makes of each row of a batch in columns, or the InputError that it raises, with the row's number."""
    batch = list(zip(*columns, strict=True))
    rows: list[Row | InputError] = []
    for number, values in enumerate(batch):
        try:
            rows.append(read(*values))
        except InputError as error:
            rows.append(InputError(f"row {number} of the batch: {error}") if len(batch) > 1 else error)
    return rows


TrainerReward = Callable[[Sequence[str], Sequence[Sequence[str]], Sequence[str]], list[Reward | None]]
"""(goals, histories, completion texts), one entry a row -> each row's reward with its parts, or None."""


def trainer_reward(scorer: Scorer) -> TrainerReward:
    """A function for a trainer that takes None for a row without a reward; the rest is as in `score_rows`.

    Raises InputError as `or_none`.
    """
    earlier = False

    def rewards(
        goals: Sequence[str], histories: Sequence[Sequence[str]], completions: Sequence[str]
    ) -> list[Reward | None]:
        nonlocal earlier
        own = or_none(score_rows(scorer, read_rows(Row.of, goals, histories, completions)), earlier=earlier)
        earlier = earlier or any(reward is not None for reward in own)
        return own

    return rewards


def score_rows(scorer: Scorer, rows: Sequence[Row | InputError]) -> list[Outcome]:
    """The outcome of each row; rows with equal goal and history are a group, and all groups are scored in one call.

    A completion that holds no steps is scored as an empty plan. The outcome of a row that could not be read is its
    InputError, which is logged.
    """
    places: dict[tuple[str, Steps], list[int]] = {}
    plans: dict[int, Steps] = {}
    found: dict[int, Outcome] = {}
    for place, row in enumerate(rows):
        if isinstance(row, InputError):
            _LOG.warning("no reward: %s", row)
            found[place] = row
        else:
            places.setdefault((row.goal, row.history), []).append(place)
            plans[place] = plan_steps(row.completion)
    groups = [PromptGroup(*prompt, [plans[place] for place in own]) for prompt, own in places.items()]
    for own, outcomes in zip(places.values(), logged_outcomes(scorer, groups), strict=True):
        found |= zip(own, outcomes, strict=True)
    return [found[place] for place in range(len(rows))]


def or_none(outcomes: Sequence[Outcome], *, earlier: bool) -> list[Reward | None]:
    """None in place of each failure; `earlier`: whether any row before these had a reward.

    Raises InputError where no row could be used, neither of these nor earlier: that is a fault of the setup, not of a
    row.
    """
    unusable = [outcome for outcome in outcomes if isinstance(outcome, InputError)]
    if unusable and len(unusable) == len(outcomes) and not earlier:
        raise unusable[0]
    return [outcome if isinstance(outcome, Reward) else None for outcome in outcomes]
