"""A study as data: the arms that every kind of experiment trains and samples, and what is compared.

The three kinds of settings become three functions from TOML to arms. Paths are below the run folder:

    data/                            narrations.jsonl (world only), train.jsonl, test.jsonl, documents.jsonl
    corpus/                          the verification corpus
    base/ sft/ grpo/ or best-of-n/   the method once: training runs, each with `model/`
    grpo-REWARD/ best-of-n-REWARD/   the same on a reward that is compared
    data/validation.jsonl            prompts for validation while training, where the settings ask for it
    predictions/RUN.jsonl            plans of a run, with their rewards; RUN-greedy.jsonl: its greedy plans
    predictions/labels.jsonl         consensus labels of the corpus, if they are compared with planners; copies.jsonl:
                                     lines of the nearest narration
    plans/ARM-SEED.jsonl             plans of a run, without rewards; ARM-SEED-greedy.jsonl: its greedy plans
    rewarded/RANKER/ARM-SEED.jsonl   the same plans with a ranker's rewards
    composed/RANKER.jsonl            plans that it composes of the base's samples
    rows/RUN.jsonl                   plans of a run with their prompts, rewards and all measures
    data/labelled.jsonl              training prompts with consensus labels for a continuation
    corpus-wrong/                    controls: a corpus of another domain
    corpus-shuffled/ corpus-mixed/   controls: the corpus with each narration's lines, or all lines, shuffled
    controls/NAME-SEED/              controls: a training run for every control and seed
    corpora/NAME/ teach/ARM-SEED/    teaching: corpora that cover the tasks or do not; a training run for every arm
    sft-known/                       teaching: the base after fine-tuning on the goals that it knows
    self-trained/                    the net of a reward that is trained on the corpus
    vision/attributes/ words/ aligned/   video: the visual tower, then the video model, after each stage of pre-training
    sft/SEED/ grpo/SEED/             video: training runs
    plans/RUN-SEED-VIEW.jsonl        video: plans of a run for one view of the history
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Literal

from recipe.config import BaseModelConfig, RewardConfig, RewardTrainingSettings, parse_config
from recipe.errors import ConfigError
from recipe.evaluation.metrics import CONTROL
from recipe.reward.own import pinned_reward
from recipe_studies.experiments.settings import (
    COMPARED,
    SELF_TRAINED,
    TABLES,
    AnyExperiment,
    ArmName,
    ExperimentConfig,
    Optimiser,
    TeachingConfig,
    VideoConfig,
)

NARRATIONS, TRAIN, TEST, DOCUMENTS = (f"data/{name}.jsonl" for name in ("narrations", "train", "test", "documents"))
VALIDATION, HELD_OUT, KNOWN = (f"data/{name}.jsonl" for name in ("validation", "held-out", "known"))
CORPUS, WRONG, BASE, SFT_KNOWN = "corpus", "corpus-wrong", "base", "sft-known"
SHUFFLED, MIXED = "corpus-shuffled", "corpus-mixed"
LABELLED = "data/labelled.jsonl"
ATTRIBUTES, WORDS, ALIGNED = (f"vision/{name}" for name in ("attributes", "words", "aligned"))

View = Literal["video", "other", "blank", "goal", "text", "perceived"]
"""What a planner is given of a history: its clip, a clip of other steps, grey frames, nothing, its steps as text, or
the steps that Phi perceived."""
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
CONTROL_REGIMES = {
    "r0": "RL, R0",
    "length": "RL, number of steps",
    "wrong": "RL, wrong corpus",
    "random": "trained on a random own plan",
}
"""Controls that are trained; a run without a corpus is one on R0, which is what is left of the grounded reward."""
GREEDY = ", greedy"
"""Behind the regime of a model's greedy plans."""
R0_CHOICE = ", R0"
"""Ends the name of a choice by R0."""
ROUNDS = ", best-of-N rounds"
"""Behind the regime of an arm that is trained in best-of-N rounds, where others are not."""
ARM_REGIMES: Mapping[ArmName, str] = {
    "narrations": "covering narrations",
    "lists": "covering step lists",
    "self-trained": "self-trained reward, covering corpus",
    "paper": "covering narrations, the paper's reward",
    "wrong": f"{CONTROL}wrong corpus",
    "r0": f"{CONTROL}R0, no corpus",
    "length": f"{CONTROL}number of steps",
    "random": f"{CONTROL}random own plan",
    "gold": "SFT on gold",
}
"""Regimes of the arms of a teaching experiment."""
UNCOVERED, BY_LISTS, LINES_SHUFFLED, CAPTIONS = (f"corpora/{name}" for name in ("0", "lists", "shuffled", "captions"))
"""Teaching: a corpus of the known goals alone, one that covers the taught goals by step lists, and the one of speech
with the lines of each narration shuffled, or with a quarter of annotated lines."""


@dataclass(frozen=True, slots=True)
class PlanSet:
    """The plans of one model for every test prompt, for one view of the history."""

    regime: str
    file: str
    seed: int | None = None
    """None where the regime has one run only."""
    view: View = "text"
    greedy: bool = False
    """One plan a prompt, of the likeliest token each time."""

    def rewarded(self, ranker: str) -> str:
        """Where the plans lie with a ranker's rewards."""
        return f"rewarded/{ranker}/{PurePath(self.file).name}"


LABELS = PlanSet("consensus labels", "predictions/labels.jsonl")
COPIES = PlanSet("retrieve and copy", "predictions/copies.jsonl")
"""Plans of no planner: what the narrations agree on, in known wordings, and the lines that are left in the nearest
narration (`recipe.evaluation.retrieval`)."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One model of a study: how it is trained, with one seed, and the plan sets that are sampled from it."""

    name: str
    """Ends the name of the stage that samples its plans."""
    stage: str
    """Name of the stage that trains it."""
    config: Any
    """A config of a training run, with paths below the run folder; None where a given model is the base."""
    plans: tuple[PlanSet, ...]
    regime: str = ""
    """Names the curve of a run on a reward."""
    exact: bool = False
    """Whether the reward is the exact validity of the world, and not that of `config.reward`."""
    permuted: bool = False
    """Whether each prompt's rewards are permuted, so that they say nothing of the plans."""

    @property
    def folder(self) -> str:
        """Where its training run lies below the run folder."""
        return BASE if self.config is None else str(self.config.output)


@dataclass(frozen=True, slots=True)
class Choice:
    """A regime that takes, of the first `best_of` samples of another, the plan with the highest value of a metric."""

    regime: str
    metric: str
    chosen_from: str = BASE


@dataclass(frozen=True, slots=True)
class Contrast:
    """A paired difference of the report: the plans of `regime` minus those of `baseline`."""

    regime: str
    baseline: str = BASE
    name: str = ""

    @property
    def title(self) -> str:
        """What the report calls the difference."""
        return self.name or self.regime


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
class Study:
    """What the stages, the measures and the report of an experiment follow."""

    config: AnyExperiment
    arms: tuple[Arm, ...]
    """The base first; an arm comes after the one that it starts from. The plans of the regime `base` are of the
    model that others are compared with."""
    contrasts: tuple[Contrast, ...]
    """Over the mean of a regime's seeds."""
    seeds: tuple[int, ...]
    seed_contrasts: tuple[Contrast, ...] = ()
    """Of every seed alone."""
    choices: tuple[Choice, ...] = ()
    """Without training."""
    rankers: tuple[Ranker, ...] = ()
    reward: RewardConfig | None = None
    """The verifier that rewards plans as they are sampled, and those that the report shows."""
    self_trained: RewardConfig | None = None
    """The grounded reward that a net trained on the corpus is added to; None if no reward is self-trained."""
    compares_references: bool = False
    """Whether plans are compared with the reference continuation, as well as checked for validity."""
    shown: tuple[str, ...] = ()
    """Regimes whose plans the report shows; empty for all."""
    read_from_corpus: tuple[PlanSet, ...] = ()
    """Plans shown next to the planners': consensus labels, and copies of the nearest narration."""
    composed: tuple[PlanSet, ...] = ()
    """What each ranker composes of the base's samples, in the order of `rankers`."""
    judged: bool = False
    """Whether the proxy judge judges the plans, where no validity is known."""
    controls: tuple[Contrast, ...] = ()
    """Regimes and the controls that they have to beat."""
    corpora: tuple[str, ...] = ()
    """Teaching: folders of further corpora."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of this kind of experiment for the report, by name."""

    @property
    def start(self) -> Arm | None:
        """The arm that wrote the plans of the base: the base itself, or after it has learned more of what it knows.

        None where no base is measured.
        """
        return next((arm for arm in self.arms if any(plans.regime == BASE for plans in arm.plans)), None)

    @property
    def plan_sets(self) -> tuple[PlanSet, ...]:
        """The plan sets of all models and of the corpus, which every ranker rewards."""
        return (*(plans for arm in self.arms for plans in arm.plans), *self.read_from_corpus)

    @property
    def reward_arms(self) -> tuple[Arm, ...]:
        """The arms that a reward trained, by GRPO or in best-of-N rounds, those of one regime together."""
        arms = [arm for arm in self.arms if isinstance(arm.config, RewardTrainingSettings)]
        regimes = list(dict.fromkeys(arm.regime for arm in arms))
        return tuple(sorted(arms, key=lambda arm: regimes.index(arm.regime)))


def study_of(config: AnyExperiment) -> Study:
    """The study that settings of any kind describe. Raises ConfigError for settings of a stage that cannot be used."""
    if isinstance(config, VideoConfig):
        return _video(config)
    if isinstance(config, TeachingConfig):
        return _teaching(config)
    study = _method(config)
    return _controlled(config, study) if config.controls else study


def _controlled(config: ExperimentConfig, study: Study) -> Study:
    """The method once with the controls, which are trained with the same budget."""
    reward, seed = study.reward, config.seed
    assert reward is not None
    rewards_of_controls = {
        "r0": RewardConfig(verifier="r0"),
        "length": RewardConfig(verifier="length"),
        "random": reward,
    }
    if config.has_wrong_corpus:
        rewards_of_controls["wrong"] = reward
    arms = list(study.arms)
    for name, paid in rewards_of_controls.items():
        table = "best_of_n" if name == "random" else config.optimiser.replace("-", "_")
        fixed = {"choose": "random"} if name == "random" else {}
        folder, corpus = f"controls/{name}-{seed}", WRONG if name == "wrong" else CORPUS
        regime, key = f"{CONTROL}{CONTROL_REGIMES[name]}", f"control-{name}-{seed}"
        run = run_config(config, table, folder, seed, paid, corpus=corpus, **fixed)
        arms.append(Arm(key, f"grpo-{key}", run, _plan_sets(regime, "plans", key, seed), regime))
    controls = [f"{CONTROL}{CONTROL_REGIMES[name]}" for name in rewards_of_controls]
    return replace(
        study,
        arms=tuple(arms),
        contrasts=(*study.contrasts, *_to_the_base(arms)[len(_to_the_base(study.arms)) :]),
        controls=tuple(
            Contrast(contrast.regime, control)
            for contrast in study.contrasts
            if contrast.baseline == BASE
            for control in controls
        ),
    )


def _method(config: ExperimentConfig) -> Study:
    """Base, SFT and a run on a reward, whose verifier rewards all plans and chooses among the base's.

    Each reward to compare trains a run; a verifier also rewards all plans and chooses. Then R0 chooses, too, and the
    main reward among the plans of the run that it trained. Raises ConfigError.
    """
    optimiser, table = config.optimiser, config.optimiser.replace("-", "_")
    corpora = {"wrong": WRONG, "shuffled": SHUFFLED, "mixed": MIXED}
    first = run_config(config, table, optimiser, config.seed)
    main, best = first.reward.verifier, f"best of {config.best_of}"
    if main in config.compared:
        raise ConfigError(f"compared: {main!r} is the reward of [{table}] already; name others, or change that.")
    arms = [Arm(BASE, BASE, base_config(config), _plan_sets(BASE, "predictions", BASE))]
    if config.sft is not None:
        sft = run_config(config, "sft", "sft", config.seed)
        arms.append(Arm("sft", "sft", sft, _plan_sets("SFT", "predictions", "sft")))
    trained = "RL" if optimiser == "grpo" else "trained"
    if config.compared:
        trained = f"trained on {COMPARED.get(main, main)}"
    arms.append(Arm(optimiser, optimiser, first, _plan_sets(trained, "predictions", optimiser), trained))
    choices, rankers = [Choice(f"{best}, {main}" if config.compared else best, "reward")], list[Ranker]()
    for name in config.compared:
        folder, regime = f"{optimiser}-{name}", f"trained on {COMPARED[name]}"
        verifier = RewardConfig(verifier=name) if name in ("paper", "grounded", "r0") else first.reward
        fixed: dict[str, Any] = {"corpus": corpora[name]} if name in corpora else {}
        if name == "labels":
            run = run_config(config, "sft", "sft-labels", config.seed, examples=LABELLED)
            arms.append(Arm(run.output.name, run.output.name, run, _plan_sets(regime, "predictions", run.output.name)))
            continue
        run = run_config(config, "best_of_n" if name == "rounds" else table, folder, config.seed, verifier, **fixed)
        if config.compared_steps and name != "rounds":
            run = run.model_copy(update={"steps": config.compared_steps})
        plans = _plan_sets(regime, "predictions", folder)
        arms.append(Arm(folder, folder, run, plans, regime, name == "validity", name == "permuted"))
        if name in ("paper", "grounded"):
            rankers.append(Ranker(name, verifier))
            choices.append(Choice(f"{best}, {name}", name))
    if config.compared:
        rankers.append(Ranker("relevance", None))
        choices += [Choice(f"{best}{R0_CHOICE}", "relevance"), Choice(f"{trained}, {best}", "reward", trained)]
    others = [plans.regime for arm in arms[1:] for plans in arm.plans[:1] if plans.regime != trained]
    beside = [Contrast(f"{trained}{how}", f"{other}{how}") for how in ("", GREEDY) for other in others]
    labelled = config.has_world and bool(config.compared)
    if labelled:
        compared_with_labels = (trained, f"{trained}{GREEDY}", f"{trained}, {best}", f"{best}, {main}")
        for label in (LABELS.regime, COPIES.regime):
            beside += [Contrast(label), *(Contrast(regime, label) for regime in compared_with_labels)]
    if config.compared:
        by_r0 = f"{best}{R0_CHOICE}"
        without = (trained, f"{trained}{GREEDY}", *(own.regime for own in choices if own.regime != by_r0))
        beside += [Contrast(regime, by_r0) for regime in without]
    settings = {"SFT": config.sft} if config.sft is not None else {}
    return Study(
        config=config,
        arms=tuple(arms),
        contrasts=(*_to_the_base(arms), *(Contrast(choice.regime) for choice in choices), *beside),
        seeds=(config.seed,),
        choices=tuple(choices),
        rankers=tuple(rankers),
        reward=first.reward,
        compares_references=not config.has_world or bool(config.compared),
        shown=tuple(plans.regime for arm in arms for plans in arm.plans if plans.greedy) if config.compared else (),
        read_from_corpus=(LABELS, COPIES) if labelled else (),
        settings=settings | ({"best-of-N rounds": config.best_of_n} if optimiser == "best-of-n" else {}),
    )


def _plan_sets(regime: str, folder: str, name: str, seed: int | None = None) -> tuple[PlanSet, PlanSet]:
    """The samples of a model and its greedy plans."""
    greedy = PlanSet(f"{regime}{GREEDY}", f"{folder}/{name}-greedy.jsonl", seed, greedy=True)
    return PlanSet(regime, f"{folder}/{name}.jsonl", seed), greedy


def _to_the_base(arms: Sequence[Arm]) -> tuple[Contrast, ...]:
    """Each regime against the base's plans of the same kind, greedy ones against greedy ones."""
    sets = {plans.regime: plans for arm in arms for plans in arm.plans}
    greedy = f"{BASE}{GREEDY}"
    return tuple(
        Contrast(regime, greedy if plans.greedy else BASE)
        for regime, plans in sets.items()
        if regime not in (BASE, greedy)
    )


def _verifier(config: TeachingConfig, name: str) -> RewardConfig:
    if name == "self-trained":
        verifier = _verifier(config, "grounded")
        # Whatever its own test says: a study finds out, and its report says both.
        trained = {"self_trained": SELF_TRAINED, "self_trained_anyway": True}
        return verifier.model_copy(update={"grounded": verifier.grounded.model_copy(update=trained)})
    given = config.verifiers.get(name, {})
    return pinned_reward(parse_config({"verifier": name, **given}, RewardConfig, f"[verifiers.{name}]"))


def _teaching(config: TeachingConfig) -> Study:
    """Every arm with every seed from one base, and every ranker's choice among the base's samples."""
    for table, given in (("[grpo]", config.grpo), ("[best_of_n]", config.best_of_n)):
        if "reward" in given or "seed" in given:
            raise ConfigError(
                f"{table}: an experiment on teaching sets reward and seed by arms and seeds; remove the key."
            )
    grounded, several = _verifier(config, "grounded"), len(config.optimisers) > 1
    rewards = {
        "self-trained": _verifier(config, "self-trained"),
        "paper": _verifier(config, "paper"),
        "r0": RewardConfig(verifier="r0"),
        "length": RewardConfig(verifier="length"),
    }
    wanted: list[tuple[int, str, str, str, Optimiser]] = []  # seed, name, regime, corpus, optimiser
    for seed in config.seeds:
        for arm in config.arms:
            corpus = UNCOVERED if arm == "wrong" else CORPUS
            # Where there are no narrations of the taught goals, their step lists are the verification corpus.
            if arm.startswith("lists") and not config.by_lists:
                corpus = BY_LISTS
            once: dict[ArmName, tuple[Optimiser, ...]] = {"gold": ("grpo",), "random": ("best-of-n",)}
            for optimiser in once.get(arm, config.optimisers):
                wanted.append((seed, arm, ARM_REGIMES[arm], corpus, optimiser))
    plans = _plan_sets(BASE, "plans", BASE)
    arms = [Arm(BASE, BASE, base_config(config), () if config.sft_known else plans)]
    start: dict[str, Any] = {}
    if config.sft_known:
        known = run_config(config, "sft_known", SFT_KNOWN, config.seed, examples=KNOWN)
        arms.append(Arm(SFT_KNOWN, SFT_KNOWN, known, plans))
        start = {"model": f"{SFT_KNOWN}/model"}
    # By seed, the first run in best-of-N rounds, whose plans the others take over.
    first_draws: dict[int, str] = {}
    for seed, name, regime, corpus, optimiser in wanted:
        fixed: dict[str, Any] = {"corpus": corpus, **start}
        table = optimiser.replace("-", "_")
        reward = rewards.get(name, grounded)
        if name == "random":
            fixed["choose"] = "random"
        elif optimiser == "best-of-n":
            name, regime = f"{name}-rounds", f"{regime}{ROUNDS}" if several else regime
        folder = f"teach/{name}-{seed}"
        if optimiser == "best-of-n" and first_draws.setdefault(seed, folder) != folder:
            # All of a seed choose among the same plans in their first round.
            fixed["plans"] = first_draws[seed]
        if name == "gold":
            run = run_config(config, "sft", folder, seed, **start)
        else:
            run = run_config(config, table, folder, seed, reward, **fixed)
        plans = _plan_sets(regime, "plans", f"{name}-{seed}", seed)
        arms.append(Arm(f"{name}-{seed}", f"teach-{name}-{seed}", run, plans, regime))
    other_corpora = {"wrong": UNCOVERED, "shuffled": LINES_SHUFFLED, "captions": CAPTIONS}
    rankers = []
    for name in config.rankers:
        if name in other_corpora:
            rankers.append(Ranker(name, grounded, other_corpora[name], base_only=True))
        else:
            rankers.append(Ranker(name, None if name == "relevance" else _verifier(config, name)))
    words = {"wrong": "wrong corpus", "relevance": "R0"}
    titles = {name: words.get(name, name) for name in config.rankers}
    best = f"best of {config.best_of}"
    choices = [Choice(f"{best}, {title}", name) for name, title in titles.items()]
    composed = [
        PlanSet(f"composed of {config.best_of}, {title}", f"composed/{name}.jsonl")
        for name, title in titles.items()
        if config.composed
    ]
    # A given model has read what nobody knows; without text that the base has read there are no wordings for labels.
    from_corpus = (LABELS, COPIES) if config.sft_known or not config.model else (COPIES,)
    beside = [Contrast(plans.regime) for plans in (*composed, *from_corpus)]
    for own in ([choice.regime for choice in choices], [plans.regime for plans in composed]):
        beside += [Contrast(own[0], other) for other in own[1:]]
        beside += [Contrast(own[0], plans.regime) for plans in from_corpus if own]
    corpora = [corpus for _, _, _, corpus, _ in wanted] + [ranker.corpus for ranker in rankers]
    regimes = list(dict.fromkeys(arm.regime for arm in arms if arm.regime))
    settings = {f"verifier {name}": given for name, given in config.verifiers.items()} | {"SFT": config.sft}
    controls = [regime for regime in regimes if regime.startswith(CONTROL)]
    tested = [name for name in regimes if name not in controls]
    return Study(
        config=config,
        arms=tuple(arms),
        contrasts=(*_to_the_base(arms), *(Contrast(choice.regime) for choice in choices), *beside),
        seeds=config.seeds,
        seed_contrasts=_to_the_base(arms),
        choices=tuple(choices),
        rankers=tuple(rankers),
        read_from_corpus=from_corpus,
        composed=tuple(composed),
        self_trained=grounded if config.is_self_trained else None,
        compares_references=True,
        shown=(BASE, *tested),
        judged=True,
        controls=tuple(Contrast(regime, control) for regime in tested for control in controls),
        corpora=tuple(corpus for corpus in dict.fromkeys(corpora) if corpus != CORPUS),
        settings=settings | ({"SFT, known": config.sft_known} if start else {}),
    )


def _video(config: VideoConfig) -> Study:
    """SFT on video and GRPO from it with every seed; the SFT models plan from five views, the GRPO models from two."""
    arms = [Arm(BASE, BASE, base_config(config), ())]
    for seed in config.seeds:
        for table, start, regime, views in (
            ("sft", f"{ALIGNED}/model", "", VIEW_REGIMES),
            ("grpo", f"sft/{seed}/model", "GRPO", GRPO_REGIMES),
        ):
            name = f"{table}-{seed}"
            run = run_config(config, table, f"{table}/{seed}", seed, model=start, input="video", seed=seed)
            plans = (PlanSet(words, f"plans/{name}-{view}.jsonl", seed, view) for view, words in views.items())
            arms.append(Arm(name, name, run, tuple(plans), regime))
    video, other, after = VIEW_REGIMES["video"], VIEW_REGIMES["other"], GRPO_REGIMES["video"]
    text, goal, blank = (VIEW_REGIMES[view] for view in ("text", "goal", "blank"))
    return Study(
        config=config,
        arms=tuple(arms),
        contrasts=(
            *(Contrast(regime, other) for regime in (video, text, goal, blank, after)),
            Contrast(after, video, name=GAIN),
        ),
        seeds=config.seeds,
        seed_contrasts=(Contrast(video, other), Contrast(after, GRPO_REGIMES["other"])),
        shown=(video, other, text, after),
        settings={"vision pre-training": {"steps": config.vision_steps}, "SFT": config.sft},
    )


def base_config(config: AnyExperiment) -> BaseModelConfig | None:
    """The settings of a base from nothing; None where a model is given. Raises ConfigError."""
    return None if config.model else run_config(config, "base", BASE, config.seed)


def run_config(
    config: AnyExperiment, table: str, output: str, run_seed: int, reward: RewardConfig | None = None, **fixed: Any
) -> Any:
    """The settings of a training run: the keys of its `table`, and those that a study sets itself, `fixed` over all.

    Without a `reward`, that of the table stays. Raises ConfigError.
    """
    given = {key: value for key, value in getattr(config, table).items() if key != "reward" or reward is None}
    own: dict[str, Any] = {"examples": DOCUMENTS, "output": output}
    if table != "base":
        own |= {"model": config.model or f"{BASE}/model", "examples": TRAIN, "split": ""}
        own |= {"prompt": config.prompt} if config.prompt else {}
    if issubclass(TABLES[table], RewardTrainingSettings):
        own["corpus"] = CORPUS
        if validation := getattr(config, "validation", {}):
            if "examples" in validation:
                raise ConfigError("[validation]: an experiment sets 'examples' itself; remove the key.")
            own["validation"] = {"examples": VALIDATION, **validation}
    own |= fixed
    # A control on random plans differs from the other runs in what it chooses, whatever these choose.
    if owned := sorted(own.keys() & given.keys() - {"choose"}):
        raise ConfigError(f"[{table}]: an experiment sets {owned[0]!r} itself; remove the key.")
    run: Any = parse_config({"seed": run_seed, **given, **own}, TABLES[table], f"[{table}]")
    if not isinstance(run, RewardTrainingSettings):
        return run
    return run.model_copy(update={"reward": reward or pinned_reward(run.reward)})
