"""What answers cost."""

import threading
from dataclasses import dataclass
from typing import Any

from recipe.artifacts import JsonObject
from recipe.engines.protocol import Answer


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
        self.structured: str | None = None
        """How answers were held to a schema, once one was asked for."""

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
        """Counts and cost as a plain object, and how answers were held to a schema if they were to be."""
        counted: dict[str, Any] = {
            "answers": self.answers,
            "cached": self.cached,
            "retries": self.retries,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "cost": self._prices.cost(self.tokens_in, self.tokens_out),
        }
        return counted if self.structured is None else counted | {"structured": self.structured}
