"""From settings to stages: all is checked first, the expansion is pure, a stage's identity is what it reads."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from safetensors.torch import load_file
from typer.testing import CliRunner

from recipe.artifacts import fingerprint, write_json
from recipe.cli import app
from recipe.config import BestOfNConfig, GRPOConfig, Settings, SFTConfig, load_config, parse_config
from recipe.errors import ConfigError, InputError, MissingExtra
from recipe.functions import pinned
from recipe.models.checkpoints import load_reader
from recipe.progress import SILENT
from recipe_apps.board.settings import BoardSettings
from recipe_studies.experiments import settings as module
from recipe_studies.experiments.expand import Inputs, expand, read_inputs, run_experiment
from recipe_studies.experiments.schedule import RECORDS, Stage
from recipe_studies.experiments.settings import (
    AnyExperiment,
    ExperimentConfig,
    TeachingConfig,
    VideoConfig,
    demo_config,
    load_experiment,
)
from recipe_studies.experiments.study import BASE, VALIDATION, study_of
from recipe_studies.reproduce.study import Endpoints

FOLDER = Path(__file__).parents[2] / "configs"
CONFIGS = sorted(FOLDER.glob("*.toml"))
FILES = {"type": "files", "narrations": ["narrations/narrations_timed.jsonl"], "benchmarks": ["coin", "crosstask"]}
WORLD = {"type": "world", "narrations": 4, "documents": 4, "train": 60, "test": 20}
PROCEDURES = {"type": "procedures", "procedures": ["p.jsonl"], "narrations": ["n.jsonl"]}
HALF = PROCEDURES | {"known": ["coin"], "known_share": 0.5}
HASHED: dict[str, Any] = {"corpus": {"encoder": {"name": "hash:32"}}}


def experiment(**values: Any) -> ExperimentConfig:
    return parse_config({"title": "t", "source": FILES} | values, ExperimentConfig, "test")


def teaching(**values: Any) -> TeachingConfig:
    given = {"kind": "teaching", "title": "t", "source": HALF, "rankers": ["relevance"], "seeds": [0, 1]}
    return parse_config(given | values, TeachingConfig, "test")


def video(**values: Any) -> VideoConfig:
    return parse_config({"kind": "video", "title": "t", "source": WORLD} | values, VideoConfig, "test")


def planned(config: AnyExperiment, data: Path | None = None) -> dict[str, Stage]:
    """The stages of a study; without data those of a teaching study whose files are empty."""
    study = study_of(config)
    inputs = Inputs() if data is None and isinstance(config, TeachingConfig) else read_inputs(config, data)
    return {stage.name: stage for stage in expand(study, inputs)}


def identities(config: AnyExperiment, data: Path | None = None) -> dict[str, str]:
    """What decides whether an earlier output of each stage still holds."""
    return {name: fingerprint(stage.identity) for name, stage in planned(config, data).items()}


def changed(first: dict[str, str], second: dict[str, str]) -> set[str]:
    return {name for name in first if first[name] != second[name]}


KINDS: dict[str, type[Settings]] = {
    "sft": SFTConfig,
    "grpo": GRPOConfig,
    "best": BestOfNConfig,
    "board": BoardSettings,
    "models": Endpoints,
}
DEMOS: tuple[Literal["text", "video"], ...] = ("text", "video")


def experiments(*, quick: bool) -> dict[str, AnyExperiment]:
    """The packaged experiments and those of configs/."""
    own = [path for path in CONFIGS if path.stem.partition("-")[0] not in KINDS]
    demos: dict[str, AnyExperiment] = {name: demo_config(name, quick=quick) for name in DEMOS}
    return demos | {path.stem: load_experiment(path, quick=quick) for path in own}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_file_is_valid(path: Path) -> None:
    if kind := KINDS.get(path.stem.partition("-")[0]):
        load_config(path, kind)
    else:
        load_experiment(path)


def test_one_expansion_builds_every_experiment_and_is_pure(data: Path) -> None:
    planned = [(study_of(config), read_inputs(config, data)) for config in experiments(quick=True).values()]
    shutil.rmtree(data)  # no file is looked at any more
    for study, inputs in planned:
        stages = expand(study, inputs)
        assert stages == expand(study, inputs)
        outputs = [output for stage in stages for output in stage.outputs]
        assert len(set(outputs)) == len(outputs)
        order = [stage.name for stage in stages]
        assert len(set(order)) == len(order)
        assert all(order.index(need) < order.index(stage.name) for stage in stages for need in stage.needs)
        # The report waits for every stage that writes plans or rewards.
        assert {name for name in order if name.startswith(("plans-", "rewards-"))} == set(stages[-1].needs)
        assert all(json.loads(json.dumps(stage.identity)) == stage.identity for stage in stages)


def test_quick_keeps_the_kind_and_cuts_the_work() -> None:
    whole_experiments = experiments(quick=False)
    for name, quick in experiments(quick=True).items():
        whole = whole_experiments[name]
        assert type(quick) is type(whole)
        assert quick.source.test < whole.source.test
        assert quick.grpo == {**whole.grpo, "steps": 4}
        assert quick.best_of_n == {**whole.best_of_n, "n": 2, "rounds": 1, "epochs": 1}
        assert len(getattr(quick, "seeds", ())) <= 2
        if isinstance(quick, TeachingConfig):
            source = quick.source  # enough of the corpus is left to train a reward on
            assert (source.covering, source.lists) == ((8, 4) if quick.is_self_trained else (1, 1))
    config = demo_config("video", seed=7)
    assert isinstance(config, VideoConfig)
    assert (config.seed, config.seeds) == (7, (7, 8, 9))


@pytest.mark.parametrize(
    ("make", "values", "message"),
    [
        (experiment, {"base": {"stpes": 3}}, r"\[base\]: unknown key 'stpes'; did you mean 'steps'"),
        (experiment, {"sft": {"lora": {"rnk": 3}}}, r"\[sft\]: unknown key 'lora.rnk'; did you mean 'rank'"),
        (experiment, {"grpo": {"beta": -1}}, r"\[grpo\]: key 'beta': input should be greater than or equal to 0"),
        (experiment, {"base": {"examples": "x"}}, r"\[base\]: an experiment sets 'examples' itself; remove the key"),
        (experiment, {"grpo": {"corpus": "x"}}, r"\[grpo\]: an experiment sets 'corpus' itself; remove the key"),
        (experiment, {"compared": ["paper"]}, r"compared: 'paper' is the reward of \[grpo\] already"),
        (experiment, {"source": WORLD, "validation": {"examples": "x"}}, r"\[validation\]: an experiment sets"),
        (experiment, {"validation": {"every": 3}}, r"\[validation\] has a use on a world only"),
        (experiment, {"noise": {"drop": 0.1}}, r"noise is that of the text of a base from nothing"),
        (experiment, {"compared": ["validity"]}, r"'validity' is known on a world only"),
        (experiment, {"compared": ["grounded", "grounded"]}, "something stands twice in compared"),
        (experiment, {"source": {"type": "files", "narrations": ["s"]}}, "benchmarks"),
        (experiment, {"best_of": 11}, "best_of 11 is more than samples"),
        (teaching, {"seeds": [1, 1]}, "something stands twice in seeds; name each once"),
        (teaching, {"verifiers": {"paper": {"tua": 1}}}, r"\[verifiers.paper\]: unknown key 'tua'"),
        (teaching, {"validation": {"every": 0}}, "every"),
        (teaching, {"grpo": {"reward": {}}}, "sets reward and seed by arms and seeds"),
        (teaching, {"arms": ["nothing"]}, "arms"),
        (teaching, {"source": PROCEDURES, "sft_known": {"epochs": 1}}, "needs goals that the base knows; give source"),
        (teaching, {"sft_known": {"examples": "x"}, "arms": ["r0"]}, r"\[sft_known\]: an experiment sets 'examples'"),
        (teaching, {"arms": ["self-trained"], **HASHED}, "'self-trained' needs an encoder that knows meaning"),
        (teaching, {"rankers": ["self-trained"], **HASHED}, "'self-trained' needs an encoder that knows meaning"),
        (teaching, {"self_training": {"samples": -1}}, "self_training.samples"),
        (teaching, {"source": {**PROCEDURES, "narrations": []}, "model": "m", "arms": ["paper"]}, "need source.narr"),
        (teaching, {"source": PROCEDURES, "arms": ["r0"]}, "the base has nothing to learn from"),
        (teaching, {"source": PROCEDURES, "arms": ["wrong"], "model": "m"}, "'wrong' needs goals that the base knows"),
        (teaching, {"source": {**HALF, "narrations": []}, "arms": ["r0"], "rankers": ["shuffled"]}, "'shuffled' needs"),
        (experiment, {"source": WORLD | {"exposure": 0.5}}, "exposure leaves documents about other domains"),
        (experiment, {"source": WORLD, "compared": ["labels"]}, r"'labels' needs the table \[sft\]"),
        (experiment, {"source": WORLD, "compared": ["rounds"]}, r"'rounds' needs the table \[best_of_n\]"),
        (experiment, {"compared": ["labels"], "sft": {"epochs": 1}}, "'labels' has a use on a world only"),
        (teaching, {"source": {"type": "procedures"}, "arms": ["r0"], "model": "m"}, "procedures"),
        (experiment, {"source": WORLD | {"domains": ["cookery"]}}, "'cookery'.*cooking"),
        (experiment, {"compared": ["wrong"], "grpo": {"reward": {"verifier": "grounded"}}}, "wrong_narrations"),
        (experiment, {"packaged_base": True}, "packaged_base"),
        (experiment, {"source": WORLD, "compared_steps": 3}, "compared_steps"),
        (teaching, {"rankers": ["mine"]}, "mine"),
        (teaching, {"rankers": ["validity"]}, "validity"),
        (teaching, {"verifiers": {"mine": {}}}, "mine"),
        (teaching, {"verifiers": {"wrong": {"verifier": "paper"}}}, "wrong"),
        (teaching, {"verifiers": {"Mine/../x": {"verifier": "paper"}}}, "Mine"),
        (teaching, {"verifiers": {"mine": {"verifier": "alien"}}, "rankers": ["mine"]}, "alien"),
        (teaching, {"verifiers": {"mine": {"verifier": "own_nowhere:few"}}, "rankers": ["mine"]}, "own_nowhere"),
        (video, {"model": "m"}, "model"),
        (video, {"sft": {"model": "another"}}, r"\[sft\].*'model'"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(
    make: Callable[..., AnyExperiment], values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    # The data is not there either: the settings are named first.
    def begin() -> None:
        stage = planned(make(**values), tmp_path)["data"]
        stage.work(tmp_path, stage.settings, SILENT)

    with pytest.raises((ConfigError, InputError), match=message):
        begin()


def test_a_file_says_its_kind_and_changes_reach_the_stages(tmp_path: Path) -> None:
    assert isinstance(load_experiment(FOLDER / "narrations.toml"), ExperimentConfig)
    (tmp_path / "odd.toml").write_text('kind = "teeching"')
    with pytest.raises(ConfigError, match=r"kind.*'teeching'.*'video', 'teaching'"):
        load_experiment(tmp_path / "odd.toml")
    config = load_experiment(FOLDER / "speech.toml", changes=["grpo.steps=7", "source.train=9", "seeds=[4]"])
    assert isinstance(config, TeachingConfig)
    assert (config.grpo["steps"], config.source.train, config.seeds) == (7, 9, (4,))
    with pytest.raises(ConfigError, match="unknown key 'stps'; did you mean 'steps'"):
        load_experiment(FOLDER / "speech.toml", changes=["grpo.stps=7"])  # also where no run reads the table


def differing(first: Any, second: Any) -> set[str]:
    """The settings, but for the output, that two runs do not share."""
    return {name for name in type(first).model_fields if getattr(first, name) != getattr(second, name)} - {"output"}


def test_compared_rewards_differ_from_the_main_one_in_nothing_else() -> None:
    """Corpora of other lines or tasks, other rewards, or the rewards of chance; the optimiser; SFT on labels."""
    apart_in: dict[str, set[str]] = {name: {"corpus"} for name in ("wrong", "shuffled", "mixed")}
    apart_in |= {"paper": {"reward"}, "r0": {"reward"}, "validity": set(), "permuted": set()}
    values: dict[str, Any] = {"grpo": {"steps": 7, "reward": {"verifier": "grounded"}}, "sft": {"epochs": 1}}
    values |= {"compared": [*apart_in, "rounds", "labels"], "best_of_n": {"n": 3}, "validation": {"every": 3}}
    config = experiment(source=WORLD, **values)
    study, stages = study_of(config), planned(config)
    arms = {arm.name: arm for arm in study.arms}
    main = arms["grpo"].config
    for name, apart in apart_in.items():
        arm = arms[f"grpo-{name}"]
        assert differing(arm.config, main) == apart
        assert str(arm.config.corpus) == (f"corpus-{name}" if "corpus" in apart else "corpus")
        assert arm.config.reward.verifier == (name if "reward" in apart else "grounded")
        assert (arm.exact, arm.permuted) == (name == "validity", name == "permuted")
        assert "validation" in stages[arm.stage].needs
    assert (str(main.validation.examples), main.validation.every) == (VALIDATION, 3)
    assert (arms["grpo-rounds"].config.n, arms["grpo-rounds"].config.reward) == (3, main.reward)
    assert differing(arms["sft-labels"].config, arms["sft"].config) == {"examples"}
    assert "plans-corpus" in stages["sft-labels"].needs
    # Each stands beside the main run, its samples and its greedy plans.
    beside = {(own.regime, own.baseline) for own in study.contrasts}
    for plans in (plans for name in (*arms,) if name not in (BASE, "grpo") for plans in arms[name].plans):
        assert (f"trained on grounded{', greedy' if plans.greedy else ''}", plans.regime) in beside
    shorter = {arm.name: arm.config for arm in study_of(config.model_copy(update={"compared_steps": 3})).reward_arms}
    assert {name: run.steps for name, run in shorter.items() if isinstance(run, GRPOConfig)} == {
        name: 7 if name == "grpo" else 3 for name in shorter if name != "grpo-rounds"
    }
    rounds = experiment(source=WORLD, optimiser="best-of-n", best_of_n={"n": 3, "reward": {"verifier": "grounded"}})
    [arm] = study_of(rounds).reward_arms
    assert (arm.stage, arm.config.n, arm.config.reward.verifier) == ("best-of-n", 3, "grounded")


def test_controls_are_runs_with_the_same_budget_and_one_setting_changed() -> None:
    given: dict[str, Any] = {"source": WORLD, "grpo": {"steps": 7, "reward": {"verifier": "grounded"}}, "seed": 1}
    stages, plain = planned(experiment(**given, controls=True)), planned(experiment(**given))
    assert all(stages[name] == plain[name] for name in plain if name != "report")
    grounded = stages["grpo"].settings.config
    for name, apart in (("r0", {"reward"}), ("length", {"reward"}), ("wrong", {"corpus"})):
        stage = stages[f"grpo-control-{name}-1"]
        run = stage.settings.config
        assert differing(run, grounded) == apart
        assert run.reward.verifier == (name if apart == {"reward"} else "grounded")
        assert set(stage.needs) == {"data", "base", "corpus-wrong" if name == "wrong" else "corpus"}
    rounds = stages["grpo-control-random-1"].settings.config
    assert (rounds.choose, str(rounds.corpus), rounds.reward) == ("random", "corpus", grounded.reward)
    trained = {"control: RL, R0", "control: RL, number of steps", "control: trained on a random own plan"}
    for more, wrong in (({}, set()), ({"wrong_narrations": ["w"]}, {"control: RL, wrong corpus"})):
        study = study_of(experiment(source=FILES | more, controls=True))
        assert {contrast.baseline for contrast in study.controls} == trained | wrong


def test_every_arm_differs_by_its_reward_or_its_corpus() -> None:
    wanted = {
        "narrations": ("grounded", "corpus"),
        "lists": ("grounded", "corpora/lists"),
        "self-trained": ("grounded", "corpus"),
        "paper": ("paper", "corpus"),
        "wrong": ("grounded", "corpora/0"),
        "r0": ("r0", "corpus"),
        "length": ("length", "corpus"),
    }
    several: dict[str, Any] = {"optimisers": ["grpo", "best-of-n"], "best_of_n": {"n": 3}, "seeds": [0, 1, 2]}
    config = teaching(arms=[*wanted, "random", "gold"], **several)
    stages = planned(config)
    runs = {name: stage.settings.config for name, stage in stages.items() if name.startswith("teach-")}
    assert len(runs) == (2 * len(config.arms) - 2) * len(config.seeds)
    random = runs["teach-random-2"]
    assert (random.choose, random.reward) == ("random", runs["teach-narrations-2"].reward)
    for rounds in ("", "-rounds"):
        first = runs[f"teach-narrations{rounds}-2"]
        for name, (verifier, corpus) in wanted.items():
            run = runs[f"teach-{name}{rounds}-2"]
            assert (run.reward.verifier, str(run.corpus)) == (verifier, corpus)
            assert differing(run, first) <= {"reward", "corpus", "plans"}
    # All choose among the same plans, those of the first arm that is trained so.
    assert differing(runs["teach-narrations-rounds-2"], random) == {"choose", "plans"}
    for name, run in runs.items():
        if name != "teach-narrations-rounds-2" and name.endswith("-2") and isinstance(run, BestOfNConfig):
            assert run.plans == Path("teach/narrations-rounds-2")
            assert "teach-narrations-rounds-2" in stages[name].needs


SELF_TRAINED = {"arms": ["narrations", "self-trained", "r0"], "rankers": ["self-trained", "wrong"]}


def test_a_self_trained_arm_differs_by_the_net_that_the_run_trains_on_its_corpus() -> None:
    stages = planned(teaching(optimisers=["best-of-n"], **SELF_TRAINED))
    assert stages["self-train"].needs == ("corpus",)
    plain, trained, r0 = (stages[f"teach-{name}-rounds-0"] for name in ("narrations", "self-trained", "r0"))
    assert {*trained.needs} - {*r0.needs} == {"self-train"}
    reward = trained.settings.config.reward
    assert (reward.grounded.self_trained, reward.grounded.self_trained_anyway) == ("self-trained", True)
    without = reward.grounded.model_copy(update={"self_trained": "", "self_trained_anyway": False})
    assert reward.model_copy(update={"grounded": without}) == plain.settings.config.reward
    assert "self-train" in stages["rewards-self-trained"].needs
    # The wrong corpus chooses among the base's plans alone.
    assert stages["rewards-wrong"].outputs == ("rewarded/wrong/base.jsonl", "rewarded/wrong/base-greedy.jsonl")
    assert {*stages["rewards-wrong"].needs} == {"prompts", "corpus-0", "plans-base"}
    choices = study_of(teaching(**SELF_TRAINED)).choices
    assert {choice.regime for choice in choices} == {"best of 8, self-trained", "best of 8, wrong corpus"}

    assert not any("self-train" in name for name in planned(teaching()))


def test_every_ranker_composes_from_the_samples_of_the_base(data: Path) -> None:
    config = load_experiment(FOLDER / "speech.toml")
    assert isinstance(config, TeachingConfig)
    stages = planned(config, data)
    outputs = {name: stages[f"rewards-{name}"].outputs for name in config.rankers}
    assert {name: own[-1] for name, own in outputs.items()} == {n: f"composed/{n}.jsonl" for n in config.rankers}
    assert {name: stages[f"rewards-{name}"].settings.corpus for name in ("grounded", "wrong", "shuffled")} == {
        "grounded": "corpus",
        "wrong": "corpora/0",
        "shuffled": "corpora/shuffled",
    }
    contrasts = {(own.regime, own.baseline) for own in study_of(config).contrasts}
    for kind in ("best of 8", "composed of 8"):
        others = {other for own, other in contrasts if own == f"{kind}, grounded" and other.startswith(kind)}
        assert others == {f"{kind}, {name}" for name in ("wrong corpus", "R0", "shuffled", "captions")}
    alone = planned(config.model_copy(update={"composed": False}), data)
    assert not any("composed" in output for stage in alone.values() for output in stage.outputs)


def test_a_net_that_learns_from_the_plans_of_the_base_waits_for_it() -> None:
    plain, sampled = (teaching(**SELF_TRAINED, self_training={"samples": count}) for count in (0, 2))
    stages = planned(sampled)
    assert {*stages["self-train"].needs} == {"corpus", "base"}
    policy = stages["self-train"].settings.policy
    assert (policy.model.model, policy.samples) == ("base/model", 2)
    follow = {name for name in stages if "self-trained" in name}
    assert changed(identities(plain), identities(sampled)) == {"self-train", "report", *follow}
    assert planned(teaching(**SELF_TRAINED, self_training={"samples": 2}, model="m"))["self-train"].needs == ("corpus",)


@pytest.mark.parametrize("model", ["", "/models/m"])
def test_all_arms_start_from_the_base_after_it_has_learned_what_it_knows(model: str, data: Path) -> None:
    for name in "pnw":
        (data / f"{name}.jsonl").touch()
    given = {"source": HALF, "arms": ["narrations", "random", "gold"], "seeds": [0], "model": model}
    config = teaching(**given, sft_known={"epochs": 2})
    stages = planned(config, data)
    known = stages["sft-known"]
    assert ("base" in stages) == (not model)
    assert {*known.needs} == ({"data"} if model else {"data", "base"})
    training = known.settings
    assert (training.config.model, training.is_external_model) == (model or "base/model", bool(model))
    assert (str(training.config.examples), training.config.epochs) == ("data/known.jsonl", 2)
    assert "data/known.jsonl" in stages["data"].outputs
    assert stages["plans-sft-known"].outputs == ("plans/base.jsonl", "plans/base-greedy.jsonl")
    for arm in ("narrations", "random", "gold"):
        training = stages[f"teach-{arm}-0"].settings
        assert (training.config.model, training.is_external_model) == ("sft-known/model", False)
    study = study_of(config)
    assert study.start is study.arms[1]
    trained = {"covering narrations", "control: random own plan", "SFT on gold"}
    assert {contrast.regime: contrast.baseline for contrast in study.seed_contrasts} == {
        f"{regime}{greedy}": f"base{greedy}" for regime in trained for greedy in ("", ", greedy")
    }
    # What does not follow from it stays as it is.
    without = identities(teaching(**given), data)
    kept = {name for name, own in identities(config, data).items() if own == without.get(name)}
    assert kept >= {"data", "prompts", "corpus"}


def test_video_runs_start_from_the_model_before_them() -> None:
    config = demo_config("video")
    assert isinstance(config, VideoConfig)
    stages = planned(config)
    assert stages["words"].needs == ("base", "attributes")
    assert not stages["attributes"].needs  # runs beside the base
    for seed in (0, 1, 2):
        sft, grpo = (stages[f"{kind}-{seed}"].settings.config for kind in ("sft", "grpo"))
        assert (sft.seed, grpo.seed, sft.input, grpo.input) == (seed, seed, "video", "video")
        assert (sft.model, grpo.model) == ("vision/aligned/model", f"sft/{seed}/model")
    fewer = identities(config.model_copy(update={"seeds": (1,)}))
    assert {name for name, own in fewer.items() if own != identities(config)[name]} == {"report"}


def test_the_packaged_base_takes_the_place_of_a_trained_one(tmp_path: Path) -> None:
    packaged, trained = (demo_config(train_base=own) for own in (False, True))
    assert planned(packaged)["base"].needs == ()
    assert planned(trained)["base"].needs == ("data",)
    assert changed(identities(packaged), identities(trained)) >= {"base", "grpo", "plans-base"}
    stage = planned(packaged)["base"]
    stage.work(tmp_path, stage.settings, SILENT)
    weights = load_file(tmp_path / "base" / "model" / "model.safetensors")
    assert {str(weight.dtype) for weight in weights.values()} == {"torch.float32"}
    assert load_reader(str(tmp_path / "base" / "model")).config.hidden_size == 192
    with pytest.raises(ConfigError, match="--train-base"):
        demo_config("video", train_base=True)


def test_a_given_model_takes_the_place_of_the_base(tmp_path: Path) -> None:
    stages = planned(teaching(model="/models/m", arms=["r0"]))
    assert BASE not in stages
    training, sampling = stages["teach-r0-0"].settings, stages["plans-base"].settings
    assert (training.config.model, training.is_external_model) == ("/models/m", True)
    assert (sampling.model.model, sampling.is_external_model) == ("/models/m", True)
    assert "data" in stages["teach-r0-0"].needs
    with pytest.raises(InputError, match="does not exist"):
        run_experiment(teaching(model=str(tmp_path / "nowhere")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_identity_is_what_a_stage_reads(data: Path, tmp_path: Path) -> None:
    """Speed, places and the order of calls are not in it; data, seed, noise and settings are."""
    config = experiment(sft={"epochs": 1})
    before = identities(config, data)
    data = Path(shutil.move(data, tmp_path / "another"))
    assert identities(config, data) == before
    with (data / "narrations" / "narrations_timed.jsonl").open("a") as stream:
        stream.write('{"video_id": "w", "sentences": ["stir"]}\n')
    narrated = identities(config, data)
    kept = {"data", "base", "sft"}
    assert changed(before, narrated) == before.keys() - kept  # all that follows from the corpus
    with (data / "coin" / "COIN.json").open("a") as stream:
        stream.write("\n")
    assert changed(narrated, identities(config, data)) == before.keys() - {"corpus"}
    first, second = (planned(demo_config(seed=seed)) for seed in (0, 1))
    own = {name: (stage.identity or {})["settings"] for name, stage in first.items()}
    same = {name for name in own if own[name] == (second[name].identity or {})["settings"]}
    assert same == {"base", "corpus", "plans-corpus", "rewards-paper", "rewards-relevance"}
    noisy = planned(experiment(source=WORLD, noise={"drop": 0.11}))["data"].identity or {}
    assert noisy["settings"]["noise"]["drop"] == 0.11


def test_looking_at_the_test_trains_nothing_again() -> None:
    validation, test = (
        identities(teaching(prompts=prompts, arms=["narrations", "r0", "gold"])) for prompts in ("validation", "test")
    )
    other = changed(validation, test)
    assert not any(name.startswith(("teach", "corpus", "data", "base")) for name in other)
    assert {name for name in test if name.startswith(("prompts", "plans", "rewards", "report"))} == other


def test_data_that_is_not_there_is_named(data: Path) -> None:
    with pytest.raises(InputError, match=r"narrations_timed\.jsonl: the file does not exist.* --data"):
        planned(experiment(), data / "coin")
    with pytest.raises(InputError, match="benchmark 'cion' is unknown; known are coin, crosstask"):
        planned(experiment(source=FILES | {"benchmarks": ["cion"]}), data)
    shutil.rmtree(data / "coin")
    with pytest.raises(InputError, match="coin not found here"):
        planned(experiment(), data)


@pytest.mark.parametrize(
    ("absent", "change", "extra"),
    [
        ("numba", {}, "cpu"),
        ("trl", {}, "train"),
        ("jinja2", {}, "report"),
        ("sentence_transformers", {"corpus": {"encoder": {"name": "a/b"}}}, "encoder"),
        ("wandb", {"grpo": {"metrics": ["wandb"]}}, "wandb"),
    ],
)
def test_packages_are_asked_for_before_the_run(
    absent: str, change: dict[str, Any], extra: str, without: Callable[[str], None]
) -> None:
    without(absent)
    with pytest.raises(MissingExtra, match=rf"\[{extra}\]'"):
        module.require_packages_of(experiment(**change))


def checked(config: Path, run: Path, *options: str) -> tuple[int, Any]:
    """What `recipe run --dry-run` says of an experiment whose encoder needs no package."""
    words = ["run", str(config), "--dry-run", "--json", "--output", str(run), *options]
    result = CliRunner().invoke(app, [*words, "--set", "corpus.encoder.name=hash:64"])
    return result.exit_code, json.loads(result.stdout)


def test_a_check_names_every_missing_input(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").touch()
    files = ["--data", str(tmp_path), "--set", 'source.narrations=["a.jsonl", "b.jsonl"]']
    code, said = checked(FOLDER / "narrations.toml", tmp_path / "run", *files)
    missing = [finding["sentence"] for finding in said["findings"] if finding["state"] == "missing"]
    assert [subject in line for subject, line in zip(("b.jsonl", "coin", "crosstask", "run"), missing, strict=True)]
    assert (code, said["ready"], said["stages"]) == (1, False, [])


def test_in_a_check_stages_that_are_done_are_marked(tmp_path: Path) -> None:
    config, run = FOLDER / "controls.toml", tmp_path / "run"
    code, whole = checked(config, run)
    assert (code, whole["ready"]) == (0, True)
    assert not run.exists()
    identity = planned(load_experiment(config, changes=["corpus.encoder.name=hash:64"]))["base"].identity
    write_json(run / RECORDS / "base.json", {"identity": identity, "done": True, "seconds": 1.0})
    (run / "base").mkdir()
    _, rest = checked(config, run)
    assert rest["stages"] == [stage | {"done": stage["name"] == "base"} for stage in whole["stages"]]


def test_a_reward_of_ones_own_trains_and_ranks(own_module: Callable[[str, str], str]) -> None:
    source = "def few(goal, history, plan):\n    return -len(plan)\n"
    name = f"{own_module('own_studied', source)}:few"
    ranked = teaching(arms=["r0"], verifiers={"mine": {"verifier": name}}, rankers=["mine", "relevance"])
    paid = experiment(source=WORLD, grpo={"reward": {"verifier": name}})
    for verifier in (planned(ranked)["rewards-mine"].settings.verifier, planned(paid)["grpo"].settings.config.reward):
        assert verifier.verifier == pinned(name)
    first = identities(ranked)
    own_module("own_studied", source.replace("-len", "-2 * len"))
    assert changed(first, identities(ranked)) == {"rewards-mine", "report"}
