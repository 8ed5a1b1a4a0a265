"""The settings of whole experiments; the demo's and those in `configs/` are TOML files of these shapes."""

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from recipe.config import CorpusConfig, Positive, SamplingConfig, Settings, parse_config

QUICK = {"base": {"steps": 60}, "sft": {"epochs": 1}, "grpo": {"steps": 4}}
"""What `--quick` cuts down, beside the data."""
QUICK_WORLD = {"narrations": 200, "documents": 1500, "train": 64, "test": 16}
QUICK_FILES = {"documents": 1500, "train": 64, "test": 16}


class WorldSource(Settings):
    """Narrations and examples drawn from the embedded world, whose truth is known exactly."""

    type: Literal["world"] = "world"
    narrations: Positive = 1500
    """Narrations of the verification corpus."""
    documents: Positive = 12000
    """Careless procedures that the base planner learns to write from."""
    train: Positive = 400
    """Training examples."""
    test: Positive = 100
    """Test prompts of each kind: held-out cut points, held-out goals."""


class FilesSource(Settings):
    """Narrations and benchmark folders as published, below one folder of data."""

    type: Literal["files"]
    narrations: Annotated[tuple[Path, ...], Field(min_length=1)]
    """Narration files; the first one that holds a video wins."""
    benchmarks: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names of `recipe data list`, one or more."""
    documents: Positive = 12000
    """Training examples that the base planner learns to write from."""
    train: Positive = 400
    """Training examples of SFT and GRPO."""
    test: Positive = 100
    """Test prompts of each benchmark."""


class Experiment(Settings):
    """What every experiment has: a source of data and the settings of each stage that differ from their defaults."""

    title: str
    source: Annotated[WorldSource | FilesSource, Field(discriminator="type")]
    corpus: CorpusConfig = CorpusConfig()
    base: dict[str, Any] = Field(default_factory=dict)
    """Keys of BaseModelConfig but for the paths."""
    grpo: dict[str, Any] = Field(default_factory=dict)
    """Keys of GRPOConfig but for the paths."""
    sampling: SamplingConfig = SamplingConfig()
    samples: Annotated[int, Field(ge=2)] = 10
    """Plans sampled for each test prompt and regime."""
    best_of: Annotated[int, Field(ge=2)] = 8
    """The first so many samples of the base are re-ranked by the verifier."""
    shown: Positive = 3
    """Prompts of each split whose plans the report shows."""
    workers: Positive = 2
    """Stages run side by side."""
    seed: int = 0

    @model_validator(mode="after")
    def _enough_samples(self) -> Self:
        if self.best_of > self.samples:
            raise ValueError(f"best_of {self.best_of} is more than samples, which is {self.samples}")
        return self


class ExperimentConfig(Experiment):
    """The whole method once: base, SFT, and GRPO on one reward."""

    sft: dict[str, Any] = Field(default_factory=dict)
    """Keys of SFTConfig but for the paths."""


Kind = TypeVar("Kind", bound=Experiment)


def demo_config(*, quick: bool = False, seed: int = 0, workers: int | None = None) -> ExperimentConfig:
    """The packaged settings of `recipe demo`; `quick` keeps every stage and a fraction of the work."""
    raw = tomllib.loads((files("recipe.experiments") / "demo.toml").read_text(encoding="utf-8"))
    raw["seed"] = seed
    if workers is not None:
        raw["workers"] = workers
    config = parse_config(raw, ExperimentConfig, "the demo's settings")
    return cut_down(config) if quick else config


def cut_down(config: Kind) -> Kind:
    """The same experiment with every stage and a fraction of the work: it shows the way and proves nothing."""
    fewer = QUICK_WORLD if isinstance(config.source, WorldSource) else QUICK_FILES
    stages = {name: {**getattr(config, name), **cut} for name, cut in QUICK.items() if hasattr(config, name)}
    return config.model_copy(update={"source": config.source.model_copy(update=fewer), **stages})
