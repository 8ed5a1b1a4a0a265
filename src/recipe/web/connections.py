"""Limits on connections: one that sends or reads too slowly is closed, and idle ones make room for others.

Uvicorn waits for ever for the rest of a request, so that a few hundred clients that never finish theirs use up the
files that a process may open. A proxy in front (docs/service.md) does the same and more; this is for services without.
"""

import asyncio
import logging
import resource
from typing import Any, NamedTuple

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_LOG = logging.getLogger(__name__)


class ConnectionLimits(NamedTuple):
    """What a connection may do."""

    head_seconds: float = 10.0
    """From the connection, or the answer before, to the end of a request's headers."""
    head_bytes: int = 1 << 16
    """Of a request's line and headers together."""
    body_rate: int = 500
    """Bytes a second of a request's body that must arrive; slower for `stalled_seconds` is too slow."""
    stalled_seconds: float = 20.0
    """In which a body or an answer may make no progress."""
    connections: int = 0
    """Open at once; 0: as many as the process may open files, less `_RESERVED`."""
    every: float = 1.0
    """Seconds between two looks at a connection."""


_RESERVED = 100
"""Files that are left for the corpus, the model, the database and the log."""
_FEWEST = 16


def most_connections(limits: ConnectionLimits) -> int:
    """How many connections may be open at once."""
    if limits.connections:
        return limits.connections
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if files == resource.RLIM_INFINITY else max(_FEWEST, files - _RESERVED)


def limited_protocol(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """Uvicorn's protocol with these limits."""
    most = most_connections(limits)
    # httptools or h11, whichever uvicorn found; both have the few attributes that are used here.
    base: Any = AutoHTTPProtocol

    class LimitedProtocol(base):  # type: ignore[misc]
        """One connection; looked at every second, since its last progress."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._seen, self._idle, self._unsent, self._head = None, True, 0, 0
            self._restart()
            if len(self.connections) > most:
                idle = [other for other in self.connections if other.waiting and other is not self]
                min(idle, key=lambda other: other.since, default=self).end("room is needed for others")
            self._look = self.loop.call_later(limits.every, self._watch)

        def connection_lost(self, exc: Exception | None) -> None:
            self._look.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._head = self._head + len(data) if self.waiting else 0
            self._received += len(data)
            super().data_received(data)
            if self.cycle is not self._seen:  # a request has begun; what came with its headers is body
                self._seen, self._head = self.cycle, 0
                self._restart()
            elif self._head > limits.head_bytes:
                self.end("its headers are too long")

        @property
        def waiting(self) -> bool:
            """Whether no request is under way: its headers have not all arrived."""
            return self.cycle is None or (self.cycle.response_complete and not self.cycle.more_body)

        def end(self, reason: str) -> None:
            """Close the connection at once."""
            _LOG.info("a connection of %s was closed: %s", self.client[0] if self.client else "a client", reason)
            self.transport.abort()

        def _restart(self) -> None:
            self.since, self._received = self.loop.time(), 0

        def _watch(self) -> None:
            unsent, idle = self.transport.get_write_buffer_size(), self.waiting
            if idle != self._idle or unsent < self._unsent:
                self._restart()
            self._idle, self._unsent = idle, unsent
            if problem := self._problem(self.loop.time() - self.since):
                self.end(problem)
                return
            self._look = self.loop.call_later(limits.every, self._watch)

        def _problem(self, seconds: float) -> str | None:
            """What is too slow, `seconds` after the last progress."""
            if self._idle:
                return "its headers did not arrive" if seconds > limits.head_seconds else None
            if seconds <= limits.stalled_seconds:
                return None
            wanted = self.cycle.more_body and not self.flow.read_paused
            if wanted and self._received < limits.body_rate * seconds:
                return "its body arrived too slowly"
            if self.flow.write_paused:
                return "its answer was not read"
            self._restart()
            return None

    return LimitedProtocol
