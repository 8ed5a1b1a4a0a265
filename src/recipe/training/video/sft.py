"""TRL's SFT trainer with clips: its own collator for vision takes images only.

It overrides private methods of TRL, whose minor version is pinned; a test holds their signatures.
"""

from typing import Any

from torch.utils.data import SequentialSampler
from trl import SFTTrainer

from recipe.training.video.inputs import decoder_inputs
from recipe.training.video.rates import MergerRate
from recipe.training.video.tower import FrozenTower


class VideoSFTTrainer(MergerRate, SFTTrainer):  # type: ignore[misc]
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
