"""The processes of one training run: the first one scores, writes and reports, the others only compute.

They are started by `torchrun` or `accelerate launch` (docs/training.md), which number them in the environment. Without
these there is one process, and nothing here does anything.

Python objects go from process to process through a group of its own on gloo, which `gather_object` and
`broadcast_object_list` of accelerate do not use: theirs is the group of the gradients, on NCCL where there are GPUs,
whose patience of some minutes is shorter than a service may be away, and whose connections do not break when a process
ends. An error of one process is noted in the store that all of them reach. The others find it there once their
connections to that process break, so that all end with the same error.
"""

import base64
import logging
import os
import pickle
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate import PartialState

import recipe
from recipe.artifacts import file_sha256, fingerprint, installed
from recipe.errors import ComputeError, ConfigError

Result = TypeVar("Result")

# For which processes wait for an object.
_PATIENCE = timedelta(hours=24)
# Seconds for which a process that has failed waits until the others have heard of it.
_GRACE = 5.0
_FAILURE, _HEARD, _REPORTER = "failure", "heard", "reporter"
# In the errors of a process whose connection to another one broke.
_LOST = ("closed by peer", "reset by peer", "Broken pipe")
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate")

# The group of processes that objects go through, while they are joined.
_objects: Any = None
_reported_elsewhere = False


def world() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Which of them this is, from 0."""
    return int(os.environ.get("RANK", "0"))


def main() -> bool:
    """True in the first process: the one that scores, writes and reports."""
    return rank() == 0


def failure_reported_elsewhere() -> bool:
    """True where this process has failed and another one, as a rule the first, reports the error."""
    return _reported_elsewhere


@contextmanager
def distributed_run() -> Iterator[None]:
    """Within it the processes are joined, and an error of one ends all of them with the same error.

    Nothing happens where there is one process, or where they are joined already; they can be joined once. Raises
    ConfigError for a launcher that shards the model, and where processes run other code than the first one.
    """
    global _objects
    for name, variable in (("FSDP", "ACCELERATE_USE_FSDP"), ("DeepSpeed", "ACCELERATE_USE_DEEPSPEED")):
        if os.environ.get(variable, "false").lower() in ("1", "true", "yes"):
            raise ConfigError(
                f"{name} is switched on ({variable}), but roll-outs and the merger of a video model use the weights "
                "outside the pass that it wraps; run one training on each GPU, or several processes with whole copies "
                "of the model: accelerate launch --multi_gpu, or torchrun."
            )
    if world() == 1 or _objects is not None:
        yield
        return
    if not main():
        logging.getLogger("recipe").setLevel(logging.ERROR)
    # On NCCL where there are GPUs, else on gloo.
    PartialState(cpu=not torch.cuda.is_available())
    store = dist.PrefixStore("recipe", dist.distributed_c10d._get_default_store())
    _objects = dist.new_group(backend="gloo", timeout=_PATIENCE)
    try:
        root = Path(recipe.__file__).parent
        sources = {str(path.relative_to(root)): file_sha256(path) for path in sorted(root.rglob("*.py"))}
        code = {"the code of recipe": fingerprint(sources)} | installed(PACKAGES)
        require_agreement(code, "run the same version everywhere")
        yield
    except (Exception, SystemExit) as error:
        # The launcher ends the other processes when one has failed, which may reach this one first.
        if isinstance(error, SystemExit) and not store.check([_FAILURE]):
            raise
        common = _common_failure(store, error)
        if common is error:
            raise
        raise common from None
    else:
        if dist.is_initialized():  # an engine of vLLM ends the group with itself
            dist.destroy_process_group()
    finally:
        _objects = None


def single(command: str) -> None:
    """Raises ConfigError where several processes were started for a command that one process does."""
    if world() > 1:
        raise ConfigError(f"{command} runs in one process, not in {world()}; start it without torchrun or accelerate.")


def barrier() -> None:
    """Wait until every process is here."""
    if world() > 1:
        dist.barrier(group=_objects)


def from_main(work: Callable[[], Result]) -> Result:
    """What `work` returns in the first process, sent to all of them."""
    if world() == 1:
        return work()
    sent = [work() if main() else None]
    dist.broadcast_object_list(sent, src=0, group=_objects)
    return sent[0]  # type: ignore[return-value]


def gathered(rows: Sequence[Result]) -> list[Result]:
    """The rows of all processes, in the order of their ranks; every process gets them."""
    if world() == 1:
        return list(rows)
    parts: list[Any] = [None] * world()
    dist.all_gather_object(parts, list(rows), group=_objects)
    return [row for part in parts for row in part]


def passes(whole: int, micro: int | None, name: str) -> tuple[int, int]:
    """Rows of one pass in one process, and passes of a process in a step, for `whole` rows a step over all processes.

    Raises ConfigError where `whole`, the setting or product of settings `name`, cannot be shared equally.
    """
    if whole % world():
        raise ConfigError(f"{name}, {whole}, is not a multiple of the {world()} processes; change either.")
    share = whole // world()
    if micro is not None and share % micro and world() > 1:
        raise ConfigError(
            f"micro_batch {micro} does not divide the {share} rows that each of the {world()} processes has of {name}, "
            f"{whole}; change either."
        )
    micro = micro or share
    return micro, share // micro


def require_agreement(facts: Mapping[str, str], remedy: str) -> None:
    """Raises ConfigError, naming the process, where one has other facts than the first process; of those it gives."""
    described = gathered([(socket.gethostname(), dict(facts))])
    first_host, first = described[0]
    for number, (host, own_facts) in enumerate(described):
        for name, value in own_facts.items():
            if value != first[name]:
                raise ConfigError(
                    f"Process {number} on {host} has {name} {value[:16]}, process 0 on {first_host} has "
                    f"{first[name][:16]}; {remedy}."
                )


def _common_failure(store: Any, error: Exception | SystemExit) -> BaseException:
    """The error that all processes end with: that of the first to fail."""
    global _objects, _reported_elsewhere
    lost = isinstance(error, RuntimeError) and any(sign in str(error) for sign in _LOST)
    if lost and not _until(lambda: store.check([_FAILURE]), _GRACE / 3):
        error = ComputeError("Another process of the run ended without a word; run the same command again to resume.")
    try:
        noted = pickle.dumps((rank(), error))
        pickle.loads(noted)
    except Exception:  # noqa: BLE001 - whatever pickle makes of an error that another process cannot read
        noted = pickle.dumps((rank(), ComputeError(f"Process {rank()} failed: {type(error).__name__}: {error}")))
    # The store keeps the first value that is set, so that all processes read one failure.
    first, failure = pickle.loads(base64.b64decode(store.compare_set(_FAILURE, "", base64.b64encode(noted).decode())))
    common: BaseException = error if first == rank() else failure
    # Without a reference the connections close, which wakes the processes that wait for this one.
    _objects = None
    dist.destroy_process_group()
    store.set(f"{_HEARD}/{rank()}", "1")
    # A launcher ends all processes as soon as one has ended: let the first one report before. Where it does not hear,
    # as in a pass that waits for this one, another reports.
    _until(lambda: store.check([f"{_HEARD}/{number}" for number in range(world())]), _GRACE)
    reporter = "0" if store.check([f"{_HEARD}/0"]) else f"{rank()}"
    _reported_elsewhere = store.compare_set(_REPORTER, "", reporter).decode() != f"{rank()}"
    if _reported_elsewhere:
        # The process that reports has to write before the launcher sees that this one has ended.
        time.sleep(1)
    return common


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition; False where it does not come true in so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
