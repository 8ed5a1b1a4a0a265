"""Runs the stages of an experiment in worker processes, several at a time, and skips what an earlier run finished.

A stage's record under `stages/` holds the fingerprint of all that decides its output, and the stage's times once it is
done. A stage that is done is skipped. A stage that was interrupted continues from its outputs. A stage whose settings
changed starts from nothing.
"""

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.queues import Queue
from pathlib import Path
from types import TracebackType
from typing import Any

from recipe.artifacts import fingerprint, locked, read_json, remove, write_json
from recipe.children import safe_path
from recipe.errors import ComputeError, InputError, RecipeError, first_line, listed
from recipe.progress import SILENT, Advance, Progress

HEARTBEAT = 0.2
"""Seconds between two looks at the workers."""

RECORDS = "stages"
"""Folder of the stages' records in the run folder."""

RAY_ADDRESS = "RAY_ADDRESS"
"""Environment variable that names a Ray cluster."""

Work = Callable[[Path, Any, Progress], None]
"""What a stage does: run folder, settings, progress; a module-level function, since workers receive it by name."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One piece of an experiment that leaves its outputs in the run folder."""

    name: str
    work: Work
    settings: Any
    """Handed to `work`; its repr decides, with the stages needed, whether an earlier output still holds."""
    outputs: tuple[str, ...]
    """Files and folders below the run folder, removed before the stage starts from nothing."""
    needs: tuple[str, ...] = ()


def run_stages(
    run_dir: Path,
    stages: Sequence[Stage],
    workers: int,
    progress: Progress,
    devices: Sequence[str] = (),
    keep_going: bool = False,
) -> None:
    """Run `stages` in the order that their needs allow; a failure or Ctrl-C ends all workers and is raised here.

    With `keep_going`, a stage that fails with an error of ours ends only those that need it; the first such error is
    raised when all others are done. With `devices`, names of GPUs as CUDA_VISIBLE_DEVICES takes them, each worker sees
    one of them, the same for all its stages, and there are as many workers. Where the environment variable RAY_ADDRESS
    names a Ray cluster, its machines run the stages, a GPU each where it has any; all must see the run folder under one
    path. Raises whatever a stage raises, ComputeError when a worker process dies, and InputError for a folder that
    holds something else or that another process is at work in.
    """
    require_run_folder(run_dir)
    with locked(run_dir):
        _run_missing(run_dir, stages, workers, progress, devices, keep_going)


def require_run_folder(run_dir: Path) -> None:
    """A stage that starts from nothing removes its outputs; in a folder of something else they could be anything."""
    if not run_dir.is_dir() or (run_dir / RECORDS).is_dir():
        return
    if any(not path.name.startswith(".") for path in run_dir.iterdir()):
        raise InputError.at(run_dir, "the folder is not empty and holds no run", "choose another folder")


def _run_missing(
    run_dir: Path,
    stages: Sequence[Stage],
    workers: int,
    progress: Progress,
    devices: Sequence[str],
    keep_going: bool,
) -> None:
    marks = _fingerprints(stages)
    pending = {stage.name: stage for stage in stages if not _is_done(run_dir, stage, marks[stage.name])}
    done = {stage.name for stage in stages} - set(pending)
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        stack.enter_context(_environment())
        stack.enter_context(safe_path())
        events: Queue[Event] = context.Queue()
        advance = stack.enter_context(progress.task("stages", len(stages)))
        advance(len(done))
        if not pending:
            return
        board = stack.enter_context(Board(progress))
        free: Queue[str] = context.Queue()
        for device in devices:
            free.put(device)
        pool: ProcessPoolExecutor | RayPool
        if RAY_ADDRESS in os.environ:
            from recipe.corpus.cluster.search import cluster

            stack.enter_context(cluster())
            pool = RayPool()
        else:
            pool = ProcessPoolExecutor(
                len(devices) or workers,
                mp_context=context,
                initializer=_start_worker,
                initargs=(events, free if devices else None),
            )
        try:
            room = len(stages) if isinstance(pool, RayPool) else len(devices) or workers
            failed = _drive(run_dir, pool, room, pending, done, marks, events, board, advance, keep_going)
        except BaseException as error:
            _end(pool)
            if isinstance(error, BrokenProcessPool):
                raise ComputeError(
                    "a worker process died, most likely for want of memory; free some and run the same command again."
                ) from None
            raise
        pool.shutdown()
    if failed:
        (name, first), *others = failed.items()
        rest = f" These failed, too: {listed([other for other, _ in others])}." if others else ""
        raise RecipeError(f"stage {name}: {first}{rest}") from first


def finished_stages(run_dir: Path, stages: Sequence[Stage]) -> list[str]:
    """Names of the stages that an earlier run finished with the same settings."""
    marks = _fingerprints(stages)
    return [stage.name for stage in stages if _is_done(run_dir, stage, marks[stage.name])]


def stage_times(run_dir: Path) -> dict[str, tuple[float, float]]:
    """Wall time and processor time of each finished stage, in seconds, by name."""
    records = ((file.stem, read_json(file)) for file in sorted((run_dir / RECORDS).glob("*.json")))
    return {name: (record["seconds"], record.get("cpu_seconds", 0.0)) for name, record in records if record["done"]}


@dataclass(frozen=True, slots=True)
class Event:
    """A change of a task in a worker: it begins (`total` is its size if known), advances by `n`, or ends."""

    task: str
    kind: str
    description: str = ""
    total: int | None = None
    n: int = 0


class Board:
    """Shows the tasks of all workers on one display."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._stack = progress, ExitStack()
        self._tasks: dict[str, tuple[ExitStack, Advance]] = {}

    def __enter__(self) -> "Board":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for own, _ in self._tasks.values():
            own.__exit__(kind, error, trace)

    def show(self, event: Event) -> None:
        if event.kind == "begin":
            own = ExitStack()
            self._tasks[event.task] = own, own.enter_context(self._progress.task(event.description, event.total))
        elif event.kind == "advance":
            self._tasks[event.task][1](event.n)
        else:
            self._tasks.pop(event.task)[0].close()

    def beat(self) -> None:
        """Let displays that only move on an event show that time has passed."""
        for _, advance in self._tasks.values():
            advance(0)


class QueueProgress:
    """The worker's side of a Board."""

    def __init__(self, events: "Queue[Event]") -> None:
        self._events, self._count = events, 0

    @contextmanager
    def task(self, description: str, total: int | None = None) -> Iterator[Advance]:
        self._count += 1
        name = f"{os.getpid()}-{self._count}"
        self._events.put(Event(name, "begin", description, total))
        try:
            yield lambda n: self._events.put(Event(name, "advance", n=n))
        finally:
            self._events.put(Event(name, "end"))


def _drive(
    run_dir: Path,
    pool: "ProcessPoolExecutor | RayPool",
    room: int,
    pending: dict[str, Stage],
    done: set[str],
    marks: dict[str, str],
    events: "Queue[Event]",
    board: Board,
    advance: Advance,
    keep_going: bool,
) -> dict[str, RecipeError]:
    """Run what is pending, at most `room` stages at once, those that stand first before others that can run.

    Returns the errors of stages that failed, by name.
    """
    failed: dict[str, RecipeError] = {}
    running: dict[Future[None], str] = {}
    while pending or running:
        ready = [name for name, stage in pending.items() if done.issuperset(stage.needs)]
        for name in ready[: room - len(running)]:
            running[pool.submit(_work, run_dir, pending.pop(name), marks[name])] = name
        finished, _ = wait(running, timeout=HEARTBEAT, return_when=FIRST_COMPLETED)
        _drain(events, board)
        board.beat()
        advance(0)
        for future in finished:
            name = running.pop(future)
            try:
                future.result()
            except RecipeError as error:
                if not keep_going:
                    raise
                failed[name] = error
                for lost in _dependents(name, pending):
                    del pending[lost]
                continue
            done.add(name)
            advance(1)
    return failed


def _dependents(name: str, pending: dict[str, Stage]) -> list[str]:
    """The pending stages that need a stage, or need one that does."""
    lost = {name}
    while more := {stage.name for stage in pending.values() if lost & set(stage.needs)} - lost:
        lost |= more
    return [stage for stage in pending if stage in lost]


def _end(pool: "ProcessPoolExecutor | RayPool") -> None:
    """Stop workers in the middle of their stages."""
    pool.shutdown(wait=False, cancel_futures=True)
    for child in multiprocessing.active_children():
        child.terminate()
        child.join()


def _drain(events: "Queue[Event]", board: Board) -> None:
    while True:
        try:
            board.show(events.get_nowait())
        except queue.Empty:
            return


class RayPool:
    """Runs stages as tasks of a Ray cluster, as a process pool would; progress within a stage is not shown."""

    def __init__(self) -> None:
        import ray

        gpus = 1 if ray.cluster_resources().get("GPU") else 0
        # A stage that died resumes when the same command is run again, as everywhere.
        self._run = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(_work_or_error)
        self._tasks: list[Any] = []

    def submit(self, _work: Callable[[Path, Stage, str], None], run_dir: Path, stage: Stage, mark: str) -> Future[None]:
        """A future of the stage, which raises the stage's own error."""
        task = self._run.remote(run_dir.resolve(), stage, mark)
        self._tasks.append(task)
        result: Future[None] = Future()

        def settle(done: Future[Exception | None]) -> None:
            error = done.exception() or done.result()
            if isinstance(error, RecipeError):
                result.set_exception(error)
            elif error is not None:
                result.set_exception(ComputeError(f"stage {stage.name} failed on the cluster: {first_line(error)}"))
            else:
                result.set_result(None)

        task.future().add_done_callback(settle)
        return result

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        """Cancel what is not done, with `cancel_futures`."""
        import ray

        for task in self._tasks if cancel_futures else ():
            ray.cancel(task, force=True)


def _work_or_error(run_dir: Path, stage: Stage, mark: str) -> Exception | None:
    """An error as a value: raised in a task, Ray would wrap it in one of its own."""
    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})
    try:
        _work(run_dir, stage, mark)
    except Exception as error:  # noqa: BLE001 - handed on, whatever it is
        return error
    return None


_events: "Queue[Event] | None" = None
"""In a worker: where its progress goes; a queue reaches a process only when it starts."""


def _start_worker(events: "Queue[Event]", devices: "Queue[str] | None") -> None:
    global _events
    _events = events
    if devices is not None:
        # Before torch looks: afterwards it would change nothing.
        os.environ["CUDA_VISIBLE_DEVICES"] = devices.get()
    # Ctrl-C reaches the whole process group; the parent alone decides, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers; left alone, they would write on and then wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(run_dir: Path, stage: Stage, mark: str) -> None:
    record = run_dir / RECORDS / f"{stage.name}.json"
    if not record.exists() or read_json(record)["fingerprint"] != mark:
        for output in stage.outputs:
            remove(run_dir / output)
    write_json(record, {"fingerprint": mark, "done": False})
    began, cpu_began = time.monotonic(), time.process_time()
    progress = SILENT if _events is None else QueueProgress(_events)
    with progress.task(stage.name):
        stage.work(run_dir, stage.settings, progress)
    times = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu_began}
    write_json(record, {"fingerprint": mark, "done": True, **times})


def _fingerprints(stages: Sequence[Stage]) -> dict[str, str]:
    by_name = {stage.name: stage for stage in stages}

    @cache
    def mark(name: str) -> str:
        stage = by_name[name]
        return fingerprint([name, repr(stage.settings), [mark(need) for need in stage.needs]])

    return {name: mark(name) for name in by_name}


def _is_done(run_dir: Path, stage: Stage, mark: str) -> bool:
    record = run_dir / RECORDS / f"{stage.name}.json"
    if not record.exists() or any(not (run_dir / output).exists() for output in stage.outputs):
        return False
    state = read_json(record)
    return bool(state["done"]) and state["fingerprint"] == mark


_ENVIRONMENT = {
    # Spinning threads slow small models down.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # What ended workers leave is removed; the warning about it helps nobody.
    "PYTHONWARNINGS": "ignore:resource_tracker:UserWarning",
}
"""What worker processes, and the one that cleans up behind them, start with unless the user says otherwise."""


@contextmanager
def _environment() -> Iterator[None]:
    added = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
