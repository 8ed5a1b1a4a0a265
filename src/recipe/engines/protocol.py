"""What completes chats: the protocol that planners and Phi ask."""

from collections.abc import Sequence
from typing import Protocol

from recipe.config import SamplingConfig
from recipe.progress import SILENT, Progress

Chat = list[dict[str, str]]
"""Messages with `role` and `content`, ending with the user's turn."""


class Engine(Protocol):
    """Anything that completes chats."""

    def generate(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[str]]:
        """`count` completions of each chat, in order; the same sampling gives the same texts."""
        ...
