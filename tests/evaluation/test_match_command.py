"""`recipe evaluate match` from the command line: metrics, controls, rows, what is missing and what is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")
from tests.conftest import Outcome, Recipe
from tests.evaluation.conftest import overall

from recipe.artifacts import read_jsonl
from recipe.evaluation.scores import read_scores, rows_path

Ask = Callable[..., Outcome]
STEPS = {
    "tea": ("boil the water", "warm the pot", "steep the leaves", "pour a cup"),
    "toast": ("cut a slice", "heat the grill", "turn it over", "spread butter"),
    "bed": ("strip the sheets", "shake the duvet", "tuck the corners", "fluff pillows"),
}


def rows_of_examples() -> list[dict[str, Any]]:
    return [
        {
            "example_id": f"{goal} {cut}", "video_id": f"{goal} {cut}", "goal": f"prepare {goal} nicely",
            "split": "test", "history": list(steps[:cut]), "continuation": list(steps[cut:]),
        }
        for goal, steps in STEPS.items()
        for cut in (1, 2)
    ]  # fmt: skip


@pytest.fixture
def ask(tmp_path: Path, recipe: Recipe) -> Ask:
    """Evaluate plans, by example, with further arguments."""
    write(tmp_path / "test.jsonl", rows_of_examples())

    def call(plans: dict[str, list[str]], *more: object) -> Outcome:
        write(tmp_path / "RL.jsonl", [{"example_id": name, "steps": steps} for name, steps in plans.items()])
        asked = ("--examples", tmp_path / "test.jsonl", "--encoder", "hash:512")
        return recipe("evaluate", "match", tmp_path / "RL.jsonl", *asked, *more)

    return call


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


TRUTH = {row["example_id"]: row["continuation"] for row in rows_of_examples()}


def test_the_truth_beats_all_controls(ask: Ask, tmp_path: Path) -> None:
    target = tmp_path / "match.json"
    code, _, errors = ask(TRUTH, "--output", target)
    assert code == 0, errors
    scores = read_scores(target)
    values, counts = scores.overall.values, scores.overall.counts
    assert values["matched_ordered_f1"].mean == values["matched_f1"].mean == 1
    controls = {one.name: one for one in scores.of("control")}
    assert controls["the goal alone"].values["matched_f1"].mean == 0
    assert controls["history copied"].values["matched_f1"].mean == 0
    differences = [one.difference for one in controls.values() if one.difference]
    assert {one.sign for one in differences} <= {1, None}  # six prompts tell little
    assert all(one.mean > 0 for one in differences)
    assert (len(differences), counts.plans, counts.missing, scores.extras["samples"]) == (3, 6, 0, 1)


def test_a_copied_history_does_not_beat_its_control(ask: Ask, tmp_path: Path) -> None:
    copied = {row["example_id"]: row["history"] for row in rows_of_examples()}
    code, shown, _ = ask(copied, "--output", tmp_path / "match.json")
    assert code == 0
    assert "RL does not beat" in shown
    controls = {one.name: one.difference for one in read_scores(tmp_path / "match.json").of("control")}
    assert (controls["history copied"].mean, controls["history copied"].sign) == (0, 0)
    rows = [row for _, row in read_jsonl(rows_path(tmp_path / "match.json")) if "control" not in row]
    assert {step for row in rows for step in row["details"]["matched"]} == {None}
    assert all(row["metrics"]["copied"] == 1 for row in rows)


def test_rows_name_the_matched_steps(ask: Ask, tmp_path: Path) -> None:
    plan = ["now warm the pot", "whistle a tune", "steep the leaves"]
    code, out, _ = ask({"tea 1": plan}, "--output", tmp_path / "match.json", "--json")
    assert (code, overall(json.loads(out))["counts"]["missing"]) == (0, 5)
    rows = [row for _, row in read_jsonl(rows_path(tmp_path / "match.json"))]
    first, *others = [row for row in rows if "control" not in row]
    assert first["details"]["matched"] == ["warm the pot", None, "steep the leaves"]
    assert first["metrics"]["matched_f1"] == pytest.approx(2 * 2 / (3 + 3))
    assert all(row["details"]["flags"] == ["missing"] and row["details"]["steps"] == [] for row in others)


def test_labels_are_drawn_from_more_examples_where_given(ask: Ask, tmp_path: Path) -> None:
    train = [{**row, "example_id": row["example_id"] + "x", "video_id": "new"} for row in rows_of_examples()]
    write(tmp_path / "train.jsonl", train)
    found = [json.loads(ask(TRUTH, "--json", *more)[1]) for more in ((), ("--annotated", tmp_path / "train.jsonl"))]
    assert [one["groups"][-1]["name"] for one in found] == ["two labels of the goal"] * 2
    assert [one["groups"][-1]["counts"]["plans"] for one in found] == [6, 6]
