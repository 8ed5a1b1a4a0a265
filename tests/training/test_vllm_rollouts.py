"""Roll-outs by vLLM, on a stand-in for its package: what is asked, trained on, measured and reported."""

import json
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import fake_vllm
import pytest
import torch
from safetensors.torch import load_file

from recipe.artifacts import read_json, read_jsonl
from recipe.config import GRPOConfig, parse_config
from recipe.errors import ConfigError, MissingExtra
from recipe.models.sampling import Decoding
from recipe.training.grpo import RewardFunction, grpo_trainer, train_grpo
from recipe.training.loop import quiet
from recipe.training.policy import load_policy
from recipe.training.runs import open_run


@pytest.fixture(autouse=True)
def _leaves_no_ranks() -> Iterator[None]:
    environment = dict(os.environ)
    yield
    ranks = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    assert {name for name in os.environ if name in ranks} == {name for name in environment if name in ranks}
    assert not torch.distributed.is_initialized()


@pytest.fixture
def config(base_model: Path, grpo_settings: dict[str, Any]) -> GRPOConfig:
    return GRPOConfig(**grpo_settings | {"model": str(base_model), "rollouts": "vllm", "temperature": 1.2})


@pytest.fixture
def video_config(config: GRPOConfig, video_model: Path) -> GRPOConfig:
    # At a low temperature the tokens that are never sampled have almost no probability to leave to the others.
    return config.model_copy(update={"model": str(video_model), "input": "video", "temperature": 0.4})


def changed(config: GRPOConfig, **settings: Any) -> GRPOConfig:
    return parse_config(config.model_dump(exclude_defaults=True) | settings, GRPOConfig, "the test")


def rows(folder: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    return [row for _, row in read_jsonl(folder / name)]


def replayed(config: GRPOConfig, llm: fake_vllm.LLM, sampled_by: Any) -> GRPOConfig:
    """The same run whose completions come from what the engine wrote, without an engine."""
    written = iter(llm.written)

    def sample(_model: Any, asked: list[list[int]], *_: Any, **__: Any) -> list[list[int]]:
        return [next(written) for _ in asked]

    sampled_by(sample)
    return changed(config, rollouts="transformers", output=config.output.with_name("own"))


def distance(first: Path, second: Path) -> float:
    """Largest relative distance of two models' weights."""
    one, other = (load_file(folder / "model" / "model.safetensors") for folder in (first, second))
    return max(float((one[name] - other[name]).norm() / one[name].norm().clamp(min=1e-9)) for name in one)


def sampled_by(parameters: fake_vllm.SamplingParams) -> dict[str, Any]:
    """What the engine was given, by the fields of a decoding card."""
    return {field.name: getattr(parameters, field.name) for field in fields(Decoding)}


@pytest.mark.thorough
@pytest.mark.parametrize("seeing", [False, True])
def test_the_same_completions_train_the_same_model_as_without_an_engine(
    config: GRPOConfig,
    video_config: GRPOConfig,
    seeing: bool,
    scorer: Any,
    paintings: Any,
    vllm: type[fake_vllm.LLM],
    sampled_by: Any,
) -> None:
    config = video_config if seeing else config
    histories = paintings if seeing else None
    train_grpo(config, scorer, histories=histories)
    [llm] = vllm.made
    for row in rows(config.output):
        # Without dropout, of the weights that were pushed; banned tokens have a little of the probability.
        assert row["engine_gap"] < (1e-4 if seeing else 2e-6), row["step"]
        assert row["engine_ratio"] == pytest.approx(1, abs=1e-3)
        assert row["clip_ratio"] == 0
    train_grpo(replayed(config, llm, sampled_by), scorer, histories=histories)
    moved = distance(config.output, Path(config.model).parent)
    assert moved > 1e-3
    assert distance(config.output, config.output.with_name("own")) < moved / 100


@pytest.mark.usefixtures("native_bfloat16")
def test_pushing_weights_leaves_the_frozen_ones_as_they_were(
    config: GRPOConfig, examples: Any, scorer: Any, vllm: type[fake_vllm.LLM]
) -> None:
    config = changed(config, bf16=True)
    run = open_run("grpo", config, config.output, {})
    with quiet():
        loaded = load_policy(config.model, bf16=True)
        trainer = grpo_trainer(config, loaded, examples, RewardFunction(config, scorer, run, print), run)
    frozen = {name: weight.clone() for name, weight in trainer.model.named_parameters() if not weight.requires_grad}
    for weight in trainer.model.parameters():
        if weight.requires_grad:
            weight.data += 0.01
    trainer.vllm_generation.sync_weights()
    assert all(torch.equal(trainer.model.get_parameter(name), weight) for name, weight in frozen.items())
    [llm] = vllm.made
    merged = trainer.model.merge_and_unload().state_dict()
    for name, weight in llm.model.named_parameters():
        assert torch.allclose(weight, merged[name], rtol=0.01, atol=1e-3), name
    assert any(not torch.equal(llm.model.get_parameter(name), own) for name, own in own_weights(config).items())


def own_weights(config: GRPOConfig) -> dict[str, torch.Tensor]:
    return dict(load_policy(config.model, bf16=True).model.named_parameters())


@pytest.mark.thorough
def test_every_completion_has_a_seed_of_its_own(config: GRPOConfig, scorer: Any, vllm: type[fake_vllm.LLM]) -> None:
    train_grpo(config, scorer)
    train_grpo(changed(config, output=config.output.with_name("again"), steps=1), scorer)
    train_grpo(changed(config, output=config.output.with_name("other"), seed=1, steps=1), scorer)
    first, again, other = vllm.made
    seeds = [one.seed for one in first.parameters]
    assert len(set(seeds)) == len(seeds) == 2 * 2 * 4
    assert [one.seed for one in again.parameters] == seeds[:8]
    assert not set(seeds) & {one.seed for one in other.parameters}
    name = "completions/step-00001.jsonl"
    assert rows(config.output, name) == rows(config.output.with_name("again"), name)
    assert {one.temperature for one in first.parameters} == {1.2}
    recorded = read_json(config.output / "run.json")["decoding"]
    assert {json.dumps(sampled_by(one), sort_keys=True) for one in first.parameters} == {
        json.dumps({name: value for name, (value, _) in recorded.items()}, sort_keys=True)
    }
    assert first.calls == ["reset_prefix_cache", "generate"] * 2
    assert {name: first.options[name] for name in ("dtype", "gpu_memory_utilization", "enable_sleep_mode")} == {
        "dtype": "float32",
        "gpu_memory_utilization": 0.3,
        "enable_sleep_mode": False,
    }
    assert first.options["logprobs_mode"] == "processed_logprobs"


@pytest.mark.thorough
def test_a_video_prompt_holds_one_token_and_old_features_are_dropped(
    video_config: GRPOConfig, scorer: Any, paintings: Any, vllm: type[fake_vllm.LLM]
) -> None:
    train_grpo(video_config, scorer, histories=paintings)
    [llm] = vllm.made
    place = llm.model.config.video_token_id
    assert {prompt["prompt_token_ids"].count(place) for prompt in llm.prompts} == {1}
    assert all(len(prompt["multi_modal_data"]["video"]) == 1 for prompt in llm.prompts)
    assert llm.calls == ["reset_prefix_cache", "reset_encoder_cache", "generate"] * 2
    assert not llm.stale
    assert llm.options["limit_mm_per_prompt"] == {"image": 0, "video": 1}
    assert all(set(one.logit_bias.values()) == {-100.0} and place in one.logit_bias for one in llm.parameters)
    assert len(paintings.asked) == 4, "a group shares its clip"


@pytest.mark.thorough
@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize("vllm", [{"forgets": False}], indirect=True)
def test_old_features_are_seen_as_a_gap(video_config: GRPOConfig, scorer: Any, paintings: Any) -> None:
    train_grpo(changed(video_config, steps=3, learning_rate=0.05), scorer, histories=paintings)
    gaps = [row["engine_gap"] for row in rows(video_config.output)]
    assert gaps[0] < 1e-4 < 1e-3 < gaps[2]


@pytest.mark.thorough
@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize("vllm", [{"skew": -0.3}], indirect=True)
def test_a_wide_gap_is_reported_once(config: GRPOConfig, scorer: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    train_grpo(config, scorer)
    said = [record.getMessage() for record in caplog.records if "vLLM" in record.getMessage()]
    assert len(said) == 1
    assert "Since step 1" in said[0]
    assert "0.3" in said[0]
    for row in rows(config.output):
        assert (row["engine_gap"], row["engine_gap_max"]) == (pytest.approx(0.3, 1e-3), pytest.approx(0.3, 1e-3))
        assert row["engine_ratio"] == pytest.approx(1.35, 1e-3)


@pytest.mark.thorough
def test_the_engine_sleeps_between_roll_outs(config: GRPOConfig, scorer: Any, vllm: type[fake_vllm.LLM]) -> None:
    train_grpo(changed(config, vllm={"sleep": True}), scorer)
    [llm] = vllm.made
    awake = ["wake weights", "reset_prefix_cache", "wake kv_cache", "generate", "sleep 2"]
    assert llm.calls == ["sleep 2", *awake, *awake]


def test_a_prompt_that_leaves_no_room_is_an_error(config: GRPOConfig, scorer: Any, vllm: type[fake_vllm.LLM]) -> None:
    with pytest.raises(ConfigError, match=r"vllm\.longest: a prompt of \d+ tokens and max_completion_tokens 12.* 20"):
        train_grpo(changed(config, vllm={"longest": 20}), scorer)


def test_settings_without_a_use_and_a_missing_package_are_errors(config: GRPOConfig, scorer: Any) -> None:
    with pytest.raises(ConfigError, match="vllm has a use with rollouts = 'vllm' only"):
        changed(config, rollouts="transformers", vllm={"memory": 0.5})
    with pytest.raises(ConfigError, match="correction"):
        changed(config, vllm={"correction": "none"})
    with fake_vllm.installed(), pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "vllm", None)
        with pytest.raises(MissingExtra, match=r"\[vllm\]'"):
            train_grpo(config, scorer)
    assert not config.output.exists()
