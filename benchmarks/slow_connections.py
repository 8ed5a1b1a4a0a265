"""What slow connections cost the others: a service with few files, 64 clients, and 300 connections that stall.

    python benchmarks/slow_connections.py [--minutes 10] [--slow 300] [--clients 64] [--json FILE]

A reward service on a small corpus of the embedded world may open 450 files, so that 300 connections that were never
closed would leave hardly any for the clients. Half of the slow ones send headers letter by letter, a quarter a body so,
and a quarter ask and do not read; each that is closed connects again at once. The clients score one plan after another,
first alone and then beside the slow ones. Prints times of both as JSON; exits with 1 where an answer was wrong or
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
from pathlib import Path
from statistics import quantiles
from typing import Any

RECIPE = [sys.executable, "-c", "from recipe.cli import main; main()"]
FILES = 450
BODY = {"goal": "tea", "history": ["boil the water"], "continuations": [["warm the pot", "pour the water"]]}


def request(body: bytes) -> bytes:
    """A whole request to score."""
    head = f"POST /score HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def client(port: int, until: float, times: list[float], faults: Counter[str], wanted: bytes) -> None:
    """Score the same plan again and again on one connection; the answer must be the same."""
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
            if head.split()[1] != b"200" or answer != wanted:
                faults["another answer"] += 1
            times.append(time.monotonic() - began)
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


async def load(port: int, clients: int, stalling: int, seconds: float, wanted: bytes) -> dict[str, Any]:
    """Milliseconds of the clients' answers, and what went wrong."""
    times, faults, opened = list[float](), Counter[str](), Counter[str]()
    until = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for number in range(stalling):
            group.create_task(slow(number, port, until, opened))
        for _ in range(clients):
            group.create_task(client(port, until, times, faults, wanted))
    cut = [round(1000 * value, 1) for value in quantiles(times, n=100)]
    return {
        "seconds": seconds,
        "answers": len(times),
        "p50_ms": cut[49],
        "p99_ms": cut[98],
        "longest_ms": round(1000 * max(times), 1),
        "faults": dict(faults),
        "slow_connections": dict(opened),
    }


def main() -> None:
    """Start the service, ask it alone and beside slow connections."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--slow", type=int, default=300)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--port", type=int, default=8311)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        narrations, corpus = f"{folder}/n.jsonl", f"{folder}/c"
        for words in (
            ["world", "narrations", "--count", "200", "--output", narrations],
            ["corpus", "build", narrations, "--output", corpus, "--encoder", "hash:64"],
        ):
            subprocess.run([*RECIPE, *words], check=True, capture_output=True)
        command = [*RECIPE, "reward", "serve", "--corpus", corpus, "--port", str(given.port)]
        service = subprocess.Popen(
            command,
            stderr=subprocess.DEVNULL,  # a pipe that nobody reads would stop the service
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),
        )
        try:
            url = f"http://127.0.0.1:{given.port}"
            for _ in range(300):
                try:
                    urllib.request.urlopen(f"{url}/readyz", timeout=5).read()
                    break
                except OSError:
                    time.sleep(0.2)
            headers = {"content-type": "application/json"}
            asked = urllib.request.Request(f"{url}/score", json.dumps(BODY).encode(), headers)
            wanted = urllib.request.urlopen(asked, timeout=60).read()
            alone = asyncio.run(load(given.port, given.clients, 0, 20.0, wanted))
            beside = asyncio.run(load(given.port, given.clients, given.slow, 60 * given.minutes, wanted))
            files = len(list(Path(f"/proc/{service.pid}/fd").iterdir()))
        finally:
            service.terminate()
            service.wait()
    result = {"files_allowed": FILES, "files_open_at_the_end": files, "alone": alone, "beside_slow": beside}
    text = json.dumps(result, indent=2)
    print(text)
    if given.json is not None:
        given.json.write_text(text + "\n")
    sys.exit(bool(alone["faults"] or beside["faults"]) or beside["p99_ms"] >= 10 * beside["p50_ms"])


if __name__ == "__main__":
    main()
