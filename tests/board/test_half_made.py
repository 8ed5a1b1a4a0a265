"""Writes of several steps, ended at each of them: what is left is whole or nothing, and can be done again."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from board_helpers import CONTROLS, score_all
from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from recipe.errors import InputError
from recipe.types import Example
from recipe_apps.board.backup import backup, restore
from recipe_apps.board.database import Database
from recipe_apps.board.models import Base, Scorer
from recipe_apps.board.settings import ScorerSettings
from recipe_apps.board.setup import add_track, demo_board, rescore
from recipe_apps.board.store import Board, References


class Stop(Exception):
    """In place of the end of the process."""


def rows(database: Database) -> dict[str, int]:
    """How many rows each table has, but those that are made from others."""
    return database.query(
        lambda connection: {
            table.name: int(connection.execute(select(func.count()).select_from(table)).scalar_one())
            for table in Base.metadata.sorted_tables
            if table.name != "standings"
        }
    )


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the statement of this number, from 1, that changes something raise."""
    real = Connection.execute
    count = [0, 0]

    def execute(self: Connection, statement: Any, *given: Any, **more: Any) -> Any:
        if getattr(statement, "is_dml", False):
            count[0] += 1
            if count[0] == count[1]:
                raise Stop
        return real(self, statement, *given, **more)

    monkeypatch.setattr(Connection, "execute", execute)

    def arm(number: int) -> None:
        count[:] = [0, number]

    return arm


def each_step(stop_at: Callable[[int], None], change: Callable[[], object], whole: Callable[[], object]) -> int:
    """End `change` at many of its steps, and see that `whole` is as before; at last let it be; returns how many."""
    before, number, tried = whole(), 0, 0
    while True:
        number, tried = 2 * number + 1, tried + 1
        stop_at(number)
        try:
            change()
        except Stop:
            stop_at(0)
            assert whole() == before, number
            continue
        stop_at(0)
        return tried - 1


def is_no_board(database: str) -> bool:
    with pytest.raises(InputError, match="recipe board init"):
        Board.open(database).close()
    return True


@pytest.mark.thorough
def test_a_board_is_made_whole_or_not(database: str, stop_at: Callable[[int], None], demo_run: Path) -> None:
    def make() -> None:
        made, tokens = demo_board(database, demo_run, "hash:64")
        assert {made.account_of(token).role for token in tokens.values()} == {"owner", "submitter"}  # type: ignore[union-attr]
        made.close()

    assert each_step(stop_at, make, partial(is_no_board, database)) > 4
    board = Board.open(database)
    assert len(board.tracks()) == 1
    board.close()


@pytest.mark.thorough
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_process_that_is_killed_leaves_no_half_made_board(database: str, demo_run: Path) -> None:
    script = """
import os, pathlib, signal, sys
from recipe_apps.board import setup, store
noted = store.note
def note(*given, **more):
    noted(*given, **more)
    if given[3] == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
store.note = note
setup.demo_board(sys.argv[1], pathlib.Path(sys.argv[3]), "hash:64")
"""
    for action in ("track added", "submitted"):
        done = subprocess.run([sys.executable, "-c", script, database, action, demo_run], check=False, env=os.environ)
        assert done.returncode == -signal.SIGKILL
        assert is_no_board(database)
    made, _ = demo_board(database, demo_run, "hash:64")
    assert len(made.tracks()) == 1
    made.close()


@pytest.mark.thorough
def test_tracks_and_scorers_are_added_whole_or_not(
    board: Board, examples: list[Example], stop_at: Callable[[int], None], another_version: Callable[[str], None]
) -> None:
    given = References.of(examples[:30])
    scorer = ScorerSettings(measure="validity")
    track = replace(board.track("world"), name="second")
    database = board.database
    assert each_step(stop_at, lambda: add_track(board, track, given, [scorer]), lambda: rows(database)) > 3
    [old] = [scorer.id for scorer in board.scorers() if scorer.track == "world"]
    another_version("9.9")

    def state() -> tuple[object, list[tuple[Any, ...]]]:
        query = select(Scorer.id, Scorer.retired, Scorer.revision).order_by(Scorer.id)
        return rows(database), database.query(lambda c: [tuple(row) for row in c.execute(query)])

    earlier = {row[0] for row in state()[1]}
    assert each_step(stop_at, lambda: rescore(board, old), state) > 3
    before = state()
    [new] = {row[0] for row in before[1]} - earlier
    with pytest.raises(InputError):
        rescore(board, new)
    assert state() == before  # what is refused changes nothing


@pytest.mark.thorough
def test_a_backup_is_restored_whole_or_not(
    board: Board, database: str, tmp_path: Path, stop_at: Callable[[int], None]
) -> None:
    file, target = tmp_path / "backup.db", f"sqlite:///{tmp_path / 'restored.db'}"
    backup(database, file)
    assert each_step(stop_at, lambda: restore(file, target), partial(is_no_board, target)) > 2
    copy = Board.open(target)
    assert score_all(copy) == CONTROLS
    copy.close()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_reference_may_hold_what_no_submission_may(board: Board, examples: list[Example], database: str) -> None:
    ends = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"
    odd = [
        replace(one, example_id=f"{one.example_id}{ends}", continuation=(f"a{ends}b", "x" * 3_000, *one.continuation))
        for one in examples
    ]
    given = References.of(odd)
    scorer = ScorerSettings(measure="match", encoder="hash:64")
    add_track(board, replace(board.track("world"), name="odd"), given, [scorer])
    again = Board.open(database)
    assert again.references(given.sha) == given
    assert [one.example_id for one in again.questions(again.track("odd")).values()] == [one.example_id for one in odd]
    again.close()


def test_one_write_holds_all_that_is_written_within(board: Board) -> None:
    def change(_: Connection) -> None:
        board.add_account("ann")
        assert board.tracks()
        board.change_track("world", closed=True)
        raise Stop

    with suppress(Stop):
        board.database.write(change)
    assert not board.track("world").closed
    assert board.add_account("ann")
