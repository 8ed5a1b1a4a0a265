"""The page of a run's validations: which step is chosen, what is drawn, and through which command."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recipe.artifacts import write_json, write_jsonl
from recipe.cli import app
from recipe.errors import InputError
from recipe.stats import Interval
from recipe_studies.experiments.over_optimisation import read_validations, validation_table, write_validation_page
from recipe_studies.experiments.plots import validation_figure
from recipe_studies.experiments.results import ValidationCurve


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    def one(step: int, kl: float, reward: float, validity: float, gain: list[float | None] | None) -> dict[str, Any]:
        values = {"reward": reward, "validity": validity, "kl_plan": kl, "gain": gain, "measure": "validity"}
        return {"step": step, **values, "steps": 4.5, "plans": 12, "prompts": [validity] * 3}

    return [
        one(0, 0.0, 0.05, 0.50, None),
        one(10, 1.0, 0.06, 0.62, [0.12, 0.02, 0.22]),
        one(20, 4.0, 0.08, 0.62, [0.12, None, None]),
        one(30, 9.0, 0.09, 0.30, [-0.2, -0.3, -0.1]),
    ]


@pytest.fixture
def curve(rows: list[dict[str, Any]], tmp_path: Path) -> ValidationCurve:
    write_jsonl(tmp_path / "run" / "validation.jsonl", rows)
    return read_validations(tmp_path / "run", "RL, grounded", 3)


def test_a_run_is_read_with_its_best_step(rows: list[dict[str, Any]], curve: ValidationCurve, tmp_path: Path) -> None:
    assert (curve.regime, curve.measure) == ("RL, grounded", "validity")
    assert (curve.prompts, curve.plans, curve.seed) == (3, 12, 3)
    assert curve.chosen.step == 10  # the earliest of equals
    assert [(point.kl, point.reward, point.measured, point.length) for point in curve.points] == [
        (row["kl_plan"], row["reward"], row["validity"], row["steps"]) for row in rows
    ]
    assert curve.points[2].gain == Interval(0.12)
    assert curve.unit == "step"
    write_json(tmp_path / "run" / "run.json", {"stage": "best-of-n"})
    assert read_validations(tmp_path / "run", "RL").unit == "round"


def test_the_curve_is_over_the_root_of_kl_with_the_chosen_step_marked(curve: ValidationCurve) -> None:
    validity, reward = validation_figure([curve]).axes
    measured = [point.measured for point in curve.points]
    for panel, values in ((reward, [point.reward for point in curve.points]), (validity, measured)):
        points, ring = panel.lines[1], panel.lines[-1]
        assert list(points.get_xdata()) == [0, 1, 2, 3]
        assert list(points.get_ydata()) == values
        assert list(ring.get_xdata()) == [1]
    assert len(validation_figure([replace(curve, measure="reward")]).axes) == 1


def test_the_table_has_a_row_a_validation(curve: ValidationCurve) -> None:
    table = validation_table(curve)
    assert [row.name for row in table.rows] == ["base", "step 10", "step 20", "step 30"]
    assert [row.about for row in table.rows] == ["", "chosen", "", ""]
    assert table.rows[1].cells[3].clear
    assert table.rows[0].cells[3].text == "–"


def test_the_command_writes_the_page_of_a_training_run(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    run = tmp_path / "one<two"
    run.mkdir()
    write_jsonl(run / "validation.jsonl", rows)
    assert CliRunner().invoke(app, ["report", str(run)]).exit_code == 0
    page = (run / "validation.html").read_text()
    assert "one&lt;two" in page
    assert "Best so far: step 10" in page
    write_json(run / "run.json", {"stage": "grpo", "notes": ["Step 10 was best & so on."]})
    write_validation_page(run)
    assert "Step 10 was best &amp; so on." in (run / "validation.html").read_text()
    assert CliRunner().invoke(app, ["report", str(run), "--figure", "x.png"]).exit_code == 2
    write_jsonl(run / "validation.jsonl", [])
    with pytest.raises(InputError, match="the file is empty"):
        write_validation_page(run)
