import json
import math
from pathlib import Path
from typing import Any

import pytest
from peft import get_peft_model
from tests.conftest import Recipe

from recipe.config import BaseModelConfig, BestOfNConfig, GRPOConfig, SFTConfig
from recipe.data.examples import read_training_examples
from recipe.training import cost
from recipe.training.cost import measure
from recipe.training.policy import load_policy, lora_config
from recipe.training.preflight import check_run
from recipe.training.sft import train_sft


def states(found: Any) -> dict[str, str]:
    return {one.subject: one.state for one in found.findings}


def test_all_that_is_missing_is_found_at_once(tmp_path: Path) -> None:
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
    found = check_run("grpo", config)
    missing = {name for name, state in states(found).items() if state == "missing"}
    assert missing == {"examples", "model", "corpus", "output", "prompt", "validation"}
    assert not found.ready
    assert found.estimate is None
    assert {one.sentence for one in found.findings if one.subject == "examples"} == {
        f"{tmp_path / 'none.jsonl'}: the file does not exist; check the path."
    }
    assert [file.name for file in tmp_path.iterdir()] == ["out"]  # nothing is written


def test_a_run_that_can_start_and_one_that_is_finished(base_model: Path, examples_file: Path, tmp_path: Path) -> None:
    settings = {"model": str(base_model), "examples": examples_file, "epochs": 1, "batch_size": 6, "metrics": ()}
    config = SFTConfig(**settings, output=tmp_path / "run")
    found = check_run("sft", config)
    assert found.ready
    assert set(states(found).values()) == {"ok"}
    assert found.estimate is not None
    # No weights were loaded; these are.
    model = load_policy(str(base_model)).model
    assert found.estimate.parameters == model.num_parameters()
    assert (
        found.estimate.trained
        == get_peft_model(model, lora_config(config.lora, model)).get_nb_trainable_parameters()[0]
    )
    assert found.estimate.memory["weights"] == 4 * found.estimate.parameters
    assert not (tmp_path / "run").exists()
    train_sft(config)
    [said] = [one.sentence for one in check_run("sft", config).findings if one.subject == "output"]
    assert "finished" in said
    other = check_run("sft", config.model_copy(update={"seed": 7}))
    assert states(other)["output"] == "missing"
    assert not other.ready


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
    assert "grpo and best-of-n; add the key 'stage'" in recipe("train", "check", path).err
    for chosen in (("--set", "stage=grpo"), ("--stage", "grpo")):
        assert json.loads(recipe("train", "check", path, *chosen, "--json").out)["stage"] == "grpo"
    path.write_text('model = "m"\nexamples = "e"\noutput = "o"\ncorpus = "c"\ngroup_sise = 4')
    assert "did you mean 'group_size'" in recipe("train", "check", path).err


@pytest.mark.parametrize("stage", ["base", "sft", "best-of-n"])
def test_two_steps_are_taken_and_nothing_is_left(
    stage: str, world_run: dict[str, Any], base_config: BaseModelConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    given = {key: world_run[key] for key in ("model", "examples", "metrics")} | {"output": tmp_path / "run"}
    reward = {"corpus": world_run["corpus"], "max_completion_tokens": 8}
    config = {
        "base": lambda: base_config.model_copy(update={"output": tmp_path / "run"}),
        "sft": lambda: SFTConfig(**given, epochs=5, batch_size=2),
        "best-of-n": lambda: BestOfNConfig(**given, **reward, n=2, rounds=3, batch_size=2, completions_at_once=4),
    }[stage]()
    measured = measure(config)
    assert measured.step_seconds > 0
    assert measured.memory > 1e6
    steps = {"base": base_config.steps, "sft": 5 * math.ceil(len(read_training_examples(config.examples)) / 2)}.get(
        stage
    )
    if steps is not None:
        assert 3600 * measured.hours == pytest.approx(cost.STARTING + steps * measured.step_seconds)
    assert (measured.plan_seconds is not None) == (stage == "best-of-n")
    assert list(tmp_path.iterdir()) == []
