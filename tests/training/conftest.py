"""A miniature of every training artefact: examples, a base model of two layers, and a scorer without a
corpus.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from recipe.config import BaseModelConfig
from recipe.data.examples import write_examples
from recipe.training.base import train_base
from recipe.types import Example, Reward

GOALS = ("make tea", "plant a tree", "change a tyre")


class LengthScorer:
    """Rewards plans of three steps; fails, as an encoder may, for one goal."""

    def __init__(self, broken_goal: str = "") -> None:
        self.broken_goal = broken_goal
        self.calls = 0

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        from recipe.errors import ComputeError

        self.calls += 1
        if goal == self.broken_goal:
            raise ComputeError("The encoder is down.")
        return [
            Reward(-abs(len(plan) - 3.0), 0.1, 0.2, 0.1, len(plan) == 0, len(plan), (), None) for plan in continuations
        ]


@pytest.fixture
def scorer() -> LengthScorer:
    return LengthScorer()


@pytest.fixture(scope="session")
def examples() -> list[Example]:
    steps = ("boil the water", "dig a hole", "raise the car", "wait a while", "clean up")
    return [
        Example(f"e{n}", "toy", f"v{n}", GOALS[n % 3], (steps[n % 5],), tuple(steps[: 2 + n % 3]), 1, "train")
        for n in range(12)
    ]


@pytest.fixture(scope="session")
def examples_file(examples: list[Example], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("examples") / "examples.jsonl"
    write_examples(path, examples)
    return path


@pytest.fixture(scope="session")
def base_config(examples_file: Path, tmp_path_factory: pytest.TempPathFactory) -> BaseModelConfig:
    return BaseModelConfig(
        examples=examples_file,
        output=tmp_path_factory.mktemp("base"),
        hidden_size=32,
        layers=2,
        head_size=16,
        vocabulary=512,
        context=256,
        steps=60,
        learning_rate=2e-2,
        batch_tokens=256,
    )


@pytest.fixture(scope="session")
def base_model(base_config: BaseModelConfig) -> Path:
    """A trained miniature base model, as any other model a folder in the standard layout."""
    return train_base(base_config)
