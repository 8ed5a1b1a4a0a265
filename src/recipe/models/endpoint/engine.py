"""The engine of an endpoint: many questions at once, each answer kept the moment it comes."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self, TypeVar
from weakref import WeakSet, WeakValueDictionary

from recipe.artifacts import JsonObject, fingerprint
from recipe.config import EndpointConfig, SamplingConfig
from recipe.errors import ComputeError, RecipeError
from recipe.models.endpoint.host import Host, Unfit
from recipe.models.endpoint.wire import Question, Structured, identity
from recipe.models.protocol import Answer, Chat, Refusal, all_texts, videos
from recipe.models.wrappers import AnswerCache, Ledger, Prices
from recipe.progress import SILENT, Advance, Progress

# One call of the engine: what became of its questions so far, and whether it goes on.


class Call:
    """Ends at the first failure that concerns more than one chat; belongs to one event loop."""

    def __init__(self, strict: bool, enough: int) -> None:
        """Of a `strict` call all questions are to be answered; else `enough` chats that are refused while none is
        answered are taken for a fault of the request, unless the endpoint says that it is one of the chats."""
        self._strict, self._enough = strict, enough
        self.ended = asyncio.Event()
        """Set once nothing new is to be asked."""
        self.failure: RecipeError | None = None
        self._answered = False
        self._refused: set[int] = set()

    def answered(self) -> None:
        """A question was answered, so that the request as such is right."""
        self._answered = True

    def fail(self, failure: RecipeError) -> None:
        """Ask nothing new; the first failure counts."""
        self.failure = self.failure or failure
        self.ended.set()

    def refuse(self, chat: int, unfit: Unfit) -> Refusal:
        """What stands in place of an answer about a chat."""
        if not unfit.of_the_chat:
            self._refused.add(chat)
        if self._strict or (not self._answered and len(self._refused) >= self._enough):
            self.fail(unfit)
        return Refusal(str(unfit))


# The engine: many questions to one endpoint at once, each answer kept the moment it comes.
#
# It serves whoever asks chats: Phi, planners, judges. An answer is kept under what was asked (model, messages with a
# digest of their frames, sampling, sample, schema), so that it is never paid for twice. An endpoint that cannot answer
# now is asked again; once one answer is given up, nothing new is asked, what is under way is awaited and kept, and one
# error tells why. So does Ctrl-C, with a limit to its patience.
#
# Requests run on an event loop in a thread of their own, so that several threads may ask one engine at once. A few
# workers a call take one question after the other; hashing, building and reading of texts happen on the loop, because a
# thread for each costs more than they do.


_LOG = logging.getLogger(__name__)
_FLUSH = 1.0
"""Seconds between two times that answers are brought to the disk."""
_GRACE = 10.0
"""Seconds that answers under way are awaited after Ctrl-C; a second one does not wait."""

Result = TypeVar("Result")


class EndpointEngine:
    """Completes chats over HTTP; a context manager, and safe to share between threads."""

    def __init__(self, config: EndpointConfig, cache: Path | None = None) -> None:
        """Prepare to ask; nothing is sent. Raises InputError for an address or a key that cannot be used."""
        self.config, self.ledger = config, Ledger(Prices(config.price_in, config.price_out))
        self._host = Host(config, self.ledger)
        self._cache = None if cache is None else AnswerCache(cache)
        self._flushed = 0.0
        self._slots = asyncio.Semaphore(config.concurrency)
        self._asked: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._calls: WeakSet[Call] = WeakSet()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = kind is not None and not issubclass(kind, Exception)
        self.close(_GRACE if interrupted else 0.0)

    @property
    def structured(self) -> Structured:
        """How the endpoint holds answers to a schema, as far as it is known."""
        return self._host.fields.structured

    def close(self, grace: float = 0.0) -> None:
        """Give up what is under way after `grace` seconds, and close the connections."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._stop(grace), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._cache is not None:
            self._cache.flush()

    def generate(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[str]]:
        """`count` completions of each chat; raises InputError or ComputeError naming the endpoint and what to do."""
        return all_texts(self.answers(chats, count, sampling, progress))

    def answers(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[Answer]]:
        """As `generate`, with the tokens and the time that each completion took."""
        questions = [Question(chat, sample, sampling) for chat in chats for sample in range(count)]
        found = self._called(questions, count, Call(strict=True, enough=1), progress)
        return [[one for one in group if isinstance(one, Answer)] for group in _groups(found, chats, count)]

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
        """As `answers`, with a chat refused that the endpoint does not take.

        Raises the first refusal where as many chats as are asked about at once are refused and none is answered:
        then the request is wrong, and not they.
        """
        questions = [Question(chat, sample, sampling, schema, logprobs) for chat in chats for sample in range(count)]
        call = Call(strict=False, enough=min(self.config.concurrency, len(chats)))
        return _groups(self._called(questions, count, call, progress), chats, count)

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
        samples = [[Question(chat, sample, sampling, schema, logprobs) for sample in range(count)] for chat in chats]
        return [sum(self._kept(self._key(question)) is not None for question in group) for group in samples]

    def stream(self, chat: Chat, sampling: SamplingConfig) -> Iterator[str]:
        """The first completion of `generate` in pieces, as they come; one that is kept comes whole.

        Where nothing comes, it is asked for as `generate` does. Raises as that does, and ComputeError for an answer
        that breaks off.
        """
        question = Question(chat, 0, sampling)
        if self._kept(self._key(question)) is None:
            pieces: SimpleQueue[str | None] = SimpleQueue()
            future = asyncio.run_coroutine_threadsafe(self._feed(question, pieces.put), self._loop)
            future.add_done_callback(lambda _: pieces.put(None))
            told = False
            try:
                while (piece := pieces.get()) is not None:
                    told = True
                    yield piece
            finally:
                future.cancel()
            if (failure := future.exception()) is None:
                return
            if told:
                reason = self._host.without_key(f"the answer broke off ({type(failure).__name__}: {failure})")
                raise ComputeError(f"{self._host.url}: {reason}; ask again.")
        [[text]] = self.generate([chat], 1, sampling)
        yield text

    def _called(
        self, questions: Sequence[Question], count: int, call: Call, progress: Progress
    ) -> list[Answer | Refusal]:
        """What became of each question; `count` in a row are about one chat."""
        with progress.task(f"asking {self.config.model}", total=len(questions)) as advance:
            work = self._all(questions, count, call, advance)
            return self._awaited(asyncio.run_coroutine_threadsafe(work, self._loop), call)

    def _awaited(self, future: Future[Result], call: Call) -> Result:
        try:
            return future.result()
        except Exception:
            raise
        except BaseException:  # Ctrl-C and the like
            self._loop.call_soon_threadsafe(call.ended.set)
            _LOG.warning("awaiting answers under way for up to %.0f s; interrupt again to end at once", _GRACE)
            with contextlib.suppress(Exception):
                future.result(_GRACE)
            raise
        finally:
            future.cancel()

    async def _stop(self, grace: float) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if grace and others:
            for call in self._calls:
                call.ended.set()
            await asyncio.wait(others, timeout=grace)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._host.close()
        await self._loop.shutdown_default_executor()

    async def _all(
        self, questions: Sequence[Question], count: int, call: Call, advance: Advance
    ) -> list[Answer | Refusal]:
        found: list[Answer | Refusal | None] = [None] * len(questions)
        left = iter(enumerate(questions))
        self._calls.add(call)

        async def work() -> None:
            for at, question in left:
                async with self._slots:
                    if call.ended.is_set():
                        return
                    found[at] = await self._outcome(question, at // count, call)
                if found[at] is not None:
                    advance(1)
                await asyncio.sleep(0)  # where all is kept, others have their turn

        workers = [work() for _ in range(min(self.config.concurrency, len(questions)))]
        for result in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        if call.failure is not None:
            raise call.failure
        told = [one for one in found if one is not None]
        if len(told) < len(found):  # ended from outside
            raise asyncio.CancelledError
        return told

    async def _outcome(self, question: Question, chat: int, call: Call) -> Answer | Refusal | None:
        """The answer; None where it is given up, and with it the call."""
        try:
            answer = await self._answer(question, call.ended)
        except Unfit as unfit:
            return call.refuse(chat, unfit)
        except RecipeError as failure:
            call.fail(failure)
            return None
        except BaseException:  # a full disk
            call.ended.set()
            raise
        call.answered()
        self.ledger.add(answer)
        return answer

    async def _answer(self, question: Question, ended: asyncio.Event) -> Answer:
        """The kept answer, or a new one that is kept."""
        if self._cache is None:
            return await self._host.answer(question, ended)
        # A digest of frames takes long, one of a text does not.
        key = await asyncio.to_thread(self._key, question) if videos(question.chat) else self._key(question)
        # Equal questions at once are one question.
        lock = self._asked.setdefault(key, asyncio.Lock())
        async with lock:
            kept = self._kept(key)
            if kept is not None:
                return kept
            answer = await self._host.answer(question, ended)
            self._keep(key, answer)
            return answer

    def _key(self, question: Question) -> str:
        return fingerprint(identity(question, self.config))

    def _kept(self, key: str) -> Answer | None:
        return None if self._cache is None else self._cache.answer(key)

    def _keep(self, key: str, answer: Answer) -> None:
        """Keep an answer before anything else can happen to it; it reaches the disk within moments."""
        if self._cache is None:
            return
        self._cache.keep(key, answer._asdict() | {"model": self.config.model, "url": self._host.url})
        if time.monotonic() - self._flushed >= _FLUSH:
            self._flushed = time.monotonic()
            self._loop.run_in_executor(None, self._cache.flush)

    async def _feed(self, question: Question, hand_on: Callable[[str], None]) -> None:
        """Hand on the pieces of one answer as they come, and keep it once it is whole."""
        async with self._slots:
            answer = await self._host.stream(question, hand_on)
        self.ledger.add(answer)
        self._keep(self._key(question), answer)


def _groups(found: Sequence[Result], chats: Sequence[Chat], count: int) -> list[list[Result]]:
    return [list(found[chat * count : (chat + 1) * count]) for chat in range(len(chats))]
