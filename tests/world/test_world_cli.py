"""The commands of `recipe world`."""

import json
from pathlib import Path

from typer.testing import CliRunner

from recipe.cli import app
from recipe.data.examples import read_examples
from recipe.data.narrations import read_narrations
from recipe.world.examples import draw_examples
from recipe.world.graph import World
from recipe.world.narrator import narrate


def invoke(*arguments: str) -> int:
    return CliRunner().invoke(app, ["world", *arguments], catch_exceptions=False).exit_code


def test_written_narrations_read_back(world: World, tmp_path: Path) -> None:
    output = tmp_path / "narrations.jsonl"
    assert invoke("narrations", "--count", "3", "--seed", "7", "--output", str(output)) == 0
    assert list(read_narrations(output)) == narrate(world, 3, seed=7)


def test_written_examples_read_back(world: World, tmp_path: Path) -> None:
    output = tmp_path / "examples.jsonl"
    assert invoke("examples", "--split", "test_cuts", "--count", "4", "--output", str(output)) == 0
    assert read_examples(output, "test_cuts") == draw_examples(world, "test_cuts", 4)


def test_careless_text_is_written_too(tmp_path: Path) -> None:
    output = tmp_path / "careless.jsonl"
    assert invoke("examples", "--split", "careless", "--count", "2", "--output", str(output)) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["split"] for row in rows] == ["careless", "careless"]


def test_goals_and_graphs_are_shown() -> None:
    assert invoke("goals") == 0
    assert invoke("show", "build a birdhouse") == 0
