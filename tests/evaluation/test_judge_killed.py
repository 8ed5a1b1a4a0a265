"""A judge that is killed goes on where it stood: the same table in the end, and no answer paid for twice."""

import hashlib
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai")
pytest.importorskip("scipy")
from tests.conftest import Recipe
from tests.models.endpoint_server import Reply, Server, completion, serving

from recipe.artifacts import read_json, write_jsonl
from recipe.evaluation.judge.verdicts import CRITERIA

CONCURRENCY = 16


def answer(body: dict[str, Any], _: int) -> Reply:
    """A verdict that depends on the prompt alone; one in twenty is prose, or none."""
    digest = hashlib.sha256(body["messages"][1]["content"].encode()).digest()
    scores = {name: byte % 6 for name, byte in zip(CRITERIA, digest, strict=False)}
    lines = "\n".join(f"{name}: {score}" for name, score in scores.items())
    texts = [lines, "I would rather not say."] + [json.dumps(scores)] * 18
    return completion(texts[digest[10] % 20])


def write_files(folder: Path, count: int) -> None:
    """Examples and plans, `count` of each, of some datasets and videos."""
    examples = (
        {"example_id": f"e{n}", "source": ("coin", "crosstask", "niv")[n % 3], "video_id": f"v{n // 2}"}
        | {"goal": f"goal {n % 7}", "history": [f"step {n}"], "continuation": [f"step {n + 1}", f"step {n + 2}"]}
        for n in range(count)
    )
    write_jsonl(folder / "examples.jsonl", examples)
    write_jsonl(
        folder / "plans.jsonl", ({"example_id": f"e{n}", "steps": [f"step {n + 2}", "rest"]} for n in range(count))
    )


def command(folder: Path, server: Server, output: Path) -> list[str]:
    arguments = (
        f"evaluate judge {folder}/plans.jsonl --examples {folder}/examples.jsonl --judge m --endpoint {server.url} "
        f"--concurrency {CONCURRENCY} --controls 5 --output {output} --json"
    )
    return [sys.executable, "-m", "recipe", *arguments.split()]


def killed(folder: Path, count: int, kills: int) -> Counter[str]:
    """Judge `count` plans in a process that is killed so often, each time after a like share of the answers.

    Returns how often the endpoint was asked what.
    """
    last = folder / "killed.json"
    with serving(answer) as server:
        for kill in range(1, kills + 1):
            process = subprocess.Popen(
                command(folder, server, last), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            # The next request is held back, so that it is not done before it is killed.
            server.held_from = kill * count // (kills + 1)
            server.until(lambda process=process: len(server.requests) >= server.held_from or process.poll() is not None)  # type: ignore[misc]
            assert process.poll() is None
            process.kill()
            process.wait()
            server.held_from = math.inf
            server.until(lambda: not server.under_way)
            assert not last.exists()
        subprocess.run(command(folder, server, last), check=True, capture_output=True)
        return Counter(json.dumps([body["messages"], body["seed"]]) for body in server.requests)


@pytest.mark.thorough
@pytest.mark.parametrize(("count", "kills"), [(150, 1), pytest.param(10_000, 5, marks=pytest.mark.slow)])
def test_a_judge_that_is_killed_pays_for_no_answer_twice(
    tmp_path: Path, recipe: Recipe, count: int, kills: int
) -> None:
    write_files(tmp_path, count)
    asked = killed(tmp_path, count, kills)
    with serving(answer) as server:
        assert recipe(*command(tmp_path, server, tmp_path / "whole.json")[3:]).code == 0
    tables = [read_json(tmp_path / f"{name}.json") for name in ("killed", "whole")]
    ledgers = [table.pop("ledger") for table in tables]
    assert tables[0] == tables[1]
    rows = [(tmp_path / f"{name}.rows.jsonl").read_bytes() for name in ("killed", "whole")]
    assert rows[0] == rows[1]
    assert len(rows[0].splitlines()) >= count
    # The last run was paid for less than all, and what earlier ones were paid for came from the cache.
    assert ledgers[0]["answers"] + ledgers[0]["cached"] == ledgers[1]["answers"] + ledgers[1]["cached"]
    assert len(asked) == ledgers[1]["answers"]
    assert asked.total() - len(asked) <= kills * CONCURRENCY
