"""The page of a run's validations: which step is kept, what is drawn, and through which command."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("matplotlib")

from recipe.artifacts import write_json, write_jsonl
from recipe.cli import app
from recipe.errors import InputError
from recipe.training.validation_page import validation_figure, validation_table, write_validation_page


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


def test_reward_and_measure_are_drawn_by_step_with_the_kept_one_marked(rows: list[dict[str, Any]]) -> None:
    panels = validation_figure(rows, rows[1], "step").axes
    for panel, name in zip(panels, ("reward", "validity"), strict=False):
        points, kept = panel.lines[:2]
        assert list(points.get_xdata()) == [0, 10, 20, 30]
        assert list(points.get_ydata()) == [row[name] for row in rows]
        assert (list(kept.get_xdata()), list(kept.get_ydata())) == ([10], [rows[1][name]])
    by_reward = [row | {"measure": "reward"} for row in rows]
    drawn = [panel for panel in validation_figure(by_reward, by_reward[3], "round").axes if panel.lines]
    assert len(drawn) == 1


def test_the_table_has_a_row_a_validation(rows: list[dict[str, Any]]) -> None:
    table = validation_table(rows, rows[1], "step")
    assert [row.name for row in table.rows] == ["base", "step 10", "step 20", "step 30"]
    assert [row.about for row in table.rows] == ["", "kept", "", ""]
    assert table.rows[1].cells[2].clear
    assert table.rows[0].cells[2].text == "–"


def test_the_command_writes_the_page_of_a_training_run(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    run = tmp_path / "one<two"
    run.mkdir()
    write_jsonl(run / "validation.jsonl", rows)
    assert CliRunner().invoke(app, ["report", str(run)]).exit_code == 0
    page = (run / "validation.html").read_text()
    assert "one&lt;two" in page
    assert "Best so far: step 10" in page  # the earliest of equals
    write_json(run / "run.json", {"stage": "best-of-n", "notes": ["Round 10 was best & so on."]})
    write_validation_page(run)
    page = (run / "validation.html").read_text()
    assert "Round 10 was best &amp; so on." in page
    assert "round 30" in page
    assert CliRunner().invoke(app, ["report", str(run), "--figure", "x.png"]).exit_code == 2
    write_jsonl(run / "validation.jsonl", [])
    with pytest.raises(InputError, match="the file is empty"):
        write_validation_page(run)
