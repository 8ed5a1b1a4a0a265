r"""The planner page under load: clients that come, leave and come back; every event once, no run lost, memory flat.

    python benchmarks/serving_load.py --model runs/demo/grpo/model --corpus runs/demo/corpus \
        --examples runs/demo/data/test.jsonl [--clients 32] [--seconds 300]

Starts `recipe serve` as a process of its own. Each client asks for two plans, follows the events to the end, and asks
again. Of ten runs, one is left in the middle for good, and three are left and taken up again behind the last event, in
pieces of a few events. Exits with 1 where an event came twice, out of order or not at all, where a run did not end in
`done`, or where memory grew by more than a tenth from a third of the time on.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from common import add_json, table, write_result

from recipe.data.examples import read_examples

_PORT = 8099


@dataclass
class Seen:
    """What all clients saw."""

    runs: int = 0
    left: int = 0
    resumed: int = 0
    events: int = 0
    first_step: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    refused: int = 0
    faults: list[str] = field(default_factory=list)


async def follow(client: httpx2.AsyncClient, run: str, after: int, most: int | None) -> list[tuple[int, str]]:
    """Numbers and kinds of the events behind one, up to the end or `most` of them."""
    found: list[tuple[int, str]] = []
    number, kind = 0, ""
    headers = {"Last-Event-ID": str(after)}
    async with client.stream("GET", f"/api/runs/{run}/events", headers=headers) as answer:
        if answer.status_code == 204:
            return found
        async for line in answer.aiter_lines():
            if line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("event: "):
                kind = line[7:]
            elif not line and number:
                found.append((number, kind))
                number = 0
                if len(found) == most:
                    break
    return found


async def visitor(url: str, prompts: list[tuple[str, list[str]]], until: float, seen: Seen, seed: int) -> None:
    """One client until the time is over."""
    draw = random.Random(seed)
    async with httpx2.AsyncClient(base_url=url, timeout=120) as client:
        while time.monotonic() < until:
            goal, history = draw.choice(prompts)
            body = {"goal": goal, "history": history, "plans": 2, "seed": draw.randrange(1000)}
            began = time.monotonic()
            answer = await client.post("/api/runs", json=body)
            if answer.status_code == 429:
                seen.refused += 1
                await asyncio.sleep(1)
                continue
            run, manner = answer.json()["id"], draw.random()
            events: list[tuple[int, str]] = []
            if manner < 0.1:
                await follow(client, run, 0, draw.randrange(2, 8))
                seen.left += 1
                continue
            seen.runs += 1
            seen.resumed += manner < 0.4
            first = None
            while not events or events[-1][1] not in ("done", "failed", "cancelled"):
                most = draw.randrange(1, 12) if manner < 0.4 else (4 if first is None else None)
                events += await follow(client, run, len(events), most)
                if first is None and any(kind == "step" for _, kind in events):
                    first = time.monotonic() - began
            seen.whole.append(time.monotonic() - began)
            seen.first_step += [] if first is None else [first]
            seen.events += len(events)
            if [number for number, _ in events] != list(range(1, len(events) + 1)):
                seen.faults.append(f"run {run}: events {[number for number, _ in events][:40]}")
            if events[-1][1] != "done":
                seen.faults.append(f"run {run} ended as {events[-1][1]}")


def memory(process: int) -> float:
    """MiB that a process holds."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


async def measure(asked: argparse.Namespace, server: int) -> dict[str, Any]:
    """Let the clients loose, and watch."""
    url = f"http://127.0.0.1:{_PORT}"
    prompts = [(one.goal, list(one.history)) for one in read_examples(asked.examples)][:200]
    seen, began = Seen(), time.monotonic()
    until = began + asked.seconds
    clients = [asyncio.create_task(visitor(url, prompts, until, seen, seed)) for seed in range(asked.clients)]
    samples = []
    while time.monotonic() < until:
        await asyncio.sleep(asked.seconds / 60)
        samples.append(memory(server))
    await asyncio.gather(*clients)
    async with httpx2.AsyncClient(base_url=url) as client:
        text = (await client.get("/metrics")).text
    gauges = dict(line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    third = samples[len(samples) // 3 :]
    return {
        "clients": asked.clients,
        "seconds": round(time.monotonic() - began),
        "runs followed to the end": seen.runs,
        "of them resumed": seen.resumed,
        "runs left": seen.left,
        "refused for a full queue": seen.refused,
        "events": seen.events,
        "seconds to the first step, median and 95%": quantiles(seen.first_step),
        "seconds to the end, median and 95%": quantiles(seen.whole),
        "tokens": float(gauges.get("recipe_page_tokens_total", 0)),
        "memory in MiB: start, a third, end": [round(samples[0]), round(third[0]), round(samples[-1])],
        "memory grew by": round(statistics.fmean(samples[-5:]) / statistics.fmean(third[:5]) - 1, 3),
        "faults": seen.faults,
    }


def quantiles(values: list[float]) -> list[float]:
    """The median and the 95% quantile."""
    ordered = sorted(values)
    return [round(ordered[int(share * (len(ordered) - 1))], 2) for share in (0.5, 0.95)] if ordered else []


def main() -> int:
    """Start the server, measure, print, and say whether all was well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--model", "--corpus", "--examples"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=300.0)
    add_json(parser, "serving")
    asked = parser.parse_args()
    command = [sys.executable, "-m", "recipe", "serve", "--model", asked.model, "--corpus", asked.corpus]
    server = subprocess.Popen([*map(str, command), "--port", str(_PORT)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                httpx2.get(f"http://127.0.0.1:{_PORT}/healthz")
                break
            except httpx2.TransportError:
                time.sleep(0.2)
        result = asyncio.run(measure(asked, server.pid))
    finally:
        server.terminate()
        server.wait(60)
    print(json.dumps(result, indent=1))
    write_result(
        asked.json,
        result,
        title="The planner page under load",
        guide="serving.md",
        body=[
            "Two plans a run; of ten runs one is left for good, and three are left and taken up again in pieces.",
            table({name: {"": value} for name, value in result.items()}),
        ],
        partial=asked.seconds < parser.get_default("seconds"),
    )
    return int(bool(result["faults"]) or result["memory grew by"] > 0.1)


if __name__ == "__main__":
    sys.exit(main())
