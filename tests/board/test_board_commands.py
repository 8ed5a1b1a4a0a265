"""`recipe board` as its owner and its participants use it, with a server in a process of its own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from board_helpers import lines
from typer.testing import CliRunner

from recipe.cli import app
from recipe.data.examples import write_examples
from recipe.types import Example
from recipe_apps.board.store import Board
from recipe_apps.board.work import Queue

SETTINGS = """
title = "Mine"
[[tracks]]
name = "one"
examples = "examples.jsonl"
results = "hidden"
[[tracks.scorers]]
measure = "validity"
"""


@pytest.fixture(autouse=True)
def as_important_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker in this process must not make the tests after it stand back."""
    monkeypatch.setattr("recipe_apps.cli.board._NICE", 0)


def recipe(*given: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(one) for one in given])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def fails(*given: object) -> str:
    """The error of a command that cannot be carried out."""
    result = CliRunner().invoke(app, [str(one) for one in given])
    assert result.exception is not None
    assert result.exit_code == 1
    return str(result.exception)


@pytest.fixture
def made(tmp_path: Path, examples: list[Example]) -> tuple[str, str]:
    """A board of one's own: its database, and the owner's token."""
    write_examples(tmp_path / "examples.jsonl", examples)
    (tmp_path / "board.toml").write_text(SETTINGS)
    database = str(tmp_path / "board.db")
    said = json.loads(recipe("board", "init", tmp_path / "board.toml", "--database", database, "--json"))
    return database, said["tokens"]["owner"]


@pytest.fixture
def served(made: tuple[str, str], tmp_path: Path) -> Iterator[str]:
    """The address of the board's server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "recipe", "board", "serve", "--database", made[0], "--port", str(port)]
    with (tmp_path / "serve.log").open("wb") as told:
        process = subprocess.Popen(command, stderr=told, stdout=told)
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=5).read()
            break
        except OSError:
            assert process.poll() is None, (tmp_path / "serve.log").read_text()
            time.sleep(0.1)
    yield url
    process.send_signal(signal.SIGTERM)
    assert process.wait(300) == -signal.SIGTERM or process.returncode == 0


@pytest.mark.thorough
def test_the_whole_way_of_a_submission(
    made: tuple[str, str], served: str, tmp_path: Path, examples: list[Example]
) -> None:
    database, _ = made
    token = tmp_path / "token"
    token.write_text(json.loads(recipe("board", "account", "add", "ann", "--database", database, "--json"))["token"])
    questions, plans = tmp_path / "questions.jsonl", tmp_path / "plans.jsonl"
    questions.write_bytes(urllib.request.urlopen(f"{served}/api/tracks/one/questions.jsonl").read())
    plans.write_bytes(lines(examples, 0.5))
    assert "ready to submit" in recipe("board", "check", plans, "--questions", questions)
    about = ("--track", "one", "--system", "mine", "--url", served, "--token-file", token)
    sent = json.loads(recipe("board", "submit", plans, *about, "--json"))
    assert sent["new"]
    assert "10 jobs scored" in recipe("board", "worker", "--database", database, "--until-empty", "--lease", "5")
    again = json.loads(recipe("board", "submit", plans, *about, "--wait", "--json"))
    assert again["submission"]["id"] == sent["id"]
    assert again["submission"]["jobs"][0]["value"] is None  # results are hidden
    recipe("board", "track", "one", "--results", "open", "--entries", "closed", "--database", database)
    found = json.loads(recipe("board", "status", sent["id"], "--url", served, "--json"))
    [board] = found["boards"]
    assert 0.2 < board["value"]["mean"] < 0.9
    assert "scored" in recipe("board", "status", "--url", served, "--token-file", token)
    output = tmp_path / "board.csv"
    recipe("board", "export", board["id"], "--database", database, "--output", output)
    assert len(output.read_text().splitlines()) == 11
    recipe("board", "export", board["id"], "--database", database, "--output", tmp_path / "board.json")
    assert len(json.loads((tmp_path / "board.json").read_text())["rows"]) == 10
    plans.write_bytes(lines(examples, 0.4))
    assert "closed" in fails("board", "submit", plans, *about)
    plans.write_bytes(b"{}\n")
    told = fails("board", "submit", plans, *about)
    assert "line 1" in told
    assert "example_id" in told
    assert json.loads(recipe("board", "account", "list", "--database", database, "--json"))[-1]["submissions"] == 1
    recipe("board", "account", "revoke", "ann", "--database", database)
    assert "revoked" in fails("board", "submit", plans, *about)


def test_an_export_is_of_one_state(made: tuple[str, str], tmp_path: Path) -> None:
    board = Board.open(made[0])
    [scorer] = [row.id for row in board.scorers()]
    board.close()
    for count in (0, 9):
        recipe("board", "export", scorer, "--database", made[0], "--output", tmp_path / "board.json")
        found = json.loads((tmp_path / "board.json").read_text())
        assert found["board"]["rows"] == len(found["rows"]) == count
        recipe("board", "worker", "--database", made[0], "--until-empty")


def test_check_tells_all_problems(tmp_path: Path, examples: list[Example]) -> None:
    questions, plans = tmp_path / "questions.jsonl", tmp_path / "plans.jsonl"
    rows = [{"example_id": one.example_id, "goal": one.goal, "history": []} for one in examples]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plans.write_bytes(lines(examples).replace(b'"steps"', b'"step"', 1) + b"x\n")
    output = recipe("board", "check", plans, "--questions", questions, "--json", code=1)
    found = json.loads(output)
    assert [(one["line"], one["field"]) for one in found["problems"]] == [(1, "step"), (1, "steps"), (41, "")]


@pytest.mark.thorough
def test_a_demo_board_needs_no_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = recipe("board", "init", "--demo")
    tokens = re.findall(r"token of (\w+): (rb_\S+)", said)
    assert [name for name, _ in tokens] == ["owner", "demo"]
    assert (tmp_path / "runs" / "board.db").is_file()
    assert "already" in fails("board", "init", "--demo")
    backup = tmp_path / "backup.db"
    recipe("board", "backup", "--output", backup)
    recipe("board", "restore", backup, "--database", tmp_path / "other.db")
    recipe("board", "upgrade", "--database", tmp_path / "other.db")
    recipe("board", "account", "token", "demo", "--database", tmp_path / "other.db")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "given",
    [
        ("init",),
        ("init", "none.toml"),
        ("serve", "--database", "none.db"),
        ("worker", "--database", "none.db"),
        ("worker", "--measures", "none"),
        ("rescore", "abc", "--database", "none.db"),
        ("backup", "--output", "x.db", "--database", "none.db"),
        ("restore", "none.db", "--database", "other.db"),
        ("init", "--demo", "--database", "a folder"),
        ("init", "--demo", "--database", "text"),
        ("upgrade", "--database", "a folder"),
        ("upgrade", "--database", "text"),
        ("worker", "--database", "text"),
        ("backup", "--output", "x.db", "--database", "text"),
        ("check", "none.jsonl", "--questions", "none.jsonl"),
        ("status", "--url", "ftp://host"),
        ("track", "one"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    given: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a folder").mkdir()
    (tmp_path / "text").write_text("no database")
    said = fails("board", *given)
    assert said.endswith(".")
    assert "\n" not in said


def test_settings_that_cannot_be_used_change_nothing(tmp_path: Path, examples: list[Example]) -> None:
    write_examples(tmp_path / "examples.jsonl", examples)
    for changed in ('measure = "judge"', 'measure = "none"', 'measure = "validity"\nlabell = "x"'):
        (tmp_path / "board.toml").write_text(SETTINGS.replace('measure = "validity"', changed))
        database = tmp_path / "board.db"
        fails("board", "init", tmp_path / "board.toml", "--database", database)
        database.unlink(missing_ok=True)


@pytest.mark.thorough
def test_a_worker_ends_at_a_signal(made: tuple[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "recipe", "board", "worker", "--database", made[0]]
    process = subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    board = Board.open(made[0])
    while Queue(board, "look", 1.0).waiting():
        assert process.poll() is None
        time.sleep(0.2)
    board.close()
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "9 jobs scored" in said
