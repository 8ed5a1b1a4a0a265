"""Free memory, and a limit on the memory of a load."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recipe.errors import InputError

_GIGABYTE = 1e9


def available() -> int | None:
    """Bytes that this process may still take, the least of what machine and control group leave; None: unknown."""
    known = []
    with suppress(OSError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        known += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    group = Path("/sys/fs/cgroup")
    with suppress(OSError):  # no control group, or one without a limit
        limit, used = ((group / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
        counts = (group / "memory.stat").read_text(encoding="ascii").split()
        # Files that were read stay in memory until it is needed.
        cached = sum(int(counts[counts.index(name) + 1]) for name in ("inactive_file", "active_file") if name in counts)
        if limit.isdigit():
            known.append(max(0, int(limit) - int(used) + cached))
    return min(known) if known else None


def require_memory(file: Path, needed: float, remedy: str) -> None:
    """Check before a file is loaded that `needed` bytes are free. Raises InputError."""
    free = available()
    if free is not None and needed > free:
        problem = (
            f"loading it takes about {needed / _GIGABYTE:.1f} GB of memory, and {free / _GIGABYTE:.1f} GB are free"
        )
        raise InputError.at(file, problem, remedy)


@contextmanager
def at_most(more: int) -> Iterator[None]:
    """Let the process grow by `more` bytes at most; beyond, an allocation raises MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    # RLIMIT_AS bounds the whole address space, so that what there is already counts.
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])  # of its address space
    ceiling = pages * os.sysconf("SC_PAGE_SIZE") + more
    # A limit that the process has already is never raised.
    limits = [limit for limit in (ceiling, soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
