"""Settings of whole experiments: the method once, the method on drawn video, or tasks taught by rewards.

The packaged experiments (`demo.toml`, `video_demo.toml`) and those in `configs/` are TOML files of these shapes.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from recipe.config import (
    BaseModelConfig,
    BestOfNConfig,
    Config,
    CorpusConfig,
    Fraction,
    GRPOConfig,
    Positive,
    SamplingConfig,
    Settings,
    SFTConfig,
    ValidationSettings,
    check_table,
    parse_config,
    read_config,
)
from recipe.config.removed import removed_setting
from recipe.config.training import tracking_packages
from recipe.errors import ConfigError, require_packages

SELF_TRAINED = "self-trained"
"""The grounded reward with a net that is trained on the run's own corpus (`recipe.mining.self_training`)."""
OwnName = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]*$")]
"""A name in `[verifiers]`, which becomes a part of the names of files."""
Optimiser = Literal["grpo", "best-of-n"]
"""What trains on a reward: GRPO, with the keys of `[grpo]`, or best-of-N rounds, with those of `[best_of_n]`."""
ComparedName = Literal[
    "paper", "grounded", "validity", "r0", "wrong", "shuffled", "mixed", "permuted", "rounds", "labels",
]  # fmt: skip
"""What an experiment compares with its main reward."""
COMPARED: Mapping[str, str] = {
    "paper": "paper",
    "grounded": "grounded",
    "validity": "exact validity",
    "r0": "R0, no corpus",
    "wrong": "a wrong corpus",
    "shuffled": "shuffled lines",
    "mixed": "mixed lines",
    "permuted": "permuted rewards",
    "rounds": "grounded, best-of-N rounds",
    "labels": "consensus labels",
}
"""What runs are trained on, as the report calls it. The main reward on other corpora: narrations of another domain;
the same narrations with the lines of each shuffled, so that order is lost; with all lines dealt out anew, so that
content is. The main reward with the rewards of each prompt's plans permuted, of which nothing can be learned. The main
reward in best-of-N rounds. SFT on what narrations agree on (`recipe.evaluation.retrieval`)."""
PROMPT_SHARE = 0.5
"""Share of the training videos of procedures that are prompts and validation, and no corpus: as many are told as are
asked for."""
RANKERS = ("paper", "grounded", "self-trained", "relevance", "wrong", "shuffled", "captions")
"""What chooses among samples, besides those of `[verifiers]`: a verifier; R0, which reads no corpus
(recipe.reward.baselines); or, for the base's samples alone, the grounded reward on another corpus: on one of other
tasks, on the same one with the lines of each narration shuffled, and with a quarter of annotated lines."""


class StudySource(Settings):
    """What every source has: how much of its data is used."""

    quick: ClassVar[Mapping[str, Any]] = {"documents": 5000, "train": 64, "test": 16}
    """What `--quick` puts in place of the settings' own values (`quick_settings`)."""
    documents: Positive = 12000
    """Texts that a base from nothing is trained on: noisy procedures of the world, else training examples."""
    train: Positive = 400
    """Training examples of SFT and of runs on a reward."""
    test: Positive = 100
    """Test prompts of each split of the world, or of each benchmark."""


class WorldSource(StudySource):
    """Narrations and examples drawn from the embedded world, whose truth is known exactly."""

    quick: ClassVar[Mapping[str, Any]] = {**StudySource.quick, "narrations": 200}
    type: Literal["world"] = "world"
    domains: tuple[str, ...] = ()
    """Domains of the world whose goals are used; empty: all. A wrong corpus tells the goals of the others."""
    narrations: Positive = 1500
    """Narrations of the verification corpus, of all goals in turn."""
    clean: Fraction = 0.0
    """How near narrations are to lists of all steps in a valid order: 0 for a narrator's, 1 for lists
    (`recipe.world.narrator.NarratorStyle.cleaner`)."""
    exposure: Fraction = 1.0
    """Share of `documents` that is about the goals that are used; the others are about goals of the other domains."""


class AnnotatedSource(StudySource):
    """What sources of annotated procedures have: benchmarks as published or own files of procedures, or both."""

    benchmarks: tuple[str, ...] = ()
    """Names of `recipe data list`."""
    procedures: tuple[Path, ...] = ()
    """Files of procedures as `recipe data procedures` writes them; rows that cannot be used are left out and counted.
    Where no row of an experiment's file has the split `test`, a fifth of its videos is tested on."""

    @model_validator(mode="after")
    def _has_tasks(self) -> Self:
        if not self.benchmarks and not self.procedures:
            raise ValueError("give procedures, files, or benchmarks, names, or both: the tasks to train and test on")
        return self

    @property
    def every_benchmark(self) -> tuple[str, ...]:
        """Names of all benchmarks that it reads, each once."""
        return tuple(dict.fromkeys((*self.benchmarks, *getattr(self, "known", ()))))


class FilesSource(AnnotatedSource):
    """Narrations and benchmark folders as published, below one folder of data."""

    type: Literal["files"]
    narrations: Annotated[tuple[Path, ...], Field(min_length=1)]
    """Narration files or folders of any form that a corpus is built from; the first one that holds a video wins."""
    wrong_narrations: tuple[Path, ...] = ()
    """Narration files of another domain, for the control with a wrong corpus; empty: without that control."""


class StudySettings(Settings):
    """What every study has, an experiment or a scale of the paper's tables: a model and the settings of its stages."""

    title: str
    """Of the report; of a scale, as the paper's tables call it, where they do."""
    model: str = ""
    """A model to start from, a folder or hub id, in place of a base that is trained from nothing by `base`."""
    corpus: CorpusConfig = CorpusConfig()
    base: dict[str, Any] = Field(default_factory=dict)
    """Keys of BaseModelConfig but for the paths."""
    grpo: dict[str, Any] = Field(default_factory=dict)
    """Keys of GRPOConfig but for the paths."""
    best_of_n: dict[str, Any] = Field(default_factory=dict)
    """Keys of BestOfNConfig but for the paths, for runs in best-of-N rounds."""
    sampling: SamplingConfig = SamplingConfig()


Noise = Literal["drop", "swap", "alien", "repeat", "stop", "systematic"]


class Experiment(StudySettings):
    """What every experiment has: a source of data and the settings of each stage that differ from their defaults."""

    quick: ClassVar[Mapping[str, Any]] = {
        # With fewer steps plans do not read as English.
        "base": {"steps": 250},
        "sft": {"epochs": 1},
        "grpo": {"steps": 4},
        "compared_steps": 2,
        "best_of_n": {"n": 2, "rounds": 1, "epochs": 1},
    }
    source: Annotated[WorldSource | FilesSource, Field(discriminator="type")]
    prompt: str = ""
    """What the given model and all runs from it are asked with, as `prompt` of a training run (docs/planning.md)."""
    noise: dict[Noise, Fraction] = Field(default_factory=dict)
    """Noise of the base's training text from a world, where it differs from `recipe.world.examples.TextNoise`."""
    samples: Annotated[int, Field(ge=2)] = 10
    """Plans sampled for each test prompt and regime."""
    best_of: Annotated[int, Field(ge=2)] = 8
    """Number of the base's first samples that a reward chooses among."""
    seed: int = 0

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for name in ("compared", "arms", "optimisers", "seeds", "rankers"):
            values = getattr(self, name, ())
            if len(set(values)) < len(values):
                raise ValueError(f"something stands twice in {name}; name each once")
        if "validity" in getattr(self, "compared", ()) and not self.has_world:
            raise ValueError("reward 'validity' is known on a world only; leave it out of compared")
        if self.best_of > self.samples:
            raise ValueError(f"best_of {self.best_of} is more than samples, which is {self.samples}")
        if self.prompt and not self.model:
            raise ValueError("prompt has a use with model only: a base from nothing is trained on the plain one")
        if self.noise and (self.model or not self.has_world):
            raise ValueError("noise is that of the text of a base from nothing on source.type 'world'; remove it")
        return self

    @property
    def has_world(self) -> bool:
        """Whether the data come from the embedded world, so that the validity of plans is known exactly."""
        return isinstance(self.source, WorldSource)

    @property
    def has_wrong_corpus(self) -> bool:
        """Whether there are narrations of other tasks: files of one's own may lack them."""
        return not isinstance(self.source, FilesSource) or bool(self.source.wrong_narrations)


class ExperimentConfig(Experiment):
    """The whole method once: base, SFT, and training on a reward, and on others to compare it with."""

    sft: dict[str, Any] | None = None
    """Keys of SFTConfig but for the paths; without the table there is no SFT on annotations."""
    optimiser: Optimiser = "grpo"
    """What trains on a reward; its table, `[grpo]` or `[best_of_n]`, names the main reward."""
    compared: tuple[ComparedName, ...] = ()
    """Further rewards, each with a run of its own that differs from the main one in nothing else."""
    compared_steps: Positive | None = None
    """Steps of GRPO on the further rewards, where they are not those of `[grpo]`."""
    controls: bool = False
    """Train the controls as well as the regimes, and say which regime does not beat them (docs/studies.md)."""
    packaged_base: bool = False
    """Start from the base that the package holds, which was trained by these settings, and not from a new one."""
    validation: dict[str, Any] = Field(default_factory=dict)
    """On a world: keys of ValidationSettings but for `examples`. Every run on a reward validates on cut points that
    are in no training or test prompt, and keeps its best step or round; empty: the last one is kept."""

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        if not self.has_world and self.validation:
            raise ValueError(
                "[validation] has a use on a world only: no part of the benchmarks is kept for it; remove it"
            )
        if "wrong" in self.compared and not self.has_wrong_corpus:
            raise ValueError("compared: 'wrong' needs source.wrong_narrations; give files, or leave it out")
        if isinstance(self.source, WorldSource) and self.source.exposure < 1 and not self.source.domains:
            raise ValueError("source.exposure leaves documents about other domains; name domains, or leave it out")
        for name, table in {"labels": "sft", "rounds": "best_of_n"}.items():
            if name in self.compared and not getattr(self, table):
                raise ValueError(f"compared: {name!r} needs the table [{table}]")
        if "labels" in self.compared and not self.has_world:
            raise ValueError("compared: 'labels' has a use on a world only: their settings are chosen on its validity")
        if self.compared_steps and (self.optimiser != "grpo" or not self.compared):
            raise ValueError("compared_steps has a use with optimiser = 'grpo' and compared only; remove it")
        if self.packaged_base and (self.model or not self.has_world):
            raise ValueError("packaged_base has a use on a world and without model only; remove it")
        return self


class SelfTrainingSettings(Settings):
    """How the self-trained reward of a study is trained on its corpus (docs/reward.md)."""

    samples: Annotated[int, Field(ge=0)] = 0
    """Plans that the base writes for each pseudo-prompt, to learn from as well; 0: none."""


class SeededExperiment(Experiment):
    """An experiment that trains with several seeds."""

    sft: dict[str, Any] = Field(default_factory=dict)
    """Keys of SFTConfig but for the paths."""
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (0, 1, 2)
    """Seeds of all training after the base; data, base and samples have `seed`."""


class VideoConfig(SeededExperiment):
    """A video planner from nothing, SFT and GRPO with several seeds, and controls with other views of the history."""

    quick: ClassVar[Mapping[str, Any]] = {**Experiment.quick, "samples": 2, "best_of": 2, "vision_steps": 6}
    kind: Literal["video"]
    source: WorldSource
    vision_steps: Positive = 460
    """Optimiser steps of the last stage of vision pre-training, planning from clips of the history. Each of the two
    stages before it, pictures as attributes and as words, takes as many, but 300 at most."""

    @model_validator(mode="after")
    def _trains_its_base(self) -> Self:
        if self.model:
            raise ValueError("model: an experiment on video trains its base; leave the key out")
        return self


ArmName = Literal[
    "narrations", "lists", "self-trained", "paper", "wrong", "r0", "length", "random", "gold",
]  # fmt: skip
"""What teaches the tasks that the base has read no annotations of: a reward and corpus, own plans, or annotations."""


class ProceduresSource(AnnotatedSource):
    """Annotated procedures that are to be taught, each video in one part: prompts, validation, corpus, or test.

    The training videos are cut in two by a hash of their ids: one part gives prompts and validation, what people say in
    the other, or its steps, is the corpus. So no prompt's own video is in the corpus.
    """

    quick: ClassVar[Mapping[str, Any]] = {**StudySource.quick, "covering": 1, "lists": 1, "validation": 16}
    self_trained: ClassVar[Mapping[str, int]] = {"covering": 8, "lists": 4}
    type: Literal["procedures"]
    known: tuple[str, ...] = ()
    """Benchmarks that the base is trained on; a video that is tested on here is left out."""
    known_share: Fraction = 0.0
    """Share of the goals that the base knows instead: they join its training, and are not taught."""
    narrations: tuple[Path, ...] = ()
    """Narration files that hold what is said in the videos of the corpus, and in those of the goals that the base
    knows, which are the wrong corpus; empty: both are step lists."""
    test_split: Literal["test", "val"] = "test"
    """Split of the procedures that is tested on."""
    covering: Positive = 32
    """Narrations of each goal in the corpus at most."""
    lists: Positive = 8
    """Step lists of each goal in a corpus of lists at most."""
    validation: Positive = 100
    """Validation prompts, of other videos."""
    test: Positive = 200
    """Test prompts, a video each."""

    def identity(self) -> dict[str, Any]:
        """What decides the data, for the identity of a stage."""
        return {**dict(self), "prompt_share": PROMPT_SHARE}


class TeachingConfig(SeededExperiment):
    """Tasks that the base has read no annotations of, taught by rewards with and without a corpus that covers them."""

    kind: Literal["teaching"]
    source: ProceduresSource  # type: ignore[assignment]
    arms: tuple[ArmName, ...] = (
        "narrations", "lists", "paper", "wrong", "r0", "length", "random", "gold",
    )  # fmt: skip
    """What teaches; those that do not use a corpus that covers the tasks are controls, gold is the ceiling. Empty:
    nothing is trained, and the rankers alone are compared."""
    optimisers: Annotated[tuple[Optimiser, ...], Field(min_length=1)] = ("grpo",)
    """What trains each arm but gold and random; the controls of one are those of the first."""
    prompts: Literal["validation", "test"] = "test"
    """Prompts that plans are measured on. Choose settings on validation; a change here trains nothing again."""
    validation: dict[str, Any] = Field(default_factory=dict)
    """Keys of ValidationSettings but for `examples`: runs on a reward validate on the validation prompts, and keep
    their best step or round; empty: the last one is kept."""
    rankers: tuple[OwnName, ...] = ("grounded", "paper", "relevance")
    """What chooses among the base's samples without training, and rewards the plans of every run: `paper`,
    `grounded`, `self-trained`, `relevance`, `wrong`, `shuffled`, `captions` or a name in `verifiers`."""
    composed: bool = False
    """Measure also the plans that each of them composes of the base's samples (`recipe.reward.composition`)."""
    sft_known: dict[str, Any] = Field(default_factory=dict)
    """Keys of SFTConfig but for the paths: the base, or the given model, is fine-tuned on the goals of
    `source.known_share` first, and all arms start from there. Empty: they start from the base itself."""
    verifiers: Mapping[OwnName, dict[str, Any]] = Field(default_factory=dict)
    """Keys of RewardConfig for a verifier that differs from its defaults; a name of your own needs the key `verifier`,
    such as `module:function` (docs/own.md)."""
    self_training: SelfTrainingSettings = SelfTrainingSettings()
    """Where `arms` or `rankers` name the self-trained reward, which stands on the grounded one."""

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        for name, given in self.verifiers.items():
            if name not in ("paper", "grounded") and (name in ("validity", *RANKERS) or "verifier" not in given):
                raise ValueError(f"verifiers.{name} is no verifier; give it another name and the key 'verifier'")
        if unknown := [name for name in self.rankers if name not in RANKERS and name not in self.verifiers]:
            known = ", ".join(map(repr, RANKERS))
            raise ValueError(f"rankers: {unknown[0]!r} is none of {known}, and [verifiers] does not have it")
        if self.is_self_trained and self.corpus.encoder.name.startswith("hash:"):
            raise ValueError(
                f"'{SELF_TRAINED}' needs an encoder that knows meaning, and {self.corpus.encoder.name} counts words; "
                "set corpus.encoder.name to minilm, for example"
            )
        if self.sft_known and not self.source.known_share:
            raise ValueError("sft_known needs goals that the base knows; give source.known_share, or remove it")
        if self.by_lists and (others := sorted({"shuffled", "captions"} & {*self.rankers})):
            raise ValueError(f"rankers: {others[0]!r} needs source.narrations; give files, or leave it out")
        knows = self.source.known_share or (self.source.known and self.by_lists)
        if "wrong" in (*self.arms, *self.rankers) and not knows:
            raise ValueError("'wrong' needs goals that the base knows; give source.known_share, or leave it out")
        if self.by_lists and {"narrations", "paper"} & {*self.arms}:
            raise ValueError("arms 'narrations' and 'paper' need source.narrations; give files, or leave them out")
        if not (self.model or self.source.known or self.source.known_share):
            raise ValueError("the base has nothing to learn from; give model, source.known or source.known_share")
        return self

    @property
    def is_self_trained(self) -> bool:
        """Whether a reward is trained on the corpus, for a run or to choose among plans."""
        return SELF_TRAINED in (*self.arms, *self.rankers)

    @property
    def by_lists(self) -> bool:
        """Whether step lists cover the taught goals, because there are no narrations of them."""
        return not self.source.narrations


TABLES: dict[str, type[Settings]] = {
    "base": BaseModelConfig,
    "sft": SFTConfig,
    "sft_known": SFTConfig,
    "grpo": GRPOConfig,
    "best_of_n": BestOfNConfig,
    "validation": ValidationSettings,
}
"""Tables of an experiment that hold settings of a stage."""
AnyExperiment = ExperimentConfig | VideoConfig | TeachingConfig
KINDS: dict[str, type[VideoConfig] | type[TeachingConfig]] = {"video": VideoConfig, "teaching": TeachingConfig}


def load_experiment(
    path: Path, *, quick: bool = False, controls: bool = False, changes: Sequence[str] = ()
) -> AnyExperiment:
    """The experiment of a TOML file: of the kind that its key `kind` names, else the whole method once.

    `changes` are values to set in it, as KEY=VALUE, and `controls` sets the key of that name. With `quick` it has every
    stage and a fraction of the work; its figures prove nothing. Raises ConfigError.
    """
    raw = read_config(path, changes)
    kind = raw.get("kind")
    if kind is not None and kind not in [*KINDS]:
        gone = removed_setting(ExperimentConfig, "kind", kind)
        unknown = f"key 'kind': {kind!r} is unknown; known are {', '.join(map(repr, KINDS))}"
        raise ConfigError(f"{path}: {f'kind = {kind!r} was removed: {gone}' if gone else unknown}.")
    if kind is None:
        config: AnyExperiment = parse_config(raw, ExperimentConfig, str(path), changes)
    else:
        config = parse_config(raw, KINDS[kind], str(path), changes)
    for table, stage in TABLES.items():
        check_table(getattr(config, table, None) or {}, stage, f"{path}: [{table}]")
    if controls and isinstance(config, VideoConfig):
        raise ConfigError(f"{path}: an experiment on video has controls of its own; leave out --controls.")
    if controls and isinstance(config, ExperimentConfig):  # the arms of an experiment on teaching name its controls
        config = config.model_copy(update={"controls": True})
    if not quick:
        return config
    smaller = quick_settings(config)
    if isinstance(config, TeachingConfig) and config.is_self_trained:
        kept = {name: min(count, getattr(config.source, name)) for name, count in config.source.self_trained.items()}
        smaller = smaller.model_copy(update={"source": smaller.source.model_copy(update=kept)})
    fewer: dict[str, Any] = {"title": f"{config.title} (quick: proves nothing)"}
    if validation := getattr(config, "validation", None):
        fewer["validation"] = validation | {"prompts": 16}
    if known := getattr(config, "sft_known", None):
        fewer["sft_known"] = known | {"epochs": 1}
    if isinstance(config, VideoConfig):
        fewer["seeds"] = config.seeds[:2]
    if isinstance(config, TeachingConfig):
        fewer["seeds"] = config.seeds[:1]
    return smaller.model_copy(update=fewer)


def quick_settings(settings: Config) -> Config:
    """The same settings with a fraction of the work, as the `quick` of their class and of those within them says."""
    cut: dict[str, Any] = {}
    for name in type(settings).model_fields:
        value, fewer = getattr(settings, name), getattr(settings, "quick", {}).get(name)
        if isinstance(value, Settings):
            cut[name] = quick_settings(value)
        elif fewer is not None and value is not None:
            cut[name] = value | fewer if isinstance(fewer, Mapping) else fewer
    return settings.model_copy(update=cut)


def demo_config(
    history: Literal["text", "video"] = "text", *, quick: bool = False, seed: int = 0, train_base: bool = False
) -> AnyExperiment:
    """The packaged settings of `recipe demo`, whose planner is given the history as text or as drawn video.

    With `train_base` the planner of text starts from a base that the run trains. Raises ConfigError where the planner
    of videos is asked for that: it trains its base always.
    """
    name = {"text": "demo.toml", "video": "video_demo.toml"}[history]
    with as_file(files("recipe_studies.experiments") / name) as path:
        config = load_experiment(path, quick=quick)
    own: dict[str, Any] = {}
    if isinstance(config, VideoConfig):
        own["seeds"] = tuple(seed + number for number in config.seeds)
        if train_base:
            raise ConfigError("--train-base: with --input video the base is trained always; leave the flag out.")
    elif train_base:
        own["packaged_base"] = False
    return config.model_copy(update={"seed": seed, **own})


def require_packages_of(config: Experiment) -> str:
    """That all packages are installed, in words. Raises MissingExtra for all extras that the stages lack."""
    from recipe.corpus.encoders import encoder_extra

    needed = {"cpu": "corpus search", "train": "training", "report": "the report"}
    needed |= encoder_extra(config.corpus.encoder.name)
    for stage in (config.grpo, getattr(config, "sft", None) or {}):
        needed |= tracking_packages(stage.get("metrics", ()))
    require_packages(needed)
    return "all are installed"
