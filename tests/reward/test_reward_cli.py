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


def test_json_is_the_verifiers_reward_in_rows_of_a_file_and_of_the_command_line(folder: Path) -> None:
    row = {"goal": "tea", "history": HISTORY, "continuations": [PLAN, "- lift the car", []]}
    output = folder.parent / "rewards.jsonl"
    recipe("score", "--corpus", folder, "--input", rows_file(folder, row, row), "--pool", "full", "--output", output)
    first, again = (json.loads(line) for line in output.read_text().splitlines())
    assert first == again
    asked = [
        *ASKED,
        "--continuation",
        "1. " + "\n2. ".join(PLAN),
        "--continuation",
        "lift the car",
        "--continuation",
        "",
    ]
    assert json.loads(recipe("score", "--corpus", folder, *asked, "--pool", "full", "--json")) == [first]
    plans = [PLAN, ["lift the car"], []]
    expected = Verifier(Corpus.open(folder), RewardConfig(pool="full")).score(
        history=HISTORY, continuations=plans, goal="tea"
    )
    assert (first["goal"], first["history"]) == ("tea", HISTORY)
    assert first["rewards"][0]["best_video_id"] == "tea"
    for plan, reward, own in zip(plans, first["rewards"], expected, strict=True):
        assert (reward["continuation"], reward["total"], reward["steps"]) == (plan, own.total, len(plan))
        assert [hit["narration"] for hit in reward["pool"]] == [hit.narration for hit in own.pool]


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
        ({"goal": "g", "history": [], "continuations": [["b"]]}, "line 2, field 'history'"),
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
