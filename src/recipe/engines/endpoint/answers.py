"""What an endpoint answered: a chat completion in one body, or in pieces as server-sent events."""

import json
from collections.abc import AsyncIterator
from statistics import fmean
from typing import NamedTuple

from pydantic import BaseModel, Field

from recipe.engines.protocol import Answer
from recipe.errors import quoted

_EVENT, _DONE = "data:", "[DONE]"


class Unreadable(Exception):
    """An answer that is no chat completion."""


class _Message(BaseModel):
    content: str | None = None


class _Token(BaseModel):
    logprob: float


class _LogProbs(BaseModel):
    content: list[_Token] | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    logprobs: _LogProbs | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(BaseModel):
    """The part of a chat completion that is read; strict, because hosts answer 200 to what they could not do."""

    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


class _Piece(BaseModel):
    delta: _Message | None = None
    finish_reason: str | None = None


class _Chunk(BaseModel):
    choices: list[_Piece] | None = None
    usage: _Usage | None = None


class Chunk(NamedTuple):
    """A piece of an answer as it comes."""

    text: str
    last: bool
    """True where it says how the answer ended."""
    tokens: tuple[int, int] | None
    """Tokens of the prompt and of the answer, once they are told."""


def read_answer(body: bytes, seconds: float) -> Answer:
    """The completion in a response's body; raises Unreadable for HTML, half a JSON, no choices, an error in disguise.

    A completion may be without text, where a filter stepped in or the limit was reached before any: it is then empty,
    if the endpoint says how it ended.
    """
    try:
        completion = _Completion.model_validate_json(_whole_characters(body))
    except ValueError:  # also of pydantic
        raise Unreadable(f"the answer is no chat completion: {_shown(body)}") from None
    [choice, *_] = completion.choices
    if choice.message.content is None and choice.finish_reason is None:
        raise Unreadable(f"the answer holds no text and does not say why: {_shown(body)}")
    usage = completion.usage or _Usage()
    tokens = choice.logprobs.content if choice.logprobs else None
    mean = fmean(token.logprob for token in tokens) if tokens else None
    return Answer(choice.message.content or "", usage.prompt_tokens, usage.completion_tokens, seconds, logprob=mean)


def _whole_characters(body: bytes) -> bytes:
    r"""A JSON text whose escapes are whole characters: a limit of tokens may cut an emoji to `\ud83d`."""
    if b"\\ud" not in body and b"\\uD" not in body:
        return body
    return json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "replace")


def _shown(body: bytes) -> str:
    return quoted(body.decode("utf-8", "replace"))


async def read_chunks(lines: AsyncIterator[str]) -> AsyncIterator[Chunk]:
    """The pieces in the lines of a stream; raises Unreadable for an event that is none."""
    async for line in lines:
        if not line.startswith(_EVENT):
            continue
        data = line.removeprefix(_EVENT).strip()
        if data == _DONE:
            return
        try:
            chunk = _Chunk.model_validate_json(_whole_characters(data.encode("utf-8", "replace")))
        except ValueError:
            raise Unreadable(f"a piece of the answer cannot be read: {quoted(data)}") from None
        pieces, usage = chunk.choices or [], chunk.usage
        yield Chunk(
            "".join(piece.delta.content or "" for piece in pieces if piece.delta),
            any(piece.finish_reason is not None for piece in pieces),
            None if usage is None else (usage.prompt_tokens, usage.completion_tokens),
        )
