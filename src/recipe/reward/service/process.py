"""A verifier in a process of its own: scoring and answering then do not take turns at one interpreter.

The process ends when the pipe to it is closed, however this process ends. One that has died is started again by the
next batch; the batch that it died with fails.
"""

import gc
import logging
import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Protocol

from recipe.errors import ComputeError
from recipe.reward.scorer import PromptGroup, Steps
from recipe.reward.service.messages import Refusal, attempt
from recipe.reward.trainers import Scorer
from recipe.types import Reward

_LOG = logging.getLogger(__name__)
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_APART = 0.005
"""Seconds between two messages with rewards: each of them takes both processes off their work."""
_GRACE = 5.0
"""Seconds in which a process that was told to end does so, before it is killed."""

Scored = list[Reward] | Refusal


class Preparing(Scorer, Protocol):
    """A scorer that prepares batches: the verifier."""

    def prepare(self, groups: Sequence[PromptGroup]) -> None:
        """Given all groups of a batch before they are scored one by one."""


class ScoringProcess:
    """A scorer that hands batches over and takes each prompt's rewards as they are ready; for one thread.

    `open_scorer` is called in the process: it must pickle, as a function of a module does.
    """

    def __init__(self, open_scorer: Callable[[], Preparing]) -> None:
        self._open_scorer = open_scorer
        self._child: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None
        self._batch: list[PromptGroup] = []
        self._place: dict[int, int] = {}
        self._results: list[Scored] = []

    def start(self) -> None:
        """Start the process and wait until its scorer is open. Raises ComputeError with the reason why it is not."""
        self.close()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._child = context.Process(target=_run, args=(theirs, self._open_scorer), name="recipe-rewards", daemon=True)
        self._child.start()
        theirs.close()
        for failure in self._receive():
            self.close()
            raise ComputeError(failure.message if isinstance(failure, Refusal) else f"{failure}")

    def prepare(self, groups: Sequence[PromptGroup]) -> None:
        """Hand a batch over, once the one before is done with. Raises ComputeError."""
        if self._pipe is None:
            _LOG.warning("the scoring process is started again")
            self.start()
        self._finish()
        self._batch, self._results = list(groups), []
        # The batch keeps the lists alive, so that no other has the same identity.
        self._place = {id(group.plans): place for place, group in enumerate(groups)}
        self._send(self._batch)

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        """The rewards of a prompt of the batch, or of another. Raises Refusal, ComputeError."""
        place = self._place.get(id(continuations))
        if place is None:
            self.prepare([PromptGroup.of(goal, history, continuations)])
            place = 0
        while len(self._results) <= place:
            self._results += self._receive()
        if isinstance(scored := self._results[place], Refusal):
            raise scored
        return scored

    def close(self) -> None:
        """End the process."""
        if self._pipe is not None:
            self._pipe.close()
        if self._child is not None:
            self._child.join(_GRACE)
            if self._child.is_alive():
                self._child.kill()
                self._child.join()
        self._pipe, self._child, self._batch, self._place = None, None, [], {}

    def _finish(self) -> None:
        """Take what nobody has asked for: a process that cannot send does not receive either."""
        while len(self._results) < len(self._batch):
            self._results += self._receive()

    def _send(self, groups: list[PromptGroup]) -> None:
        try:
            if self._pipe is not None:
                self._pipe.send(groups)
        except OSError:
            self._fail()

    def _receive(self) -> list[Scored]:
        try:
            if self._pipe is not None:
                scored: list[Scored] = self._pipe.recv()
                return scored
        except (EOFError, OSError):
            self._fail()
        raise ComputeError("The scoring process has ended; the service's log tells why.")

    def _fail(self) -> None:
        child = self._child
        self.close()
        code = None if child is None else child.exitcode
        _LOG.error("the scoring process ended with exit code %s", code)
        raise ComputeError(f"The scoring process ended with exit code {code}; the service's log tells why.")


def _run(pipe: Connection, open_scorer: Callable[[], Preparing]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # those are for the process that listens
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    scorer = attempt("opening the verifier", open_scorer)
    with suppress(EOFError, OSError):  # the pipe is closed: the service has ended
        pipe.send([scorer] if isinstance(scorer, Refusal) else [])
        while not isinstance(scorer, Refusal):
            _answer(pipe, scorer, pipe.recv())
    gc.unfreeze()


def _answer(pipe: Connection, scorer: Preparing, groups: list[PromptGroup]) -> None:
    """Where preparing fails, the prompt that is concerned meets the failure again, and the others do not."""
    attempt(f"preparing {len(groups)} prompts at once", lambda: scorer.prepare(groups))
    ready: list[Scored] = []
    sent = time.monotonic()
    for goal, history, plans in groups:
        ready.append(_scored(scorer, goal, history, plans))
        if time.monotonic() - sent > _APART:
            pipe.send(ready)
            ready, sent = [], time.monotonic()
    if ready:
        pipe.send(ready)


def _scored(scorer: Scorer, goal: str, history: Steps, plans: list[Steps]) -> Scored:
    return attempt(f"scoring {len(plans)} plans for {goal!r}", lambda: scorer.score(history, plans, goal))
