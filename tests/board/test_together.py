"""Changes at once, workers that are killed in each state, and a clock that goes back."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from board_helpers import CONTROLS, ask, lines, score_all, set_quotas, submit
from fastapi.testclient import TestClient
from sqlalchemy import select, text

from recipe.errors import ComputeError, InputError
from recipe.types import Example
from recipe_apps.board.database import Database
from recipe_apps.board.models import Heartbeat, Job, LogLine, Score, Scorer, Submission
from recipe_apps.board.setup import rescore
from recipe_apps.board.store import Board
from recipe_apps.board.work import LONGEST_LEASE, Queue


def sender(board: Board, examples: list[Example]) -> Callable[[int], str]:
    set_quotas(board, day_quota=1_000, total_quota=1_000)
    board.add_account("ann")
    return lambda number: submit(board, "ann", lines(examples, 0.5, f"wait {number} minutes"), f"s {number}")[0]


def whole(board: Board) -> None:
    """Each submission has a job of each scorer in use, and of what is withdrawn or retired nothing waits."""
    pairs = {(row.submission, row.scorer): row.state for row in ask(board, select(Job))}
    used = {row.id for row in ask(board, select(Scorer)) if row.retired is None}
    sent = {row.id: row.withdrawn for row in ask(board, select(Submission))}
    assert {(one, scorer) for one, withdrawn in sent.items() for scorer in used if withdrawn is None} <= pairs.keys()
    for (submission, scorer), state in pairs.items():
        if sent[submission] is not None or scorer not in used:
            assert state not in ("queued", "running"), (submission, scorer, state)


def test_a_submission_that_comes_while_a_scorer_is_added_gets_its_job(
    board: Board, examples: list[Example], another_version: Callable[[str], None]
) -> None:
    """One transaction stands at its end while the other runs: neither sees the other's rows, but through a lock."""
    send = sender(board, examples)
    [old] = ask(board, select(Scorer.id))
    another_version("9.9")
    for number, first in enumerate(("submit", "withdraw", "rescore")):
        another_version(f"9.{number}")
        known = send(100 + number)
        acts: dict[str, Callable[[], object]] = {
            "submit": lambda number=number: send(number),  # type: ignore[misc]
            "withdraw": lambda known=known: board.withdraw(known, "ann"),  # type: ignore[misc]
            "rescore": lambda old=old: rescore(board, old),  # type: ignore[misc]
        }
        at_its_end, on = Event(), Event()

        def held(_: Any, act: Callable[[], object] = acts[first], end: Event = at_its_end, on: Event = on) -> None:
            act()
            end.set()
            on.wait(1.0)

        with ThreadPoolExecutor(3) as pool:
            calls = [pool.submit(board.database.write, held)]
            assert at_its_end.wait(60)
            calls += [pool.submit(act) for name, act in acts.items() if name != first]
            on.wait(0.3)
            on.set()
            for call in calls:
                call.result(120)
        whole(board)
        [old] = [row.id for row in ask(board, select(Scorer)) if row.retired is None]


def test_what_is_gone_is_not_scored_again(board: Board, examples: list[Example]) -> None:
    one = sender(board, examples)(1)
    [job] = ask(board, select(Job.id).where(Job.submission == one))
    board.withdraw(one, "ann")
    with pytest.raises(InputError):
        board.again(job, "olga")
    [other] = ask(board, select(Job).where(Job.submission != one).limit(1))
    board.retire(other.scorer, "olga")
    with pytest.raises(InputError):
        board.again(other.id, "olga")
    whole(board)


KILLED = """
import os, signal, sys
from recipe_apps.board import store, work
from recipe_apps.board.store import Board

def die(*given, **more):
    os.kill(os.getpid(), signal.SIGKILL)

state = sys.argv[2]
if state == "queued":
    work.Queue.claim = die
elif state == "taken":
    work.Worker._work = die
elif state == "scoring":
    work.Queue.predictions = die
elif state == "writing":
    work.touch = die
elif state == "after":
    finish = work.Queue.finish
    work.Queue.finish = lambda *given: (finish(*given), die())
work.Worker(Board.open(sys.argv[1]), "dying", ["validity"], lease=0.5, poll=0.01).run()
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("database", "state"),
    [
        ("sqlite", "queued"),
        ("postgresql", "taken"),
        ("sqlite", "scoring"),
        ("sqlite", "writing"),
        ("postgresql", "writing"),
        ("postgresql", "after"),
    ],
    indirect=["database"],
)
def test_a_worker_that_is_killed_in_any_state(board: Board, database: str, state: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, database, state], check=False, env=os.environ)
    assert done.returncode == -signal.SIGKILL
    found = Counter(ask(board, select(Job.state)))
    assert found == {
        "queued": {"queued": CONTROLS}, "after": {"queued": CONTROLS - 1, "scored": 1}
    }.get(state, {"queued": CONTROLS - 1, "running": 1})  # fmt: skip
    assert score_all(board) == CONTROLS - found.get("scored", 0)
    assert [row.state for row in ask(board, select(Job))] == ["scored"] * CONTROLS
    assert len(ask(board, select(Score))) == CONTROLS
    ended = ask(board, select(LogLine.object).where(LogLine.after == "scored"))
    assert len(ended) == len(set(ended)) == CONTROLS


@pytest.fixture
def clock(board: Board) -> Callable[[float], None]:
    """Set the database's clock so many seconds off."""
    real = board.database.now

    def set_off(seconds: float) -> None:
        board.database.now = lambda session: real(session) + seconds  # type: ignore[method-assign]

    return set_off


def test_a_clock_that_goes_back_holds_no_job(board: Board, client: TestClient, clock: Callable[[float], None]) -> None:
    dead, boards = Queue(board, "dead", 30.0), [row.id for row in ask(board, select(Scorer))]
    clock(86_400.0)
    dead.register(["validity"])
    first, second = dead.claim(boards), dead.claim(boards)
    assert first is not None
    assert second is not None
    dead.later(second, "the judge is away", 9, 1)
    clock(0.0)
    assert client.get("/api/boards").json()["queue"]["workers"] == []  # a sign of life from the future is none
    assert score_all(board) == CONTROLS
    assert [row.state for row in ask(board, select(Job))] == ["scored"] * CONTROLS
    assert LONGEST_LEASE < 86_400.0
    queue = client.get("/api/boards").json()["queue"]
    assert queue["estimate"] is None or queue["estimate"] >= 0
    assert len(ask(board, select(Heartbeat))) == 2


def test_a_living_worker_keeps_its_job_over_a_clock_that_goes_back(
    board: Board, clock: Callable[[float], None]
) -> None:
    living, boards = Queue(board, "living", 30.0), [row.id for row in ask(board, select(Scorer))]
    clock(86_400.0)
    living.register(["validity"])
    job = living.claim(boards)
    assert job is not None
    clock(0.0)
    assert living.extend(job)
    other = Queue(board, "other", 30.0)
    other.register(["validity"])
    taken = other.claim(boards)
    assert taken is not None
    assert taken.id != job.id


def test_a_clock_that_was_wrong_locks_no_account_out_and_gives_no_quota(
    board: Board, examples: list[Example], clock: Callable[[float], None]
) -> None:
    send = sender(board, examples)
    set_quotas(board, day_quota=2)
    clock(3_600.0)
    send(1)
    clock(0.0)  # an hour back: what was sent just now still counts
    send(2)
    with pytest.raises(InputError):
        send(3)
    clock(30 * 86_400.0)
    send(4)
    send(5)
    clock(2 * 86_400.0)  # what a wrong clock dated a month ahead does not lock the account out for a month
    send(6)


@pytest.mark.parametrize(("state", "word"), [("53100", "space"), ("25006", "written"), ("42501", "written"),
                                             ("53300", "max_connections"), ("55P03", "another process")])  # fmt: skip
def test_what_a_postgresql_cannot_do_has_its_remedy(postgres: str, state: str, word: str) -> None:
    opened = Database(postgres)
    raising = f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$"
    with pytest.raises(ComputeError) as raised:
        opened.write(lambda session: session.connection().exec_driver_sql(raising), patience=0.0)
    assert word in str(raised.value)
    opened.close()


def test_what_a_sqlite_cannot_do_has_its_remedy(tmp_path: Any) -> None:
    opened = Database(str(tmp_path / "board.db"))
    opened.write(lambda session: session.execute(text("CREATE TABLE t (a)")))
    fill = "INSERT INTO t VALUES (hex(zeroblob(100000)))"

    def said(*statements: str) -> str:
        with pytest.raises(ComputeError) as raised:
            opened.write(lambda session: [session.execute(text(line)) for line in statements], patience=0.0)
        return str(raised.value)

    assert "space" in said("PRAGMA max_page_count = 3", fill)
    assert "written" in said("PRAGMA query_only = ON", fill)
    opened.close()
    opened = Database(str(tmp_path / "board.db"))
    holder = Database(str(tmp_path / "board.db"))
    with holder.writer.begin() as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
        opened.engine.dispose()
        raw = opened.engine.raw_connection()
        raw.cursor().execute("PRAGMA busy_timeout = 1")
        raw.close()
        assert "another process" in said(fill)
    opened.close()
    holder.close()
    missing = Database(str(tmp_path / "none" / "board.db"))
    with pytest.raises(ComputeError) as raised:
        missing.query(lambda session: session.execute(text("SELECT 1")), patience=0.0)
    assert "folder" in str(raised.value)
