"""A comparison of rewards: settings, stages, and the report of a run folder whose models are made up."""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("numba")
pytest.importorskip("matplotlib")

from recipe.artifacts import write_json, write_jsonl
from recipe.config import CorpusConfig, EncoderConfig, RewardConfig, parse_config
from recipe.data.examples import read_examples, write_examples
from recipe.errors import ConfigError
from recipe.experiments import stages
from recipe.experiments.comparison.pipeline import plan_comparison
from recipe.experiments.comparison.report import ComparisonReport, write_comparison
from recipe.experiments.comparison.settings import ComparisonConfig, load_experiment
from recipe.experiments.comparison.stages import Ranking, plans_file, rank, rewarded_file, run_folder, run_name
from recipe.experiments.pipeline import plan_stages
from recipe.experiments.results import SPLITS, load_results
from recipe.experiments.settings import ExperimentConfig, WorldSource, demo_config
from recipe.planning.predictions import Prediction, read_predictions, write_predictions
from recipe.progress import SILENT
from recipe.types import Example

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
RUNS = ("base", *(run_name(reward, seed) for seed in CONFIG.seeds for reward in CONFIG.rewards))


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
        plan_comparison(comparison(**values))


def test_a_file_says_which_kind_of_experiment_it_is(tmp_path: Path) -> None:
    assert isinstance(load_experiment(CONFIGS / "narrations.toml"), ExperimentConfig)
    whole = load_experiment(CONFIGS / "verifiers-world.toml")
    quick = load_experiment(CONFIGS / "verifiers-world.toml", quick=True)
    assert isinstance(whole, ComparisonConfig)
    assert isinstance(quick, ComparisonConfig)
    assert (whole.seeds, quick.seeds) == ((0, 1, 2), (0, 1))
    assert quick.grpo == {**whole.grpo, "steps": 4}
    assert quick.source.test < whole.source.test
    with pytest.raises(ConfigError, match="the file does not exist"):
        load_experiment(tmp_path / "none.toml")


def test_data_and_corpus_are_those_of_the_demo() -> None:
    config = load_experiment(CONFIGS / "verifiers-world.toml")
    assert isinstance(config, ComparisonConfig)
    own = {stage.name: stage for stage in plan_comparison(config)}
    for stage in plan_stages(demo_config()):
        if stage.name in ("data", "corpus"):
            assert (own[stage.name].settings, own[stage.name].needs) == (stage.settings, stage.needs)


def test_every_run_has_its_reward_its_seed_and_the_same_budget() -> None:
    config = load_experiment(CONFIGS / "verifiers-world.toml")
    assert isinstance(config, ComparisonConfig)
    planned = plan_comparison(config)
    known: set[str] = set()
    for stage in planned:
        assert known.issuperset(stage.needs) or stage.name in ("base", "corpus")
        known.add(stage.name)
    trained = {stage.name: stage.settings for stage in planned if stage.name.startswith("grpo-")}
    assert set(trained) == {f"grpo-{reward}-{seed}" for reward in config.rewards for seed in config.seeds}
    assert len({(one.reward, one.grpo.seed) for one in trained.values()}) == len(trained)
    budget = {(one.grpo.steps, one.grpo.prompts_per_step, one.grpo.group_size) for one in trained.values()}
    assert len(budget) == 1
    assert trained["grpo-grounded-1"].grpo.reward.verifier == "grounded"
    outputs = [output for stage in planned for output in stage.outputs]
    assert len(outputs) == len(set(outputs))


def said(example: Example, run: str, sample: int) -> str:
    """Completions: the base leaves steps out, runs on validity are right, those on the paper's reward double steps."""
    steps = list(example.continuation)
    if run == "base":
        steps = steps[: sample % 3] or [example.history[0]]
    elif run.startswith("paper"):
        steps = [step for step in steps for _ in range(2)]
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))


def recorded(run_dir: Path, run: str, examples: list[Example]) -> None:
    """What a training run leaves behind."""
    rows = []
    for step in (1, 2, 3):
        told = [
            {"example_id": one.example_id, "goal": one.goal, "history": one.history, "completion": said(one, run, 1)}
            for one in examples
        ]
        name = f"step-{step:05d}.jsonl"
        write_jsonl(run_dir / run_folder(run) / "completions" / name, [row | {"reward": 0.1} for row in told])
        rows.append({"step": step, "reward": 0.1 * step, "steps": 4.0, "reward_seconds": 1.0, "step_seconds": 4.0})
    write_jsonl(run_dir / run_folder(run) / "metrics.jsonl", rows)
    write_json(run_dir / "stages" / f"grpo-{run}.json", {"done": True, "seconds": 12.5})


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder after all its stages but the report."""
    folder = tmp_path_factory.mktemp("run")
    stages.draw_world(folder, stages.WorldData(CONFIG.source, 0), SILENT)
    stages.build(folder, stages.CorpusBuild(CONFIG.corpus), SILENT)
    examples, training = read_examples(folder / stages.TEST), read_examples(folder / stages.TRAIN)
    for run in RUNS:
        plans = [
            Prediction.of(example.example_id, sample, said(example, run, sample))
            for example in examples
            for sample in range(CONFIG.samples)
        ]
        write_predictions(folder / plans_file(run), plans)
        if run != "base":
            recorded(folder, run, training)
    for ranker in CONFIG.rankers:
        settings = RewardConfig(pool_size=5) if ranker == "paper" else None
        rank(folder, Ranking(ranker, settings, RUNS), SILENT)
    return folder


def test_every_ranker_rewards_every_plan(run_dir: Path) -> None:
    for ranker in CONFIG.rankers:
        for run in RUNS:
            planned, rewarded = (
                read_predictions(run_dir / file) for file in (plans_file(run), rewarded_file(ranker, run))
            )
            assert [one.steps for one in planned] == [one.steps for one in rewarded]
            assert all(one.reward is not None for one in rewarded)


def test_the_report_of_a_world(run_dir: Path) -> None:
    write_comparison(run_dir, ComparisonReport(CONFIG), SILENT)
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
    assert [stage.detail for stage in found.stages] == ["4 stages, 12 s each"]
    page = (run_dir / "report.html").read_text()
    assert all(regime in page for regime in found.regimes())
    assert "Seed by seed" in page


def test_the_findings_name_seeds_and_ceiling(run_dir: Path) -> None:
    write_comparison(run_dir, ComparisonReport(CONFIG), SILENT)
    sentences = load_results(run_dir / "report.json").summary
    assert "RL, exact validity +0." in sentences[0]
    assert "(seeds +0." in sentences[0]
    assert any("RL, exact validity +0.0; copied steps: base" in sentence for sentence in sentences)
    assert sentences[-1] == "Of the time of a GRPO step the reward took: RL, paper 25.0%, RL, exact validity 25.0%."


def test_the_report_without_exact_validity(run_dir: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_dir, tmp_path / "run"))
    files = {"type": "files", "narrations": ["n"], "benchmarks": ["coin"]}
    real = comparison(source=files, rewards=["paper"], rankers=["paper"], seeds=[0, 1], samples=4, best_of=3, shown=1)
    write_examples(folder / stages.DOCUMENTS, read_examples(folder / stages.TRAIN))
    write_comparison(folder, ComparisonReport(real), SILENT)
    found = load_results(folder / "report.json")
    rows = {(row.split, row.regime): row.metrics for row in found.scores}
    for split in SPLITS:
        assert "score" not in rows[split, "base"]
        doubled = rows[split, "RL, paper"]
        assert doubled["f1"].mean == pytest.approx(2 / 3)
        assert doubled["ordered_f1"].mean == pytest.approx(2 / 3)
        assert rows[split, "base"]["copied"].mean > 0.3
    assert "f1" in found.curves[0].series
    assert any("not the paper's judge" in caveat for caveat in found.caveats)
    assert "no exact measure of a plan" in (folder / "report.html").read_text()
