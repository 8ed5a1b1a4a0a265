"""What our trainers share around TRL: silence, arguments, log-probabilities, metrics, resuming, the merged model."""

import json
import logging
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from accelerate import DistributedType, PartialState
from accelerate.tracking import GeneralTracker, MLflowTracker, TensorBoardTracker, TrackioTracker, WandBTracker
from peft import PeftModel
from transformers import (
    DynamicCache,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
)
from transformers.trainer import TRAINER_STATE_NAME

from recipe.artifacts import read_jsonl, write_jsonl
from recipe.config.training import LOG_EVERY, PLANS, PLANS_EVERY, Metrics, TrainingSettings, tracking_packages
from recipe.errors import ComputeError, InputError, first_line, require_packages
from recipe.models.checkpoints import quiet_loading
from recipe.models.devices import use_bf16
from recipe.models.vision import VideoProcessor
from recipe.progress import SILENT, Advance, Progress
from recipe.training import ranks
from recipe.training.policy import save_model, write_errors
from recipe.training.runs import Run, step_of
from recipe.training.validation import Validation

Row = dict[str, Any]


@contextmanager
def quiet() -> Iterator[None]:
    """Within it, the training packages show no bars and report errors only."""
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


class SilentTrainer:
    """Mixed into a TRL trainer, keeps it from reporting to the hub and from writing model cards."""

    def _send_telemetry(self) -> None:
        return

    def create_model_card(self, *_: object, **__: object) -> None:
        return


def can_share(body: PreTrainedModel) -> bool:
    """Whether rows may go on from one reading of what they begin with: not with checkpoints of activations, with states
    in place of keys and values, or where a wrapper gathers the weights for each pass.
    """
    kinds = getattr(body.config.get_text_config(), "layer_types", None) or ["full_attention"]
    whole = PartialState().distributed_type in (
        DistributedType.NO,
        DistributedType.MULTI_GPU,
        DistributedType.MULTI_CPU,
    )
    return whole and {*kinds} <= {"full_attention"} and not body.is_gradient_checkpointing


def read_head(model: Any, head: torch.Tensor, rows: int, **options: Any) -> DynamicCache:
    """The cache from which so many `rows` go on behind the tokens that they begin with, [1, tokens], read once."""
    cache = DynamicCache()
    model(input_ids=head, past_key_values=cache, use_cache=True, **options)
    cache.batch_repeat_interleave(rows)
    return cache


def shared_arguments(config: TrainingSettings, run: Run) -> dict[str, Any]:
    """Arguments of any TRL trainer: it writes nothing but checkpoints and sends nothing anywhere."""
    return {
        "output_dir": str(run.checkpoints),
        "optim": "adamw_torch_fused",
        "bf16": use_bf16(config.bf16),
        "use_cpu": not torch.cuda.is_available(),
        "gradient_checkpointing": config.gradient_checkpointing,
        "save_strategy": "steps",
        "save_steps": config.save_every,
        "logging_strategy": "steps",
        "logging_steps": LOG_EVERY,
        # A loss that is not finite must show as such: the filter would repeat the last finite one.
        "logging_nan_inf_filter": False,
        "report_to": [],
        "disable_tqdm": True,
        # Every pass uses all that is trained.
        "ddp_find_unused_parameters": False,
        "seed": config.seed,
    }


def fit(
    trainer: Trainer,
    run: Run,
    log: "MetricsLog",
    title: str,
    total: int,
    progress: Progress,
    video: VideoProcessor | None = None,
    validation: Validation | None = None,
) -> Path:
    """Train to the merged model, from the newest checkpoint if there is one; returns the model's folder.

    With `validation` the merged model is that of the step that it chooses.
    Raises ComputeError where training has destroyed the weights or memory does not suffice.
    """
    began = time.monotonic()
    # One process looks: two that look at different moments could resume from different steps.
    checkpoint = ranks.from_main(run.latest_checkpoint)
    if checkpoint is not None and not checkpoint.is_dir():
        problem = f"process {ranks.rank()} of the run does not see it"
        raise InputError.at(checkpoint, problem, "put `output` on a disk that all machines share")
    progress = progress if ranks.main() else SILENT
    # It would print every row to standard output, where only the result of a command belongs.
    trainer.remove_callback(PrinterCallback)
    if validation is not None:
        validation.open(None if checkpoint is None else step_of(checkpoint))
    with progress.task(title, total) as advance:
        trainer.add_callback(_RunCallback(trainer, run, log, advance, validation))
        # A pass of the model is a sign of life between two steps.
        pulse = trainer.model.get_base_model().register_forward_pre_hook(lambda *_: advance(0))
        try:
            with run.on_disk(), write_errors(run.checkpoints), memory_errors():
                if checkpoint is not None and validation is not None and validation.stopped:
                    # Nothing is left to train: the run was stopped between its end and its model.
                    trainer.state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
                    log.open(trainer.state.log_history)
                else:
                    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        finally:
            pulse.remove()
            with run.on_disk():
                log.close()
    step, rows = trainer.state.global_step, log.rows(trainer.state.log_history)
    figures, sentences = log.last, list[str]()
    if validation is not None:
        step = validation.restore(trainer.accelerator.unwrap_model(trainer.model))
        figures = next((row for row in rows if row["step"] == step), {}) | validation.figures
        sentences = validation.notes(total)
    check_finite(trainer.model)
    if ranks.main():
        finish_run(run, trainer.model, trainer.processing_class, step, figures, sentences, began, video)
    ranks.barrier()
    return run.model


def finish_run(
    run: Run,
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    step: int,
    figures: Mapping[str, Any],
    notes: Sequence[str],
    began: float,
    video: VideoProcessor | None = None,
) -> Path:
    """Write the model of a run with its card, record the end of the run, and return the model's folder.

    `began` is when the command began to train, by `time.monotonic`.
    """
    with run.on_disk():
        save_model(model, tokenizer, run.model, video, run.card(step, figures, notes, merged=True))
        return run.finish(time.monotonic() - began, notes)


@contextmanager
def memory_errors() -> Iterator[None]:
    """Raises ComputeError, saying which settings need less, where memory does not suffice."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # The allocator of a processor raises a plain RuntimeError with these words.
        short = isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
        if not short:
            raise
        size = re.search(r"allocate (\d+ bytes|[\d.]+ [KMG]iB)", str(error))
        raise ComputeError(
            f"Memory does not suffice{f' for {size[1]} more' if size else ''}; lower micro_batch, "
            "max_completion_tokens, max_tokens or completions_at_once, or set gradient_checkpointing = true. "
            "The same command resumes only with the same settings; set another `output` for others."
        ) from None


def check_finite(model: torch.nn.Module) -> None:
    """Raises ComputeError where a trained weight is not finite: a model of NaN is not a result."""
    for name, weight in model.named_parameters():
        if weight.requires_grad and not torch.isfinite(weight).all():
            raise ComputeError(f"Training diverged: {name} is no longer finite; lower the learning rate.")


def check_gradient(norm: torch.Tensor, step: int) -> None:
    """Raises ComputeError where the norm of a step's gradient is not finite: the step would destroy the weights."""
    if not torch.isfinite(norm):
        raise ComputeError(
            f"Training diverged: the gradient of step {step} is not finite; lower the learning rate, with another "
            "`output`. The run keeps its checkpoints."
        )


class _RunCallback(TrainerCallback):  # type: ignore[misc]
    """Hands the trainer's events to our progress, metrics and checkpoint marks, and validates where that is due."""

    def __init__(
        self, trainer: Trainer, run: Run, log: "MetricsLog", advance: Advance, validation: Validation | None
    ) -> None:
        self._trainer, self._run, self._log = trainer, run, log
        self._advance, self._validation = advance, validation
        self._steps = 0
        self._stopped = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._validation is not None and not self._validation.rows:
            self._validation.validate(self._trainer.accelerator.unwrap_model(self._trainer.model), 0)
        if ranks.main():
            self._log.open(state.log_history)
        self._advance(state.global_step)
        self._stopped = time.monotonic()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        # Before the step, after which all weights would be lost.
        check_gradient(torch.nn.utils.get_total_norm(gradients), state.global_step + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        validation = self._validation
        if validation is not None and validation.due(state.global_step, state.max_steps):
            validation.validate(self._trainer.accelerator.unwrap_model(self._trainer.model), state.global_step)
            if validation.stopped:
                control.should_training_stop = True
        self._steps += 1
        self._advance(1)

    def on_log(self, args: Any, state: Any, control: Any, logs: Row, **_: Any) -> None:
        if "loss" not in logs or not self._steps:
            return
        now = time.monotonic()
        # Into the trainer's own record too, so that a checkpoint keeps it.
        state.log_history[-1]["step_seconds"] = (now - self._stopped) / self._steps
        self._stopped, self._steps = now, 0
        self._log.write(state.log_history[-1])

    def on_save(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
        check_finite(model)  # a checkpoint that is not declared complete is none
        ranks.barrier()  # each process has written its random state
        if ranks.main():
            self._run.keep(state.global_step, self._log.last)
            # Only now no run goes back to a validation before this one, and to its adapter.
            if self._validation is not None:
                self._validation.prune()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._log.close()


class MetricsLog:
    """Metrics of a run: `metrics.jsonl` with one row an optimiser step, and the same where `metrics` says.

    `shape` makes a row of a trainer's record, or None for a record that is not about a step. Records come from the
    trainer's own history, which a checkpoint holds: a resumed run first writes the rows up to its checkpoint and goes
    on from there, so that every step has exactly one row. TensorBoard hides what came after the checkpoint.
    Raises MissingExtra.
    """

    def __init__(self, run: Run, shape: Callable[[Row], Row | None]) -> None:
        config = run.config
        assert isinstance(config, TrainingSettings)
        require_packages(tracking_packages(config.metrics))
        self._run, self._config, self._shape = run, config, shape
        self._writers: list[Callable[[Row], object]] = []
        self._closers: list[Callable[[], object]] = []
        # Step of the last table of plans.
        self._shown: int | None = None
        # The newest row.
        self.last: Row = {}

    def open(self, history: Sequence[Row]) -> None:
        """Begin, with the trainer's records up to the step that is resumed from.

        Raises InputError where a tracker cannot start.
        """
        earlier = self.rows(history)
        path = self._run.folder / "metrics.jsonl"
        write_jsonl(path, earlier)
        self.last = earlier[-1] if earlier else {}
        stream = path.open("a", encoding="utf-8")
        self._writers = [lambda row: print(json.dumps(row), file=stream, flush=True)]
        self._closers = [stream.close]
        trackers: list[GeneralTracker] = []
        for kind in self._config.metrics:
            try:
                trackers.append(self._tracker(kind, earlier[-1]["step"] + 1 if earlier else 1))
            except Exception as error:
                self.close()
                remedy = "log in as its documentation says, or leave it out"
                raise InputError(f"metrics = [{kind!r}]: {first_line(error)}; {remedy}.") from error
            self._writers.append(partial(_send_numbers, trackers[-1]))
            self._closers.append(trackers[-1].finish)
        if trackers:
            self._writers.append(partial(self._send_plans, trackers))

    def _tracker(self, kind: Metrics, first: int) -> GeneralTracker:
        """A started tracker; `first` is the step after the one that is resumed from."""
        PartialState()  # trackers ask which process this is
        project, folder = self._config.tracking.project, self._run.folder
        name = self._config.tracking.run or folder.resolve().name
        if kind == "tensorboard":
            tracker: GeneralTracker = TensorBoardTracker("logs", folder, purge_step=first)
        elif kind == "mlflow":
            tracker = MLflowTracker(project, run_name=name)
        else:
            own = {"dir": str(folder)} if kind == "wandb" else {}
            tracker = {"wandb": WandBTracker, "trackio": TrackioTracker}[kind](project, name=name, **own)
        with redirect_stdout(sys.stderr):  # Trackio tells there where its page is
            tracker.start()
        if kind != "tensorboard":
            tracker.store_init_configuration({"stage": self._run.record["stage"], **self._run.record["config"]})
        return tracker

    def _send_plans(self, trackers: Sequence[GeneralTracker], row: Row) -> None:
        """A table of the first plans of the step's record, where one is due and the trainer writes records."""
        file = f"round-{row['round']:02d}.jsonl" if "round" in row else f"step-{row['step']:05d}.jsonl"
        path = self._run.completions / file
        if not path.is_file() or (self._shown is not None and row["step"] < self._shown + PLANS_EVERY):
            return
        self._shown = row["step"]
        plans = [
            [record["goal"], record["completion"], (record.get("reward") or {}).get("total")]
            for _, record in islice(read_jsonl(path), PLANS)
        ]
        for tracker in trackers:
            _send_table(tracker, ["goal", "plan", "reward"], plans, row["step"])

    def rows(self, history: Sequence[Row]) -> list[Row]:
        """The trainer's records that are about a step, as rows."""
        return [row for record in history if (row := self._shape(record)) is not None]

    def write(self, record: Row) -> None:
        """Send one of the trainer's records, unless it is not about a step."""
        row = self._shape(record)
        if row is not None:
            self.last = row
            for write in self._writers:
                write(row)

    def close(self) -> None:
        """Flush and end."""
        with redirect_stdout(sys.stderr):
            for close in self._closers:
                close()
        self._writers, self._closers = [], []


def _send_numbers(tracker: GeneralTracker, row: Row) -> None:
    numbers = {name: value for name, value in row.items() if name != "step" and value is not None}
    tracker.log(numbers, step=row["step"])


def _send_table(tracker: GeneralTracker, columns: list[str], rows: list[list[Any]], step: int) -> None:
    """A table under the name `plans`; trackers have no common call for it."""
    if isinstance(tracker, WandBTracker):
        tracker.log_table("plans", columns, rows, step=step)
    elif isinstance(tracker, TrackioTracker):
        import trackio  # noqa: PLC0415 - optional

        tracker.log({"plans": trackio.Table(columns=columns, data=rows)}, step=step)
    elif isinstance(tracker, MLflowTracker):
        import mlflow  # noqa: PLC0415 - optional

        values = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
        mlflow.log_table(values, f"plans/step-{step:05d}.json")
    else:
        texts = (
            f"**{goal}** (reward {'none' if reward is None else f'{reward:.4g}'})\n\n{plan}"
            for goal, plan, reward in rows
        )
        tracker.log({"plans": "\n\n".join(texts)}, step=step)


def renamed(record: Row, names: Mapping[str, str]) -> Row | None:
    """The fields of a step's record under our names; None for a record that is not about a step."""
    if "loss" not in record or "step_seconds" not in record:
        return None
    return {"step": record["step"]} | {ours: record[theirs] for theirs, ours in names.items() if theirs in record}
