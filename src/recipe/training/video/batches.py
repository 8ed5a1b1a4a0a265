"""Batches of supervised fine-tuning in the Video configuration, and the order in which a run takes its examples."""

import random
from collections.abc import Sequence
from typing import Any

import torch

from recipe.errors import ConfigError
from recipe.training.video.prompts import VideoPrompts
from recipe.types import Example
from recipe.vision import Patches


def rows_in_order(count: int, epochs: int, seed: int) -> list[dict[str, int]]:
    """The rows of a whole run, every example once in each epoch in drawn order, numbered by `draw`.

    Laid out beforehand, in what the trainer takes for one epoch, so that a place in the run has one number.
    """
    order = random.Random(seed)
    drawn = [index for _ in range(epochs) for index in order.sample(range(count), count)]
    return [{"example": index, "draw": draw} for draw, index in enumerate(drawn)]


class Collator:
    """Rows of an SFT run to a batch: padded on the right, labels on the continuation only, one clip each."""

    def __init__(self, prompts: VideoPrompts, examples: Sequence[Example], longest: int, padding: int) -> None:
        self._prompts, self._examples = prompts, examples
        self._longest, self._padding = longest, padding

    def __call__(self, rows: Sequence[dict[str, int]]) -> dict[str, Any]:
        """A batch of rows `{"example": index, "draw": place in the run}`; raises ConfigError for a prompt too long."""
        read = [self._row(self._examples[row["example"]], row["draw"]) for row in rows]
        width = max(len(ids) for ids, _, _ in read)
        return {
            "input_ids": torch.tensor([[*ids, *[self._padding] * (width - len(ids))] for ids, _, _ in read]),
            "attention_mask": torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _, _ in read]),
            "labels": torch.tensor([[*labels, *[-100] * (width - len(labels))] for _, labels, _ in read]),
            "clips": [clip for _, _, clip in read],
        }

    def _row(self, example: Example, draw: int) -> tuple[list[int], list[int], Patches]:
        asked, reply = self._prompts.ask(example, draw), self._prompts.reply(example)
        if len(asked.ids) >= self._longest:
            raise ConfigError(
                f"max_tokens: the prompt of example {example.example_id!r} takes {len(asked.ids)} tokens of "
                f"{self._longest} with its video; raise max_tokens, or lower frames.count or frames.max_pixels."
            )
        ids, labels = asked.ids + reply, [-100] * len(asked.ids) + reply
        return ids[: self._longest], labels[: self._longest], asked.clip
