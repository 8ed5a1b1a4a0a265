"""What an experiment trains, samples and compares: every kind of settings as one `Design`.

Paths are below the run folder:

    data/                            narrations.jsonl (world only), train.jsonl, test.jsonl, documents.jsonl
    corpus/                          the verification corpus
    base/ sft/ grpo/ or best-of-n/   the method once: training runs, each with `model/`
    grpo-REWARD/ best-of-n-REWARD/   the same on a reward that is compared
    data/validation.jsonl            prompts for validation while training, where the settings ask for it
    predictions/RUN.jsonl            plans of a run, with their rewards
    rl/REWARD-SEED/                  a comparison: a training run for every reward and seed
    plans/REWARD-SEED.jsonl          plans of a run, without rewards
    rewarded/RANKER/REWARD-SEED.jsonl   the same plans with a ranker's rewards
    corpus-wrong/                    controls: a corpus of another domain
    controls/NAME-SEED/              controls: a training run for every control and seed
    corpora/NAME/ teach/ARM-SEED/    teaching: corpora that cover the tasks or do not; a training run for every arm
    eye/attributes/ words/ aligned/  video: the visual tower, then the video model, after each stage of pre-training
    sft/SEED/ grpo/SEED/             video: training runs
    plans/RUN-SEED-VIEW.jsonl        video: plans of a run for one view of the history
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Literal, TypeVar, get_args

from recipe.config import (
    BaseModelConfig,
    BestOfNConfig,
    GRPOConfig,
    RewardConfig,
    RewardTrainingSettings,
    Settings,
    SFTConfig,
    parse_config,
)
from recipe.errors import ConfigError
from recipe.evaluation.metrics import CONTROL
from recipe_studies.experiments.settings import (
    AnyExperiment,
    Arm,
    ComparisonConfig,
    ExperimentConfig,
    Optimiser,
    TeachingConfig,
    VideoConfig,
)

RunConfig = TypeVar("RunConfig", bound=Settings)

NARRATIONS, TRAIN, TEST, DOCUMENTS = (f"data/{name}.jsonl" for name in ("narrations", "train", "test", "documents"))
VALIDATION, HELD_OUT = "data/validation.jsonl", "data/held-out.jsonl"
CORPUS, WRONG, BASE = "corpus", "corpus-wrong", "base"
ATTRIBUTES, WORDS, ALIGNED = (f"eye/{name}" for name in ("attributes", "words", "aligned"))

View = Literal["video", "other", "blank", "goal", "text"]
"""What a planner is given of a history: its clip, a clip of other steps, grey frames, nothing, or its steps as text."""
VIEWS: tuple[View, ...] = get_args(View)
VIEW_REGIMES: Mapping[View, str] = {
    "video": "video",
    "other": "other frames",
    "blank": "blank frames",
    "goal": "goal only",
    "text": "history as text",
}
"""Regimes of the SFT models of a video experiment."""
GRPO_REGIMES: Mapping[View, str] = {"video": "video after GRPO", "other": "other frames after GRPO"}
GAIN = "GRPO minus SFT, video"
REWARD_REGIMES = {
    "paper": "RL, paper",
    "grounded": "RL, grounded",
    "grounded-1": "RL, grounded-1",
    "validity": "RL, exact validity",
}
"""Regime of the runs that a reward trained."""
CONTROL_REGIMES = {
    "r0": "RL, R0",
    "length": "RL, number of steps",
    "wrong": "RL, wrong corpus",
    "random": "trained on a random own plan",
}
"""Controls that are trained; a run without a corpus is one on R0, which is what is left of the grounded reward."""
ROUNDS = ", best-of-N rounds"
"""Behind the regime of an arm that is trained in best-of-N rounds, where others are not."""
ARM_REGIMES: Mapping[Arm, str] = {
    "narrations": "covering narrations",
    "lists": "covering step lists",
    "paper": "covering narrations, the paper's reward",
    "validity": "exact validity",
    "wrong": f"{CONTROL}wrong corpus",
    "r0": f"{CONTROL}R0, no corpus",
    "length": f"{CONTROL}number of steps",
    "random": f"{CONTROL}random own plan",
    "gold": "SFT on gold",
}
"""Regimes of the arms of a teaching experiment."""


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training run that starts from an earlier model; `regime` names the curve of a run on a reward."""

    stage: str
    config: SFTConfig | GRPOConfig | BestOfNConfig
    needs: tuple[str, ...]
    regime: str = ""
    exact: bool = False
    """Whether the reward is the exact validity of the world, and not that of `config.reward`."""
    elsewhere: bool = False
    """Whether the model that it starts from is a hub id or a folder outside the run."""

    @property
    def folder(self) -> str:
        """Where the run lies below the run folder of the experiment."""
        return str(self.config.output)


@dataclass(frozen=True, slots=True)
class PlanSet:
    """The plans of one run for every test prompt, for one view of the history."""

    regime: str
    file: str
    seed: int | None = None
    """None where the regime has one run only."""
    view: View = "text"

    def rewarded(self, ranker: str) -> str:
        """Where the plans lie with a ranker's rewards."""
        return f"rewarded/{ranker}/{PurePath(self.file).name}"


@dataclass(frozen=True, slots=True)
class SamplingRun:
    """A stage that samples the plan sets of one model."""

    stage: str
    model: str
    """Folder of the training run."""
    plans: tuple[PlanSet, ...]
    after: str
    """Stage that trains the model."""
    reference: str = ""
    """Folder of the run that the KL divergence is taken against, if any."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A regime that takes, of the first `best_of` samples of the base, the one with the highest `metric`."""

    regime: str
    metric: str


@dataclass(frozen=True, slots=True)
class Contrast:
    """A paired difference of the report: the plans of `regime` minus those of `baseline`."""

    regime: str
    baseline: str
    name: str = ""
    """What the report calls the difference, where that is not `regime`."""


@dataclass(frozen=True, slots=True)
class Ranker:
    """What rewards plans after they are sampled."""

    name: str
    verifier: RewardConfig | None
    """None for R0 centred by the steps of the training examples."""
    corpus: str = CORPUS
    base_only: bool = False
    """Whether it rewards the plans of the base alone; it is then no column of the report."""


@dataclass(frozen=True, slots=True)
class Level:
    """A point of the learning law: how many narrations cover each goal, and what was trained and chosen with them."""

    narrations: int
    trained: str
    """Regime of the runs on their reward."""
    chosen: str
    """Regime of the base's plans that their verifier chooses."""


@dataclass(frozen=True, slots=True)
class Design:
    """What the stages, the measures and the report of an experiment follow."""

    base: BaseModelConfig | None
    """None where a given model takes its place."""
    training: tuple[TrainingRun, ...]
    sampling: tuple[SamplingRun, ...]
    contrasts: tuple[Contrast, ...]
    """Over the mean of a regime's seeds."""
    seeds: tuple[int, ...]
    seed_contrasts: tuple[Contrast, ...] = ()
    """Of every seed alone."""
    choices: tuple[Choice, ...] = ()
    rankers: tuple[Ranker, ...] = ()
    reward: RewardConfig | None = None
    """The verifier that rewards plans as they are sampled, the probe plans and the plans that the report shows."""
    compares_references: bool = False
    """Whether plans are compared with the reference continuation, beside their validity."""
    shown: tuple[str, ...] = ()
    """Regimes whose plans the report shows; empty for all."""
    judged: bool = False
    """Whether the proxy judge judges the plans, where no validity is known."""
    controls: tuple[Contrast, ...] = ()
    """Regimes and the controls that they have to beat."""
    corpora: Mapping[str, int | Literal["lists"]] = field(default_factory=dict)
    """Teaching: further corpora by folder, with the narrations of each taught goal."""
    law: tuple[Level, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of this kind of experiment for the report, by name."""

    @property
    def plan_sets(self) -> tuple[PlanSet, ...]:
        """The plan sets of all models."""
        return tuple(plans for run in self.sampling for plans in run.plans)

    @property
    def reward_runs(self) -> tuple[TrainingRun, ...]:
        """The runs on a reward, GRPO or best-of-N rounds, those of one regime together."""
        runs = [run for run in self.training if isinstance(run.config, RewardTrainingSettings)]
        regimes = list(dict.fromkeys(run.regime for run in runs))
        return tuple(sorted(runs, key=lambda run: regimes.index(run.regime)))


def design_of(config: AnyExperiment) -> Design:
    """The design of an experiment. Raises ConfigError for settings of a stage that cannot be used."""
    if isinstance(config, VideoConfig):
        return _video(config)
    if isinstance(config, TeachingConfig):
        return _teaching(config)
    if isinstance(config, ComparisonConfig):
        design = _comparison(config)
        rewards = [config.verifier(name) for name in config.rewards if name != "validity"]
        # The reward that is the most likely to need the right corpus.
        reward = next((one for one in rewards if one.is_grounded), rewards[0] if rewards else RewardConfig())
        return _with_controls(design, config, reward) if config.controls else design
    design = _method(config)
    assert design.reward is not None
    return _with_controls(design, config, design.reward) if config.controls else design


def _with_controls(design: Design, config: ExperimentConfig | ComparisonConfig, reward: RewardConfig) -> Design:
    """The design with training on each control and every seed; `reward` is given the wrong corpus."""
    rewards = {"r0": RewardConfig(verifier="r0"), "length": RewardConfig(verifier="length"), "random": reward}
    if config.has_wrong_corpus:
        rewards["wrong"] = reward
    training, sampling = list(design.training), list(design.sampling)
    for seed in design.seeds:
        for name, paid in rewards.items():
            run, stage = f"controls/{name}-{seed}", f"grpo-control-{name}-{seed}"
            corpus = WRONG if name == "wrong" else CORPUS
            optimiser: Optimiser = "best-of-n"
            if name != "random" and isinstance(config, ExperimentConfig):
                optimiser = config.optimiser
            elif name != "random":
                optimiser = "grpo"
            own = _on_reward(config, optimiser, {**_from_base(config, "grpo", run), "corpus": corpus}, seed, paid, name)
            regime = f"{CONTROL}{CONTROL_REGIMES[name]}"
            needs = (_started(config), corpus, *(["validation"] if own.validation else []))
            training.append(TrainingRun(stage, own, needs, regime, elsewhere=bool(config.model)))
            plans = PlanSet(regime, f"plans/control-{name}-{seed}.jsonl", seed)
            sampling.append(SamplingRun(f"plans-control-{name}-{seed}", run, (plans,), stage, reference=BASE))
    controls = tuple(f"{CONTROL}{CONTROL_REGIMES[name]}" for name in rewards)
    against = tuple(Contrast(regime, BASE) for regime in controls)
    regimes = dict.fromkeys([one.regime for one in design.contrasts])
    return replace(
        design,
        training=tuple(training),
        sampling=tuple(sampling),
        contrasts=(*design.contrasts, *against),
        seed_contrasts=(*design.seed_contrasts, *(against if design.seed_contrasts else ())),
        controls=tuple(Contrast(regime, control) for regime in regimes for control in controls),
    )


def _method(config: ExperimentConfig) -> Design:
    """Base, SFT and a run on a reward, whose verifier rewards all plans and chooses among the base's.

    Each reward to compare trains a run, rewards all plans and chooses, too. Raises ConfigError.
    """
    base, elsewhere = _base(config), bool(config.model)
    sft = _run_config(SFTConfig, config.sft, _from_base(config, "sft"), config.seed)
    optimiser = config.optimiser
    paths = _from_base(config, "grpo", optimiser)
    first: GRPOConfig | BestOfNConfig
    if optimiser == "grpo":
        first = _run_config(GRPOConfig, config.grpo, paths, config.seed)
    else:
        first = _run_config(BestOfNConfig, config.best_of_n, paths, config.seed)
    main, best = reward_name(first.reward), f"best of {config.best_of}"
    if main in config.compared:
        table = "grpo" if optimiser == "grpo" else "best_of_n"
        raise ConfigError(f"compared: {main!r} is the reward of [{table}] already; name others, or change that.")

    def regime(reward: str) -> str:
        return f"trained on {reward}" if optimiser == "best-of-n" else REWARD_REGIMES.get(reward, f"RL, {reward}")

    needs = (_started(config), CORPUS, *(["validation"] if config.validation else []))
    alone = "RL" if optimiser == "grpo" else "trained"
    training = [TrainingRun(optimiser, first, needs, regime(main) if config.compared else alone, elsewhere=elsewhere)]
    choices = [Choice(f"{best}, {main}" if config.compared else best, "reward")]
    rankers = []
    for name in config.compared:
        run, exact = f"{optimiser}-{name}", name == "validity"
        verifier = RewardConfig() if name == "validity" else RewardConfig(verifier=name)
        own = _on_reward(config, optimiser, _from_base(config, "grpo", run), config.seed, verifier, name)
        training.append(TrainingRun(run, own, needs, regime(name), exact, elsewhere))
        if not exact:
            rankers.append(Ranker(name, verifier))
            choices.append(Choice(f"{best}, {name}", name))
    runs = {BASE: BASE, "SFT": "sft"} | {one.regime: one.folder for one in training}
    training.append(TrainingRun("sft", sft, (_started(config),), elsewhere=elsewhere))
    return Design(
        base=base,
        training=tuple(training),
        sampling=tuple(
            SamplingRun(
                f"plans-{run}",
                run,
                (PlanSet(regime, f"predictions/{run}.jsonl"),),
                after=_started(config) if run == BASE else run,
                reference="" if run == BASE else BASE,
            )
            for regime, run in runs.items()
        ),
        contrasts=tuple(Contrast(name, BASE) for name in (*runs, *(one.regime for one in choices)) if name != BASE),
        seeds=(config.seed,),
        choices=tuple(choices),
        rankers=tuple(rankers),
        reward=first.reward,
        compares_references=not config.has_world or bool(config.compared),
        settings={"SFT": config.sft} | ({"best-of-N rounds": config.best_of_n} if optimiser == "best-of-n" else {}),
    )


def reward_name(reward: RewardConfig) -> str:
    """What a reward is called: `grounded` for its newest version, any other by its version.

    >>> reward_name(RewardConfig(verifier="grounded")), reward_name(RewardConfig(verifier="grounded-1"))
    ('grounded', 'grounded-1')
    """
    newest = RewardConfig(verifier="grounded").verifier
    return "grounded" if reward.verifier == newest else reward.verifier


def _comparison(config: ComparisonConfig) -> Design:
    """RL on every reward with every seed; every ranker rewards all plans and chooses among the base's."""
    training = []
    for key, replacement in (("reward", "[verifiers]"), ("seed", "seeds")):
        if key in config.grpo:
            raise ConfigError(f"[grpo]: a comparison sets {key!r} by {replacement}; remove the key.")
    base = _base(config)
    for seed in config.seeds:
        for reward in config.rewards:
            run = _run_config(GRPOConfig, config.grpo, _from_base(config, "grpo", f"rl/{reward}-{seed}"), seed)
            verifier = RewardConfig() if reward == "validity" else config.verifier(reward)
            run = run.model_copy(update={"reward": verifier})
            stage, regime = f"grpo-{reward}-{seed}", REWARD_REGIMES[reward]
            training.append(
                TrainingRun(stage, run, (_started(config), CORPUS), regime, reward == "validity", bool(config.model))
            )
    sampling = [SamplingRun("plans-base", BASE, (PlanSet(BASE, "plans/base.jsonl"),), _started(config))]
    for one in training:
        name = PurePath(one.folder).name
        plans = PlanSet(one.regime, f"plans/{name}.jsonl", one.config.seed)
        sampling.append(SamplingRun(f"plans-{name}", one.folder, (plans,), one.stage, reference=BASE))
    choices = tuple(Choice(f"best of {config.best_of}, {ranker}", ranker) for ranker in config.rankers)
    trained = tuple(Contrast(REWARD_REGIMES[reward], BASE) for reward in config.rewards)
    return Design(
        base=base,
        training=tuple(training),
        sampling=tuple(sampling),
        contrasts=(*trained, *(Contrast(choice.regime, BASE) for choice in choices)),
        seeds=config.seeds,
        seed_contrasts=trained,
        choices=choices,
        rankers=_rankers(config),
        compares_references=True,
        settings={f"verifier {name}": given for name, given in config.verifiers.items()},
    )


def _rankers(config: ComparisonConfig | TeachingConfig) -> tuple[Ranker, ...]:
    return tuple(Ranker(name, None if name == "relevance" else config.verifier(name)) for name in config.rankers)


def _teaching(config: TeachingConfig) -> Design:
    """Every arm with every seed from one base; runs and choices with fewer covering narrations are the learning law."""
    for table, given in (("[grpo]", config.grpo), ("[best_of_n]", config.best_of_n)):
        if "reward" in given or "seed" in given:
            raise ConfigError(
                f"{table}: an experiment on teaching sets reward and seed by arms and seeds; remove the key."
            )
    grounded, covering = config.verifier("grounded"), config.covering
    arm_of_all, told = ("lists", "step lists") if config.by_lists else ("narrations", "narrations")
    rewards = {
        "narrations": grounded,
        "lists": grounded,
        "wrong": grounded,
        "paper": config.verifier("paper"),
        "validity": RewardConfig(),
        "r0": RewardConfig(verifier="r0"),
        "length": RewardConfig(verifier="length"),
        "random": grounded,
    }
    corpora: dict[str, int | Literal["lists"]] = {}
    drawn = dict[int, str]()
    rounds = ROUNDS if len(config.optimisers) > 1 else ""
    training = list[TrainingRun]()
    sampling = [SamplingRun("plans-base", BASE, (PlanSet(BASE, "plans/base.jsonl"),), _started(config))]

    def add(name: str, regime: str, seed: int, reward: RewardConfig | None, corpus: str, optimiser: Optimiser) -> None:
        exact, choice = name == "validity", name
        if optimiser == "best-of-n" and name != "random":
            name, regime = f"{name}-rounds", f"{regime}{rounds}"
        run = f"teach/{name}-{seed}"
        if corpus != CORPUS:
            corpora[corpus] = "lists" if corpus == _level("lists") else int(PurePath(corpus).name)
        paths = _from_base(config, "grpo" if reward else "sft", run)
        needs: tuple[str, ...] = (_started(config),)
        settings: SFTConfig | GRPOConfig | BestOfNConfig
        if reward is None:
            settings = _run_config(SFTConfig, config.sft, paths, seed)
        else:
            held: dict[str, Any] = {}
            needs = (*needs, corpus_stage(corpus))
            if optimiser == "best-of-n":
                # All of a seed choose among the same plans in their first round.
                first_run = drawn.setdefault(seed, name)
                if first_run != name:
                    held["plans"] = f"teach/{first_run}-{seed}"
                    needs = (*needs, f"teach-{first_run}-{seed}")
            settings = _on_reward(config, optimiser, {**paths, "corpus": corpus, **held}, seed, reward, choice)
        training.append(TrainingRun(f"teach-{name}-{seed}", settings, needs, regime, exact, bool(config.model)))
        plans = PlanSet(regime, f"plans/{name}-{seed}.jsonl", seed)
        sampling.append(SamplingRun(f"plans-{name}-{seed}", run, (plans,), f"teach-{name}-{seed}", reference=BASE))

    first = config.optimisers[0]
    behind = rounds if first == "best-of-n" else ""
    trained = dict[int, str]()
    for seed in config.seeds:
        for arm in config.arms:
            corpus = {"lists": CORPUS if config.by_lists else _level("lists"), "wrong": _level(0)}.get(arm, CORPUS)
            once: dict[Arm, tuple[Optimiser, ...]] = {"gold": ("grpo",), "random": ("best-of-n",)}
            for optimiser in once.get(arm, config.optimisers):
                add(arm, ARM_REGIMES[arm], seed, rewards.get(arm), corpus, optimiser)
        for level in config.levels:
            whole = {0: "wrong", covering: arm_of_all}.get(level)
            if whole in config.arms:
                trained[level] = f"{ARM_REGIMES[whole]}{behind}"
            else:
                regime = f"{level} covering {told}"
                trained[level] = f"{regime}{behind}"
                add(f"level-{level}", regime, seed, grounded, CORPUS if level == covering else _level(level), first)
    by_level = [Ranker(f"narrations-{n}", grounded, CORPUS if n == covering else _level(n), True) for n in trained]
    corpora |= {one.corpus: n for n, one in zip(trained, by_level, strict=True) if one.corpus != CORPUS}
    rankers = (*_rankers(config), *by_level)
    choices = [Choice(f"best of {config.best_of}, {name}", name) for name in config.rankers]
    for level in trained:
        choices.append(Choice(f"best of {config.best_of}, {level} covering {told}", f"narrations-{level}"))
    regimes = list(dict.fromkeys(run.regime for run in training))
    against = tuple(Contrast(regime, BASE) for regime in regimes)
    controls = [regime for regime in regimes if regime.startswith(CONTROL)]
    arms = {*(ARM_REGIMES[arm] for arm in config.arms)}
    tested = [one for one in regimes if one not in controls and one.removesuffix(ROUNDS) in arms]
    return Design(
        base=_base(config),
        training=tuple(training),
        sampling=tuple(sampling),
        contrasts=(*against, *(Contrast(choice.regime, BASE) for choice in choices)),
        seeds=config.seeds,
        seed_contrasts=against,
        choices=tuple(choices),
        rankers=rankers,
        compares_references=True,
        judged=not config.has_world,
        shown=(BASE, *tested),
        settings={f"verifier {name}": given for name, given in config.verifiers.items()} | {"SFT": config.sft},
        controls=tuple(Contrast(regime, control) for regime in tested for control in controls),
        corpora=corpora,
        law=tuple(
            Level(level, regime, f"best of {config.best_of}, {level} covering {told}")
            for level, regime in trained.items()
        ),
    )


def _level(narrations: int | Literal["lists"]) -> str:
    """Folder of the corpus with so many narrations, or with lists, of each taught goal."""
    return f"corpora/{narrations}"


def corpus_stage(folder: str) -> str:
    """Name of the stage that builds the corpus of a folder."""
    return folder.replace("corpora/", "corpus-")


def _video(config: VideoConfig) -> Design:
    """SFT on video and GRPO from it with every seed; the SFT models plan from five views, the GRPO models from two."""
    sft_runs, grpo_runs, sampling = [], [], []
    for seed in config.seeds:
        shared: dict[str, Any] = {"examples": TRAIN, "split": "", "input": "video", "seed": seed}
        sft = shared | {"model": f"{ALIGNED}/model", "output": f"sft/{seed}"}
        grpo = shared | {"model": f"sft/{seed}/model", "output": f"grpo/{seed}", "corpus": CORPUS}
        sft_runs.append(TrainingRun(f"sft-{seed}", _run_config(SFTConfig, config.sft, sft, seed), ("align",)))
        needs = (f"sft-{seed}", CORPUS)
        grpo_config = _run_config(GRPOConfig, config.grpo, grpo, seed)
        grpo_runs.append(TrainingRun(f"grpo-{seed}", grpo_config, needs, "GRPO"))
        for kind, regimes in (("sft", VIEW_REGIMES), ("grpo", GRPO_REGIMES)):
            plans = tuple(
                PlanSet(regime, f"plans/{kind}-{seed}-{view}.jsonl", seed, view) for view, regime in regimes.items()
            )
            sampling.append(SamplingRun(f"plans-{kind}-{seed}", f"{kind}/{seed}", plans, f"{kind}-{seed}"))
    video, other, after = VIEW_REGIMES["video"], VIEW_REGIMES["other"], GRPO_REGIMES["video"]
    text, goal, blank = (VIEW_REGIMES[view] for view in ("text", "goal", "blank"))
    return Design(
        base=_base(config),
        training=(*sft_runs, *grpo_runs),
        sampling=tuple(sampling),
        contrasts=(
            *(Contrast(regime, other) for regime in (video, text, goal, blank, after)),
            Contrast(after, video, name=GAIN),
        ),
        seeds=config.seeds,
        seed_contrasts=(
            Contrast(video, other),
            Contrast(after, GRPO_REGIMES["other"]),
        ),
        shown=(video, other, text, after),
        settings={"vision pre-training": config.vision.model_dump(), "SFT": config.sft},
    )


def _started(config: AnyExperiment) -> str:
    """The stage after which runs from the base can start."""
    return "data" if config.model else BASE


def _base(config: AnyExperiment) -> BaseModelConfig | None:
    if config.model:
        return None
    return _run_config(BaseModelConfig, config.base, {"examples": DOCUMENTS, "output": BASE}, config.seed)


def _from_base(config: AnyExperiment, kind: Literal["sft", "grpo"], output: str = "") -> dict[str, Any]:
    """The paths of a run that starts from the base, and on a reward how it validates. Raises ConfigError."""
    paths: dict[str, Any] = {
        "model": config.model or f"{BASE}/model",
        "examples": TRAIN,
        "split": "",
        "output": output or kind,
    }
    if config.prompt:
        paths["prompt"] = config.prompt
    if kind == "sft":
        return paths
    paths["corpus"] = CORPUS
    if validation := getattr(config, "validation", {}):
        if "examples" in validation:
            raise ConfigError("[validation]: an experiment sets 'examples' itself; remove the key.")
        paths["validation"] = {"examples": VALIDATION, **validation}
    return paths


def _on_reward(
    config: AnyExperiment, optimiser: Optimiser, paths: dict[str, Any], seed: int, reward: RewardConfig, name: str
) -> GRPOConfig | BestOfNConfig:
    """The settings of a run on a reward; one called `random` trains on random own plans. Raises ConfigError."""
    run: GRPOConfig | BestOfNConfig
    if optimiser == "grpo":
        given = {key: value for key, value in config.grpo.items() if key != "reward"}
        run = _run_config(GRPOConfig, given, paths, seed)
    else:
        chosen = paths | ({"choose": "random"} if name == "random" else {})
        run = _run_config(BestOfNConfig, config.best_of_n, chosen, seed)
    return run.model_copy(update={"reward": reward})


def _run_config(kind: type[RunConfig], given: dict[str, Any], paths: dict[str, Any], seed: int) -> RunConfig:
    """The settings of a training run from the keys `given` and those that the experiment sets. Raises ConfigError."""
    name = {BaseModelConfig: "[base]", SFTConfig: "[sft]", GRPOConfig: "[grpo]", BestOfNConfig: "[best_of_n]"}[kind]
    if owned := sorted(paths.keys() & given.keys()):
        raise ConfigError(f"{name}: an experiment sets {owned[0]!r} itself; remove the key.")
    return parse_config({"seed": seed, **given, **paths}, kind, name)
