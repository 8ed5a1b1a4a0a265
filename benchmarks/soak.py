"""The three services for half an hour under a mixed load with faults: memory and files flat, nothing lost.

    python benchmarks/soak.py [--run runs/demo] [--minutes 30]

Starts `recipe reward serve`, `recipe serve` and `recipe board serve` with two workers at once, on a run folder of
`recipe demo`. Clients score plans, whose rewards must be the same every time, to the rounding that docs/trainers.md
states; visitors ask for plans and follow them to the end, or leave in the middle; participants submit systems, of
which each must be scored once. With these come requests that must be refused and connections that stall, and every half
minute a worker is killed. Memory and open files of each service are read every ten seconds. Exits with 1 where an
answer was wrong, something was lost, a service died, memory grew by more than a tenth between the first third and the
end, or files by more than ten.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
from board_load import Processes, chains, plans_of, wait_for
from common import add_json, table, write_result
from serving_load import follow, memory
from sqlalchemy import select, update

from recipe.data.examples import read_examples
from recipe_apps.board.models import Job, Track
from recipe_apps.board.store import Board

REWARD, PAGE, BOARD = 8611, 8612, 8613
BAD: tuple[tuple[int, str, str, bytes], ...] = (
    (REWARD, "POST", "/score", b"{"),
    (REWARD, "POST", "/score", b'{"goal": "tea", "history": "a", "continuations": [["b"]]}'),
    (REWARD, "POST", "/score", b'{"goal": "tea", "history": ["a"], "continuations": [["' + b"b " * 50_000 + b'"]]}'),
    (REWARD, "GET", "/nowhere", b""),
    (PAGE, "POST", "/api/runs", b'{"goal": 7}'),
    (PAGE, "POST", "/api/runs", b'{"goal": "tea", "plans": 1000}'),
    (PAGE, "GET", "/api/runs/none/events", b""),
    (PAGE, "POST", "/api/clips", b"no clip"),
    (BOARD, "POST", "/api/check?track=none", b"{}"),
    (BOARD, "POST", "/api/submissions?track=world&system=x", b"{}"),
    (BOARD, "GET", "/boards/none", b""),
)
"""Requests that must be refused, with a status from 400 to 499."""


def same(one: Any, other: Any) -> bool:
    """Whether two answers differ by rounding alone: which texts are encoded together is chance."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or (isinstance(one, float) and isinstance(other, float) and abs(one - other) < 1e-6)


class Soak:
    """What the clients saw."""

    def __init__(self, folder: Path, until: float) -> None:
        self.folder, self.until = folder, until
        self.done: Counter[str] = Counter()
        self.times: dict[str, list[float]] = {"score": [], "plan": [], "page of the board": []}
        self.wrong: list[str] = []

    def going(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self.until

    def say(self, problem: str) -> None:
        """Keep a problem."""
        self.wrong.append(f"{problem} at {time.strftime('%H:%M:%S')}")

    async def score(self, prompts: list[dict[str, Any]], answers: dict[int, Any], seed: int) -> None:
        """A trainer that asks for rewards: the same request has the same answer for ever."""
        draw = random.Random(seed)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{REWARD}", timeout=60) as client:
            while self.going():
                which = draw.randrange(len(prompts))
                began = time.monotonic()
                answer = await client.post("/score", json=prompts[which])
                self.times["score"].append(time.monotonic() - began)
                if answer.status_code != 200 or not same(answers.setdefault(which, answer.json()), answer.json()):
                    self.say(f"prompt {which}: {answer.status_code} {answer.content[:200]!r}")
                self.done["rewards"] += 1
                await asyncio.sleep(0.05)

    async def plan(self, prompts: list[dict[str, Any]], seed: int) -> None:
        """A visitor of the page; one of five leaves in the middle."""
        draw = random.Random(seed)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{PAGE}", timeout=120) as client:
            while self.going():
                prompt = draw.choice(prompts)
                body = {"goal": prompt["goal"], "history": prompt["history"], "plans": 2, "seed": draw.randrange(1000)}
                began = time.monotonic()
                answer = await client.post("/api/runs", json=body)
                if answer.status_code == 429:
                    self.done["plans put off"] += 1
                    await asyncio.sleep(1)
                    continue
                run, leaves = answer.json()["id"], draw.random() < 0.2
                events = await follow(client, run, 0, 3 if leaves else None)
                if leaves:
                    self.done["plans left"] += 1
                    continue
                self.done["plans"] += 1
                self.times["plan"].append(time.monotonic() - began)
                if events[-1][1] != "done" or [number for number, _ in events] != list(range(1, len(events) + 1)):
                    self.say(f"run {run}: {events[-3:]}")
                if draw.random() < 0.2:
                    said = {"plan": 0, "step": 1, "verdict": "correct"}
                    await client.post(f"/api/runs/{run}/feedback", json=said)
                await asyncio.sleep(0.5)

    async def submit(self, board: Board, token: str, seed: int) -> None:
        """A participant of twenty systems: checks a file, submits it for the next one, looks at the board."""
        number, headers = 1000 * seed, {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{BOARD}", timeout=120, headers=headers) as client:
            while self.going():
                number += 1
                plans = plans_of(board, number)
                checked = await client.post("/api/check?track=world", content=plans)
                name = f"system-{seed}-{number % 20}"
                sent = await client.post(f"/api/submissions?track=world&system={name}", content=plans)
                if checked.status_code >= 400 or sent.status_code >= 400:
                    self.say(f"{name}: {sent.content[:200]!r}")
                self.done["submissions"] += 1
                for path in ("/", "/api/boards", f"/submissions/{sent.json().get('id')}"):
                    began = time.monotonic()
                    seen = await client.get(path)
                    self.times["page of the board"].append(time.monotonic() - began)
                    if seen.status_code >= 500:
                        self.say(f"{path}: {seen.status_code}")
                await asyncio.sleep(5)

    async def misuse(self, seed: int) -> None:
        """Requests that must be refused, one after another."""
        draw = random.Random(seed)
        async with httpx2.AsyncClient(timeout=60, headers={"content-type": "application/json"}) as client:
            while self.going():
                port, method, path, body = draw.choice(BAD)
                answer = await client.request(method, f"http://127.0.0.1:{port}{path}", content=body)
                if not 400 <= answer.status_code < 500:
                    self.say(f"{method} {path}: {answer.status_code} {answer.content[:100]!r}")
                self.done["refused"] += 1
                await asyncio.sleep(0.3)

    async def stall(self, port: int) -> None:
        """A connection that sends a header letter by letter until it is closed; then another one."""
        while self.going():
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"POST / HTTP/1.1\r\n")
                while self.going() and not reader.at_eof() and not writer.transport.is_closing():
                    await asyncio.sleep(1)
                    writer.write(b"x")
                    await writer.drain()
                writer.close()
            except OSError:
                pass
            self.done["stalled connections"] += 1
            await asyncio.sleep(0.2)

    async def watch(
        self, services: dict[str, int], workers: Processes, sizes: dict[str, list[tuple[float, int]]]
    ) -> None:
        """Read memory and files of each service every ten seconds; kill a worker every thirty."""
        number = 0
        while self.going():
            await asyncio.sleep(min(10.0, max(0.0, self.until - time.monotonic())))
            number += 1
            for name, process in services.items():
                try:
                    files = len(os.listdir(f"/proc/{process}/fd"))  # noqa: PTH208 - names alone
                    sizes[name].append((memory(process), files))
                except (OSError, StopIteration):
                    self.say(f"{name} is dead")
                    return
            if number % 3 == 0:
                workers.kill(random.choice(workers.workers()))
                workers.worker()


async def soak(given: argparse.Namespace, folder: Path, services: dict[str, int], workers: Processes) -> dict[str, Any]:
    """Run the load; what it showed."""
    board = Board.open(workers.database)
    board.database.write(lambda c: c.execute(update(Track).values(day_quota=10_000, total_quota=10_000)))
    tokens = [board.add_account(f"participant-{number}") for number in range(2)]
    examples = read_examples(given.run / "data/test.jsonl")[:60]
    prompts = [
        {"goal": one.goal, "history": list(one.history), "continuations": [list(one.continuation), ["wait"]]}
        for one in examples
    ]
    run = Soak(folder, time.monotonic() + 60 * given.minutes)
    sizes: dict[str, list[tuple[float, int]]] = {name: [] for name in services}
    answers: dict[int, Any] = {}
    async with asyncio.TaskGroup() as group:
        for seed in range(8):
            group.create_task(run.score(prompts, answers, seed))
        for seed in range(3):
            group.create_task(run.plan(prompts, seed))
        for seed, token in enumerate(tokens):
            group.create_task(run.submit(board, token, seed))
        for seed in range(3):
            group.create_task(run.misuse(seed))
        for port in (REWARD, PAGE, BOARD):
            for _ in range(10):
                group.create_task(run.stall(port))
        group.create_task(run.watch(services, workers, sizes))
    for _ in range(600):  # what is queued is scored
        states = Counter(board.database.query(lambda c: c.execute(select(Job.state)).scalars().all()))
        if not states["queued"] and not states["running"]:
            break
        await asyncio.sleep(1)
    run.wrong += chains(board)
    if set(states) != {"scored"}:
        run.say(f"jobs: {dict(states)}")
    board.close()
    result: dict[str, Any] = {"minutes": given.minutes, "answers": dict(run.done), "jobs": dict(states)}
    result["workers killed"] = workers.killed["worker"]
    for name, values in run.times.items():
        cut = statistics.quantiles(values, n=100)
        result[f"{name}: median and 99%, ms"] = [round(1000 * cut[49]), round(1000 * cut[98])]
    for name, read in sizes.items():
        third, end = read[len(read) // 3 :][:6], read[-6:]
        held = [statistics.fmean(size for size, _ in part) for part in (third, end)]
        files = [round(statistics.median(count for _, count in part)) for part in (third, end)]
        result[name] = {
            "MiB at the start, after a third, at the end": [round(read[0][0]), *(round(value) for value in held)],
            "open files after a third, at the end, most": [*files, max(count for _, count in read)],
        }
        if held[1] > 1.1 * held[0]:
            run.say(f"{name} grew from {held[0]:.0f} to {held[1]:.0f} MiB")
        if files[1] > files[0] + 10:
            run.say(f"{name} has {files[1]} files open, and had {files[0]}")
    return result | {"wrong": run.wrong[:20]}


def main() -> None:
    """Start the services, load them, and end them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", type=Path, default=Path("runs/demo"), help="run folder of `recipe demo`")
    parser.add_argument("--minutes", type=float, default=30.0)
    add_json(parser, "reliability-soak")
    given = parser.parse_args()
    recipe = [sys.executable, "-m", "recipe"]
    with tempfile.TemporaryDirectory(prefix="soak-") as path:
        folder = Path(path)
        database = str(folder / "board.db")
        made = ["board", "init", "--demo", "--run", str(given.run), "--encoder", "hash:64", "--database", database]
        subprocess.run([*recipe, *made], check=True, capture_output=True)
        workers = Processes(database, BOARD, folder, [])
        log = (folder / "log").open("ab")
        reward = ["reward", "serve", "--corpus", str(given.run / "corpus"), "--port", str(REWARD)]
        page = ["serve", "--model", str(given.run / "best-of-n/model"), "--corpus", str(given.run / "corpus")]
        page += ["--port", str(PAGE), "--keep", str(folder / "kept")]
        alone = os.environ | {"OMP_NUM_THREADS": "1"}
        begun = [subprocess.Popen([*recipe, *words], stdout=log, stderr=log, env=alone) for words in (reward, page)]
        workers.server()
        try:
            for port in (REWARD, PAGE, BOARD):
                wait_for(f"http://127.0.0.1:{port}")
            for _ in range(2):
                workers.worker()
            services = {
                "reward service": begun[0].pid,
                "planner page": begun[1].pid,
                "board": workers.running["server"].pid,
            }
            time.sleep(20)  # models are loaded behind /healthz
            result = asyncio.run(soak(given, folder, services, workers))
            lines = (folder / "log").read_text(errors="replace") + (folder / "server.log").read_text(errors="replace")
            if "Traceback" in lines:
                result["wrong"].append(f"a traceback in the logs: {lines[lines.index('Traceback') :][:1500]}")
        finally:
            workers.end()
            for process in begun:
                process.terminate()
                process.wait()
    print(json.dumps(result, indent=2))
    write_result(
        given.json,
        result,
        title=f"The three services for {given.minutes:g} minutes under a mixed load with faults",
        guide="reliability.md",
        body=[table({name: {"": value} for name, value in result.items()})],
        partial=given.minutes < parser.get_default("minutes"),
    )
    sys.exit(bool(result["wrong"]))


if __name__ == "__main__":
    main()
