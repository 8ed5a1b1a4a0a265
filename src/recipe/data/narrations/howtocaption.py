"""HowToCaption's pickles, filtered and unfiltered, plain and zipped (Shvetsova et al., ECCV 2024).

One dict: {video id: {"start": [...], "end": [...], "text": [...]}}, whole seconds, not in time order. An item of `text`
is a list of captions, or of (caption, score), or one caption; a zipped value is the same as JSON under zlib. The pickle
is read without looking up a class or calling a function.
"""

import copyreg
import gc
import io
import json
import pickle
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from recipe.data.narrations.drafts import Draft, Fault, Place, ReadingOptions, ReadingReport
from recipe.data.narrations.files import HEAD, SourceFile
from recipe.data.narrations.parallel import drafts, from_mapping
from recipe.errors import InputError
from recipe.memory import at_most, available, require_memory

MEMORY, MEMORY_ZIPPED = 6.0, 1.5
"""Bytes of memory that a byte of the file takes at its peak, measured as docs/readers.md says."""

LARGEST = 1 << 26
"""Bytes of one unzipped video at most: 100,000 captions take about 10 million."""
_MOST = 20
"""Bytes of memory that a byte of a pickle of captions takes at most; a pickle that needs more is hostile."""

_BROKEN = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    ArithmeticError,
    RecursionError,
)
"""What the unpickler raises for bytes that are no pickle; its documentation lists them as examples."""


def load_plain(path: Path, stream: io.BufferedReader, encoding: str) -> Any:
    """The value of a pickle of dicts, lists, tuples, strings, bytes and numbers; `encoding` is for Python 2's strings.

    Raises InputError for a pickle that refers to anything else, is damaged, or is followed by more.
    """
    # Extension codes that were used before would be resolved without asking `find_class`.
    copyreg.clear_extension_cache()
    free = available()
    wanted = _MOST * path.stat().st_size + (1 << 28)
    try:
        with at_most(min(wanted, free)) if free is not None else nullcontext(), _without_collector():
            value = _PlainUnpickler(stream, encoding=encoding).load()
    except _NotPlain as error:
        problem = f"the pickle is not plain data: it {error}"
        raise InputError.at(path, problem, "fetch it again from its publisher; nothing of it was executed") from None
    except UnicodeDecodeError:
        problem = f"a text of Python 2 in the pickle is not {encoding.upper()}"
        raise InputError.at(path, problem, "give the encoding it has, for example latin-1") from None
    except MemoryError:
        problem = "the pickle asks for more memory than is free or than captions of its size take"
        raise InputError.at(path, problem, "fetch the file again, or read it with more memory") from None
    except _BROKEN as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        raise InputError.at(path, f"the pickle is damaged ({reason})", "fetch the file again") from None
    if stream.read(1):
        raise InputError.at(path, "more follows after the pickle", "give a file with one pickle")
    return value


class _NotPlain(Exception):
    """The pickle does something that plain data does not."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise _NotPlain(f"asks for {f'{module}.{name}'!r:.100}")

    def persistent_load(self, pid: object, /) -> NoReturn:
        raise _NotPlain("refers to an object outside of the file")


@contextmanager
def _without_collector() -> Iterator[None]:
    """No garbage can arise in a load, and looking for it among millions of lists takes longer than the load."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_howtocaption(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """One draft a video, in file order; memory is given back as they are read.

    Raises InputError for a pickle that is damaged, holds anything but plain data, or needs more memory than is free.
    """
    if file.path is None:
        raise InputError.at(file.label, "a pickle cannot be read from an archive", "unpack it and give the file")
    remedy = "convert it to JSON lines on a machine with more memory (docs/readers.md)"
    # In a zipped file no key of a video's entry can be read.
    factor = MEMORY if b"start" in file.stream.peek(HEAD)[:HEAD] else MEMORY_ZIPPED
    require_memory(file.path, factor * file.path.stat().st_size, remedy)
    videos = load_plain(file.path, file.stream, options.encoding)
    if not isinstance(videos, dict):
        problem = f"the pickle holds a {type(videos).__name__} where a dict from video id to captions belongs"
        raise InputError.at(file.label, problem, "give a file of HowToCaption")
    source = options.source or "howtocaption"
    for video_id in list(videos):
        value = _unzipped(videos.pop(video_id))
        lists = value if isinstance(value, Fault) else from_mapping(value, source)
        yield from drafts(Place(file.label, field=str(video_id)), video_id, lists, options, report)


def _unzipped(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(value, LARGEST)
    except zlib.error as error:
        return Fault("damaged zip", f"the zipped entry is damaged ({error})", "fetch the file again")
    if not stream.eof:
        if stream.unconsumed_tail:
            problem = f"the zipped entry unpacks to more than {LARGEST:,} bytes"
            return Fault("zip too large", problem, "correct the entry")
        return Fault("damaged zip", "the zipped entry is cut off", "fetch the file again")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return Fault("damaged zip", f"the zipped entry is not JSON ({error})", "fetch the file again")
