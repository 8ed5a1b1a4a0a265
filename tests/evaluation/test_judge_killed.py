"""A judge that is killed goes on where it stood: the same table in the end, and no answer paid for twice."""

import hashlib
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("openai")
pytest.importorskip("scipy")
from tests.conftest import Recipe
from tests.models.endpoint_server import Reply, Server, completion, serving

from recipe.artifacts import write_jsonl
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
    write_jsonl(
        folder / "examples.jsonl",
        (
            {
                "example_id": f"e{n}",
                "source": ("coin", "crosstask", "niv")[n % 3],
                "video_id": f"v{n // 2}",
                "goal": f"goal {n % 7}",
                "history": [f"step {n}"],
                "continuation": [f"step {n + 1}", f"step {n + 2}"],
            }
            for n in range(count)
        ),
    )
    write_jsonl(
        folder / "plans.jsonl", ({"example_id": f"e{n}", "steps": [f"step {n + 2}", "rest"]} for n in range(count))
    )


class Asked(NamedTuple):
    """What the endpoint counted over all runs of a job."""

    requests: int
    distinct: int
    repeated: int
    in_flight: int
    """Requests that the endpoint had not answered to the end at the kills."""
    runs: int


def command(folder: Path, server: Server, output: Path) -> list[str]:
    arguments = (
        f"evaluate judge {folder}/plans.jsonl --examples {folder}/examples.jsonl --judge m --endpoint {server.url} "
        f"--concurrency {CONCURRENCY} --controls 5 --output {output} --json"
    )
    return [sys.executable, "-m", "recipe", *arguments.split()]


def killed(folder: Path, count: int, kills: int) -> Asked:
    """Judge `count` plans in a process that is killed so often, each time after a like share of the answers."""
    with serving(answer) as server:
        in_flight = 0
        for kill in range(1, kills + 1):
            process = subprocess.Popen(
                command(folder, server, folder / "killed.json"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            # The next request is held back, so that it is not done before it is killed.
            server.held_from = kill * count // (kills + 1)
            server.until(lambda process=process: len(server.requests) >= server.held_from or process.poll() is not None)  # type: ignore[misc]
            assert process.poll() is None
            process.kill()
            process.wait()
            in_flight += server.under_way
            server.held_from = math.inf
            server.until(lambda: not server.under_way)
            assert not (folder / "killed.json").exists()
        subprocess.run(
            command(folder, server, folder / "killed.json"),
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        asked = Counter(json.dumps([body["messages"], body["seed"]]) for body in server.requests)
    return Asked(asked.total(), len(asked), asked.total() - len(asked), in_flight, kills + 1)


def judged_at_once(folder: Path, recipe: Recipe) -> None:
    with serving(answer) as server:
        assert recipe(*command(folder, server, folder / "whole.json")[3:]).code == 0


def check(folder: Path, recipe: Recipe, count: int, kills: int) -> Asked:
    write_files(folder, count)
    asked = killed(folder, count, kills)
    judged_at_once(folder, recipe)
    tables = [json.loads((folder / f"{name}.json").read_text()) for name in ("killed", "whole")]
    ledgers = [table.pop("ledger") for table in tables]
    assert tables[0] == tables[1]
    rows = [(folder / f"{name}.rows.jsonl").read_bytes() for name in ("killed", "whole")]
    assert rows[0] == rows[1]
    assert len(rows[0].splitlines()) >= count
    # The last run was paid for less than all, and what earlier ones were paid for came from the cache.
    assert ledgers[0]["answers"] + ledgers[0]["cached"] == ledgers[1]["answers"] + ledgers[1]["cached"]
    assert asked.distinct == ledgers[1]["answers"]
    assert asked.repeated <= kills * CONCURRENCY
    return asked


@pytest.mark.thorough
def test_a_judge_that_is_killed_pays_for_no_answer_twice(tmp_path: Path, recipe: Recipe) -> None:
    check(tmp_path, recipe, count=150, kills=1)


@pytest.mark.slow
def test_ten_thousand_judgements_survive_five_kills(tmp_path: Path, recipe: Recipe) -> None:
    asked = check(tmp_path, recipe, count=10_000, kills=5)
    sys.stderr.write(f"{asked}\n")
