"""Breadth-first search over partial plans, level by level for all samples at once.

At each level every partial plan that was kept is given candidates, each candidate makes a longer one, and the best
`beam` of a sample are kept. With a beam of 1 the best candidate is taken at each step, as in the paper's appendix.
A plan's score is the mean of its steps' scores, and a step's the mean of what its value functions tell. Equals stay in
the order in which they were proposed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

from recipe.planning.vidassist.candidates import ActionsOf, candidates_of
from recipe.planning.vidassist.proposers import Proposer
from recipe.planning.vidassist.state import Candidate, Proposal, State
from recipe.planning.vidassist.values import Considered, Value, weighted_mean
from recipe.progress import SILENT, Progress


class Option(NamedTuple):
    """A candidate with what speaks for it."""

    candidate: Candidate
    scores: dict[str, float | None]
    """By value function; None where it could not tell."""
    total: float | None
    """Their weighted mean; None where none told."""


class Options(NamedTuple):
    """What could come next in a state."""

    options: tuple[Option, ...]
    lost: tuple[Proposal, ...] = ()
    """Proposals that hold no action."""


class Choice(NamedTuple):
    """One step of a plan: what there was to choose from, and what was chosen."""

    among: Options
    chosen: int

    @property
    def option(self) -> Option:
        """What was chosen."""
        return self.among.options[self.chosen]


@dataclass(frozen=True, slots=True)
class PartialPlan:
    """A state and how it was reached."""

    state: State
    choices: tuple[Choice, ...] = ()

    @property
    def score(self) -> float | None:
        """Mean over the steps that have a score; None where none has."""
        told = [choice.option.total for choice in self.choices if choice.option.total is not None]
        return sum(told) / len(told) if told else None

    @property
    def rank(self) -> tuple[int, float]:
        """Lower is better: fewer steps without a score, then the higher score."""
        untold = sum(choice.option.total is None for choice in self.choices)
        return untold, -(self.score or 0.0)

    def extended(self, options: Options) -> "list[PartialPlan]":
        """One longer plan for each option."""
        return [
            PartialPlan(self.state.then(option.candidate.action), (*self.choices, Choice(options, place)))
            for place, option in enumerate(options.options)
        ]


@dataclass(frozen=True, slots=True)
class Search:
    """Who proposes, who assesses, and how far and wide is searched."""

    proposers: tuple[Proposer, ...]
    count: int
    """Proposals of each proposer for a state."""
    actions: ActionsOf
    values: tuple[Value, ...]
    weights: Mapping[str, float]
    """By value function; 1 where none is given."""
    horizon: int
    """T, actions of a plan."""
    beam: int = 1
    """Partial plans of a sample that are kept at each level."""

    def run(self, starts: Sequence[State], progress: Progress = SILENT) -> list[PartialPlan]:
        """The best plan from each start; shorter than the horizon where nothing more was proposed."""
        kept = [[PartialPlan(start)] for start in starts]
        with progress.task("planning actions, level by level", total=self.horizon) as advance:
            for _ in range(self.horizon):
                states = dict.fromkeys(plan.state for plans in kept for plan in plans)
                options = dict(zip(states, self._expanded(list(states), progress), strict=True))
                kept = [self._best(plans, options) for plans in kept]
                advance(1)
        return [plans[0] for plans in kept]

    def _best(self, plans: list[PartialPlan], options: Mapping[State, Options]) -> list[PartialPlan]:
        longer = list(chain.from_iterable(plan.extended(options[plan.state]) for plan in plans))
        return sorted(longer, key=lambda plan: plan.rank)[: self.beam] or plans

    def _expanded(self, states: list[State], progress: Progress) -> list[Options]:
        """The options of each state; what is asked of an engine is asked for all states together."""
        by_proposer = [proposer.propose(states, self.count, progress) for proposer in self.proposers]
        proposals = [[*chain.from_iterable(groups)] for groups in zip(*by_proposer, strict=True)]
        candidates = candidates_of(states, proposals, self.actions)
        considered = [
            Considered(state, candidate) for state, group in zip(states, candidates, strict=True) for candidate in group
        ]
        scores = {value.name: value.score(considered, progress) for value in self.values}
        rows = ({name: told[place] for name, told in scores.items()} for place in range(len(considered)))
        scored = map(partial(_option, self.weights), considered, rows)
        return [
            Options(tuple(next(scored) for _ in group), tuple(one for one in proposed if not one.text))
            for group, proposed in zip(candidates, proposals, strict=True)
        ]


def _option(weights: Mapping[str, float], considered: Considered, scores: dict[str, float | None]) -> Option:
    return Option(considered.candidate, scores, weighted_mean(scores, weights))
