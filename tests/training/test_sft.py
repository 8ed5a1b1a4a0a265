from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from recipe.artifacts import fingerprint, read_json, read_jsonl
from recipe.config import LoraSettings, ModelConfig, SFTConfig
from recipe.data.examples import read_examples
from recipe.errors import ConfigError
from recipe.models.local import LocalEngine
from recipe.models.model import open_model
from recipe.prompting import open_prompt
from recipe.training.loop import quiet
from recipe.training.policy import load_policy
from recipe.training.runs import open_run, run_inputs, run_prompt
from recipe.training.sft import sft_trainer, train_sft
from recipe.types import Example


@pytest.fixture
def config(base_model: Path, examples_file: Path, tmp_path: Path) -> SFTConfig:
    return SFTConfig(
        model=str(base_model),
        examples=examples_file,
        output=tmp_path / "sft",
        epochs=1,
        batch_size=4,
        learning_rate=1e-2,
        save_every=2,
        metrics=(),
    )


def test_what_all_rows_begin_with_is_read_once_and_changes_neither_loss_nor_gradient(
    config: SFTConfig, examples: list[Example]
) -> None:
    with quiet():
        run = open_run("sft", config, config.output, {})
        trainer = sft_trainer(config, load_policy(config.model), examples, run)
        batch = next(iter(trainer.get_train_dataloader()))
    torch.manual_seed(0)
    for weight in trainer.model.parameters():
        if weight.requires_grad:
            weight.data += 0.05 * torch.randn_like(weight)
    trainer.model.eval()
    read, body = list[tuple[int, ...]](), trainer.model.get_base_model().base_model
    hook = body.register_forward_pre_hook(
        lambda _module, _inputs, options: read.append(tuple(options["input_ids"].shape)), with_kwargs=True
    )
    results = []
    for shares in (True, False):
        trainer.shares_head = shares
        loss = trainer.compute_loss(trainer.model, {**batch})
        trainer.model.zero_grad()
        loss.backward()
        results.append([loss.detach(), *(own.grad for own in trainer.model.parameters() if own.requires_grad)])
    hook.remove()
    (one, head), (rows, rest), (whole, length) = read
    assert (one, rows, whole) == (1, 4, 4)
    assert head > 10
    assert head + rest == length
    for shared, plain in zip(*results, strict=True):
        assert (shared - plain).norm() <= 1e-4 * plain.norm()


def test_the_prompt_holds_the_history_that_phi_told(config: SFTConfig, examples: list[Example]) -> None:
    told = [replace(example, told_history=("stir the tea", "wait")) for example in examples[:4]]
    blind = [replace(example, told_history=()) for example in examples[4:8]]
    with quiet():
        policy = load_policy(config.model)
        trainer = sft_trainer(config, policy, told + blind, open_run("sft", config, config.output, {}))
    prompts = [policy.tokenizer.decode(row["input_ids"]) for row in trainer.train_dataset]
    assert all("Done:\n1. stir the tea\n2. wait<|im_end|>" in prompt for prompt in prompts[:4])
    assert all("Done:\nnothing yet<|im_end|>" in prompt for prompt in prompts[4:])


def test_trains_a_standalone_model_and_records_every_step(config: SFTConfig, base_model: Path) -> None:
    config = config.model_copy(update={"epochs": 5})
    model = train_sft(config)
    rows = [row for _, row in read_jsonl(config.output / "metrics.jsonl")]
    assert [row["step"] for row in rows] == list(range(1, 16))
    assert all(row["step_seconds"] > 0 for row in rows)
    before, after = (load_file(folder / "model.safetensors") for folder in (base_model, model))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert all("q_proj" in name or "v_proj" in name for name in moved)
    assert train_sft(config) == model


def test_a_run_of_one_step_learns(config: SFTConfig, base_model: Path, examples: list[Example]) -> None:
    """The first step of a warm-up has the rate 0."""
    model = train_sft(config.model_copy(update={"batch_size": len(examples)}))
    before, after = (load_file(folder / "model.safetensors") for folder in (base_model, model))
    assert any(not torch.equal(after[name], before[name].to(after[name])) for name in before)


@pytest.mark.thorough
@pytest.mark.parametrize("native_bfloat16", [True, False], indirect=True)
def test_weights_are_in_bfloat16_where_it_is_not_emulated(native_bfloat16: bool, config: SFTConfig) -> None:
    model = train_sft(config.model_copy(update={"bf16": True}))
    kinds = {weight.dtype for weight in load_file(model / "model.safetensors").values()}
    assert kinds == {torch.bfloat16 if native_bfloat16 else torch.float32}


@pytest.mark.thorough
def test_accumulation_changes_nothing(config: SFTConfig, examples_file: Path) -> None:
    plain = config.model_copy(update={"lora": LoraSettings(dropout=0.0), "epochs": 1})
    weights = []
    for micro in (4, 1):
        output = config.output.with_name(f"micro-{micro}")
        model = train_sft(plain.model_copy(update={"micro_batch": micro, "output": output}))
        weights.append(load_file(model / "model.safetensors"))
    for name, weight in weights[0].items():
        torch.testing.assert_close(weight, weights[1][name], rtol=1e-3, atol=2e-5)


@pytest.mark.thorough
def test_a_model_is_trained_with_a_prompt_and_remembers_it(config: SFTConfig) -> None:
    taught = config.model_copy(update={"prompt": "one-example", "output": config.output / "taught"})
    model = train_sft(taught)
    run, card = read_json(taught.output / "run.json"), read_json(model / "card.json")
    asked = open_prompt("one-example")
    assert run["inputs"]["prompt"] == card["inputs"]["prompt"] == fingerprint(asked.text)
    assert card["prompt"] == {"name": "one-example", "text": asked.text}
    assert LocalEngine(model).prompt == asked
    with open_model(ModelConfig(model=str(model))) as opened:
        assert opened.prompt == asked
    # A run from it goes on with its prompt, unless another is named.
    policy = load_policy(str(model))
    for name, examples in (("", 1), ("plain", 0)):
        further = config.model_copy(update={"model": str(model), "prompt": name, "output": config.output / f"g{name}"})
        assert run_prompt(further) == (open_prompt(name) if name else asked)
        inputs = run_inputs(further)
        assert ("prompt" in inputs) == bool(examples)
        with quiet():
            further_run = open_run("sft", further, further.output, inputs)
            trainer = sft_trainer(further, policy, read_examples(further.examples), further_run)
        prompts = [policy.tokenizer.decode(row["input_ids"]) for row in trainer.train_dataset]
        assert all(prompt.count("sew a button") == examples for prompt in prompts)
    with pytest.raises(ConfigError, match=r"inputs\.prompt was"):
        train_sft(taught.model_copy(update={"prompt": "plain"}))
