"""Many requests at once, one batch at a time: a bounded queue, a thread that scores, a thread that keeps time.

The event loop only accepts and answers. Time is kept by a thread of its own and what is computed first counts,
so that a busy event loop never turns a reward into a timeout.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from recipe.errors import ComputeError, CorpusError
from recipe.reward.scorer import PromptGroup, Scorer, Steps, logged_outcomes
from recipe.reward.service.messages import ServiceSettings
from recipe.reward.service.metrics import ServiceMetrics
from recipe.types import Reward
from recipe.web.refusals import Refusal, attempt, refusal

_SWEEP = 0.1
"""Seconds between two looks for clients that have hung up."""
_GRACE = 5.0
"""Seconds to wait for a thread whose batch has no client left."""

Scored = Reward | Refusal
Rewards = list[list[Reward]]
Outcome = Rewards | Refusal
Gone = Callable[[], Awaitable[bool]]
"""Whether the client of a request has hung up."""


class Job:
    """A request that was accepted: its groups, and what becomes of them."""

    __slots__ = ("accepted", "future", "gone", "groups", "loop", "outcome", "parts", "plans")

    def __init__(self, groups: Sequence[PromptGroup], gone: Gone, loop: asyncio.AbstractEventLoop) -> None:
        self.groups, self.gone = groups, gone
        self.plans = sum(len(group.plans) for group in groups)
        self.parts: dict[int, list[Scored]] = {}
        self.accepted = time.monotonic()
        self.outcome: Outcome | None = None
        self.loop = loop
        self.future: asyncio.Future[Rewards] = loop.create_future()

    def total(self) -> Outcome:
        """The rewards of all groups in order, or the first reason why there are none."""
        parts = [self.parts[number] for number in range(len(self.groups))]
        refused = next((one for part in parts for one in part if isinstance(one, Refusal)), None)
        return refused or [[one for one in part if isinstance(one, Reward)] for part in parts]

    def answer(self) -> None:
        """Hand the outcome to whoever awaits it; called in the event loop."""
        if self.future.done():
            return
        if isinstance(self.outcome, list):
            self.future.set_result(self.outcome)
        elif self.outcome is not None:
            self.future.set_exception(self.outcome)


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
        self._waiting: deque[Job] = deque()
        self._taken: list[Job] = []
        self._plans = 0
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
        return self._plans

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

    async def rewards(self, groups: Sequence[PromptGroup], gone: Gone) -> Rewards:
        """The rewards of each group's plans. Raises Refusal."""
        return await self._accept(groups, gone, asyncio.get_running_loop()).future

    def _accept(self, groups: Sequence[PromptGroup], gone: Gone, loop: asyncio.AbstractEventLoop) -> Job:
        job, most = Job(groups, gone, loop), self._settings.queue
        if job.plans > most:
            raise Refusal("too_many_plans", f"The request holds {job.plans} plans; send at most {most} at once.")
        with self._changed:
            if self._stopping:
                raise Refusal("stopped", "The service is stopping; ask again.")
            if self._plans + job.plans > most:
                raise Refusal("queue_full", f"{self._plans} plans wait already; ask again in a second.")
            self._waiting.append(job)
            self._plans += job.plans
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
            return [job for job in (*self._taken, *self._waiting) if job.outcome is None]

    def _work(self) -> None:
        if self._warm is not None and isinstance(failed := attempt("warming up", self._warm), Refusal):
            self.failure = failed.message
        self._warmed = True
        while jobs := self._take():
            self._busy_since = time.monotonic()
            self._answer([job for job in jobs if job.outcome is None])
            self._busy_since = None

    def _take(self) -> list[Job]:
        """The requests of the next batch, at least one; none once the service has stopped."""
        with self._changed:
            idle = not self._waiting
            self._changed.wait_for(lambda: self._waiting or self._stopping)
        if idle and self._settings.linger and not self._stopping:
            time.sleep(self._settings.linger)
        with self._changed:
            self._taken, room = [], self._settings.batch
            while self._waiting and (not self._taken or self._waiting[0].plans <= room):
                job = self._waiting.popleft()
                self._taken.append(job)
                self._plans -= job.plans
                room -= job.plans
            return self._taken

    def _answer(self, jobs: Sequence[Job]) -> None:
        began = time.monotonic()
        askers: dict[tuple[str, Steps], list[tuple[Job, int]]] = {}  # which group of which request asks of a prompt
        for job in jobs:
            for number, group in enumerate(job.groups):
                askers.setdefault((group.goal, group.history), []).append((job, number))
        groups = [
            PromptGroup(*prompt, [plan for job, number in owners for plan in job.groups[number].plans])
            for prompt, owners in askers.items()
        ]
        self._metrics.batch(sum(len(group.plans) for group in groups), len(groups))
        for owners, outcomes in zip(askers.values(), self._score(groups), strict=True):
            self._metrics.rewards([outcome for outcome in outcomes if isinstance(outcome, Reward)])
            left = iter(outcomes)
            for job, number in owners:
                job.parts[number] = list(islice(left, len(job.groups[number].plans)))
        self._resolve([(job, job.total()) for job in jobs])
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


def _answer(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.answer()
