"""`recipe reward`: the same numbers as the verifier, and errors that say where and what."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recipe.cli import app
from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.errors import ConfigError, InputError
from recipe.reward.verifier import Verifier

HISTORY = ["boil some water", "warm up the pot"]
PLAN = ["put tea leaves in the pot", "juggle"]
ASKED = ["--goal", "tea", "--history", HISTORY[0], "--history", HISTORY[1]]


def recipe(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["reward", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def rows_file(folder: Path, *rows: object) -> Path:
    path = folder.parent / "rows.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_json_is_the_verifiers_reward(folder: Path) -> None:
    [row] = json.loads(
        recipe(
            "score", "--corpus", folder, *ASKED, "--continuation", "1. put tea leaves in the pot\n2. juggle", "--json"
        )
    )
    [expected] = Verifier(Corpus.open(folder)).score(history=HISTORY, continuations=[PLAN], goal="tea")
    [reward] = row["rewards"]
    assert (row["goal"], row["history"], reward["continuation"]) == ("tea", HISTORY, PLAN)
    assert reward["total"] == expected.total
    assert reward["best_video_id"] == "tea"
    assert [hit["narration"] for hit in reward["pool"]] == [hit.narration for hit in expected.pool]


def test_rows_of_a_file_and_of_the_command_line_agree(folder: Path) -> None:
    row = {"goal": "tea", "history": HISTORY, "continuations": [PLAN, "- lift the car", []]}
    output = folder.parent / "rewards.jsonl"
    recipe("score", "--corpus", folder, "--input", rows_file(folder, row, row), "--pool", "full", "--output", output)
    results = [json.loads(line) for line in output.read_text().splitlines()]
    assert results[0] == results[1]
    asked = [*ASKED, "--continuation", "\n".join(PLAN), "--continuation", "lift the car", "--continuation", ""]
    assert json.loads(recipe("score", "--corpus", folder, *asked, "--pool", "full", "--json")) == results[:1]
    assert results[0]["rewards"][2]["steps"] == 0


def test_settings_come_from_a_file(folder: Path) -> None:
    config = folder.parent / "reward.toml"
    config.write_text('gate = "plain"\npool_size = 2\n')
    [row] = json.loads(
        recipe("score", "--corpus", folder, *ASKED, "--continuation", "stir", "--config", config, "--json")
    )
    [expected] = Verifier(Corpus.open(folder), RewardConfig(gate="plain", pool_size=2)).score(
        history=HISTORY, continuations=[["stir"]], goal="tea"
    )
    assert row["rewards"][0]["total"] == expected.total
    config.write_text("pol = 'own'\n")
    with pytest.raises(ConfigError, match="did you mean 'pool'"):
        recipe("score", "--corpus", folder, *ASKED, "--continuation", "stir", "--config", config)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "line 2: not valid JSON"),
        ({"goal": " ", "history": ["a"], "continuations": [["b"]]}, "line 2, field 'goal': the text is empty"),
        ({"goal": "g", "history": [], "continuations": [["b"]]}, "field 'history'"),
        ({"goal": "g", "history": ["a"]}, "field 'continuations': the field is missing"),
        ({"goal": "g", "history": ["a"], "continuations": []}, "field 'continuations'"),
        ({"goal": "g", "history": ["a"], "continuations": [["b"], ["c", ""]]}, r"field 'continuations\[1\]\[1\]'"),
        ({"goal": "g", "history": ["a"], "continuations": [7]}, r"field 'continuations\[0\]'"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_written(folder: Path, row: object, reason: str) -> None:
    good = {"goal": "tea", "history": HISTORY, "continuations": [PLAN]}
    output = folder.parent / "rewards.jsonl"
    with pytest.raises(InputError, match=reason):
        recipe("score", "--corpus", folder, "--input", rows_file(folder, good, row), "--output", output)
    assert not output.exists()
