"""Wall time of several systems side by side, in turns, so that a busy machine slows all alike."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

Task = TypeVar("Task", bound=Hashable)

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
