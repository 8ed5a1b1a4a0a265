"""TRL's GRPO trainer with clips: TRL 1.16 knows images only, and would leave a video out of the log-probabilities.

It overrides private methods of TRL, whose minor version is pinned; a test holds their signatures.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel
from trl import GRPOTrainer

from recipe.training.sampling import sample
from recipe.training.video.inputs import decoder_inputs
from recipe.training.video.prompts import SILENCED, Asked, VideoPrompts
from recipe.training.video.rates import MergerRate
from recipe.training.video.tower import FrozenTower
from recipe.types import Example
from recipe.vision import Patches


class VideoGRPOTrainer(MergerRate, GRPOTrainer):  # type: ignore[misc]
    """GRPO on prompts with a video: the clip of a group is decoded, patched and encoded once a step.

    Rows of the dataset hold `example`, an index, and `draw`, their place in the run, beside the reward's columns.
    """

    video_prompts: VideoPrompts
    video_examples: Sequence[Example]

    def __init__(self, *, prompts: VideoPrompts, examples: Sequence[Example], **options: Any) -> None:
        super().__init__(**options)
        self.video_prompts, self.video_examples = prompts, examples
        self._tower = FrozenTower(self._policy)
        self._asked: list[Asked] = []
        self._clips: list[Patches] = []

    @property
    def _policy(self) -> PreTrainedModel:
        return self.accelerator.unwrap_model(self.model).get_base_model()

    @property
    def asked(self) -> list[Asked]:
        """The prompts of the roll-outs under way, one for each completion."""
        return self._asked

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._tower.forget()
        groups: dict[int, Asked] = {}
        for row in inputs:
            if row["draw"] not in groups:
                groups[row["draw"]] = self.video_prompts.ask(self.video_examples[row["example"]], row["draw"])
        self._asked = [groups[row["draw"]] for row in inputs]
        self._clips = [asked.clip for asked in self._asked]
        return {**super()._generate_and_score_completions(inputs), "clips": self._clips}

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        # The trainer has shuffled the completions and cut them into passes since; it takes lists along.
        self._clips = inputs["clips"]
        return super()._compute_loss(model, inputs)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        size = batch_size or len(input_ids)
        passes = []
        for start in range(0, len(input_ids), size):
            ids, mask = input_ids[start : start + size], attention_mask[start : start + size]
            labels = ids.masked_fill(mask == 0, -100)
            labels[:, :-logits_to_keep] = -100
            with self.accelerator.autocast():
                read = decoder_inputs(self._policy, self._tower, ids, mask, self._clips[start : start + size])
                passes.append(model(**read, labels=labels, fused_lm_head=True))
        logps = torch.cat([one.log_probs[:, -logits_to_keep:] for one in passes])
        entropies = torch.cat([one.entropy[:, -logits_to_keep:] for one in passes]) if compute_entropy else None
        return logps, entropies, None


class VideoRollOuts:
    """The trainer's hook: samples for the prompts that it has just made, each read once with its clip."""

    def __init__(self, temperature: float, longest: int) -> None:
        self._temperature, self._longest = temperature, longest

    def __call__(self, prompts: Sequence[Any], trainer: VideoGRPOTrainer) -> dict[str, Any]:
        tokenizer = trainer.processing_class
        asked = [one.ids for one in trainer.asked]
        completions = sample(
            trainer.accelerator.unwrap_model(trainer.model).get_base_model(),
            asked,
            temperature=self._temperature,
            longest=self._longest,
            ends=[*trainer.eos_token_ids, tokenizer.pad_token_id],
            clips=[one.clip for one in trainer.asked],
            silenced=tokenizer.convert_tokens_to_ids(list(SILENCED)),
        )
        return {"prompt_ids": asked, "completion_ids": completions, "logprobs": None}
