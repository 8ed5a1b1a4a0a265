"""The page of a run's validations: which step is kept, what is drawn, and through which command."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("matplotlib")

from recipe.artifacts import write_json, write_jsonl
from recipe.cli import app


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


def test_the_command_writes_the_page_of_a_training_run(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    run = tmp_path / "one<two"
    run.mkdir()

    def written(*words: str) -> tuple[int, str]:
        """Exit code, and the page without its marks."""
        outcome = CliRunner().invoke(app, ["report", str(run), *words])
        page = (run / "validation.html").read_text()
        return outcome.exit_code, " ".join(re.sub(r"<(style|script).*?</\1>|<[^>]+>", " ", page, flags=re.S).split())

    write_jsonl(run / "validation.jsonl", rows)
    code, page = written()
    assert code == 0
    assert "one&lt;two" in page
    assert "Best so far: step 10" in page  # the earliest of equals
    table = page[page.index("gain over the base") :]
    names = ["base", "step 10", "kept", "step 20", "step 30"]
    places = [table.index(name) for name in names]
    assert places == sorted(places)
    assert table.count("kept") == 1
    assert "+0.120" in table
    write_json(run / "run.json", {"stage": "best-of-n", "notes": ["Round 10 was best & so on."]})
    _, page = written()
    assert "Round 10 was best &amp; so on." in page
    assert "round 30" in page
    write_jsonl(run / "validation.jsonl", [row | {"measure": "reward"} for row in rows])
    _, other = written()
    assert ("validity" in page, "validity" in other) == (True, False)  # one panel and one column less
    assert written("--figure", "x.png")[0] == 2
    write_jsonl(run / "validation.jsonl", [])
    assert written()[0] == 1
