"""Submissions and scoring that several test files share."""

import json

from recipe.types import Example
from recipe_apps.board.store import Board
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


def score_all(board: Board, name: str = "a worker") -> int:
    """Score what is queued."""
    return Worker(board, name, ["validity"], poll=0.01).run(until_empty=True)
