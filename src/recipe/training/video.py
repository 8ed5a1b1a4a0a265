"""The Video configuration: frames of histories, prompts with clips, and TRL's trainers with clips in every pass.

TRL 1.16 itself reads images only, and would leave a video out of the log-probabilities. The trainers override private
methods of TRL, whose minor version is pinned; a test holds their signatures.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from transformers import PreTrainedModel
from transformers.vision_utils import get_vision_window_index
from trl import SFTTrainer

from recipe.config.models import FrameConfig
from recipe.config.training import TrainingSettings
from recipe.data.examples import read_training_examples
from recipe.errors import ConfigError, InputError, listed
from recipe.models.checkpoints import Checkpoint, chat_text, end_of_turn
from recipe.models.decoding import clip_batches
from recipe.models.local import Prompts
from recipe.models.vision import Patches, mrope_positions
from recipe.text import format_plan, video_messages
from recipe.training.loop import SilentTrainer
from recipe.training.policy import MERGER, RollOuts, trained_in_float32
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


class FrozenTower:
    """The frozen visual encoder of a Qwen2.5-VL: each clip passes through it once, until `forget`.

    The merger behind it is trained and its reference differs from it, so it runs anew at each pass.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._visual = model.model.visual
        self._encoded: dict[Patches, torch.Tensor] = {}

    def forget(self) -> None:
        """Drop the encoded clips; the next ones are others."""
        self._encoded.clear()

    def tokens(self, clips: Sequence[Patches]) -> list[torch.Tensor]:
        """The tokens [n, width] of each clip as the merger makes them, with its gradient; equal clips share theirs."""
        distinct = list(dict.fromkeys(clips))
        visual = self._visual
        device, dtype = visual.device, visual.dtype
        # Those that were not encoded yet, [patches, hidden] each.
        for batch in clip_batches(clip for clip in distinct if clip not in self._encoded):
            pixels = torch.cat([clip.pixels for clip in batch]).to(device, dtype)
            grids = torch.tensor([clip.grid for clip in batch], device=device)
            with torch.no_grad():
                hidden = visual(pixels, grid_thw=grids).last_hidden_state
            self._encoded.update(zip(batch, hidden.split(grids.prod(-1).tolist()), strict=True))
        grids = torch.tensor([clip.grid for clip in distinct])
        # The encoder leaves patches in the order of its windows.
        order, _ = get_vision_window_index(grids, visual.spatial_merge_size, visual.window_size, visual.patch_size)
        merged = visual.merger(torch.cat([self._encoded[clip] for clip in distinct]))
        merged = merged[torch.argsort(order).to(merged.device)]
        parts = merged.split((grids.prod(-1) // visual.spatial_merge_unit).tolist())
        of = dict(zip(distinct, parts, strict=True))
        return [of[clip] for clip in clips]


def decoder_inputs(
    model: PreTrainedModel,
    tower: FrozenTower,
    ids: torch.Tensor,
    mask: torch.Tensor,
    clips: Sequence[Patches],
) -> dict[str, torch.Tensor]:
    """Embeddings [B, L, width], positions [3, B, L] and the mask [B, L] for the forward pass of a Qwen2.5-VL.

    `ids` and `mask` are [B, L], padded on either side; `clips` has one for each row. Raises InputError where a row
    holds other video tokens than its clip; transformers, handed no pixels, would read video tokens as words without an
    error.
    """
    positions = mrope_positions(model, ids, mask, clips)
    words = model.get_input_embeddings()(ids)
    tokens = torch.cat(tower.tokens(clips))
    shown = (ids == model.config.video_token_id)[..., None]
    embeddings = words.masked_scatter(shown, tokens.to(words.dtype))
    return {"inputs_embeds": embeddings, "position_ids": positions, "attention_mask": mask}


class _VideoTrainer(SilentTrainer):
    """Mixed into a trainer, holds the merger in float32 and gives it a learning rate of its own."""

    model: Any

    def __init__(self, *, merger_rate: float | None, **options: Any) -> None:
        """`merger_rate` None is the rate of the adapters."""
        super().__init__(**options)
        self.merger_rate = merger_rate
        trained_in_float32(self.model)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """TRL's optimiser, with the merger in groups of its own after the others."""
        trainer: Any = self
        if trainer.optimizer is not None:
            return trainer.optimizer
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)  # type: ignore[misc]
        if self.merger_rate is None:
            return optimizer
        merger = {id(weight) for name, weight in trainer.model.named_parameters() if f".{MERGER}." in name}
        for group in list(optimizer.param_groups):
            mine = [weight for weight in group["params"] if id(weight) in merger]
            group["params"] = [weight for weight in group["params"] if id(weight) not in merger]
            if mine:
                optimizer.add_param_group({**group, "params": mine, "lr": self.merger_rate})
        return optimizer


class VideoSFTTrainer(_VideoTrainer, SFTTrainer):  # type: ignore[misc]
    """Cross-entropy with clips in the forward pass, on rows in the order in which they lie (`batches`)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # A Qwen2.5-VL declines to weigh tokens across passes. This loss is TRL's own and does: without it, the
        # examples of a batch would weigh more or less as the batch is cut.
        self.model_accepts_loss_kwargs = True

    def _get_train_sampler(self, train_dataset: Any = None) -> torch.utils.data.SequentialSampler:
        return torch.utils.data.SequentialSampler(self.train_dataset if train_dataset is None else train_dataset)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *rest: Any, **options: Any) -> Any:
        """TRL's loss of the decoder's inputs in place of the token ids."""
        policy = self.accelerator.unwrap_model(self.model).get_base_model()
        read = decoder_inputs(
            policy, FrozenTower(policy), inputs["input_ids"], inputs["attention_mask"], inputs["clips"]
        )
        return super().compute_loss(model, {**read, "labels": inputs["labels"]}, *rest, **options)


class ClipsInPrompts(_VideoTrainer):
    """Mixed into a GRPO trainer, shows it videos: the clip of a group is decoded, patched and encoded once a step.

    Rows of the dataset hold `example`, an index, and `draw`, their place in the run, as well as the reward's columns.
    """

    shares_prompts = False
    video_prompts: VideoPrompts
    video_examples: Sequence[Example]

    def __init__(self, *, prompts: VideoPrompts, examples: Sequence[Example], **options: Any) -> None:
        super().__init__(**options)
        self.video_prompts, self.video_examples = prompts, examples
        self._tower = FrozenTower(self._policy())
        # The prompts of the roll-outs under way, one for each completion.
        self.requests: list[VideoPrompt] = []
        self._clips: list[Patches] = []

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._tower.forget()
        groups: dict[int, VideoPrompt] = {}
        for row in inputs:
            if row["draw"] not in groups:
                groups[row["draw"]] = self.video_prompts.prompt(self.video_examples[row["example"]], row["draw"])
        self.requests = [groups[row["draw"]] for row in inputs]
        self._clips = [request.clip for request in self.requests]
        scored: dict[str, Any] = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        return {**scored, "clips": self._clips}

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        # The trainer has shuffled the completions and cut them into passes since; it takes lists along.
        self._clips = inputs["clips"]
        loss: torch.Tensor = super()._compute_loss(model, inputs)  # type: ignore[misc]
        return loss

    def model_inputs(self, ids: torch.Tensor, mask: torch.Tensor, rows: slice) -> dict[str, torch.Tensor]:
        """The decoder's inputs of some rows, with their clips."""
        return decoder_inputs(self._policy(), self._tower, ids, mask, self._clips[rows])

    def _policy(self) -> PreTrainedModel:
        """The model without the shells of adapters and of accelerate."""
        trainer: Any = self
        policy: PreTrainedModel = trainer.accelerator.unwrap_model(trainer.model).get_base_model()
        return policy


class VideoRollOuts(RollOuts):
    """The trainer's hook: samples for the prompts that it has just made, each read once with its clip."""

    def inputs(self, prompts: Sequence[Any], trainer: Any) -> tuple[list[list[int]], dict[str, Any]]:
        """Token ids of the trainer's prompts, their clips, and the tokens that are never sampled."""
        banned = trainer.processing_class.convert_tokens_to_ids(list(BANNED_TOKENS))
        tokens = [request.ids for request in trainer.requests]
        return tokens, {"clips": [request.clip for request in trainer.requests], "banned": banned}
