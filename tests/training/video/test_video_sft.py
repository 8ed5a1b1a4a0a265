"""SFT from video tokens: labels, order, what moves, and what a prompt may take."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from recipe.artifacts import read_jsonl
from recipe.config import LoraSettings, SFTConfig
from recipe.data.examples import read_examples
from recipe.errors import ConfigError
from recipe.text import format_plan
from recipe.training.loop import quiet
from recipe.training.policy import load_policy
from recipe.training.runs import open_run
from recipe.training.sft import sft_trainer, train_sft
from recipe.training.video import VideoSFTTrainer, VideoSource
from recipe.types import Example


@pytest.fixture
def config(video_model: Path, examples_file: Path, tmp_path: Path) -> SFTConfig:
    return SFTConfig(
        model=str(video_model),
        examples=examples_file,
        output=tmp_path / "sft",
        input="video",
        epochs=2,
        batch_size=4,
        learning_rate=1e-2,
        metrics=(),
    )


def trainer_of(config: SFTConfig, paintings: Any) -> VideoSFTTrainer:
    run, examples = open_run("sft", config, config.output, {}), read_examples(config.examples)
    with quiet():
        return sft_trainer(config, load_policy(config.model), examples, run, VideoSource(examples, paintings, ""))


def test_loss_is_on_the_continuation_only(config: SFTConfig, examples: list[Example], paintings: Any) -> None:
    trainer = trainer_of(config, paintings)
    tokenizer = trainer.processing_class
    batch = next(iter(trainer.get_train_dataloader()))
    shown = [examples[row["example"]] for row in list(trainer.train_dataset)[:4]]
    assert len({int(mask.sum()) for mask in batch["attention_mask"]}) > 1
    columns = [batch[name] for name in ("input_ids", "labels", "attention_mask", "clips")]
    for example, ids, labels, mask, clip in zip(shown, *columns, strict=True):
        assert tokenizer.decode(ids[labels != -100]) == format_plan(example.continuation) + "<|im_end|>\n"
        assert (labels[mask == 0] == -100).all()
        assert f"Goal: {example.goal}" in tokenizer.decode(ids)
        assert len(clip.pixels) == len(paintings(example).images) // 2 * 16


def test_the_loss_sees_the_clip(config: SFTConfig, paintings: Any) -> None:
    trainer = trainer_of(config.model_copy(update={"lora": LoraSettings(dropout=0.0)}), paintings)
    batch = next(iter(trainer.get_train_dataloader()))
    loss = trainer.compute_loss(trainer.model, dict(batch))
    loss.backward()
    trained = {name for name, weight in trainer.model.named_parameters() if weight.grad is not None}
    assert {name.split(".visual.")[1].split(".")[0] for name in trained if ".visual." in name} == {"merger"}
    for clip in batch["clips"]:
        clip.pixels.zero_()
    with torch.no_grad():
        assert abs(trainer.compute_loss(trainer.model, dict(batch)) - loss) > 1e-3


@pytest.mark.thorough
def test_trains_a_model_that_learns_from_frames(config: SFTConfig, paintings: Any, video_model: Path) -> None:
    config = config.model_copy(update={"epochs": 5, "merger_learning_rate": 1e-3})
    model = train_sft(config, histories=paintings)
    rows = [row for _, row in read_jsonl(config.output / "metrics.jsonl")]
    assert [row["step"] for row in rows] == list(range(1, 16))
    assert len(paintings.asked) == 5 * 12, "each example is drawn anew at each use"
    before, after = (load_file(folder / "model.safetensors") for folder in (video_model, model))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name for name in changed if not name.endswith(("q_proj.weight", "v_proj.weight"))} == {
        name for name in before if name.startswith("visual.merger.")
    }
    assert train_sft(config, histories=paintings) == model


def test_every_example_comes_once_in_an_epoch_in_drawn_order(config: SFTConfig, paintings: Any) -> None:
    rows = list(trainer_of(config, paintings).train_dataset)
    assert [row["draw"] for row in rows] == list(range(24))
    epochs = [[row["example"] for row in rows[start : start + 12]] for start in (0, 12)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    other = config.model_copy(update={"seed": 1, "output": config.output.with_name("other")})
    assert list(trainer_of(other, paintings).train_dataset) != rows


def test_a_prompt_that_fills_the_room_is_refused_by_name(config: SFTConfig, paintings: Any) -> None:
    trainer = trainer_of(config.model_copy(update={"max_tokens": 20}), paintings)
    with pytest.raises(ConfigError, match=r"max_tokens: the prompt of example 'e\d+' takes \d+ tokens of 20"):
        next(iter(trainer.get_train_dataloader()))


@pytest.mark.thorough
def test_accumulation_and_recomputed_activations_change_nothing(config: SFTConfig, paintings: Any) -> None:
    plain = config.model_copy(update={"lora": LoraSettings(dropout=0.0), "epochs": 1, "learning_rate": 1e-3})
    weights = []
    for changed in ({}, {"micro_batch": 1, "gradient_checkpointing": True}):
        output = config.output.with_name(f"run-{len(weights)}")
        model = train_sft(plain.model_copy(update={**changed, "output": output}), histories=paintings)
        weights.append(load_file(model / "model.safetensors"))
    for name, weight in weights[0].items():
        for other in weights[1:]:
            torch.testing.assert_close(other[name], weight, rtol=1e-3, atol=2e-5)


@pytest.mark.thorough
@pytest.mark.usefixtures("native_bfloat16")
def test_bfloat16_keeps_what_is_trained_in_float32(config: SFTConfig, paintings: Any) -> None:
    config = config.model_copy(update={"bf16": True, "epochs": 1})
    run = open_run("sft", config, config.output, {})
    with quiet():
        examples = read_examples(config.examples)
        policy, source = load_policy(config.model, bf16=True), VideoSource(examples, paintings, "")
        trainer = sft_trainer(config, policy, examples, run, source)
    trained = {weight.dtype for weight in trainer.model.parameters() if weight.requires_grad}
    frozen = {weight.dtype for weight in trainer.model.parameters() if not weight.requires_grad}
    assert (trained, frozen) == ({torch.float32}, {torch.bfloat16})
    model = train_sft(config, histories=paintings)
    saved = load_file(model / "model.safetensors")
    assert {weight.dtype for weight in saved.values()} == {torch.bfloat16}
