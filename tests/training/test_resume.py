"""Runs that are killed and started again end as ones that were never stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from recipe.artifacts import read_jsonl
from recipe.config import BaseModelConfig, GRPOConfig, SFTConfig
from recipe.training.base import train_base
from recipe.training.grpo import train_grpo
from recipe.training.sft import train_sft

SAVED, KILLED, STEPS = 4, 5, 6
"""The last checkpoint, the step at whose end the run is killed, and all steps."""

# One process loads the packages, and a child of it is killed in each run.
DOOMED = f"""
import json, os, signal, sys
from contextlib import contextmanager
from recipe.config import BaseModelConfig, GRPOConfig, SFTConfig
from recipe.training.base import train_base
from recipe.training.grpo import train_grpo
from recipe.training.sft import train_sft
sys.path.insert(0, sys.argv[1])
from conftest import LengthScorer, Paintings

class Deadly:
    @contextmanager
    def task(self, name, total=None):
        done = []
        def advance(count):
            done.extend([count] * count)
            if len(done) == {KILLED}:
                os.kill(os.getpid(), signal.SIGKILL)
        yield advance

for name, text in json.loads(sys.argv[2]).items():
    child = os.fork()
    if child == 0:
        shown = Paintings() if "video" in name else None
        if "grpo" in name:
            train_grpo(GRPOConfig.model_validate_json(text), LengthScorer(), Deadly(), shown)
        elif "base" in name:
            train_base(BaseModelConfig.model_validate_json(text), Deadly())
        else:
            train_sft(SFTConfig.model_validate_json(text), Deadly(), shown)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL, name
"""


@pytest.fixture(scope="module")
def killed(
    base_model: Path,
    base_config: BaseModelConfig,
    video_model: Path,
    examples_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """The settings of runs that were killed after a checkpoint and a step."""
    folder = tmp_path_factory.mktemp("killed")
    shared = {"examples": examples_file, "save_every": 2, "learning_rate": 1e-2, "metrics": ()}
    seeing = {**shared, "model": str(video_model), "input": "video", "merger_learning_rate": 1e-3}
    sft = {"epochs": 2, "batch_size": 4}
    grpo = {"corpus": folder / "none", "steps": STEPS, "prompts_per_step": 2, "max_completion_tokens": 12}
    runs = {
        "base": base_config.model_copy(update={"steps": STEPS, "save_every": 2, "output": folder / "base"}),
        "sft": SFTConfig(**shared, **sft, model=str(base_model), output=folder / "sft"),
        "grpo": GRPOConfig(
            **{**shared, "metrics": ("tensorboard",)}, **grpo, model=str(base_model), output=folder / "grpo"
        ),
        "video-sft": SFTConfig(**seeing, **sft, output=folder / "video-sft"),
        "video-grpo": GRPOConfig(**seeing, **grpo, output=folder / "video-grpo"),
    }
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    settings = json.dumps({name: run.model_dump_json() for name, run in runs.items()})
    doomed = [sys.executable, "-c", DOOMED, str(Path(__file__).parent), settings]
    subprocess.run(doomed, env=environment, check=True)
    return runs


def metrics(config: BaseModelConfig | SFTConfig | GRPOConfig) -> list[dict[str, Any]]:
    """The rows of a run without what depends on the clock."""
    rows = [row for _, row in read_jsonl(config.output / "metrics.jsonl")]
    return [{key: row[key] for key in row if "second" not in key and key != "reward_share"} for row in rows]


def trained(config: BaseModelConfig | SFTConfig | GRPOConfig, scorer: Any, shown: Any) -> Path:
    if isinstance(config, BaseModelConfig):
        return train_base(config)
    if isinstance(config, SFTConfig):
        return train_sft(config, histories=shown)
    return train_grpo(config, scorer, histories=shown)


@pytest.mark.parametrize("name", ["base", "sft", "grpo", "video-sft", "video-grpo"])
def test_a_killed_run_resumes_to_the_same_result(
    name: str, killed: dict[str, Any], scorer: Any, paintings: Any
) -> None:
    config = killed[name]
    assert (config.output / f"checkpoints/checkpoint-{SAVED}/complete.json").is_file()
    if name != "base":  # whose rows are written at the end
        assert [row["step"] for row in metrics(config)] == list(range(1, KILLED))
    assert not (config.output / "model").exists()
    whole = config.model_copy(update={"output": config.output.with_name(f"{name}-whole")})
    shown = paintings if "video" in name else None
    models = [trained(one, scorer, shown) for one in (config, whole)]
    weights = [load_file(model / "model.safetensors") for model in models]
    assert all(torch.equal(weight, weights[1][place]) for place, weight in weights[0].items())
    assert (models[0] / "tokenizer.json").read_bytes() == (models[1] / "tokenizer.json").read_bytes()
    assert metrics(config) == metrics(whole)
    assert len(metrics(config)) == STEPS
    written = [sorted((one.output / "completions").glob("*")) for one in (config, whole)]
    assert [file.name for file in written[0]] == [file.name for file in written[1]]
    assert [file.read_text() for file in written[0]] == [file.read_text() for file in written[1]]
    assert len(written[0]) == (STEPS if name.endswith("grpo") else 0)
