"""A verifier in a separate process: scoring and answering then do not take turns at one interpreter.

The process ends when the pipe to it is closed, however this process ends. One that has died is started again by the
next batch; the batch that it died with fails.
"""

import gc
import logging
import multiprocessing
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection

from recipe.children import safe_path
from recipe.errors import ComputeError
from recipe.reward.scorer import Outcome, PromptGroup, Scorer, outcomes_of
from recipe_apps.web.process import LOG_FORMAT
from recipe_apps.web.refusals import Refusal, attempt

_LOG = logging.getLogger(__name__)
# Seconds that a process has to end before it is killed.
_GRACE = 5.0


class ScoringProcess:
    """A `Scorer` in a separate process; for one thread, and another one that closes it.

    `open_scorer` is called in the process: it must pickle, as a function of a module does.
    """

    def __init__(self, open_scorer: Callable[[], Scorer]) -> None:
        self._open_scorer = open_scorer
        self._child: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None
        self._in_use = threading.RLock()

    def start(self) -> None:
        """Start the process and wait until its scorer is open. Raises ComputeError with the reason why it is not."""
        self.close()
        # Not forked: a fork copies the locks that other threads hold, and nobody would release them.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._child = context.Process(target=_run, args=(theirs, self._open_scorer), name="recipe-rewards", daemon=True)
        with safe_path():
            self._child.start()
        theirs.close()
        if isinstance(failure := self._exchange(), Refusal):
            self.close()
            raise ComputeError(failure.message)

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        """The outcomes of the scorer. Raises Refusal where the scorer fails and where the process ends."""
        try:
            with self._in_use:
                if self._pipe is None:
                    _LOG.warning("the scoring process is started again")
                    self.start()
                answer = self._exchange(list(groups))
        except ComputeError as error:
            # No plan's failure: the batch is not tried again in parts, each with a process that has to start first.
            raise Refusal("compute_failed", str(error)) from None
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def close(self) -> None:
        """End the process, once it has answered what it was asked."""
        with self._in_use:
            if self._pipe is not None:
                self._pipe.close()
            if self._child is not None:
                self._child.join(_GRACE)
                if self._child.is_alive():
                    self._child.kill()
                    self._child.join()
            self._pipe, self._child = None, None

    def _exchange(self, groups: list[PromptGroup] | None = None) -> list[list[Outcome]] | Refusal:
        """Send the groups, if any, and wait for what the process answers. Raises ComputeError where it has ended."""
        try:
            if self._pipe is not None:
                if groups is not None:
                    self._pipe.send(groups)
                answer: list[list[Outcome]] | Refusal = self._pipe.recv()
                return answer
        except (EOFError, OSError):
            pass
        child = self._child
        self.close()
        code = None if child is None else child.exitcode
        _LOG.error("the scoring process ended with exit code %s", code)
        raise ComputeError(f"The scoring process ended with exit code {code}; see the service's log.")


def _run(pipe: Connection, open_scorer: Callable[[], Scorer]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # those are for the process that listens
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    scorer = attempt("opening the verifier", open_scorer)
    with suppress(EOFError, OSError):  # the pipe is closed: the service has ended
        pipe.send(scorer if isinstance(scorer, Refusal) else [])
        while not isinstance(scorer, Refusal):
            groups = pipe.recv()
            pipe.send(attempt(f"scoring {len(groups)} prompts", partial(outcomes_of, scorer, groups)))
    gc.unfreeze()
