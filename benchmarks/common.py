"""What benchmarks share: wall time of systems side by side, and the form in which a result is written.

Systems take turns, so that a busy machine slows all alike. A result is a file of benchmarks/results, from which
docs/results.py makes a section of a page: title, guide, command, commit, machine, date, the body of the section, and
all values.
"""

import argparse
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from recipe.artifacts import to_json, write_json
from recipe.reward.scorer import Prompt, PromptGroup, Scorer, Steps, batches, score_or_raise

Task = TypeVar("Task", bound=Hashable)

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
THREADS = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
"""Settings of the environment that are part of a command, where they are set."""
INT8_FLAGS = ("amx_int8", "avx512_vnni", "avx_vnni", "avx2")
LEAST = 3
"""Rounds that even the slowest takes part in."""
SETTLE = 0.02
"""Seconds between two measurements, in which the threads of the last one go to sleep."""


class Timing(NamedTuple):
    """Milliseconds of one system at one task."""

    median_ms: float
    best_ms: float
    cpu_ms: float
    """Median of processor time over threads: what an idle machine would need where the threads are all busy."""
    rounds_ms: tuple[float, ...]


def interleaved(
    tasks: Mapping[Task, Callable[[], object]],
    first: Mapping[Task, float],
    threads: int,
    most: int = 15,
    seconds: float = 10.0,
) -> dict[Task, Timing]:
    """Time every task `most` times, one round after the other; a slow one in as few rounds as fit in `seconds`.

    `first` says how many seconds a first run of each, which is not counted, has taken.
    """
    rounds = {task: max(min(LEAST, most), min(most, int(seconds / first[task]))) for task in tasks}
    taken: dict[Task, list[tuple[float, float]]] = {task: [] for task in tasks}
    for turn in range(most):
        for task, run in tasks.items():
            if turn < rounds[task]:
                taken[task].append(once(run, threads))
    return {task: _timing(pairs) for task, pairs in taken.items()}


def once(task: Callable[[], object], threads: int) -> tuple[float, float]:
    """Seconds of wall time and of processor time over threads."""
    time.sleep(SETTLE)
    wall, cpu = time.perf_counter(), time.process_time()
    task()
    return time.perf_counter() - wall, (time.process_time() - cpu) / threads


def _timing(pairs: list[tuple[float, float]]) -> Timing:
    walls, cpus = zip(*pairs, strict=True)
    rounds = tuple(wall * 1e3 for wall in walls)
    return Timing(statistics.median(rounds), min(rounds), statistics.median(cpus) * 1e3, rounds)


def processor() -> str:
    """The processor's name and what int8 instructions it has."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return f"{model}, {os.cpu_count()} cores ({', '.join(flag for flag in INT8_FLAGS if flag in flags)})"


def add_json(parser: argparse.ArgumentParser, name: str) -> None:
    """The option --json, whose default is the file that the results page reads."""
    parser.add_argument(
        "--json",
        type=Path,
        default=RESULTS / f"{name}.json",
        help=f"where the result is written; without it benchmarks/results/{name}.json, from a full run alone",
    )


def write_result(
    target: Path,
    values: Any,
    *,
    title: str,
    guide: str,
    body: Sequence[str | Mapping[str, Any]],
    partial: bool = False,
    device: str = "",
) -> None:
    """Write a measurement as docs/results.py reads it; commit, machine, date and command are found.

    A `partial` run, whose figures say nothing, is not written into benchmarks/results. `device` is what the processor
    does not say, such as the name of a GPU.
    """
    if partial and target.parent.resolve() == RESULTS:
        print(f"not written to {target.relative_to(ROOT)}: this was not a full run; --json says where to write it")
        return
    machine = f"{device}; {processor()}" if device else processor()
    found = {"command": command(), "commit": commit(), "machine": machine, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    target.parent.mkdir(parents=True, exist_ok=True)
    record = {"title": title, "guide": guide, **found, "body": list(body), "values": to_json(values)}
    write_json(target, record, sort_keys=False)


def command() -> str:
    """This process's command line, without folders of this machine, --json and --title, which heads the result."""
    words = []
    arguments = iter(sys.argv[1:])
    for word in arguments:
        if word in ("--json", "--title"):
            next(arguments, None)
        elif not word.startswith(("--json=", "--title=")):
            words.append(Path(word).name if Path(word).is_absolute() else word)
    settings = [f"{name}={os.environ[name]}" for name in THREADS if name in os.environ]
    return " ".join([*settings, "python", f"benchmarks/{Path(sys.argv[0]).name}", shlex.join(words)]).strip()


def commit() -> str:
    """The commit of the code that runs, and whether files differ from it; empty outside a clone."""
    git = ["git", "-C", str(ROOT)]
    try:
        name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", "src", "benchmarks/*.py"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return name.strip() + (" with changes" if changed.strip() else "")


def table(rows: Mapping[str, Mapping[str, Any]], first: str = "", title: str = "", digits: int = 3) -> dict[str, Any]:
    """A table of a result's body: a row for each entry, a column for each name that an entry has."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    cells = [[name, *(shown(row.get(column), digits) for column in names)] for name, row in rows.items()]
    return ({"title": title} if title else {}) | {"columns": [first, *names], "rows": cells}


def shown(value: Any, digits: int = 3) -> str:
    """A value as a cell: so many significant digits, an interval as its mean and ends, `-` for what is missing."""
    value = to_json(value)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:#.{digits}g}".rstrip(".")
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        if "mean" not in value:
            return ", ".join(f"{name} {shown(part, digits)}" for name, part in value.items())
        ends = [value.get("low"), value.get("high")]
        return shown(value["mean"], digits) + (
            "" if None in ends else f" ({' to '.join(shown(x, digits) for x in ends)})"
        )
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(shown(part, digits) for part in value) or "none"
    return str(value)


def figure(value: Any, sign: str = "") -> str:
    """A measure between -1 and 1 as `.765 [.613, .917]`; empty for what is missing. With `sign` "+" as a difference."""
    value = to_json(value)
    if not isinstance(value, Mapping):
        return "" if value is None else str(value)
    mean, *ends = (
        f"{value[key]:{flag}.3f}".replace("0.", ".", 1).replace("-", "−")
        for key, flag in (("mean", sign), ("low", ""), ("high", ""))
        if value.get(key) is not None
    )
    return mean + (f" [{', '.join(ends)}]" if ends else "")


def gain(value: Any) -> str:
    """A difference as `+.164 [.130, .199]`; empty for what is missing."""
    return figure(value, "+")


def picture(file: Path | None, alt: str) -> list[dict[str, str]]:
    """The image of a body, where a picture was drawn into docs/images."""
    if file is None or file.resolve().parent != ROOT / "docs" / "images":
        return []
    return [{"image": f"../images/{file.name}", "alt": alt}]


Totals = dict[Steps, float]


def totals(scorer: Scorer, prompts: Sequence[Prompt], plans: Sequence[Sequence[Steps]]) -> list[Totals]:
    """The reward of each plan of each prompt."""
    groups = [PromptGroup(*prompt, list(dict.fromkeys(own))) for prompt, own in zip(prompts, plans, strict=True)]
    rewards = [own for batch in batches(groups) for own in score_or_raise(scorer, batch)]
    return [
        {plan: reward.total for plan, reward in zip(group.plans, own, strict=True)}
        for group, own in zip(groups, rewards, strict=True)
    ]


def best(known: Sequence[Totals]) -> list[Steps]:
    """The plan with the highest reward of each prompt, the first of equals."""
    return [max(own, key=own.__getitem__) for own in known]
