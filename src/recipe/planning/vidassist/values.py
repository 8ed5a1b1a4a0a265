"""Value functions: what speaks for a candidate, each in [0, 1], or None where it cannot tell.

What is not told is left out of a candidate's mean and never counts as zero. Scales and weights are ours.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from recipe.planning.vidassist.state import Candidate, State
from recipe.progress import SILENT, Progress

_DIGITS = 6
"""Of a score: what lies beyond is rounding, which differs with the size of a batch."""


class Considered(NamedTuple):
    """A candidate for the next step of a partial plan."""

    state: State
    candidate: Candidate


class Value(Protocol):
    """A value function."""

    @property
    def name(self) -> str:
        """What its scores are called in traces and options."""
        ...

    def score(self, considered: Sequence[Considered], progress: Progress = SILENT) -> list[float | None]:
        """One score each, None where it cannot tell."""
        ...


class TextGeneration:
    """Text generation: exp of the mean log-probability of a token of the proposal, the highest of a candidate's.

    The likelihood is that under the model that proposed, of its whole answer.
    """

    name = "generation"

    def score(self, considered: Sequence[Considered], progress: Progress = SILENT) -> list[float | None]:
        """None where no engine tells log-probabilities."""
        return [_highest(one.candidate) for one in considered]


def _highest(candidate: Candidate) -> float | None:
    told = [proposal.logprob for proposal in candidate.proposals if proposal.logprob is not None]
    return round(math.exp(min(max(told), 0.0)), _DIGITS) if told else None


class TextMapping:
    """Text mapping: the cosine c of the proposal and its action as (1 + c) / 2, the highest of a candidate's."""

    name = "mapping"

    def score(self, considered: Sequence[Considered], progress: Progress = SILENT) -> list[float | None]:
        """Always told."""
        return [_cosine01(max(mapped.similarity for mapped in one.candidate.mapped)) for one in considered]


def _cosine01(cosine: float) -> float:
    return round(min(max((1 + cosine) / 2, 0.0), 1.0), _DIGITS)


class Translation:
    """The ranking of the LLM agent baseline (Huang et al., 2022, equation 1): cosine + beta x mean log-probability.

    The highest of a candidate's proposals; of their cosines alone where no log-probability is told. Not in [0, 1].
    """

    name = "translation"

    def __init__(self, beta: float) -> None:
        self._beta = beta

    def score(self, considered: Sequence[Considered], progress: Progress = SILENT) -> list[float | None]:
        """Always told."""
        return [self._best(one.candidate) for one in considered]

    def _best(self, candidate: Candidate) -> float:
        pairs = zip(candidate.proposals, candidate.mapped, strict=True)
        return round(max(mapped.similarity + self._beta * (one.logprob or 0.0) for one, mapped in pairs), _DIGITS)


def weighted_mean(scores: Mapping[str, float | None], weights: Mapping[str, float]) -> float | None:
    """The mean of the scores that are told; None where none is.

    >>> weighted_mean({"mapping": 0.5, "evaluation": 1.0, "generation": None}, {"evaluation": 3.0})
    0.875
    """
    told = [(weights.get(name, 1.0), score) for name, score in scores.items() if score is not None]
    total = sum(weight for weight, _ in told)
    return sum(weight * score for weight, score in told) / total if total else None
