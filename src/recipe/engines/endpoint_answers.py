"""What an endpoint answered, and the ledger of what answers cost."""

import threading
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from recipe.artifacts import JsonObject
from recipe.engines.protocol import Answer

_SHOWN = 160
"""Characters of a strange answer that an error quotes."""


class Unreadable(Exception):
    """An answer that is no chat completion."""


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(BaseModel):
    """The part of a chat completion that is read; strict, because hosts answer 200 to what they could not do."""

    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


def read_answer(body: str, seconds: float) -> Answer:
    """The completion in a response's body; raises Unreadable for HTML, half a JSON, no choices, an error in disguise.

    A completion may be without text, where a filter stepped in or the limit was reached before any: it is then empty,
    if the endpoint says how it ended.
    """
    try:
        completion = _Completion.model_validate_json(body)
    except ValidationError:
        raise Unreadable(f"the answer is no chat completion: {quoted(body)}") from None
    [choice, *_] = completion.choices
    if choice.message.content is None and choice.finish_reason is None:
        raise Unreadable(f"the answer holds no text and does not say why: {quoted(body)}")
    usage = completion.usage or _Usage()
    return Answer(choice.message.content or "", usage.prompt_tokens, usage.completion_tokens, seconds)


def quoted(text: str) -> str:
    """The beginning of a text on one line, for an error.

    >>> quoted(" <html>\\n  <body>")
    "'<html> <body>'"
    """
    line = " ".join(text[: 4 * _SHOWN].split())
    return repr(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}...") if line else "nothing"


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a million tokens, in any currency; None where they are not known."""

    tokens_in: float | None = None
    tokens_out: float | None = None

    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        """What so many tokens cost, None without prices.

        >>> Prices(0.25, 1.0).cost(2_000_000, 500_000)
        1.0
        """
        if self.tokens_in is None and self.tokens_out is None:
            return None
        return (tokens_in * (self.tokens_in or 0.0) + tokens_out * (self.tokens_out or 0.0)) / 1e6


class Ledger:
    """What an engine was paid for since it was opened; safe to share between threads."""

    def __init__(self, prices: Prices) -> None:
        self._prices, self._lock = prices, threading.Lock()
        self.answers = self.cached = self.retries = self.tokens_in = self.tokens_out = 0

    def add(self, answer: Answer) -> None:
        """Count an answer; one from the cache costs nothing."""
        with self._lock:
            if answer.cached:
                self.cached += 1
                return
            self.answers += 1
            self.tokens_in += answer.tokens_in
            self.tokens_out += answer.tokens_out

    def retry(self) -> None:
        """Count a request that had to be sent again."""
        with self._lock:
            self.retries += 1

    def to_json(self) -> JsonObject:
        """Counts and cost as a plain object."""
        counted: dict[str, Any] = {
            "answers": self.answers,
            "cached": self.cached,
            "retries": self.retries,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
        }
        return counted | {"cost": self._prices.cost(self.tokens_in, self.tokens_out)}
