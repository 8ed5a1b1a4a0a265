import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peft import get_peft_model
from tests.conftest import Recipe

from recipe.config import BaseModelConfig, BestOfNConfig, GRPOConfig, SFTConfig
from recipe.data.examples import read_training_examples
from recipe.training.policy import load_policy, lora_config
from recipe.training.sft import train_sft

Check = Callable[..., Any]


def missing(found: Any) -> set[str]:
    return {one["subject"] for one in found["findings"] if one["state"] == "missing"}


def test_all_that_is_missing_is_found_at_once(tmp_path: Path, check: Check) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "other.txt").write_text("mine")
    config = GRPOConfig(
        model=str(tmp_path / "model"),
        examples=tmp_path / "none.jsonl",
        corpus=tmp_path / "corpus",
        output=tmp_path / "out",
        prompt=str(tmp_path / "prompt.txt"),
        validation={"examples": tmp_path / "val.jsonl"},
    )
    found = check("grpo", config, "--measure")
    assert "measurement" not in found
    assert missing(found) == {"examples", "model", "corpus", "output", "prompt", "validation"}
    assert (found["ready"], found["estimate"]) == (False, None)
    assert found["examples"]["sentence"] == f"{tmp_path / 'none.jsonl'}: the file does not exist; check the path."
    assert [file.name for file in tmp_path.iterdir()] == ["out"]  # nothing is written


def test_a_run_that_can_start_and_one_that_is_finished(
    base_model: Path, examples_file: Path, tmp_path: Path, check: Check
) -> None:
    settings = {"model": str(base_model), "examples": examples_file, "epochs": 1, "batch_size": 6, "metrics": ()}
    config = SFTConfig(**settings, output=tmp_path / "run")
    found = check("sft", config)
    assert found["ready"]
    assert {one["state"] for one in found["findings"]} == {"ok"}
    # No weights were loaded; these are.
    model, estimate = load_policy(str(base_model)).model, found["estimate"]
    assert estimate["parameters"] == model.num_parameters()
    adapted = get_peft_model(model, lora_config(config.lora, model))
    assert estimate["trained"] == adapted.get_nb_trainable_parameters()[0]
    assert estimate["memory"]["weights"] == 4 * estimate["parameters"]
    assert not (tmp_path / "run").exists()
    train_sft(config)
    assert "finished" in check("sft", config)["output"]["sentence"]
    other = check("sft", config.model_copy(update={"seed": 7}))
    assert (missing(other), other["ready"]) == ({"output"}, False)


@pytest.mark.parametrize(
    ("lines", "stage"),
    [
        ('examples = "e"\noutput = "o"\nsteps = 3', "base"),
        ('model = "m"\nexamples = "e"\noutput = "o"', "sft"),
        ('model = "m"\nexamples = "e"\noutput = "o"\ncorpus = "c"\nsteps = 3', "grpo"),
        ('model = "m"\nexamples = "e"\noutput = "o"\ncorpus = "c"\nn = 3', "best-of-n"),
    ],
)
def test_the_stage_follows_from_the_settings(lines: str, stage: str, recipe: Recipe, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(lines)
    assert json.loads(recipe("train", "check", path, "--json").out)["stage"] == stage


def test_settings_that_fit_several_stages_or_none(recipe: Recipe, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('model = "m"\nexamples = "e"\noutput = "o"\ncorpus = "c"')
    for chosen in (("--set", "stage=grpo"), ("--stage", "grpo")):
        assert json.loads(recipe("train", "check", path, *chosen, "--json").out)["stage"] == "grpo"
    path.write_text('model = "m"\nexamples = "e"\noutput = "o"\ncorpus = "c"\ngroup_sise = 4')
    assert "did you mean 'group_size'" in recipe("train", "check", path).err


@pytest.mark.parametrize("stage", ["base", "sft", "best-of-n", "grpo"])
def test_two_steps_are_taken_and_nothing_is_left(
    stage: str,
    world_run: dict[str, Any],
    base_config: BaseModelConfig,
    tmp_path: Path,
    check: Check,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    given = {key: world_run[key] for key in ("model", "examples", "metrics")} | {"output": tmp_path / "run"}
    reward = {"corpus": world_run["corpus"], "max_completion_tokens": 8}
    config = {
        "base": lambda: base_config.model_copy(update={"output": tmp_path / "run"}),
        "sft": lambda: SFTConfig(**given, epochs=5, batch_size=2),
        "best-of-n": lambda: BestOfNConfig(**given, **reward, n=2, rounds=3, batch_size=2, completions_at_once=4),
        # The positive control needs neither a corpus nor a service.
        "grpo": lambda: GRPOConfig(**given, control="reference", max_completion_tokens=8, steps=3, prompts_per_step=1),
    }[stage]()
    found = check(stage, config, "--measure")
    assert stage != "grpo" or ("continuation" in found["reward"]["sentence"] and "corpus" not in found)
    measured = found["measurement"]
    assert measured["step_seconds"] > 0
    assert measured["memory"] > 1e6
    steps = {"base": base_config.steps, "sft": 5 * math.ceil(len(read_training_examples(config.examples)) / 2)}
    if stage in steps:  # and 10 s in which a process starts
        assert 3600 * measured["hours"] == pytest.approx(10 + steps[stage] * measured["step_seconds"])
    assert (measured["plan_seconds"] is not None) == (stage == "best-of-n")
    assert list(tmp_path.iterdir()) == []
