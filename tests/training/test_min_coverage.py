"""Prompts that the corpus does not cover are left out of GRPO, on a corpus that the embedded world narrates."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from recipe.artifacts import read_jsonl
from recipe.config import GRPOConfig, RewardConfig
from recipe.corpus.store import Corpus
from recipe.data.examples import read_training_examples, write_examples
from recipe.errors import ConfigError, InputError
from recipe.reward.coverage import PromptCoverage
from recipe.reward.scorer import prompt_outcomes
from recipe.reward.verifier import Verifier
from recipe.training.grpo import train_grpo
from recipe.training.rewards import covered_examples
from recipe.training.runs import Run
from recipe.types import Example, Reward

pytestmark = pytest.mark.thorough

GROUNDED = RewardConfig(verifier="grounded")


def coverages(verifier: Verifier, examples: list[Example]) -> dict[str, float]:
    found = prompt_outcomes(verifier, [(example.goal, example.history) for example in examples])
    return {
        example.example_id: outcome.coverage
        for example, outcome in zip(examples, found, strict=True)
        if isinstance(outcome, Reward) and outcome.coverage is not None
    }


def test_only_covered_prompts_are_trained_on(world_run: dict[str, Any], tmp_path: Path) -> None:
    told = read_training_examples(world_run["examples"])[:12]
    foreign = [
        replace(example, example_id=f"x{n}", goal="qzj xvk", history=("wqx zzk", "jjq vxw"))
        for n, example in enumerate(told)
    ]
    write_examples(tmp_path / "mixed.jsonl", [*told, *foreign])
    settings = world_run | {"examples": tmp_path / "mixed.jsonl", "output": tmp_path / "run", "reward": GROUNDED}
    verifier = Verifier(Corpus.open(world_run["corpus"]), GROUNDED)
    known = coverages(verifier, [*told, *foreign])
    least = float(np.median(list(known.values())))
    config = GRPOConfig(**settings, min_coverage=least)
    train_grpo(config, verifier)

    record = json.loads((config.output / "coverage.json").read_text())
    assert record["left_out"] == {name: value for name, value in known.items() if value < least}
    assert 0 < len(record["left_out"]) < 24 == record["examples"]
    assert record["kept"] == 24 - len(record["left_out"])
    files = sorted((config.output / "completions").glob("*.jsonl"))
    trained = {row["example_id"] for file in files for _, row in read_jsonl(file)}
    assert trained
    assert not trained & record["left_out"].keys()
    metrics = [row for _, row in read_jsonl(config.output / "metrics.jsonl")]
    assert all(0 <= row["corpus_share"] <= 1 for row in metrics if "corpus_share" in row)


def test_a_run_without_a_covered_prompt_is_refused_with_the_command(world_run: dict[str, Any], tmp_path: Path) -> None:
    config = GRPOConfig(**world_run, output=tmp_path, reward=GROUNDED, min_coverage=1.5)
    verifier = Verifier(Corpus.open(config.corpus), GROUNDED)
    examples = read_training_examples(config.examples)[:5]
    with pytest.raises(InputError, match=r"not one of 5 prompts .* recipe reward coverage --corpus") as raised:
        covered_examples(config, verifier, examples, Run(tmp_path, config, {}))
    assert f"highest {max(coverages(verifier, examples).values()):.2f}" in str(raised.value)
    assert not (tmp_path / "coverage.json").exists()


def test_a_reward_that_knows_no_coverage_cannot_filter(world_run: dict[str, Any], tmp_path: Path) -> None:
    config = GRPOConfig(**world_run, output=tmp_path, min_coverage=0.1)
    verifier = Verifier(Corpus.open(config.corpus))
    with pytest.raises(ConfigError, match="min_coverage"):
        covered_examples(config, verifier, read_training_examples(config.examples)[:3], Run(tmp_path, config, {}))


def test_a_prompt_without_known_coverage_is_kept(world_run: dict[str, Any], tmp_path: Path) -> None:
    config = GRPOConfig(**world_run, output=tmp_path, reward=GROUNDED, min_coverage=-1.0)
    blank, *others = read_training_examples(config.examples)[:3]
    blank = replace(blank, history=(" ",))
    verifier = Verifier(Corpus.open(config.corpus), GROUNDED)
    assert covered_examples(config, verifier, [blank, *others], Run(tmp_path, config, {})) == [blank, *others]
    assert json.loads((tmp_path / "coverage.json").read_text())["unknown"] == 1


@pytest.mark.parametrize(("least", "kept"), [("partly", {"known", "partly", None}), ("known", {"known", None})])
def test_a_state_leaves_out_what_is_not_known(
    world_run: dict[str, Any], tmp_path: Path, least: Any, kept: set[str | None]
) -> None:
    config = GRPOConfig(**world_run, output=tmp_path, reward=GROUNDED, min_coverage=least)
    states: list[Any] = ["known", "partly", "unknown", None] * 2
    told = [None if state is None else PromptCoverage(0.1 * place, state) for place, state in enumerate(states)]
    verifier = Verifier(Corpus.open(config.corpus), GROUNDED)
    verifier.coverage = SimpleNamespace(of=lambda prompts: told[: len(prompts)])  # type: ignore[assignment]
    examples = read_training_examples(world_run["examples"])[:8]
    expected = [own for own, state in zip(examples, states, strict=True) if state in kept]
    assert covered_examples(config, verifier, examples, Run(tmp_path, config, {})) == expected
    record = json.loads((tmp_path / "coverage.json").read_text())
    assert (record["min_coverage"], record["unknown"], len(record["left_out"])) == (least, 2, 8 - len(expected))


def test_a_state_needs_the_corpus(world_run: dict[str, Any], tmp_path: Path, new_scorer: Any) -> None:
    config = GRPOConfig(**world_run, output=tmp_path, min_coverage="known")
    with pytest.raises(ConfigError, match="corpus"):
        covered_examples(config, new_scorer(), read_training_examples(config.examples)[:3], Run(tmp_path, config, {}))
