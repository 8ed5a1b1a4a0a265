"""Wordings keep the steps, and one judge on five wordings gives the table of their spread."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recipe.world.examples import draw_examples
from recipe.world.validity import plan_key


def test_a_quick_run_tells_wordings_from_examples(
    tmp_path: Path, called_with: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    study = importlib.import_module("judge_wordings")
    for example in draw_examples(study.WORLD, "test_goals", 5):
        other = study.reworded(example, "seed")
        keys = (plan_key(study.WORLD, one.goal, one.history + one.continuation) for one in (example, other))
        assert len(set(keys)) == 1
        assert other.continuation != example.continuation
    written = tmp_path / "found.json"
    words = ["judge_wordings.py", "--examples", "6", "--wordings", "3", "--encoder", "hash:256"]
    called_with(*words, "--json", written)
    study.main()
    found = json.loads(written.read_text())["values"]["systems"]
    assert len(found) == 4
    for one in found.values():
        assert (one["plans"], len(one["means"])) == (6, 3)
        assert sum(one["variance"].values()) == pytest.approx(1)
    assert "shuffled" in capsys.readouterr().out


def test_a_two_way_table_without_rest_has_none_and_a_missing_plan_is_left_out() -> None:
    """Verdicts = plan + rater: the components are the sample variances of both."""
    spread_of = importlib.import_module("judge_wordings").spread_of
    plans, raters = np.array([10.0, 40.0, 70.0, 20.0]), np.array([0.0, 5.0, 10.0])
    table = np.concatenate([plans[None] + raters[:, None], [[1.0], [np.nan], [2.0]]], axis=1)
    found = spread_of(["a", "b", "c"], table)
    assert found is not None
    assert found.variance is not None
    variances = {"plans": plans.var(ddof=1), "raters": raters.var(ddof=1), "rest": 0.0}
    assert found.variance == pytest.approx({name: one / sum(variances.values()) for name, one in variances.items()})
    assert found.plans == 4
    assert found.deviation == pytest.approx(5.0)
    assert found.means == {"a": 35.0, "b": 40.0, "c": 45.0}
    assert spread_of(["a", "b"], np.array([[1.0, np.nan], [2.0, 3.0]])) is None
    equal = spread_of(["a", "b"], np.ones((2, 3)))
    assert equal is not None
    assert equal.variance is None


def test_variance_components_are_those_that_drew_the_table() -> None:
    spread_of = importlib.import_module("judge_wordings").spread_of
    rng = np.random.default_rng(0)
    drawn = (rng.normal(0, sd, size) for sd, size in ((6, (1, 400)), (3, (400, 1)), (2, (400, 400))))
    found = spread_of([str(n) for n in range(400)], 50 + sum(drawn))
    assert found is not None
    assert found.variance == pytest.approx({"plans": 36 / 49, "raters": 9 / 49, "rest": 4 / 49}, abs=0.05)
