"""`recipe evaluate match` from the command line: metrics, controls and rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")
from tests.conftest import Outcome, Recipe

from recipe.artifacts import read_jsonl, write_jsonl
from recipe.evaluation.scores import read_scores, rows_path

Ask = Callable[..., Outcome]
STEPS = {
    "tea": ("boil the water", "warm the pot", "steep the leaves", "pour a cup"),
    "toast": ("cut a slice", "heat the grill", "turn it over", "spread butter"),
    "bed": ("strip the sheets", "shake the duvet", "tuck the corners", "fluff pillows"),
}


EXAMPLES: list[dict[str, Any]] = [
    {"example_id": f"{goal} {cut}", "video_id": f"{goal} {cut}", "goal": f"prepare {goal} nicely"}
    | {"history": list(steps[:cut]), "continuation": list(steps[cut:])}
    for goal, steps in STEPS.items()
    for cut in (1, 2)
]
TRUTH = {row["example_id"]: row["continuation"] for row in EXAMPLES}


@pytest.fixture
def ask(tmp_path: Path, recipe: Recipe) -> Ask:
    """Evaluate plans, by example, with further arguments."""
    write_jsonl(tmp_path / "test.jsonl", EXAMPLES)

    def call(plans: dict[str, list[str]], *more: object) -> Outcome:
        write_jsonl(tmp_path / "RL.jsonl", [{"example_id": name, "steps": steps} for name, steps in plans.items()])
        asked = ("--examples", tmp_path / "test.jsonl", "--encoder", "hash:512")
        return recipe("evaluate", "match", tmp_path / "RL.jsonl", *asked, *more)

    return call


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
    copied = {row["example_id"]: row["history"] for row in EXAMPLES}
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
    assert ask({"tea 1": plan}, "--output", tmp_path / "match.json").code == 0
    first = next(row for _, row in read_jsonl(rows_path(tmp_path / "match.json")))
    assert first["details"]["matched"] == ["warm the pot", None, "steep the leaves"]
    assert first["metrics"]["matched_f1"] == pytest.approx(2 * 2 / (3 + 3))


def test_labels_are_drawn_from_more_examples_where_given(ask: Ask, tmp_path: Path) -> None:
    train = [{**row, "example_id": row["example_id"] + "x", "video_id": "new"} for row in EXAMPLES]
    write_jsonl(tmp_path / "train.jsonl", train)
    found = [json.loads(ask(TRUTH, "--json", *more)[1]) for more in ((), ("--annotated", tmp_path / "train.jsonl"))]
    assert [one["groups"][-1]["name"] for one in found] == ["two labels of the goal"] * 2
    assert [one["groups"][-1]["counts"]["plans"] for one in found] == [6, 6]
