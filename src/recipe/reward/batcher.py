"""Calls of many threads, computed together: a queue, and a thread that computes one batch after the other.

Clients take turns: the next items in a batch are of the client with the least weight computed so far. A call of more
items than a batch holds is computed in several, so that others come in between.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import islice
from typing import Generic, TypeVar, cast

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Call(Generic[Item, Result]):
    """Items of one caller: those that are left, and the results so far."""

    __slots__ = ("future", "left", "results")

    def __init__(self, items: Sequence[Item], weights: Sequence[int]) -> None:
        self.left = deque(zip(range(len(items)), items, weights, strict=True))
        self.results: list[Result | Exception | None] = [None] * len(items)
        self.future: Future[list[Result]] = Future()

    def take(self, items: int, weight: float, *, first: bool, whole: bool) -> list[tuple[int, Item, int]]:
        """The items of the next batch, which has so much room; where `whole`, all that are left or none.

        The first call of a batch gets one item at least.
        """
        fitting = 0
        for _, _, own in islice(self.left, items):
            weight -= own
            if weight < 0 and not (first and fitting == 0):
                break
            fitting += 1
        if whole and fitting < len(self.left):
            return []
        return [self.left.popleft() for _ in range(fitting)]


class _Client(Generic[Item, Result]):
    """Calls of one client that wait, and how much of it was computed."""

    __slots__ = ("calls", "computed", "items", "weight")

    def __init__(self, computed: int) -> None:
        self.calls = deque[_Call[Item, Result]]()
        self.items = self.weight = 0
        # Weight; a client that comes anew begins where the others are.
        self.computed = computed


class ThreadBatcher(Generic[Item, Result]):
    """Computes what many threads ask for in one call, `largest` items of the weight `heaviest` at most.

    A call waits `window` seconds for others, and longer only while a batch is computed. `compute` returns a result or
    an exception for each item; an exception ends the call of its item alone, and one that `compute` raises ends all
    calls of its batch. `prepare` is run first. A thread of its own computes, so that event loops stay free.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Item]], Sequence[Result | Exception]],
        *,
        window: float = 0.005,
        largest: int = 256,
        heaviest: float = math.inf,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        self._compute, self._prepare = compute, prepare
        self._window, self._largest, self._heaviest = window, largest, heaviest
        self._changed = threading.Condition()
        self._clients: dict[str, _Client[Item, Result]] = {}
        # Weight computed of the client whose turn was the last.
        self._turn = 0
        # When the first of the calls that wait came.
        self._since = 0.0
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to prepare, and then to compute; the first call does so, too."""
        with self._changed:
            if self._thread is None or not self._thread.is_alive():  # a forked process has lost its threads
                self._thread = threading.Thread(target=self._work, name="recipe-batches", daemon=True)
                self._thread.start()

    def stop(self, grace: float) -> None:
        """Compute what waits, and end, at most after `grace` seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(grace)

    def submit(
        self, items: Sequence[Item], weights: Sequence[int] | None = None, client: str = ""
    ) -> Future[list[Result]]:
        """The results to come, in order. A future that its caller settles or cancels is computed no further."""
        weights = [1] * len(items) if weights is None else weights
        call: _Call[Item, Result] = _Call(items, weights)
        if not items:
            call.future.set_result([])
            return call.future
        with self._changed:
            # The window runs from the first call that waits, so that a stream of later ones does not put it off.
            if not self._clients:
                self._since = time.monotonic()
            own = self._clients.setdefault(client, _Client(self._turn))
            own.calls.append(call)
            own.items += len(items)
            own.weight += sum(weights)
            self._changed.notify_all()  # of a forked process, the first that waits may be a thread it has lost
        self.start()
        return call.future

    def waiting(self, client: str | None = None) -> tuple[int, int]:
        """Items that wait and their weight, of one client or of all."""
        with self._changed:
            clients = [known for name, known in self._clients.items() if client in (None, name)]
            return sum(known.items for known in clients), sum(known.weight for known in clients)

    def _work(self) -> None:
        if self._prepare is not None:
            self._prepare()
            self._prepare = None
        while (batch := self._take()) is not None:
            if not (items := [item for _, pieces in batch for _, item, _ in pieces]):
                continue
            results: Sequence[Result | Exception]
            try:
                results = self._compute(items)
            except Exception as error:  # noqa: BLE001  # whatever it is, every caller that waits must get it
                results = [error] * len(items)
            computed = iter(results)
            for call, pieces in batch:
                failed: Exception | None = None
                for index, _, _ in pieces:
                    call.results[index] = result = next(computed)
                    if failed is None and isinstance(result, Exception):
                        failed = result
                with suppress(InvalidStateError):  # its caller has given up meanwhile
                    if failed is not None:
                        call.future.set_exception(failed)
                    elif not call.left:
                        call.future.set_result(cast(list[Result], call.results))

    def _take(self) -> list[tuple[_Call[Item, Result], list[tuple[int, Item, int]]]] | None:
        """The next batch, empty where all that waited is settled by now; None at the end."""
        batch: list[tuple[_Call[Item, Result], list[tuple[int, Item, int]]]] = []
        items, weight = self._largest, self._heaviest
        with self._changed:
            self._changed.wait_for(lambda: self._clients or self._stopping)
            self._changed.wait_for(
                lambda: self._stopping or sum(client.items for client in self._clients.values()) >= self._largest,
                self._since + self._window - time.monotonic(),
            )
            while self._clients:
                name = min(self._clients, key=lambda known: self._clients[known].computed)
                client = self._clients[name]
                call = client.calls[0]
                if not call.future.done():
                    # What fits into a batch of its own is not torn apart; what does not fills up those of others.
                    left = sum(own for _, _, own in call.left)
                    fits = len(call.left) <= self._largest and left <= self._heaviest
                    pieces = call.take(items, weight, first=not batch, whole=fits and bool(batch))
                    # The batch ends here: if smaller calls of others went on filling it, this one might wait for ever.
                    if not pieces:
                        break
                    batch.append((call, pieces))
                    spent = sum(own for _, _, own in pieces)
                    items, weight = items - len(pieces), weight - spent
                    self._turn, client.computed = client.computed, client.computed + spent
                else:  # its caller has given up
                    pieces = list(call.left)
                    call.left.clear()
                client.items -= len(pieces)
                client.weight -= sum(own for _, _, own in pieces)
                if not call.left:
                    client.calls.popleft()
                if not client.calls:
                    del self._clients[name]
            return None if self._stopping and not self._clients and not batch else batch
