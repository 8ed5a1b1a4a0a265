"""What asking costs: prompts of a judge's size to an endpoint that answers at once, against the SDK of OpenAI.

    python benchmarks/judge.py [--quick]

The endpoint is a process of its own that answers every request with the same completion, so that what is measured is
the client: one process with `--concurrency` requests under way. Ours are the engine without a cache, with an empty one
(every answer is kept, with a name of its own and safe from `kill -9`), and with a full one (nothing is sent). The peer
is the plain loop that one would write: `AsyncOpenAI`, a semaphore, no cache, no retries. In every round all take the
same new prompts, one after the other in turns, so that a busy machine slows all alike; medians and ratios are those
over rounds.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from common import add_json, table, write_result

from recipe.config import ModelConfig, SamplingConfig
from recipe.models.model import open_model
from recipe.models.protocol import Answer, Chat

MODEL, ANSWER = "judge", '{"scores": {"executability": 4}, "fluff_ratio": 0.0, "fatal_error": false}'
SAMPLING = SamplingConfig(temperature=0.0, max_tokens=512)
PEER, KEEPING = "openai SDK, plain loop", "engine, cache empty"
INSTANT = """
import asyncio, json, sys

body = json.dumps({
    "id": "x", "object": "chat.completion", "created": 0, "model": "judge",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": sys.argv[1]}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 800, "completion_tokens": 40, "total_tokens": 840},
}).encode()
reply = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body

async def serve(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\\r\\n\\r\\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\\r\\n")[0]))
            writer.write(reply)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


class Cost(NamedTuple):
    """Of one call, in milliseconds."""

    wall: float
    cpu: float
    """Processor time of this process."""


@contextmanager
def instant(answer: str = ANSWER) -> Iterator[str]:
    """The address of an endpoint that gives this answer at once."""
    with subprocess.Popen([sys.executable, "-c", INSTANT, answer], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.terminate()


def prompts(count: int, size: int, turn: int) -> list[Chat]:
    """Chats of about `size` characters, none of which was asked before."""
    text = "the plan ".ljust(size, "x")
    return [[{"role": "user", "content": f"round {turn}, example {number}: {text}"}] for number in range(count)]


def engine(url: str, concurrency: int, cache: Path | None) -> Callable[[Sequence[Chat]], None]:
    """All prompts in one call of the engine."""

    def ask(chats: Sequence[Chat]) -> None:
        settings = ModelConfig(endpoint=url, model=MODEL, concurrency=concurrency, cache=cache)
        with open_model(settings) as asked:
            found = asked.outcomes(chats, 1, SAMPLING)
        assert all(isinstance(one, Answer) and one.text == ANSWER for [one] in found)

    return ask


def plain(url: str, concurrency: int) -> Callable[[Sequence[Chat]], None]:
    """All prompts in the loop that one would write."""
    import openai

    async def loop(chats: Sequence[Chat]) -> None:
        slots = asyncio.Semaphore(concurrency)

        async def one(chat: Chat) -> str | None:
            async with slots:
                told = await client.chat.completions.create(
                    model=MODEL,
                    messages=chat,  # type: ignore[arg-type]
                    temperature=SAMPLING.temperature,
                    max_tokens=SAMPLING.max_tokens,
                    seed=SAMPLING.seed,
                )
            return told.choices[0].message.content

        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            found = await asyncio.gather(*map(one, chats))
        assert set(found) == {ANSWER}

    return lambda chats: asyncio.run(loop(chats))


def timed(ask: Callable[[Sequence[Chat]], None], chats: Sequence[Chat]) -> Cost:
    """Opening and closing what asks are counted."""
    wall, cpu = time.perf_counter(), time.process_time()
    ask(chats)
    each = 1e3 / len(chats)
    return Cost((time.perf_counter() - wall) * each, (time.process_time() - cpu) * each)


def measured(arguments: argparse.Namespace) -> dict[str, list[Cost]]:
    """The cost of each system in each round."""
    found: dict[str, list[Cost]] = {}
    with instant() as url, tempfile.TemporaryDirectory() as folder:
        for turn in range(arguments.rounds + 1):
            cache = Path(folder) / str(turn)
            asked: Mapping[str, Callable[[Sequence[Chat]], None]] = {
                "engine, no cache": engine(url, arguments.concurrency, None),
                KEEPING: engine(url, arguments.concurrency, cache),
                "engine, cache full": engine(url, arguments.concurrency, cache),
                PEER: plain(url, arguments.concurrency),
            }
            chats = prompts(arguments.calls if turn else 100, arguments.size, turn)
            costs = {name: timed(ask, chats) for name, ask in asked.items()}
            if turn:  # the first round imports and warms up
                for name, cost in costs.items():
                    found.setdefault(name, []).append(cost)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, default=64, help="requests under way at once")
    parser.add_argument("--calls", type=int, default=3000, help="prompts of a round")
    parser.add_argument("--size", type=int, default=3000, help="characters of a prompt")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    add_json(parser, "endpoints")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.calls = 2, 1000
    setting = {name: getattr(arguments, name) for name in ("concurrency", "calls", "size", "rounds")}
    setting |= {"openai": version("openai"), "httpx2": version("httpx2")}
    result = {}
    costs = measured(arguments)
    for name, rounds in costs.items():
        result[name] = {
            "wall, ms a call": statistics.median(cost.wall for cost in rounds),
            "fastest round": min(cost.wall for cost in rounds),
            "processor, ms a call": statistics.median(cost.cpu for cost in rounds),
            "of the plain loop": statistics.median(
                cost.wall / peer.wall for cost, peer in zip(rounds, costs[PEER], strict=True)
            ),
        }
        print(f"{name}:", ", ".join(f"{what} {value:.3g}" for what, value in result[name].items()))
    write_result(
        arguments.json,
        {"setting": setting} | result,
        title="What a call costs",
        guide="planning.md",
        body=[
            f"One client process has {arguments.concurrency} requests under way with prompts of {arguments.size:,} "
            "characters; the "
            f"endpoint answers at once and is a process of its own. Medians of {arguments.rounds} rounds of "
            f"{arguments.calls:,} "
            "calls.",
            table(result),
        ],
        partial=arguments.calls < parser.get_default("calls"),
    )


if __name__ == "__main__":
    main()
