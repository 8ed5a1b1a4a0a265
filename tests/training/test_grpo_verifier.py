"""GRPO against the real verifier, on a corpus that the embedded world narrates."""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file

from recipe.artifacts import read_jsonl
from recipe.config import GRPOConfig, RewardConfig
from recipe.corpus.store import Corpus
from recipe.plan_text import plan_steps
from recipe.reward.verifier import Verifier
from recipe.training.grpo import train_grpo


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["paper", "grounded"])
def test_rewards_of_a_run_are_those_of_the_verifier(
    kind: Literal["paper", "grounded"], world_run: dict[str, Any], tmp_path: Path
) -> None:
    reward = RewardConfig(verifier=kind)
    config = GRPOConfig(**world_run, output=tmp_path / kind, reward=reward)
    verifier = Verifier(Corpus.open(config.corpus), reward)
    model = train_grpo(config, verifier)

    metrics = [row for _, row in read_jsonl(config.output / "metrics.jsonl")]
    assert [row["step"] for row in metrics] == [1, 2]
    assert all(math.isfinite(value) for row in metrics for value in row.values())
    assert all(row["unscored"] == 0 for row in metrics)
    totals = []
    for row in metrics:
        recorded = [r for _, r in read_jsonl(config.output / "completions" / f"step-{row['step']:05d}.jsonl")]
        assert len(recorded) == config.prompts_per_step * config.group_size
        prompts = defaultdict(list)
        for record in recorded:
            prompts[record["goal"], tuple(record["history"])].append(record)
        # A verifier of its own, so that nothing is taken from what the run has cached.
        fresh = Verifier(Corpus.open(config.corpus), reward)
        for (goal, history), group in prompts.items():
            wanted = fresh.score(
                history=history, continuations=[plan_steps(r["completion"], cut=r["clipped"]) for r in group], goal=goal
            )
            assert [r["reward"]["total"] for r in group] == pytest.approx([one.total for one in wanted], abs=1e-6)
            assert [r["reward"]["steps"] for r in group] == [one.steps for one in wanted]
        step = [record["reward"]["total"] for record in recorded]
        assert row["reward"] == pytest.approx(sum(step) / len(step), abs=1e-5)
        totals += step
    assert len(set(totals)) > 3
    assert not all(row["zero_std"] == 1 for row in metrics)

    before, after = load_file(Path(config.model) / "model.safetensors"), load_file(model / "model.safetensors")
    assert any(not torch.equal(weight, after[name]) for name, weight in before.items())
    # The same command on the finished run changes nothing.
    assert train_grpo(config, verifier) == model
    assert all(torch.equal(weight, load_file(model / "model.safetensors")[name]) for name, weight in after.items())
