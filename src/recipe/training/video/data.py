"""Examples of the Video configuration: the frames of their histories, prompts of ids and patches, batches of SFT."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch

from recipe.config.models import FrameConfig
from recipe.config.training import TrainingSettings
from recipe.data.examples import read_training_examples
from recipe.errors import ConfigError, InputError, listed
from recipe.models.checkpoints import Checkpoint, chat_text, end_of_turn
from recipe.models.local import Prompts
from recipe.models.vision import Patches
from recipe.text import format_plan, video_messages
from recipe.types import Example, Frames

_LOG = logging.getLogger(__name__)

BANNED_TOKENS = ("<|video_pad|>", "<|image_pad|>")
"""Tokens that stand for pixels: a completion that held one would ask for a clip that is not there."""


@runtime_checkable
class Renderer(Protocol):
    """Draws a clip anew each time, the same again for the same `draw`, so that a resumed run gets the same clips."""

    def render(self, example: Example, draw: int) -> Frames:
        """The frames of the example's history at its place `draw` in the run, counted from 0."""
        ...


Histories = Callable[[Example], Frames] | Renderer
"""Gives the frames of an example's history: a callable, called at each use, or a renderer."""


@dataclass(frozen=True, slots=True)
class VideoSource:
    """Examples, and where the frames of their histories come from."""

    examples: list[Example]
    histories: Histories
    held: str
    """The content of the videos, as the identity of a run records it."""
    frames: FrameConfig | None = None
    """Which frames are read of videos; None where `histories` gives frames of the size that the policy reads."""

    def bounding(self, policy: Checkpoint) -> Checkpoint:
        """The policy with the bounds of a frame's area that hold for the videos, where it reads videos."""
        if policy.video is None or self.frames is None:
            return policy
        # All of them, given or not, so that settings that went through a file mean the same.
        bounds = FrameConfig(**self.frames.model_dump())
        return replace(policy, video=policy.video.within(bounds))


def video_source(config: TrainingSettings, histories: Histories | None) -> VideoSource | None:
    """The training examples of a run with `input = "video"`; None with `input = "text"`.

    Frames come from `histories` where it is given, else from the videos of `config.videos`. Raises ConfigError
    where neither is there or `histories` has no use, InputError for examples that cannot be read or lack `until`,
    and for videos that are missing unless the settings skip them.
    """
    if config.input == "text":
        if histories is not None:
            raise ConfigError("histories are shown with input = 'video' only; set that.")
        return None
    if histories is not None:
        return VideoSource(read_training_examples(config.examples, config.split), histories, "given")
    if config.videos is None:
        raise ConfigError("key 'videos' is missing; give the folder of the videos, or set input = 'text'.")
    # PyAV, which is not needed where histories are given.
    from recipe.perception.frames import VideoClips  # noqa: PLC0415
    from recipe.perception.videos import VideoFolder, locate  # noqa: PLC0415

    folder, examples = config.videos, read_training_examples(config.examples, config.split)
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
        raise InputError.at(
            config.videos, problem, "download them, or set skip_missing_videos = true to train on the others"
        )
    if located.missing:
        _LOG.warning(
            "%s: %d of %d examples are skipped, since their videos are missing (%s)",
            folder, len(examples) - len(left), len(examples), listed(located.missing),
        )  # fmt: skip
    # Names and sizes: to read all videos would take as long as an epoch.
    files = sorted({f"{path.name} {path.stat().st_size}" for path in located.paths.values()})
    held = f"{len(files)} videos, {hashlib.sha256(chr(10).join(files).encode()).hexdigest()}"
    return VideoSource(left, VideoClips(videos, config.frames), held, config.frames)


@dataclass(frozen=True, slots=True, eq=False)
class VideoPrompt:
    """A prompt as the model reads it."""

    ids: list[int]
    """Token ids, with one video token for each token of the clip."""
    clip: Patches
    frames: Frames
    """What the clip was made of."""


class VideoPrompts:
    """Makes prompts as the planner's engine does; decodes and patches a clip at each call, and keeps none."""

    def __init__(self, name: str, policy: Checkpoint, histories: Histories) -> None:
        """`name` is what errors call the policy; raises InputError for one that reads text only."""
        if policy.video is None:
            remedy = "give a Qwen2.5-VL model, or set input = 'text'"
            raise InputError.at(f"model {name!r}", "it has no visual encoder and cannot read videos", remedy)
        self._prompts, self.video = Prompts(name, policy, policy.video), policy.video
        self.video_token = self._prompts.video_token
        self._tokenizer, self._histories = policy.tokenizer, histories
        end = end_of_turn(policy.tokenizer)
        self._ending = "" if end.written else end.token

    def prompt(self, example: Example, draw: int) -> VideoPrompt:
        """The prompt of an example at its place `draw` in the run; raises what its clip raises."""
        renderer = self._histories
        frames = renderer.render(example, draw) if isinstance(renderer, Renderer) else renderer(example)
        [prompt] = self._prompts.render([video_messages(example.goal, frames)])
        return VideoPrompt(prompt.tokens, self.video(frames), frames)

    def reply(self, example: Example) -> list[int]:
        """Token ids of the continuation and of what ends the assistant's turn."""
        turn = {"role": "user", "content": ""}
        reply = {"role": "assistant", "content": format_plan(example.continuation) + self._ending}
        text = chat_text(self._tokenizer, [turn, reply]).removeprefix(chat_text(self._tokenizer, [turn], ask=True))
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


class Collator:
    """Rows of an SFT run to a batch: padded on the right, labels on the continuation only, one clip each."""

    def __init__(self, prompts: VideoPrompts, examples: Sequence[Example], longest: int, padding: int) -> None:
        self._prompts, self._examples = prompts, examples
        self._longest, self._padding = longest, padding

    def __call__(self, rows: Sequence[dict[str, int]]) -> dict[str, Any]:
        """A batch of rows `{"example": index, "draw": place in the run}`; raises ConfigError for a prompt too long."""
        batch = []
        for row in rows:
            example = self._examples[row["example"]]
            prompt, reply = self._prompts.prompt(example, row["draw"]), self._prompts.reply(example)
            if len(prompt.ids) >= self._longest:
                raise ConfigError(
                    f"max_tokens: the prompt of example {example.example_id!r} takes {len(prompt.ids)} tokens of "
                    f"{self._longest} with its video; raise max_tokens, or lower frames.count or frames.max_pixels."
                )
            labels = [-100] * len(prompt.ids) + reply
            batch.append(((prompt.ids + reply)[: self._longest], labels[: self._longest], prompt.clip))
        width = max(len(ids) for ids, _, _ in batch)
        return {
            "input_ids": torch.tensor([[*ids, *[self._padding] * (width - len(ids))] for ids, _, _ in batch]),
            "attention_mask": torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _, _ in batch]),
            "labels": torch.tensor([[*labels, *[-100] * (width - len(labels))] for _, labels, _ in batch]),
            "clips": [clip for _, _, clip in batch],
        }
