"""What HTTP costs: clients that send one plan at a time, against the same plans in one call of the library.

    python benchmarks/service.py [--quick] [--json FILE]

The corpus and the prompts are those of `recipe run configs/narrations.toml`; the plans are four for each prompt: its
true continuation and steps drawn from all. Cold, no text is known to the verifier; warm, all are. A server process
and a client process share this machine with nothing else; the library runs in a process of its own, before and after,
and the better of its two times counts. Every answer is compared with the library's.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from measure import processor

from recipe.artifacts import read_jsonl, write_json

ROOT = Path(__file__).parents[1]
COLD_PROMPTS, WARM_ROUNDS, GROUP = 96, 6, 4


class Sample(NamedTuple):
    """One request."""

    goal: str
    history: tuple[str, ...]
    plan: tuple[str, ...]


class Load(NamedTuple):
    """What the clients saw."""

    seconds: float
    milliseconds: list[float]
    rewards: list[float]
    retries: int


def samples(run: Path, prompts: int) -> list[Sample]:
    """Four plans for each prompt; every prompt and text as written in the run's examples."""
    rows = [row for name in ("test", "train") for _, row in read_jsonl(run / "data" / f"{name}.jsonl")]
    draw = random.Random(0)
    steps = sorted({step for row in rows for step in row["continuation"]})
    chosen = draw.sample(rows, prompts)
    return [
        Sample(row["goal"], tuple(row["history"]), tuple(plan))
        for row in chosen
        for plan in [row["continuation"], *(_plan(draw, steps) for _ in range(GROUP - 1))]
    ]


def _plan(draw: random.Random, steps: Sequence[str]) -> list[str]:
    """Steps in the wording of a policy that is still learning: no two texts are the same."""
    return [f"{step} {draw.choice(('now', 'again', 'slowly', 'well', 'first'))}" for step in draw.sample(steps, 5)]


def library(corpus: Path, method: str, asked: Sequence[Sample], rounds: int) -> dict[str, Any]:
    """Seconds of one batched call with nothing known, the least of several with all known, and the rewards."""
    from recipe.config import RewardConfig
    from recipe.corpus.store import Corpus
    from recipe.reward.prompts import PromptGroup
    from recipe.reward.service.server import warm_up
    from recipe.reward.verifier import Verifier

    verifier = Verifier(Corpus.open(corpus), RewardConfig(verifier=method))
    warm_up(verifier, [])
    plans: dict[tuple[str, tuple[str, ...]], list[tuple[str, ...]]] = {}
    for sample in asked:
        plans.setdefault((sample.goal, sample.history), []).append(sample.plan)
    groups = [PromptGroup(goal, history, mine) for (goal, history), mine in plans.items()]

    def call() -> tuple[float, dict[tuple[str, tuple[str, ...]], list[float]]]:
        began = time.perf_counter()
        verifier.prepare(groups)
        rewards = {
            (one.goal, one.history): [reward.total for reward in verifier.score(one.history, one.plans, one.goal)]
            for one in groups
        }
        return time.perf_counter() - began, rewards

    cold, rewards = call()
    warm = min(call()[0] for _ in range(rounds))
    left = {prompt: iter(values) for prompt, values in rewards.items()}
    return {"cold": cold, "warm": warm, "rewards": [next(left[one.goal, one.history]) for one in asked]}


async def clients(port: int, asked: Sequence[Sample], count: int) -> Load:
    """As many clients as `count`, each with one request under way, until all samples are scored."""
    bodies = [json.dumps({"goal": s.goal, "history": s.history, "continuation": s.plan}).encode() for s in asked]
    left = iter(range(len(asked)))
    rewards, times, retries = [0.0] * len(asked), [0.0] * len(asked), 0

    async def client() -> None:
        nonlocal retries
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in left:
            body = bodies[number]
            began = time.perf_counter()
            while True:
                writer.write(b"POST /score HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                answer = await reader.readexactly(length)
                if head.startswith(b"HTTP/1.1 200"):
                    break
                retries += 1
                await asyncio.sleep(0.05)
            times[number] = (time.perf_counter() - began) * 1e3
            rewards[number] = json.loads(answer)["reward"]["total"]
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(count)))
    return Load(time.perf_counter() - began, times, rewards, retries)


def service(corpus: Path, method: str, asked: Sequence[Sample], count: int, rounds: int) -> dict[str, Load]:
    """The same samples through a fresh service, once with nothing known, then with all known."""
    command = ["reward", "serve", "--corpus", str(corpus), "--verifier", method, "--port", "0"]
    process = subprocess.Popen([sys.executable, "-m", "recipe", *command], stderr=subprocess.PIPE, text=True)
    try:
        port = _port(process)
        _await_ready(port)
        cold = asyncio.run(clients(port, asked, count))
        warm = asyncio.run(clients(port, list(asked) * rounds, count))
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    return {"cold": cold, "warm": warm}


def _port(process: "subprocess.Popen[str]") -> int:
    assert process.stderr is not None
    for line in process.stderr:
        if " at http://" in line:
            return int(line.rstrip().rpartition(":")[2])
    raise RuntimeError("the service did not start")


def _await_ready(port: int) -> None:
    from urllib.error import URLError
    from urllib.request import urlopen

    for _ in range(600):
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz"):
                return
        except URLError:
            time.sleep(0.2)
    raise RuntimeError("the service is not ready")


def compared(alone: float, load: Load, expected: Sequence[float]) -> dict[str, float]:
    """Rates, their ratio, latencies, and the largest difference from the library's rewards."""
    deciles = statistics.quantiles(load.milliseconds, n=100)
    rounds = len(load.rewards) // len(expected)
    return {
        "library, plans a second": len(expected) / alone,
        "service, plans a second": len(load.rewards) / load.seconds,
        "ratio": alone * rounds / load.seconds,
        "p50, ms": deciles[49],
        "p99, ms": deciles[98],
        "p99 / p50": deciles[98] / deciles[49],
        "largest difference": max(
            abs(a - b) for a, b in zip(load.rewards, list(expected) * rounds, strict=True)
        ),
        "retries": load.retries,
    }


def measured(arguments: argparse.Namespace, method: str) -> dict[str, dict[str, float]]:
    """Library, service, library, each in a fresh process."""
    asked = samples(arguments.run, arguments.prompts)
    corpus = arguments.run / "corpus"
    before = _in_a_process(arguments, method)
    loads = service(corpus, method, asked, arguments.clients, arguments.rounds)
    after = _in_a_process(arguments, method)
    return {
        name: compared(min(before[name], after[name]), load, before["rewards"]) for name, load in loads.items()
    }


def _in_a_process(arguments: argparse.Namespace, method: str) -> dict[str, Any]:
    options = {"run": arguments.run, "prompts": arguments.prompts, "rounds": arguments.rounds, "library": method}
    command = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    done = subprocess.run([sys.executable, __file__, *command], check=True, stdout=subprocess.PIPE)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=ROOT / "runs" / "narrations")
    parser.add_argument("--verifiers", nargs="+", default=["paper", "grounded"])
    parser.add_argument("--prompts", type=int, default=COLD_PROMPTS)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=WARM_ROUNDS)
    parser.add_argument("--quick", action="store_true", help="fewer prompts, once")
    parser.add_argument("--json", type=Path, help="also write the result here")
    parser.add_argument("--library", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.prompts, arguments.rounds = 24, 2
    if arguments.library:
        asked = samples(arguments.run, arguments.prompts)
        print(json.dumps(library(arguments.run / "corpus", arguments.library, asked, arguments.rounds)))
        return
    setting = {"clients": arguments.clients, "prompts": arguments.prompts, "plans": GROUP * arguments.prompts}
    result: dict[str, Any] = {method: measured(arguments, method) for method in arguments.verifiers}
    result["setting"] = setting | {"processor": processor(), "threads": os.environ.get("OMP_NUM_THREADS", "")}
    for method in arguments.verifiers:
        for state, numbers in result[method].items():
            print(f"{method}, {state}:", ", ".join(f"{name} {value:.4g}" for name, value in numbers.items()))
    if arguments.json is not None:
        write_json(arguments.json, result)


if __name__ == "__main__":
    main()
