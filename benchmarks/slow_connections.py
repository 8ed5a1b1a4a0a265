"""What slow connections cost the others: a service with few files, 64 clients, and connections that stall or drip.

    python benchmarks/slow_connections.py [--minutes 10] [--slow 300] [--dripping 220] [--clients 64]

A reward service on a small corpus of the embedded world may open 450 files, so that 300 connections that were never
closed would leave hardly any for the clients. Half of the slow ones send headers letter by letter, a quarter a body so,
and a quarter ask and do not read; each that is closed connects again at once. The clients score one plan after another,
first alone and then beside the slow ones.

A second service may open 300 files. There 220 connections send bodies of 4 MB at 600 bytes a second, once from another
address than the clients and once, as behind a proxy, from the same. The clients open a connection for each request, and
ask again where the answer is 429.

Shows times and shares of answers, with the services' memory; exits with 1 where an answer was wrong or
missing, or the 99th percentile is ten times the median beside the slow ones.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

from common import add_json, table, write_result

RECIPE = [sys.executable, "-c", "from recipe.cli import main; main()"]
FILES, FEWER = 450, 300
RATE = 600
"""Bytes a second of a body that drips: more than the least that one connection must send."""
BODY = {"goal": "tea", "history": ["boil the water"], "continuations": [["warm the pot", "pour the water"]]}


def request(body: bytes) -> bytes:
    """A whole request to score."""
    head = f"POST /score HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def total(answer: bytes) -> float:
    """The reward of the only plan."""
    return float(json.loads(answer)["rewards"][0]["total"])


async def client(
    port: int,
    until: float,
    times: list[float],
    faults: Counter[str],
    opened: Counter[str],
    wanted: bytes,
    *,
    fresh: bool,
) -> None:
    """Score the same plan again and again on one connection, or a `fresh` one each; the answer must be the same."""
    asked = request(json.dumps(BODY).encode())
    reader = writer = None
    while time.monotonic() < until:
        began = time.monotonic()
        try:
            if writer is None:
                reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 30)
            assert reader is not None
            writer.write(asked)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            length = int(next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))[15:])
            answer = await asyncio.wait_for(reader.readexactly(length), 30)
            if head.split()[1] == b"429":  # its address has no room at the moment; the reward client asks again, too
                opened["clients asked again"] += 1
                writer.close()
                writer = None
                await asyncio.sleep(1)
                continue
            if head.split()[1] != b"200":
                faults[f"status {head.split()[1].decode()}"] += 1
            elif abs(total(answer) - total(wanted)) > 1e-6:  # rounding depends on the plans beside it
                faults["another reward"] += 1
            times.append(time.monotonic() - began)
            if fresh:
                writer.close()
                writer = None
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            faults[type(error).__name__] += 1
            if writer is not None:
                writer.close()
            writer = None
        await asyncio.sleep(0.05)


async def slow(number: int, port: int, until: float, opened: Counter[str]) -> None:
    """Connect and stall, in one of three ways; connect again once closed."""
    way = ("headers", "headers", "body", "reading")[number % 4]
    while time.monotonic() < until:
        writer = None
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            opened[way] += 1
            if way == "headers":
                writer.write(b"POST /score HTTP/1.1\r\n")
            elif way == "body":
                writer.write(request(b"{" * 100_000)[:200])
            else:
                writer.write(request(json.dumps(BODY).encode()) * 50)
            for _ in range(30):
                await asyncio.sleep(1)
                if time.monotonic() > until:
                    break
                if way != "reading":
                    writer.write(b"x")
                    await writer.drain()
                if writer.transport.is_closing():
                    break
        except OSError:
            opened["closed by the service"] += 1
            await asyncio.sleep(0.1)
        finally:
            if writer is not None:
                writer.close()


async def drip(port: int, address: str, until: float, opened: Counter[str]) -> None:
    """Send a body of 4 MB at `RATE` bytes a second; connect again once closed."""
    head = request(b" " * 4_000_000).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    while time.monotonic() < until:
        writer = None
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            opened["dripping"] += 1
            writer.write(head)
            while time.monotonic() < until and not writer.transport.is_closing():
                writer.write(b" " * RATE)
                await writer.drain()
                await asyncio.sleep(1)
        except OSError:
            opened["closed by the service"] += 1
            await asyncio.sleep(0.1)
        finally:
            if writer is not None:
                writer.close()


async def load(
    port: int, clients: int, stalling: int, seconds: float, wanted: bytes, dripping: int = 0, address: str = ""
) -> dict[str, Any]:
    """Milliseconds of the clients' answers, and what went wrong."""
    times, faults, opened = list[float](), Counter[str](), Counter[str]()
    until = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for number in range(stalling):
            group.create_task(slow(number, port, until, opened))
        for _ in range(dripping):
            group.create_task(drip(port, address, until, opened))
        await asyncio.sleep(2 if dripping else 0)  # all of them are there first
        for _ in range(clients):
            group.create_task(client(port, until, times, faults, opened, wanted, fresh=dripping > 0))
    cut = [round(1000 * value, 1) for value in quantiles(times, n=100)] if len(times) > 1 else [None] * 99
    return {
        "seconds": seconds,
        "answers": len(times),
        "answered_share": round(len(times) / max(len(times) + faults.total(), 1), 4),
        "p50_ms": cut[49],
        "p99_ms": cut[98],
        "longest_ms": round(1000 * max(times), 1) if times else None,
        "faults": dict(faults),
        "connections": dict(opened),
    }


@contextmanager
def served(corpus: str, port: int, files: int) -> Iterator[tuple[bytes, subprocess.Popen[bytes]]]:
    """A service that may open so many files, with its answer to `BODY`."""
    service = subprocess.Popen(
        [*RECIPE, "reward", "serve", "--corpus", corpus, "--port", str(port)],
        stderr=subprocess.DEVNULL,  # a pipe that nobody reads would stop the service
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
    )
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{url}/readyz", timeout=5).read()
                break
            except OSError:
                time.sleep(0.2)
        headers = {"content-type": "application/json"}
        asked = urllib.request.Request(f"{url}/score", json.dumps(BODY).encode(), headers)
        yield urllib.request.urlopen(asked, timeout=60).read(), service
    finally:
        service.terminate()
        service.wait()


def memory(service: subprocess.Popen[bytes]) -> float:
    """The most MiB that the listening process has held."""
    status = Path(f"/proc/{service.pid}/status").read_text()
    return round(int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024, 1)


def main() -> None:
    """Start the services, ask them alone and beside slow connections."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--slow", type=int, default=300)
    parser.add_argument("--dripping", type=int, default=220)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--port", type=int, default=8311)
    add_json(parser, "reliability-slow_connections")
    given = parser.parse_args()
    result: dict[str, Any] = {"files_allowed": FILES}
    with tempfile.TemporaryDirectory() as folder:
        narrations, corpus = f"{folder}/n.jsonl", f"{folder}/c"
        for words in (
            ["world", "narrations", "--count", "200", "--output", narrations],
            ["corpus", "build", narrations, "--output", corpus, "--encoder", "hash:64"],
        ):
            subprocess.run([*RECIPE, *words], check=True, capture_output=True)
        with served(corpus, given.port, FILES) as (wanted, service):
            result["alone"] = asyncio.run(load(given.port, given.clients, 0, 20.0, wanted))
            result["memory_alone_mib"] = memory(service)
            slow_ones = load(given.port, given.clients, given.slow, 60 * given.minutes, wanted)
            result["beside_slow"] = asyncio.run(slow_ones)
            result["files_open_at_the_end"] = len(list(Path(f"/proc/{service.pid}/fd").iterdir()))
            result["memory_beside_slow_mib"] = memory(service)
        for name, address in (("another_address", "127.0.0.2"), ("same_address", "127.0.0.1")):
            with served(corpus, given.port, FEWER) as (wanted, service):
                attack = load(given.port, 16, 0, 30.0, wanted, given.dripping, address)
                result[f"beside_dripping_from_{name}"] = asyncio.run(attack) | {"memory_mib": memory(service)}
    print(json.dumps(result, indent=2))
    alone = {name.replace("_", " "): part for name, part in result.items() if isinstance(part, dict)}
    write_result(
        given.json,
        result,
        title="Slow connections",
        guide="reliability.md",
        body=[
            f"A service that may open {FILES} files: {given.clients} clients beside {given.slow} connections that "
            "stall. One that may "
            f"open {FEWER}: 16 clients beside {given.dripping} that drip bodies of 4 MB at {RATE} bytes a second.",
            table(alone),
            f"Memory: alone {result['memory_alone_mib']:.0f} MiB, beside slow ones "
            f"{result['memory_beside_slow_mib']:.0f} MiB; "
            f"{result['files_open_at_the_end']} files were open at the end.",
        ],
        partial=given.minutes < parser.get_default("minutes"),
    )
    parts = [part for part in result.values() if isinstance(part, dict)]
    beside = result["beside_slow"]
    sys.exit(any(part["faults"] for part in parts) or beside["p99_ms"] >= 10 * beside["p50_ms"])


if __name__ == "__main__":
    main()
