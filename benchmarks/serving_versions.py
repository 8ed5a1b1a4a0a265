"""A plan on the planner page and a request to the reward service, by two versions of the code in turns.

    git worktree add OLD COMMIT
    python benchmarks/serving_versions.py --before OLD --model runs/demo/grpo/model --corpus runs/demo/corpus \
        --examples runs/demo/data/test.jsonl [--quick]

Both versions serve the page and the service on one model and one corpus. A turn is one run of the page, eight runs at
once, or one request of a plan, to one version and then to the other; neither always comes first. A run is timed from
the request to its last event. Requests send plans with words that no version has seen, and then the same plans again.
The rewards of both versions are compared; those of the page may differ in the last bits, because what is scored with a
plan depends on when its steps arrived.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from common import ROOT, add_json, table, write_result

from recipe.data.examples import read_examples

_PORT = 8110
_PLANS = 2
"""Plans of a run."""
_TURNS = {"page, one run": (1, 60), "page, eight runs at once": (8, 10)}
"""Runs at once, and turns."""
_REQUESTS = 150

Prompt = tuple[str, list[str]]


@contextmanager
def server(tree: Path, port: int, command: Sequence[str], ready: str) -> Iterator[str]:
    """The address of a server of one version; its `ready` path answers."""
    arguments = [sys.executable, "-m", "recipe", *command, "--port", str(port)]
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    process = subprocess.Popen(arguments, env=environment, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                if httpx2.get(f"{url}/{ready}").status_code == 200:
                    break
            except httpx2.TransportError:
                pass
            time.sleep(0.2)
        else:
            raise RuntimeError(f"the server of {tree} is not ready")
        yield url
    finally:
        process.terminate()
        process.wait(60)


async def run(client: httpx2.AsyncClient, url: str, prompt: Prompt, seed: int) -> tuple[float, dict[int, Any]]:
    """Seconds of a run of the page, and each plan with its reward and what its steps add."""
    goal, history = prompt
    body = {"goal": goal, "history": history, "plans": _PLANS, "seed": seed}
    began, kind, plans = time.perf_counter(), "", {}
    identity = (await client.post(f"{url}/api/runs", json=body)).json()["id"]
    async with client.stream("GET", f"{url}/api/runs/{identity}/events") as answer:
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: ") and kind == "plan":
                row = json.loads(line[6:])
                plans[row["plan"]] = (row["steps"], row["reward"], row["adds"], row["evidence"])
    if len(plans) < _PLANS:
        raise RuntimeError(f"the run of {goal!r} ended as {kind}")
    return time.perf_counter() - began, plans


def difference(some: dict[int, Any], others: dict[int, Any]) -> float:
    """How far the figures of two runs lie apart at most. Raises RuntimeError where their steps or evidence differ."""
    apart = 0.0
    for number, (steps, reward, adds, evidence) in some.items():
        other_steps, other_reward, other_adds, other_evidence = others[number]
        if (steps, evidence) != (other_steps, other_evidence):
            raise RuntimeError(f"the versions write other steps, or show other evidence: {steps} and {other_steps}")
        apart = max(apart, *(abs(a - b) for a, b in zip([reward, *adds], [other_reward, *other_adds], strict=True)))
    return apart


async def measure_page(urls: dict[str, str], prompts: Sequence[Prompt], at_once: int, turns: int) -> dict[str, Any]:
    """Milliseconds of every run by version, and the largest difference of a figure."""
    taken: dict[str, list[float]] = {name: [] for name in urls}
    apart = 0.0
    async with httpx2.AsyncClient(timeout=120) as client:
        for turn in range(-1, turns):  # what the first turn compiles and loads does not count
            chosen = [prompts[(turn * at_once + place) % len(prompts)] for place in range(at_once)]
            found = {}
            for name in sorted(urls, reverse=bool(turn % 2)):
                found[name] = await asyncio.gather(*(run(client, urls[name], prompt, turn + 1) for prompt in chosen))
                taken[name] += [seconds * 1e3 for seconds, _ in found[name]] if turn >= 0 else []
            before, now = found.values()
            apart = max(apart, *(difference(a, b) for (_, a), (_, b) in zip(before, now, strict=True)))
    return summary(taken) | {"largest difference": apart}


def measure_service(urls: dict[str, str], bodies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Milliseconds of every request by version, and the largest difference of a reward."""
    taken: dict[str, list[float]] = {name: [] for name in urls}
    apart = 0.0
    with httpx2.Client(timeout=120) as client:
        for turn, body in enumerate(bodies):
            rewards = {}
            for name in sorted(urls, reverse=bool(turn % 2)):
                began = time.perf_counter()
                answer = client.post(f"{urls[name]}/score", json=body)
                taken[name].append((time.perf_counter() - began) * 1e3)
                rewards[name] = answer.json()["reward"]["total"]
            apart = max(apart, abs(rewards["before"] - rewards["now"]))
    return summary(taken) | {"largest difference": apart}


def summary(taken: dict[str, list[float]]) -> dict[str, Any]:
    """Both versions' median and 99% quantile."""
    cuts = {name: statistics.quantiles(values, n=100, method="inclusive") for name, values in taken.items()}
    shown = {f"p{at}, ms, {name}": cuts[name][at - 1] for at in (50, 99) for name in ("before", "now")}
    return shown | {"count": len(taken["now"])}


def main() -> None:
    """Measure, print, and write the table where --json says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--before", "--model", "--corpus", "--examples"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="a tenth of the turns: checks the script, not the speed")
    add_json(parser, "serving-versions")
    asked = parser.parse_args()
    share = 10 if asked.quick else 1
    examples = read_examples(asked.examples)
    prompts = [(one.goal, list(one.history)) for one in examples]
    random.Random(0).shuffle(prompts)
    bodies = [
        {
            "goal": one.goal,
            "history": list(one.history),
            "continuation": [f"{step}, about {number} times" for step in one.continuation],
        }
        for number, one in zip(range(_REQUESTS // share), examples * _REQUESTS, strict=False)
    ]

    page = ["serve", "--model", str(asked.model), "--corpus", str(asked.corpus)]
    service = ["reward", "serve", "--verifier", "grounded", "--corpus", str(asked.corpus)]
    trees = {"before": asked.before, "now": ROOT}
    rows: dict[str, dict[str, Any]] = {}
    with ExitStack() as servers:
        pages = {
            name: servers.enter_context(server(tree, _PORT + place, page, "healthz"))
            for place, (name, tree) in enumerate(trees.items())
        }
        for name, (at_once, turns) in _TURNS.items():
            rows[name] = asyncio.run(measure_page(pages, prompts, at_once, max(turns // share, 2)))
            print(name, rows[name], flush=True)
    with ExitStack() as servers:
        services = {
            name: servers.enter_context(server(tree, _PORT + 2 + place, service, "readyz"))
            for place, (name, tree) in enumerate(trees.items())
        }
        for name in ("service, a plan of new words", "service, the same plan again"):
            rows[name] = measure_service(services, bodies)
            print(name, rows[name], flush=True)

    git = ["git", "-C", str(asked.before), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    write_result(
        asked.json,
        {"before": commit, "rows": rows},
        title="A plan on the page and a request to the service, by two versions",
        guide="serving.md",
        body=[
            f"`before` is commit {commit}. Both versions answer the same requests in turns. A run of the page has "
            f"{_PLANS} plans and is timed to its last event; a request to the service has one plan.",
            table(rows, "what is asked"),
        ],
        partial=asked.quick,
    )


if __name__ == "__main__":
    main()
