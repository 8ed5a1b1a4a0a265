"""Breadth-first search over partial plans, level by level for all samples at once.

At each level every partial plan that was kept is given candidates, each candidate makes a longer one, and the best
`beam` of a sample are kept. With a beam of 1 the best candidate is taken at each step, as in the paper's appendix. A
plan's score is the mean of its steps' scores, and a step's the mean of its value functions'. A value function gives a
score in [0, 1], or None where it has none; None is left out of the mean and never counts as zero. Scales and equal
weights are ours. Equals stay in the order in which they were proposed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from recipe.planning.admissible import ActionMatch, AdmissibleActions
from recipe.progress import SILENT, Progress

# Of a score: what lies beyond is rounding, which differs with the size of a batch.
_DIGITS = 6


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


@dataclass(frozen=True, slots=True)
class Candidate:
    """An admissible action, the proposals that were taken for it, and its scores."""

    action: str
    proposals: tuple[Proposal, ...] = ()
    matches: tuple[ActionMatch, ...] = ()
    """How each proposal was mapped, in the same order."""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    """By value function; None where it has none."""
    total: float | None = None
    """Their mean; None where all are None."""

    @property
    def nearest(self) -> Proposal:
        """The proposal that is most similar to the action, the first of equals."""
        pairs = zip(self.proposals, self.matches, strict=True)
        return max(pairs, key=lambda pair: pair[1].similarity)[0]

    def scored(self, scores: Mapping[str, float | None]) -> "Candidate":
        """The candidate with its scores and their mean."""
        # The paper names no weights of the value functions: all count alike. One that has no score is no zero.
        known = [score for score in scores.values() if score is not None]
        return replace(self, scores=scores, total=sum(known) / len(known) if known else None)


ActionsOf = Callable[[str], AdmissibleActions]
"""The admissible actions of a goal; the same for all goals unless the setting limits them to the goal's card."""
Proposer = Callable[[Sequence[State], int, Progress], list[list[Proposal]]]
"""From states and a number to so many proposals for each state, in order."""
NextStep = tuple[State, Candidate]
"""A candidate for the next step of a partial plan."""
Value = Callable[[Sequence[NextStep], Progress], list[float | None]]
"""A value function: one score for each candidate, None where it has none."""


def candidates_of(
    states: Sequence[State], proposals: Sequence[Sequence[Proposal]], actions: ActionsOf
) -> list[list[Candidate]]:
    """The candidates of each state, in the order in which they were first proposed; proposals of one action are merged.

    Proposals without an action make no candidate.
    """
    texts: dict[int, tuple[AdmissibleActions, list[str]]] = {}
    for state, group in zip(states, proposals, strict=True):
        admissible = actions(state.goal)
        texts.setdefault(id(admissible), (admissible, []))[1].extend(item.text for item in group if item.text)
    for admissible, new in texts.values():  # in one call of the encoder: each text is kept, and read from there below
        admissible.map(new)

    candidates: list[list[Candidate]] = []
    for state, group in zip(states, proposals, strict=True):
        usable = [proposal for proposal in group if proposal.text]
        by_action: dict[str, list[tuple[Proposal, ActionMatch]]] = {}
        for proposal, match in zip(usable, actions(state.goal).map([item.text for item in usable]), strict=True):
            by_action.setdefault(match.action, []).append((proposal, match))
        candidates.append([])
        for action, pairs in by_action.items():
            merged, matches = zip(*pairs, strict=True)
            candidates[-1].append(Candidate(action, merged, matches))
    return candidates


def text_generation(steps: Sequence[NextStep], _progress: Progress = SILENT) -> list[float | None]:
    """Text generation: exp of the mean log-probability of a token of the proposal, the highest of a candidate's.

    The likelihood is that under the model that proposed, of its whole answer; None where no engine gives one.
    """
    scores: list[float | None] = []
    for _, candidate in steps:
        logprobs = [proposal.logprob for proposal in candidate.proposals if proposal.logprob is not None]
        # Rounding may take a log-probability above 0.
        scores.append(round(math.exp(min(max(logprobs), 0.0)), _DIGITS) if logprobs else None)
    return scores


def text_mapping(steps: Sequence[NextStep], _progress: Progress = SILENT) -> list[float | None]:
    """Text mapping: the cosine c of the proposal and its action as (1 + c) / 2, the highest of a candidate's."""
    cosines = [max(match.similarity for match in candidate.matches) for _, candidate in steps]
    return [round(min(max((1 + cosine) / 2, 0.0), 1.0), _DIGITS) for cosine in cosines]


def translation(steps: Sequence[NextStep], _progress: Progress = SILENT, *, beta: float) -> list[float | None]:
    """The ranking of the LLM agent baseline (Huang et al., 2022, equation 1): cosine + beta x mean log-probability.

    The highest of a candidate's proposals with a log-probability, None where none has one; where no candidate has one,
    of cosines alone. Not in [0, 1].
    """
    proposals = [
        [
            (match.similarity, proposal.logprob)
            for proposal, match in zip(candidate.proposals, candidate.matches, strict=True)
        ]
        for _, candidate in steps
    ]
    if all(logprob is None for own in proposals for _, logprob in own):
        return [round(max(similarity for similarity, _ in own), _DIGITS) for own in proposals]
    ranked = ([similarity + beta * logprob for similarity, logprob in own if logprob is not None] for own in proposals)
    return [round(max(own), _DIGITS) if own else None for own in ranked]


class Choice(NamedTuple):
    """One step of a plan: the candidates that there were, and the index of the chosen one."""

    candidates: tuple[Candidate, ...]
    chosen: int
    lost: tuple[Proposal, ...] = ()
    """Proposals that hold no action."""

    @property
    def candidate(self) -> Candidate:
        """The chosen candidate."""
        return self.candidates[self.chosen]


@dataclass(frozen=True, slots=True)
class PartialPlan:
    """A state and how it was reached."""

    state: State
    choices: tuple[Choice, ...] = ()

    @property
    def score(self) -> float | None:
        """Mean over the steps that have a score; None where none has."""
        totals = [choice.candidate.total for choice in self.choices if choice.candidate.total is not None]
        return sum(totals) / len(totals) if totals else None

    @property
    def rank(self) -> tuple[int, float]:
        """Lower is better: fewer steps without a score, then the higher score."""
        return sum(choice.candidate.total is None for choice in self.choices), -(self.score or 0.0)

    def extended(self, candidates: tuple[Candidate, ...], lost: tuple[Proposal, ...] = ()) -> "list[PartialPlan]":
        """One longer plan for each candidate."""
        return [
            PartialPlan(self.state.then(candidate.action), (*self.choices, Choice(candidates, index, lost)))
            for index, candidate in enumerate(candidates)
        ]


@dataclass(frozen=True, slots=True)
class Search:
    """Proposers, value functions, and the depth and width of the search."""

    proposers: tuple[Proposer, ...]
    count: int
    """Proposals of each proposer for a state."""
    actions: ActionsOf
    values: Mapping[str, Value]
    """By the name of their scores in traces and options."""
    horizon: int
    """T, actions of a plan."""
    beam: int = 1
    """Partial plans of a sample that are kept at each level."""

    def run(self, starts: Sequence[State], progress: Progress = SILENT) -> list[PartialPlan]:
        """The best plan from each start; shorter than the horizon where nothing more was proposed."""
        kept = [[PartialPlan(start)] for start in starts]
        with progress.task("planning actions, level by level", total=self.horizon) as advance:
            for _ in range(self.horizon):
                # Equal states are proposed for and assessed once, and an engine is asked about all states at once.
                states = list(dict.fromkeys(plan.state for plans in kept for plan in plans))
                groups = zip(*(propose(states, self.count, progress) for propose in self.proposers), strict=True)
                proposals = [list(chain.from_iterable(group)) for group in groups]
                candidates = candidates_of(states, proposals, self.actions)
                steps = [(state, item) for state, group in zip(states, candidates, strict=True) for item in group]
                columns = {name: value(steps, progress) for name, value in self.values.items()}
                remaining = (
                    candidate.scored({name: column[index] for name, column in columns.items()})
                    for index, (_, candidate) in enumerate(steps)
                )
                options = {
                    state: (tuple(next(remaining) for _ in group), tuple(item for item in all_of if not item.text))
                    for state, group, all_of in zip(states, candidates, proposals, strict=True)
                }
                for index, plans in enumerate(kept):
                    longer = [new for plan in plans for new in plan.extended(*options[plan.state])]
                    # A plan for which nothing more is proposed stays as it is.
                    kept[index] = sorted(longer, key=lambda plan: plan.rank)[: self.beam] or plans
                advance(1)
        return [plans[0] for plans in kept]
