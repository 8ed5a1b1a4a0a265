"""Limits on connections: one that sends or reads too slowly is closed, and slow and idle ones make room for others.

Uvicorn waits for ever for the rest of a request, so that a few hundred clients that never finish theirs use up the
files that a process may open. A proxy in front (docs/trainers.md) does the same and more; this is for services without.
"""

import asyncio
import logging
import resource
from collections import Counter
from typing import Any, NamedTuple

from pydantic_core import to_json
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from recipe_apps.web.guard import client_of
from recipe_apps.web.refusals import Refusal

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
    long_seconds: float = 60.0
    """After which a body must have come at `long_rate`, counted from its beginning."""
    long_rate: int = 16_000
    """Bytes a second of a long body; what is slower is closed first where room is needed, however new it is."""
    connections: int = 0
    """Open at once; 0: as many as the process may open files, less `_RESERVED`."""
    per_address: int = 0
    """Of those, from one address, or from one network of 64 bits in IPv6; 0: half."""
    every: float = 1.0
    """Seconds between two looks at a connection."""


_RESERVED = 100
"""Files that are left for the corpus, the model, the database and the log."""
_FEWEST = 16
_NEW, _YOUNG = 0.05, 0.5
"""Seconds in which a connection is not called idle, and in which a request is not called slow: it may be on its way."""


def most_connections(limits: ConnectionLimits) -> int:
    """How many connections may be open at once."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.connections or (1 << 20 if files == resource.RLIM_INFINITY else max(_FEWEST, files - _RESERVED))


def limited_protocol(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """Uvicorn's protocol with these limits."""
    most = most_connections(limits)
    most_of_one = limits.per_address or max(most // 2, 1)
    held = Counter[str]()
    """Open connections by address."""
    # httptools or h11, whichever uvicorn found; both have the few attributes that are used here.
    base: Any = AutoHTTPProtocol

    class LimitedProtocol(base):  # type: ignore[misc]
        """One connection; looked at every second, since its last progress."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._seen, self._idle, self._unsent, self._head = None, True, 0, 0
            self._restart()
            self.begun, self._whole = self.since, 0
            self.address = client_of(self.client)
            held[self.address] += 1
            self._look = self.loop.call_later(limits.every, self._watch)
            if held[self.address] > most_of_one:
                self._make_room(f"{most_of_one} connections of this address are open", self.address)
            elif len(self.connections) > most:
                self._make_room(f"{most} connections are open")

        def connection_lost(self, exc: Exception | None) -> None:
            self._look.cancel()
            held[self.address] -= 1
            if not held[self.address]:
                del held[self.address]
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.cycle is not None and self.waiting and not self._head:
                self.begun, self._whole = self.loop.time(), 0  # the next request of a connection that is used again
            self._head = self._head + len(data) if self.waiting else 0
            self._received += len(data)
            self._whole += len(data)
            super().data_received(data)
            if self.cycle is not self._seen:  # a request has begun; what came with its headers is body
                self._seen, self._head = self.cycle, 0
                self._restart()
                self.begun, self._whole = self.since, len(data)
            elif self._head > limits.head_bytes:
                self.end("its headers are too long")

        def _make_room(self, problem: str, address: str | None = None) -> None:
            """Close a connection, of this address if one is given; refuse this one where all others are at work.

            The slowest goes first, then what is idle for longest, then the first whose request is still on its way. So
            a client that is served outlives those that never end a request, also where both are of one address, as
            behind a proxy.
            """
            now, others = self.loop.time(), [other for other in self.connections if other is not self]
            others = [other for other in others if address in (None, other.address)]
            arriving = [other for other in others if other.arriving]
            slow = [other for other in arriving if now - other.begun > _YOUNG and other.speed < limits.long_rate]
            idle = [other for other in others if other.waiting and now - other.since > _NEW]
            begun = [other for other in arriving if not other.waiting]
            if slow:
                min(slow, key=lambda other: other.speed).end("it is slow, and room is needed for others")
            elif idle or begun:
                # one that has been served is more likely to ask again than one that has said nothing yet
                first = min(idle or begun, key=lambda other: (other.cycle is not None and other.waiting, other.since))
                first.end("room is needed for others")
            else:
                refused = Refusal("queue_full", f"Already {problem}; ask again in a second.")
                body = to_json(refused.envelope)
                lines = ["HTTP/1.1 429 Too Many Requests", "connection: close", "content-type: application/json"]
                lines += [f"{name.lower()}: {value}" for name, value in refused.headers.items()]
                self.transport.write("\r\n".join([*lines, f"content-length: {len(body)}", "\r\n"]).encode() + body)
                self.transport.close()

        @property
        def arriving(self) -> bool:
            """Whether a request has not arrived whole; also where it has not begun on a new connection."""
            return self.cycle is None or self._head > 0 or (self.cycle.more_body and not self.flow.read_paused)

        @property
        def speed(self) -> float:
            """Bytes a second since the request began to arrive."""
            return float(self._whole / max(self.loop.time() - self.begun, limits.every))

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
            """Close the connection where it is too slow, else look again after a while."""
            unsent, idle = self.transport.get_write_buffer_size(), self.waiting
            if idle != self._idle or unsent < self._unsent:
                self._restart()
            self._idle, self._unsent = idle, unsent
            now = self.loop.time()
            seconds = now - self.since  # since the last progress
            arriving = not idle and self.cycle.more_body and not self.flow.read_paused
            if idle and seconds > limits.head_seconds:
                self.end("its headers did not arrive")
            elif arriving and now - self.begun > limits.long_seconds and self.speed < limits.long_rate:
                self.end("its body arrived too slowly on the whole")
            elif (
                not idle
                and seconds > limits.stalled_seconds
                and arriving
                and (self._received < limits.body_rate * seconds)
            ):
                self.end("its body arrived too slowly")
            elif not idle and seconds > limits.stalled_seconds and self.flow.write_paused:
                self.end("its answer was not read")
            else:
                if not idle and seconds > limits.stalled_seconds:
                    self._restart()
                self._look = self.loop.call_later(limits.every, self._watch)

    return LimitedProtocol
