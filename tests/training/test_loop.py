import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from recipe.artifacts import read_jsonl
from recipe.errors import ComputeError, MissingExtra
from recipe.training.loop import MetricsLog, check_finite, memory_errors


def losses(record: dict[str, Any]) -> dict[str, Any] | None:
    return {"step": record["step"], "loss": record["loss"]} if "loss" in record else None


def test_resuming_rewrites_the_rows_up_to_the_checkpoint(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, ["tensorboard"], {}, losses)
    log.open([])
    for step in (1, 2, 3):
        log.write({"step": step, "loss": float(step)})
    log.close()
    resumed = MetricsLog(tmp_path, ["tensorboard"], {}, losses)
    resumed.open([{"step": 1, "loss": 1.0}, {"step": 2, "loss": 2.0}, {"step": 2, "runtime": 9.0}])
    resumed.write({"step": 3, "loss": 33.0})
    resumed.close()
    rows = [row for _, row in read_jsonl(tmp_path / "metrics.jsonl")]
    assert rows == [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 2.0}, {"step": 3, "loss": 33.0}]
    assert list((tmp_path / "logs").glob("events.*"))


def test_weights_and_biases_is_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[wandb\]'"):
        MetricsLog(tmp_path, ["wandb"], {}, losses)


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
