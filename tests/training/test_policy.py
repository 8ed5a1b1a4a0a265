from pathlib import Path

import torch
from peft import get_peft_model

from recipe.config import LoraSettings
from recipe.training.policy import load_policy, lora_config, save_merged


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
    save_merged(adapted, policy.tokenizer, tmp_path / "model")
    merged = load_policy(str(tmp_path / "model"))
    torch.testing.assert_close(merged.model(ids).logits, expected, rtol=1e-4, atol=1e-5)
    assert merged.tokenizer.chat_template == policy.tokenizer.chat_template
    assert not list((tmp_path / "model").glob("adapter*"))


def test_adapters_sit_on_queries_and_values_only(base_model: Path) -> None:
    model = load_policy(str(base_model)).model
    adapted = get_peft_model(model, lora_config(LoraSettings(), model))
    trained = {name.split(".lora_")[0].rpartition(".")[2] for name, w in adapted.named_parameters() if w.requires_grad}
    assert trained == {"q_proj", "v_proj"}
