"""Accounts, tokens, submissions, quotas and the log, on SQLite and PostgreSQL."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError, Thread
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from board_helpers import ask, lines, score_all, set_quotas, submit
from sqlalchemy import delete, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from recipe.errors import ComputeError, InputError
from recipe.types import Example
from recipe_apps.board.database import Database
from recipe_apps.board.models import Base, Job, LogLine, Score, Submission
from recipe_apps.board.standings import refresh, stale_boards
from recipe_apps.board.store import Board, QuotaExceeded, touch

Send = Callable[..., tuple[str, bool]]


@pytest.fixture
def send(board: Board, examples: list[Example]) -> Send:
    """Submit the first share of every reference."""
    return lambda account, share=1.0, text="", **entry: submit(board, account, lines(examples, share, text), **entry)


def states(board: Board, submission: str) -> list[str]:
    return ask(board, select(Job.state).where(Job.submission == submission))


def end(board: Board, submission: str, state: str) -> None:
    change = update(Job).where(Job.submission == submission).values(state=state)
    board.database.write(lambda connection: connection.execute(change))


def test_migrations_make_the_tables_that_the_code_uses(database: str) -> None:
    opened = Database(database)
    opened.upgrade()
    opened.upgrade()  # a second time changes nothing
    with opened.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    opened.close()


def test_what_is_no_board_is_refused(database: str) -> None:
    with pytest.raises(InputError, match="recipe board init"):
        Board.open(database)
    with pytest.raises(InputError, match="SQLite or PostgreSQL"):
        Board.open("mysql://user:secret@host/board")
    board = Board.create(database, "One")
    with pytest.raises(InputError, match="already"):
        Board.create(database, "Two")
    board.database.write(lambda session: session.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    with pytest.raises(InputError, match="9999"):
        Board.open(database)
    with pytest.raises(InputError, match="9999"):
        Board.create(database, "Two")
    board.close()


def test_a_password_is_in_no_message() -> None:
    with pytest.raises(InputError) as raised:
        Board.open("postgresql://user:geheim@127.0.0.1:9/board")
    assert "geheim" not in str(raised.value)


def test_the_database_holds_no_token(board: Board) -> None:
    token = board.add_account("ann")
    secret = token.split("_", 2)[2]  # it may hold underscores itself
    assert len(secret) > 20
    with board.database.read() as session:
        for table in Base.metadata.sorted_tables:
            for row in session.execute(select(table)).all():
                assert secret not in str(row)


def test_two_at_once_are_one_submission_and_one_quota(board: Board, send: Send) -> None:
    board.add_account("ann")
    found: list[tuple[str, bool]] = []
    threads = [Thread(target=lambda: found.append(send("ann"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({identity for identity, _ in found}) == 1
    assert sum(new for _, new in found) == 1


def test_quotas_count_what_is_scored_or_may_be(board: Board, send: Send) -> None:
    set_quotas(board, day_quota=1)
    board.add_account("ann")
    first, _ = send("ann", 1.0)
    for state in ("queued", "running", "scored"):
        end(board, first, state)
        with pytest.raises(QuotaExceeded, match="1 of 1 in 24 hours"):
            send("ann", 0.5)
        assert send("ann", 1.0) == (first, False)  # what is there already is not counted again
    for share, state in enumerate(("failed", "cancelled"), 1):
        end(board, first, state)
        second, _ = send("ann", share / 4)
        end(board, second, "failed")
    set_quotas(board, day_quota=9, total_quota=1)
    send("ann", 0.8)
    with pytest.raises(QuotaExceeded, match="1 of 1 in all"):
        send("ann", 0.9)
    board.add_account("bob")
    board.change_track("world", closed=True)
    with pytest.raises(InputError, match="closed"):
        send("bob")


def test_a_withdrawn_submission_is_cancelled_and_stays_in_the_log(board: Board, send: Send) -> None:
    board.add_account("ann")
    identity, _ = send("ann")
    board.withdraw(identity, "ann")
    board.withdraw(identity, "ann")
    assert states(board, identity) == ["cancelled"]
    query = select(LogLine.action, LogLine.after).where(LogLine.object == identity).order_by(LogLine.id)
    with board.database.read() as connection:
        assert [tuple(row) for row in connection.execute(query)] == [
            ("submitted", ""), ("job", "queued"), ("withdrawn", ""), ("job", "cancelled")
        ]  # fmt: skip


@pytest.mark.parametrize("change", [update(LogLine).values(reason="x"), delete(LogLine)])
def test_the_log_can_only_grow(board: Board, change: object) -> None:
    with pytest.raises(DBAPIError, match="only grow"):
        board.database.write(lambda connection: connection.execute(change))  # type: ignore[call-overload]


def test_two_servers_make_standings_at_once(board: Board) -> None:
    both, now = Barrier(2), board.database.now

    def at_once(session: Session) -> float:
        """The time, which a server asks for after its look for the row and before its insert."""
        with suppress(BrokenBarrierError):  # SQLite has one writer at a time: the second one finds the row
            both.wait(0.5)
        return now(session)

    board.database.now = at_once  # type: ignore[method-assign]
    [scorer] = stale_boards(board)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(refresh, board, scorer) for _ in range(2)]
        assert len({call.result().revision for call in calls}) == 1
    assert stale_boards(board) == []


def test_standings_of_older_scores_do_not_replace_newer_ones(board: Board) -> None:
    [scorer] = stale_boards(board)
    answered = board.answered

    def overtaken(submissions: Iterable[str]) -> dict[str, Any]:
        """Called while standings are made: a score comes, and another server makes them of it."""
        board.answered = answered  # type: ignore[method-assign]
        board.database.write(lambda session: touch(session, [scorer]))
        refresh(board, scorer)
        return answered(submissions)

    board.answered = overtaken  # type: ignore[method-assign]
    refresh(board, scorer)
    assert stale_boards(board) == []


def test_one_name_taken_by_two_at_once_is_refused_to_one(board: Board) -> None:
    for turn in range(10):
        both = Barrier(2)

        def add(name: str, both: Barrier = both) -> str:
            both.wait(30)
            try:
                return board.add_account(name)
            except InputError:
                return ""

        with ThreadPoolExecutor(2) as pool:
            tokens = [call.result() for call in [pool.submit(add, f"bob{turn}") for _ in range(2)]]
        assert sorted(map(bool, tokens)) == [False, True]


def test_a_database_that_is_away_is_an_error_in_time() -> None:
    opened = Database("postgresql://nobody@127.0.0.1:9/board")
    with pytest.raises(ComputeError, match="does not answer"):
        opened.query(lambda connection: connection.execute(text("SELECT 1")), patience=0.2)


def test_an_older_board_is_upgraded(board: Board, database: str) -> None:
    [scorer] = stale_boards(board)
    refresh(board, scorer)
    old = ["UPDATE alembic_version SET version_num = '0001'", "UPDATE submissions SET note = 'a' || {escape} || 'b'"]
    escape = "char(0)" if board.database.is_sqlite else "chr(27)"
    for statement in old:
        board.database.write(lambda session, one=statement: session.execute(text(one.format(escape=escape))))  # type: ignore[misc]
    with pytest.raises(InputError, match="recipe board upgrade"):
        Board.open(database)
    board.database.upgrade()
    again = Board.open(database)
    assert set(again.database.scalars(select(Submission.note))) == {"a\N{REPLACEMENT CHARACTER}b"}
    assert stale_boards(again) == [scorer]  # made again, with figures as they are shown now
    again.close()


def test_scores_of_before_the_format_was_promised_are_refused_with_the_remedy(board: Board, database: str) -> None:
    score_all(board)
    [first, *_] = board.database.scalars(select(Score).order_by(Score.created))
    older = {name: value for name, value in first.figures.items() if name != "unscored_share"}
    change = update(Score).where(Score.submission == first.submission).values(figures=older)
    board.database.write(lambda session: session.execute(change))
    with pytest.raises(InputError, match="recipe board init"):
        Board.open(database)
