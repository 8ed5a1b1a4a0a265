"""What is read from a file from Python takes its path as a text, too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recipe.config import RewardConfig, load_config
from recipe.data.benchmarks import require_benchmarks
from recipe.data.examples import read_examples
from recipe.data.histories import read_histories
from recipe.data.narrations import read_narrations
from recipe.data.procedures import read_procedures
from recipe.errors import RecipeError
from recipe.evaluation.judge.rubric import read_rubric
from recipe.evaluation.scores import read_scores
from recipe.planning.prediction_files import read_predictions
from recipe.world.load import load_world

READERS: list[Callable[[Any], object]] = [
    lambda path: load_config(path, RewardConfig),
    read_examples,
    read_histories,
    lambda path: [*read_narrations(path)],
    lambda path: [*read_narrations([path])],
    read_predictions,
    read_procedures,
    read_rubric,
    read_scores,
    require_benchmarks,
    load_world,
]


@pytest.mark.parametrize("read", READERS)
def test_a_file_that_is_missing_is_named(read: Callable[[Any], object], tmp_path: Path) -> None:
    """By the same error for both forms of its path."""
    path, words = tmp_path / "nothing.jsonl", []
    for given in (path, str(path)):
        with pytest.raises(RecipeError, match=r"nothing\.jsonl") as told:
            read(given)
        words.append(str(told.value))
    assert words[0] == words[1]
