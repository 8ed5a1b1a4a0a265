from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model

from recipe.config import LoraSettings
from recipe.models import devices
from recipe.models.checkpoints import Checkpoint
from recipe.models.devices import use_bf16
from recipe.training.policy import load_policy, lora_config, sample, save_model


def test_merged_model_computes_what_the_adapter_does(base_model: Path, tmp_path: Path) -> None:
    policy = load_policy(str(base_model))
    adapted = get_peft_model(policy.model, lora_config(LoraSettings(), policy.model))
    torch.manual_seed(0)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    ids = torch.arange(20, 40)[None]
    adapted.eval()
    expected = adapted(ids).logits
    with adapted.disable_adapter():
        assert (adapted(ids).logits - expected).abs().max() > 0.01
    save_model(adapted, policy.tokenizer, tmp_path / "model")
    merged = load_policy(str(tmp_path / "model"))
    torch.testing.assert_close(merged.model(ids).logits, expected, rtol=1e-4, atol=1e-5)
    assert merged.tokenizer.chat_template == policy.tokenizer.chat_template
    assert not list((tmp_path / "model").glob("adapter*"))


@pytest.fixture(scope="module")
def policy(base_model: Path) -> Checkpoint:
    return load_policy(str(base_model))


def draw(policy: Checkpoint, prompts: list[list[int]], first: int = 0, **options: Any) -> list[list[int]]:
    settings = {"temperature": 1.0, "longest": 12, "ends": [policy.tokenizer.eos_token_id]}
    keys = [f"key {row}" for row in range(first, first + len(prompts))]
    return sample(policy.model, prompts, keys, **(settings | options))


PROMPTS = [[30, 31, 32, 33, 34], [40, 41], [40, 41], [50, 51, 52]]


def test_cold_samples_are_what_generate_writes(policy: Checkpoint) -> None:
    cold = draw(policy, PROMPTS, temperature=1e-4)
    policy.model.eval()
    for prompt, completion in zip(PROMPTS, cold, strict=True):
        written = policy.model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=12, do_sample=False,
            eos_token_id=policy.tokenizer.eos_token_id, pad_token_id=0,
        )  # fmt: skip
        assert completion == written[0, len(prompt) :].tolist()


def test_a_completion_does_not_depend_on_what_is_sampled_beside_it(policy: Checkpoint) -> None:
    whole = draw(policy, PROMPTS * 4)
    assert len({tuple(completion) for completion in whole}) > 8
    torch.manual_seed(1)
    assert [draw(policy, PROMPTS, first) for first in (0, 4, 8, 12)] == [whole[n : n + 4] for n in (0, 4, 8, 12)]


def test_draws_follow_the_models_probabilities(policy: Checkpoint) -> None:
    prompt, count = [30, 31, 32], 4000
    first = Counter(completion[0] for completion in draw(policy, [prompt] * count, longest=1, temperature=0.8))
    with torch.no_grad():
        expected = torch.softmax(policy.model.eval()(torch.tensor([prompt])).logits[0, -1] / 0.8, dim=-1)
    for token in expected.topk(5).indices.tolist():
        deviation = (expected[token] * (1 - expected[token]) / count).sqrt().item()
        assert abs(first[token] / count - expected[token].item()) < 5 * deviation


@pytest.mark.parametrize("native_bfloat16", [True, False], indirect=True)
def test_a_processor_without_bfloat16_trains_in_float32_and_one_warning_says_so(
    native_bfloat16: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    devices._warn_of_float32.cache_clear()
    for gpu, uses in ((False, [False, False, native_bfloat16, native_bfloat16]), (True, [True, False, True, True])):
        monkeypatch.setattr(torch.cuda, "is_available", lambda gpu=gpu: gpu)
        assert [use_bf16(asked) for asked in (None, False, True, True)] == uses
    assert ["float32" in record.getMessage() for record in caplog.records] == [True] * (not native_bfloat16)


def test_sampling_with_adapters_is_that_of_the_merged_model_and_changes_no_weight(base_model: Path) -> None:
    policy = load_policy(str(base_model))
    adapted = get_peft_model(policy.model, lora_config(LoraSettings(), policy.model))
    torch.manual_seed(0)
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.1)
    before = {name: weight.detach().clone() for name, weight in adapted.named_parameters()}
    written = draw(replace(policy, model=adapted.get_base_model()), PROMPTS * 4)
    with adapted.disable_adapter():
        assert draw(replace(policy, model=adapted.get_base_model()), PROMPTS * 4) != written
    assert all(torch.equal(weight, before[name]) for name, weight in adapted.named_parameters())
    merged = adapted.merge_and_unload()
    assert draw(replace(policy, model=merged), PROMPTS * 4) == written
