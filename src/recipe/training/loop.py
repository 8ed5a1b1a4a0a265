"""What SFT and GRPO share around a TRL trainer: arguments, callbacks, resuming, and the merged model at the
end.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, Trainer, TrainerCallback

from recipe.config import TrainingSettings
from recipe.errors import ComputeError
from recipe.progress import Advance, Progress
from recipe.training.metrics import MetricsLog, Row
from recipe.training.policy import on_cuda, save_merged, written_in_words
from recipe.training.runs import Run, mark_complete
from recipe.vision import VideoProcessor

KEPT_CHECKPOINTS = 2


def uses_bf16(config: TrainingSettings) -> bool:
    """Whether to compute in bfloat16: as set, or on CUDA only."""
    return on_cuda() if config.bf16 is None else config.bf16


def shared_arguments(config: TrainingSettings, run: Run) -> dict[str, Any]:
    """Arguments of any TRL trainer: it writes nothing but checkpoints and sends nothing anywhere."""
    return {
        "output_dir": str(run.checkpoints),
        "optim": "adamw_torch_fused",
        "bf16": uses_bf16(config),
        "use_cpu": not on_cuda(),
        "gradient_checkpointing": config.gradient_checkpointing,
        "save_strategy": "steps",
        "save_steps": config.save_every,
        "save_total_limit": KEPT_CHECKPOINTS,
        "logging_strategy": "steps",
        "logging_steps": config.log_every,
        "logging_nan_inf_filter": False,
        "report_to": [],
        "disable_tqdm": True,
        "seed": config.seed,
    }


class Reporter(TrainerCallback):  # type: ignore[misc]
    """Hands the trainer's events to our progress, metrics and checkpoint marks."""

    def __init__(self, run: Run, log: MetricsLog, advance: Advance) -> None:
        self._run, self._log, self._advance = run, log, advance
        self._steps = 0
        self._stopped = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._log.open(state.log_history)
        self._advance(state.global_step)
        self._stopped = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._steps += 1
        self._advance(1)

    def on_log(self, args: Any, state: Any, control: Any, logs: Row, **_: Any) -> None:
        if "loss" not in logs or not self._steps:
            return
        now = time.monotonic()
        # Into the trainer's own record too, so that a checkpoint keeps it.
        seconds = (now - self._stopped) / self._steps
        state.log_history[-1]["step_seconds"] = seconds
        self._stopped, self._steps = now, 0
        self._log.write(state.log_history[-1])

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        mark_complete(self._run.checkpoints / f"checkpoint-{state.global_step}")

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._log.close()


def finish_training(
    trainer: Trainer,
    run: Run,
    log: MetricsLog,
    title: str,
    total: int,
    progress: Progress,
    video: VideoProcessor | None = None,
) -> Path:
    """Train from the newest checkpoint on, if there is one, to the merged model; returns its folder."""
    began = time.monotonic()
    checkpoint = run.latest_checkpoint()
    trainer.remove_callback(PrinterCallback)
    with progress.task(title, total) as advance:
        trainer.add_callback(Reporter(run, log, advance))
        # A pass of the model is a sign of life between two steps.
        pulse = trainer.model.get_base_model().register_forward_pre_hook(lambda *_: advance(0))
        try:
            with written_in_words(run.checkpoints):
                trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        finally:
            pulse.remove()
            log.close()
    check_finite(trainer)
    save_merged(trainer.model, trainer.processing_class, run.model, video)
    return run.finish(time.monotonic() - began)


def check_finite(trainer: Trainer) -> None:
    """Raises ComputeError where training has destroyed the weights: a model of NaN is not a result."""
    for name, weight in trainer.model.named_parameters():
        if weight.requires_grad and not torch.isfinite(weight).all():
            raise ComputeError(f"Training diverged: {name} is no longer finite; lower the learning rate.")


def renamed(record: Row, names: dict[str, str], derive: Callable[[Row], Row] = lambda _: {}) -> Row | None:
    """The fields of a step's record under our names; None for a record that is not about a step."""
    if "loss" not in record or "step_seconds" not in record:
        return None
    row: Row = {"step": record["step"]}
    row.update({ours: record[theirs] for theirs, ours in names.items() if theirs in record})
    row.update(derive(record))
    return row
