"""One file of one's own procedures is what every command reads, in each of its forms, without ids."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Recipe
from tests.models.endpoint_server import Reply, completion, serving

for package in ("numba", "openai", "scipy"):
    pytest.importorskip(package)

STEPS = ["boil the water", "warm the pot", "add the leaves", "pour the water", "let it steep", "strain it", "drink it"]
GOALS = ["brew a pot of tea", "make an infusion of herbs"]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as stream:
            table = csv.writer(stream)
            table.writerow(rows[0])
            table.writerows(
                [value if isinstance(value, str) else "\n".join(value) for value in row.values()] for row in rows
            )
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=2), encoding="utf-8")
    else:
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


@pytest.fixture
def corpus(recipe: Recipe) -> str:
    told = [{"video_id": f"n{n}", "sentences": [*STEPS[n % 3 :], "chop the onion", f"line {n}"]} for n in range(12)]
    (recipe.folder / "told.jsonl").write_text("\n".join(map(json.dumps, told)))
    outcome = recipe("corpus", "build", "told.jsonl", "--output", "small", "--encoder", "hash:64")
    assert outcome.code == 0, outcome.err
    return "small"


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
@pytest.mark.parametrize("file", ["own.jsonl", "own.json", "own.csv"])
def test_every_command_reads_the_file(recipe: Recipe, corpus: str, file: str, cut: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"goal": GOALS[0], "steps": STEPS[:6]},
        {"goal": GOALS[1], "steps": STEPS},
        *({"goal": GOALS[0], "steps": [*STEPS[:n], "stir it", *STEPS[n:]]} for n in range(3)),
    ]
    if cut:
        rows = [{"goal": row["goal"], "history": row["steps"][:3], "continuation": row["steps"][3:]} for row in rows]
    write(recipe.folder / file, rows)

    def done(*words: object) -> Any:
        outcome = recipe(*words, "--json")
        assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)

    covered = done("reward", "coverage", "--corpus", corpus, "--tasks", file)
    assert len(covered["tasks"]) == 2
    audit = ("reward", "audit", "--corpus", corpus, "--procedures", file, "--verifier", "grounded", "--skip-attack")
    assert {reward["mean"]["observations"] for reward in done(*audit)["rewards"]} == {5}
    with serving(lambda _body, _before: answer()) as server:
        model = ("--model", "m", "--endpoint", server.url)
        planned = done("plan", *model, "--examples", file, "--output", "plans.jsonl")
    assert planned["predictions"] == 5
    scores = done("evaluate", "match", "plans.jsonl", "--examples", file, "--encoder", "hash:64")
    matched = scores["groups"][0]["values"]["matched_f1"]
    assert matched["observations"] == 5
    assert matched["mean"] > 0
    built = ("corpus", "build", "told.jsonl", "--output", "kept", "--encoder", "hash:64", "--exclude", file)
    assert done(*built)["narrations"] <= 12


def test_one_verifier_needs_no_list(recipe: Recipe, corpus: str) -> None:
    from recipe import Corpus, RewardConfig, audit_rewards

    rows = [{"goal": GOALS[n % 2], "steps": [*STEPS[:n], "stir it", *STEPS[n:]]} for n in range(5)]
    write(recipe.folder / "own.jsonl", rows)
    for verifiers in ("grounded", RewardConfig(verifier="grounded"), lambda goal, history, plan: float(len(plan))):
        one, several = (
            audit_rewards(Corpus.open(corpus), "own.jsonl", verifiers=own) for own in (verifiers, [verifiers])
        )
        assert [reward.name for reward in one.rewards] == [reward.name for reward in several.rewards]


def answer() -> Reply:
    return completion("\n".join(STEPS))
