"""What HTTP costs: clients that send one plan at a time, against the same plans in one call of the library.

    python benchmarks/service.py [--quick]

The corpus and the prompts are those of `recipe run configs/narrations.toml`; every prompt has four plans: its true
continuation, and steps drawn from all, each reworded so that no text was seen before. In every round the library and
then the service score the same plans, first new to both (cold), then known to both (warm, twice over); ratios are
those of a round, so that a busy machine slows both alike. The server's processes and this one, which is the library
and all clients, share the machine; a client has one request under way. Every reward is compared with the library's:
an encoder in bfloat16 makes vectors that depend on what is encoded with them, so calls of the library for all plans
and for a few at a time are compared, too.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

from common import add_json, table, write_result

from recipe.artifacts import read_jsonl
from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.reward.scorer import PromptGroup, score_or_raise
from recipe.reward.verifier import Verifier
from recipe_apps.service.server import warm_up

ROOT = Path(__file__).parents[1]
PLANS = 4
"""Plans of a prompt: the group size of the paper."""
FAR = 0.01
"""Rewards that lie further apart are counted: among them those that a gate turns over."""


class Load(NamedTuple):
    """What the clients saw."""

    seconds: float
    milliseconds: list[float]
    rewards: list[float]
    retries: int


class Round(NamedTuple):
    """Both sides on the same plans."""

    library: float
    """Seconds."""
    service: float
    """Seconds."""
    milliseconds: list[float]
    differences: list[float]
    """Between the two rewards of each plan."""
    retries: int
    processor: float
    """Seconds of processor time that the server took."""


def drawn(run: Path, prompts: int, seed: int) -> list[PromptGroup]:
    """Prompts of the run's examples with four plans each; texts of another seed are others."""
    rows = [row for name in ("test", "train") for _, row in read_jsonl(run / "data" / f"{name}.jsonl")]
    steps = sorted({step for row in rows for step in row["continuation"]})
    draw = random.Random(seed)

    def reworded(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{text}, about {seed * 1000 + draw.randrange(1000)} times" for text in texts)

    return [
        PromptGroup(
            row["goal"],
            reworded(row["history"]),
            [reworded(row["continuation"]), *(reworded(draw.sample(steps, 5)) for _ in range(PLANS - 1))],
        )
        for row in draw.sample(rows, prompts)
    ]


def library(verifier: Verifier, groups: Sequence[PromptGroup]) -> tuple[float, list[float]]:
    """Seconds of the batched call, and the rewards of all plans in order."""
    began = time.perf_counter()
    rewards = [reward for own in score_or_raise(verifier, groups) for reward in own]
    return time.perf_counter() - began, [reward.total for reward in rewards]


async def clients(port: int, groups: Sequence[PromptGroup], count: int) -> Load:
    """As many clients as `count`, each with one request under way, until all plans are scored."""
    asked = [{"goal": one.goal, "history": one.history, "continuation": plan} for one in groups for plan in one.plans]
    bodies = [json.dumps(body).encode() for body in asked]
    left = iter(range(len(asked)))
    rewards, times, retries = [0.0] * len(asked), [0.0] * len(asked), 0

    async def client() -> None:
        nonlocal retries
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in left:
            began, status, answer = time.perf_counter(), 0, b""
            while status != 200:
                retries += status != 0
                length = len(bodies[number])
                writer.write(b"POST /score HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % length + bodies[number])
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                status, answer = int(head.split(b" ", 2)[1]), await reader.readexactly(size)
            times[number] = (time.perf_counter() - began) * 1e3
            rewards[number] = json.loads(answer)["reward"]["total"]
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(count)))
    return Load(time.perf_counter() - began, times, rewards, retries)


@contextmanager
def served(corpus: Path, method: str) -> Iterator[tuple[int, int]]:
    """A service in a process of its own: its port and process id."""
    command = ["reward", "serve", "--corpus", str(corpus), "--verifier", method, "--port", "0"]
    process = subprocess.Popen([sys.executable, "-m", "recipe", *command], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next((line for line in process.stderr if " at http://" in line), None)
        if line is None:
            raise RuntimeError("the service did not start")
        port = int(line.rstrip().rpartition(":")[2])
        _await_ready(port)
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def _await_ready(port: int) -> None:
    for _ in range(600):
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz"):
                return
        except URLError:
            time.sleep(0.2)
    raise RuntimeError("the service is not ready")


def processor_time(process: int) -> float:
    """Seconds that a process and those that it has started have computed."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    started = [
        int(child) for file in Path(f"/proc/{process}/task").glob("*/children") for child in file.read_text().split()
    ]
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(map(processor_time, started))


def one_round(verifier: Verifier, server: tuple[int, int], groups: Sequence[PromptGroup], count: int) -> Round:
    """The library's call, and the same plans through the service."""
    port, process = server
    alone, expected = library(verifier, groups)
    before = processor_time(process)
    load = asyncio.run(clients(port, groups, count))
    spent = processor_time(process) - before
    return Round(alone, load.seconds, load.milliseconds, between(load.rewards, expected), load.retries, spent)


def between(some: Sequence[float], others: Sequence[float]) -> list[float]:
    """The difference of each pair."""
    return [abs(a - b) for a, b in zip(some, others, strict=True)]


def told(differences: Sequence[float]) -> dict[str, float]:
    """How far rewards of the same plans lie apart."""
    apart = sum(one > FAR for one in differences) / len(differences)
    return {"largest difference": max(differences), f"share that differs by over {FAR}": apart}


def summary(rounds: Sequence[Round]) -> dict[str, float]:
    """Medians over rounds; latencies over all requests."""
    plans = len(rounds[0].milliseconds)
    percentiles = statistics.quantiles([ms for one in rounds for ms in one.milliseconds], n=100)
    return {
        "library, plans a second": statistics.median(plans / one.library for one in rounds),
        "service, plans a second": statistics.median(plans / one.service for one in rounds),
        "ratio": statistics.median(one.library / one.service for one in rounds),
        "least ratio": min(one.library / one.service for one in rounds),
        "p50, ms": percentiles[49],
        "p99, ms": percentiles[98],
        "p99 / p50": percentiles[98] / percentiles[49],
        "server's processor time a plan, ms": statistics.median(one.processor / plans * 1e3 for one in rounds),
        "retries": sum(one.retries for one in rounds),
    } | told([difference for one in rounds for difference in one.differences])


def measured(arguments: argparse.Namespace, method: str) -> dict[str, dict[str, float]]:
    """Rounds on new plans, each followed by rounds on the same plans again."""
    corpus = arguments.run / "corpus"
    verifier = Verifier(Corpus.open(corpus), RewardConfig(verifier=method))
    warm_up(verifier, [])
    cold, warm = [], []
    with served(corpus, method) as server:
        one_round(verifier, server, drawn(arguments.run, 4, 0), arguments.clients)
        for number in range(1, arguments.rounds + 1):
            groups = drawn(arguments.run, arguments.prompts, number)
            cold.append(one_round(verifier, server, groups, arguments.clients))
            warm.append(one_round(verifier, server, [*groups] * 2, arguments.clients))
        once = library(verifier, groups)[1]
    turned = Verifier(verifier.corpus, verifier.config)
    again = [total for first in range(0, len(groups), 4) for total in library(turned, groups[first : first + 4])[1]]
    gc.unfreeze()
    return {"cold": summary(cold), "warm": summary(warm), "library in smaller calls": told(between(once, again))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=ROOT / "runs" / "narrations")
    parser.add_argument("--verifiers", nargs="+", default=["paper", "grounded"])
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    add_json(parser, "trainers-service")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 2
    setting = {name: getattr(arguments, name) for name in ("clients", "prompts", "rounds")}
    threads = os.environ.get("OMP_NUM_THREADS", "not set")
    result: dict[str, Any] = {"setting": setting | {"threads": threads}}
    for method in arguments.verifiers:
        result[method] = measured(arguments, method)
        for state, numbers in result[method].items():
            print(f"{method}, {state}:", ", ".join(f"{name} {value:.4g}" for name, value in numbers.items()))
    rows = {f"{method}, {state}": row for method in arguments.verifiers for state, row in result[method].items()}
    write_result(
        arguments.json,
        result,
        title=f"The reward service under {arguments.clients} clients",
        guide="trainers.md",
        body=[
            f"{arguments.clients} clients send one plan at a time; the library scores the same plans of "
            f"{arguments.prompts} prompts "
            f"in one call, in turns with the service. Medians of {arguments.rounds} rounds.",
            table(rows, "verifier, plans"),
        ],
        partial=arguments.rounds < parser.get_default("rounds"),
    )


if __name__ == "__main__":
    main()
