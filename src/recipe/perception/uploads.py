"""Videos that strangers sent, each read in a process of its own, whose memory, time and files have limits.

A decoder is a large program in C, and what it takes is decided by the file: no thread can be ended that is in it. The
system ends a process that has used up its processor time; this one ends it after a while in any case.
"""

import json
import math
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from recipe.children import isolated
from recipe.config.models import FrameConfig
from recipe.errors import ComputeError, InputError
from recipe.memory import at_most, available
from recipe.perception.frames import SURPLUS, VideoInfo, probe, read_frames
from recipe.types import Frames

Value = TypeVar("Value")

# Bytes that a process may take beyond what it begins with and its images: decoders of 8K video hold some 20 frames.
_MEMORY = 1 << 30
# Files that it may have open.
_FILES = 16
# Bytes of the line of JSON that comes before the images.
_MOST_LINE_BYTES = 1 << 24
_STOPPING = "The server is stopping; send the video again later."


class UploadReader:
    """Reads videos in processes; `close` ends those under way."""

    def __init__(self, at_once: int) -> None:
        """`at_once` videos are decoded at the same time; probing is not counted."""
        self._room = threading.BoundedSemaphore(at_once)
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def probe(self, path: Path, seconds: int) -> VideoInfo:
        """As `frames.probe`, in `seconds` of processor time over all threads and 1.5 times as many of the clock.

        Raises InputError also for what takes longer or too much memory, ComputeError once closed.
        """
        return self._ask(path, seconds, {"memory": _MEMORY}, lambda header, _: VideoInfo(*header))

    def frames(self, path: Path, config: FrameConfig, until: float, seconds: int) -> Frames:
        """As `frames.read_frames`, with the limits and errors of `probe`."""
        most = (config.count or config.max_frames) * SURPLUS * config.max_pixels * 3
        task = {"memory": _MEMORY + most, "config": config.model_dump(), "until": until}
        with self._room:
            return self._ask(path, seconds, task, lambda header, stream: _received(header, stream, most))

    def close(self) -> None:
        """End the processes; from now on nothing is read."""
        with self._lock:
            self._closed = True
            for child in self._children:
                child.kill()

    def _ask(self, path: Path, seconds: int, task: dict[str, Any], take: Callable[[Any, IO[bytes]], Value]) -> Value:
        task |= {"path": str(path), "seconds": seconds}
        command = [*isolated("from recipe.perception.uploads import main; main()"), json.dumps(task)]
        with self._lock:
            if self._closed:
                raise ComputeError(_STOPPING)
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Each thread of a decoder would set much address space aside.
                env=os.environ | {"MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for the process that listens
            )
            self._children.add(child)
        # A limit on processor time alone would let a process wait forever.
        clock = threading.Timer(1.5 * seconds, child.kill)
        clock.start()
        try:
            assert child.stdout is not None
            error, header = json.loads(child.stdout.readline(_MOST_LINE_BYTES))
            if error is not None:
                raise InputError(error)
            return take(header, child.stdout)
        except ValueError:  # it ended before its answer did
            if self._closed:
                raise ComputeError(_STOPPING) from None
            problem = f"reading it takes more than {seconds} s of processor time, or more memory or files than it may"
            raise InputError.at(path, problem, "send a shorter or smaller video") from None
        finally:
            clock.cancel()
            child.kill()
            with child:  # waits for its end
                pass
            with self._lock:
                self._children.discard(child)


def _received(header: Any, stream: IO[bytes], most: int) -> Frames:
    """The frames that follow. Raises ValueError for images of more than `most` bytes, and where they are cut off."""
    shape, times, rate = header
    if math.prod(shape) > most:
        raise ValueError(shape)
    images = np.empty(shape, dtype=np.uint8)
    rest = images.reshape(-1).data
    while len(rest):
        if not (got := stream.readinto(rest)):  # type: ignore[attr-defined]
            raise ValueError(len(rest))
        rest = rest[got:]
    return Frames(images, np.array(times), rate)


def main() -> None:
    """The process: path, limits and, for frames, their settings and the cut, as JSON in its argument."""
    task = json.loads(sys.argv[1])
    # What decodes a video has no reason to write a file or to leave a core behind.
    for limit, most in (
        (resource.RLIMIT_CPU, task["seconds"]),
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most))
    path, images = Path(task["path"]), np.empty(0, dtype=np.uint8)
    free = available()
    try:
        with at_most(task["memory"] if free is None else min(task["memory"], free)):
            if "config" in task:
                read = read_frames(path, FrameConfig.model_validate(task["config"]), task["until"])
                images, header = read.images, [read.images.shape, read.times.tolist(), read.rate]
            else:
                header = list(probe(path))
        answer: list[Any] = [None, header]
    except InputError as error:
        answer = [str(error), None]
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.write(images.data)
    sys.stdout.buffer.flush()
