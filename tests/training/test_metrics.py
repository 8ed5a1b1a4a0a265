import importlib.util
from pathlib import Path
from typing import Any

import pytest

from recipe.artifacts import read_jsonl
from recipe.errors import MissingExtra
from recipe.training.loop import MetricsLog


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
    with pytest.raises(MissingExtra, match=r"pip install 'recipe-planner\[wandb\]'"):
        MetricsLog(tmp_path, ["wandb"], {}, losses)
