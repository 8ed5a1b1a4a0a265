"""What is read from a file, or written to one, from Python takes its path as a text, too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recipe.config import RewardConfig, load_config
from recipe.data.benchmarks import require_benchmarks
from recipe.data.examples import read_examples, write_examples
from recipe.data.histories import read_histories
from recipe.data.narrations import read_narrations
from recipe.data.procedures import read_procedures, write_procedures
from recipe.errors import RecipeError
from recipe.evaluation.judge.rubric import read_rubric
from recipe.evaluation.scores import read_scores
from recipe.planning.planner import prediction_of
from recipe.planning.prediction_files import read_predictions, write_predictions
from recipe.types import Example, Procedure
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


def test_what_is_written_is_read(tmp_path: Path) -> None:
    examples = [Example("e", "own", "v", "make tea", ("boil water",), ("pour it", "wait"), 1, "train")]
    procedures = [Procedure("own", "v", "make tea", ("boil water", "pour it"), "train")]
    predictions = [prediction_of("e", 0, "1. pour it")]
    target = str(tmp_path / "new" / "rows.jsonl")
    write_examples(target, examples)
    assert read_examples(target) == examples
    write_procedures(target, procedures)
    assert [one.video_id for one in read_procedures(target).procedures] == ["v"]
    write_predictions(target, predictions)
    assert read_predictions(target) == predictions
