"""The engine of an endpoint: many requests at once, each answer reported the moment it arrives.

Requests run on an event loop in a thread of their own, so that several threads may share one engine. A few workers a
call take one request after the other; building and reading of texts happen on the loop, because a thread for each costs
more than they do. An endpoint that cannot answer now is asked again. Once one answer is given up, nothing new is asked,
what is under way is awaited, and one error tells why. Ctrl-C does the same, with a limit to its patience.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from types import TracebackType
from weakref import WeakSet

from recipe.config import ModelConfig
from recipe.errors import ComputeError, RecipeError
from recipe.models.costs import Ledger
from recipe.models.endpoint.host import Host, RequestRefused
from recipe.models.endpoint.wire import Structured
from recipe.models.protocol import (
    Answer,
    Chat,
    Engine,
    ModelRequest,
    OnAnswer,
    Refusal,
    Refusals,
    Stopped,
    WrittenPieces,
)
from recipe.progress import SILENT, Advance, Progress

_LOG = logging.getLogger(__name__)
_GRACE = 10.0
"""Seconds that answers under way are awaited after Ctrl-C; a second one does not wait."""
_LOOK = 0.05
"""Seconds between two looks whether streams are still wanted while nothing comes."""


class EndpointEngine(Engine):
    """Completes chats over HTTP; a context manager, and safe to share between threads."""

    def __init__(self, config: ModelConfig, ledger: Ledger | None = None) -> None:
        """Prepare to ask; nothing is sent. Raises InputError for an address or a key that cannot be used."""
        self.config = config
        self._host = Host(config, ledger or Ledger())
        self._slots = asyncio.Semaphore(config.concurrency)
        self._calls: WeakSet[_Call] = WeakSet()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()

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

    def answer(
        self,
        requests: Sequence[ModelRequest],
        progress: Progress = SILENT,
        *,
        on_answer: OnAnswer | None = None,
        refusals: Refusals = "return",
    ) -> list[Answer | Refusal]:
        """An answer to each request, or a refusal of a chat that the endpoint does not take.

        Of `raise if all`, raises the first refusal where as many chats as are asked about at once are refused and none
        is answered, unless the endpoint says that the fault is the chat's. Errors name the endpoint and a remedy.
        """
        call = _Call(refusals, min(self.config.concurrency, len({id(request.chat) for request in requests})))
        with progress.task(f"asking {self.config.model}", total=len(requests)) as advance:
            work = self._all(requests, call, on_answer, advance)
            return self._awaited(asyncio.run_coroutine_threadsafe(work, self._loop), call)

    def stream_all(self, requests: Sequence[ModelRequest], stopped: Stopped = lambda _: False) -> WrittenPieces:
        """As the base class; a host that does not stream is asked for the whole.

        Raises as `answer`, and ComputeError for an answer that breaks off.
        """
        pieces: SimpleQueue[tuple[int, str | None]] = SimpleQueue()
        """Those that the loop's thread receives, by the place of their request; None at the end of each stream."""

        async def written(place: int, request: ModelRequest) -> Answer:
            async with self._slots:
                return await self._host.stream(request, lambda piece: pieces.put((place, piece)))

        asked: dict[int, Future[Answer]] = {}
        for place, request in enumerate(requests):
            asked[place] = asyncio.run_coroutine_threadsafe(written(place, request), self._loop)
            # Also of a stream that is cancelled before it begins.
            asked[place].add_done_callback(lambda _, place=place: pieces.put((place, None)))  # type: ignore[misc]
        begun = set[int]()
        try:
            while asked:
                for place in [place for place in asked if stopped(place)]:
                    asked.pop(place).cancel()
                try:
                    place, piece = pieces.get(timeout=_LOOK)
                except Empty:
                    continue
                if place not in asked:
                    continue
                if piece is not None:
                    begun.add(place)
                    yield place, piece
                    continue
                future = asked.pop(place)
                if (failure := future.exception()) is None:
                    yield place, future.result()
                elif place in begun:
                    reason = self._host.without_key(f"the answer broke off ({type(failure).__name__}: {failure})")
                    raise ComputeError(f"{self._host.url}: {reason}; ask again.")
                else:
                    [outcome] = self.answer([requests[place]])
                    if isinstance(outcome, Answer):
                        yield place, outcome.text
                    yield place, outcome
        finally:
            for future in asked.values():
                future.cancel()

    def _awaited(self, future: Future[list[Answer | Refusal]], call: "_Call") -> list[Answer | Refusal]:
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
        self, requests: Sequence[ModelRequest], call: "_Call", on_answer: OnAnswer | None, advance: Advance
    ) -> list[Answer | Refusal]:
        outcomes: list[Answer | Refusal | None] = [None] * len(requests)
        left = iter(enumerate(requests))
        self._calls.add(call)

        async def work() -> None:
            for place, request in left:
                async with self._slots:
                    if call.ended.is_set():
                        return
                    try:
                        answer = await self._host.answer(request, call.ended)
                        call.answered = True
                        if on_answer:
                            on_answer(place, answer)
                        outcomes[place] = answer
                    except RequestRefused as refused:
                        outcomes[place] = call.refuse(request.chat, refused)
                    except RecipeError as failure:
                        call.fail(failure)
                        continue
                    except BaseException:  # a full disk
                        call.ended.set()
                        raise
                advance(1)

        workers = [work() for _ in range(min(self.config.concurrency, len(requests)))]
        for result in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        if call.failure is not None:
            raise call.failure
        complete = [outcome for outcome in outcomes if outcome is not None]
        if len(complete) < len(outcomes):  # ended from outside
            raise asyncio.CancelledError
        return complete


class _Call:
    """One call of the engine: it ends at the first failure that concerns more than one chat."""

    def __init__(self, refusals: Refusals, enough: int) -> None:
        """Refusals of `enough` chats, none of them answered, count as a fault of the request."""
        self._refusals, self._enough = refusals, enough
        self.ended = asyncio.Event()
        """Set once nothing new is to be asked."""
        self.failure: RecipeError | None = None
        self.answered = False
        """Whether a request was answered, so that its form is right."""
        self._refused: set[int] = set()

    def fail(self, failure: RecipeError) -> None:
        """Ask nothing new; the first failure counts."""
        self.failure = self.failure or failure
        self.ended.set()

    def refuse(self, chat: Chat, refused: RequestRefused) -> Refusal:
        """The refusal of a chat; the call fails where the request as such is wrong."""
        if not refused.of_the_chat:
            self._refused.add(id(chat))
        wrong = self._refusals != "return" and not self.answered and len(self._refused) >= self._enough
        if wrong or self._refusals == "raise":
            self.fail(refused)
        return Refusal(str(refused))
