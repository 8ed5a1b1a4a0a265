"""The queue in the database, and the worker that takes jobs from it.

A worker claims a job with a lease and extends it while it computes. A job whose lease ran out belongs to nobody: it is
queued again by whoever asks for work next. The score is written in the transaction that ends the job, and only by the
holder of the lease, so that a job is scored once however many workers died on it, or came back late.

What cannot be computed now, because the judge's endpoint is away, goes back into the queue for later and fails nothing.
"""

import logging
import os
import socket
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, and_, func, not_, or_, select, update
from sqlalchemy.orm import Session

from recipe.artifacts import fingerprint, to_json
from recipe.config import ModelConfig
from recipe.errors import ComputeError, InputError, RecipeError
from recipe.models.model import Model, open_model
from recipe.planning.predictions import Prediction
from recipe_apps.board.database import transaction
from recipe_apps.board.models import Heartbeat, Job, Score, Scorer, State, Submission
from recipe_apps.board.scoring import Figures, OpenScorer, open_scorer
from recipe_apps.board.settings import ScorerSettings
from recipe_apps.board.store import BOARD, Board, note, random_id, touch
from recipe_apps.board.validation import read_content

_LOG = logging.getLogger(__name__)

MOST_ATTEMPTS = 20
"""Workers that may die on a job before it counts as failed."""
# Attempts after which a fault of the program fails a job.
# A fault of the program comes again with the same plans, unlike one of the machine.
_FAULTS = 3
# Waits are 2, 4, 8, ... s: a judge that was away for an hour is asked within a minute of its return.
LONGEST_WAIT = 60.0
"""Seconds until a job that could not be computed is tried again, at most."""
WORKER_TIMEOUT = 30.0
"""Seconds without a sign of life after which a worker is taken for dead."""
LONGEST_LEASE = 600.0
"""Seconds of a lease, at most: one that ends later was given before the database's clock went back."""


class Queue:
    """What workers do with the jobs of a board."""

    patience = 10 * 365 * 86_400.0
    """Seconds for which a worker waits for a database that has gone away: as long as it lives."""

    def __init__(self, board: Board, worker: str, lease: float) -> None:
        """`lease` is the seconds for which a job is held without a sign of life."""
        self.database, self._worker, self._lease = board.database, worker, lease

    @transaction
    def register(self, session: Session, measures: Sequence[str]) -> None:
        """Say that this worker lives, and which measures it computes."""
        sign = Heartbeat(name=self._worker, measures=list(measures), seen=self.database.now(session))
        session.merge(sign)

    @transaction
    def beat(self, session: Session) -> None:
        """Say that this worker still lives."""
        now = self.database.now(session)
        session.execute(update(Heartbeat).where(Heartbeat.name == self._worker).values(seen=now))

    def claim(self, boards: Collection[str]) -> Job | None:
        """The oldest job of these boards that may run now, leased; None where there is none."""
        # Most polls find nothing: they should not take SQLite's only lock of writers.
        claimable = self.database.query(
            lambda session: session.scalars(
                select(Job.id).where(or_(*_claimable(self.database.now(session), boards))).limit(1)
            ).all(),
            self.patience,
        )
        return self._take(boards) if claimable else None

    @transaction
    def _take(self, session: Session, boards: Collection[str]) -> Job | None:
        now = self.database.now(session)
        due, lost = _claimable(now, boards)
        # Workers that take jobs at the same moment skip each other's rows, and never wait for them.
        for row in session.scalars(select(Job).where(lost).with_for_update(skip_locked=True)).all():
            row.state, row.lease, row.lease_until, row.not_before = "queued", "", None, now
            row.reason = f"worker {row.worker} gave no sign of life, and its lease ended"
            if row.attempts >= MOST_ATTEMPTS:
                row.state, row.ended = "failed", now
                row.reason = f"{row.attempts} workers died while they scored this; the owner has to look"
            note(session, now, BOARD, "job", row.submission, row.scorer, "running", row.state, row.reason)
        oldest = select(Job).where(due).order_by(Job.id).limit(1).with_for_update(skip_locked=True)
        job = session.scalars(oldest).first()
        if job is not None:
            job.state, job.worker, job.lease, job.lease_until = (
                "running", self._worker, random_id(24), now + self._lease
            )  # fmt: skip
            job.started, job.attempts, job.reason = now, job.attempts + 1, ""
            note(session, now, self._worker, "job", job.submission, job.scorer, "queued", "running")
        return job

    @transaction
    def extend(self, session: Session, job: Job) -> bool:
        """Extend the lease; False where the job belongs to somebody else by now, or was cancelled."""
        until = self.database.now(session) + self._lease
        held = update(Job).where(Job.id == job.id, Job.lease == job.lease).values(lease_until=until)
        return bool(session.execute(held).rowcount)  # type: ignore[attr-defined]

    @transaction
    def finish(
        self, session: Session, job: Job, figures: Figures | None, values: NDArray[np.float64] | None = None,
        reason: str = "",
    ) -> bool:  # fmt: skip
        """End a job with its score, or with the reason why it has none; `values` [examples] go with the figures.

        Returns False where the lease was lost; the score is dropped.
        """
        now = self.database.now(session)
        state: State = "failed" if figures is None else "scored"
        held = update(Job).where(Job.id == job.id, Job.lease == job.lease, Job.state == "running")
        if not session.execute(held.values(state=state, ended=now, reason=reason, lease_until=None)).rowcount:  # type: ignore[attr-defined]
            # The end of an earlier try of this transaction may have been kept, and its answer lost.
            row = session.execute(select(Job.state, Job.lease).where(Job.id == job.id)).one()
            if not (row.lease == job.lease and row.state == state):
                _LOG.warning("job %d belongs to another worker by now, or was cancelled; its result is dropped", job.id)
            return False
        note(session, now, self._worker, "job", job.submission, job.scorer, "running", state, reason)
        if figures is not None:
            blob = zlib.compress(np.asarray(values, dtype="<f8").tobytes(), 6)
            # Little-endian by name: workers on other machines and a restored backup read the same numbers.
            score = {"figures": to_json(figures), "per_example": blob, "created": now}
            session.add(Score(submission=job.submission, scorer=job.scorer, **score))
            touch(session, [job.scorer])
        return True

    @transaction
    def later(self, session: Session, job: Job, reason: str, failures: int, attempts: int) -> None:
        """Put a job back with so many `attempts` behind it; it may run after 1 s, twice that for each failure."""
        now = self.database.now(session)
        # Bounded before it is a power: each job of a board counts, and the 1,024th power of 2.0 is no float.
        pause = min(LONGEST_WAIT, 2.0 ** min(failures, 10))
        held = update(Job).where(Job.id == job.id, Job.lease == job.lease, Job.state == "running")
        values = {"state": "queued", "lease": "", "lease_until": None, "attempts": attempts, "reason": reason}
        if session.execute(held.values(not_before=now + pause, **values)).rowcount:  # type: ignore[attr-defined]
            note(session, now, self._worker, "job", job.submission, job.scorer, "running", "queued", reason)

    @transaction
    def explain(self, session: Session, board: str, reason: str) -> None:
        """Say with the jobs of a board that wait why they do."""
        waiting = update(Job).where(Job.scorer == board, Job.state == "queued", Job.reason == "")
        session.execute(waiting.values(reason=reason))

    def scorers(self, measures: Collection[str]) -> Sequence[Scorer]:
        """The scorers in use that compute one of these measures."""
        query = select(Scorer).where(Scorer.retired.is_(None), Scorer.measure.in_(list(measures)))
        return self.database.scalars(query, self.patience)

    def predictions(self, submission: str) -> list[Prediction]:
        """The plans of a submission."""
        query = select(Submission.content).where(Submission.id == submission)
        [blob] = self.database.scalars(query, self.patience)
        return read_content(zlib.decompress(blob))

    def waiting(self) -> int:
        """Jobs that have not ended."""
        return self.database.scalars(select(func.count()).where(Job.state.in_(("queued", "running"))))[0]


def _claimable(now: float, boards: Collection[str]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Which jobs of these boards may run, and which jobs of any board nobody holds any more."""
    # The clock went back where a pause or a lease ends later than any that is given now.
    due = or_(Job.not_before <= now, Job.not_before > now + LONGEST_WAIT)
    lost = and_(Job.state == "running", not_(Job.lease_until.between(now, now + LONGEST_LEASE)))
    return and_(Job.state == "queued", Job.scorer.in_(list(boards)), due), lost


class Worker:
    """Takes jobs and scores them, one after the other, until it is stopped."""

    def __init__(
        self,
        board: Board,
        name: str,
        measures: Sequence[str],
        lease: float = 30.0,
        judge: ModelConfig | None = None,
        poll: float = 0.5,
    ) -> None:
        """`judge` says where the model of a judge is asked; `poll` is the seconds between two looks for work.

        Without a name it is this machine's with the number of the process, which no other worker has.
        """
        self._board, self._measures = board, list(measures)
        self._queue, self._judge = Queue(board, name or f"{socket.gethostname()}-{os.getpid()}", lease), judge
        self._lease, self._poll = lease, poll
        self._stack = ExitStack()
        self._opened: dict[str, OpenScorer] = {}
        # Of a board whose scorer could not be opened: when that is tried again.
        self._retried: dict[str, float] = {}
        self._models: dict[str, Model] = {}
        self._waits: dict[str, int] = {}
        self._stop = threading.Event()

    def stop(self) -> None:
        """End after the job at hand."""
        self._stop.set()

    def run(self, until_empty: bool = False) -> int:
        """Work until `stop`, or until nothing is left; returns the number of jobs scored."""
        done = 0
        self._queue.register(self._measures)
        # Two signs of life may be lost before others take a job over, or take the worker for dead.
        with self._stack, _repeated(min(self._lease / 3, WORKER_TIMEOUT / 4), self._queue.beat):
            while not self._stop.is_set():
                usable = [row.id for row in self._queue.scorers(self._measures) if self._can_score(row)]
                job = self._queue.claim(usable) if usable else None
                if job is not None:
                    done += self._work(job)
                elif until_empty and not self._queue.waiting():
                    break
                else:
                    self._stop.wait(self._poll)
        return done

    def _can_score(self, row: Scorer) -> bool:
        """Open the scorer of a board; False if this worker cannot run it, which submitters see next to their jobs."""
        now = time.monotonic()
        if row.id in self._opened or now < self._retried.get(row.id, now):
            return row.id in self._opened
        # Not for good: a database comes back, and what is missing on this machine may be put there.
        self._retried[row.id] = now + LONGEST_WAIT
        try:
            settings, model = ScorerSettings.stored(row.settings), None
            if settings.measure == "judge":
                if self._judge is None:
                    raise InputError("--endpoint is missing: the address of the judge.")
                model = self._models.get(settings.model)
                if model is None:
                    config = self._judge.model_copy(update={"model": settings.model})
                    model = self._models[settings.model] = self._stack.enter_context(open_model(config))
            references = self._board.references(self._board.track(row.track).reference_set)
            scorer = open_scorer(settings, references, model)
            if fingerprint(scorer.identity) != fingerprint(row.identity):
                problem = "it is another scorer, of another version, encoder or references"
                raise InputError(f"{problem}; start one of the board's, or run `recipe board rescore`")
            self._opened[row.id] = scorer
        except (RecipeError, OSError) as error:
            _LOG.error("board %s: this worker cannot score it: %s", row.id, error)
            self._queue.explain(row.id, f"a worker is there that cannot score this: {error}"[:500])
            return False
        _LOG.info("board %s: ready to score by %s", row.id, settings.measure)
        return True

    def _work(self, job: Job) -> bool:
        """Score one job while its lease is extended; whether it was scored."""
        scorer = self._opened[job.scorer]
        _LOG.info("job %d: submission %s on board %s, attempt %d", job.id, job.submission, job.scorer, job.attempts)
        try:
            with _repeated(self._lease / 3, lambda: self._queue.extend(job)):
                figures, values = scorer.score(self._queue.predictions(job.submission))
        except (ComputeError, InputError) as error:
            if isinstance(error, InputError) and scorer.settings.measure != "judge":
                self._queue.finish(job, None, reason=str(error))
                return False
            # The judge cannot be asked, or its endpoint refuses: the owner's matter, not the submitter's. Each further
            # failure of a board waits longer. No worker died, so that the attempt does not count.
            failures = self._waits[job.scorer] = self._waits.get(job.scorer, 0) + 1
            _LOG.warning("job %d waits: %s", job.id, error)
            self._queue.later(job, f"waits for the scorer: {error}"[:500], failures, job.attempts - 1)
            return False
        except Exception as error:  # noqa: BLE001 - logged with its traceback
            _LOG.error("job %d: a fault of the program\n%s", job.id, traceback.format_exc())
            name = type(error).__name__  # its text may hold a reference
            if job.attempts >= _FAULTS:
                self._queue.finish(job, None, reason=f"the scorer failed ({name}); the owner's log says more")
            else:
                self._queue.later(job, f"the scorer failed ({name}), and tries again", 0, job.attempts)
            return False
        self._waits.pop(job.scorer, None)
        return self._queue.finish(job, figures, values)


@contextmanager
def _repeated(seconds: float, call: Callable[[], object]) -> Iterator[None]:
    """Call every so many seconds in a thread, until the block ends or the call returns False."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            try:
                if call() is False:
                    return
            except RecipeError as error:
                _LOG.warning("the heartbeat of a worker or a lease failed: %s", error)

    # A daemon: one that waits for a database must not hold up the end of the process.
    thread = threading.Thread(target=repeat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
