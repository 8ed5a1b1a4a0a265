"""Pickles of plain data, read in a process of their own, whose memory and processor time have limits.

No class is looked up and no function called, but that is not enough: 400 bytes can ask the unpickler's C code for the
hash of a tuple that holds itself a billion times over, which no signal and no thread of the same process can end. The
system ends a process that has used up its time. The entries come back as JSON, one at a time.
"""

import copyreg
import gc
import json
import math
import pickle
import resource
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

from recipe.children import isolated
from recipe.errors import InputError, first_line
from recipe.memory import at_most, available

LARGEST = 1 << 26
"""Bytes of one unzipped entry at most: 100,000 captions take about 10 million."""
# Bytes of one entry as JSON at most.
_MOST_ENTRY_BYTES = 1 << 24
# Bytes of memory that a byte of a pickle of captions takes at most, and what the process takes itself.
_MEMORY_PER_BYTE, _PROCESS_BYTES = 20, 1 << 28
START_SECONDS, _RATE = 4.0, 2e6
"""Processor time: what starting takes at most, and the fewest bytes a second, a tenth of what was measured."""

# What the unpickler raises for bytes that are no pickle; its documentation lists them as examples.
_BROKEN = (
    pickle.UnpicklingError, EOFError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError,
    RecursionError,
)  # fmt: skip
_AGAIN = "fetch it again from its publisher; nothing of it was executed"


Fault = tuple[str, str, str]
"""What is wrong with an entry: reason, problem and remedy."""


def unpickled(path: Path, encoding: str) -> Iterator[tuple[object, object, Fault | None]]:
    """Key, value and fault of each entry of a pickled dict of plain data; `encoding` is for Python 2's strings.

    A value of bytes is JSON under zlib. Tuples come as lists; what is no plain data within a value comes as its name.
    Raises InputError for a pickle that refers to anything else, is damaged, is followed by more, or takes more memory
    or processor time than captions of its size do.
    """
    size = path.stat().st_size
    free = available()
    memory = 0 if free is None else min(_MEMORY_PER_BYTE * size + _PROCESS_BYTES, free)
    seconds = math.ceil(START_SECONDS + size / _RATE)
    code = "from recipe.data.unpickle import main; main()"
    # A process and no thread: only the system can end C code that does not return.
    command = [*isolated(code), str(path), encoding, str(memory), str(seconds)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            assert child.stdout is not None
            while (head := _frame(child.stdout)) is not None:
                kind, *rest = json.loads(head)
                if kind == "end":
                    return
                if kind == "error":
                    raise InputError(*rest)
                key, fault = rest
                if fault is not None:
                    yield key, None, tuple(fault)
                    continue
                if (body := _frame(child.stdout)) is None:
                    break
                try:
                    yield key, json.loads(body), None
                except (ValueError, RecursionError) as error:
                    problem = f"the zipped entry is not JSON ({error})"
                    yield key, None, ("damaged zip", problem, "fetch the file again")
            problem = f"reading it did not end within {seconds} s of processor time or within the memory"
            raise InputError.at(path, f"{problem}, which captions of its size do", _AGAIN)
        finally:
            # Before the block waits for its end: the caller may have stopped reading.
            child.kill()


def _frame(stream: IO[bytes]) -> bytes | None:
    """The next frame; None where the process ended before its end."""
    # The length of the frame, little-endian, as `_write` puts it.
    head = stream.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack("<Q", head)
    body = stream.read(length)
    return body if len(body) == length else None


def main() -> None:
    """The process: path, encoding, bytes of memory (0: no limit) and seconds of processor time as arguments."""
    path, encoding, memory, seconds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    # At the soft limit the system sends SIGXCPU, at the hard one SIGKILL, which nothing outlasts.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    out = sys.stdout.buffer
    gc.disable()  # no garbage can arise, and looking for it among millions of lists takes longer than the load
    try:
        if memory:
            with at_most(memory):
                _send_all(path, encoding, out)
        else:
            _send_all(path, encoding, out)
        _send(out, ["end"])
    except InputError as error:
        _send(out, ["error", str(error)])
    except MemoryError:
        problem = "the pickle asks for more memory than is free or than captions of its size take"
        remedy = "fetch the file again, or read it with more memory"
        _send(out, ["error", str(InputError.at(path, problem, remedy))])


def _send_all(path: Path, encoding: str, out: IO[bytes]) -> None:
    # Extension codes that were used before would be resolved without asking `find_class`.
    copyreg.clear_extension_cache()
    with path.open("rb") as stream:
        try:
            videos = _PlainUnpickler(stream, encoding=encoding).load()
        except _NotPlain as error:
            raise InputError.at(path, f"the pickle is not plain data: it {error}", _AGAIN) from None
        except UnicodeDecodeError:
            problem = f"a text of Python 2 in the pickle is not {encoding.upper()}"
            raise InputError.at(path, problem, "give the encoding it has, for example latin-1") from None
        except _BROKEN as error:
            raise InputError.at(path, f"the pickle is damaged ({first_line(error)})", "fetch the file again") from None
        if stream.read(1):
            raise InputError.at(path, "more follows after the pickle", "give a file with one pickle")
    if not isinstance(videos, dict):
        problem = f"the pickle holds a {type(videos).__name__} where a dict from video id to captions belongs"
        raise InputError.at(path, problem, "give a file of HowToCaption")
    for key in list(videos):
        # Out of the dict, so that what is sent is freed.
        body, fault = _encoded(videos.pop(key))
        _send(out, ["entry", key, fault])
        if fault is None:
            _write(out, body)


class _NotPlain(Exception):
    """The pickle does something that plain data does not."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise _NotPlain(f"asks for {f'{module}.{name}'!r:.100}")

    def persistent_load(self, pid: object, /) -> NoReturn:
        raise _NotPlain("refers to an object outside of the file")


def _encoded(value: object) -> tuple[bytes, tuple[str, str, str] | None]:
    """An entry's value as JSON, or what is wrong with it."""
    if isinstance(value, bytes):
        stream = zlib.decompressobj()
        try:
            text = stream.decompress(value, LARGEST)
        except zlib.error as error:
            return b"", ("damaged zip", f"the zipped entry is damaged ({error})", "fetch the file again")
        if stream.eof:
            return text, None
        # There is more to come: zlib packs up to a thousand equal bytes into one.
        if stream.unconsumed_tail:
            problem = f"the zipped entry unpacks to more than {LARGEST:,} bytes"
            return b"", ("zip too large", problem, "correct the entry")
        return b"", ("damaged zip", "the zipped entry is cut off", "fetch the file again")
    try:
        # Keys that JSON has no form for are skipped: no field of captions has one.
        body = json.dumps(value, default=_name, skipkeys=True).encode()
    except (ValueError, RecursionError) as error:
        problem = f"the entry cannot be read ({error})"
        return b"", ("not a narration", problem, "correct the entry")
    if len(body) > _MOST_ENTRY_BYTES:
        return b"", ("not a narration", f"the entry takes more than {_MOST_ENTRY_BYTES:,} bytes", "correct the entry")
    return body, None


def _name(value: object) -> dict[str, str]:
    return {"not plain": type(value).__name__}


def _send(out: IO[bytes], message: list[object]) -> None:
    _write(out, json.dumps(message, default=_name, skipkeys=True).encode())
    out.flush()


def _write(out: IO[bytes], body: bytes) -> None:
    """A frame, as `_frame` reads it."""
    out.write(struct.pack("<Q", len(body)) + body)
