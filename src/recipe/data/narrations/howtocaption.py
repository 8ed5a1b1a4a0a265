"""HowToCaption's pickles, filtered and unfiltered, plain and zipped (Shvetsova et al., ECCV 2024).

One dict: {video id: {"start": [...], "end": [...], "text": [...]}}, whole seconds, not in time order. An item of `text`
is a list of captions, or of (caption, score), or one caption; a zipped value is the same as JSON under zlib.
"""

import json
import zlib
from collections.abc import Iterator
from typing import Any

from recipe.data.narrations.drafts import Draft, Fault, Place
from recipe.data.narrations.files import HEAD, Opened
from recipe.data.narrations.memory import require_memory
from recipe.data.narrations.options import ReadingOptions
from recipe.data.narrations.parallel import drafts, from_mapping
from recipe.data.narrations.plain_pickle import load_plain
from recipe.data.narrations.report import ReadingReport
from recipe.errors import InputError

MEMORY, MEMORY_ZIPPED = 6.0, 1.5
"""Bytes of memory that a byte of the file takes at its peak; docs/readers.md tells how they were measured."""

LARGEST = 1 << 26
"""Bytes of one unzipped video at most: 100,000 captions take about 10 million."""


def read(file: Opened, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
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
        lists = value if isinstance(value, Fault) else from_mapping(video_id, value, source)
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
