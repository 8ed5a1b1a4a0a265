"""Runs the stages of a study in worker processes, several at a time, and skips what an earlier run finished.

A stage's record under `stages/` holds its identity, that is, all that decides its output, and its times once it is
done. The name of a stage may begin with a folder, as in `tiny/base`: the stage is then of the run in that folder, which
holds the record. A stage that is done is skipped. A stage that was interrupted continues from its outputs. A stage
whose identity changed starts from nothing.
"""

import multiprocessing
import os
import queue
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from multiprocessing.context import SpawnContext
from multiprocessing.queues import Queue
from pathlib import Path, PurePath
from typing import Any

from pydantic import BaseModel

from recipe.artifacts import JsonObject, fingerprint, locked, read_json, remove, write_json
from recipe.children import end_with_parent, safe_path
from recipe.errors import ComputeError, InputError, RecipeError, listed
from recipe.progress import SILENT, Advance, Progress

HEARTBEAT = 0.2
"""Seconds between two looks at the workers."""

RECORDS = "stages"
"""Folder of the stages' records in the run folder."""

DIED = "a worker process died, probably out of memory; free some and run the same command again."

NO_RESULT = frozenset({"output", "workers"})
"""Settings of any stage that change where or how fast it works, and nothing in its result."""

Work = Callable[[Path, Any, Progress], None]
"""What a stage does: folder, settings, progress; a module-level function, since workers receive it by name."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One piece of a study that leaves its outputs in the run folder."""

    name: str
    work: Work
    settings: Any
    """Handed to `work`."""
    outputs: tuple[str, ...]
    """Files and folders below the run folder, removed before the stage starts from nothing."""
    needs: tuple[str, ...] = ()
    gpu: bool = True
    """Whether the work may use a GPU; if not, it can run while other stages use the GPUs."""
    folder: str = ""
    """Folder below the run folder that the work is done in."""
    identity: JsonObject | None = None
    """All that decides the output, as JSON: an earlier output holds where its record has the same."""


class StageList(list[Stage]):
    """The stages of a study, each after those whose outputs it reads."""

    def add(
        self,
        name: str,
        work: Work,
        settings: Any,
        outputs: Iterable[str],
        reads: Iterable[str | Path] = (),
        *,
        ignored: Iterable[str] = (),
        gpu: bool = True,
        folder: str = "",
    ) -> str:
        """Add a stage that works in `folder`, where `outputs` and `reads` lie; returns its name, which that begins.

        It needs the stages that write what it `reads`; a path that no stage writes is an error of the caller. Its
        identity holds its settings but for `output`, `workers` and the `ignored` fields: those say where inputs lie,
        of which the settings hold the content. It holds the hash of each needed stage's identity, so that a change
        reaches all that follows from it.
        """
        writers = {PurePath(output): stage for stage in self for output in stage.outputs}
        needs: dict[str, Stage] = {}
        for read in reads:
            path = PurePath(folder, read)
            writer = next((writers[parent] for parent in (path, *path.parents) if parent in writers), None)
            assert writer is not None, f"stage {name} reads {path}, which no stage before it writes"
            needs[writer.name] = writer
        name = f"{folder}-{name}" if folder else name
        identity = {
            "stage": name,
            "settings": plain_settings(settings, NO_RESULT.union(ignored)),
            "needs": {need: fingerprint(stage.identity) for need, stage in needs.items()},
        }
        placed = tuple(str(PurePath(folder, output)) for output in outputs)
        self.append(Stage(name, work, settings, placed, tuple(needs), gpu, folder, identity))
        return name


def plain_settings(value: Any, ignored: frozenset[str]) -> Any:
    """Settings as JSON, without the fields of these names at any depth.

    A class that decides for itself which of its fields count has a method `identity`.
    """
    if hasattr(value, "identity"):
        return plain_settings(value.identity(), ignored)
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    elif is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain_settings(item, ignored) for name, item in value.items() if name not in ignored}
    if isinstance(value, (tuple, list)):
        return [plain_settings(item, ignored) for item in value]
    if isinstance(value, (set, frozenset)):
        # A set has another order in each process, and an identity must not.
        return sorted(plain_settings(item, ignored) for item in value)
    return str(value) if isinstance(value, PurePath) else value


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
    for the next; all other stages share `workers` processes that see no GPU.

    Raises whatever a stage raises, ComputeError when a worker process dies, and InputError for a folder that holds
    something else, that an earlier version began, or that another process is at work in.
    """
    # Not forked: a fork copies the locks that other threads hold, such as torch's, and nobody would release them.
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        for folder in dict.fromkeys(run_dir / PurePath(stage.name).parent for stage in stages):
            run_state(folder)
            stack.enter_context(locked(folder))
        finished = {*finished_stages(run_dir, stages)}
        pending = {stage.name: stage for stage in stages if stage.name not in finished}
        advance = stack.enter_context(progress.task("stages", len(stages)))
        # Those of earlier calls count, so that the bar shows how far the study is and not this call.
        advance(len(finished))
        if not pending:
            return
        # Workers inherit the environment, and so does the process that cleans up behind them.
        added = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
        os.environ.update(added)
        for name in added:
            stack.callback(os.environ.pop, name, None)
        stack.enter_context(safe_path())
        events: Queue[Event] = context.Queue()
        relay = stack.enter_context(_ProgressRelay(progress, events))
        pool = _WorkerPool(context, events, workers, devices)
        try:
            failed = _drive(run_dir, pool, pending, finished, relay, advance, keep_going)
        except BaseException as error:
            pool.close(now=True)
            if isinstance(error, BrokenProcessPool):
                raise ComputeError(DIED) from None
            raise
        pool.close()
    if failed:
        (name, first), *others = failed.items()
        rest = f" These failed, too: {listed([other for other, _ in others])}." if others else ""
        raise RecipeError(f"stage {name}: {first}{rest}") from first


def run_state(run_dir: Path) -> str:
    """Whether a folder holds a run or is a new one, in words. Raises InputError for a folder of something else.

    A stage that starts from nothing removes its outputs; in such a folder they could be anything.
    """
    if (run_dir / RECORDS).is_dir():
        return "a run that is continued"
    if run_dir.is_dir() and any(not path.name.startswith(".") for path in run_dir.iterdir()):
        raise InputError.at(run_dir, "the folder is not empty and holds no run", "choose another folder")
    return "a new run"


def _record_file(run_dir: Path, name: str) -> Path:
    """The record of a stage, in `stages/` of the run that its name begins with."""
    stage = PurePath(name)
    return run_dir / stage.parent / RECORDS / f"{stage.name}.json"


def finished_stages(run_dir: Path, stages: Sequence[Stage]) -> list[str]:
    """Names of the stages that an earlier run finished with the same identity.

    Raises InputError for a record of an earlier version: its stages cannot be recognised, and to start them from
    nothing would remove what they wrote.
    """
    finished = []
    for stage in stages:
        record = _record_file(run_dir, stage.name)
        if not record.exists():
            continue
        state = read_json(record)
        if "identity" not in state:
            remedy = "finish the run with that version, or give another output folder"
            raise InputError.at(record, "an earlier version of recipe began this run", remedy)
        whole = all((run_dir / output).exists() for output in stage.outputs)
        if whole and state["done"] and state["identity"] == stage.identity:
            finished.append(stage.name)
    return finished


def stage_times(run_dir: Path) -> dict[str, tuple[float, float]]:
    """Wall time and processor time of each finished stage, in seconds, by name."""
    records = ((file.stem, read_json(file)) for file in sorted((run_dir / RECORDS).glob("*.json")))
    return {name: (record["seconds"], record.get("cpu_seconds", 0.0)) for name, record in records if record["done"]}


Event = tuple[str, str | int | None, int | None]
"""A change of a task in a worker: its name; words where it begins, steps by which it advances, or None where it ends;
and its size where it begins and that is known."""


class _QueueProgress:
    """The worker's side of a _ProgressRelay."""

    def __init__(self, events: "Queue[Event]") -> None:
        self._events, self._count = events, 0

    @contextmanager
    def task(self, description: str, total: int | None = None) -> Iterator[Advance]:
        self._count += 1
        name = f"{os.getpid()}-{self._count}"
        self._events.put((name, description, total))
        try:
            yield lambda n: self._events.put((name, n, None))
        finally:
            self._events.put((name, None, None))


class _ProgressRelay(ExitStack):
    """Shows the tasks of all workers on one display."""

    def __init__(self, progress: Progress, events: "Queue[Event]") -> None:
        super().__init__()
        self._progress, self._events = progress, events
        self._tasks: dict[str, tuple[ExitStack, Advance]] = {}

    def receive(self) -> None:
        """Show what the workers have reported since the last call, and that time has passed."""
        while True:
            try:
                task, change, total = self._events.get_nowait()
            except queue.Empty:
                break
            if isinstance(change, str):
                own = self.enter_context(ExitStack())
                self._tasks[task] = own, own.enter_context(self._progress.task(change, total))
            elif change is not None:
                self._tasks[task][1](change)
            else:
                self._tasks.pop(task)[0].close()
        # Some displays move on an event only.
        for _, advance in self._tasks.values():
            advance(0)


def _drive(
    run_dir: Path,
    pool: "_WorkerPool",
    pending: dict[str, Stage],
    done: set[str],
    relay: _ProgressRelay,
    advance: Advance,
    keep_going: bool,
) -> dict[str, RecipeError]:
    """Run what is pending, as many stages at once as the pool has room for, those that stand first before others.

    Returns the errors of stages that failed, by name.
    """
    failed: dict[str, RecipeError] = {}
    running: dict[Future[None], tuple[str, bool]] = {}
    while pending or running:
        for stage in [stage for stage in pending.values() if done.issuperset(stage.needs)]:
            on_gpu = stage.gpu and pool.has_gpus
            if sum(other == on_gpu for _, other in running.values()) < pool.room[on_gpu]:
                running[pool.submit(run_dir, pending.pop(stage.name), on_gpu)] = stage.name, on_gpu
        finished, _ = wait(running, timeout=HEARTBEAT, return_when=FIRST_COMPLETED)
        relay.receive()
        advance(0)
        for future in finished:
            name, _ = running.pop(future)
            try:
                future.result()
            except RecipeError as error:
                if not keep_going:
                    raise
                failed[name] = error
                # What needs the stage, or needs a stage that does, cannot run any more.
                lost = {name}
                while more := {stage.name for stage in pending.values() if lost & set(stage.needs)} - lost:
                    lost |= more
                for other in lost & pending.keys():
                    del pending[other]
                continue
            done.add(name)
            advance(1)
    return failed


class _WorkerPool:
    """Runs each stage that uses a GPU in a separate process, and the others in shared processes."""

    def __init__(
        self, context: SpawnContext, events: "Queue[Event]", workers: int, devices: Sequence[str] = ()
    ) -> None:
        self.has_gpus = bool(devices)
        # Stages at once, with a GPU (True) and without (False).
        self.room: Mapping[bool, int] = {True: len(devices), False: workers}
        self._context, self._events = context, events
        self._free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for device in devices:
            self._free.put(device)
        # A thread for each GPU waits for its process; they compute nothing.
        self._threads = ThreadPoolExecutor(max(1, len(devices)))
        self._shared = self._processes(workers, "" if devices else None)
        self._futures: list[Future[None]] = []

    def _processes(self, count: int, device: str | None) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            count, mp_context=self._context, initializer=_start_worker, initargs=(self._events, device)
        )

    def submit(self, run_dir: Path, stage: Stage, on_gpu: bool) -> Future[None]:
        """A future of the stage, which raises the stage's own error; on a GPU it is done when the process has ended."""
        if on_gpu:
            future = self._threads.submit(self._on_device, run_dir, stage)
        else:
            future = self._shared.submit(_work, run_dir, stage)
        self._futures.append(future)
        return future

    def _on_device(self, run_dir: Path, stage: Stage) -> None:
        device = self._free.get()
        try:
            # Leaving the pool waits for its process: only then is the memory of the GPU free.
            with self._processes(1, device) as own:
                own.submit(_work, run_dir, stage).result()
        except BrokenProcessPool:
            raise ComputeError(DIED) from None
        finally:
            self._free.put(device)

    def close(self, *, now: bool = False) -> None:
        """Let the processes end; with `now`, in the middle of their stages."""
        self._shared.shutdown(wait=not now, cancel_futures=now)
        self._threads.shutdown(wait=not now, cancel_futures=now)
        while now:
            for child in multiprocessing.active_children():
                child.terminate()
                child.join()
            # A thread may have been about to start its process.
            if not (left := [future for future in self._futures if not future.done()]):
                return
            wait(left, timeout=HEARTBEAT)


# In a worker: where its progress goes; a queue reaches a process only when it starts.
_events: "Queue[Event] | None" = None


def _start_worker(events: "Queue[Event]", device: str | None) -> None:
    global _events
    _events = events
    if device is not None:
        # Before torch looks: afterwards it would change nothing.
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    # Ctrl-C reaches the whole process group; the parent alone decides, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def _work(run_dir: Path, stage: Stage) -> None:
    record = _record_file(run_dir, stage.name)
    # Outputs of another identity must not be continued, or taken for what this one left.
    if not record.exists() or read_json(record)["identity"] != stage.identity:
        for output in stage.outputs:
            remove(run_dir / output)
    # Before the work: what a kill leaves behind is then known to be of this identity, and is continued.
    write_json(record, {"identity": stage.identity, "done": False})
    began, cpu_began = time.monotonic(), time.process_time()
    progress = SILENT if _events is None else _QueueProgress(_events)
    with progress.task(stage.name):
        stage.work(run_dir / stage.folder, stage.settings, progress)
    times = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu_began}
    write_json(record, {"identity": stage.identity, "done": True, **times})


# What worker processes, and the one that cleans up behind them, start with unless the user says otherwise.
_ENVIRONMENT = {
    # Spinning threads slow small models down.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # What ended workers leave is removed; the warning about it helps nobody.
    "PYTHONWARNINGS": "ignore:resource_tracker:UserWarning",
}
