"""Requests to models, their answers, and the base class of everything that completes chats."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from recipe.artifacts import JsonObject, fingerprint
from recipe.config.models import SamplingConfig
from recipe.errors import InputError, quoted
from recipe.models.sampling import Decoding
from recipe.progress import SILENT, Progress
from recipe.prompting import PLAIN, PlannerPrompt
from recipe.text import final_answer
from recipe.types import Frames

Chat = list[dict[str, Any]]
"""Messages with `role` and `content`, ending with the user's turn.

Content is a text, or a list of parts {"type": "text", "text": str} and {"type": "video", "video": Frames}; a chat holds
at most one video.
"""


class Answer(NamedTuple):
    """One completion and its cost."""

    text: str
    tokens_in: int = 0
    """Tokens of the prompt, frames included; 0 where they are not reported."""
    tokens_out: int = 0
    seconds: float = 0.0
    """Wall-clock time of the completion, or its share of the time of a batch."""
    cached: bool = False
    """True where the answer comes from the cache and was paid for earlier."""
    logprob: float | None = None
    """Mean log-probability of a token of the answer in nats; None unless it was requested and reported."""
    structured: str = ""
    """How the answer was held to a schema: `json_schema`, `json_object` or `off`; empty where that is not known."""
    finish: str = ""
    """Why it ended: `stop`, `length` at the limit of tokens, or `content_filter`; empty where that is not known."""
    refusal: str = ""
    """What the model says in place of an answer, where the endpoint tells a refusal from an answer."""
    reasoning: str = ""
    """The thought that an endpoint keeps apart from the answer: recorded, and never read."""
    decoding: Decoding | None = None
    """How it was sampled; None where that is not known."""

    @property
    def cut(self) -> bool:
        """Whether it ended at the limit of tokens."""
        return self.finish in ("length", "max_tokens")


class Refusal(NamedTuple):
    """Stands in place of an answer to a chat that alone cannot be answered: it is too long, or a filter stopped it."""

    reason: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One completion of one chat."""

    chat: Chat
    sampling: SamplingConfig
    sample: int = 0
    """Number of the completion among those of its chat; each has its own random numbers."""
    schema: JsonObject | None = None
    """A name and a JSON schema, {"name": str, "schema": object}, that the answer follows where the engine can."""
    logprobs: bool = False
    """Whether `Answer.logprob` is wanted."""
    content: JsonObject | None = None
    """Key of the answer in the cache, in place of chat and sampling: for chats that are slow to make."""
    note: JsonObject | None = None
    """Fields that the cache stores with the answer."""


def unanswered(outcome: Answer | Refusal, *, whole: bool = True) -> str:
    """Why there is no answer that can be read; empty where there is. A list need not be `whole`, and may be empty.

    >>> unanswered(Answer("<think>Let me see", finish="length")), unanswered(Answer("7"))
    ('cut off at the token limit', '')
    """
    if isinstance(outcome, Refusal):
        return f"no answer came: {outcome.reason}"
    if outcome.refusal:
        return f"refused: {quoted(outcome.refusal)}"
    if outcome.cut and (whole or not outcome.text.strip()):
        return "cut off at the token limit"
    if outcome.finish == "content_filter":
        return "stopped by the endpoint's content filter"
    if (answer := final_answer(outcome.text)) is None:
        return "the answer ends within its thought"
    return "" if answer.strip() or not whole else "the answer is empty"


Written = tuple[int, str | Answer | Refusal]
"""The place of a request, with a piece of its completion, or at its end with its outcome."""
WrittenPieces = Generator[Written, None, None]
Stopped = Callable[[int], bool]
"""Whether the completion at a place is no longer wanted."""
OnAnswer = Callable[[int, Answer], None]
"""Receives the place of a request and its answer, from any thread, at the moment the answer arrives."""
Refusals = Literal["return", "raise if all", "raise"]
"""What an engine does about chats that cannot be answered: it returns a Refusal for each; it raises InputError where
nothing but refusals comes, because the request is wrong then; or it raises at the first."""


class Engine(ABC):
    """Anything that completes chats. The same requests give the same texts, up to what an endpoint guarantees."""

    prompt: PlannerPrompt = PLAIN
    """What its model was trained to be asked as a planner."""
    reads_video = False
    """Whether it is known to take chats that show a clip."""

    @abstractmethod
    def answer(
        self,
        requests: Sequence[ModelRequest],
        progress: Progress = SILENT,
        *,
        on_answer: OnAnswer | None = None,
        refusals: Refusals = "return",
    ) -> list[Answer | Refusal]:
        """An answer or a refusal for each request, in order.

        Raises InputError as `refusals` says, and ComputeError where the engine fails altogether; `on_answer` has then
        received every answer that arrived.
        """

    def stream_all(self, requests: Sequence[ModelRequest], stopped: Stopped = lambda _: False) -> WrittenPieces:
        """The place of a request with each piece of its completion as it is written, then with its Answer or Refusal.

        Requests are written side by side where the engine can. One that is `stopped` is written no further than the
        next token and has no answer; closing the iterator stops all. Raises ComputeError where the engine fails. An
        engine that cannot stream gives each text in one piece.
        """
        for place, request in enumerate(requests):
            if stopped(place):
                continue
            [outcome] = self.answer([request])
            if isinstance(outcome, Answer):
                yield place, outcome.text
            yield place, outcome

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
        """`count` answers to each chat; a chat that cannot be answered stops none of the others."""
        requests = [ModelRequest(chat, sampling, at, schema, logprobs) for chat in chats for at in range(count)]
        flat = self.answer(requests, progress, refusals="raise if all")
        return [flat[chat * count : (chat + 1) * count] for chat in range(len(chats))]

    def answers(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[Answer]]:
        """As `outcomes`; raises InputError where a chat is refused."""
        requests = [ModelRequest(chat, sampling, at) for chat in chats for at in range(count)]
        flat = all_answered(self.answer(requests, progress, refusals="raise"))
        return [flat[chat * count : (chat + 1) * count] for chat in range(len(chats))]

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027 - most engines hold nothing open
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what the engine holds open."""


class ReplayEngine(Engine):
    """Answers each chat with completions that were recorded for it; needs no model."""

    def __init__(self, recorded: Mapping[str, Sequence[str]]) -> None:
        self._recorded = recorded

    @classmethod
    def record(cls, chats: Sequence[Chat], completions: Sequence[Sequence[str]]) -> "ReplayEngine":
        """An engine that gives `completions[i]` for `chats[i]`."""
        pairs = zip(chats, completions, strict=True)
        return cls({fingerprint(without_arrays(chat)): tuple(texts) for chat, texts in pairs})

    def answer(
        self,
        requests: Sequence[ModelRequest],
        progress: Progress = SILENT,
        *,
        on_answer: OnAnswer | None = None,
        refusals: Refusals = "return",
    ) -> list[Answer | Refusal]:
        """The recorded completions; raises InputError for one that is not recorded."""
        outcomes: list[Answer | Refusal] = []
        with progress.task("replaying completions", total=len(requests)) as advance:
            for place, request in enumerate(requests):
                plain = without_arrays(request.chat)
                texts = self._recorded.get(fingerprint(plain), ())
                if request.sample >= len(texts):
                    raise InputError(
                        f"{len(texts)} of {request.sample + 1} completions are recorded for the chat ending in "
                        f"{plain[-1]['content']!r}; record more or ask for fewer."
                    )
                answer = Answer(texts[request.sample])
                if on_answer:
                    on_answer(place, answer)
                outcomes.append(answer)
                advance(1)
        return outcomes

    def stream_all(self, requests: Sequence[ModelRequest], stopped: Stopped = lambda _: False) -> WrittenPieces:
        """The recorded completions line by line, a line of each in turn; raises InputError where there is none."""
        answers = all_answered(self.answer(requests))
        lines = {place: iter(answer.text.splitlines(keepends=True)) for place, answer in enumerate(answers)}
        while lines:
            for place in list(lines):
                if stopped(place):
                    del lines[place]
                elif (line := next(lines[place], None)) is not None:
                    yield place, line
                else:
                    del lines[place]
                    yield place, answers[place]


def all_answered(outcomes: Sequence[Answer | Refusal]) -> list[Answer]:
    """The answers; raises InputError with the reason of the first refusal."""
    refused = next((outcome for outcome in outcomes if isinstance(outcome, Refusal)), None)
    if refused is not None:
        raise InputError(refused.reason)
    return [outcome for outcome in outcomes if isinstance(outcome, Answer)]


class GrowingText:
    """A completion that grows, given on in whole characters.

    >>> text = GrowingText()
    >>> [text.grown(whole) for whole in ("a", "ab\N{REPLACEMENT CHARACTER}", "abé")], text.rest()
    (['a', 'b', 'é'], '')
    """

    def __init__(self) -> None:
        self.text = ""
        self._shown = 0

    def grown(self, text: str) -> str:
        """What the completion so far adds to what was given, possibly nothing."""
        self.text = text
        # A character of several tokens reads as this one until it is complete.
        whole = text.rstrip("\N{REPLACEMENT CHARACTER}")
        new = whole[self._shown :]
        self._shown = max(self._shown, len(whole))
        return new

    def rest(self) -> str:
        """What is left at the end."""
        return self.text[self._shown :]


def videos(chat: Chat) -> list[Frames]:
    """The clips that a chat shows, in order."""
    contents = [message["content"] for message in chat if not isinstance(message["content"], str)]
    return [part["video"] for parts in contents for part in parts if part["type"] == "video"]


def digest(frames: Frames) -> str:
    """SHA-256 of a clip: of its size, frames, times and rate."""
    sha = hashlib.sha256(f"{frames.images.shape} {frames.rate}".encode())
    sha.update(frames.images.tobytes())
    sha.update(frames.times.tobytes())
    return sha.hexdigest()


def without_arrays(chat: Chat, name: Callable[[Frames], str] = digest) -> Chat:
    """The chat as JSON can hold it: `name` in place of each clip."""
    return [
        message
        if isinstance(message["content"], str)
        else message
        | {
            "content": [
                part | {"video": name(part["video"])} if part["type"] == "video" else part
                for part in message["content"]
            ]
        }
        for message in chat
    ]
