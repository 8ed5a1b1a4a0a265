"""A small study from the command line: every stage once, tables at the end, nothing twice on the second call."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.reproduce.conftest import MICRO
from typer.testing import CliRunner

from recipe.artifacts import read_jsonl
from recipe.cli import app
from recipe.data.examples import read_examples
from recipe_studies.experiments.schedule import RECORDS
from recipe_studies.reproduce.tables import weak

pytest.importorskip("trl")


def call(tmp_path: Path, *options: str, tables: Sequence[str] = ("main", "regimes")) -> list[dict[str, object]]:
    wanted = ["reproduce", *tables, "--scale", "tiny", *MICRO, "--output", str(tmp_path / "run"), "--json"]
    for name in ("base", "sft-ht100m", "rl"):
        wanted += ["--regime", name]
    result = CliRunner().invoke(app, [*wanted, "--seeds", "1", "--workers", "1", *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout))


@pytest.mark.thorough
def test_a_study_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")  # no GPU
    [cost] = call(tmp_path, "--dry-run")
    assert (cost["training_runs"], cost["done"]) == (3, 0)
    assert not (tmp_path / "run").exists()
    findings = call(tmp_path)
    run = tmp_path / "run" / "tiny"
    assert {one["table"] for one in findings} == {"main", "regimes"}
    assert {one["verdict"] for one in findings} <= {"holds", "does not hold", "cannot tell", "not measured"}
    prompts = read_examples(run / "data" / "prompts.jsonl")
    assert len(prompts) == 8
    assert any(one.told_history != one.history for one in prompts)
    mixtures = [read_examples(run / "data" / f"weak-{percent}.jsonl") for percent in (0, 50, 100)]
    assert len({tuple(one.example_id for one in some) for some in mixtures}) == 1
    assert [sum(one.supervision == "weak" for one in some) for some in mixtures][::2] == [0, len(mixtures[0])]
    for name in ("base", "sft-ht100m-0", "rl-0"):
        rows = [row for _, row in read_jsonl(run / "scores" / f"{name}.jsonl")]
        assert len(rows) == 8
        assert all(0 <= row["accuracy"] <= 100 for row in rows)
        plans = [row for _, row in read_jsonl(run / "rows" / f"{name}.jsonl")]
        assert [(row["example_id"], row["accuracy"]) for row in plans] == [
            (row["example_id"], row["accuracy"]) for row in rows
        ]
        assert all(row["goal"] and row["history"] != [] and isinstance(row["plan"], list) for row in plans)
    trained = json.loads((run / "runs" / "sft-ht100m-0" / "sft" / "run.json").read_text())
    assert trained["finished"]
    assert (run / "data" / "pseudo-quality" / "quality.md").is_file()
    assert "SFT-HT100M" in (tmp_path / "run" / "report.html").read_text()

    times = {file: file.stat().st_mtime_ns for file in (run / RECORDS).iterdir()}
    (run / "scores" / "rl-0.jsonl").unlink()
    # A call for one table shows the other one, too, which is finished.
    assert call(tmp_path, tables=["regimes"]) == findings
    assert shown(tmp_path) == ["main", "regimes"]
    again = {file.stem for file, time in times.items() if file.stat().st_mtime_ns != time}
    assert again == {"scores-rl-0"}

    assert json.loads((tmp_path / "run" / "results.json").read_text())["provenance"]["device"].startswith("CPU")
    # On the world the weak examples of which none is weak give the run of RL: a call for them alone has its rows.
    rows = run / "rows" / "rl-0.jsonl"
    before = rows.read_bytes()
    rows.unlink()
    call(tmp_path, "--regime", weak("rl", 0), tables=["weak"])
    assert rows.read_bytes() == before


def shown(tmp_path: Path) -> list[str]:
    """The tables of the page, in its order."""
    [scale] = json.loads((tmp_path / "run" / "results.json").read_text())["scales"]
    return [one["name"] for one in scale["tables"]]


def test_bad_calls_are_one_sentence(tmp_path: Path) -> None:
    for options, fact in (
        (["mian"], "mian"),
        (["main", "--scale", "14b"], "14b"),
        (["main", "--regime", "rlhf"], "rlhf"),
        (["main", "--data", str(tmp_path / "none")], "does not exist"),
        (["frontier"], "--models"),
        (["main", "--models", str(tmp_path / "none.toml")], "none.toml"),
        (["main", "--corpus", str(tmp_path / "empty")], "empty"),
    ):
        result = CliRunner().invoke(app, ["reproduce", *options, "--output", str(tmp_path / "run")])
        assert result.exit_code != 0
        said = str(result.exception) + result.output
        assert fact in said
        assert not (tmp_path / "run").exists()
    assert not list(tmp_path.iterdir())
