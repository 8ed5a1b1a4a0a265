"""What completes chats: the protocol that planners and Phi ask."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from recipe.artifacts import JsonObject
from recipe.config import SamplingConfig
from recipe.errors import InputError
from recipe.progress import SILENT, Progress
from recipe.types import Frames

Chat = list[dict[str, Any]]
"""Messages with `role` and `content`, ending with the user's turn.

Content is a text, or a list of parts {"type": "text", "text": str} and {"type": "video", "video": Frames}; a chat holds
at most one video.
"""


class Answer(NamedTuple):
    """One completion and what it took."""

    text: str
    tokens_in: int = 0
    """Tokens of the prompt, frames included; 0 where they were not told."""
    tokens_out: int = 0
    seconds: float = 0.0
    """Wall-clock time that it took, or its share of that of a batch."""
    cached: bool = False
    """True where it was answered before, and paid for then."""
    logprob: float | None = None
    """Mean log-probability of a token of the answer in nats; None unless it was asked for and told."""
    structured: str = ""
    """How it was held to a schema: `json_schema`, `json_object` or `off`; empty where that is not known."""


class Refusal(NamedTuple):
    """In place of an answer: this chat alone cannot be answered, because it is too long or a filter stepped in."""

    reason: str


class Engine(Protocol):
    """Anything that completes chats."""

    def generate(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[str]]:
        """`count` completions of each chat, in order; the same sampling gives the same texts."""
        ...

    def outcomes(
        self,
        chats: Sequence[Chat],
        count: int,
        sampling: SamplingConfig,
        progress: Progress = SILENT,
        *,
        schema: JsonObject | None = None,
        logprobs: bool = False,
    ) -> list[list[Answer | Refusal]]:
        """As `generate`, with what each completion took; a chat that cannot be answered stops none of the others.

        `schema`, a name and a JSON schema as {"name": str, "schema": object}, is what the answers are to follow where
        the engine can make them; `logprobs` asks for `Answer.logprob`.
        """
        ...

    def stream(self, chat: Chat, sampling: SamplingConfig) -> Iterator[str]:
        """The first completion of `generate` in pieces, as they are written."""
        ...


def all_texts(outcomes: Sequence[Sequence[Answer | Refusal]]) -> list[list[str]]:
    """The texts of answers; raises InputError with the reason where a chat was refused."""
    for group in outcomes:
        for one in group:
            if isinstance(one, Refusal):
                raise InputError(one.reason)
    return [[one.text for one in group if isinstance(one, Answer)] for group in outcomes]


def videos(chat: Chat) -> list[Frames]:
    """The clips that a chat shows, in order."""
    contents = [message["content"] for message in chat if not isinstance(message["content"], str)]
    return [part["video"] for parts in contents for part in parts if part["type"] == "video"]


def digest(frames: Frames) -> str:
    """SHA-256 of a clip: of its size, frames, times and rate."""
    found = hashlib.sha256(f"{frames.images.shape} {frames.rate}".encode())
    found.update(frames.images.tobytes())
    found.update(frames.times.tobytes())
    return found.hexdigest()


def without_arrays(chat: Chat, name: Callable[[Frames], str] = digest) -> Chat:
    """The chat as JSON can hold it: `name` in place of each clip."""
    return [
        message
        if isinstance(message["content"], str)
        else {**message, "content": [_plain(part, name) for part in message["content"]]}
        for message in chat
    ]


def _plain(part: dict[str, Any], name: Callable[[Frames], str]) -> dict[str, Any]:
    return {**part, "video": name(part["video"])} if part["type"] == "video" else part
