"""Where a plan stands, and what is proposed next."""

from typing import NamedTuple

from recipe.planning.admissible import Mapped


class State(NamedTuple):
    """A goal, what was done, and what has been planned so far."""

    goal: str
    observed: tuple[str, ...]
    """Steps of the history, in words: annotated or told by Phi."""
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
    """What a proposer wrote."""

    source: str
    """The proposer's name."""
    text: str
    """The next action in its own words; empty where the answer holds none."""
    raw: str
    """The whole answer, or why there is none."""
    logprob: float | None = None
    """Mean log-probability of a token of the answer in nats; None where the engine does not tell."""


class Candidate(NamedTuple):
    """An admissible action, and the proposals that were taken for it."""

    action: str
    proposals: tuple[Proposal, ...]
    mapped: tuple[Mapped, ...]
    """How each proposal was mapped, in the same order."""
