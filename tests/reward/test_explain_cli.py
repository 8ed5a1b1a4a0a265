"""`recipe reward explain`: the explanation as JSON, on the terminal and as a page, of plans given and plans sampled."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recipe.cli import app
from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.errors import InputError
from recipe.explain.explain import as_row, explain
from recipe.explain.records import Links
from recipe.reward.verifier import Verifier

HISTORY = ["boil some water", "warm up the pot"]
PLAN = ["put tea leaves in the pot", "juggle"]
ASKED = ["--goal", "tea", "--history", HISTORY[0], "--history", HISTORY[1]]
EXAMPLE = {"example_id": "e/1", "goal": "tea", "history": HISTORY, "continuation": PLAN}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "180")


def recipe(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["reward", "explain", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("verifier", ["paper", "grounded"])
def test_json_is_the_explanation(folder: Path, verifier: str) -> None:
    steps = [*PLAN, "pour the water"]
    asked = (
        "--corpus",
        folder,
        *ASKED,
        "--verifier",
        verifier,
        "--continuation",
        "\n".join(f"1. {step}" for step in steps),
    )
    row, own = json.loads(recipe(*asked, "--json")), Verifier(Corpus.open(folder), RewardConfig(verifier=verifier))
    expected = explain(own, goal="tea", history=HISTORY, continuation=steps, others=8)
    assert row == json.loads(json.dumps(as_row(expected, Links())))
    shown = recipe(*asked)
    for part in expected.reward.parts:
        assert part.replace("_", " ") in shown


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_cuts_nothing(folder: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    row = json.loads(recipe("--corpus", folder, *ASKED, "--continuation", "\n".join(PLAN), "--json"))
    shown = recipe("--corpus", folder, *ASKED, "--continuation", "\n".join(PLAN))
    table = shown[shown.index("history alone") : shown.index("Narrations of the pool")]
    assert max(map(len, table.split("\n"))) <= width
    assert "…" not in table
    words = table.split()
    for step in row["steps"]:
        assert set(step["step"].split()) <= set(words)
        if step["contribution"] is not None:
            assert f"{step['contribution']:+.3f}" in words


def test_a_plan_that_was_sampled_is_explained(folder: Path) -> None:
    examples = lines(folder.parent / "examples.jsonl", EXAMPLE, EXAMPLE | {"example_id": "e/2", "goal": "eggs"})
    predictions = lines(
        folder.parent / "predictions.jsonl",
        {"example_id": "e/1", "sample": 0, "steps": ["wait"]},
        {"example_id": "e/1", "sample": 3, "steps": ["pour the water"]},
    )
    asked = ["--corpus", folder, "--examples", examples, "--example", "e/1", "--json"]
    sampled = json.loads(recipe(*asked, "--predictions", predictions, "--sample", 3))
    assert (sampled["goal"], sampled["history"], sampled["continuation"]) == ("tea", HISTORY, ["pour the water"])
    assert json.loads(recipe(*asked, "--predictions", predictions))["continuation"] == ["wait"]
    assert json.loads(recipe(*asked))["continuation"] == PLAN


def test_a_page_is_written_beside_what_is_shown(folder: Path) -> None:
    pytest.importorskip("jinja2")
    page = folder.parent / "new" / "page.html"
    shown = recipe("--corpus", folder, *ASKED, "--continuation", "\n".join(PLAN), "--html", page, "--narrations", 1)
    assert f"picture: {page}" in shown
    assert "put tea leaves in the pot" in page.read_text()
    assert page.read_text().count('class="picture"') == 1
    json.loads(recipe("--corpus", folder, *ASKED, "--continuation", "stir", "--html", page, "--json"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--history", "a", "--continuation", "b"], "--goal is missing or empty"),
        (["--goal", "g", "--history", "a"], "--continuation is missing"),
        (["--goal", "g", "--continuation", "b", "--example", "e/1"], "--predictions and --example go with --examples"),
        (["--goal", "g", "--examples", "EXAMPLES", "--example", "e/1"], "not from both"),
        (
            ["--examples", "EXAMPLES", "--example", "e/9"],
            "no example 'e/9'; give --example one of its ids, such as 'e/1'",
        ),
        (
            ["--examples", "EXAMPLES", "--example", "e/1", "--predictions", "PREDICTIONS", "--sample", "2"],
            "no sample 2 of 'e/1'; samples of it in the file: 0",
        ),
        (["--goal", "g", "--continuation", "b", "--link", "vimeo"], "is no web address"),
    ],
)
def test_what_cannot_be_explained_is_refused(folder: Path, arguments: list[str], reason: str) -> None:
    files = {
        "EXAMPLES": lines(folder.parent / "examples.jsonl", EXAMPLE),
        "PREDICTIONS": lines(folder.parent / "predictions.jsonl", {"example_id": "e/1", "steps": ["wait"]}),
    }
    with pytest.raises(InputError, match=reason):
        recipe("--corpus", folder, *(files.get(word, word) for word in arguments))
