"""The one scoring call: groups of plans in, and for each plan its reward or the failure in its place.

A failure (ComputeError, CorpusError, InputError) is a value of the plans concerned and never a number. Any other error
is one of the run, such as ServiceUnavailable, or a fault of the program, and is raised.
"""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from recipe.errors import ComputeError, CorpusError, FunctionFailed, InputError
from recipe.text import as_steps, whole_text
from recipe.types import Plan, PooledAlignment, Reward

if TYPE_CHECKING:
    from recipe.reward.embeddings import Vectors

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
        """For each group the outcome of each of its plans, in order.

        It may raise a failure for all groups; `outcomes_of` then finds the plans that it concerns.
        """
        ...


class Method(ABC):
    """One way of verifying; `vectors` holds the embedding [d] of each text that `texts` names."""

    def texts(self, group: PromptGroup) -> list[str]:
        """The texts of a group that are embedded, of which a blank one is an error."""
        return group.steps

    @abstractmethod
    def rewards(self, groups: Sequence[PromptGroup], vectors: Mapping[str, "Vectors"]) -> Sequence[Sequence[Outcome]]:
        """The rewards of each group's plans, after one scan of the corpus for all pools. Raises ComputeError."""

    def alignments(
        self, groups: Sequence[PromptGroup], vectors: Mapping[str, "Vectors"]
    ) -> list[list[PooledAlignment]]:
        """How h and each group's only plan align with each narration of the pool, the best first, after one scan.

        Controls align nothing.
        """
        return [[] for _ in groups]

    def attributions(self, groups: Sequence[PromptGroup], vectors: Mapping[str, "Vectors"]) -> list[dict[str, float]]:
        """What each feature that a net reads adds to the reward of each group's first plan; without a net nothing."""
        return [{} for _ in groups]


def outcomes_of(scorer: Scorer, groups: Sequence[PromptGroup], *, log: bool = False) -> list[list[Outcome]]:
    """The outcome of each plan of each group; a reward that is not finite is a ComputeError. `log` warns of failures.

    Where the scorer raises a failure, each half of the groups is scored by itself, so that the failure reaches its own
    group only, and each plan of a group that cannot be used (InputError) by itself. Raises ComputeError where the
    scorer does not give one outcome for each plan, and any error of the scorer that is no failure.
    """
    try:
        outcomes = [list(own) for own in scorer.score_groups(groups)] if groups else []
    except (ComputeError, CorpusError, InputError) as error:
        if len(groups) > 1:
            # One bad group among n costs about 2 log2(n) calls, in place of n.
            middle = len(groups) // 2
            outcomes = outcomes_of(scorer, groups[:middle]) + outcomes_of(scorer, groups[middle:])
        elif isinstance(error, InputError) and len(groups[0].plans) > 1:
            alone = [groups[0]._replace(plans=[plan]) for plan in groups[0].plans]
            outcomes = [[outcome for [outcome] in outcomes_of(scorer, alone)]]
        else:
            outcomes = [[error] * len(groups[0].plans)]
    counts = [[len(own) for own in outcomes], [len(group.plans) for group in groups]]
    if counts[0] != counts[1]:
        raise ComputeError(f"{sum(counts[1])} plans got {sum(counts[0])} rewards; the scorer must give one each.")
    for group, own in zip(groups, outcomes, strict=True):
        for index, outcome in enumerate(own):
            if isinstance(outcome, Reward) and not math.isfinite(outcome.total):
                problem = "The reward is not a finite number"
                own[index] = ComputeError(f"{problem}; check the scorer, and the corpus with: recipe corpus verify.")
        reasons = [f"{outcome}" for outcome in own if log and not isinstance(outcome, Reward)]
        for reason in dict.fromkeys(reasons):
            _LOG.warning("no reward for %d completions of %r: %s", reasons.count(reason), group.goal, reason)
    return outcomes


def score_plans(scorer: Scorer, prompts: Sequence[Prompt], plans: Sequence[Steps]) -> list[Outcome]:
    """The outcome of each plan for its prompt, in order; failures are logged. Raises as `outcomes_of`.

    The plans of equal prompts are a group, and all groups are scored in one call.
    """
    members: dict[Prompt, list[int]] = {}
    for index, (prompt, _) in enumerate(zip(prompts, plans, strict=True)):
        members.setdefault(prompt, []).append(index)
    groups = [PromptGroup(*prompt, [plans[index] for index in own]) for prompt, own in members.items()]
    outcomes: dict[int, Outcome] = {}
    for own, scored in zip(members.values(), outcomes_of(scorer, groups, log=True), strict=True):
        outcomes |= zip(own, scored, strict=True)
    return [outcomes[index] for index in range(len(plans))]


def prompt_outcomes(scorer: Scorer, prompts: Sequence[Prompt]) -> list[Outcome]:
    """The reward of the empty plan of each prompt, in order: its `coverage` is the prompt's; a failure stays one."""
    groups = [PromptGroup(*prompt, [()]) for prompt in dict.fromkeys(prompts)]
    outcomes = [outcome for batch in batches(groups) for [outcome] in outcomes_of(scorer, batch)]
    known = {(group.goal, group.history): outcome for group, outcome in zip(groups, outcomes, strict=True)}
    return [known[prompt] for prompt in prompts]


def score_or_raise(scorer: Scorer, groups: Sequence[PromptGroup], places: Sequence[str] = ()) -> list[list[Reward]]:
    """The rewards of all plans of each group. Raises the first failure, with its group's place if given."""
    rewards = list[list[Reward]]()
    for index, outcomes in enumerate(outcomes_of(scorer, groups)):
        rewards.append([])
        for outcome in outcomes:
            if not isinstance(outcome, Reward):
                raise type(outcome)(f"{places[index]}: {outcome}") if places else outcome
            rewards[-1].append(outcome)
    return rewards


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


def or_none(outcomes: Sequence[Outcome], *, earlier: bool) -> list[Reward | None]:
    """None in place of each failure; `earlier`: whether any plan before these had a reward.

    Raises InputError, or FunctionFailed, where no plan could be used, neither of these nor earlier: that is a fault of
    the setup, not of a plan.
    """
    unusable = [outcome for outcome in outcomes if isinstance(outcome, InputError | FunctionFailed)]
    # A run of hours must not end on one bad plan, nor go on for hours without any reward.
    if unusable and len(unusable) == len(outcomes) and not earlier:
        raise unusable[0]
    return [outcome if isinstance(outcome, Reward) else None for outcome in outcomes]
