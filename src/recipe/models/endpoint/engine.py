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
from weakref import WeakSet

from recipe.config.models import ModelConfig
from recipe.errors import ComputeError, RecipeError
from recipe.models.costs import Ledger
from recipe.models.endpoint.host import Host, RequestRefused
from recipe.models.endpoint.wire import Structured, Unreadable
from recipe.models.protocol import (
    Answer,
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
# Seconds that answers under way are awaited after Ctrl-C; a second one does not wait.
_GRACE = 10.0
# Seconds between two looks whether streams are still wanted while nothing comes.
_LOOK = 0.05


class EndpointEngine(Engine):
    """Completes chats over HTTP; a context manager, and safe to share between threads."""

    def __init__(self, config: ModelConfig, ledger: Ledger) -> None:
        """Prepare to ask; nothing is sent. Raises InputError for an address or a key that cannot be used."""
        self.config = config
        self._host = Host(config, ledger)
        self._slots = asyncio.Semaphore(config.concurrency)
        # One event for each call under way; once it is set, the call asks nothing new.
        self._ends: WeakSet[asyncio.Event] = WeakSet()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
        ended = asyncio.Event()
        with progress.task(f"asking {self.config.model}", total=len(requests)) as advance:
            work = self._all(requests, refusals, ended, on_answer, advance)
            return self._awaited(asyncio.run_coroutine_threadsafe(work, self._loop), ended)

    def stream_all(self, requests: Sequence[ModelRequest], stopped: Stopped = lambda _: False) -> WrittenPieces:
        """As the base class; a host that does not stream is asked for the whole.

        Raises as `answer`, and ComputeError for an answer that breaks off.
        """
        # Those that the loop's thread receives, by the place of their request; None at the end of each stream.
        pieces: SimpleQueue[tuple[int, str | None]] = SimpleQueue()

        async def written(place: int, request: ModelRequest) -> Answer:
            async with self._slots:
                return await self._host.stream(request, lambda piece: pieces.put((place, piece)))

        streams: dict[int, Future[Answer]] = {}
        for place, request in enumerate(requests):
            streams[place] = asyncio.run_coroutine_threadsafe(written(place, request), self._loop)
            # Also of a stream that is cancelled before it begins.
            streams[place].add_done_callback(lambda _, place=place: pieces.put((place, None)))  # type: ignore[misc]
        begun = set[int]()
        try:
            while streams:
                for place in [place for place in streams if stopped(place)]:
                    streams.pop(place).cancel()
                try:
                    place, piece = pieces.get(timeout=_LOOK)
                except Empty:
                    continue
                if place not in streams:
                    continue
                if piece is not None:
                    begun.add(place)
                    yield place, piece
                    continue
                future = streams.pop(place)
                if (failure := future.exception()) is None:
                    yield place, future.result()
                elif place in begun:
                    kind = "" if isinstance(failure, Unreadable) else f"{type(failure).__name__}: "
                    said = self._host.without_key(f"{kind}{failure}")
                    raise ComputeError(f"{self._host.url}: the answer broke off ({said}); ask again.")
                else:
                    # Nothing had come yet: it is asked for whole, with the retries of any other request.
                    [outcome] = self.answer([requests[place]])
                    if isinstance(outcome, Answer):
                        yield place, outcome.text
                    yield place, outcome
        finally:
            for future in streams.values():
                future.cancel()

    def _awaited(self, future: Future[list[Answer | Refusal]], ended: asyncio.Event) -> list[Answer | Refusal]:
        try:
            return future.result()
        except Exception:
            raise
        except BaseException:  # Ctrl-C and the like
            self._loop.call_soon_threadsafe(ended.set)
            _LOG.warning("awaiting answers under way for up to %.0f s; interrupt again to end at once", _GRACE)
            with contextlib.suppress(Exception):
                future.result(_GRACE)
            raise
        finally:
            future.cancel()

    async def _stop(self, grace: float) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if grace and others:
            for ended in self._ends:
                ended.set()
            await asyncio.wait(others, timeout=grace)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._host.close()
        await self._loop.shutdown_default_executor()

    async def _all(
        self,
        requests: Sequence[ModelRequest],
        refusals: Refusals,
        ended: asyncio.Event,
        on_answer: OnAnswer | None,
        advance: Advance,
    ) -> list[Answer | Refusal]:
        outcomes: list[Answer | Refusal | None] = [None] * len(requests)
        left = iter(enumerate(requests))
        self._ends.add(ended)
        # The first that concerns more than one chat: it ends the call.
        failure: RecipeError | None = None
        # Whether a request was answered, so that its form is right.
        answered = False
        refused_chats = set[int]()
        # Refusals of so many chats, none of them answered, count as a fault of the request.
        enough = min(self.config.concurrency, len({id(request.chat) for request in requests}))

        async def work() -> None:
            nonlocal failure, answered
            # One iterator for all workers: each takes the next request that no other has.
            for place, request in left:
                async with self._slots:
                    if ended.is_set():
                        return
                    try:
                        answer = await self._host.answer(request, ended)
                        answered = True
                        if on_answer:
                            on_answer(place, answer)
                        outcomes[place] = answer
                    except RequestRefused as refused:
                        if not refused.error.of_the_chat:
                            refused_chats.add(id(request.chat))
                        wrong = refusals != "return" and not answered and len(refused_chats) >= enough
                        if wrong or refusals == "raise":
                            failure = failure or refused
                            ended.set()
                        outcomes[place] = Refusal(str(refused))
                    except RecipeError as error:
                        failure = failure or error
                        ended.set()
                        continue
                    except BaseException:  # a full disk
                        ended.set()
                        raise
                advance(1)

        workers = [work() for _ in range(min(self.config.concurrency, len(requests)))]
        for result in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        if failure is not None:
            raise failure
        complete = [outcome for outcome in outcomes if outcome is not None]
        if len(complete) < len(outcomes):  # ended from outside
            raise asyncio.CancelledError
        return complete
