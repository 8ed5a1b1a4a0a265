"""A fuzz campaign: `make fuzz MINUTES=10`, or `python fuzz/campaign.py --minutes 10 --jobs 2 [--target NAME]`.

Valid inputs of every target (`fuzz/targets.py`) are changed at random, as bytes and as the JSON or the lines that they
hold. A reader may take an input or refuse it by one sentence. Anything else is a failure: another exception, more than
5 seconds, more than 1 GB, a crash, a sentence that is none. An input that brings out a new sentence, or a new length of
what was accepted, is kept and changed further; that takes the place of coverage, which costs ten times the speed.
`FUZZ_ENCODER=minilm` gives the services a real encoder, whose tokenizer refuses what hashing takes.
Failures are written to `fuzz/failures`, whose inputs every test run replays (`tests/fuzz`).
"""

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from apps import Answered
from targets import EXPECTED, Target, targets

FAILURES = Path(__file__).parent / "failures"
SECONDS, MEMORY = 5.0, 1 << 30
"""Of processor time, so that a busy machine makes no failures; and bytes beside what the libraries take."""
_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files are kept in memory."""
_DEAD = 12 * SECONDS
"""Seconds after which a process that says nothing hangs in a library's code, which no signal interrupts. What only
takes long there is found when it returns; a minute leaves room for a machine that stands still."""
_KEPT, _LARGEST = 200, 1 << 16
"""Inputs that a target keeps to change further, and the bytes of the largest."""

TOKENS = [
    *(
        b"\x00",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\x1b[2J",
        b"\r",
        b"\n\n",
        b"\t",
        b"\xe2\x80\xae",
        b" " * 99,
    ),
    *(b"{", b"}", b"[", b"]" * 50, b"[" * 3000, b'{"a":' * 3000, b'"', b"\\", b"\\ud800", b"\\u0000", b",", b":", b"#"),
    *(b"NaN", b"Infinity", b"-1", b"0", b"1e999", b"9" * 400, b"9" * 5000, b"-0.0", b"null", b"true", b"1" * 30),
    *(b"../../etc/passwd", b"<script>", b"--> ", b"00:99:99.999", b"=", b"'''", b"a" * 5000, "é".encode("utf-16")),
]
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 3.5, float("nan"), float("inf"), 10**30, 10**400, -(10**400), 2**63, 1e308),
    *("", " ", "a", "\ud800", "\x00", "\x1b[2J", "a" * 3000, "1", "é\u202e", "../../x", "[1]", "</script>"),
    *([], {}, [[]], [None], {"a": None}, [[[[[[]]]]]], {"text": "x"}, ["x"] * 300, {"": ""}),
]


def changed(data: bytes, draw: random.Random, other: bytes) -> bytes:
    """An input with one to four changes."""
    for _ in range(draw.choice((1, 1, 2, 4))):
        data = draw.choice(CHANGES)(data, draw, other)[:_LARGEST]  # what is repeated four times would be gigabytes
    return data


def _flip(data: bytes, draw: random.Random, other: bytes) -> bytes:
    if not data:
        return bytes([draw.randrange(256)])
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def _insert(data: bytes, draw: random.Random, other: bytes) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.choice(TOKENS) + data[at + draw.choice((0, 0, 1, 4)) :]


def _cut(data: bytes, draw: random.Random, other: bytes) -> bytes:
    first, last = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return data[:first] + data[last:] if draw.random() < 0.5 else data[:last]


def _splice(data: bytes, draw: random.Random, other: bytes) -> bytes:
    return data[: draw.randrange(len(data) + 1)] + other[draw.randrange(len(other) + 1) :]


def _repeat(data: bytes, draw: random.Random, other: bytes) -> bytes:
    first, last = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return data[:last] + data[first:last] * draw.choice((1, 2, 50)) + data[last:]


def _line(data: bytes, draw: random.Random, other: bytes) -> bytes:
    """Exchange, repeat or drop a line."""
    rows = data.split(b"\n")
    first, second = draw.randrange(len(rows)), draw.randrange(len(rows))
    if draw.random() < 0.3:
        del rows[first]
    else:
        rows[first], rows[second] = (rows[second], rows[first]) if draw.random() < 0.5 else (rows[second], rows[second])
    return b"\n".join(rows)


def _json(data: bytes, draw: random.Random, other: bytes) -> bytes:
    """Change a value or a key of the JSON of a line, or of the whole."""
    rows = [data] if draw.random() < 0.3 else data.split(b"\n")
    at = draw.randrange(len(rows))
    try:
        value = json.loads(rows[at])
    except (ValueError, RecursionError):
        return _insert(data, draw, other)
    try:
        rows[at] = json.dumps(_mutated(value, draw), ensure_ascii=draw.random() < 0.7).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return data
    return b"\n".join(rows)


def _mutated(value: Any, draw: random.Random) -> Any:
    if not isinstance(value, dict | list) or not value or draw.random() < 0.15:
        return draw.choice([*VALUES, [value], {"a": value}])
    if isinstance(value, dict):
        key = draw.choice(list(value))
        rest = {name: one for name, one in value.items() if name != key}
        kind = draw.random()
        if kind < 0.1:
            return rest
        if kind < 0.2:
            return rest | {draw.choice((key + "s", key[:-1], "x", key.upper())): value[key]}
        return value | {key: _mutated(value[key], draw)}
    at = draw.randrange(len(value))
    kind = draw.random()
    if kind < 0.15:
        return value[:at] + value[at + 1 :]
    if kind < 0.3:
        return value[: at + 1] * draw.choice((2, 30)) + value[at:]
    return [*value[:at], _mutated(value[at], draw), *value[at + 1 :]]


Change = Callable[[bytes, random.Random, bytes], bytes]
CHANGES: tuple[Change, ...] = (_flip, _insert, _cut, _splice, _repeat, _line, _json, _json, _json)


class Hang(BaseException):
    """An input took longer than `SECONDS`."""


def late(number: int, frame: FrameType | None) -> None:
    """End an input that takes too long: the handler of SIGPROF."""
    raise Hang


class Outcome(NamedTuple):
    """What became of an input: a failure in words or None, and what tells its kind from others."""

    failure: str | None
    kind: str


def outcome(target: Target, data: bytes, folder: Path) -> Outcome:
    """Run one input."""
    path = folder / target.file
    path.write_bytes(data)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        result = target.run(path)
        told = result if isinstance(result, Answered) else len(result) if hasattr(result, "__len__") else ""
        return Outcome(None, f"accepted {told}")
    except EXPECTED as error:
        sentence = str(getattr(error, "message", "") or error)
        kind = f"{type(error).__name__} {re.sub(r'[0-9]+|(?:.*/)|[^ ]{20,}', '', sentence[:1000])[:80]}"
        if not isinstance(error, OSError) and (not sentence or "\n" in sentence.strip()):
            return Outcome(f"a refusal that is no sentence: {sentence[:200]!r}", kind)
        return Outcome(None, kind)
    except Hang:
        return Outcome(f"more than {SECONDS:g} s", "hang")
    except MemoryError:
        return Outcome("more than 1 GB of memory", "memory")
    except Exception as error:  # noqa: BLE001 - which one is what the campaign is to find
        return Outcome(f"{type(error).__name__}: {str(error)[:200]}", type(error).__name__)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def replay(name: str, data: bytes) -> str | None:
    """Run one input of a target in this process; the failure in words, or None."""
    return replay_of(targets()[name], data)


def replay_of(target: Target, data: bytes) -> str | None:
    """The same for any target."""
    before = signal.signal(signal.SIGPROF, late)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return outcome(target, data, Path(folder)).failure
    finally:
        signal.signal(signal.SIGPROF, before)


def keep(folder: Path, name: str, data: bytes) -> Path:
    """Write an input that failed where it is replayed; its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}--{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


def past_failures() -> Iterator[tuple[str, Path]]:
    """Target and file of every failure that was found."""
    return ((path.name.partition("--")[0], path) for path in sorted(FAILURES.glob("*--*")))


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def work(names: list[str], seed: int, until: float, told: Connection, last: Path) -> None:
    """One process of the campaign. It ends at once, also by an exception: the services' threads would go on."""
    try:
        try_inputs(names, seed, until, told, last)
    except BaseException:  # noqa: BLE001 - whatever it is, the process must end
        traceback.print_exc()
        os._exit(1)
    told.close()
    os._exit(0)


def try_inputs(names: list[str], seed: int, until: float, told: Connection, last: Path) -> None:
    """Run changed inputs until a time, some of every target at least: the one that had least time is next."""
    signal.signal(signal.SIGPROF, late)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    draw, known = random.Random(seed), targets()
    pools = {name: list(known[name].seeds) for name in names}
    seen: dict[str, set[str]] = {name: set() for name in names}
    spent = dict.fromkeys(names, 0.0)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=last.parent) as folder:
        tempfile.tempdir = folder  # what an input leaves in it goes with it
        for name in names:  # what loads libraries or opens a service is no part of an input's memory
            outcome(known[name], known[name].seeds[0], Path(folder))
            told.send(("count", {}))
        _limit_memory()
        while time.time() < until or not all(spent.values()):
            name = min(names, key=spent.__getitem__)
            began = time.monotonic()
            for _ in range(20):
                pool = pools[name]
                data = changed(draw.choice(pool), draw, draw.choice(pool))
                last.write_bytes(name.encode() + b"\n" + data)
                found = outcome(known[name], data, Path(folder))
                counts[name] += 1
                if found.failure is not None and found.kind not in seen[name]:
                    told.send(("failure", name, data, found.failure))
                if found.kind not in seen[name]:
                    seen[name].add(found.kind)
                    if len(pool) < _KEPT and len(data) < _LARGEST // 4:
                        pool.append(data)
                if time.monotonic() - began > 1:
                    break
            spent[name] += time.monotonic() - began
            told.send(("count", dict(counts)))


class Campaign:
    """Processes that work until a time; one that dies or hangs is a failure of its last input, and begins again."""

    def __init__(self, names: list[str], minutes: float, jobs: int, seed: int, failures: Path) -> None:
        self.names, self.jobs, self.seed, self.failures = names, jobs, seed, failures
        self.until = time.time() + 60 * minutes
        self.counts: dict[int, dict[str, int]] = {}
        self.found: list[tuple[str, Path, str]] = []
        self._folder = Path(tempfile.mkdtemp(dir=_MEMORY))
        self._begun = 0

    def run(self) -> int:
        """The number of failures."""
        context = multiprocessing.get_context("spawn")
        running: dict[Connection, tuple[Any, Path, float]] = {}
        while running or time.time() < self.until:
            while len(running) < self.jobs and time.time() < self.until:
                here, there = context.Pipe(duplex=False)
                last = self._folder / str(self._begun)
                worker = context.Process(
                    target=work, args=(self.names, self.seed + self._begun, self.until, there, last), daemon=True
                )
                worker.start()
                there.close()
                self.counts[self._begun] = {}
                running[here] = (worker, last, time.monotonic() + 10 * _DEAD)  # it imports first
                self._begun += 1
            for ready in wait(list(running), timeout=1.0):
                worker, last, _ = running[ready]  # type: ignore[index]
                running[ready] = (worker, last, time.monotonic() + _DEAD)  # type: ignore[index]
                self._hear(ready, int(last.name), running)  # type: ignore[arg-type]
            for pipe, (worker, last, latest) in list(running.items()):
                if time.monotonic() > latest:
                    worker.kill()
                    self._blame(last, "hangs where no signal reaches it")
                    del running[pipe]
        shutil.rmtree(self._folder)
        return len(self.found)

    def _hear(self, pipe: Connection, number: int, running: dict[Connection, Any]) -> None:
        worker, last, _ = running[pipe]
        try:
            kind, *rest = pipe.recv()
        except EOFError:
            worker.join()
            if worker.exitcode:
                self._blame(last, f"ends the process with {worker.exitcode}")
            del running[pipe]
            return
        if kind == "count":
            self.counts[number] = rest[0]
        elif kind == "failure":
            self._keep(*rest)

    def _blame(self, last: Path, problem: str) -> None:
        name, _, data = last.read_bytes().partition(b"\n") if last.is_file() else (b"start", b"", b"")
        self._keep(name.decode(), data, problem)

    def _keep(self, name: str, data: bytes, problem: str) -> None:
        path = keep(self.failures, name, data)
        self.found.append((name, path, problem))
        print(f"FAILURE {name}: {problem}\n  {path}", flush=True)

    def total(self) -> Counter[str]:
        """Inputs by target."""
        return sum((Counter(counts) for counts in self.counts.values()), Counter[str]())


def main() -> int:
    """The command line; returns 1 where something failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=None, help="another one at every run where it is left out")
    parser.add_argument("--target", action="append", choices=sorted(targets()), help="repeat for several; all if none")
    parser.add_argument("--failures", type=Path, default=FAILURES, help="folder for inputs that fail")
    given = parser.parse_args()
    seed = int(time.time()) if given.seed is None else given.seed
    campaign = Campaign(given.target or sorted(targets()), given.minutes, given.jobs, seed, given.failures)
    failed = campaign.run()
    total = campaign.total()
    for name, count in sorted(total.items()):
        print(f"{name:<16} {count:>12,}")
    print(f"{'all':<16} {total.total():>12,}  seed {seed}, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
