"""Supervised fine-tuning: cross-entropy on the continuation only, given goal and history (paper, appendix A.4).

The history is text, or with `input = "video"` the frames before the cut.
"""

import math
import random
from functools import partial
from pathlib import Path
from typing import Any

import torch
import trl
from datasets import Dataset

from recipe.config.training import SFTConfig
from recipe.data.examples import read_training_examples
from recipe.errors import ConfigError
from recipe.models.checkpoints import Checkpoint, end_of_turn
from recipe.models.devices import use_bf16
from recipe.progress import SILENT, Progress
from recipe.text import format_plan
from recipe.training import ranks
from recipe.training.loop import MetricsLog, SilentTrainer, can_share, fit, quiet, read_head, renamed, shared_arguments
from recipe.training.policy import load_policy, lora_config
from recipe.training.runs import Run, open_run, run_inputs, run_prompt
from recipe.training.video import Collator, Histories, VideoPrompts, VideoSFTTrainer, VideoSource, video_source
from recipe.types import Example

_FIELDS = {
    "loss": "loss",
    "learning_rate": "learning_rate",
    "mean_token_accuracy": "token_accuracy",
    "grad_norm": "grad_norm",
    "step_seconds": "step_seconds",
}


class SilentSFTTrainer(SilentTrainer, trl.SFTTrainer):  # type: ignore[misc]
    """TRL's trainer, silent, which reads once what all rows of a pass begin with: the system's turn and more."""

    shares_head = True

    def compute_loss(self, model: Any, inputs: dict[str, Any], *options: Any, **more: Any) -> Any:
        """TRL's loss, of rows that go on from what all begin with; gradients flow through that, too."""
        ids, labels, mask = inputs["input_ids"], inputs["labels"], inputs["attention_mask"]
        alike = (ids == ids[0]).all(0) & (labels == -100).all(0) & mask.bool().all(0)
        # The last token that is alike stays with the rows: a label behind it is predicted there.
        head = int(alike.long().cumprod(0).sum()) - 1
        body = self.accelerator.unwrap_model(self.model).get_base_model().base_model
        if self.shares_head and len(ids) > 1 and head > 0 and can_share(body):
            inputs |= {
                "input_ids": ids[:, head:],
                "labels": labels[:, head:],
                "position_ids": torch.arange(head, ids.shape[1], device=ids.device).expand(len(ids), -1),
                "past_key_values": read_head(body, ids[:1, :head], len(ids)),
            }
        return super().compute_loss(model, inputs, *options, **more)


@ranks.distributed_run()
def train_sft(config: SFTConfig, progress: Progress = SILENT, histories: Histories | None = None) -> Path:
    """Fine-tune adapters on the examples and merge them; returns the model's folder.

    With `input = "video"`, `histories` show the examples' histories in place of the videos of `config.videos`, anew
    at each use. A finished run returns at once, a killed one resumes from its newest checkpoint with the same result.
    Raises InputError for a model, examples or videos that cannot be read, ConfigError for a run folder of other
    settings, ComputeError where training diverges.
    """
    inputs = run_inputs(config)
    source = video_source(config, histories)
    if source is not None:
        inputs["videos"] = source.held
    run = open_run("sft", config, config.output, inputs)
    if ranks.from_main(lambda: run.finished):
        return run.model
    log = MetricsLog(run, partial(renamed, names=_FIELDS))
    with quiet():
        policy = load_policy(config.model, config.revision, bf16=use_bf16(config.bf16))
        policy = policy if source is None else source.bounding(policy)
        examples = read_training_examples(config.examples, config.split) if source is None else source.examples
        trainer = sft_trainer(config, policy, examples, run, source)
        if not len(trainer.train_dataset):
            raise ConfigError(f"no continuation begins within max_tokens, {config.max_tokens}; raise it.")
        total = config.epochs * math.ceil(len(examples) / config.batch_size)
        if source is not None:  # whose epochs are one of the trainer's
            total = math.ceil(len(trainer.train_dataset) / config.batch_size)
        return fit(trainer, run, log, "SFT", total, progress, policy.video)


def sft_trainer(
    config: SFTConfig, policy: Checkpoint, examples: list[Example], run: Run, source: VideoSource | None = None
) -> trl.SFTTrainer:
    """The trainer of one run, from text or from the videos of `source`; labels outside the assistant's turn, of which
    its end is a part, are masked. Raises InputError for videos and a model of text.
    """
    steps = config.epochs * math.ceil(len(examples) / config.batch_size)
    micro, accumulated = ranks.passes(config.batch_size, config.micro_batch, "batch_size")
    arguments: dict[str, Any] = {
        **shared_arguments(config, run),
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": accumulated,
        # Cosine after a warm-up over a tenth of the steps; the paper's peak is 2e-4 (appendix A.4).
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "cosine",
        # A step of the warm-up has the rate 0: a run of one step would learn nothing.
        "warmup_steps": config.warmup if steps > 1 else 0,
        "completion_only_loss": True,
    }
    if source is None:
        prompt, end = run_prompt(config), end_of_turn(policy.tokenizer)
        # Where the template writes no end, none would be learned.
        ending = "" if end.written else end.token
        rows = [
            {
                "prompt": prompt.training_chat(example),
                "completion": [{"role": "assistant", "content": format_plan(example.continuation) + ending}],
            }
            for example in examples
        ]
        return SilentSFTTrainer(
            model=policy.model,
            args=trl.SFTConfig(**arguments, num_train_epochs=config.epochs, max_length=config.max_tokens),
            train_dataset=Dataset.from_list(rows),
            processing_class=policy.tokenizer,
            peft_config=lora_config(config.lora, policy.model),
        )
    # All epochs are laid out beforehand, in what TRL takes for one, so that a place in the run has one number `draw`,
    # by which a resumed run draws the same clips.
    order, count = random.Random(config.seed), len(examples)
    drawn = [index for _ in range(config.epochs) for index in order.sample(range(count), count)]
    arguments |= {"num_train_epochs": 1, "max_length": None, "remove_unused_columns": False}
    prompts = VideoPrompts(config.model, policy, source.histories)
    return VideoSFTTrainer(
        merger_rate=config.merger_learning_rate,
        model=policy.model,
        args=trl.SFTConfig(**arguments, dataset_kwargs={"skip_prepare_dataset": True}),
        train_dataset=Dataset.from_list([{"example": index, "draw": draw} for draw, index in enumerate(drawn)]),
        data_collator=Collator(prompts, examples, config.max_tokens, policy.tokenizer.pad_token_id),
        processing_class=policy.tokenizer,
        peft_config=lora_config(config.lora, policy.model, video=True),
    )
