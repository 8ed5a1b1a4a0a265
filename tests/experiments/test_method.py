"""Probe plans and the report of the method run once, from a run folder with made-up models and a real verifier."""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("numba")
pytest.importorskip("matplotlib")

from recipe.artifacts import read_json, write_json, write_jsonl
from recipe.config import CorpusConfig, EncoderConfig, RewardConfig
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples, write_examples
from recipe.planning.predictions import Prediction, write_predictions
from recipe.planning.rerank import reward_predictions
from recipe.progress import SILENT
from recipe.reward.verifier import Verifier
from recipe.rows import from_json
from recipe.types import Example, Reward
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe_studies.experiments.design import CORPUS, TEST, design_of
from recipe_studies.experiments.probes import (
    OTHER_GOAL,
    PERTURBATIONS,
    PROBES,
    REFERENCE,
    ProbeRewards,
    mean_parts,
    reward_probes,
)
from recipe_studies.experiments.report import ReportSettings, write_report
from recipe_studies.experiments.results import SPLITS, ProbePlan, load_results
from recipe_studies.experiments.settings import ExperimentConfig, FilesSource, WorldSource
from recipe_studies.experiments.stages import CorpusBuild, WorldData, build, draw_world

REWARD = RewardConfig(pool_size=5)
CONFIG = ExperimentConfig(
    title="a small run",
    source=WorldSource(narrations=30, documents=4, train=4, test=4),
    corpus=CorpusConfig(encoder=EncoderConfig(name="hash:64"), shard_size=16),
    samples=4,
    best_of=3,
    shown=1,
    grpo={"reward": {"pool_size": 5}},
)


def read_probes(run_dir: Path) -> tuple[ProbePlan, ...]:
    return from_json(read_json(run_dir / PROBES), tuple[ProbePlan, ...], "probes")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder after its data, corpus and probe plans."""
    run_dir = tmp_path_factory.mktemp("run")
    draw_world(run_dir, WorldData(CONFIG.source, 0), SILENT)
    build(run_dir, CorpusBuild(CONFIG.corpus), SILENT)
    reward_probes(run_dir, ProbeRewards(REWARD, world=True, seed=0), SILENT)
    return run_dir


def plans_of(example: Example, regime: str) -> Iterator[str]:
    """Completions of a base that leaves steps out, an SFT that is right, an RL that says everything twice."""
    steps = list(example.continuation)
    for sample in range(CONFIG.samples):
        said = {"base": steps[: sample % 3], "SFT": steps, "RL": [one for step in steps for one in (step, step)]}[
            regime
        ]
        yield "\n".join(f"{number}. {step}" for number, step in enumerate(said, start=1))


@pytest.fixture(scope="module")
def run_dir(drawn: Path) -> Path:
    """The same after its models."""
    examples = read_examples(drawn / TEST)
    verifier = Verifier(Corpus.open(drawn / CORPUS), REWARD)
    for plans in design_of(CONFIG).plan_sets:
        predictions = [
            Prediction.of(example.example_id, sample, text)
            for example in examples
            for sample, text in enumerate(plans_of(example, plans.regime))
        ]
        rewarded = reward_predictions(verifier, examples, predictions)
        write_predictions(drawn / plans.file, rewarded)
    rows = []
    for step in (1, 2):
        told = [
            {
                "example_id": e.example_id,
                "goal": e.goal,
                "history": e.history,
                "completion": next(plans_of(e, "SFT")),
                "reward": None,
            }
            for e in examples
        ]
        write_jsonl(drawn / "grpo" / "completions" / f"step-{step:05d}.jsonl", told)
        rows.append({"step": step, "reward": 0.1 * step, "steps": 4.0, "reward_seconds": 1.0, "step_seconds": 4.0})
    write_jsonl(drawn / "grpo" / "metrics.jsonl", rows)
    write_json(drawn / "stages" / "grpo.json", {"done": True, "seconds": 12.5, "cpu_seconds": 11.6})
    return drawn


def test_the_report_tells_of_every_regime(run_dir: Path) -> None:
    write_report(run_dir, ReportSettings(CONFIG), SILENT)
    found = load_results(run_dir / "report.json")
    regimes = ("base", "SFT", "RL", "best of 3")
    assert {(row.split, row.regime) for row in found.scores} == {(s, g) for s in SPLITS for g in regimes}
    score = {(row.split, row.regime): row.metrics["score"].mean for row in found.scores}
    for split in SPLITS:
        assert score[split, "SFT"] == 1.0
        assert score[split, "base"] < score[split, "RL"] < 1.0
    [curve] = found.curves
    assert curve.series["validity"] == (1.0, 1.0)
    assert curve.series["reward"] == (0.1, 0.2)
    assert {d.regime for d in found.differences} == {"SFT", "RL", "best of 3"}
    assert [(prompt.split, len(prompt.plans)) for prompt in found.prompts] == [(split, 5) for split in SPLITS]
    assert {stage.name: (stage.seconds, stage.detail) for stage in found.stages} == {"GRPO": (12.5, "12 CPU s")}
    assert [(cost.regime, cost.share) for cost in found.costs] == [("RL", 0.25)]
    assert "RL 25.0%" in found.summary[-1]
    assert found.provenance.data["verification corpus"].startswith("30 narrations")
    page = (run_dir / "report.html").read_text()
    assert all(regime in page for regime in regimes)
    for plan in found.hand_made:
        assert plan.name in page


def test_the_report_without_exact_validity(run_dir: Path) -> None:
    source = FilesSource(type="files", narrations=("n",), benchmarks=("coin",))
    config = CONFIG.model_copy(update={"source": source})
    write_report(run_dir, ReportSettings(config), SILENT)
    found = load_results(run_dir / "report.json")
    assert all("score" not in row.metrics and "reward" in row.metrics for row in found.scores)
    assert {one.metric for one in found.rerankings} == {found.main_metric()} == {"matched_ordered_f1"}
    assert "validity" not in found.curves[0].series
    assert any("No exact validity" in caveat for caveat in found.caveats)


def test_probe_plans(drawn: Path) -> None:
    found = {plan.name: plan for plan in read_probes(drawn)}
    assert list(found) == [*PERTURBATIONS, "small talk"]
    assert found[REFERENCE].validity == 1.0
    assert found["small talk"].validity == 0.0
    for name in ("history copied", "reversed", OTHER_GOAL, "every step said twice"):
        assert found[name].validity is not None
        assert found[name].validity < 1.0
    assert found[REFERENCE].parts.total > found["history copied"].parts.total
    assert {plan.parts.plans for plan in found.values()} == {8}


def test_one_goal_alone_has_no_plan_of_another(drawn: Path, tmp_path: Path) -> None:
    [example] = draw_examples(load_world(), "test_cuts", 1)
    write_examples(tmp_path / TEST, [example])
    (tmp_path / CORPUS).symlink_to(drawn / CORPUS)
    reward_probes(tmp_path, ProbeRewards(REWARD, world=False, seed=0), SILENT)
    found = {plan.name: plan.validity for plan in read_probes(tmp_path)}
    assert set(found) == set(PERTURBATIONS) - {OTHER_GOAL}
    assert set(found.values()) == {None}


def test_mean_parts() -> None:
    first = Reward(0.5, 0.1, 0.5, 0.4, False, 3, (), None)
    second = replace(first, total=-0.5, gated=True, rho=0.0)
    parts = asdict(mean_parts([first, second]))
    expected = {"total": 0.0, "aligned_history": 0.1, "aligned_full": 0.5, "rho": 0.2, "gated": 0.5, "plans": 2}
    assert json.loads(json.dumps(parts)) == pytest.approx(expected)
