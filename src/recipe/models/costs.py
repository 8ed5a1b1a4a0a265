"""The cost of answers: prices, a ledger of what was paid for, and a budget."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recipe.artifacts import JsonObject
from recipe.errors import BudgetSpent
from recipe.models.protocol import Answer


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a million tokens, in any currency; None where they are not known."""

    tokens_in: float | None = None
    tokens_out: float | None = None

    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        """The cost of so many tokens, None without prices.

        >>> Prices(0.25, 1.0).cost(2_000_000, 500_000)
        1.0
        """
        if self.tokens_in is None and self.tokens_out is None:
            return None
        return (tokens_in * (self.tokens_in or 0.0) + tokens_out * (self.tokens_out or 0.0)) / 1e6


class Ledger:
    """Counts of the answers that a model gave since it was opened; safe to share between threads."""

    def __init__(self, prices: Prices | None = None) -> None:
        self.prices, self._lock = prices or Prices(), threading.Lock()
        self.answers = self.cached = self.retries = self.tokens_in = self.tokens_out = 0
        self._uncounted = False
        # How answers were held to a schema, once one was asked for.
        self.structured: str | None = None
        # Fields of requests that the host refuses, and the name that it takes in their place.
        self.refused_fields: Mapping[str, str | None] = {}

    def add(self, answer: Answer) -> None:
        """Count an answer; one from the cache costs nothing."""
        with self._lock:
            if answer.cached:
                self.cached += 1
                return
            self.answers += 1
            # A host that reports no tokens for an answer makes every sum too small.
            self._uncounted |= not (answer.tokens_in or answer.tokens_out)
            self.tokens_in += answer.tokens_in
            self.tokens_out += answer.tokens_out

    def retry(self) -> None:
        """Count a request that had to be sent again."""
        with self._lock:
            self.retries += 1

    def to_json(self) -> JsonObject:
        """Counts and cost as a plain object, how answers were held to a schema if they were to be, fields refused.

        Tokens and cost are None where the tokens of an answer were not reported.
        """
        known = not self._uncounted
        counts: dict[str, Any] = {
            "answers": self.answers,
            "cached": self.cached,
            "retries": self.retries,
            "tokens_in": self.tokens_in if known else None,
            "tokens_out": self.tokens_out if known else None,
            "cost": self.prices.cost(self.tokens_in, self.tokens_out) if known else None,
        }
        optional = {"structured": self.structured, "refused_fields": {**self.refused_fields}}
        return counts | {name: value for name, value in optional.items() if value}

    def numbers(self) -> dict[str, float | None]:
        """The counts and the cost alone, for files of scores."""
        return {name: value for name, value in self.to_json().items() if name not in ("structured", "refused_fields")}


class Budget:
    """Bounds on the answers that are paid for, shared by several models; None bounds nothing. Safe between threads.

    Answers from a cache are free, so that a run that its budget stopped goes on from there. The tokens of an answer are
    known only afterwards: the last group of requests may exceed that bound.
    """

    def __init__(self, calls: int | None = None, tokens: int | None = None) -> None:
        """`calls` bounds the number of answers, `tokens` those of their prompts and their own together."""
        self.calls, self.tokens = calls, tokens
        self.calls_spent = self.tokens_spent = 0
        self._lock = threading.Lock()

    def reserve(self, wanted: int, whole: bool = False) -> int:
        """Reserve as many of the `wanted` calls as are left, and return their number.

        Raises BudgetSpent where none is left, or, of a `whole`, not all are.
        """
        with self._lock:
            left = wanted if self.calls is None else max(0, min(wanted, self.calls - self.calls_spent))
            if self.tokens is not None and self.tokens_spent >= self.tokens:
                left = 0
            if left < (wanted if whole else min(1, wanted)):
                pairs = ((self.calls_spent, self.calls, "calls"), (self.tokens_spent, self.tokens, "tokens"))
                spent = " and ".join(f"{done} of {most} {unit}" for done, most, unit in pairs if most is not None)
                count = wanted if whole else 1
                raise BudgetSpent(
                    f"{count} more {'answer' if count == 1 else 'answers'} would exceed the budget, of which {spent} "
                    "are spent; answers in the cache are free, so the same run with a larger budget resumes from there."
                )
            self.calls_spent += left
            return left

    def settle(self, reserved: int, paid: Sequence[Answer]) -> None:
        """Give back the `reserved` calls that were not paid for, and count the tokens of those that were."""
        with self._lock:
            self.calls_spent += len(paid) - reserved
            self.tokens_spent += sum(answer.tokens_in + answer.tokens_out for answer in paid)

    def to_json(self) -> JsonObject:
        """The bounds and what was spent, as a plain object."""
        bounds = {"calls": self.calls, "tokens": self.tokens}
        return bounds | {"calls_spent": self.calls_spent, "tokens_spent": self.tokens_spent}
