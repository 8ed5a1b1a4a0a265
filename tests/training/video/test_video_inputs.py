"""The decoder's inputs against the stock forward pass of Qwen2.5-VL, and the traps they guard against."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import get_peft_model

from recipe.config import LoraSettings
from recipe.errors import InputError
from recipe.models.checkpoints import Checkpoint
from recipe.models.vision import Patches, mrope_positions
from recipe.training.policy import load_policy, lora_config
from recipe.training.video import FrozenTower, VideoPrompts, decoder_inputs
from recipe.types import Example, Frames

Batch = dict[str, Any]


@pytest.fixture(scope="module")
def policy(video_model: Path) -> Checkpoint:
    return load_policy(str(video_model))


@pytest.fixture
def batch(policy: Checkpoint, examples: list[Example], paintings: Callable[[Example], Frames]) -> Batch:
    """Six prompts, the first two with one clip between them, padded on the left."""
    prompts = VideoPrompts("miniature", policy, paintings)
    asked = [prompts.prompt(example, 0) for example in examples[:5]]
    asked = [asked[0], *asked]
    width = max(len(one.ids) for one in asked)
    assert len({len(one.ids) for one in asked}) > 1
    return {
        "ids": torch.tensor([[policy.tokenizer.pad_token_id] * (width - len(one.ids)) + one.ids for one in asked]),
        "mask": torch.tensor([[0] * (width - len(one.ids)) + [1] * len(one.ids) for one in asked]),
        "clips": [one.clip for one in asked],
    }


def stock(policy: Checkpoint, batch: Batch) -> dict[str, torch.Tensor]:
    """What a user of transformers hands to the model, with the positions that it was trained at."""
    clips: list[Patches] = batch["clips"]
    return {
        "input_ids": batch["ids"],
        "attention_mask": batch["mask"],
        "pixel_values_videos": torch.cat([clip.pixels for clip in clips]),
        "video_grid_thw": torch.tensor([clip.grid for clip in clips]),
        "second_per_grid_ts": torch.tensor([clip.seconds_per_grid for clip in clips]),
        "position_ids": mrope_positions(policy.model, **_read(batch)),
    }


def _read(batch: Batch) -> Batch:
    return {"tokens": batch["ids"], "mask": batch["mask"], "clips": batch["clips"]}


def apart(one: torch.Tensor, other: torch.Tensor, mask: torch.Tensor) -> float:
    return float((one - other).abs()[mask.bool()].max())


@torch.no_grad()
def test_they_are_what_the_stock_model_makes_of_pixels(policy: Checkpoint, batch: Batch) -> None:
    expected = policy.model(**stock(policy, batch)).logits
    found = policy.model(**decoder_inputs(policy.model, FrozenTower(policy.model), **batch)).logits
    assert apart(found, expected, batch["mask"]) < 1e-4


@torch.no_grad()
def test_what_is_left_out_passes_in_silence_and_changes_the_answer(policy: Checkpoint, batch: Batch) -> None:
    expected = policy.model(**stock(policy, batch)).logits
    words = policy.model(input_ids=batch["ids"], attention_mask=batch["mask"]).logits
    assert apart(words, expected, batch["mask"]) > 0.1
    unplaced = {**stock(policy, batch), "position_ids": None}
    in_a_row = policy.model(**unplaced).logits
    assert apart(in_a_row, expected, batch["mask"]) > 1e-3
    types = 2 * (batch["ids"] == policy.model.config.video_token_id).int()
    assert apart(policy.model(**unplaced, mm_token_type_ids=types).logits, in_a_row, batch["mask"]) > 1e-3


def test_a_prompt_and_its_clip_must_agree(policy: Checkpoint, batch: Batch) -> None:
    turned = [*batch["clips"][2:], *batch["clips"][:2]]
    with pytest.raises(InputError, match="one video token for each"):
        decoder_inputs(policy.model, FrozenTower(policy.model), **{**batch, "clips": turned})


def test_the_encoder_runs_once_for_a_clip_and_the_merger_learns(
    video_model: Path, batch: Batch, held_back: bool
) -> None:
    policy = load_policy(str(video_model))
    model = get_peft_model(policy.model, lora_config(LoraSettings(), policy.model, video=True))
    tower = FrozenTower(policy.model)
    encoded: list[int] = []
    policy.model.model.visual.register_forward_hook(
        lambda _module, given, options, _made: encoded.append(len(options["grid_thw"])), with_kwargs=True
    )
    for precise in (True,) if held_back else (True, False):  # a PyTorch that is held back fails in bfloat16 by itself
        with torch.autocast("cpu", torch.bfloat16, enabled=not precise):
            model(**decoder_inputs(policy.model, tower, **batch)).logits.float().square().mean().backward()
        graded = {name for name, weight in model.named_parameters() if weight.grad is not None}
        assert {name for name in graded if ".visual." in name} == {
            f"base_model.model.model.visual.merger.modules_to_save.default.{name}"
            for name in ("ln_q.weight", "mlp.0.weight", "mlp.0.bias", "mlp.2.weight", "mlp.2.bias")
        }
        assert all(model.get_parameter(name).grad.abs().sum() > 0 for name in graded if ".merger." in name)
        model.zero_grad()
        assert encoded == [5]
        if precise:
            continue
        tower.forget()
        # In one autocast region with the encoder's first pass, too.
        with torch.autocast("cpu", torch.bfloat16):
            model(**decoder_inputs(policy.model, tower, **batch)).logits.float().square().mean().backward()
        assert encoded == [5, 5]
        assert all(model.get_parameter(name).grad.abs().sum() > 0 for name in graded if ".merger." in name)


def test_a_prompt_holds_a_token_for_each_of_the_clips(
    policy: Checkpoint, examples: list[Example], paintings: Callable[[Example], Frames]
) -> None:
    prompts = VideoPrompts("miniature", policy, paintings)
    asked = prompts.prompt(examples[0], 0)
    frames = len(paintings(examples[0]).images)
    text = policy.tokenizer.decode(asked.ids)
    assert text.count("<|video_pad|>") == frames // 2 * 4
    assert f"Goal: {examples[0].goal}" in text
    assert examples[0].history[0] not in text
    assert policy.tokenizer.decode(prompts.reply(examples[0])).endswith("<|im_end|>\n")


class Redrawn:
    def render(self, example: Example, draw: int) -> Frames:
        return Frames(np.full((2, 56, 56, 3), draw, dtype=np.uint8), np.arange(2) / 2, 2.0)


def test_a_renderer_is_told_the_place_in_the_run(policy: Checkpoint, examples: list[Example]) -> None:
    prompts = VideoPrompts("miniature", policy, Redrawn())
    first, again, later = (prompts.prompt(examples[0], draw).clip.pixels for draw in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
