"""Calls of one sample each, from many threads or coroutines, computed together."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class MicroBatcher(Generic[Item, Result]):
    """Computes in one call what was handed over within `window` seconds, `largest` items at most.

    A thread of its own computes, so that event loops stay free; what arrives meanwhile makes the next batch.
    """

    def __init__(
        self, compute: Callable[[Sequence[Item]], Sequence[Result]], *, window: float = 0.005, largest: int = 256
    ) -> None:
        self._compute, self._window, self._largest = compute, window, largest
        self._waiting: queue.SimpleQueue[tuple[Item, Future[Result]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, item: Item) -> Future[Result]:
        """The result to come; it raises what the computation of its batch raised."""
        future: Future[Result] = Future()
        self._waiting.put((item, future))
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # a forked process has lost its threads
                self._thread = threading.Thread(target=self._work, name="recipe-microbatch", daemon=True)
                self._thread.start()
        return future

    def _work(self) -> None:
        while True:
            # A caller that gave up, as after a timeout, is not computed for.
            batch = [entry for entry in self._collect() if entry[1].set_running_or_notify_cancel()]
            if batch:
                self._settle(batch)

    def _collect(self) -> list[tuple[Item, Future[Result]]]:
        batch = [self._waiting.get()]
        until = time.monotonic() + self._window
        while len(batch) < self._largest:
            try:
                batch.append(self._waiting.get(timeout=max(0.0, until - time.monotonic())))
            except queue.Empty:
                break
        return batch

    def _settle(self, batch: Sequence[tuple[Item, Future[Result]]]) -> None:
        try:
            results = self._compute([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001  # whatever it is, those who wait must hear of it
            for _, future in batch:
                future.set_exception(error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)
