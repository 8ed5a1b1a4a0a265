"""The settings of a whole experiment; the demo's and those in `configs/` are TOML files of this shape."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from recipe.config import CorpusConfig, Positive, SamplingConfig, Settings


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
    narrations: tuple[Path, ...]
    """Narration files; the first one that holds a video wins."""
    benchmarks: tuple[str, ...]
    """Names of `recipe data list`, one or more."""
    documents: Positive = 12000
    """Training examples that the base planner learns to write from."""
    train: Positive = 400
    """Training examples of SFT and GRPO."""
    test: Positive = 100
    """Test prompts of each benchmark."""


class ExperimentConfig(Settings):
    """One experiment: a source of data and the settings of each stage that differ from their defaults."""

    title: str
    source: Annotated[WorldSource | FilesSource, Field(discriminator="type")]
    corpus: CorpusConfig = CorpusConfig()
    base: dict[str, Any] = Field(default_factory=dict)
    """Keys of BaseModelConfig but for the paths."""
    sft: dict[str, Any] = Field(default_factory=dict)
    """Keys of SFTConfig but for the paths."""
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
