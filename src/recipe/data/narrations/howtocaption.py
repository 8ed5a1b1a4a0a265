"""HowToCaption's pickles, filtered and unfiltered, plain and zipped (Shvetsova et al., ECCV 2024).

One dict: {video id: {"start": [...], "end": [...], "text": [...]}}, whole seconds, not in time order. An item of `text`
is a list of captions, or of (caption, score), or one caption; a zipped value is the same as JSON under zlib. The pickle
is read without looking up a class or calling a function, in a process of its own.
"""

from collections.abc import Iterator

from recipe.data.narrations.drafts import Draft, Fault, Place, ReadingOptions, ReadingReport
from recipe.data.narrations.files import HEAD, SourceFile
from recipe.data.narrations.parallel import drafts, from_mapping
from recipe.data.unpickle import unpickled
from recipe.errors import InputError
from recipe.memory import require_memory

MEMORY, MEMORY_ZIPPED = 6.0, 1.5
"""Bytes of memory that a byte of the file takes at its peak, measured as docs/readers.md says."""


def read_howtocaption(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """One draft a video, in file order.

    Raises InputError for a pickle that is damaged, holds anything but plain data, or needs more memory than is free or
    more time than captions do.
    """
    if file.path is None:
        raise InputError.at(file.label, "a pickle cannot be read from an archive", "unpack it and give the file")
    remedy = "convert it to JSON lines on a machine with more memory (docs/readers.md)"
    # In a zipped file no key of a video's entry can be read.
    factor = MEMORY if b"start" in file.stream.peek(HEAD)[:HEAD] else MEMORY_ZIPPED
    require_memory(file.path, factor * file.path.stat().st_size, remedy)
    source = options.source or "howtocaption"
    for key, value, fault in unpickled(file.path, options.encoding):
        lists = from_mapping(value, source) if fault is None else Fault(*fault)
        yield from drafts(Place(file.label, field=str(key)), key, lists, options, report)
