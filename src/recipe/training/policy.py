"""Policies: loading by id or folder, adapters, and saving the merged model as a standalone folder.

Nothing here knows how large a model is: the small one of `recipe train base` and a published checkpoint
differ in their name only.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from recipe.artifacts import atomic_path
from recipe.config import LoraSettings
from recipe.errors import InputError


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def on_cuda() -> bool:
    """True where training runs on a GPU."""
    return bool(torch.cuda.is_available())


def load_policy(name: str, revision: str | None = None, *, bf16: bool = False) -> Policy:
    """The model and tokenizer of a hub id or of a folder in the standard layout, weights on the CPU.

    `bf16` loads the weights in bfloat16, which halves their memory. Raises InputError where there is no
    such model.
    """
    if not Path(name).is_dir() and (name.startswith((".", "/")) or name.count("/") > 1):
        raise InputError.at(name, "the model folder does not exist", "check the path, or train the model first")
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, padding_side="left")
        dtype = torch.bfloat16 if bf16 else torch.float32
        # On a CPU, at our lengths, plain attention is faster than the fused kernel and its backward pass.
        attention = "sdpa" if on_cuda() else "eager"
        model = AutoModelForCausalLM.from_pretrained(
            name, revision=revision, dtype=dtype, attn_implementation=attention
        )
    except (OSError, ValueError) as error:
        raise InputError.at(f"model {name!r}", _reason(name, error), _remedy(name)) from error
    if tokenizer.chat_template is None:
        raise InputError.at(f"model {name!r}", "its tokenizer has no chat template", "take an instruction-tuned model")
    return Policy(model, tokenizer)


def lora_config(settings: LoraSettings) -> LoraConfig:
    """The adapters of the paper: on the projections named, everything else frozen."""
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.target_modules),
        task_type="CAUSAL_LM",
    )


def save_merged(model: PeftModel, tokenizer: PreTrainedTokenizerBase, target: Path) -> None:
    """Merge the adapter into the weights and save a standalone model with its tokenizer, all or nothing."""
    save_model(model.merge_and_unload(), tokenizer, target)


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, target: Path) -> None:
    """Save weights, configs and tokenizer in the standard layout, all or nothing."""
    with atomic_path(target) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)


def _reason(name: str, error: Exception) -> str:
    if Path(name).is_dir():
        return f"the folder holds no complete model ({str(error).splitlines()[0]})"
    offline = os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")
    where = "the hub is switched off by HF_HUB_OFFLINE and the model is not in the local cache"
    return where if offline else f"it cannot be loaded from the hub ({str(error).splitlines()[0]})"


def _remedy(name: str) -> str:
    if Path(name).is_dir():
        return "give a folder with config.json, model.safetensors and the tokenizer's files"
    return "give a folder in the standard layout, check the id, or download the model once while online"
