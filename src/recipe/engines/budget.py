"""A bound on what answers may cost, around any engine.

Only answers that are paid for count: those of a cache are free, so that a run that its budget stopped goes on where it
stood. No call is begun that could exceed the calls. How many tokens an answer takes is known afterwards only: where
those are bounded, chats are asked about in small groups, and the last group may go over.
"""

import threading
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Protocol, runtime_checkable

from recipe.artifacts import JsonObject
from recipe.config import SamplingConfig
from recipe.engines.protocol import Answer, Chat, Engine, Refused, all_texts
from recipe.errors import BudgetSpent, InputError
from recipe.progress import SILENT, Progress

_TOGETHER = 32
"""Chats of a group where tokens are bounded."""


@runtime_checkable
class Keeps(Protocol):
    """An engine that keeps its answers."""

    def known(
        self,
        chats: Sequence[Chat],
        count: int,
        sampling: SamplingConfig,
        *,
        schema: JsonObject | None = None,
        logprobs: bool = False,
    ) -> list[int]:
        """How many of the `count` completions of each chat are kept."""
        ...


class Budget:
    """What may be spent by all engines that share it; None bounds nothing. Safe to share between threads."""

    def __init__(self, calls: int | None = None, tokens: int | None = None) -> None:
        """`calls` bounds the answers that are paid for, `tokens` those of their prompts and of themselves."""
        if (calls or 0) < 0 or (tokens or 0) < 0:
            raise InputError(f"a budget of {calls} calls and {tokens} tokens is below 0; give 0 or more.")
        self.calls, self.tokens = calls, tokens
        self.calls_spent = self.tokens_spent = 0
        self._lock = threading.Lock()

    def reserve(self, wanted: Sequence[int], whole: bool = False) -> int:
        """Take the calls of as many as possible of what is asked next, and say of how many.

        `wanted` is how many calls each takes. Raises BudgetSpent where not even the first can be paid for, or, of a
        `whole`, not all.
        """
        with self._lock:
            left = sum(wanted) if self.calls is None else self.calls - self.calls_spent
            over = self.tokens is not None and self.tokens_spent >= self.tokens
            allowed = sum(total <= left and not (total and over) for total in accumulate(wanted))
            if allowed < (len(wanted) if whole else min(1, len(wanted))):
                raise BudgetSpent(self._problem(sum(wanted) if whole else wanted[0]))
            self.calls_spent += sum(wanted[:allowed])
            return allowed

    def settle(self, reserved: int, answers: Sequence[Answer | Refused]) -> None:
        """Give back what of the `reserved` calls was not paid for, and count the tokens."""
        paid = [answer for answer in answers if isinstance(answer, Answer) and not answer.cached]
        with self._lock:
            self.calls_spent += len(paid) - reserved
            self.tokens_spent += sum(answer.tokens_in + answer.tokens_out for answer in paid)

    def give_back(self, calls: int) -> None:
        """Free reserved calls that were not paid for."""
        with self._lock:
            self.calls_spent -= calls

    def to_json(self) -> JsonObject:
        """The bounds and what was spent, as a plain object."""
        bounds = {"calls": self.calls, "tokens": self.tokens}
        return bounds | {"calls_spent": self.calls_spent, "tokens_spent": self.tokens_spent}

    def _problem(self, wanted: int) -> str:
        pairs = ((self.calls_spent, self.calls, "calls"), (self.tokens_spent, self.tokens, "tokens"))
        spent = " and ".join(f"{done} of {most} {what}" for done, most, what in pairs if most is not None)
        more = f"{wanted} more {'answer' if wanted == 1 else 'answers'}"
        remedy = "answers in the cache are free, so the same run with a larger budget goes on from there"
        return f"{more} would exceed the budget, of which {spent} are spent; {remedy}."


class BudgetEngine:
    """Asks another engine as long as the budget lasts."""

    def __init__(self, engine: Engine, budget: Budget) -> None:
        self._engine, self.budget = engine, budget

    def generate(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[str]]:
        """As the engine does. Raises BudgetSpent, and InputError for a chat that is refused."""
        return all_texts(self.outcomes(chats, count, sampling, progress))

    def outcomes(
        self,
        chats: Sequence[Chat],
        count: int,
        sampling: SamplingConfig,
        progress: Progress = SILENT,
        *,
        schema: JsonObject | None = None,
        logprobs: bool = False,
    ) -> list[list[Answer | Refused]]:
        """As the engine does, raising BudgetSpent before what the budget does not allow.

        An engine that keeps its answers is asked as far as the budget goes, because the next run finds them. One that
        keeps none is asked about all chats at once, and not at all where the calls do not suffice.
        """
        wanted, together, keeps = [count] * len(chats), len(chats), isinstance(self._engine, Keeps)
        if isinstance(self._engine, Keeps):
            known = self._engine.known(chats, count, sampling, schema=schema, logprobs=logprobs)
            wanted = [count - kept for kept in known]
            together = len(chats) if self.budget.tokens is None else _TOGETHER
        found: list[list[Answer | Refused]] = []
        while len(found) < len(chats):
            at = len(found)
            taken = self.budget.reserve(wanted[at : at + together], whole=not keeps)
            asked = chats[at : at + taken]
            try:
                answers = self._engine.outcomes(asked, count, sampling, progress, schema=schema, logprobs=logprobs)
            except BaseException:  # Ctrl-C as well: what is kept by now was paid for
                left = sum(wanted[at : at + taken])
                if isinstance(self._engine, Keeps):
                    known = self._engine.known(asked, count, sampling, schema=schema, logprobs=logprobs)
                    left = count * len(asked) - sum(known)
                self.budget.give_back(left)
                raise
            self.budget.settle(sum(wanted[at : at + taken]), [one for row in answers for one in row])
            found += answers
        return found

    def stream(self, chat: Chat, sampling: SamplingConfig) -> Iterator[str]:
        """As the engine does; counts as one call without tokens, which a stream does not tell."""
        free = isinstance(self._engine, Keeps) and self._engine.known([chat], 1, sampling) == [1]
        self.budget.reserve([0 if free else 1])
        yield from self._engine.stream(chat, sampling)
