"""`recipe evaluate vpa` and `recipe vpa examples`, from the samples over a planner to the scores and their rows."""

import json
from pathlib import Path

import pytest

pytest.importorskip("scipy")
from tests.conftest import Recipe
from tests.evaluation.conftest import overall

from recipe.data.examples import read_examples
from recipe.evaluation.scores import read_scores, rows_path
from recipe.planning.prediction_files import write_predictions
from recipe.planning.predictions import Prediction

from .conftest import write_release

END = "<|eact|>"


@pytest.fixture
def examples(release_folder: Path, recipe: Recipe, tmp_path: Path) -> Path:
    output = tmp_path / "vpa.jsonl"
    printed = recipe.json("vpa", "examples", "--root", release_folder, "--output", output)
    assert printed == {"output": str(output), "examples": 8, "videos": 3, "without_history": 3}
    return output


def test_the_samples_are_examples(examples: Path, release_folder: Path, recipe: Recipe) -> None:
    read = read_examples(examples, "test")
    assert [one.example_id for one in read] == [
        "crosstask/f/0", "crosstask/f/1", "crosstask/f/2", "crosstask/g/0", "crosstask/g/1",
        "crosstask/h/0", "crosstask/h/1", "crosstask/h/2",
    ]  # fmt: skip
    assert (read[0].history, read[0].cut, read[0].until) == ((), 0, 0.0)
    assert (read[1].history, read[1].until) == (("boil water",), 10.0)
    before = examples.read_bytes()
    code, out, _ = recipe("vpa", "examples", "--root", release_folder / "crosstask", "--output", examples)
    assert (code, examples.read_bytes()) == (0, before)
    assert "8 examples of 3 videos" in out
    asked = ("--root", release_folder, "--output", examples, "--split", "train")
    assert recipe("vpa", "examples", *asked).code == 0
    assert {one.video_id for one in read_examples(examples)} == {"a", "b", "c", "d"}


def test_a_split_without_videos_is_named(recipe: Recipe, tmp_path: Path) -> None:
    root = write_release(tmp_path, {"train": {"501_v": "123"}, "validation": {}, "test": {}})
    for split in ("val", "test"):
        code, _, err = recipe("vpa", "examples", "--root", root, "--output", tmp_path / "e.jsonl", "--split", split)
        assert (code, f"is in {split};" in err) == (1, True)


def test_videos_too_short_for_a_longer_horizon_are_refused(release_folder: Path, recipe: Recipe) -> None:
    pytest.importorskip("openai")
    model = ("--endpoint", "http://localhost:9/v1", "--model", "m", "--encoder", "hash:64", "--output", "plans.jsonl")
    code, _, err = recipe("vpa", "plan", "--root", release_folder, *model, "--horizon", 9)
    assert (code, "long enough to plan 9 actions" in err) == (1, True)


def test_a_baseline_needs_no_model(release_folder: Path, recipe: Recipe, tmp_path: Path) -> None:
    output = tmp_path / "scores" / "vpa.json"
    found = recipe.json("evaluate", "vpa", "--root", release_folder, "--baseline", "random-goal", "--output", output)
    values = overall(found)["values"]
    assert [values[f"{horizon}.accuracy"]["observations"] for horizon in (1, 3, 4)] == [8, 8, 8]
    assert values["1.accuracy"]["mean"] == pytest.approx(100 * (5 / 4 + 3 / 3) / 8, abs=5)
    assert values["1.accuracy"]["clusters"] == 3
    assert not found["calibration"]["calibrated"]
    assert "protocol not calibrated" in found["calibration"]["sentence"]
    names = {row["system"]: row for row in found["beside"]}
    assert names["random-goal, expected"]["figures"]["1.accuracy"] == pytest.approx(28.125)
    assert names["VLaMP"]["figures"]["4.iou"] == 43.4
    assert names["VLaMP"]["published"]
    assert not {"PDPP", "SCHEMA", "ViterbiPlanNet", "KEPP"} & set(names)
    scores = read_scores(output)
    assert scores.settings["calibration"] == found["calibration"]["sentence"]
    assert (scores.system, scores.settings["history"], scores.identity["taxonomy"]) == ("random-goal", "", "6")
    assert not scores.extras["supervised"]
    shown = recipe("evaluate", "vpa", "--root", release_folder, "--baseline", "goal-bigram", "--no-published").out
    assert ("VLaMP" in shown, "random, expected" in shown) == (False, True)
    rows = [json.loads(line) for line in rows_path(output).read_text().splitlines()]
    assert len(rows) == 8
    assert all(len(row["details"]["predicted"]) == 4 for row in rows)


def predicted(examples: Path, path: Path, **changed: tuple[str, ...]) -> Path:
    """Right plans of four actions, but for those that are given by id, where - stands for /."""
    named = {name.replace("_", "/"): steps for name, steps in changed.items()}
    rows = [
        Prediction(one.example_id, named.get(one.example_id, (*one.continuation, END)[:4]))
        for one in read_examples(examples)
    ]
    write_predictions(path, rows)
    return path


def test_right_plans_are_right_and_short_ones_wrong_where_they_end(
    examples: Path, release_folder: Path, recipe: Recipe, tmp_path: Path
) -> None:
    asked = ("evaluate", "vpa", "--root", release_folder, "--encoder", "hash:32", "--predictions")
    whole = recipe.json(*asked, predicted(examples, tmp_path / "right.jsonl"))
    assert {overall(whole)["values"][f"{horizon}.success_rate"]["mean"] for horizon in (1, 3, 4)} == {100}
    assert (whole["system"], whole["extras"]["remap"]["steps_that_are_actions"]) == ("right", 32)
    assert (whole["settings"]["history"], whole["identity"]["encoder"]) == ("oracle", "hash:32")
    short = predicted(examples, tmp_path / "short.jsonl", crosstask_f_0=("boil water", "add mint"))
    output = tmp_path / "vpa.json"
    found = recipe.json(*asked, short, "--history", "Phi", "--supervised", "--output", output)
    means = {name: one["mean"] for name, one in overall(found)["values"].items()}
    assert (means["1.accuracy"], means["4.accuracy"]) == pytest.approx((100, 100 * 30 / 32))
    assert (found["settings"]["history"], found["extras"]["supervised"]) == ("Phi", True)
    assert found["extras"]["remap"]["shorter_plans"] == 1
    recipe.json(*asked, tmp_path / "right.jsonl", "--output", tmp_path / "right.json")
    compared = recipe.json("evaluate", "compare", output, tmp_path / "right.json")
    assert (compared["measure"], compared["clusters"]) == ("vpa", "video")
    assert {one["metric"]: one["result"]["first"] for one in compared["rows"]} == pytest.approx(
        {name: means[name] for name in means if name not in ("1.success_rate", "1.iou")}
    )
    assert {one["result"]["second"] for one in compared["rows"]} == {100}
    row = json.loads(rows_path(output).read_text().splitlines()[0])
    assert row["details"]["gold"] == ["boil water", "add mint", "pour tea", "stir"]
    assert row["details"]["predicted"] == ["boil water", "add mint"]
    assert row["metrics"]["4.accuracy"] == 50


def test_missing_predictions_count_as_wrong_and_further_samples_do_not(
    examples: Path, release_folder: Path, recipe: Recipe, tmp_path: Path
) -> None:
    first, *others = read_examples(examples)
    rows = [Prediction(one.example_id, (*one.continuation, END)[:4]) for one in others]
    rows += [Prediction(one.example_id, ("stir",), 1) for one in others]
    rows.append(Prediction("crosstask/f/4", ("stir",)))  # a cut of a test video, in no sample set
    write_predictions(tmp_path / "p", rows)
    found = recipe.json("evaluate", "vpa", "--root", release_folder, "--predictions", tmp_path / "p")
    assert overall(found)["values"]["4.success_rate"]["mean"] == pytest.approx(100 * 7 / 8)
    remap = found["extras"]["remap"]
    names = ("missing_predictions", "further_samples", "predictions_outside_the_protocol")
    assert [remap[name] for name in names] == [1, 7, 1]
    assert first.example_id == "crosstask/f/0"


def test_bad_predictions_are_named(release_folder: Path, recipe: Recipe, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    asked = ("evaluate", "vpa", "--root", release_folder, "--encoder", "hash:32", "--predictions", path)
    write_predictions(path, [Prediction("crosstask/f/1", ("stir",)), Prediction("crosstask/nobody/1", ("stir",))])
    code, _, err = recipe(*asked)
    assert (code, "crosstask/nobody/1" in err) == (1, True)
    line = json.dumps({"example_id": "crosstask/f/1", "steps": ["stir"]})
    path.write_text(f"{line}\n{line}\n")
    code, _, err = recipe(*asked)
    assert (code, "line 2" in err) == (1, True)
    assert recipe("evaluate", "vpa", "--root", release_folder)[0] == 2
    assert recipe(*asked, "--baseline", "random")[0] == 2
    code, _, err = recipe("evaluate", "vpa", "--root", release_folder, "--baseline", "best")
    assert (code, "'best' is unknown; known are random" in err) == (1, True)
    code, _, err = recipe("evaluate", "vpa", "--root", tmp_path, "--baseline", "random")
    assert (code, "crosstask not found here" in err) == (1, True)


def test_free_words_are_mapped_to_the_goals_card(
    examples: Path, release_folder: Path, recipe: Recipe, tmp_path: Path
) -> None:
    plans, output = tmp_path / "plans.jsonl", tmp_path / "vpa.json"
    write_predictions(plans, [Prediction(one.example_id, ("heat some water",)) for one in read_examples(examples)])
    asked = ("--root", release_folder, "--predictions", plans, "--encoder", "hash:64", "--within-goal")
    code, out, _ = recipe("evaluate", "vpa", *asked, "--output", output)
    assert (code, "mapped to the goal's card alone" in out, "below 0.05" in out) == (0, True, True)
    scores = read_scores(output)
    assert (scores.settings["admissible actions"], scores.extras["remap"]["steps"]) == ("the goal's card", 8)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("baseline", "figures", "within"),
    [
        ("random-goal", ((13.2,), (0.3, 13.4, 23.6), (0.0, 12.7, 27.8)), 0.3),
        ("random", ((0.9,), (0.0, 0.9, 1.5), (0.0, 0.9, 1.9)), 0.3),
        ("goal-bigram", ((47.5,), (11.0, 35.8, 44.0), (6.2, 33.3, 45.4)), 0.15),
    ],
)
def test_the_rows_of_the_real_release(
    shared_data: Path, recipe: Recipe, baseline: str, figures: tuple[tuple[float, ...], ...], within: float
) -> None:
    found = recipe.json("evaluate", "vpa", "--root", shared_data / "crosstask", "--baseline", baseline)
    assert found["calibration"]["calibrated"]
    values = overall(found)["values"]
    assert values["1.accuracy"]["mean"] == pytest.approx(figures[0][0], abs=within)
    for horizon, row in zip((3, 4), figures[1:], strict=True):
        own = [values[f"{horizon}.{name}"] for name in ("success_rate", "accuracy", "iou")]
        assert {one["observations"] for one in own} == {4_123}
        assert [one["mean"] for one in own] == pytest.approx(row, abs=within)
