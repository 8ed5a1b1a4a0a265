"""Settings of a reproduction: what a regime trains, what a scale adds, and what one call is asked for.

Regimes and scales are TOML files in `configs/regimes` and `configs/scales`, named by their files. A regime holds only
what sets it apart: everything else is the default of the training settings, which is the paper's value where it states
one. A scale adds what the paper does not state: the batch that fits, and for models far smaller than the paper's the
learning rates and numbers of steps.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from recipe.config import (
    Fraction,
    FrameConfig,
    GRPOConfig,
    JudgeConfig,
    Positive,
    SamplingConfig,
    Settings,
    changed_values,
    check_table,
    load_config,
    parse_config,
)
from recipe.errors import ConfigError, EncoderMismatch, InputError
from recipe.training.cost import Rates
from recipe.world.examples import TextNoise
from recipe_studies.experiments.models import EndpointModel
from recipe_studies.experiments.settings import TABLES, StudySettings, quick_settings

EngineName = Literal["transformers", "vllm"]


class Regime(Settings):
    """What one row of a table trains; without `sft`, `grpo` and `best_of_n` it is the base model."""

    title: str
    """As tables show it."""
    input: Literal["text", "video"] = "text"
    """Form of the history that the policy reads: the Socratic configuration or the Video configuration."""
    weak: Fraction | None = None
    """Share of the training examples that come from pseudo-traces instead of annotations (paper, section 4.3): of the
    examples that have a pseudo-trace, the same ones at every share. Left out: all examples, annotated."""
    prompts: Literal["reference", "perceived"] = "reference"
    """History that the policy is asked with in training: the one of the reward, or Phi's, while the reward keeps the
    annotated one (paper, section 3.2)."""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the scale's steps of GRPO that it is trained for."""
    labels: Literal["training", "corpus"] = "training"
    """Continuations of SFT: those of the training examples, or pseudo-labels from the corpus (SFT-HT100M)."""
    corpus: Literal["own", "wrong"] = "own"
    """Corpus of the reward: the study's, or one of another domain, which only the embedded world has."""
    sft: dict[str, Any] | None = None
    """Keys of SFTConfig but for the paths."""
    grpo: dict[str, Any] | None = None
    """Keys of GRPOConfig but for the paths; from the SFT model where there is one."""
    best_of_n: dict[str, Any] | None = None
    """Keys of BestOfNConfig but for the paths, in place of `grpo`."""

    @property
    def rewarded(self) -> bool:
        """Whether it is trained on a reward."""
        return self.grpo is not None or self.best_of_n is not None

    @model_validator(mode="after")
    def _one_optimiser(self) -> Self:
        if self.grpo is not None and self.best_of_n is not None:
            raise ValueError("give one of grpo and best_of_n")
        if self.input == "video" and self.best_of_n is not None:
            raise ValueError("best_of_n reads histories as text; leave input out, or give grpo")
        if self.prompts == "perceived" and (self.input == "video" or self.weak is not None):
            raise ValueError("prompts = 'perceived' is for annotated text; weak examples have Phi's histories already")
        return self


class ScaleCost(Rates):
    """What a scale costs on one device, for `--dry-run`; `source` says whether that was measured."""

    source: str
    memory_gb: float
    """Most memory that a run takes on the device."""
    model_gb: float
    """Of a saved model on disk."""
    segments_per_second: Annotated[float, Field(gt=0)] = 150.0
    """Of a corpus that is built; the default is MiniLM on one core."""


class Scale(StudySettings):
    """One size of the policy: the model, and the settings that the paper does not give."""

    quick: ClassVar[Mapping[str, Any]] = {
        "world": {"narrations": 200, "documents": 1500, "train": 48, "test": 12},
        "train": 48,
        "test": 12,
        "base": {"steps": 60},
        "sft": {"epochs": 1},
        "grpo": {"steps": 3},
        "best_of_n": {"n": 2, "rounds": 1, "epochs": 1},
        "samples": 2,
    }
    video_model: str = ""
    """Model of the Video configuration; empty: none, or at the tiny scale one that is built and pre-trained here."""
    world: dict[str, int] = Field(default_factory=dict)
    """Keys of WorldSource that differ from its defaults, with `data = world`."""
    train: Positive | None = None
    """Training examples of benchmarks; left out: all."""
    test: Positive | None = None
    """Test videos of each benchmark; left out: all."""
    pseudo: Positive | None = None
    """Pseudo-labelled examples; left out: as many as there are training examples."""
    sft: dict[str, Any] = Field(default_factory=dict)
    video_sft: dict[str, Any] = Field(default_factory=dict)
    """Keys of `sft` that differ with videos of benchmarks."""
    video_grpo: dict[str, Any] = Field(default_factory=dict)
    """Keys of `grpo` that differ with videos of benchmarks."""
    frames: FrameConfig = FrameConfig()
    """Which frames are read of them, in training and at the test."""
    samples: Positive = 1
    """Plans of each prompt whose accuracies are averaged; 1 is the paper's Score@1, more its mean with less noise."""
    cost: ScaleCost


PHI = TextNoise(drop=0.15, swap=0.15, alien=0.15, repeat=0.08, stop=0.05)
"""Errors of a simulated Phi, where no pseudo-traces and histories are given. Ours."""


class JudgeModel(EndpointModel):
    """A judge behind an endpoint."""

    settings: JudgeConfig = JudgeConfig()
    """How it is asked; a judge that thinks aloud needs a larger `max_tokens`."""


class FrontierModel(EndpointModel):
    """A model behind an endpoint that writes plans."""

    sampling: SamplingConfig | None = None
    """How it is asked; left out: as the scale's own models. A model that thinks aloud needs a larger `max_tokens`."""


ROLES = ("judge", "diversity_judge", "assessor")
"""Roles that a single model has."""


class Endpoints(Settings):
    """Models behind endpoints, one for each role: the file of `--models`."""

    judge: JudgeModel | None = None
    """Judge of plans; left out: the exact validity of the world, else the proxy judge."""
    diversity_judge: JudgeModel | None = None
    """Judge of the diversity of plans; left out: the judge of plans, else the proxy."""
    assessor: EndpointModel | None = None
    """Proposes and assesses in VidAssist, as Llama-2-70B in the paper; left out: the base does."""
    frontier: dict[str, FrontierModel] = Field(default_factory=dict)
    """Models of the frontier table by the titles of their rows."""

    @field_validator("frontier")
    @classmethod
    def _names_of_files(cls, frontier: dict[str, FrontierModel]) -> dict[str, FrontierModel]:
        for name in frontier:
            if not re.fullmatch(r"\w[\w.+-]*", name) or re.sub(r"-\d+$", "", name) in names("regimes"):
                raise ValueError(
                    f"{name!r} cannot name the files of a model; take letters, digits, '.', '-', '+' or '_', "
                    "and no name of a regime"
                )
        return frontier

    def roles(self) -> Iterator[tuple[str, EndpointModel]]:
        """The models that are named, with their roles."""
        for role in ROLES:
            if (model := getattr(self, role)) is not None:
                yield role, model
        yield from ((f"frontier {name}", model) for name, model in self.frontier.items())


def load_endpoints(file: Path, output: Path) -> Endpoints:
    """The models of a file; answers are kept in `answers/` of the run folder `output` where no `cache` is named.

    Raises ConfigError.
    """
    loaded = load_config(file, Endpoints)
    own: dict[str, EndpointModel] = {}
    for role, model in loaded.roles():
        name = role.replace(" ", "-", 1)  # `frontier NAME` is two words
        cache = model.cache or output / "answers" / name
        # Absolute, because a worker may have another current folder.
        own[role] = model.model_copy(update={"cache": cache.resolve()})
    frontier = {name: own.pop(f"frontier {name}") for name in loaded.frontier}
    return loaded.model_copy(update={**own, "frontier": frontier})


@dataclass(frozen=True, slots=True)
class PaperStudy:
    """What one call of `recipe reproduce` is asked for."""

    tables: tuple[str, ...]
    scales: tuple[str, ...]
    data: Path | None
    """Folder of benchmarks and narrations; None for the embedded world."""
    seeds: tuple[int, ...] = (0, 1, 2)
    corpus: Path | None = None
    """A corpus that is there already; None builds one from the narrations of `data`."""
    regimes: tuple[str, ...] = ()
    """Only these; empty for all that the tables need."""
    endpoints: Endpoints = field(default_factory=Endpoints)
    phi: TextNoise = PHI
    engine: EngineName = "transformers"
    """What writes completions, in training and at the test."""
    quick: bool = False
    controls: bool = False
    """Train the control regimes as well as those of the tables."""
    changes: tuple[str, ...] = ()
    """Values to set in each scale, as KEY=VALUE."""
    strict: bool = False
    """Stop where an example lacks a history, a video or a pseudo-trace, in place of leaving it out."""

    @property
    def on_world(self) -> bool:
        """Whether the data are of the embedded world, so that validity is known exactly."""
        return self.data is None


def configs() -> Path:
    """The folder of `regimes/` and `scales/`: next to this module in an installed package, else the clone's."""
    packaged = Path(__file__).with_name("configs")
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "configs"


def names(kind: Literal["regimes", "scales"]) -> list[str]:
    """The regimes or scales that there are, by name."""
    return sorted(file.stem for file in (configs() / kind).glob("*.toml"))


@cache
def regime(name: str) -> Regime:
    """A regime by its name. Raises ConfigError for another name, and for a file that cannot be used."""
    return load_config(_file("regimes", name), Regime)


@cache
def scale(name: str) -> Scale:
    """A scale by its name. Raises ConfigError as `regime`."""
    return load_config(_file("scales", name), Scale)


def _file(kind: Literal["regimes", "scales"], name: str) -> Path:
    known = names(kind)
    if name not in known:
        raise ConfigError(f"{name!r} is none of the {kind}; they are {', '.join(known)}.")
    return configs() / kind / f"{name}.toml"


def sized(name: str, *, quick: bool, changes: Sequence[str] = ()) -> Scale:
    """A scale, with `quick` the same with a fraction of the work, then with `changes`, as KEY=VALUE, set in it.

    Raises ConfigError.
    """
    # Changes come last, so that a quick run can be made larger in one place.
    chosen = quick_settings(scale(name)) if quick else scale(name)
    if not changes:
        return chosen
    changed = parse_config(changed_values(chosen.model_dump(), changes), Scale, f"scale {name!r}", changes)
    for table, stage in TABLES.items():
        check_table(getattr(changed, table, {}), stage, f"scale {name!r}, [{table}]")
    return changed


def check_inputs(study: PaperStudy, scale: Scale) -> Iterator[str]:
    """What a reader has to know of the models and the corpus that a study is given, in sentences.

    Raises InputError for a model's folder that is not there, CorpusError for a corpus that is not there, unfinished or
    damaged.
    """
    for name in filter(None, (scale.model, scale.video_model)):
        folder = Path(name)
        if (folder.is_absolute() or name.startswith(".") or name.count("/") > 1) and not folder.is_dir():
            raise InputError.at(folder, "there is no folder of a model", "check the path, or name a hub id")
    if study.corpus is not None:
        from recipe.corpus.store import Corpus

        try:
            Corpus.open(study.corpus, scale.corpus.encoder)
        except EncoderMismatch:
            recorded = Corpus.open(study.corpus).manifest["encoder"]
            yield (
                f"Corpus {study.corpus} was built with encoder {recorded['name']!r}, "
                f"and the scale names {scale.corpus.encoder.name!r}: the reward is taken with the corpus's own encoder."
            )


def training_config(scale: Scale, regime: Regime, table: str, paths: Mapping[str, Any], seed: int) -> Any:
    """The run of a regime's table `sft`, `grpo` or `best_of_n` at a scale. Raises ConfigError."""
    given = merged_tables({"seed": seed}, getattr(scale, table), getattr(regime, table) or {}, paths)
    config = parse_config(given, TABLES[table], f"{regime.title}, [{table}]")
    if isinstance(config, GRPOConfig):
        config = config.model_copy(update={"steps": max(1, round(regime.share * config.steps))})
    return config


def merged_tables(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables one over the other; tables within them likewise."""
    result: dict[str, Any] = {}
    for table in tables:
        for key, value in table.items():
            before = result.get(key)
            result[key] = (
                merged_tables(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
            )
    return result


CONTROL_REGIMES = ("control-r0", "control-length", "control-random", "control-wrong")
"""Regimes that are controls: a regime on a reward that does not beat them owes nothing to the corpus."""


def needed_regimes(wanted: Sequence[str], only: Sequence[str]) -> list[str]:
    """The regimes of tables, each once, in order; those of `only` where some are named. Raises ConfigError."""
    for name in only:
        _file("regimes", name)
    return [name for name in dict.fromkeys(wanted) if not only or name in only]
