"""Which examples can be trained on in the Video configuration, and what shows their histories."""

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from recipe.checkpoints import Checkpoint
from recipe.config import FrameConfig, TrainingSettings
from recipe.data.examples import read_training_examples
from recipe.errors import ConfigError, InputError, listed
from recipe.training.video.prompts import Histories
from recipe.types import Example

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """Examples, and who shows their histories."""

    examples: list[Example]
    histories: Histories
    held: str
    """Stands for what the videos hold in the identity of a run."""
    frames: FrameConfig | None = None
    """What is read of videos; None where histories are shown at the size that the policy reads."""


def video_source(config: TrainingSettings, histories: Histories | None) -> Source | None:
    """What a run with `input = "video"` is trained on; None with `input = "text"`.

    Histories are shown by `histories` where it is given, else by the videos of `config.videos`. Raises ConfigError
    where neither is there or `histories` has no use, InputError for examples that cannot be read or lack `until`,
    and for videos that are missing unless the settings skip them.
    """
    if config.input == "text":
        if histories is not None:
            raise ConfigError("histories are shown with input = 'video' only; set that.")
        return None
    if histories is not None:
        return Source(read_training_examples(config.examples, config.split), histories, "given")
    if config.videos is None:
        raise ConfigError("key 'videos' is missing; give the folder of the videos, or set input = 'text'.")
    return _decoded(config, config.videos, read_training_examples(config.examples, config.split))


def framed(policy: Checkpoint, source: Source | None) -> Checkpoint:
    """The policy with the bounds of a frame's area that hold for the source's videos, where it reads videos."""
    if policy.video is None or source is None or source.frames is None:
        return policy
    # All of them, given or not, so that settings that went through a file mean the same.
    bounds = FrameConfig(**source.frames.model_dump())
    return replace(policy, video=policy.video.within(bounds))


def _decoded(config: TrainingSettings, folder: Path, examples: list[Example]) -> Source:
    # PyAV, which is not needed where histories are given.
    from recipe.perception.clips import VideoClips  # noqa: PLC0415
    from recipe.perception.videos import VideoFolder, locate  # noqa: PLC0415

    uncut = [example.example_id for example in examples if example.until is None]
    if uncut:
        problem = f"{len(uncut)} of {len(examples)} examples do not say where the history ends ({listed(uncut)})"
        remedy = "write the examples with `recipe data prepare`, from annotations with times"
        raise InputError.at(config.examples, problem, remedy, field="until")
    videos = VideoFolder(folder)
    located = locate(videos, examples)
    left = [example for example in examples if example.example_id in located.paths]
    if located.missing and not (config.skip_missing_videos and left):
        problem = f"{len(located.missing)} of the examples' videos are missing ({listed(located.missing)})"
        raise InputError.at(folder, problem, "download them, or set skip_missing_videos = true to train on the others")
    if located.missing:
        _LOG.warning(
            "%s: %d of %d examples are skipped, since their videos are missing (%s)",
            folder, len(examples) - len(left), len(examples), listed(located.missing),
        )  # fmt: skip
    return Source(left, VideoClips(videos, config.frames), _identity(located.paths.values()), config.frames)


def _identity(videos: Iterable[Path]) -> str:
    """Names and sizes of the videos, hashed: to read them all would take as long as an epoch."""
    held = sorted({f"{path.name} {path.stat().st_size}" for path in videos})
    return f"{len(held)} videos, {hashlib.sha256(chr(10).join(held).encode()).hexdigest()}"
