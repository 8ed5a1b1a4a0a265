"""TRL's SFT and GRPO trainers with clips in every forward pass.

TRL 1.16 itself reads images only, and would leave a video out of the log-probabilities. The trainers override private
methods of TRL, whose minor version is pinned; a test holds their signatures.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import SequentialSampler
from transformers import PreTrainedModel
from transformers.vision_utils import get_vision_window_index
from trl import SFTTrainer

from recipe.models.decoding import clip_batches
from recipe.models.vision import Patches, mrope_positions
from recipe.training.loop import SilentTrainer
from recipe.training.policy import MERGER, RollOuts, trained_in_float32
from recipe.training.video.data import BANNED_TOKENS, VideoPrompt, VideoPrompts
from recipe.types import Example


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

    def _get_train_sampler(self, train_dataset: Any = None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset if train_dataset is None else train_dataset)

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
