"""Progress of long work, handed in as an argument: the same function runs silently, in a terminal or in a log."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

from recipe.errors import printable

Advance = Callable[[int], None]
"""Reports that n more units are done."""


LOADING = logging.getLogger("recipe.loading")
"""Gets a line before packages and weights are loaded, which takes seconds. A command shows it; else nobody does."""
LOADING.propagate = False


class Progress(Protocol):
    """Where long-running functions report what they do."""

    def task(self, description: str, total: int | None = None) -> AbstractContextManager[Advance]:
        """A context manager around one piece of work of `total` units; entering it yields an `Advance`.

        With a total of 0 the description is a note, in view until it is left.
        """
        ...


class _Silent:
    """Reports nothing."""

    @contextmanager
    def task(self, description: str, total: int | None = None) -> Iterator[Advance]:
        yield lambda _n: None


class LogLines:
    """Lines of text for a log: at first one at most every `every` seconds, then more and more seldom.

    The wait grows by `every` with each minute of the task, so that hours of work leave some dozens of lines.
    """

    def __init__(self, stream: TextIO, every: float = 5.0) -> None:
        self._stream, self._every = stream, every

    @contextmanager
    def task(self, description: str, total: int | None = None) -> Iterator[Advance]:
        if total == 0:
            self._line(description)
            yield lambda _n: None
            return
        began = last = time.monotonic()
        done = 0

        def advance(n: int) -> None:
            nonlocal done, last
            done += n
            now = time.monotonic()
            if now - last >= self._every * (1 + (now - began) / 60):
                last = now
                count = f"{done or ''}" if total is None else f"{done} of {total}"
                self._line(f"{description}: {', '.join(filter(None, (count, f'{now - began:.0f} s')))}")

        self._line(f"{description} ...")
        yield advance
        self._line(f"{description}: done in {time.monotonic() - began:.1f} s")

    def _line(self, text: str) -> None:
        self._stream.write(printable(text) + "\n")
        self._stream.flush()


SILENT: Progress = _Silent()
