"""What a verifier is asked about at once: a prompt and the plans proposed for it."""

from typing import NamedTuple

Steps = tuple[str, ...]


class PromptGroup(NamedTuple):
    """The plans that continue one history towards one goal; they share what depends on the prompt only."""

    goal: str
    history: Steps
    plans: list[Steps]
