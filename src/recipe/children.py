"""Python processes that this one starts: none of them imports modules from the folder it is started in.

`python -c` and `python -m` look for modules in the current folder first, and multiprocessing starts its processes by
`-c`: a `json.py` in the same folder as a data file would run.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from recipe.errors import ComputeError

_SAFE = "PYTHONSAFEPATH"
_HOME = str(Path(__file__).parents[1])


def isolated(code: str) -> list[str]:
    """The command of a Python process that runs `code` with this process's modules but none of the current folder."""
    folder = str(Path.cwd())
    # The folder that holds this package stays, also where it is the current one.
    path = [entry for entry in sys.path if entry == _HOME or entry not in ("", folder)]
    if _HOME not in path:
        path.append(_HOME)
    # -I leaves out the folder, the user's packages and PYTHON variables; the path gives back what this process has.
    return [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {path!r}; {code}"]


@contextmanager
def safe_path() -> Iterator[None]:
    """Within it, Python processes that are started, those of multiprocessing too, leave the current folder out."""
    before = os.environ.get(_SAFE)
    os.environ[_SAFE] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SAFE, None)
        else:
            os.environ[_SAFE] = before


def shared_out(
    items: Iterable[Any],
    work: Callable[..., None],
    workers: Sequence[tuple[str, tuple[Any, ...]]],
    place: Callable[[Any], str] = lambda _: "",
) -> Iterator[Any]:
    """What worker processes send about the items, which they take one after another (`assigned`).

    A process for each device and its settings runs `work(connection, *settings)`. `place` names where an item was, for
    the error of a process that dies. Ctrl-C reaches this process alone; the workers end with it, and with the
    iteration. Raises what a worker sends as an error, the first one, and ComputeError where one dies.
    """
    waiting = iter(items)
    processes: dict[Connection, tuple[str, BaseProcess]] = {}
    at: dict[Connection, str] = {}
    try:
        for device, settings in workers:
            process, connection = _started(work, settings)
            processes[connection], at[connection] = (device, process), ""
        busy = list(processes)
        while busy:
            for connection in [item for item in wait(busy) if isinstance(item, Connection)]:
                try:
                    message = connection.recv()
                    if message is None:  # it asks for an item, and ends where there is none
                        item = next(waiting, None)
                        at[connection] = "" if item is None else place(item)
                        connection.send(item)
                        continue
                except (EOFError, ConnectionError):
                    busy.remove(connection)
                    if (failure := _death(*processes[connection], at[connection])) is not None:
                        raise failure from None
                    continue
                if isinstance(message, Exception):
                    raise message
                yield message
    finally:
        for connection, (_, process) in processes.items():
            process.terminate()
            process.join()
            connection.close()


def _started(work: Callable[..., None], settings: tuple[Any, ...]) -> tuple[BaseProcess, Connection]:
    """A worker process, and this side of its connection."""
    context = get_context("spawn")  # a CUDA context does not survive a fork
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(work, theirs, *settings), daemon=True)
    # The process inherits the blocked signals.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with safe_path():
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    # The worker has this end too: while it is open here, the end of the worker would end no reading.
    theirs.close()
    return process, ours


def _work(work: Callable[..., None], connection: Connection, *settings: Any) -> None:
    end_with_parent()
    work(connection, *settings)


def _death(device: str, process: BaseProcess, at: str = "") -> ComputeError | None:
    """What to say of a worker that ended `at` something before its work was done; None where it ended well.

    A worker runs the script that starts it again, up to its main guard: without one it meets its own call there.
    """
    process.join()
    code = process.exitcode or 0
    if code == 0:
        return None
    if code < 0:
        how, remedy = f"was killed by signal {-code}", "run it again, with a smaller batch size where memory ran out"
    else:
        how = f"ended with code {code}"
        remedy = "read its error above; a script of your own makes this call below if __name__ == '__main__'"
    return ComputeError(f"the process on device {device} {how}{at}; what is finished is kept: {remedy}.")


def assigned(connection: Connection) -> Iterator[Any]:
    """In a worker: what the first process assigns, one at a time, until it sends None."""
    connection.send(None)
    while (item := connection.recv()) is not None:
        yield item
        connection.send(None)


def end_with_parent() -> None:
    """In a worker: end at once when the first process is killed: the next command may already run in its folder.

    A thread waits for that.
    """
    parent = parent_process()

    def end() -> None:
        assert parent is not None
        wait([parent.sentinel])
        # sys.exit would end this thread alone.
        os._exit(1)

    if parent is not None:
        threading.Thread(target=end, daemon=True).start()
