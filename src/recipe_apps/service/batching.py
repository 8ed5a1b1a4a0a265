"""The requests of many coroutines, scored in the batches of `recipe.reward.batcher`: limits, time and clients that go.

The event loop only accepts and answers. A separate thread keeps time, and whatever is computed first counts, so that a
busy event loop never turns a reward into a timeout.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import islice

from recipe.errors import ComputeError, CorpusError
from recipe.reward.batcher import ThreadBatcher
from recipe.reward.scorer import PromptGroup, Scorer, Steps, outcomes_of
from recipe.types import Reward
from recipe_apps.service.messages import QUEUE
from recipe_apps.service.metrics import ServiceMetrics
from recipe_apps.service.process import ScoringProcess
from recipe_apps.web.refusals import Refusal, attempt, refusal

# Seconds between two looks for clients that have hung up.
_SWEEP = 0.1
# Seconds to wait for a thread whose batch has no client left.
_GRACE = 5.0
# Clients that may fill their share at once.
_CLIENTS = 4
# Characters of the plans of one client that wait, with their prompts; four times as many in all.
_QUEUE_CHARACTERS = 16 << 20
# Plans scored together, and their characters with their prompts; a plan that has more is scored alone.
# A batch of long texts is cut, so that short ones do not wait behind it.
_BATCH, _BATCH_CHARACTERS = 64, 100_000
# Seconds that the first request after a pause waits for others to be scored with it.
# Enough for requests that a trainer sends together.
_LINGER = 0.001
# Characters that a plan counts for at least: one without steps is work, too.
_LEAST = 40

Scored = Reward | Refusal
IsDisconnected = Callable[[], Awaitable[bool]]
"""Whether the client of a request has hung up."""
PromptedPlan = tuple[Scorer, str, Steps, Steps]
"""Who scores it, goal, history and plan."""


class Batcher:
    """Scores the requests of many coroutines, all that wait in one batch; `warm` is run first."""

    def __init__(
        self, scorer: Scorer, timeout: float, metrics: ServiceMetrics, warm: Callable[[], object] | None = None
    ) -> None:
        """A request that is not scored in `timeout` seconds ends in an error."""
        self._scorer, self._timeout, self._metrics, self._warm = scorer, timeout, metrics, warm
        self._batches: ThreadBatcher[PromptedPlan, Reward] = ThreadBatcher(
            self._compute, window=_LINGER, largest=_BATCH, heaviest=_BATCH_CHARACTERS, prepare=self._warm_up
        )
        # Requests without an answer: when each was accepted, whether its client is still there, and who scores it.
        self._open: dict[Future[list[Reward]], tuple[float, IsDisconnected, Scorer]] = {}
        # Scorers that were replaced, until what they were asked is answered.
        self._retired: list[Scorer] = []
        self._clock = threading.Thread(target=self._keep_time, name="recipe-clock", daemon=True)
        self._busy_since: float | None = None
        self._warmed, self._stopping, self._ended = warm is None, False, threading.Event()
        # Why warming up failed; a service that cannot warm up cannot serve.
        self.failure: str | None = None

    def start(self) -> None:
        """Begin to warm up, and then to score; called in the event loop."""
        self._batches.start()
        self._clock.start()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    async def stop(self) -> None:
        """Score what is accepted, refuse what is not, and end."""
        self._stopping = True
        while self._open:  # none is open for longer than its time limit
            await asyncio.sleep(_SWEEP / 4)
        await asyncio.to_thread(self._batches.stop, _GRACE)
        self._ended.set()
        await asyncio.to_thread(self._clock.join)
        self._sweeper.cancel()

    def replace(self, scorer: Scorer) -> None:
        """Score the requests that come from now on with another scorer; those accepted before keep theirs."""
        self._retired.append(self._scorer)
        self._scorer = scorer
        if self._ended.is_set():  # it came too late to be used
            self.close()

    def close(self) -> None:
        """End the processes of all scorers; called after the last batch."""
        for scorer in (*self._retired, self._scorer):
            _end(scorer)

    @property
    def waiting(self) -> int:
        """Plans that wait to be scored."""
        return self._batches.waiting()[0]

    @property
    def unready(self) -> str | None:
        """Why requests should not be sent now; None where they may be."""
        if self.failure is not None:
            return f"Warming up failed: {self.failure}"
        if not self._warmed:
            return "Warming up: the encoder and the corpus are being loaded."
        since = self._busy_since
        if since is not None and (busy := time.monotonic() - since) > self._timeout:
            return f"Stuck: the batch under way has taken {busy:.0f} s."
        return None

    async def rewards(
        self, groups: Sequence[PromptGroup], disconnected: IsDisconnected, client: str = ""
    ) -> list[list[Reward]]:
        """The rewards of each group's plans; `client` takes turns with others. Raises Refusal."""
        scorer = self._scorer  # one for the whole request, however many batches it takes
        plans = [(scorer, group.goal, group.history, plan) for group in groups for plan in group.plans]
        lengths = [
            max(_LEAST, sum(map(len, plan)) + (0 if index else len(group.goal) + sum(map(len, group.history))))
            for group in groups
            for index, plan in enumerate(group.plans)
        ]
        sizes, limits = (len(plans), sum(lengths)), (QUEUE, _QUEUE_CHARACTERS)
        if sizes[0] > limits[0]:
            raise Refusal("too_many_plans", f"The request holds {sizes[0]} plans; send at most {limits[0]} at once.")
        if sizes[1] > limits[1]:
            problem = f"The request's plans have {sizes[1]} characters; send at most {limits[1]} at once."
            raise Refusal("too_long", problem)
        if self._stopping:
            raise Refusal("stopped", "The service is stopping; ask again.")
        waiting, in_all = self._batches.waiting(client), self._batches.waiting()
        for kind, name in enumerate(("plans", "characters")):
            size, most = sizes[kind], limits[kind]
            if waiting[kind] + size > most or in_all[kind] + size > _CLIENTS * most:
                raise Refusal("queue_full", f"{in_all[kind]} {name} wait already; ask again in a second.")
        future = self._batches.submit(plans, lengths, client)
        self._open[future] = time.monotonic(), disconnected, scorer
        future.add_done_callback(self._open.pop)
        scored = await asyncio.wrap_future(future)
        rewards = iter(scored)
        return [list(islice(rewards, len(group.plans))) for group in groups]

    async def _sweep(self) -> None:
        """Drop the requests whose clients have hung up; one that is answered within a sweep is not looked at."""
        while True:
            await asyncio.sleep(_SWEEP)
            late = time.monotonic() - _SWEEP
            for future, (accepted, disconnected, _) in list(self._open.items()):
                if accepted < late and await disconnected():
                    with suppress(InvalidStateError):  # it was answered meanwhile
                        future.set_exception(Refusal("hung_up", "The client hung up."))
            asked = [scorer for *_, scorer in self._open.values()]
            for scorer in [old for old in self._retired if old not in asked]:
                self._retired.remove(scorer)
                await asyncio.to_thread(_end, scorer)

    def _keep_time(self) -> None:
        while not self._ended.wait(min(self._timeout / 10, 0.5)):
            late = time.monotonic() - self._timeout
            for future, (accepted, *_) in list(self._open.items()):
                if accepted < late:
                    with suppress(InvalidStateError):  # it was answered meanwhile
                        message = f"No reward was computed within {self._timeout:g} s; ask again."
                        future.set_exception(Refusal("timed_out", message))

    def _warm_up(self) -> None:
        if self._warm is not None and isinstance(failed := attempt("warming up", self._warm), Refusal):
            self.failure = failed.message
        self._warmed = True

    def _compute(self, plans: Sequence[PromptedPlan]) -> list[Scored]:
        """Each plan's reward or refusal; plans of one prompt are scored as one group, whoever asks."""
        began = self._busy_since = time.monotonic()
        prompts: dict[tuple[Scorer, str, Steps], list[int]] = {}
        for index, (scorer, goal, history, _) in enumerate(plans):
            prompts.setdefault((scorer, goal, history), []).append(index)
        self._metrics.batch_plans.observe(len(plans))
        self._metrics.batch_prompts.observe(len(prompts))
        scored: dict[int, Scored] = {}
        for scorer in dict.fromkeys(scorer for scorer, *_ in prompts):
            own = {prompt: indices for prompt, indices in prompts.items() if prompt[0] is scorer}
            groups = [PromptGroup(*prompt[1:], [plans[index][3] for index in own[prompt]]) for prompt in own]
            for indices, outcomes in zip(own.values(), self._score(scorer, groups), strict=True):
                self._metrics.rewards([outcome for outcome in outcomes if isinstance(outcome, Reward)])
                scored |= zip(indices, outcomes, strict=True)
        self._metrics.batch_seconds.observe(time.monotonic() - began)
        self._busy_since = None
        return [scored[index] for index in range(len(plans))]

    def _score(self, scorer: Scorer, groups: Sequence[PromptGroup]) -> list[list[Scored]]:
        """Each plan's reward or refusal.

        The plans of a group may be of several clients: those of a group that fails are tried by themselves. So are all
        plans of a batch that meets a fault of the program.
        """
        outcomes = attempt(f"scoring {len(groups)} prompts", lambda: outcomes_of(scorer, groups, log=True))
        if isinstance(outcomes, Refusal):
            if outcomes.code != "internal" or sum(len(group.plans) for group in groups) == 1:
                return [[outcomes] * len(group.plans) for group in groups]
            outcomes = [[] for _ in groups]
        scored: list[list[Scored]] = []
        for group, own in zip(groups, outcomes, strict=True):
            failed = any(isinstance(outcome, ComputeError | CorpusError) for outcome in own)
            if len(own) < len(group.plans) or (failed and len(own) > 1):
                scored.append([self._score(scorer, [group._replace(plans=[plan])])[0][0] for plan in group.plans])
            else:
                scored.append([outcome if isinstance(outcome, Reward) else refusal(outcome) for outcome in own])
        return scored


def _end(scorer: Scorer) -> None:
    """End the process of a scorer that has one of its own."""
    if isinstance(scorer, ScoringProcess):
        scorer.close()
