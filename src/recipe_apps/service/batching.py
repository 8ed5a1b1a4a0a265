"""Many requests at once, one batch at a time: a bounded queue, a thread that scores, a thread that keeps time.

Clients take turns: the next plans in a batch are of the client with the fewest characters scored so far. A request of
more plans than a batch holds is scored in several, so that others come in between.

The event loop only accepts and answers. Time is kept by a thread of its own and what is computed first counts,
so that a busy event loop never turns a reward into a timeout.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import NamedTuple

from recipe.errors import ComputeError, CorpusError
from recipe.reward.scorer import PromptGroup, Scorer, Steps, logged_outcomes
from recipe.types import Reward
from recipe_apps.service.messages import ServiceSettings
from recipe_apps.service.metrics import ServiceMetrics
from recipe_apps.web.refusals import Refusal, attempt, refusal

_SWEEP = 0.1
"""Seconds between two looks for clients that have hung up."""
_GRACE = 5.0
"""Seconds to wait for a thread whose batch has no client left."""
_CLIENTS = 4
"""Clients whose full share of the queue fits into it."""
_LEAST = 40
"""Characters that a plan counts for at least: one without steps is work, too."""

Scored = Reward | Refusal
Rewards = list[list[Reward]]
Outcome = Rewards | Refusal
Gone = Callable[[], Awaitable[bool]]
"""Whether the client of a request has hung up."""


class Piece(NamedTuple):
    """One plan of a request."""

    group: int
    plan: int
    characters: int
    """Of its steps, and of its prompt where it is the first of its group; at least `_LEAST`."""


class Job:
    """A request that was accepted: its groups, the plans that are left to score, and what becomes of them."""

    __slots__ = ("accepted", "characters", "future", "gone", "groups", "left", "loop", "outcome", "parts", "plans")

    def __init__(self, groups: Sequence[PromptGroup], gone: Gone, loop: asyncio.AbstractEventLoop) -> None:
        self.groups, self.gone = groups, gone
        self.left = deque(
            Piece(number, place, max(_LEAST, sum(map(len, plan)) + (0 if place else _prompt_length(group))))
            for number, group in enumerate(groups)
            for place, plan in enumerate(group.plans)
        )
        self.plans, self.characters = len(self.left), sum(piece.characters for piece in self.left)
        self.parts: list[list[Scored | None]] = [[None] * len(group.plans) for group in groups]
        self.accepted = time.monotonic()
        self.outcome: Outcome | None = None
        self.loop = loop
        self.future: asyncio.Future[Rewards] = loop.create_future()

    def next(self, plans: int, characters: int, *, first: bool, whole: bool) -> list[Piece]:
        """The plans of the next batch, which has so much room; where `whole`, all that are left or none.

        The first request of a batch gets one plan at least.
        """
        fitting = 0
        for piece in islice(self.left, plans):
            characters -= piece.characters
            if characters < 0 and not (first and fitting == 0):
                break
            fitting += 1
        if whole and fitting < len(self.left):
            return []
        return [self.left.popleft() for _ in range(fitting)]

    def total(self) -> Outcome | None:
        """The rewards of all groups in order, or the first reason why there are none; None while plans are left."""
        refused = next((one for part in self.parts for one in part if isinstance(one, Refusal)), None)
        if refused is None and self.left:
            return None
        return refused or [[one for one in part if isinstance(one, Reward)] for part in self.parts]

    def answer(self) -> None:
        """Hand the outcome to whoever awaits it; called in the event loop."""
        if self.future.done():
            return
        if isinstance(self.outcome, list):
            self.future.set_result(self.outcome)
        elif self.outcome is not None:
            self.future.set_exception(self.outcome)


Batch = list[tuple[Job, list[Piece]]]
"""Requests, each with the plans of it that are scored together."""


class Client:
    """Requests of one client that wait, and how much of it was scored."""

    __slots__ = ("characters", "jobs", "plans", "scored")

    def __init__(self, scored: int) -> None:
        self.jobs = deque[Job]()
        self.plans = self.characters = 0
        self.scored = scored
        """Characters; a client that comes anew begins where the others are."""


class Batcher:
    """Scores the requests of many coroutines, all that wait in one batch; `warm` is run first."""

    def __init__(
        self,
        scorer: Scorer,
        settings: ServiceSettings,
        metrics: ServiceMetrics,
        warm: Callable[[], object] | None = None,
    ) -> None:
        self._scorer, self._warm = scorer, warm
        self._settings, self._metrics = settings, metrics
        self._changed = threading.Condition()
        self._waiting: dict[str, Client] = {}
        self._turn = 0
        """Characters scored of the client whose turn was the last."""
        self._taken: list[Job] = []
        self._busy_since: float | None = None
        self._warmed = warm is None
        self._stopping, self._ended = False, threading.Event()
        self.failure: str | None = None
        """Why warming up failed; a service that cannot warm up cannot serve."""
        self._threads = [
            threading.Thread(target=task, name=f"recipe-{name}", daemon=True)
            for name, task in (("rewards", self._work), ("clock", self._keep_time))
        ]

    def start(self) -> None:
        """Begin to warm up, and then to score; called in the event loop."""
        for thread in self._threads:
            thread.start()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    async def stop(self) -> None:
        """Score what is accepted, refuse what is not, and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        while self._open():  # none is open for longer than its time limit
            await asyncio.sleep(_SWEEP / 4)
        scores, clock = self._threads
        await asyncio.to_thread(scores.join, _GRACE)
        self._ended.set()
        await asyncio.to_thread(clock.join)
        self._sweeper.cancel()

    @property
    def waiting(self) -> int:
        """Plans that wait to be scored."""
        with self._changed:
            return sum(client.plans for client in self._waiting.values())

    @property
    def unready(self) -> str | None:
        """Why requests should not be sent now; None where they may be."""
        if self.failure is not None:
            return f"Warming up failed: {self.failure}"
        if not self._warmed:
            return "Warming up: the encoder and the corpus are being loaded."
        since = self._busy_since
        if since is not None and (busy := time.monotonic() - since) > self._settings.timeout:
            return f"Stuck: the batch under way has taken {busy:.0f} s."
        return None

    async def rewards(self, groups: Sequence[PromptGroup], gone: Gone, client: str = "") -> Rewards:
        """The rewards of each group's plans; `client` takes turns with others. Raises Refusal."""
        return await self._accept(Job(groups, gone, asyncio.get_running_loop()), client).future

    def _accept(self, job: Job, client: str) -> Job:
        plans, characters = self._settings.queue, self._settings.queue_characters
        if job.plans > plans:
            raise Refusal("too_many_plans", f"The request holds {job.plans} plans; send at most {plans} at once.")
        if job.characters > characters:
            said = f"The request's plans have {job.characters} characters; send at most {characters} at once."
            raise Refusal("too_long", said)
        with self._changed:
            if self._stopping:
                raise Refusal("stopped", "The service is stopping; ask again.")
            known = list(self._waiting.values())
            own = self._waiting.get(client) or Client(self._turn)
            for asked, most, name in ((job.plans, plans, "plans"), (job.characters, characters, "characters")):
                everybody = sum(getattr(one, name) for one in known)
                if getattr(own, name) + asked > most or everybody + asked > _CLIENTS * most:
                    raise Refusal("queue_full", f"{everybody} {name} wait already; ask again in a second.")
            own.jobs.append(job)
            own.plans += job.plans
            own.characters += job.characters
            self._waiting[client] = own
            self._changed.notify()
        return job

    async def _sweep(self) -> None:
        """Drop the requests whose clients have hung up; one that is answered within a sweep is not looked at."""
        while True:
            await asyncio.sleep(_SWEEP)
            late = time.monotonic() - _SWEEP
            for job in self._open():
                if job.accepted < late and await job.gone():
                    self._resolve([(job, Refusal("hung_up", "The client hung up."))])

    def _open(self) -> list[Job]:
        with self._changed:
            waiting = [job for client in self._waiting.values() for job in client.jobs]
            # a job of many plans waits with the rest while some of them are scored
            return [job for job in dict.fromkeys((*self._taken, *waiting)) if job.outcome is None]

    def _work(self) -> None:
        if self._warm is not None and isinstance(failed := attempt("warming up", self._warm), Refusal):
            self.failure = failed.message
        self._warmed = True
        while (batch := self._take()) is not None:
            self._busy_since = time.monotonic()
            self._answer(batch)
            self._busy_since = None

    def _take(self) -> Batch | None:
        """The next batch, empty where all that waited is answered by now; None once the service has stopped."""
        with self._changed:
            idle = not self._waiting
            self._changed.wait_for(lambda: self._waiting or self._stopping)
        if idle and self._settings.linger and not self._stopping:
            time.sleep(self._settings.linger)
        batch: Batch = []
        with self._changed:
            plans, characters = self._settings.batch, self._settings.batch_characters
            while self._waiting:
                name = min(self._waiting, key=lambda known: self._waiting[known].scored)
                client = self._waiting[name]
                job = client.jobs[0]
                if job.outcome is None:
                    # what fits into a batch of its own is not torn apart; what does not fills up those of others
                    left = sum(piece.characters for piece in job.left)
                    fits = len(job.left) <= self._settings.batch and left <= self._settings.batch_characters
                    pieces = job.next(plans, characters, first=not batch, whole=fits and bool(batch))
                    if job.left and not pieces:
                        break
                    batch.append((job, pieces))
                    spent = sum(piece.characters for piece in pieces)
                    plans, characters = plans - len(pieces), characters - spent
                    self._turn, client.scored = client.scored, client.scored + spent
                else:  # its time is up, or its client has gone
                    pieces = list(job.left)
                    job.left.clear()
                client.plans -= len(pieces)
                client.characters -= sum(piece.characters for piece in pieces)
                if not job.left:
                    client.jobs.popleft()
                if not client.jobs:
                    del self._waiting[name]
            self._taken = [job for job, _ in batch]
            return None if self._stopping and not self._waiting and not batch else batch

    def _answer(self, batch: Batch) -> None:
        began = time.monotonic()
        askers: dict[tuple[str, Steps], list[tuple[Job, Piece]]] = {}  # which plans of which request are of a prompt
        for job, pieces in batch:
            for piece in pieces:
                group = job.groups[piece.group]
                askers.setdefault((group.goal, group.history), []).append((job, piece))
        groups = [
            PromptGroup(*prompt, [job.groups[piece.group].plans[piece.plan] for job, piece in owners])
            for prompt, owners in askers.items()
        ]
        self._metrics.batch(sum(len(group.plans) for group in groups), len(groups))
        for owners, outcomes in zip(askers.values(), self._score(groups), strict=True):
            self._metrics.rewards([outcome for outcome in outcomes if isinstance(outcome, Reward)])
            for (job, piece), outcome in zip(owners, outcomes, strict=True):
                job.parts[piece.group][piece.plan] = outcome
        self._resolve([(job, total) for job, _ in batch if (total := job.total()) is not None])
        self._metrics.batch_seconds.observe(time.monotonic() - began)

    def _score(self, groups: Sequence[PromptGroup]) -> list[list[Scored]]:
        """Each plan's reward or refusal.

        The plans of a group may be of several clients: those of a group that fails are tried by themselves. So are all
        plans of a batch that meets a fault of the program.
        """
        if not groups:
            return []
        outcomes = attempt(f"scoring {len(groups)} prompts", lambda: logged_outcomes(self._scorer, groups))
        plans = sum(len(group.plans) for group in groups)
        if isinstance(outcomes, Refusal):
            if plans == 1 or outcomes.code != "internal":
                return [[outcomes] * len(group.plans) for group in groups]
            return [self._score_alone(group) for group in groups]
        scored: list[list[Scored]] = []
        for group, own in zip(groups, outcomes, strict=True):
            if len(group.plans) > 1 and any(isinstance(outcome, ComputeError | CorpusError) for outcome in own):
                scored.append(self._score_alone(group))
            else:
                scored.append([one if isinstance(one, Reward) else refusal(one) for one in own])
        return scored

    def _score_alone(self, group: PromptGroup) -> list[Scored]:
        return [self._score([group._replace(plans=[plan])])[0][0] for plan in group.plans]

    def _resolve(self, outcomes: Sequence[tuple[Job, Outcome]]) -> None:
        """Settle requests, each with the first outcome it gets, and wake the event loop once for all."""
        settled: list[Job] = []
        with self._changed:
            for job, outcome in outcomes:
                if job.outcome is None:
                    job.outcome = outcome
                    settled.append(job)
        if settled:
            settled[0].loop.call_soon_threadsafe(_answer, settled)

    def _keep_time(self) -> None:
        limit = self._settings.timeout
        while not self._ended.wait(min(limit / 10, 0.5)):
            late = time.monotonic() - limit
            expired = [job for job in self._open() if job.accepted < late]
            message = f"No reward was computed within {limit:g} s; ask again."
            self._resolve([(job, Refusal("timed_out", message)) for job in expired])


def _prompt_length(group: PromptGroup) -> int:
    return len(group.goal) + sum(map(len, group.history))


def _answer(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.answer()
