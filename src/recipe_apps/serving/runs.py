"""Runs of the planner page: what is asked, numbered events that any client can read again, the queue, and their end.

A run is written by threads and read by the event loop. Its events are kept as they are sent, from number 1 without
gaps, until the run is forgotten: a client that comes back names the last event that it has, and gets those behind it.
"""

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_core import to_json

from recipe.errors import MissingExtra
from recipe.planning.planner import Request
from recipe.reward.scorer import Steps
from recipe_apps.serving.settings import PageSettings
from recipe_apps.web.refusals import Refusal

try:
    from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
except ModuleNotFoundError as error:
    raise MissingExtra("the planner page", "serve") from error

State = Literal["queued", "running", "done", "failed", "cancelled"]
_ENDS = ("done", "failed", "cancelled")
_HEARTBEAT = 15.0
"""Seconds of silence after which a comment shows that the connection lives."""
_MOST_ENDED = 1_000
"""Ended runs that are known, whatever their age: memory does not grow with the number of visitors."""


@dataclass(slots=True)
class PlanSoFar:
    """One plan of a run as far as it is written."""

    steps: Steps = ()
    whole: bool = False


@dataclass(eq=False)
class Run:
    """One request of a person and all that came of it."""

    kind: Literal["plan", "reading"]
    goal: str
    history: Steps
    seed: int
    plans: list[PlanSoFar]
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
    tokens: int = 0
    begun: float = field(default_factory=time.monotonic)
    ended: float | None = None
    followers: int = 0
    seen: float = field(default_factory=time.monotonic)
    """When somebody last read the run."""

    def __post_init__(self) -> None:
        self._events: list[bytes] = []
        self._lock = threading.Lock()
        self._news = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether nothing comes any more."""
        return self.state in _ENDS

    @property
    def events(self) -> int:
        """How many events there are."""
        return len(self._events)

    def publish(self, kind: str, data: Mapping[str, Any], state: State | None = None) -> bool:
        """Add an event, from any thread, and change the state with it; False where the run is over already."""
        with self._lock:
            if self.over:
                return False
            text = to_json(data).decode()
            self._events.append(format_sse_event(data_str=text, event=kind, id=str(len(self._events) + 1)))
            # Readers hold no lock: once they see that the run is over, its last event must be there.
            if state is not None:
                self.ended = time.monotonic() if state in _ENDS else None
                self.state = state
        with suppress(RuntimeError):  # the loop has ended, and with it whoever read
            self.loop.call_soon_threadsafe(self._wake)
        return True

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def follow(self, after: int = 0, heartbeat: float = _HEARTBEAT) -> AsyncIterator[bytes]:
        """The events behind number `after` as they come, with comments in between; ends with the run."""
        self.followers += 1
        try:
            while True:
                news = self._news
                over = self.over  # before the events are read: what ends a run comes with it
                while after < len(self._events):
                    after += 1
                    yield self._events[after - 1]
                if over:
                    return
                try:
                    async with asyncio.timeout(heartbeat):
                        await news.wait()
                except TimeoutError:
                    yield KEEPALIVE_COMMENT
        finally:
            self.followers -= 1
            self.seen = time.monotonic()

    def row(self) -> dict[str, Any]:
        """The run as `GET /api/runs/{id}` shows it."""
        self.seen = time.monotonic()
        return {
            "id": self.id,
            "kind": self.kind,
            "state": self.state,
            "position": self.position,
            "goal": self.goal,
            "history": list(self.history),
            "plans": [{"plan": number, "steps": list(plan.steps)} for number, plan in enumerate(self.plans)],
            "events": self.events,
        }


class Runs:
    """All runs that are known: those that wait, in order, those under way, and for a while those that are over."""

    def __init__(self, settings: PageSettings, on_end: Callable[[Run], object] = lambda _: None) -> None:
        """`on_end` is called once for each run that is over, by `sweep`."""
        self._settings, self._on_end = settings, on_end
        self._known: dict[str, Run] = {}
        self._by_key: dict[str, Run] = {}
        self._waiting: list[Run] = []
        self._reported = set[str]()
        self._changed = threading.Condition()
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many runs wait."""
        return len(self._waiting)

    def count(self, *states: State) -> int:
        """How many known runs are in one of these states."""
        with self._changed:
            return sum(run.state in states for run in self._known.values())

    def known(self, identity: str) -> Run:
        """A run by its id. Raises Refusal."""
        with self._changed:
            run = self._known.get(identity)
        if run is None:
            raise Refusal("unknown_run", "There is no such run: it has expired, or the server was started again.")
        return run

    def add(self, key: str | None, make: Callable[[], Run]) -> Run:
        """A new run at the end of the queue, or the one that was asked for with this key. Raises Refusal."""
        with self._changed:
            if key is not None and (again := self._by_key.get(key)) is not None:
                return again
            if self._closed:
                raise Refusal("stopped", "The server is stopping; ask again in a minute.")
            if len(self._waiting) >= self._settings.queue:
                raise Refusal("queue_full", f"{len(self._waiting)} people wait already; try again in a moment.")
            run = make()
            own, most = sum(one.client == run.client for one in self._waiting), self._settings.per_address
            if own >= (most or max(self._settings.queue // 2, 1)):
                raise Refusal("queue_full", f"{own} runs of this address wait already; try again in a moment.")
            self._known[run.id] = run
            if key is not None:
                self._by_key[key] = run
            self._waiting.append(run)
            self._renumber()
            self._changed.notify_all()
            return run

    def take(self, room: int) -> list[Run] | None:
        """The next runs whose plans fit into `room`, one at least; waits for them. None once the queue is closed."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            taken: list[Run] = []
            while self._waiting and (not taken or len(self._waiting[0].plans) <= room):
                run = self._waiting.pop(0)
                run.position = 0
                room -= len(run.plans)
                taken.append(run)
            self._renumber()
            return taken

    def cancel(self, run: Run, reason: str) -> None:
        """End a run; what writes it stops at its next token."""
        with self._changed:
            if run in self._waiting:
                self._waiting.remove(run)
                self._renumber()
        run.publish("cancelled", {"reason": reason}, "cancelled")

    def sweep(self) -> None:
        """Cancel runs that nobody reads, and forget those that have been over for long."""
        now, settings = time.monotonic(), self._settings
        with self._changed:
            runs = list(self._known.values())
        for run in runs:
            if not run.over and not run.followers and now - run.seen > settings.absent_seconds:
                self.cancel(run, "Nobody was reading any more.")
        ended = sorted((run for run in runs if run.ended is not None), key=lambda run: run.ended or 0.0)
        for run in ended:
            if run.id not in self._reported:
                self._reported.add(run.id)
                self._on_end(run)
        old = [
            run for run in ended if not run.followers and now - max(run.ended or 0.0, run.seen) > settings.keep_seconds
        ]
        self._forget({*old, *ended[: max(len(ended) - _MOST_ENDED, 0)]})

    def _forget(self, runs: Iterable[Run]) -> None:
        gone = {run.id for run in runs}
        with self._changed:
            for identity in gone:
                self._known.pop(identity, None)
                self._reported.discard(identity)
            self._by_key = {key: run for key, run in self._by_key.items() if run.id not in gone}

    def close(self) -> None:
        """Take no further run; those that wait are cancelled, those under way go on."""
        with self._changed:
            self._closed = True
            waiting = list(self._waiting)
            self._changed.notify_all()
        for run in waiting:
            self.cancel(run, "The server is stopping.")

    def cancel_all(self) -> None:
        """End what is still under way."""
        for run in list(self._known.values()):
            self.cancel(run, "The server has stopped.")

    def _renumber(self) -> None:
        for place, run in enumerate(self._waiting, start=1):
            if run.position != place:
                run.position = place
                run.publish("queued", {"position": place})
