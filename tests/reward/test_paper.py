"""The reward's equations against closed forms, golden values and their own shape."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from recipe.config import RewardConfig
from recipe.reward.paper import paper_reward

PAPER = RewardConfig()
scores = st.floats(1e-6, 1.0)


@pytest.mark.parametrize(
    ("history", "full", "rho", "total"),
    [
        (0.0, 0.5, 0.5, 0.5),
        (0.5, 0.75, 0.5, 0.75),
        (0.5, 0.525, 0.05, -0.1),
        (0.5, 0.5, 0.0, -0.2),
        (0.5, 0.1, -0.8, -1.0),
        (1.0, 1.0, 0.0, -0.2),
        (1.0, 0.5, -0.5 / 1e-6, -1.0),
    ],
)
def test_closed_forms(history: float, full: float, rho: float, total: float) -> None:
    parts = paper_reward(history, full, PAPER)
    assert parts.rho == pytest.approx(rho)
    assert parts.total == pytest.approx(total)
    assert parts.gated == (rho < PAPER.tau)


@given(scores, scores)
def test_the_reward_is_positive_above_the_gate_and_a_bounded_penalty_below(history: float, full: float) -> None:
    parts = paper_reward(history, full, PAPER)
    rho = (full - history) / max(1 - history, 1e-6)
    assert parts.rho == rho
    assert parts.gated == (rho < 0.1)
    assert parts.total == (max(-1.0, min(2.0 * (rho - 0.1), 0.0)) if parts.gated else full)
    assert (parts.total <= 0) == parts.gated
    assert parts.total <= paper_reward(history, min(full + 0.1, 1.0), PAPER).total  # rises with the whole


@pytest.mark.parametrize(
    ("changes", "history", "full", "rho", "total"),
    [
        ({"relative_progress": False}, 0.5, 0.65, 0.15, 0.65),
        ({"history_baseline": False}, 0.5, 0.52, None, 0.52),
        ({"gate": "off"}, 0.5, 0.52, 0.04, 0.04),
        ({"gate": "off"}, 1.0, 0.5, -0.5 / 1e-6, -0.5 / 1e-6),  # not clipped
        ({"gate": "off", "relative_progress": False}, 0.5, 0.65, 0.15, 0.15),
        ({"gate": "off", "history_baseline": False}, 0.5, 0.65, None, 0.65),
        ({"tau": 0.25}, 0.0, 0.25, 0.25, 0.25),  # the gate opens at tau itself
        ({"gate": "plain"}, 0.5, 0.52, 0.04, 0.52),
        ({"gate": "plain"}, 0.0, 0.0, 0.0, 0.0),
    ],
    ids=str,
)
def test_ablations(changes: dict[str, object], history: float, full: float, rho: float | None, total: float) -> None:
    parts = paper_reward(history, full, RewardConfig.model_validate(changes))
    assert parts.total == pytest.approx(total)
    assert not parts.gated
    assert rho is None or parts.rho == pytest.approx(rho)


@pytest.mark.parametrize("value", ["yes", True])
def test_a_gate_of_another_value_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="gate"):
        RewardConfig.model_validate({"gate": value})


def test_golden_values(shared_golden: Path) -> None:
    cases = [case for case in json.loads((shared_golden / "alignment.json").read_text())["cases"] if "rho" in case]
    assert cases
    for case in cases:
        parts = paper_reward(case["nw_history_score"], case["nw_score"], PAPER)
        assert parts.rho == pytest.approx(case["rho"], abs=1e-12)
        assert parts.total == pytest.approx(case["reward"], abs=1e-12)
