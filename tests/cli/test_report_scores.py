"""`recipe report` on files of scores: what it writes, what it says, and wrong usage."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recipe.artifacts import to_json
from recipe.cli import app
from recipe.data.examples import write_examples
from recipe.errors import InputError
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.evaluation.scores import Counts, Group, JudgeIdentity, Row, Scores, rows_path, write_rows, write_scores
from recipe.stats import Interval
from recipe.types import Example

EXAMPLE = Example("kitchen-1", "kitchen", "v", "brew tea", ("boil the water",), ("pour it",), 1)


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    path = tmp_path / "judge.json"
    half = {name: Interval(50.0, 40.0, 60.0, 1, 1) for name in ("accuracy", *CRITERIA)}
    groups = tuple(
        Group(name, kind, half, Counts(1)) for name, kind in (("kitchen", "dataset"), ("all", "split"), ("", "all"))
    )  # type: ignore[arg-type]
    extras = {"repeats": 1, "repeat_deviation": None, "how": {}, "left_out": {}}
    identity = {"judge": to_json(JudgeIdentity("proxy (hash)", "proxy"))}
    write_scores(path, Scores("judge", "mine", identity, groups, extras=extras))
    return path


@pytest.fixture
def valid(tmp_path: Path) -> Path:
    path = tmp_path / "validity.json"
    overall = Group("", "all", {"score": Interval(0.5)}, Counts(1))
    write_scores(path, Scores("validity", "mine", {"graphs": "world"}, (overall,), extras={"by_goal": {}}))
    details = {"steps": ["pour it"], "statuses": ["valid"]}
    write_rows(rows_path(path), [Row("kitchen-1", {"score": 0.5}, details=details)])
    return path


def invoke(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["report", *map(str, arguments)])
    return result.exit_code, result.output if result.exception is None or result.exit_code == 2 else str(
        result.exception
    )


def test_page_and_tables_are_written_and_told(tmp_path: Path, scores: Path, valid: Path) -> None:
    write_examples(tmp_path / "examples.jsonl", [EXAMPLE, Example("kitchen-2", "kitchen", "v", "g", ("a",), ("b",), 1)])
    page, tables = tmp_path / "r.html", tmp_path / "r.md"
    code, output = invoke(
        scores, valid, "--examples", tmp_path / "examples.jsonl", "--output", page, "--markdown", tables, "--json"
    )
    assert code == 0
    told = json.loads(output)
    assert told | {"megabytes": 0} == {
        "report": str(page), "markdown": str(tables), "megabytes": 0, "systems": ["mine"], "examples": 1,
        "without_rows": [str(scores)], "examples_without_rows": 1, "explained": 0, "explaining_seconds": 0.0,
    }  # fmt: skip
    assert "brew tea" in page.read_text("utf-8")
    assert "## Accuracy by proxy (hash)" in tables.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{scores}"], "--output"),
        (["{scores}", "--figure", "a.png", "--output", "r.html"], "--figure"),
        (["{folder}", "--output", "r.html"], "a run folder takes"),
        (["{folder}", "--corpus", "c"], "a run folder takes"),
    ],
)
def test_options_of_the_other_kind_are_wrong_usage(
    tmp_path: Path, scores: Path, arguments: list[str], said: str
) -> None:
    code, output = invoke(*(one.format(scores=scores, folder=tmp_path) for one in arguments))
    assert code == 2
    assert said in output


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7])
def test_a_run_without_validation_is_reported_by_its_metrics(tmp_path: Path, steps: int) -> None:
    run = tmp_path / "run"
    run.mkdir()
    rows = [{"step": n + 1, "reward": 0.25 * n, "kl": None if n else 0.5, "note": "a"} for n in range(steps)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "run.json").write_text('{"stage": "grpo"}')
    shown = CliRunner().invoke(app, ["report", str(run)], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "[validation]" in shown.stdout
    printed = json.loads(CliRunner().invoke(app, ["report", str(run), "--json"], catch_exceptions=False).stdout)
    assert (printed["steps"], set(printed["metrics"])) == (steps, {"reward", "kl"})
    means = printed["metrics"]["reward"]
    assert len(means) == min(steps, 4)
    assert means == sorted(means)
    assert printed["metrics"]["kl"] == [0.5, *[None] * (len(means) - 1)]  # absent is no zero


@pytest.mark.parametrize("held", [None, [], ["run.json"], ["metrics.jsonl"], ["manifest.json"]])
def test_a_folder_without_results_is_told_why(tmp_path: Path, held: list[str] | None) -> None:
    folder = tmp_path / "run"
    if held is not None:
        folder.mkdir()
    for name in held or ():
        (folder / name).write_text("" if name.endswith("l") else '{"stage": "grpo"}')
    with pytest.raises(InputError) as raised:
        CliRunner().invoke(app, ["report", str(folder)], catch_exceptions=False)
    begun = held in (["run.json"], ["metrics.jsonl"])
    words = "does not exist" if held is None else "again" if begun else "give"
    assert words in str(raised.value)
    assert "report.json: the file does not exist" not in str(raised.value)
