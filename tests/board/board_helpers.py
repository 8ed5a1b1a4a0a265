"""Submissions and scoring that several test files share."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import update

from recipe.types import Example
from recipe_apps.board.models import Track
from recipe_apps.board.standings import refresh, stale_boards
from recipe_apps.board.store import Board
from recipe_apps.board.validation import check_submission
from recipe_apps.board.work import Worker

CONTROLS = 9
"""Control rows of a track."""


def lines(examples: list[Example], share: float = 1.0, text: str = "") -> bytes:
    """A submission: the first share of each reference, and perhaps a step more."""
    rows = []
    for one in examples:
        kept = one.continuation[: round(share * len(one.continuation))]
        rows.append({"example_id": one.example_id, "steps": [*kept, *([text] if text else [])]})
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def score_all(board: Board, measures: Sequence[str] = ("validity",), **asked: Any) -> int:
    """Score what is queued; returns how much was."""
    return Worker(board, "a worker", measures, poll=0.01, **asked).run(until_empty=True)


def show(board: Board) -> None:
    """Score what waits, and make the standings."""
    score_all(board)
    for stale in stale_boards(board):
        refresh(board, stale)


def submit(board: Board, account: str, data: bytes, system: str = "mine", **entry: Any) -> tuple[str, bool]:
    """Submit these lines for the track; returns the id, and whether it is new."""
    checked = check_submission(data, board.questions(board.track("world")), 1)
    assert checked.ok, checked.problems
    return board.submit(account, "world", checked, system, **entry)


def ask(board: Board, query: Any) -> list[Any]:
    """The values of a query for one column, or for the rows of one table."""
    return list(board.database.scalars(query))


def set_quotas(board: Board, **quotas: int) -> None:
    """Change the quotas of the track."""
    board.database.write(lambda session: session.execute(update(Track).values(**quotas)))
