"""What a verifier is asked about at once: a prompt and the plans proposed for it."""

from collections.abc import Sequence
from typing import NamedTuple

from recipe.errors import InputError

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
