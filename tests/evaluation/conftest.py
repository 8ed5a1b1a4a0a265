"""The command line in this process, and what printed scores say of all plans."""

import json
import sys
from typing import Any, NamedTuple

import pytest

from recipe.cli import main


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Recipe:
    """Runs `recipe` with arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: object) -> Outcome:
        self._monkeypatch.setattr(sys, "argv", ["recipe", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        return Outcome(int(stop.value.code or 0), *self._capsys.readouterr())

    def json(self, *words: object) -> Any:
        """What a command that ends well prints with --json."""
        outcome = self(*words, "--json")
        assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Recipe:
    return Recipe(monkeypatch, capsys)


def overall(scores: dict[str, Any]) -> dict[str, Any]:
    """The group of all plans in printed scores."""
    [found] = [one for one in scores["groups"] if one["kind"] == "all"]
    return dict(found)
