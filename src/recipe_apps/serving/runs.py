"""Runs of the planner page: what is asked, numbered events that any client can read again, the queue, and their end.

A run is written by threads and read by the event loop. Its events are kept as they are sent, from number 1 without
gaps, until the run is forgotten: a client that comes back names the last event that it has, and gets those behind it.
"""

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic_core import to_json

from recipe.errors import MissingExtra
from recipe.planning.planner import Request
from recipe.planning.predictions import SearchRecord
from recipe.reward.scorer import Steps
from recipe_apps.web.refusals import Refusal

try:
    from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
except ModuleNotFoundError as error:
    raise MissingExtra("the planner page", "serve") from error

State = Literal["queued", "running", "done", "failed", "cancelled"]
_ENDS = ("done", "failed", "cancelled")
# Seconds of silence after which a comment shows that the connection lives.
# nginx closes a connection that is silent for 60 seconds, unless it is told otherwise.
_HEARTBEAT = 15.0
# A run takes seconds to write: whoever would stand behind 64 others is told at once, and not after minutes.
QUEUE = 64
"""Runs that may wait; further ones are refused with `queue_full`."""
# Long enough to come back to a plan, short enough for what people type and film to be gone soon.
KEEP_SECONDS = 900.0
"""Seconds that a run is known after its end, and a clip after its last use."""
# A page that lost its connection tries again within seconds.
ABSENT_SECONDS = 60.0
"""Seconds after which a run that nobody reads is cancelled."""
# Ended runs that are known, whatever their age: memory does not grow with the number of visitors.
_MOST_ENDED = 1_000


@dataclass(eq=False)
class Run:
    """One request of a person and all that came of it."""

    kind: Literal["plan", "reading"]
    goal: str
    history: Steps
    seed: int
    plans: list[Steps]
    """Each plan as far as it is written."""
    loop: asyncio.AbstractEventLoop
    clip: str | None = None
    until: float | None = None
    client: str = ""
    """Who asked: an address."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    state: State = "queued"
    position: int = 0
    """Place in the queue from 1; 0 once the run has left it."""
    request: Request | None = None
    """What the planner is asked, once a clip is read."""
    whole: set[int] = field(default_factory=set)
    """Numbers of the plans that are written to their end."""
    tokens: int | None = 0
    """None where the model does not count them."""
    search: SearchRecord | None = None
    """How the plans were composed, once they are, where they are not sampled whole."""
    asked: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    begun: float = field(default_factory=time.monotonic)
    ended: float | None = None
    followers: int = 0
    last_read: float = field(default_factory=time.monotonic)
    events: list[bytes] = field(default_factory=list)
    """As they are sent; only `publish` adds to them."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def over(self) -> bool:
        """Whether nothing comes any more."""
        return self.state in _ENDS

    def count(self, tokens: int) -> None:
        """Add the tokens of an answer; an endpoint that does not count them reports 0."""
        self.tokens = self.tokens + tokens if tokens and self.tokens is not None else None

    def publish(self, kind: str, data: Mapping[str, Any], state: State | None = None) -> bool:
        """Add an event, from any thread, and change the state with it; False where the run is over already."""
        with self._lock:
            if self.over:
                return False
            text = to_json(data).decode()
            self.events.append(format_sse_event(data_str=text, event=kind, id=str(len(self.events) + 1)))
            # Readers hold no lock: once they see that the run is over, its last event must be there.
            if state is not None:
                self.ended = time.monotonic() if state in _ENDS else None
                self.state = state
        with suppress(RuntimeError):  # the loop has ended, and with it whoever read
            self.loop.call_soon_threadsafe(self._news.set)
        return True

    async def follow(self, after: int) -> AsyncIterator[bytes]:
        """The events behind number `after` as they come, with comments in between; ends with the run."""
        self.followers += 1
        try:
            while True:
                # Cleared before the events are read: what is published from here on sets the flag again. Setting it
                # wakes all who wait, also where one of them clears it before the others have run.
                self._news.clear()
                while after < len(self.events):
                    after += 1
                    yield self.events[after - 1]
                # The state is read after the events, and no other task runs from here to the wait: an event that came
                # with the end is in the list by now, and a later one wakes this task.
                if self.over:
                    if after >= len(self.events):
                        return
                    continue
                try:
                    async with asyncio.timeout(_HEARTBEAT):
                        await self._news.wait()
                except TimeoutError:
                    yield KEEPALIVE_COMMENT
        finally:
            self.followers -= 1
            self.last_read = time.monotonic()


class Runs:
    """All runs that are known: those that wait, in order, those under way, and for a while those that are over."""

    def __init__(self, per_address: int, on_end: Callable[[Run], object]) -> None:
        """`per_address` runs of one may wait, 0: half of all; `sweep` calls `on_end` once for each that is over."""
        self._per_address, self._on_end = per_address or QUEUE // 2, on_end
        self.known: dict[str, Run] = {}
        self.waiting: list[Run] = []
        self._by_key: dict[str, Run] = {}
        self._reported = set[str]()
        self._changed = threading.Condition()
        self._closed = False

    def require(self, identity: str) -> Run:
        """A run by its id. Raises Refusal."""
        with self._changed:
            run = self.known.get(identity)
        if run is None:
            raise Refusal("unknown_run", "There is no such run: it has expired, or the server was started again.")
        return run

    def add(self, run: Run, key: str | None = None) -> Run:
        """Put a run at the end of the queue; the earlier run where one was asked for with this key. Raises Refusal."""
        with self._changed:
            if key is not None and (earlier := self._by_key.get(key)) is not None:
                return earlier
            if self._closed:
                raise Refusal("stopped", "The server is stopping; ask again in a minute.")
            if len(self.waiting) >= QUEUE:
                raise Refusal("queue_full", f"{len(self.waiting)} people wait already; try again in a moment.")
            own = sum(other.client == run.client for other in self.waiting)
            if own >= self._per_address:
                raise Refusal("queue_full", f"{own} runs of this address wait already; try again in a moment.")
            self.known[run.id] = run
            if key is not None:
                self._by_key[key] = run
            self.waiting.append(run)
            self._renumber()
            self._changed.notify_all()
            return run

    def take(self, room: int) -> list[Run] | None:
        """The next runs whose plans fit into `room`, one at least; waits for them. None once the queue is closed."""
        with self._changed:
            while not self.waiting:
                if self._closed:
                    return None
                self._changed.wait()
            runs: list[Run] = []
            while self.waiting and (not runs or len(self.waiting[0].plans) <= room):
                run = self.waiting.pop(0)
                run.position = 0
                room -= len(run.plans)
                runs.append(run)
            self._renumber()
            return runs

    def cancel(self, run: Run, reason: str) -> None:
        """End a run; what writes it stops at its next token."""
        with self._changed:
            if run in self.waiting:
                self.waiting.remove(run)
                self._renumber()
        run.publish("cancelled", {"reason": reason}, "cancelled")

    def sweep(self) -> None:
        """Cancel runs that nobody reads, and forget those that have been over for long."""
        now = time.monotonic()
        with self._changed:
            runs = list(self.known.values())
        for run in runs:
            if not run.over and not run.followers and now - run.last_read > ABSENT_SECONDS:
                self.cancel(run, "Nobody was reading any more.")
        ended = sorted((run for run in runs if run.ended is not None), key=lambda run: run.ended or 0.0)
        for run in ended:
            if run.id not in self._reported:
                self._reported.add(run.id)
                self._on_end(run)
        expired = {run.id for run in ended[: max(len(ended) - _MOST_ENDED, 0)]} | {
            run.id for run in ended if not run.followers and now - max(run.ended or 0.0, run.last_read) > KEEP_SECONDS
        }
        with self._changed:
            for identity in expired:
                self.known.pop(identity, None)
                self._reported.discard(identity)
            self._by_key = {key: run for key, run in self._by_key.items() if run.id not in expired}

    def close(self, *, running: bool = False) -> None:
        """Take no further run and cancel those that wait; with `running` those under way, too."""
        with self._changed:
            self._closed = True
            runs = list(self.known.values() if running else self.waiting)
            self._changed.notify_all()
        for run in runs:
            self.cancel(run, "The server has stopped." if running else "The server is stopping.")

    def _renumber(self) -> None:
        for position, run in enumerate(self.waiting, start=1):
            if run.position != position:
                run.position = position
                run.publish("queued", {"position": position})
