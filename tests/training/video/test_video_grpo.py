"""GRPO from video tokens: what is compared with what, what moves, and what is saved."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file
from trl import GRPOTrainer, SFTTrainer

from recipe.artifacts import read_jsonl
from recipe.config import GRPOConfig, LoraSettings
from recipe.data.examples import read_examples
from recipe.errors import ConfigError, InputError
from recipe.models.checkpoints import Checkpoint
from recipe.models.decoding import complete
from recipe.models.vision import Patches
from recipe.training.grpo import RewardFunction, VideoGRPOTrainer, grpo_trainer, train_grpo
from recipe.training.loop import quiet
from recipe.training.policy import load_policy
from recipe.training.runs import open_run
from recipe.training.video import BANNED_TOKENS, FrozenTower, VideoSource, decoder_inputs

MERGER = {"ln_q.weight", "mlp.0.bias", "mlp.0.weight", "mlp.2.bias", "mlp.2.weight"}


@pytest.fixture
def config(video_model: Path, grpo_settings: dict[str, Any]) -> GRPOConfig:
    return GRPOConfig(**grpo_settings | {"model": str(video_model), "input": "video"})


def trainer_of(config: GRPOConfig, scorer: Any, paintings: Any) -> tuple[VideoGRPOTrainer, Checkpoint]:
    policy = load_policy(config.model)
    run = open_run("grpo", config, config.output, {})
    reward = RewardFunction(config, scorer, run, lambda _: None)
    source = VideoSource(read_examples(config.examples), paintings, "given")
    with quiet():
        return grpo_trainer(config, policy, source.examples, reward, run, source), policy


def moved(trainer: VideoGRPOTrainer, size: float = 0.05) -> None:
    """Take what is trained away from where it starts, so that nothing agrees by being zero."""
    torch.manual_seed(1)
    for weight in trainer.model.parameters():
        if weight.requires_grad:
            weight.data += size * torch.randn_like(weight)


def batch_of(trainer: VideoGRPOTrainer) -> dict[str, Any]:
    """A step's completions as the trainer goes on with them."""
    rows = [trainer.train_dataset[index] for index in (0, 0, 0, 0, 1, 1, 1, 1)]
    with quiet():
        return trainer._generate_and_score_completions(rows)


def log_probs(trainer: VideoGRPOTrainer, batch: dict[str, Any]) -> torch.Tensor:
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    found, _, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, mask, batch["completion_ids"].shape[1], batch_size=3
    )
    return found.detach() * batch["completion_mask"]


def test_what_is_sampled_has_the_log_probability_that_is_trained(
    config: GRPOConfig, scorer: Any, paintings: Any
) -> None:
    trainer, policy = trainer_of(config.model_copy(update={"temperature": 1.0}), scorer, paintings)
    moved(trainer)
    trainer.model.eval()
    asked = [trainer.video_prompts.prompt(trainer.video_examples[n], n) for n in (0, 1, 2, 4)]
    asked = [asked[0], *asked]
    assert len({len(one.ids) for one in asked}) > 2
    told: list[list[float]] = [[] for _ in asked]

    def choose(logits: torch.Tensor, rows: torch.Tensor, _step: int) -> torch.Tensor:
        every = torch.log_softmax(logits, dim=-1)
        chosen = torch.multinomial(every.exp(), 1)
        for row, value in zip(rows.tolist(), every.gather(-1, chosen).squeeze(-1).tolist(), strict=True):
            told[row].append(value)
        return chosen.squeeze(-1)

    base = trainer.model.get_base_model()
    with torch.no_grad():
        ids, clips = [one.ids for one in asked], [one.clip for one in asked]
        written = complete(base, ids, choose, ends=trainer.eos_token_ids, longest=12, clips=clips)
    width, long = max(map(len, ids)), max(map(len, written))
    pad = policy.tokenizer.pad_token_id
    batch = {
        "prompt_ids": torch.tensor([[pad] * (width - len(one)) + one for one in ids]),
        "prompt_mask": torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in ids]),
        "completion_ids": torch.tensor([one + [pad] * (long - len(one)) for one in written]),
        "completion_mask": torch.tensor([[1] * len(one) + [0] * (long - len(one)) for one in written]),
    }
    trainer._clips = clips
    expected = torch.tensor([one + [0.0] * (long - len(one)) for one in told])
    assert (log_probs(trainer, batch) - expected).abs().max() < 1e-4
    # The test would see a pixel less.
    trainer._clips = [Patches(torch.zeros_like(c.pixels), c.grid, c.seconds_per_grid) for c in clips]
    trainer._tower.forget()
    assert (log_probs(trainer, batch) - expected).abs().max() > 1e-2


def test_clips_stay_with_their_completions_when_the_trainer_shuffles(
    config: GRPOConfig, scorer: Any, paintings: Any
) -> None:
    trainer, _ = trainer_of(config.model_copy(update={"micro_batch": 2}), scorer, paintings)
    loader = iter(trainer.get_train_dataloader())
    with quiet():
        passes = [trainer._prepare_inputs(next(loader))]
        passes += [trainer._prepare_inputs([]) for trainer._step in (1, 2, 3)]
    for one in passes:
        shown = (one["prompt_ids"] == trainer.model.config.video_token_id).sum(-1).tolist()
        assert shown == [clip.grid[0] * 4 for clip in one["clips"]]
    assert len({id(clip) for one in passes for clip in one["clips"]}) == config.prompts_per_step


def test_a_clip_is_decoded_and_patched_once_for_its_group(config: GRPOConfig, scorer: Any, paintings: Any) -> None:
    trainer, policy = trainer_of(config, scorer, paintings)
    encoded: list[int] = []
    policy.model.model.visual.register_forward_hook(
        lambda _module, _given, options, _made: encoded.append(len(options["grid_thw"])), with_kwargs=True
    )
    batch = batch_of(trainer)
    assert len(batch["clips"]) == 8
    assert len(paintings.asked) == 2
    trainer.current_gradient_accumulation_steps = 1
    trainer._compute_loss(trainer.model, batch).backward()
    assert encoded == [2, 2], "once for the roll-outs, once for the reference and all that is trained on them"


def test_no_completion_stands_for_pixels(config: GRPOConfig, scorer: Any, paintings: Any) -> None:
    trainer, policy = trainer_of(config, scorer, paintings)
    silenced = policy.tokenizer.convert_tokens_to_ids(list(BANNED_TOKENS))

    def writes_nothing_else(_module: Any, _hidden: Any, logits: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(logits).index_fill(-1, torch.tensor(silenced[:1]), 50.0)

    policy.model.lm_head.register_forward_hook(writes_nothing_else)
    assert not set(batch_of(trainer)["completion_ids"].flatten().tolist()) & set(silenced)


def test_begins_at_the_reference_and_trains_what_is_named(
    config: GRPOConfig, scorer: Any, paintings: Any, video_model: Path
) -> None:
    model = train_grpo(config, scorer, histories=paintings)
    rows = [row for _, row in read_jsonl(config.output / "metrics.jsonl")]
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[0]["kl"] == 0
    assert rows[1]["kl"] > 0
    assert len(paintings.asked) == config.steps * config.prompts_per_step
    before, after = (load_file(folder / "model.safetensors") for folder in (video_model, model))
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    layers = {f"model.layers.{n}.self_attn.{p}_proj.weight" for n in (0, 1) for p in ("q", "v")}
    assert changed == layers | {f"visual.merger.{name}" for name in MERGER}
    assert train_grpo(config, scorer, histories=paintings) == model


@pytest.mark.thorough
def test_the_result_loads_with_transformers_and_peft_alone(config: GRPOConfig, scorer: Any, paintings: Any) -> None:
    config = config.model_copy(update={"save_every": 2})
    model = train_grpo(config, scorer, histories=paintings)
    kind = transformers.Qwen2_5_VLForConditionalGeneration
    merged = kind.from_pretrained(model).eval()
    adapter = PeftModel.from_pretrained(kind.from_pretrained(config.model), config.output / "checkpoints/checkpoint-2")
    adapter.eval()
    trainer, _ = trainer_of(config.model_copy(update={"output": config.output / "again"}), scorer, paintings)
    asked = trainer.video_prompts.prompt(trainer.video_examples[0], 0)
    ids = torch.tensor([asked.ids])
    pixels = {"pixel_values_videos": asked.clip.pixels, "video_grid_thw": torch.tensor([asked.clip.grid])}
    read = decoder_inputs(merged, FrozenTower(merged), ids, torch.ones_like(ids), [asked.clip])
    stock = {"input_ids": ids, "position_ids": read["position_ids"], **pixels}
    with torch.no_grad():
        expected = merged(**read).logits
        for one in (merged, adapter):
            assert (one(**stock).logits - expected).abs().max() < 1e-4
        assert (kind.from_pretrained(config.model).eval()(**stock).logits - expected).abs().max() > 1e-2
    assert load_policy(str(model)).video == load_policy(config.model).video


@pytest.mark.thorough
def test_the_merger_has_a_rate_of_its_own_also_after_a_resume(config: GRPOConfig, scorer: Any, paintings: Any) -> None:
    config = config.model_copy(update={"merger_learning_rate": 1e-3, "save_every": 1, "lora": LoraSettings(rank=2)})
    trainer, _ = trainer_of(config, scorer, paintings)
    with quiet():
        trainer.train()
    rates = [(group["lr"], len(group["params"])) for group in trainer.optimizer.param_groups if group["params"]]
    assert sum(count for rate, count in rates if rate == 1e-2) == 8
    assert sum(count for rate, count in rates if rate == 1e-3) == 5
    resumed, _ = trainer_of(config, scorer, paintings)
    with quiet():
        resumed.train(resume_from_checkpoint=str(config.output / "checkpoints/checkpoint-1"))
    again = [(group["lr"], len(group["params"])) for group in resumed.optimizer.param_groups if group["params"]]
    assert again == rates
    for (name, one), (_, other) in zip(trainer.model.named_parameters(), resumed.model.named_parameters(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.thorough
@pytest.mark.usefixtures("native_bfloat16")
def test_bfloat16_two_passes_and_small_batches(
    config: GRPOConfig, scorer: Any, paintings: Any, video_model: Path
) -> None:
    config = config.model_copy(
        update={"bf16": True, "iterations": 2, "micro_batch": 4, "gradient_checkpointing": True, "learning_rate": 1e-3}
    )
    model = train_grpo(config, scorer, histories=paintings)
    assert len(paintings.asked) == config.prompts_per_step
    before, after = (load_file(folder / "model.safetensors") for folder in (video_model, model))
    assert {weight.dtype for weight in after.values()} == {torch.bfloat16}
    place = "visual.merger.mlp.0.weight"
    assert (after[place].float() - before[place]).abs().max() > 5e-4


def test_private_methods_of_trl_are_as_they_were() -> None:
    """What the trainers override or call between TRL's own calls; TRL is pinned to 1.16."""
    log_probs = list(inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)
    assert log_probs[:7] == [
        "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy",
    ]  # fmt: skip
    assert list(inspect.signature(GRPOTrainer._generate_and_score_completions).parameters) == ["self", "inputs"]
    assert list(inspect.signature(GRPOTrainer._compute_loss).parameters) == ["self", "model", "inputs"]
    assert list(inspect.signature(GRPOTrainer.create_optimizer).parameters) == ["self", "model"]
    assert list(inspect.signature(SFTTrainer._get_train_sampler).parameters) == ["self", "train_dataset"]
    assert list(inspect.signature(SFTTrainer.compute_loss).parameters) == [
        "self", "model", "inputs", "return_outputs", "num_items_in_batch",
    ]  # fmt: skip


def test_a_model_of_text_reads_no_video(config: GRPOConfig, scorer: Any, paintings: Any, base_model: Path) -> None:
    with pytest.raises(InputError, match=r"no visual encoder.*input = 'text'"):
        train_grpo(config.model_copy(update={"model": str(base_model)}), scorer, histories=paintings)


@pytest.mark.thorough
def test_a_model_that_sees_trains_on_text_too(config: GRPOConfig, scorer: Any, video_model: Path) -> None:
    model = train_grpo(config.model_copy(update={"input": "text", "steps": 1}), scorer)
    before, after = (load_file(folder / "model.safetensors") for folder in (video_model, model))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.startswith("model.layers.") for name in changed)
    assert load_policy(str(model)).video is not None


def test_videos_or_histories_are_needed(config: GRPOConfig, scorer: Any) -> None:
    with pytest.raises(ConfigError, match="'videos' is missing"):
        train_grpo(config, scorer)
