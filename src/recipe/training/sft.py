"""Supervised fine-tuning: cross-entropy on the continuation only, given goal and history (paper, appendix
A.4).
"""

import math
from pathlib import Path

from datasets import Dataset
from trl import SFTConfig as TrlSFTConfig
from trl import SFTTrainer

from recipe.checkpoints import Checkpoint
from recipe.config import SFTConfig
from recipe.data.examples import read_examples
from recipe.errors import ConfigError
from recipe.progress import SILENT, Progress
from recipe.text import format_plan, planner_messages
from recipe.training.loop import finish_training, renamed, shared_arguments, uses_bf16
from recipe.training.metrics import MetricsLog, Row
from recipe.training.policy import load_policy, lora_config
from recipe.training.quiet import Unreported, quiet
from recipe.training.runs import Run, open_run
from recipe.types import Example

_FIELDS = {
    "loss": "loss",
    "learning_rate": "learning_rate",
    "mean_token_accuracy": "token_accuracy",
    "grad_norm": "grad_norm",
    "step_seconds": "step_seconds",
}


class QuietSFTTrainer(Unreported, SFTTrainer):  # type: ignore[misc]
    """TRL's trainer, silent."""


def train_sft(config: SFTConfig, progress: Progress = SILENT) -> Path:
    """Fine-tune adapters on the examples and merge them; returns the model's folder.

    A finished run returns at once, a killed one resumes from its newest checkpoint with the same result.
    Raises InputError for a model or examples that cannot be read, ConfigError for a run folder of other
    settings, ComputeError where training diverges.
    """
    run = open_run("sft", config, config.output, {"examples": config.examples, "model": Path(config.model)})
    if run.finished:
        return run.model
    examples = read_examples(config.examples, config.split)
    log = MetricsLog(run.folder, config.metrics, run.manifest, _row)
    with quiet():
        policy = load_policy(config.model, config.revision, bf16=uses_bf16(config))
        trainer = sft_trainer(config, policy, examples, run)
        if not len(trainer.train_dataset):
            raise ConfigError(f"no continuation begins within max_tokens, {config.max_tokens}; raise it.")
        total = config.epochs * math.ceil(len(examples) / config.batch_size)
        return finish_training(trainer, run, log, "SFT", total, progress)


def sft_trainer(config: SFTConfig, policy: Checkpoint, examples: list[Example], run: Run) -> SFTTrainer:
    """The trainer of one run; labels outside the assistant's turn are masked."""
    micro = config.micro_batch or config.batch_size
    arguments = TrlSFTConfig(
        **shared_arguments(config, run),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=config.batch_size // micro,
        num_train_epochs=config.epochs,
        learning_rate=config.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=config.warmup,
        max_length=config.max_tokens,
        completion_only_loss=True,
    )
    return QuietSFTTrainer(
        model=policy.model,
        args=arguments,
        train_dataset=Dataset.from_list([_row_of(example) for example in examples]),
        processing_class=policy.tokenizer,
        peft_config=lora_config(config.lora, policy.model),
    )


def _row_of(example: Example) -> dict[str, list[dict[str, str]]]:
    reply = {"role": "assistant", "content": format_plan(example.continuation)}
    return {"prompt": planner_messages(example.goal, example.history), "completion": [reply]}


def _row(record: Row) -> Row | None:
    return renamed(record, _FIELDS)
