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
import traceback
import zlib
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from sqlalchemy import ColumnElement, Connection, and_, func, insert, not_, or_, select, update

from recipe.artifacts import JsonObject, fingerprint, json_line, to_json
from recipe.config import ModelConfig, parse_config
from recipe.errors import ComputeError, InputError, RecipeError
from recipe.models.model import Model, open_model
from recipe.planning.predictions import Prediction
from recipe_apps.board.scoring import Scored, Scorer, open_scorer
from recipe_apps.board.settings import ScorerSettings
from recipe_apps.board.store import BOARD, Board, note, random_id, touch
from recipe_apps.board.tables import jobs, scorers, scores, submissions, tracks, workers

_LOG = logging.getLogger(__name__)

MOST_ATTEMPTS = 20
"""Workers that may die on a job before it counts as failed."""
_FAULTS = 3
"""Attempts after which a fault of the program fails a job."""
_LONGEST_WAIT = 60.0
"""Seconds until a job that could not be computed is tried again, at most."""
_FOREVER = 10 * 365 * 86_400.0
GONE = 30.0
"""Seconds without a sign of life after which a worker counts as gone."""
LONGEST_LEASE = 600.0
"""Seconds of a lease, at most: one that ends later was given before the database's clock went back."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that this worker holds the lease of."""

    number: int
    submission: str
    board: str
    lease: str
    attempts: int


class Queue:
    """What workers do with the jobs of a board."""

    def __init__(self, board: Board, worker: str, lease: float) -> None:
        """`lease` is the seconds for which a job is held without a sign of life."""
        self._board, self._worker, self._lease = board, worker, lease
        self._database = board.database

    def register(self, measures: Sequence[str]) -> None:
        """Say that this worker lives, and what it measures."""

        def add(connection: Connection) -> None:
            values = {"measures": list(measures), "seen": self._database.now(connection), "at": ""}
            if not connection.execute(update(workers).where(workers.c.name == self._worker).values(**values)).rowcount:
                connection.execute(insert(workers).values(name=self._worker, **values))

        self._database.write(add, _FOREVER)

    def seen(self, at: str) -> None:
        """A sign of life; `at` says what the worker is doing."""

        def tell(connection: Connection) -> None:
            now = self._database.now(connection)
            connection.execute(update(workers).where(workers.c.name == self._worker).values(seen=now, at=at))

        self._database.write(tell, _FOREVER)

    def claim(self, boards: Collection[str]) -> Job | None:
        """The oldest job of these boards that may run now, leased; None where there is none."""
        # Most polls find nothing: they should not take SQLite's only lock of writers.
        if not self._database.query(lambda connection: self._anything(connection, boards), _FOREVER):
            return None

        def take(connection: Connection) -> Job | None:
            now = self._database.now(connection)
            self._requeue_lost(connection, now)
            waiting = select(jobs).where(self._due(now, boards))
            row = connection.execute(waiting.order_by(jobs.c.id).limit(1).with_for_update(skip_locked=True)).first()
            if row is None:
                return None
            lease = random_id(24)
            values = {"state": "running", "worker": self._worker, "lease": lease, "lease_until": now + self._lease}
            values |= {"started": now, "attempts": row.attempts + 1, "reason": ""}
            connection.execute(update(jobs).where(jobs.c.id == row.id).values(**values))
            note(connection, now, self._worker, "job", row.submission, row.scorer, "queued", "running")
            return Job(row.id, row.submission, row.scorer, lease, row.attempts + 1)

        return self._database.write(take, _FOREVER)

    def _anything(self, connection: Connection, boards: Collection[str]) -> bool:
        now = self._database.now(connection)
        some = select(jobs.c.id).where(self._due(now, boards) | self._lost(now)).limit(1)
        return connection.execute(some).first() is not None

    @staticmethod
    def _due(now: float, boards: Collection[str]) -> ColumnElement[bool]:
        """What may run; a pause that is longer than any was begun before the clock went back."""
        due = or_(jobs.c.not_before <= now, jobs.c.not_before > now + _LONGEST_WAIT)
        return and_(jobs.c.state == "queued", jobs.c.scorer.in_(list(boards)), due)

    @staticmethod
    def _lost(now: float) -> ColumnElement[bool]:
        """What nobody holds any more."""
        return and_(jobs.c.state == "running", not_(jobs.c.lease_until.between(now, now + LONGEST_LEASE)))

    def _requeue_lost(self, connection: Connection, now: float) -> None:
        """Queue the jobs of workers that gave no sign of life."""
        lost = select(jobs).where(self._lost(now))
        for row in connection.execute(lost.with_for_update(skip_locked=True)).all():
            reason = f"worker {row.worker} gave no sign of life, and its lease ended"
            values = {"state": "queued", "lease": "", "lease_until": None, "not_before": now, "reason": reason}
            if row.attempts >= MOST_ATTEMPTS:
                reason = f"{row.attempts} workers died while they scored this; the owner has to look"
                values |= {"state": "failed", "ended": now, "reason": reason}
            connection.execute(update(jobs).where(jobs.c.id == row.id).values(**values))
            note(
                connection, now, BOARD, "job", row.submission, row.scorer, "running", str(values["state"]), reason
            )  # fmt: skip

    def extend(self, job: Job) -> bool:
        """Extend the lease; False where the job belongs to somebody else by now, or was cancelled."""

        def extend(connection: Connection) -> bool:
            until = self._database.now(connection) + self._lease
            held = update(jobs).where(jobs.c.id == job.number, jobs.c.lease == job.lease)
            return bool(connection.execute(held.values(lease_until=until)).rowcount)

        return self._database.write(extend, _FOREVER)

    def finish(self, job: Job, scored: Scored) -> bool:
        """End a job with its score; False where the lease was lost, and the score is dropped."""

        def end(connection: Connection) -> bool:
            now = self._database.now(connection)
            if not self._end(connection, now, job, "scored", ""):
                return False
            values = {"figures": to_json(scored.figures), "created": now}
            blob = zlib.compress(np.asarray(scored.values, dtype="<f8").tobytes(), 6)
            connection.execute(
                insert(scores).values(submission=job.submission, scorer=job.board, per_example=blob, **values)
            )
            touch(connection, job.board)
            return True

        return self._database.write(end, _FOREVER)

    def fail(self, job: Job, reason: str) -> None:
        """End a job without a score, with the reason for whoever sent the submission."""
        self._database.write(
            lambda connection: self._end(connection, self._database.now(connection), job, "failed", reason), _FOREVER
        )

    def later(self, job: Job, reason: str, pause: float, attempts: int) -> None:
        """Put a job back, to be tried again after a pause, with so many `attempts` behind it."""

        def back(connection: Connection) -> None:
            now = self._database.now(connection)
            held = update(jobs).where(jobs.c.id == job.number, jobs.c.lease == job.lease, jobs.c.state == "running")
            values = {"state": "queued", "lease": "", "lease_until": None, "attempts": attempts}
            if connection.execute(held.values(not_before=now + pause, reason=reason, **values)).rowcount:
                note(connection, now, self._worker, "job", job.submission, job.board, "running", "queued", reason)

        self._database.write(back, _FOREVER)

    def explain(self, board: str, reason: str) -> None:
        """Say with the jobs of a board that wait why they do."""
        waiting = update(jobs).where(jobs.c.scorer == board, jobs.c.state == "queued", jobs.c.reason == "")
        self._database.write(lambda connection: connection.execute(waiting.values(reason=reason)), _FOREVER)

    def _end(self, connection: Connection, now: float, job: Job, state: str, reason: str) -> bool:
        held = update(jobs).where(jobs.c.id == job.number, jobs.c.lease == job.lease, jobs.c.state == "running")
        values = {"state": state, "ended": now, "reason": reason, "lease_until": None}
        if connection.execute(held.values(**values)).rowcount:
            note(connection, now, self._worker, "job", job.submission, job.board, "running", state, reason)
            return True
        # The end of an earlier try of this transaction may have been kept, and its answer lost.
        row = connection.execute(select(jobs.c.state, jobs.c.lease).where(jobs.c.id == job.number)).one()
        if not (row.lease == job.lease and row.state == state):
            _LOG.warning("job %d belongs to another worker by now, or was cancelled; its result is dropped", job.number)
        return False

    def measured(self, measures: Collection[str]) -> dict[str, tuple[ScorerSettings, str, str]]:
        """Boards in use with one of these measures: settings of the scorer, its references, and its identity."""
        query = (
            select(scorers.c.id, scorers.c.settings, scorers.c.identity, tracks.c.reference_set)
            .join(tracks, tracks.c.name == scorers.c.track)
            .where(scorers.c.retired.is_(None), scorers.c.measure.in_(list(measures)))
        )
        rows = self._database.query(lambda connection: connection.execute(query).all(), _FOREVER)
        return {row.id: (settings_of(row.settings), row.reference_set, fingerprint(row.identity)) for row in rows}

    def predictions(self, submission: str) -> list[Prediction]:
        """The plans of a submission."""
        query = select(submissions.c.content).where(submissions.c.id == submission)
        blob = self._database.query(lambda connection: connection.execute(query).scalar_one(), _FOREVER)
        return read_content(zlib.decompress(blob))

    def waiting(self) -> int:
        """Jobs that have not ended."""
        query = select(func.count()).select_from(jobs).where(jobs.c.state.in_(("queued", "running")))
        return self._database.query(lambda connection: int(connection.execute(query).scalar_one()))


def settings_of(stored: JsonObject) -> ScorerSettings:
    """The settings of a scorer, as the database keeps them."""
    return parse_config(dict(stored), ScorerSettings, "the board's scorer")


def read_content(content: bytes) -> list[Prediction]:
    """The plans of a submission's canonical content."""
    # Not `splitlines`: an id may hold characters that end a line elsewhere, such as U+2028.
    lines = content.decode().split("\n")[:-1]
    rows = [json_line("submission", number, line) for number, line in enumerate(lines, start=1)]
    return [Prediction(row["example_id"], tuple(row["steps"]), row["sample"]) for row in rows]


def worker_name() -> str:
    """A name for this process that no other has."""
    return f"{socket.gethostname()}-{os.getpid()}"


class Worker:
    """Takes jobs and scores them, one after the other, until it is told to stop."""

    def __init__(
        self,
        board: Board,
        name: str,
        measures: Sequence[str],
        lease: float = 30.0,
        judge: ModelConfig | None = None,
        poll: float = 0.5,
    ) -> None:
        """`judge` says where the model of a judge is asked; `poll` is the seconds between two looks for work."""
        self._board, self._name, self._measures = board, name, list(measures)
        self._queue, self._judge = Queue(board, name, lease), judge
        self._lease, self._poll = lease, poll
        self._stack = ExitStack()
        self._opened: dict[str, Scorer | str] = {}
        """By board: the scorer, or why this worker cannot be it."""
        self._model: dict[str, Model] = {}
        self._waits: dict[str, int] = {}
        self._stop = threading.Event()
        self._alive = threading.Event()

    def stop(self) -> None:
        """End after the job at hand."""
        self._stop.set()

    def run(self, until_empty: bool = False) -> int:
        """Work until `stop`, or until nothing is left; returns the number of jobs scored."""
        done = 0
        with self._stack:
            self._queue.register(self._measures)
            beat = threading.Thread(target=self._live, name="heartbeat", daemon=True)
            beat.start()
            try:
                while not self._stop.is_set():
                    usable = [board for board in self._boards() if isinstance(self._opened[board], Scorer)]
                    job = self._queue.claim(usable) if usable else None
                    if job is not None:
                        done += self._work(job)
                    elif until_empty and not self._queue.waiting():
                        break
                    else:
                        self._stop.wait(self._poll)
            finally:
                self._alive.set()
                beat.join()
        return done

    def _live(self) -> None:
        """Tell the board that the worker lives, for as long as it does."""
        while not self._alive.wait(min(self._lease / 3, GONE / 4)):
            try:
                self._queue.seen("")
            except RecipeError as error:
                _LOG.warning("no sign of life could be given: %s", error)

    def _boards(self) -> list[str]:
        """Boards that this worker knows, scorers opened where they are new."""
        found = self._queue.measured(self._measures)
        for board, (settings, references, identity) in found.items():
            if board not in self._opened:
                self._opened[board] = self._open(board, settings, references, identity)
        return list(found)

    def _open(self, board: str, settings: ScorerSettings, references: str, identity: str) -> Scorer | str:
        try:
            given = self._board.references(references)
            scorer = self._stack.enter_context(open_scorer(settings, given, self._asked(settings)))
        except (RecipeError, OSError) as error:
            return self._unable(board, str(error))
        if fingerprint(scorer.identity) != identity:
            problem = "it is another scorer, of another version, encoder or references"
            return self._unable(board, f"{problem}; start one of the board's, or run `recipe board rescore`")
        _LOG.info("board %s: ready to score by %s", board, settings.measure)
        return scorer

    def _unable(self, board: str, reason: str) -> str:
        """Say why this worker cannot score a board, in its log and where submitters see it."""
        _LOG.error("board %s: this worker cannot score it: %s", board, reason)
        self._queue.explain(board, f"a worker is there that cannot score this: {reason}"[:500])
        return reason

    def _asked(self, settings: ScorerSettings) -> Model | None:
        """The judge's model where this worker asks one."""
        if settings.measure != "judge":
            return None
        if self._judge is None:
            raise InputError("--endpoint is missing: the address of the judge.")
        if settings.model not in self._model:
            config = self._judge.model_copy(update={"model": settings.model})
            self._model[settings.model] = self._stack.enter_context(open_model(config))
        return self._model[settings.model]

    def _work(self, job: Job) -> bool:
        """Score one job while its lease is extended; whether it was scored."""
        scorer = self._opened[job.board]
        assert isinstance(scorer, Scorer)
        _LOG.info("job %d: submission %s on board %s, attempt %d", job.number, job.submission, job.board, job.attempts)
        over = threading.Event()
        holder = threading.Thread(target=self._hold, args=(job, over), name="lease", daemon=True)
        holder.start()
        try:
            scored = scorer.score(self._queue.predictions(job.submission))
        except ComputeError as error:
            self._wait(job, str(error))
            return False
        except InputError as error:
            if scorer.settings.measure == "judge":  # the endpoint refuses: the owner's matter, not the submitter's
                self._wait(job, str(error))
            else:
                self._queue.fail(job, str(error))
            return False
        except Exception as error:  # noqa: BLE001 - logged with its traceback
            _LOG.error("job %d: a fault of the program\n%s", job.number, traceback.format_exc())
            if job.attempts >= _FAULTS:
                self._queue.fail(job, f"the scorer failed ({type(error).__name__}); the owner's log says more")
            else:
                self._queue.later(
                    job, f"the scorer failed ({type(error).__name__}), and tries again", 1.0, job.attempts
                )
            return False
        finally:
            over.set()
            holder.join()
        self._waits.pop(job.board, None)
        return self._queue.finish(job, scored)

    def _hold(self, job: Job, over: threading.Event) -> None:
        while not over.wait(self._lease / 3):
            try:
                if not self._queue.extend(job):
                    return
            except RecipeError as error:
                _LOG.warning("job %d: its lease could not be extended: %s", job.number, error)

    def _wait(self, job: Job, reason: str) -> None:
        """Put a job back whose measure cannot be computed now, with growing pauses."""
        tried = self._waits[job.board] = self._waits.get(job.board, 0) + 1
        pause = min(_LONGEST_WAIT, 2.0**tried)
        _LOG.warning("job %d waits %g s: %s", job.number, pause, reason)
        # No worker died, and nothing is wrong with the submission: the attempt does not count.
        self._queue.later(job, f"waits for the scorer: {reason}"[:500], pause, job.attempts - 1)
