"""The settings of `recipe demo --input video`, packaged in `video_demo.toml`."""

import tomllib
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import Field

from recipe.config import Fraction, Positive, Settings, parse_config
from recipe.experiments.settings import QUICK, QUICK_WORLD, Experiment

QUICK_EYE = {"attribute_steps": 6, "word_steps": 6, "align_steps": 6, "batch": 16}
QUICK_SEEDS = 2
QUICK_SAMPLES = 2


class EyeSettings(Settings):
    """How the visual tower is built and trained (`recipe.training.vision_pretraining`)."""

    depth: Positive = 3
    hidden_size: Positive = 128
    """Of the tower; its feed-forward layers are twice as wide."""
    batch: Positive = 128
    """Pairs of frames in a step of the first two lessons."""
    learning_rate: float = 2e-3
    """Peak rate of the first two lessons."""
    attribute_steps: Positive = 300
    """Optimiser steps of the first lesson: the parts of single pictures."""
    word_steps: Positive = 300
    """Optimiser steps of the second lesson: pictures as words."""
    align_steps: Positive = 150
    """Optimiser steps of the third lesson: histories that are shown."""
    align_batch: Positive = 16
    align_learning_rate: float = 1e-3
    """Of the decoder."""
    merger_learning_rate: float = 1e-4
    """Of the merger while the decoder is aligned: at the decoder's rate it forgets."""
    text_share: Fraction = 0.1
    """Batches whose history is written after all."""
    bf16: bool = False
    """Of all lessons; at these widths a CPU spends more on casts than it saves."""


class VideoExperiment(Experiment):
    """A video planner from nothing, SFT and GRPO with several seeds, and the controls of what it reads."""

    carelessness: dict[Literal["drop", "swap", "alien", "repeat", "stop"], Fraction] = Field(default_factory=dict)
    """How the base's texts go wrong, where that differs from `recipe.world.examples.Carelessness`."""
    eye: EyeSettings = EyeSettings()
    sft: dict[str, Any] = Field(default_factory=dict)
    """Keys of SFTConfig but for the paths."""
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (0, 1, 2)
    """Seeds of SFT and GRPO; data, base, eye and samples have `seed`."""


def video_demo_config(*, quick: bool = False, seed: int = 0, workers: int | None = None) -> VideoExperiment:
    """The packaged settings of `recipe demo --input video`; `quick` keeps every stage and a fraction of the work."""
    raw = tomllib.loads((files("recipe.experiments") / "video_demo.toml").read_text(encoding="utf-8"))
    raw["seed"] = seed
    raw["seeds"] = [seed + number for number in raw["seeds"]]
    if workers is not None:
        raw["workers"] = workers
    config = parse_config(raw, VideoExperiment, "the video demo's settings")
    return _cut_down(config) if quick else config


def _cut_down(config: VideoExperiment) -> VideoExperiment:
    """The same experiment with every stage and a fraction of the work: it shows the way and proves nothing."""
    stages = {name: {**getattr(config, name), **cut} for name, cut in QUICK.items()}
    fewer: dict[str, Any] = {
        "source": config.source.model_copy(update=QUICK_WORLD),
        "eye": config.eye.model_copy(update=QUICK_EYE),
        "seeds": config.seeds[:QUICK_SEEDS],
        "samples": QUICK_SAMPLES,
        "best_of": QUICK_SAMPLES,
    }
    return config.model_copy(update={**fewer, **stages})
