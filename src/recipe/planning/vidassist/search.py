"""Breadth-first search over partial plans, level by level for all samples at once.

At each level every partial plan that was kept is given candidates, each candidate makes a longer one, and the best
`beam` of a sample are kept. With a beam of 1 the best candidate is taken at each step, as in the paper's appendix. A
plan's score is the mean of its steps' scores, and a step's the weighted mean of its value functions'. A value function
gives a score in [0, 1], or None where it has none; None is left out of the mean and never counts as zero. Scales and
weights are ours. Equals stay in the order in which they were proposed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from recipe.planning.admissible import ActionMatch, AdmissibleActions
from recipe.progress import SILENT, Progress

if TYPE_CHECKING:
    from recipe.planning.vidassist.models import ModelProposer


class State(NamedTuple):
    """A goal, what was done, and what has been planned so far."""

    goal: str
    observed: tuple[str, ...]
    """Steps of the history, in words: annotated, or Phi's."""
    planned: tuple[str, ...] = ()
    """Admissible actions."""

    @property
    def done(self) -> tuple[str, ...]:
        """All steps before the next one."""
        return (*self.observed, *self.planned)

    def then(self, action: str) -> "State":
        """The state after one more action."""
        return self._replace(planned=(*self.planned, action))


class Proposal(NamedTuple):
    """A proposer's next action."""

    source: str
    """The proposer's name."""
    text: str
    """The next action in its own words; empty where the answer holds none."""
    raw: str
    """The whole answer, or why there is none."""
    logprob: float | None = None
    """Mean log-probability of a token of the answer in nats; None where the engine gives none."""


class Candidate(NamedTuple):
    """An admissible action, and the proposals that were taken for it."""

    action: str
    proposals: tuple[Proposal, ...]
    mapped: tuple[ActionMatch, ...]
    """How each proposal was mapped, in the same order."""


ActionsOf = Callable[[str], AdmissibleActions]
"""The admissible actions of a goal; the same for all goals unless the setting limits them to the goal's card."""


def candidates_of(
    states: Sequence[State], proposals: Sequence[Sequence[Proposal]], actions: ActionsOf
) -> list[list[Candidate]]:
    """The candidates of each state, in the order in which they were first proposed; proposals of one action are merged.

    Proposals without an action make no candidate.
    """
    asked: dict[int, tuple[AdmissibleActions, list[str]]] = {}
    for state, group in zip(states, proposals, strict=True):
        known = actions(state.goal)
        asked.setdefault(id(known), (known, []))[1].extend(one.text for one in group if one.text)
    for known, texts in asked.values():  # all at once: each is kept, and read from there below
        known.map(texts)
    return [_merged(group, actions(state.goal)) for state, group in zip(states, proposals, strict=True)]


def _merged(proposals: Sequence[Proposal], actions: AdmissibleActions) -> list[Candidate]:
    with_action = [one for one in proposals if one.text]
    groups: dict[str, list[tuple[Proposal, ActionMatch]]] = {}
    for proposal, mapped in zip(with_action, actions.map([one.text for one in with_action]), strict=True):
        groups.setdefault(mapped.action, []).append((proposal, mapped))
    return [
        Candidate(action, tuple(one for one, _ in group), tuple(mapped for _, mapped in group))
        for action, group in groups.items()
    ]


_DIGITS = 6
"""Of a score: what lies beyond is rounding, which differs with the size of a batch."""


class CandidateStep(NamedTuple):
    """A candidate for the next step of a partial plan."""

    state: State
    candidate: Candidate


class Value(Protocol):
    """A value function."""

    @property
    def name(self) -> str:
        """Name of its scores in traces and options."""
        ...

    def score(self, considered: Sequence[CandidateStep], progress: Progress = SILENT) -> list[float | None]:
        """One score each, None where it has none."""
        ...


class TextGeneration:
    """Text generation: exp of the mean log-probability of a token of the proposal, the highest of a candidate's.

    The likelihood is that under the model that proposed, of its whole answer.
    """

    name = "generation"

    def score(self, considered: Sequence[CandidateStep], progress: Progress = SILENT) -> list[float | None]:
        """None where no engine gives log-probabilities."""
        return [_highest(one.candidate) for one in considered]


def _highest(candidate: Candidate) -> float | None:
    logprobs = [proposal.logprob for proposal in candidate.proposals if proposal.logprob is not None]
    return round(math.exp(min(max(logprobs), 0.0)), _DIGITS) if logprobs else None


class TextMapping:
    """Text mapping: the cosine c of the proposal and its action as (1 + c) / 2, the highest of a candidate's."""

    name = "mapping"

    def score(self, considered: Sequence[CandidateStep], progress: Progress = SILENT) -> list[float | None]:
        """Never None."""
        return [_cosine01(max(mapped.similarity for mapped in one.candidate.mapped)) for one in considered]


def _cosine01(cosine: float) -> float:
    return round(min(max((1 + cosine) / 2, 0.0), 1.0), _DIGITS)


class Translation:
    """The ranking of the LLM agent baseline (Huang et al., 2022, equation 1): cosine + beta x mean log-probability.

    The highest of a candidate's proposals; of their cosines alone where no log-probability is known. Not in [0, 1].
    """

    name = "translation"

    def __init__(self, beta: float) -> None:
        self._beta = beta

    def score(self, considered: Sequence[CandidateStep], progress: Progress = SILENT) -> list[float | None]:
        """Never None."""
        return [self._best(one.candidate) for one in considered]

    def _best(self, candidate: Candidate) -> float:
        pairs = zip(candidate.proposals, candidate.mapped, strict=True)
        return round(max(mapped.similarity + self._beta * (one.logprob or 0.0) for one, mapped in pairs), _DIGITS)


def weighted_mean(scores: Mapping[str, float | None], weights: Mapping[str, float]) -> float | None:
    """The mean of the scores that are not None; None where all are.

    >>> weighted_mean({"mapping": 0.5, "evaluation": 1.0, "generation": None}, {"evaluation": 3.0})
    0.875
    """
    known = [(weights.get(name, 1.0), score) for name, score in scores.items() if score is not None]
    total = sum(weight for weight, _ in known)
    return sum(weight * score for weight, score in known) / total if total else None


class Option(NamedTuple):
    """A candidate with its scores."""

    candidate: Candidate
    scores: dict[str, float | None]
    """By value function; None where it has none."""
    total: float | None
    """Their weighted mean; None where all are None."""


class Options(NamedTuple):
    """The candidates for the next action in a state."""

    options: tuple[Option, ...]
    lost: tuple[Proposal, ...] = ()
    """Proposals that hold no action."""


class Choice(NamedTuple):
    """One step of a plan: the options, and the place of the chosen one."""

    among: Options
    chosen: int

    @property
    def option(self) -> Option:
        """The chosen option."""
        return self.among.options[self.chosen]


@dataclass(frozen=True, slots=True)
class PartialPlan:
    """A state and how it was reached."""

    state: State
    choices: tuple[Choice, ...] = ()

    @property
    def score(self) -> float | None:
        """Mean over the steps that have a score; None where none has."""
        totals = [choice.option.total for choice in self.choices if choice.option.total is not None]
        return sum(totals) / len(totals) if totals else None

    @property
    def rank(self) -> tuple[int, float]:
        """Lower is better: fewer steps without a score, then the higher score."""
        unscored = sum(choice.option.total is None for choice in self.choices)
        return unscored, -(self.score or 0.0)

    def extended(self, options: Options) -> "list[PartialPlan]":
        """One longer plan for each option."""
        return [
            PartialPlan(self.state.then(option.candidate.action), (*self.choices, Choice(options, place)))
            for place, option in enumerate(options.options)
        ]


@dataclass(frozen=True, slots=True)
class Search:
    """Proposers, value functions, and the depth and width of the search."""

    proposers: tuple["ModelProposer", ...]
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
        """The options of each state; an engine is asked about all states at once."""
        by_proposer = [proposer.propose(states, self.count, progress) for proposer in self.proposers]
        proposals = [[*chain.from_iterable(groups)] for groups in zip(*by_proposer, strict=True)]
        candidates = candidates_of(states, proposals, self.actions)
        considered = [
            CandidateStep(state, candidate)
            for state, group in zip(states, candidates, strict=True)
            for candidate in group
        ]
        scores = {value.name: value.score(considered, progress) for value in self.values}
        rows = ({name: column[place] for name, column in scores.items()} for place in range(len(considered)))
        scored = map(partial(_option, self.weights), considered, rows)
        return [
            Options(tuple(next(scored) for _ in group), tuple(one for one in proposed if not one.text))
            for group, proposed in zip(candidates, proposals, strict=True)
        ]


def _option(weights: Mapping[str, float], considered: CandidateStep, scores: dict[str, float | None]) -> Option:
    return Option(considered.candidate, scores, weighted_mean(scores, weights))
