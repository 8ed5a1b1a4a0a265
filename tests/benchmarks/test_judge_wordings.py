"""Wordings keep the steps, and one judge on five wordings gives the table of their spread."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from recipe.world.examples import draw_examples
from recipe.world.validity import plan_key


def test_a_quick_run_tells_wordings_from_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = importlib.import_module("judge_wordings")
    for example in draw_examples(study.WORLD, "test_goals", 5):
        other = study.reworded(example, "seed")
        keys = (plan_key(study.WORLD, one.goal, one.history + one.continuation) for one in (example, other))
        assert len(set(keys)) == 1
        assert other.continuation != example.continuation
    written = tmp_path / "found.json"
    words = ["judge_wordings.py", "--examples", "6", "--wordings", "3", "--encoder", "hash:256"]
    monkeypatch.setattr(sys, "argv", [*words, "--json", str(written)])
    study.main()
    found = json.loads(written.read_text())["values"]["systems"]
    assert len(found) == 4
    for one in found.values():
        assert (one["plans"], len(one["means"])) == (6, 3)
        assert sum(one["variance"].values()) == pytest.approx(1)
    assert "shuffled" in capsys.readouterr().out
