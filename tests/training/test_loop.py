import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recipe.artifacts import read_jsonl, write_jsonl
from recipe.config import SFTConfig
from recipe.errors import ComputeError, InputError, MissingExtra
from recipe.training.loop import MetricsLog, check_finite, memory_errors
from recipe.training.runs import Run


def losses(record: dict[str, Any]) -> dict[str, Any] | None:
    return {"step": record["step"], "loss": record["loss"]} if "loss" in record else None


def run_of(folder: Path, *metrics: str, **tracking: Any) -> Run:
    config = SFTConfig.model_validate(
        {"model": "m", "examples": "e.jsonl", "output": folder, "metrics": metrics, "tracking": tracking}
    )
    return Run(folder, config, {"stage": "sft", "config": {"seed": 0, "lora": {"rank": 8}}})


def test_resuming_rewrites_the_rows_up_to_the_checkpoint(tmp_path: Path) -> None:
    log = MetricsLog(run_of(tmp_path, "tensorboard"), losses)
    log.open([])
    for step in (1, 2, 3):
        log.write({"step": step, "loss": float(step)})
    log.close()
    resumed = MetricsLog(run_of(tmp_path, "tensorboard"), losses)
    resumed.open([{"step": 1, "loss": 1.0}, {"step": 2, "loss": 2.0}, {"step": 2, "runtime": 9.0}])
    resumed.write({"step": 3, "loss": 33.0})
    resumed.close()
    rows = [row for _, row in read_jsonl(tmp_path / "metrics.jsonl")]
    assert rows == [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 2.0}, {"step": 3, "loss": 33.0}]
    assert list((tmp_path / "logs").glob("events.*"))


@pytest.mark.parametrize("kind", ["wandb", "trackio", "mlflow"])
def test_a_tracker_is_asked_for_by_name(kind: str, tmp_path: Path, without: Callable[[str], None]) -> None:
    without(kind)
    with pytest.raises(MissingExtra, match=rf"pip install .*\[{kind}\]'"):
        MetricsLog(run_of(tmp_path, kind), losses)
    assert not list(tmp_path.iterdir())


class Tracked(SimpleNamespace):
    """The calls of W&B, Trackio and MLflow that trackers make, as a module that writes them down."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.settings: dict[str, Any] = {}
        self.numbers: list[tuple[int, dict[str, float]]] = []
        self.tables: list[tuple[int, list[list[Any]]]] = []
        self.ended = 0
        self.__spec__ = ModuleSpec("tracked", None)  # as of any module that was imported
        validation = SimpleNamespace(MAX_PARAM_VAL_LENGTH=500, MAX_PARAMS_TAGS_PER_BATCH=100)
        super().__init__(config=SimpleNamespace(update=self.configure), utils=SimpleNamespace(validation=validation))

    def init(self, **names: Any) -> "Tracked":
        self.begun.append(names)
        return self

    def configure(self, values: dict[str, Any], **_: Any) -> None:
        self.settings |= values

    def Table(self, columns: Any = None, data: Any = None, dataframe: Any = None) -> dict[str, Any]:
        return {"columns": columns, "rows": data}

    def log(self, values: dict[str, Any], step: int) -> None:
        if "plans" in values:
            self.tables.append((step, values["plans"]["rows"]))
        else:
            self.numbers.append((step, values))

    def finish(self) -> None:
        self.ended += 1

    def search_experiments(self, filter_string: str) -> list[Any]:
        return []

    def create_experiment(self, name: str, **_: Any) -> str:
        return name

    def start_run(self, experiment_id: str, run_name: str, **_: Any) -> None:
        self.begun.append({"project": experiment_id, "name": run_name})

    log_params, log_metrics, end_run = configure, log, finish

    def log_table(self, values: dict[str, list[Any]], file: str) -> None:
        step = int(Path(file).stem.rpartition("-")[2])
        self.tables.append((step, [list(row) for row in zip(*values.values(), strict=True)]))


@pytest.mark.parametrize("kind", ["wandb", "trackio", "mlflow"])
def test_metrics_and_plans_go_to_a_tracker(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracked = Tracked()
    monkeypatch.setitem(sys.modules, kind, tracked)  # type: ignore[arg-type]
    log = MetricsLog(run_of(tmp_path, kind, project="mine", run="first"), losses)
    log.open([{"step": 1, "loss": 1.0}])
    steps = (2, 3, 51, 52, 102)
    for step in steps:
        record = {"goal": f"goal {step}", "completion": "1. Pour", "reward": {"total": 0.5} if step > 2 else None}
        write_jsonl(tmp_path / "completions" / f"step-{step:05d}.jsonl", [record] * 9)
        log.write({"step": step, "loss": float(step)})
    log.close()
    assert [(names["project"], names["name"]) for names in tracked.begun] == [("mine", "first")]
    assert tracked.settings["stage"] == "sft"
    assert tracked.numbers == [(step, {"loss": float(step)}) for step in steps]
    plans = {step: [[f"goal {step}", "1. Pour", None if step == 2 else 0.5]] * 8 for step in (2, 52, 102)}
    assert dict(tracked.tables) == plans
    assert tracked.ended == 1
    assert len(list(read_jsonl(tmp_path / "metrics.jsonl"))) == 1 + len(steps)


def test_a_tracker_that_cannot_begin_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracked = Tracked()
    tracked.init = lambda **_: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    monkeypatch.setitem(sys.modules, "wandb", tracked)  # type: ignore[arg-type]
    log = MetricsLog(run_of(tmp_path, "tensorboard", "wandb"), losses)
    with pytest.raises(InputError, match="wandb"):
        log.open([])


@pytest.mark.filterwarnings("ignore")  # of the trackers about their own packages
@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_the_trackers_themselves_take_what_is_sent(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(kind)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlflow").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    log = MetricsLog(run_of(tmp_path / "run", kind), losses)
    log.open([])
    write_jsonl(tmp_path / "run" / "completions" / "step-00001.jsonl", [{"goal": "g", "completion": "1. Pour"}])
    log.write({"step": 1, "loss": 2.0})
    log.close()
    kept = {"wandb": "run/wandb/offline-run-*/*.wandb", "mlflow": "mlflow/*/*/metrics/loss"}
    assert list(tmp_path.glob(kept[kind]))
    assert capsys.readouterr().out == ""


def test_weights_that_are_no_numbers_are_no_result() -> None:
    model = torch.nn.Linear(2, 2)
    check_finite(model)
    torch.nn.init.constant_(model.weight, float("nan"))
    with pytest.raises(ComputeError, match="lower the learning rate"):
        check_finite(model)


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has"), "2.50 GiB"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes."),
            "64",
        ),
        (MemoryError(), ""),
    ],
)
def test_memory_that_does_not_suffice_names_the_settings(error: Exception, asked: str) -> None:
    told = f"{asked}.*micro_batch, max_completion_tokens.*gradient_checkpointing"
    with pytest.raises(ComputeError, match=told), memory_errors():
        raise error
    with pytest.raises(RuntimeError, match="another"), memory_errors():
        raise RuntimeError("another")


def test_an_allocation_that_fails_is_one() -> None:
    with pytest.raises(ComputeError, match="bytes more; lower micro_batch"), memory_errors():
        torch.empty(1 << 52, dtype=torch.uint8)
