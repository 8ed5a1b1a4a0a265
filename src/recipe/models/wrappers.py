"""What goes around any engine: kept answers, a ledger of costs, a budget, and replayed completions."""

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from recipe.artifacts import JsonObject, file_sha256, fingerprint
from recipe.config import SamplingConfig
from recipe.errors import BudgetSpent, InputError
from recipe.models.protocol import Answer, Chat, Engine, Refusal, all_texts, without_arrays
from recipe.progress import SILENT, Progress

# What answers cost.


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


# Answers kept by what was asked: one small JSON file each, so that a killed job goes on where it stood.
#
# An entry appears whole or not at all, and several processes may share a folder, on a disk of the network too: who
# writes an entry twice writes the same. What is no entry any more, because a disk was full or a file was cut, counts as
# absent.
#
# A kill loses nothing that was written. A power cut may lose what is not on the disk yet: `put` waits for that (some
# milliseconds), `keep` does not, and `flush` waits for all that was kept before.


_MANY = 16
"""New entries from which on the system is asked for all its files at once: a single one takes milliseconds."""


class AnswerCache:
    """A folder of JSON objects, each under the fingerprint of what it answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._unsafe: list[Path] = []

    def get(self, asked: object) -> JsonObject | None:
        """What was kept for `asked`, None where nothing was."""
        return self.find(fingerprint(asked))

    def put(self, asked: object, answer: JsonObject) -> None:
        """Keep `answer` for `asked`; it is on disk when this returns. Raises OSError."""
        self._write(self._path(fingerprint(asked)), answer, wait=True)

    def find(self, key: str) -> JsonObject | None:
        """What was kept under a fingerprint, None where nothing was."""
        try:
            value = json.loads(self._path(key).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def answer(self, key: str) -> Answer | None:
        """The answer that was kept under a fingerprint, as one from the cache."""
        kept = self.find(key)
        try:
            return None if kept is None else read_kept(kept)
        except KeyError:
            return None

    def keep(self, key: str, answer: JsonObject) -> None:
        """Keep `answer` under a fingerprint, safe from a kill now, from a power cut after `flush`. Raises OSError."""
        path = self._path(key)
        self._write(path, answer, wait=False)
        self._unsafe.append(path)

    def flush(self) -> None:
        """Wait until all that was kept is on the disk; safe in any thread."""
        unsafe, self._unsafe = self._unsafe, []
        if len(unsafe) > _MANY:
            os.sync()
            return
        for path in unsafe:
            with contextlib.suppress(FileNotFoundError), path.open("rb") as stream:
                os.fsync(stream.fileno())

    def sha256(self, file: Path) -> str:
        """SHA-256 of a file, computed again only where its size or its time of change is another. Raises OSError."""
        status = file.stat()
        asked = {"file": str(file.resolve()), "size": status.st_size, "changed": status.st_mtime_ns}
        known = self.get(asked)
        if known is None:
            known = {"sha256": file_sha256(file)}
            self.put(asked, known)
        return str(known["sha256"])

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def _write(self, path: Path, answer: JsonObject, wait: bool) -> None:
        # A name of its own, because threads and processes may keep the same answer at once.
        partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
        data = json.dumps(answer, ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass")
        try:
            with _opened(partial) as stream:
                stream.write(data)
                if wait:
                    os.fsync(stream.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def _opened(partial: Path) -> FileIO:
    """A new file to write to, in a folder that is made where it is missing."""
    try:
        return partial.open("wb", buffering=0)
    except FileNotFoundError:
        partial.parent.mkdir(parents=True, exist_ok=True)
        return partial.open("wb", buffering=0)


def read_kept(kept: JsonObject) -> Answer:
    """An answer as it was kept, now from the cache. Raises KeyError."""
    told = (kept["text"], kept["tokens_in"], kept["tokens_out"], kept["seconds"])
    return Answer(*told, cached=True, logprob=kept.get("logprob"), structured=kept.get("structured", ""))


# Any engine with a memory: an answer is kept the moment it is there, and never asked for again.
#
# The endpoint's engine keeps its own answers; this is for the others, a model on this machine above all. Chats are
# asked about in groups of about a batch, so that a job that is killed loses no more than one.


Outcomes = list[Answer | Refusal]


class KeptEngine:
    """Answers from a folder what was answered before, and asks another engine for the rest."""

    def __init__(self, engine: Engine, identity: Mapping[str, object], folder: Path) -> None:
        """`identity` is all that tells the engine's model from others."""
        self._engine, self._identity, self._cache = engine, dict(identity), AnswerCache(folder)

    def generate(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[str]]:
        """As the engine does; raises InputError for a chat that is refused, and what the engine raises."""
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
    ) -> list[list[Answer | Refusal]]:
        """As the engine does; a chat of which a sample is missing is asked about again, for the missing ones.

        What is refused is not kept. Raises what the engine raises, and OSError where an answer cannot be kept.
        """
        keys = [self._keys(chat, count, sampling, schema, logprobs) for chat in chats]
        chat_of = dict(zip(keys, chats, strict=True))
        kept = {row: self._kept(row) for row in chat_of}
        waiting = [row for row, known in kept.items() if None in known]
        found: dict[tuple[str, ...], Outcomes] = {
            row: [one for one in known if one is not None] for row, known in kept.items() if None not in known
        }
        together = max(1, sampling.batch_size)
        for at in range(0, len(waiting), together):
            rows = waiting[at : at + together]
            asked = [chat_of[row] for row in rows]
            told = self._engine.outcomes(asked, count, sampling, progress, schema=schema, logprobs=logprobs)
            for row, answers in zip(rows, told, strict=True):
                pairs = zip(row, kept[row], answers, strict=True)
                found[row] = [known or self._keep(key, answer) for key, known, answer in pairs]
            self._cache.flush()
        return [list(found[row]) for row in keys]

    def known(
        self,
        chats: Sequence[Chat],
        count: int,
        sampling: SamplingConfig,
        *,
        schema: JsonObject | None = None,
        logprobs: bool = False,
    ) -> list[int]:
        """How many of the `count` completions of each chat are free; 0 where one is missing, as all are asked for."""
        rows = [self._kept(self._keys(chat, count, sampling, schema, logprobs)) for chat in chats]
        return [0 if None in row else count for row in rows]

    def stream(self, chat: Chat, sampling: SamplingConfig) -> Iterator[str]:
        """As the engine does; an answer that is kept comes whole, and one that came whole is kept."""
        [key] = self._keys(chat, 1, sampling, None, False)
        [known] = self._kept((key,))
        if known is not None:
            yield known.text
            return
        pieces = []
        for piece in self._engine.stream(chat, sampling):
            pieces.append(piece)
            yield piece
        self._keep(key, Answer("".join(pieces)))

    def _keys(
        self, chat: Chat, count: int, sampling: SamplingConfig, schema: JsonObject | None, logprobs: bool
    ) -> tuple[str, ...]:
        """What each sample of a chat is kept under."""
        asked: JsonObject = {
            "engine": self._identity,
            "messages": without_arrays(chat),
            "sampling": sampling.model_dump(include={"temperature", "max_tokens", "seed"}),
        }
        more = {"schema": schema, "logprobs": logprobs or None}
        asked |= {name: value for name, value in more.items() if value is not None}
        shared = fingerprint(asked)
        return tuple(fingerprint([shared, sample]) for sample in range(count))

    def _kept(self, keys: Sequence[str]) -> list[Answer | None]:
        return [self._cache.answer(key) for key in keys]

    def _keep(self, key: str, answer: Answer | Refusal) -> Answer | Refusal:
        if isinstance(answer, Answer):
            self._cache.keep(key, answer._replace(cached=False)._asdict())
        return answer


# A bound on what answers may cost, around any engine.
#
# Only answers that are paid for count: those of a cache are free, so that a run that its budget stopped goes on where
# it stood. No call is begun that could exceed the calls. How many tokens an answer takes is known afterwards only:
# where those are bounded, chats are asked about in small groups, and the last group may go over.


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

    def settle(self, reserved: int, answers: Sequence[Answer | Refusal]) -> None:
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
    ) -> list[list[Answer | Refusal]]:
        """As the engine does, raising BudgetSpent before what the budget does not allow.

        An engine that keeps its answers is asked as far as the budget goes, because the next run finds them. One that
        keeps none is asked about all chats at once, and not at all where the calls do not suffice.
        """
        wanted, together, keeps = [count] * len(chats), len(chats), isinstance(self._engine, Keeps)
        if isinstance(self._engine, Keeps):
            known = self._engine.known(chats, count, sampling, schema=schema, logprobs=logprobs)
            wanted = [count - kept for kept in known]
            together = len(chats) if self.budget.tokens is None else _TOGETHER
        found: list[list[Answer | Refusal]] = []
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


# An engine that replays completions, for tests and for replays without a model.


class ReplayEngine:
    """Answers each chat with completions recorded for it."""

    def __init__(self, recorded: Mapping[str, Sequence[str]]) -> None:
        self._recorded = recorded

    @classmethod
    def record(cls, chats: Sequence[Chat], completions: Sequence[Sequence[str]]) -> "ReplayEngine":
        """An engine that gives `completions[i]` for `chats[i]`."""
        pairs = zip(chats, completions, strict=True)
        return cls({fingerprint(without_arrays(chat)): tuple(texts) for chat, texts in pairs})

    def generate(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[str]]:
        """The first `count` recorded completions of each chat; raises InputError where there are fewer."""
        with progress.task("replaying completions", total=len(chats) * count) as advance:
            answers = []
            for chat in chats:
                answers.append(self._answer(chat, count))
                advance(count)
        return answers

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
        """As `generate`; no tokens are told, and what is not recorded is an error here, too."""
        return [[Answer(text) for text in texts] for texts in self.generate(chats, count, sampling, progress)]

    def stream(self, chat: Chat, sampling: SamplingConfig) -> Iterator[str]:
        """The first recorded completion of the chat, line by line; raises InputError where there is none."""
        [text] = self._answer(chat, 1)
        yield from text.splitlines(keepends=True)

    def _answer(self, chat: Chat, count: int) -> list[str]:
        plain = without_arrays(chat)
        texts = self._recorded.get(fingerprint(plain), ())
        if len(texts) < count:
            asked = plain[-1]["content"]
            raise InputError(
                f"{len(texts)} of {count} completions are recorded for the chat ending in {asked!r}; "
                "record more or ask for fewer."
            )
        return list(texts[:count])
