"""What SFT and GRPO share around a TRL trainer: arguments, metrics, resuming, and the merged model at the end."""

import importlib.util
import json
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import datasets
import torch
import transformers
from transformers import PrinterCallback, Trainer, TrainerCallback

from recipe.artifacts import write_jsonl
from recipe.config import Metrics, TrainingSettings
from recipe.errors import ComputeError, MissingExtra
from recipe.models.checkpoints import quiet_loading
from recipe.models.vision import VideoProcessor
from recipe.progress import Advance, Progress
from recipe.training.policy import on_cuda, save_merged, written_in_words
from recipe.training.runs import Run, mark_complete

# Silence for the training packages: their bars, advice and warnings; ours is the only voice.


@contextmanager
def quiet() -> Iterator[None]:
    """Within it, the training packages report errors only."""
    verbosity = transformers.logging.get_verbosity()
    loggers = [logging.getLogger(name) for name in ("trl", "peft", "accelerate", "datasets")]
    levels = [logger.level for logger in loggers]
    transformers.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with quiet_loading(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(torch|transformers|trl|peft|accelerate|datasets)(\.|$)")
            # Raised in our name. The version of TRL is pinned, and a test runs the hook.
            warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        datasets.enable_progress_bars()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class Unreported:
    """Mixed into a TRL trainer, keeps it from reporting to the hub and from writing model cards."""

    def _send_telemetry(self) -> None:
        return

    def create_model_card(self, *_: object, **__: object) -> None:
        return


# Metrics of a run: one row an optimiser step in `metrics.jsonl`, and the same numbers to TensorBoard or W&B.
#
# Rows come from the trainer's own history, which a checkpoint holds: a resumed run first writes the rows up
# to its checkpoint and goes on from there, so that no step is missing or stands twice.


Row = dict[str, Any]


class Sink(Protocol):
    """A place that metrics are sent to while a run goes on."""

    def write(self, row: Row) -> None:
        """Send one step's numbers."""

    def close(self) -> None:
        """Flush and end."""


class JsonLines:
    """`metrics.jsonl`: rewritten up to the resumed step, then appended to."""

    def __init__(self, path: Path, earlier: Sequence[Row]) -> None:
        write_jsonl(path, earlier)
        self._stream = path.open("a", encoding="utf-8")

    def write(self, row: Row) -> None:
        self._stream.write(json.dumps(row) + "\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


class TensorBoard:
    """Scalars in `logs/`; on resuming, what came after the checkpoint is hidden from view."""

    def __init__(self, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - a second of import, and optional

        self._writer = SummaryWriter(str(folder), purge_step=first_step)

    def write(self, row: Row) -> None:
        for name, value in row.items():
            if name != "step" and value is not None:
                self._writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of the project `recipe`, named for its folder."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        import wandb  # noqa: PLC0415 - optional

        self._run = wandb.init(project="recipe", name=folder.name, dir=str(folder), config=dict(config))

    def write(self, row: Row) -> None:
        self._run.log(row, step=row["step"])

    def close(self) -> None:
        self._run.finish()


class MetricsLog:
    """All sinks of a run, fed with rows made by `shape` from the trainer's records."""

    def __init__(
        self,
        folder: Path,
        kinds: Sequence[Metrics],
        config: Mapping[str, Any],
        shape: Callable[[Row], Row | None],
    ) -> None:
        if "wandb" in kinds and importlib.util.find_spec("wandb") is None:
            raise MissingExtra("metrics = ['wandb']", "wandb")
        self._folder, self._kinds, self._config, self._shape = folder, kinds, config, shape
        self._sinks: list[Sink] = []

    def open(self, history: Sequence[Row]) -> None:
        """Begin, with the trainer's records up to the step that is resumed from."""
        earlier = [row for record in history if (row := self._shape(record)) is not None]
        first = earlier[-1]["step"] + 1 if earlier else 1
        self._sinks = [JsonLines(self._folder / "metrics.jsonl", earlier)]
        if "tensorboard" in self._kinds:
            self._sinks.append(TensorBoard(self._folder / "logs", first))
        if "wandb" in self._kinds:
            self._sinks.append(WeightsAndBiases(self._folder, self._config))

    def write(self, record: Row) -> None:
        """Send one of the trainer's records, unless it is not about a step."""
        row = self._shape(record)
        if row is not None:
            for sink in self._sinks:
                sink.write(row)

    def close(self) -> None:
        """End all sinks."""
        for sink in self._sinks:
            sink.close()
        self._sinks = []


# What SFT and GRPO share around a TRL trainer: arguments, callbacks, resuming, and the merged model at the
# end.


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
