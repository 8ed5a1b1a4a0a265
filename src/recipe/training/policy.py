"""Policies: loading for training, adapters, and saving the merged model as a standalone folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from recipe.artifacts import atomic_path
from recipe.checkpoints import Checkpoint, load_checkpoint
from recipe.config import LoraSettings
from recipe.errors import ConfigError, InputError


def on_cuda() -> bool:
    """True where training runs on a GPU."""
    return bool(torch.cuda.is_available())


def load_policy(name: str, revision: str | None = None, *, bf16: bool = False) -> Checkpoint:
    """The model and tokenizer of a hub id or folder, in bfloat16 or float32; raises as `load_checkpoint`."""
    # On a CPU, at our lengths, plain attention is faster than the fused kernel and its backward pass.
    attention = "sdpa" if on_cuda() else "eager"
    return load_checkpoint(name, revision, torch.bfloat16 if bf16 else torch.float32, attention)


def lora_config(settings: LoraSettings, model: PreTrainedModel) -> LoraConfig:
    """The adapters of the paper: on the projections named, everything else frozen.

    Raises ConfigError where the model has no projection of a name.
    """
    known = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    if absent := [name for name in settings.target_modules if name not in known]:
        raise ConfigError(f"lora.target_modules: the model has no module {absent[0]!r}; name others.")
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
    with atomic_path(target) as partial, written_in_words(target):
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)


@contextmanager
def written_in_words(folder: Path) -> Iterator[None]:
    """Say plainly what safetensors and tokenizers could not write to `folder`. Raises InputError."""
    try:
        yield
    except Exception as error:
        if "(os error " not in str(error):  # how their Rust cores end what the system refuses
            raise
        raise InputError.at(folder, f"it cannot be written ({error})", "free some space and try again") from None
