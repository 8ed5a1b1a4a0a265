"""Commands that a running page answers: the same results, and no model in the process of the command."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from tests.conftest import built_corpus
from tests.serving.conftest import SALAD, TEA, plan_text
from typer.testing import CliRunner

from recipe.cli import app
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, InputError
from recipe.types import Narration, Segment


def answered(*words: object) -> Any:
    result = CliRunner().invoke(app, [*map(str, words), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each plain value of a JSON value, with where it lies."""
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, f"{path}/{name}")
    else:
        yield path, value


def test_a_server_answers_as_the_command_itself_does(serve: Any, tea_corpus: Corpus) -> None:
    plan = ("--goal", "make tea", "--history", "boil the water", "--continuation", "1. warm the pot\n2. sing")
    commands = [
        ("corpus", "search", tea_corpus.folder, "warm the pot", "pour the water", "-k", 3),
        ("reward", "explain", "--corpus", tea_corpus.folder, *plan),
        ("reward", "explain", "--corpus", tea_corpus.folder, *plan, "--verifier", "grounded"),
        ("reward", "explain", "--corpus", tea_corpus.folder, *plan, "--pool", "full"),
    ]
    with serve() as page:
        for command in commands:
            there, here = (dict(leaves(answered(*command, *more))) for more in (("--server", page.url), ()))
            # The hash encoder rounds by the texts that a batch holds; others do not.
            numbers = {path for path, value in here.items() if isinstance(value, float)}
            assert {path: there[path] for path in numbers} == pytest.approx(
                {path: here[path] for path in numbers}, abs=1e-6
            )
            assert all(there[path] == value for path, value in here.items() if path not in numbers)
            assert there.keys() == here.keys()
            assert len(numbers) > 10


def test_a_server_writes_the_plans(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve([plan_text(TEA), plan_text(SALAD)], token=SecretStr("secret")) as page:
        words = ("plan", "--server", page.url, "--goal", "make tea", "--history", "boil the water", "--count", 3)
        with pytest.raises(InputError, match="token"):
            answered(*words)
        monkeypatch.setenv("RECIPE_TOKEN", "secret")
        run = answered(*words)
        assert [plan["steps"] for plan in run["plans"]] == [list(TEA), list(SALAD)]
        assert [plan["samples"] for plan in run["plans"]] == [2, 1]
        printed = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False).stdout
        assert f"5. {TEA[4]}" in printed
        assert "now warm the pot" in printed
        with pytest.raises(ComputeError, match="too long"):
            answered("plan", "--server", page.url, "--goal", "too long")
        for option, value in (
            ("--corpus", "corpus"), ("--verifier", "paper"), ("--temperature", "0"), ("--endpoint", "http://localhost:1/v1"),
            ("--split", "test"), ("--search", "recombine"),
        ):  # fmt: skip
            with pytest.raises(InputError, match=option):
                answered(*words, option, value)
        with pytest.raises(InputError, match=r"plan\.prompt"):
            answered(*words, "--set", "plan.prompt=plain")
        assert answered(*words, "--set", "sampling.seed=3")["plans"]
    with pytest.raises(ComputeError, match="planner page"):
        answered(*words)


def test_another_corpus_is_refused(serve: Any, tmp_path: Path) -> None:
    narrations = [Narration(f"n{n}", (Segment("boil the water"), Segment("pour it"))) for n in range(3)]
    built_corpus(tmp_path / "corpus", narrations, "hash:256")
    words = ("corpus", "search", tmp_path / "corpus", "boil")
    with serve() as page, pytest.raises(InputError, match="other_corpus"):
        answered(*words, "--server", page.url)
    with serve(evidence=None) as page, pytest.raises(InputError, match="other_corpus"):
        answered(*words, "--server", page.url)
    explain = ("reward", "explain", "--corpus", tmp_path / "corpus", "--goal", "tea", "--history", "boil")
    with pytest.raises(InputError, match="--verifier mine:reward"):
        answered(*explain, "--continuation", "pour", "--verifier", "mine:reward", "--server", "http://localhost:1")
    with pytest.raises(InputError, match="--devices"):
        answered(*words, "--server", "http://localhost:1", "--devices", "cuda:0")


def test_bad_questions_are_refused(serve: Any, tea_corpus: Corpus) -> None:
    identity = tea_corpus.manifest["id"]
    with serve() as page:
        for path, body in (
            ("search", {"corpus": identity, "steps": []}),
            ("search", {"corpus": identity, "steps": ["  "]}),
            ("search", {"corpus": identity, "steps": ["boil"], "k": 10**6}),
            ("explain", {"corpus": identity, "goal": "tea", "history": [], "plan": ["x" * 501]}),
            ("explain", {"corpus": identity, "goal": "tea", "history": ["a"], "plan": ["b"], "verifier": "mine"}),
        ):
            assert page.client.post(f"/api/{path}", json=body).status_code == 422, body


def test_no_model_is_loaded_where_a_server_answers(serve: Any, tea_corpus: Corpus) -> None:
    program = (
        "import sys; from recipe.cli import main; sys.argv[0] = 'recipe'\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'numba', 'scipy', 'pandas', 'sentence_transformers'} & {*sys.modules}\n"
        "assert not heavy, heavy"
    )
    explain = ("--goal", "tea", "--history", "boil", "--continuation", "pour")
    with serve() as page:
        for words in (
            ("plan", "--goal", "make tea"),
            ("corpus", "search", tea_corpus.folder, "boil the water"),
            ("reward", "explain", "--corpus", tea_corpus.folder, *explain),
        ):
            command = [sys.executable, "-c", program, *map(str, words), "--server", page.url]
            subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL)
