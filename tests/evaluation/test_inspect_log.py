"""The log that Inspect AI reads: its shape, its numbers, and Inspect itself where it is installed."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
from tests.evaluation.conftest import Recipe
from tests.evaluation.scored import judge_scores

from recipe.data.examples import write_examples
from recipe.errors import InputError
from recipe.evaluation.judge.inspect_log import SCORER, file_name, inspect_log, write_log
from recipe.evaluation.judge.verdicts import CRITERIA, Judgement, write_verdicts
from recipe.evaluation.scores import JudgeIdentity, Scores, rows_path, write_scores
from recipe.types import Example, Unscored, Verdict

WHEN = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
EXAMPLES = {
    name: Example(name, source, video, "make tea", ("boil the water",), ("pour it", "drink it"), 1, "test")
    for name, source, video in (("a", "coin", "v1"), ("b", "coin", "v1"), ("c", "coin", "v2"), ("d", "niv", "v1"))
}


def row(name: str, *grades: int, sample: int = 0, repeat: int = 0, control: str = "") -> Judgement:
    outcome = Verdict(*grades) if grades else Unscored("the answer holds no scores")
    return Judgement(name, outcome, sample, repeat, control, "J", "json", ("pour \ud800 it",), text=f"says {grades}")


ROWS = [
    row("b", 1, 2, 3, 4, 5, 0),
    row("a", 5, 5, 5, 5, 5, 5),
    row("a", 3, 3, 3, 3, 3, 3, repeat=1),
    row("a", 0, 0, 0, 0, 0, 0, sample=1),
    row("c"),
    row("d", 2, 2, 2, 2, 2, 2),
    row("a", 4, 4, 4, 4, 4, 4, control="shuffled"),
]


def scores() -> Scores:
    return judge_scores("ours", JudgeIdentity("J", "llm", "owner/J"), list(EXAMPLES.values()), ROWS)


def test_the_shape_of_a_log() -> None:
    log = inspect_log(scores(), ROWS, EXAMPLES, created=WHEN)
    assert list(log) == [
        "version", "status", "eval", "plan", "results", "stats", "invalidated", "tags", "metadata", "samples",
        "reductions",
    ]  # fmt: skip
    assert (log["version"], log["status"]) == (2, "success")
    spec = log["eval"]
    assert spec["dataset"] == {"name": "coin, niv", "samples": 4, "sample_ids": ["a", "b", "c", "d"]}
    assert (spec["model"], spec["model_roles"]["grader"]["model"]) == ("ours", "owner/J")
    assert spec["config"] == {"epochs": 2, "epochs_reducer": ["mean"]}
    assert file_name(log) == f"2030-01-02T03-04-05-00-00_recipe_judge_{spec['task_id']}.json"
    first = log["samples"][0]
    assert (first["id"], first["epoch"], first["metadata"]["video"]) == ("a", 1, "coin v1")
    assert first["input"] == "Goal: make tea\n\nDone so far:\n1. boil the water"
    assert first["target"] == "1. pour it\n2. drink it"
    assert first["output"]["completion"] == first["messages"][1]["content"] == "1. pour \ud800 it"
    score = first["scores"][SCORER]
    assert (score["value"]["clarity"], score["value"]["total"]) == (4, 24)
    assert score["value"]["accuracy"] == pytest.approx(80)
    assert score["explanation"] == "says (5, 5, 5, 5, 5, 5)\n\nsays (3, 3, 3, 3, 3, 3)"
    assert [(one["id"], one["epoch"]) for one in log["samples"]] == [("a", 1), ("a", 2), ("b", 1), ("c", 1), ("d", 1)]


def test_its_numbers_are_those_of_the_scores() -> None:
    found = scores()
    results = inspect_log(found, ROWS, EXAMPLES)["results"]
    accuracy = results["scores"][0]
    assert [one["name"] for one in results["scores"]] == ["accuracy", *CRITERIA, "total"]
    assert (accuracy["scored_samples"], accuracy["unscored_samples"]) == (3, 1)
    assert accuracy["metrics"]["mean"]["value"] == pytest.approx((40 + 50 + 40) / 3)
    # Videos coin v1 (40 and 50) and niv v1 (40), by hand.
    apart = [(40 + 50) - 2 * 130 / 3, 40 - 130 / 3]
    error = math.sqrt(2 * float(np.square(apart).sum())) / 3
    assert accuracy["metrics"]["stderr"] == {
        "name": "stderr",
        "value": pytest.approx(error),
        "params": {"cluster": "video"},
    }
    splits = {one["name"]: one["values"]["accuracy"]["mean"] for one in results["metadata"]["macro_accuracy"]}
    assert splits == {one.name: one.values["accuracy"].mean for one in found.of("split")}


def test_what_is_unscored_is_nan_and_in_no_metric(tmp_path: Path) -> None:
    log = inspect_log(scores(), ROWS, EXAMPLES)
    [unscored] = [one for one in log["samples"] if one["id"] == "c"]
    assert math.isnan(unscored["scores"][SCORER]["value"])
    assert unscored["scores"][SCORER]["reason"] == "the answer holds no scores"
    write_log(tmp_path / "log.json", log)
    written = (tmp_path / "log.json").read_text(encoding="utf-8")
    assert '"value": NaN' in written
    assert "1. pour ? it" in written
    only = [row("c")]
    empty = inspect_log(scores(), only, EXAMPLES)["results"]["scores"][0]
    assert (empty["metrics"], empty["scored_samples"], empty["unscored_samples"]) == ({}, 0, 1)


def test_controls_are_logs_of_their_own() -> None:
    log = inspect_log(scores(), ROWS, EXAMPLES, control="shuffled")
    assert log["eval"]["model"] == "control: shuffled"
    assert [one["metadata"]["control"] for one in log["samples"]] == ["shuffled"]
    with pytest.raises(InputError, match=r"'injected'.*shuffled"):
        inspect_log(scores(), ROWS, EXAMPLES, control="injected")
    with pytest.raises(InputError, match="first 'a'"):
        inspect_log(scores(), ROWS, {})


def saved(folder: Path) -> Path:
    write_examples(folder / "examples.jsonl", EXAMPLES.values())
    rows = [row(one.example_id, *(5,) * 6) for one in EXAMPLES.values()]
    plain = [Judgement(one.example_id, one.outcome, judge="J", how="json", steps=("pour it",)) for one in rows]
    found = judge_scores("ours", JudgeIdentity("J", "llm"), list(EXAMPLES.values()), plain)
    write_scores(folder / "judge.json", found)
    write_verdicts(rows_path(folder / "judge.json"), plain)
    return folder


def test_the_command(tmp_path: Path, recipe: Recipe) -> None:
    folder = saved(tmp_path)
    words = ("evaluate", "inspect", folder / "judge.json", "--examples", folder / "examples.jsonl", "--output")
    code, out, _ = recipe(*words, tmp_path / "logs")
    [log] = (tmp_path / "logs").iterdir()
    assert (code, "4 samples" in out, "inspect view" in out) == (0, True, True)
    assert log.name.endswith(".json")
    assert json.loads(recipe(*words, tmp_path / "one.json", "--json").out) == {
        "samples": 4,
        "output": str(tmp_path / "one.json"),
    }
    assert recipe(*words, tmp_path / "two.json", "--control", "reference").code == 1
    assert not (tmp_path / "two.json").exists()
    rows_path(folder / "judge.json").unlink()
    assert "does not exist" in recipe(*words, tmp_path / "three.json").err


def test_inspect_reads_it(tmp_path: Path) -> None:
    log_module = pytest.importorskip("inspect_ai.log")
    log = inspect_log(scores(), ROWS, EXAMPLES, created=WHEN)
    write_log(tmp_path / file_name(log), log)
    [info] = log_module.list_eval_logs(str(tmp_path))
    read: Any = log_module.read_eval_log(info.name)
    assert read.results.scores[0].metrics["mean"].value == log["results"]["scores"][0]["metrics"]["mean"]["value"]
    assert math.isnan(read.samples[3].scores[SCORER].value)
    assert set(read.samples[0].scores[SCORER].value) == {"accuracy", "total", *CRITERIA}
