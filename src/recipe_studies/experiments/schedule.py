"""Runs the stages of an experiment in worker processes, several at a time, and skips what an earlier run finished.

A stage's record under `stages/` holds the fingerprint of all that decides its output, and the stage's times once it is
done. A stage that is done is skipped. A stage that was interrupted continues from its outputs. A stage whose settings
changed starts from nothing.
"""

import multiprocessing
import os
import queue
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.context import SpawnContext
from multiprocessing.queues import Queue
from pathlib import Path
from types import TracebackType
from typing import Any

from recipe.artifacts import fingerprint, locked, read_json, remove, write_json
from recipe.children import end_with_parent, safe_path
from recipe.errors import ComputeError, InputError, RecipeError, first_line, listed
from recipe.progress import SILENT, Advance, Progress

HEARTBEAT = 0.2
"""Seconds between two looks at the workers."""

RECORDS = "stages"
"""Folder of the stages' records in the run folder."""

RAY_ADDRESS = "RAY_ADDRESS"
"""Environment variable that names a Ray cluster."""

DIED = "a worker process died, most likely for want of memory; free some and run the same command again."

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
    gpu: bool = True
    """Whether the work may use a GPU; without one it runs beside those that do."""


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
    raised when all others are done. With `devices`, names of GPUs as CUDA_VISIBLE_DEVICES takes them, a stage that may
    use a GPU runs in a process of its own, which sees one of them and ends with the stage, so that its memory is free
    for the next; all other stages share `workers` processes that see no GPU. Where the environment variable RAY_ADDRESS
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
        pool: LocalPool | RayPool
        if RAY_ADDRESS in os.environ:
            from recipe.corpus.cluster.search import cluster

            stack.enter_context(cluster())
            pool = RayPool(len(stages))
        else:
            pool = LocalPool(context, events, workers, devices)
        try:
            failed = _drive(run_dir, pool, pending, done, marks, events, board, advance, keep_going)
        except BaseException as error:
            pool.end()
            if isinstance(error, BrokenProcessPool):
                raise ComputeError(DIED) from None
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
    pool: "LocalPool | RayPool",
    pending: dict[str, Stage],
    done: set[str],
    marks: dict[str, str],
    events: "Queue[Event]",
    board: Board,
    advance: Advance,
    keep_going: bool,
) -> dict[str, RecipeError]:
    """Run what is pending, as many stages at once as the pool has room for, those that stand first before others.

    Returns the errors of stages that failed, by name.
    """
    failed: dict[str, RecipeError] = {}
    running: dict[Future[None], Stage] = {}
    while pending or running:
        for stage in [stage for stage in pending.values() if done.issuperset(stage.needs)]:
            alike = [other for other in running.values() if pool.on_gpu(other) == pool.on_gpu(stage)]
            if len(alike) < pool.room[pool.on_gpu(stage)]:
                running[pool.submit(run_dir, pending.pop(stage.name), marks[stage.name])] = stage
        finished, _ = wait(running, timeout=HEARTBEAT, return_when=FIRST_COMPLETED)
        _drain(events, board)
        board.beat()
        advance(0)
        for future in finished:
            name = running.pop(future).name
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


def _drain(events: "Queue[Event]", board: Board) -> None:
    while True:
        try:
            board.show(events.get_nowait())
        except queue.Empty:
            return


class LocalPool:
    """Runs stages in processes of this machine: those that use a GPU each in its own, the others in shared ones."""

    def __init__(
        self, context: SpawnContext, events: "Queue[Event]", workers: int, devices: Sequence[str] = ()
    ) -> None:
        self.room: Mapping[bool, int] = {True: len(devices), False: workers}
        """Stages at once, on GPUs and beside them."""
        self._context, self._events = context, events
        self._free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for device in devices:
            self._free.put(device)
        self._threads = ThreadPoolExecutor(max(1, len(devices)))
        self._shared = self._processes(workers, "" if devices else None)
        self._futures: list[Future[None]] = []

    def _processes(self, count: int, device: str | None) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            count, mp_context=self._context, initializer=_start_worker, initargs=(self._events, device)
        )

    def on_gpu(self, stage: Stage) -> bool:
        """Whether a stage takes a GPU here."""
        return stage.gpu and self.room[True] > 0

    def submit(self, run_dir: Path, stage: Stage, mark: str) -> Future[None]:
        """A future of the stage, which raises the stage's own error; on a GPU it is done when the process has ended."""
        submit = self._threads.submit if self.on_gpu(stage) else self._shared.submit
        future = submit(self._on_device if self.on_gpu(stage) else _work, run_dir, stage, mark)
        self._futures.append(future)
        return future

    def _on_device(self, run_dir: Path, stage: Stage, mark: str) -> None:
        device = self._free.get()
        try:
            # Leaving the pool waits for its process: only then is the memory of the GPU free.
            with self._processes(1, device) as own:
                own.submit(_work, run_dir, stage, mark).result()
        except BrokenProcessPool:
            raise ComputeError(DIED) from None
        finally:
            self._free.put(device)

    def shutdown(self) -> None:
        """Let the processes end; no stage runs any more."""
        self._threads.shutdown()
        self._shared.shutdown()

    def end(self) -> None:
        """Stop processes in the middle of their stages."""
        self._shared.shutdown(wait=False, cancel_futures=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        while True:
            for child in multiprocessing.active_children():
                child.terminate()
                child.join()
            # A thread may have been about to start its process.
            if not (left := [future for future in self._futures if not future.done()]):
                return
            wait(left, timeout=HEARTBEAT)


class RayPool:
    """Runs stages as tasks of a Ray cluster, as a process pool would; progress within a stage is not shown."""

    def __init__(self, room: int) -> None:
        import ray

        self.room: Mapping[bool, int] = {True: room, False: room}
        """Stages that are handed to the cluster at once, on GPUs and beside them."""
        self._gpus = bool(ray.cluster_resources().get("GPU"))
        # A stage that died resumes when the same command is run again, as everywhere. With GPUs its process ends with
        # it: an engine keeps its memory until then, and a process that saw no GPU never sees any.
        self._run = ray.remote(num_cpus=1, max_retries=0, max_calls=1 if self._gpus else 0)(_work_or_error)
        self._tasks: list[Any] = []

    def on_gpu(self, stage: Stage) -> bool:
        """Whether a stage takes a GPU there."""
        return stage.gpu and self._gpus

    def submit(self, run_dir: Path, stage: Stage, mark: str) -> Future[None]:
        """A future of the stage, which raises the stage's own error."""
        task = self._run.options(num_gpus=int(self.on_gpu(stage))).remote(run_dir.resolve(), stage, mark)
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

    def shutdown(self) -> None:
        """Nothing is left: the cluster stays."""

    def end(self) -> None:
        """Cancel what is not done."""
        import ray

        for task in self._tasks:
            ray.cancel(task, force=True)


def _work_or_error(run_dir: Path, stage: Stage, mark: str) -> Exception | None:
    """An error as a value: raised in a task, Ray would wrap it in one of its own."""
    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})
    if not stage.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        _work(run_dir, stage, mark)
    except Exception as error:  # noqa: BLE001 - handed on, whatever it is
        return error
    return None


_events: "Queue[Event] | None" = None
"""In a worker: where its progress goes; a queue reaches a process only when it starts."""


def _start_worker(events: "Queue[Event]", device: str | None) -> None:
    global _events
    _events = events
    if device is not None:
        # Before torch looks: afterwards it would change nothing.
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    # Ctrl-C reaches the whole process group; the parent alone decides, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


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
