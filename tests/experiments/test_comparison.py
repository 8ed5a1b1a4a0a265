"""A comparison of rewards: settings, stages, and the report of a run folder whose models are made up."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("numba")
pytest.importorskip("matplotlib")

from recipe.artifacts import JsonObject, write_json, write_jsonl
from recipe.config import BestOfNConfig, CorpusConfig, EncoderConfig, RewardConfig, parse_config
from recipe.data.examples import read_examples, write_examples
from recipe.errors import ConfigError
from recipe.planning.predictions import Prediction, read_predictions, write_predictions
from recipe.progress import SILENT
from recipe.types import Example
from recipe.world.load import load_world
from recipe_studies.experiments.design import DOCUMENTS, TEST, TRAIN, design_of
from recipe_studies.experiments.report import ReportSettings, write_report
from recipe_studies.experiments.results import SPLITS, load_results
from recipe_studies.experiments.settings import ComparisonConfig, WorldSource, demo_config, load_experiment
from recipe_studies.experiments.stages import CorpusBuild, Ranking, WorldData, build, draw_world, plan_stages, rank

CONFIGS = Path(__file__).parents[2] / "configs"
WORLD = {"type": "world", "narrations": 30, "documents": 4, "train": 4, "test": 4}
CONFIG = ComparisonConfig(
    kind="comparison",
    title="a small comparison",
    source=WorldSource(**{name: value for name, value in WORLD.items() if name != "type"}),
    corpus=CorpusConfig(encoder=EncoderConfig(name="hash:64"), shard_size=16),
    rewards=("paper", "validity"),
    rankers=("paper", "relevance"),
    seeds=(0, 1),
    samples=4,
    best_of=3,
    shown=1,
    verifiers={"paper": {"pool_size": 5}},
)
PLANS = design_of(CONFIG).plan_sets


def comparison(**values: Any) -> ComparisonConfig:
    return parse_config({"kind": "comparison", "title": "t", "source": WORLD} | values, ComparisonConfig, "test")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"rewards": ["validity"], "source": {"type": "files", "narrations": ["n"], "benchmarks": ["coin"]}},
            "reward 'validity' is known on a world only; leave it out",
        ),
        ({"seeds": [1, 1]}, "something stands twice in seeds; name each once"),
        ({"rewards": ["papre"]}, "key 'rewards"),
        ({"sft": {}}, "unknown key 'sft'"),
        ({"best_of": 11}, "best_of 11 is more than samples"),
    ],
)
def test_settings_that_cannot_be_run_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        comparison(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"grpo": {"seed": 3}}, r"\[grpo\]: a comparison sets 'seed' by seeds; remove the key"),
        ({"grpo": {"reward": {}}}, r"\[grpo\]: a comparison sets 'reward' by \[verifiers\]; remove the key"),
        ({"verifiers": {"paper": {"tua": 1}}}, r"\[verifiers.paper\]: unknown key 'tua'; did you mean 'tau'"),
        ({"grpo": {"corpus": "c"}}, r"\[grpo\]: an experiment sets 'corpus' itself"),
    ],
)
def test_stages_that_cannot_be_planned_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_stages(comparison(**values))


def test_prompts_and_corpus_are_those_of_the_demo() -> None:
    config = load_experiment(CONFIGS / "verifiers-world.toml")
    assert isinstance(config, ComparisonConfig)
    own = {stage.name: stage for stage in plan_stages(config)}
    # The demo differs in the noise of the base's texts alone.
    demo = {stage.name: stage for stage in plan_stages(demo_config().model_copy(update={"noise": {}}))}
    for name in ("data", "corpus"):
        assert (own[name].settings, own[name].needs) == (demo[name].settings, demo[name].needs)


def test_every_run_has_its_reward_its_seed_and_the_same_budget() -> None:
    config = load_experiment(CONFIGS / "verifiers-world.toml")
    assert isinstance(config, ComparisonConfig)
    planned = plan_stages(config)
    trained = {stage.name: stage.settings for stage in planned if stage.name.startswith("grpo-")}
    assert set(trained) == {f"grpo-{reward}-{seed}" for reward in config.rewards for seed in config.seeds}
    assert len({(one.config.reward.verifier, one.exact, one.config.seed) for one in trained.values()}) == len(trained)
    budget = {(one.config.steps, one.config.prompts_per_step, one.config.group_size) for one in trained.values()}
    assert len(budget) == 1
    assert trained["grpo-grounded-1"].config.reward.verifier == "grounded-2"


def completion(example: Example, regime: str, sample: int) -> str:
    """The base leaves steps out, runs on validity are right, those on the paper's reward say every step twice."""
    steps = list(example.continuation)
    if regime == "base":
        steps = steps[: sample % 3] or [example.history[0]]
    elif regime == "RL, paper":
        steps = [step for step in steps for _ in range(2)]
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))


def recorded(run_dir: Path, folder: str, regime: str, examples: list[Example], rounds: bool = False) -> None:
    """What a training run leaves behind, of GRPO or of best-of-N rounds."""
    rows: list[JsonObject] = []
    for step in (1, 2, 3):
        completions = [
            {"example_id": e.example_id, "goal": e.goal, "history": e.history, "completion": completion(e, regime, 1)}
            for e in examples
        ]
        name = f"round-{step:02d}.jsonl" if rounds else f"step-{step:05d}.jsonl"
        write_jsonl(
            run_dir / folder / "completions" / name, [row | {"reward": 0.1, "step": step} for row in completions]
        )
        if rounds:
            rows.append({"step": step - 1, "round": step, "reward": 0.1 * step, "steps": 4.0})
            rows.append({"step": step, "round": step, "loss": 1.0, "step_seconds": 1.0})
        else:
            rows.append({"step": step, "reward": 0.1 * step, "steps": 4.0, "reward_seconds": 1.0, "step_seconds": 4.0})
    write_jsonl(run_dir / folder / "metrics.jsonl", rows)
    record = {"done": True, "seconds": 12.5, "cpu_seconds": 10.0}
    write_json(run_dir / "stages" / f"grpo-{Path(folder).name}.json", record)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder after all its stages but the report."""
    folder = tmp_path_factory.mktemp("run")
    draw_world(folder, WorldData(CONFIG.source, 0), SILENT)
    build(folder, CorpusBuild(CONFIG.corpus), SILENT)
    examples, training = read_examples(folder / TEST), read_examples(folder / TRAIN)
    for plans in PLANS:
        predictions = [
            Prediction.of(example.example_id, sample, completion(example, plans.regime, sample))
            for example in examples
            for sample in range(CONFIG.samples)
        ]
        write_predictions(folder / plans.file, predictions)
    for run in design_of(CONFIG).reward_runs:
        recorded(folder, run.folder, run.regime, training)
    for ranker in CONFIG.rankers:
        settings = RewardConfig(pool_size=5) if ranker == "paper" else None
        rank(folder, Ranking(ranker, settings, PLANS), SILENT)
    return folder


def test_every_ranker_rewards_every_plan(run_dir: Path) -> None:
    for ranker in CONFIG.rankers:
        for plans in PLANS:
            planned, rewarded = (read_predictions(run_dir / file) for file in (plans.file, plans.rewarded(ranker)))
            assert [one.steps for one in planned] == [one.steps for one in rewarded]
            assert all(one.reward is not None for one in rewarded)


def test_the_report_of_a_world(run_dir: Path) -> None:
    write_report(run_dir, ReportSettings(CONFIG), SILENT)
    found = load_results(run_dir / "report.json")
    trained = ("RL, paper", "RL, exact validity")
    assert found.regimes() == ("base", *trained, "best of 3, paper", "best of 3, relevance", "reference")
    score = {(row.split, row.regime): row.metrics for row in found.scores}
    for split in SPLITS:
        assert score[split, "RL, exact validity"]["perfect"].mean == 1.0
        assert score[split, "RL, exact validity"]["length_error"].mean == 0.0
        assert score[split, "RL, paper"]["repeats"].mean == 0.5
        assert score[split, "base"]["copied"].mean > 0.3
        assert {"paper", "relevance"} <= set(score[split, "base"])
    assert {(one.regime, one.seed) for one in found.by_seed} == {(name, seed) for name in trained for seed in (0, 1)}
    changed = {(one.split, one.regime): one.value.mean for one in found.differences if one.metric == "score"}
    for one in found.by_seed:
        if one.metric == "score":  # the made-up runs of a reward are equal, and so is their mean
            assert one.value.mean == pytest.approx(changed[one.split, one.regime])
    assert {(curve.regime, curve.seed) for curve in found.curves} == {(n, s) for n in trained for s in CONFIG.seeds}
    assert all(curve.series["validity"] for curve in found.curves)
    assert {one.verifier for one in found.rerankings} == set(CONFIG.rankers)
    assert {(cost.regime, cost.share) for cost in found.costs} == {(name, 0.25) for name in trained}
    assert [stage.detail for stage in found.stages] == ["4 stages, 40 CPU s"]
    page = (run_dir / "report.html").read_text()
    assert all(regime in page for regime in found.regimes())
    assert "Seed by seed" in page


def test_the_findings_name_seeds_and_ceiling(run_dir: Path) -> None:
    write_report(run_dir, ReportSettings(CONFIG), SILENT)
    sentences = load_results(run_dir / "report.json").summary
    assert "RL, exact validity +0." in sentences[1]
    assert "(seeds +0." in sentences[1]
    assert any("RL, exact validity +0.0; steps copied" in sentence for sentence in sentences)
    assert "RL, paper 25.0%, RL, exact validity 25.0%" in sentences[-1]


def test_the_report_without_exact_validity(run_dir: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_dir, tmp_path / "run"))
    files = {"type": "files", "narrations": ["n"], "benchmarks": ["coin"]}
    real = comparison(source=files, rewards=["paper"], rankers=["paper"], seeds=[0, 1], samples=4, best_of=3, shown=1)
    first = read_examples(folder / TEST)[0]
    another = replace(first, example_id="another", video_id="another")
    write_examples(folder / DOCUMENTS, [*read_examples(folder / TRAIN), another])
    write_report(folder, ReportSettings(real), SILENT)
    found = load_results(folder / "report.json")
    rows = {(row.split, row.regime): row.metrics for row in found.scores}
    for split in SPLITS:
        assert "score" not in rows[split, "base"]
        doubled = rows[split, "RL, paper"]
        assert doubled["f1"].mean == pytest.approx(2 / 3)
        assert doubled["ordered_f1"].mean == pytest.approx(2 / 3)
        assert rows[split, "base"]["copied"].mean > 0.3
        assert doubled["matched_ordered_f1"].mean == pytest.approx(2 / 3)
        controls = {row.regime: row for row in found.controls if row.split == split}
        assert controls["control: the goal alone"].metrics["steps"].mean == 1
        assert controls["control: history copied"].metrics["copied"].mean == 1
        assert controls["control: a random sample of the base"].samples == 1
    labels = [row for row in found.controls if "two labels of the goal" in row.regime]
    assert labels[0].split == first.split
    for row in labels:
        assert row.regime.endswith(f", {row.prompts} prompts") == (
            row.prompts < rows[row.split, "base"]["steps"].observations
        )
    compared = {(one.regime, one.baseline) for one in found.control_differences}
    assert ("RL, paper", "control: history copied") in compared
    assert ("base", "control: a random sample of the base") not in compared
    assert {one.metric for one in found.control_differences} == {"matched_ordered_f1"} == {found.main_metric()}
    assert "matched_f1" in found.curves[0].series
    assert any("not the paper's judge" in caveat for caveat in found.caveats)
    assert "no exact measure of a plan" in (folder / "report.html").read_text()


def test_controls_are_runs_with_the_same_budget_and_one_setting_changed() -> None:
    config = load_experiment(CONFIGS / "verifiers-world.toml", controls=True)
    assert isinstance(config, ComparisonConfig)
    stages = {stage.name: stage for stage in plan_stages(config)}
    plain = plan_stages(load_experiment(CONFIGS / "verifiers-world.toml"))
    same = [stage for stage in plain if stage.name != "report"]
    assert all(
        stages[one.name] == replace(one, needs=stages[one.name].needs) for one in same if "rewards" not in one.name
    )
    grounded = stages["grpo-grounded-1"].settings.config
    for name, verifier in (("r0", "r0"), ("length", "length"), ("wrong", "grounded-2")):
        control = stages[f"grpo-control-{name}-1"]
        run = control.settings.config
        assert run.reward.verifier == verifier
        assert str(run.corpus) == ("corpus-wrong" if name == "wrong" else "corpus")
        assert set(control.needs) == {"base", str(run.corpus)}
        changed = {"reward": grounded.reward, "corpus": grounded.corpus, "output": grounded.output}
        assert run.model_copy(update=changed) == grounded
    assert stages["grpo-control-wrong-1"].settings.config.reward == grounded.reward
    rounds = stages["grpo-control-random-1"].settings.config
    assert (rounds.choose, rounds.n, str(rounds.corpus)) == ("random", 8, "corpus")
    goals = [goal for goal, _ in stages["corpus-wrong"].settings.narrations]
    assert len({load_world().graph(goal).domain for goal in goals}) == 1


def test_files_without_another_domain_have_no_wrong_corpus() -> None:
    source = {"type": "files", "narrations": ["n"], "benchmarks": ["coin"]}
    trained = {"control: RL, R0", "control: RL, number of steps", "control: trained on a random own plan"}
    design = design_of(comparison(source=source, controls=True))
    assert {one.baseline for one in design.controls} == trained
    design = design_of(comparison(source={**source, "wrong_narrations": ["w"]}, controls=True))
    assert {one.baseline for one in design.controls} == trained | {"control: RL, wrong corpus"}


def test_the_report_says_which_regime_beats_the_controls(run_dir: Path, tmp_path: Path) -> None:
    """Runs on exact validity are right; those on the paper's reward are no better than a control that is as good."""
    folder = Path(shutil.copytree(run_dir, tmp_path / "run"))
    config = CONFIG.model_copy(update={"controls": True})
    examples, training = read_examples(folder / TEST), read_examples(folder / TRAIN)
    design = design_of(config)
    controls = {one.baseline for one in design.controls}
    for plans in design.plan_sets:
        if plans.regime in controls:
            like = "RL, paper" if "R0" in plans.regime else "base"
            predictions = [
                Prediction.of(example.example_id, sample, completion(example, like, sample))
                for example in examples
                for sample in range(config.samples)
            ]
            write_predictions(folder / plans.file, predictions)
            for ranker in config.rankers:
                write_predictions(folder / plans.rewarded(ranker), predictions)
    for run in design.reward_runs:
        recorded(folder, run.folder, run.regime, training, isinstance(run.config, BestOfNConfig))
    write_report(folder, ReportSettings(config), SILENT)
    found = load_results(folder / "report.json")
    [curve, *_] = [one for one in found.curves if one.regime == "control: trained on a random own plan"]
    assert (curve.steps, curve.series["reward"]) == ((0, 1, 2), pytest.approx((0.1, 0.2, 0.3)))
    assert len(curve.series["validity"]) == 3
    compared = {(one.split, one.regime, one.baseline): one.value for one in found.control_differences}
    for split in SPLITS:
        tie = compared[split, "RL, paper", "control: RL, R0"]
        assert (tie.mean, tie.sign) == (0.0, 0)
        assert compared[split, "RL, exact validity", "control: RL, R0"].mean > 0
        assert not any(regime.startswith("control") or regime == "base" for _, regime, _ in compared)
    said = [sentence for sentence in found.summary if "control" in sentence]
    assert any("RL, paper does not beat this control" in sentence and "RL, R0" in sentence for sentence in said)
    assert any("RL, exact validity" in sentence and "all equal" in sentence for sentence in said)  # four prompts
    assert "Against the controls" in (folder / "report.html").read_text()
