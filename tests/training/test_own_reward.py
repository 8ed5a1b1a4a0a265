"""A run on a reward of the user's own: what is recorded of it, and what happens when its code has changed."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recipe.artifacts import read_jsonl
from recipe.cli import app
from recipe.config import GRPOConfig, RewardConfig
from recipe.corpus.store import Corpus
from recipe.errors import ConfigError, FunctionFailed
from recipe.functions import name_of, pinned
from recipe.reward.verifier import Verifier
from recipe.training.grpo import train_grpo
from recipe.training.rewards import open_reward_run

SOURCE = "def few(goal, history, plan):\n    return 1 / (1 + len(plan))\n"


def shorter(goal: str, history: list[str], plan: list[str]) -> float:
    return -float(len(plan))


def opened(config: GRPOConfig, scorer: Verifier | None = None) -> dict[str, Any]:
    """The record of the run that these settings open."""
    with ExitStack() as closing:
        _, _, run = open_reward_run("grpo", config, scorer, closing)
        return run.record


def test_a_run_is_of_the_function_and_its_source(
    world_run: dict[str, Any], tmp_path: Path, own_module: Callable[[str, str], str], check: Callable[..., Any]
) -> None:
    name = f"{own_module('own_trained', SOURCE)}:few"
    config = GRPOConfig(**world_run, output=tmp_path / "run", reward=RewardConfig(verifier=name))
    first = pinned(name)
    record = opened(config)
    assert record["reward"] == record["config"]["reward"]["verifier"] == first
    (config.output / "checkpoints" / "checkpoint-1").mkdir(parents=True)
    assert opened(config) == record
    found = check("grpo", config)
    assert (found["reward"]["state"], found["output"]["state"]) == ("ok", "ok")

    own_module("own_trained", SOURCE.replace("1 +", "2 +"))
    with pytest.raises(ConfigError, match=r"reward\.verifier") as raised:
        opened(config)
    assert first[:16] in str(raised.value)
    found = check("grpo", config)
    assert (found["reward"]["state"], found["output"]["state"]) == ("ok", "missing")


def test_a_verifier_made_of_a_function_is_recorded_too(world_run: dict[str, Any], tmp_path: Path) -> None:
    config = GRPOConfig(**world_run, output=tmp_path / "run")
    assert opened(config, Verifier(Corpus.open(world_run["corpus"]), shorter))["reward"] == name_of(shorter)


def test_a_missing_function_is_found_before_the_run(
    world_run: dict[str, Any], tmp_path: Path, check: Callable[..., Any]
) -> None:
    config = GRPOConfig(**world_run, output=tmp_path / "run", reward=RewardConfig(verifier="own_nowhere:few"))
    found = check("grpo", config)
    assert not found["ready"]
    assert "own_nowhere" in found["reward"]["sentence"]


def test_a_function_that_always_fails_ends_the_run(world_run: dict[str, Any], tmp_path: Path) -> None:
    def broken(goal: str, history: list[str], plan: list[str]) -> float:
        raise LookupError("no table")

    config = GRPOConfig(**world_run, output=tmp_path / "run")
    with pytest.raises(FunctionFailed, match="no table"):
        train_grpo(config, Verifier(Corpus.open(world_run["corpus"]), broken))


@pytest.mark.thorough
@pytest.mark.parametrize("stage", ["grpo", "best-of-n"])
def test_the_command_trains_on_it(
    stage: str, world_run: dict[str, Any], own_module: Callable[[str, str], str], tmp_path: Path
) -> None:
    name = f"{own_module('own_command_trained', SOURCE)}:few"
    sizes = {"grpo": {}, "best-of-n": {"prompts_per_round": 4, "n": 2}}[stage]
    keys = ("model", "examples", "corpus", "max_completion_tokens", *(["steps"] if stage == "grpo" else []))
    given = {key: world_run[key] for key in keys} | sizes | {"output": "run", "metrics": []}
    values = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    (tmp_path / "run.toml").write_text("\n".join([*lines, "[reward]", f'verifier = "{name}"']))
    result = CliRunner().invoke(app, ["train", stage, "run.toml"], catch_exceptions=False)
    assert result.exit_code == 0
    assert json.loads(Path("run/run.json").read_text())["reward"] == pinned(name)
    rows = [row for file in sorted(Path("run/completions").glob("*.jsonl")) for _, row in read_jsonl(file)]
    assert rows
    for row in rows:
        assert row["reward"]["total"] == pytest.approx(1 / (1 + row["reward"]["steps"]))
