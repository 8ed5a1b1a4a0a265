"""The budget of KL divergence: its estimate against the closed form, its controller, and what a run does with it."""

import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from recipe.artifacts import read_json, read_jsonl
from recipe.config import GRPOConfig
from recipe.training.grpo import train_grpo, trl_arguments
from recipe.training.kl_budget import LAST, MOST, KLBudget, plan_kl, unmet_budget
from recipe.training.runs import open_run


def test_the_estimate_is_the_divergence_of_whole_plans() -> None:
    # Every plan of two tokens from three words, weighted by the policy's probability of it.
    draw = np.random.default_rng(0)
    policy, reference = (draw.dirichlet(np.ones(3), size=(2, 4)) for _ in range(2))
    estimated, true = 0.0, 0.0
    for first, second in product(range(3), repeat=2):
        places = ((0, 0, first), (1, first, second))  # position, what came before, token
        p, q = (np.array([table[at] for at in places]) for table in (policy, reference))
        total, plans = plan_kl(torch.tensor(np.log([p])), torch.tensor(np.log([q])), torch.ones(1, 2)).tolist()
        assert plans == 1
        estimated += p.prod() * total
        true += p.prod() * np.log(p.prod() / q.prod())
    assert estimated == pytest.approx(true, rel=1e-9)


def test_padding_and_completions_that_are_masked_do_not_count() -> None:
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    total, plans = plan_kl(torch.full((2, 3), -1.0), torch.full((2, 3), -2.0), mask).tolist()
    assert (total, plans) == (pytest.approx(2 * math.exp(-1)), 1)


def controller(budget: float = 2.0, beta: float = 0.04) -> KLBudget:
    return KLBudget(SimpleNamespace(beta=beta), budget, beta)


@given(st.floats(0.04, 10), st.floats(0, 1e6) | st.just(math.inf))
def test_the_weight_follows_the_controller_within_its_bounds(weight: float, kl: float) -> None:
    after = controller().next_weight(weight, kl)
    assert 0.04 <= after <= 0.04 * MOST
    assert 0.5 - 1e-9 <= after / weight <= 2 + 1e-9 or after in (0.04, 0.04 * MOST)
    assert after >= weight or kl < 2
    assert after <= weight or kl > 2


def test_an_error_of_a_tenth_changes_the_weight_in_proportion() -> None:
    assert controller().next_weight(1.0, 2.2) == pytest.approx(2**0.1)
    assert controller().next_weight(1.0, 1.8) == pytest.approx(2**-0.1)
    assert controller().next_weight(1.0, math.nan) == 1.0


def test_only_the_last_steps_must_keep_the_budget() -> None:
    assert unmet_budget(2.0, [9.0] * 5 + [2.1] * LAST) is None
    assert unmet_budget(2.0, []) is None
    sentence = unmet_budget(2.0, [0.0] * 5 + [3.0] * LAST)
    assert sentence is not None
    assert "2 nats" in sentence
    assert "3.00" in sentence


@pytest.fixture
def config(base_model: Any, grpo_settings: dict[str, Any]) -> GRPOConfig:
    return GRPOConfig(**grpo_settings | {"model": str(base_model), "steps": 4, "micro_batch": 2, "save_every": 1})


def rows(config: GRPOConfig) -> list[dict[str, Any]]:
    return [row for _, row in read_jsonl(config.output / "metrics.jsonl")]


@pytest.mark.thorough
def test_a_run_raises_the_weight_and_says_that_the_budget_was_not_met(config: GRPOConfig, scorer: Any) -> None:
    config = config.model_copy(update={"kl_budget": 1e-3})
    model = train_grpo(config, scorer)
    first, *others = rows(config)
    assert (first["kl_plan"], first["beta"]) == (0, config.beta)
    # A plan's KL is its tokens' sum: the mean over tokens times a length between 1 and the longest.
    assert all(row["kl"] < row["kl_plan"] <= row["kl"] * config.max_completion_tokens * 1.5 for row in others)
    weight, controlled = config.beta, controller(1e-3, config.beta)
    for row in (first, *others):
        assert row["beta"] == weight
        weight = controlled.next_weight(weight, row["kl_plan"])
    assert others[-1]["beta"] > config.beta
    [note] = read_json(config.output / "run.json")["notes"]
    assert "0.001 nats" in note
    assert read_json(model / "card.json")["notes"] == [note]
    assert note in (model / "README.md").read_text()


@pytest.mark.thorough
def test_without_a_budget_the_weight_is_constant_and_nothing_is_said(config: GRPOConfig, scorer: Any) -> None:
    train_grpo(config.model_copy(update={"steps": 2}), scorer)
    assert [row["beta"] for row in rows(config)] == [config.beta] * 2
    assert "notes" not in read_json(config.output / "run.json")


def test_dr_grpo_neither_scales_rewards_nor_averages_within_completions(config: GRPOConfig) -> None:
    config = config.model_copy(update={"loss": "dr_grpo"})
    arguments = trl_arguments(config, open_run("grpo", config, config.output, {}))
    assert (arguments.loss_type, arguments.scale_rewards) == ("dr_grpo", "none")


def test_a_budget_without_a_weight_to_raise_is_refused(grpo_settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="kl_budget multiplies beta"):
        GRPOConfig(**grpo_settings | {"model": "m", "beta": 0.0, "kl_budget": 2.0})
