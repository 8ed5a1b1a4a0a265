"""Where a video file ends: what its header says is not taken on trust, its packets are read to the end.

Reading starts a few seconds before the stated end; only a file that seems to break off is read from its beginning.
Nothing is decoded.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from recipe.perception.container import FFmpegError, Opened, open_container

SLACK = 1.0
"""Seconds by which a file may end earlier than its header says and still counts as complete."""
TAIL = 5.0
"""Seconds before the stated end at which reading starts: the frame shown last is not the one stored last, and some
formats find no keyframe but any frame."""
MICROSECONDS = 1_000_000
GUESSES = 0x0200
"""AVFMT_TS_DISCONT, the flag of formats (MPEG-TS, MPEG-PS, Ogg) whose index is guessed while reading."""


class Ending(NamedTuple):
    """What reading a file to its end tells."""

    seconds: float
    """When the time of the last frame is over; of an incomplete file, as far as it can be read."""
    complete: bool
    """False where the file breaks off before the end that its header states."""
    keyframes: tuple[int, ...]
    """Time stamps at which decoding may begin, in the stream's time base, as far as the file has an index."""


def find_ending(path: Path) -> Ending:
    """Read a video file's end. Raises InputError for what is no video."""
    opened = open_container(path)
    try:
        return _find(path, opened)
    finally:
        opened.container.close()


def _find(path: Path, opened: Opened) -> Ending:
    container, stream = opened.container, opened.stream
    picture = whole = float("-inf")
    stated = _stated(opened)
    if stated is not None:
        picture, whole = _last(opened, _tail(container))
    # Some formats tell their index only once a seek has been asked for.
    entries = [] if container.format.flags & GUESSES else list(stream.index_entries)
    held = max((entry.pos + entry.size for entry in entries), default=0) <= path.stat().st_size
    if picture == float("-inf") or whole < (stated or 0) - SLACK:
        again = open_container(path)
        try:
            picture, whole = _last(again, again.container.demux())
        finally:
            again.container.close()
    complete = held and (stated is None or whole >= stated - SLACK)
    return Ending(picture, complete, tuple(sorted(entry.timestamp for entry in entries if entry.is_keyframe)))


def _stated(opened: Opened) -> float | None:
    """Seconds at which the file should end by its header."""
    length: int | None = opened.container.duration
    if length is None:
        return None
    begin: int = opened.container.start_time or 0
    return (begin + length) / MICROSECONDS - float(opened.zero)


def _tail(container: Any) -> Iterator[Any]:
    try:
        begin: int = container.start_time or 0
        container.seek(begin + max(0, container.duration - int(TAIL * MICROSECONDS)))
        yield from container.demux()
    except FFmpegError:
        return


def _last(opened: Opened, packets: Iterator[Any]) -> tuple[float, float]:
    """When the last picture, and when the last packet of any stream, is over; -inf without one."""
    picture = whole = float("-inf")
    usual = float(1 / opened.stream.average_rate) if opened.stream.average_rate else 0.0
    try:
        for packet in packets:
            stamp = packet.dts if packet.pts is None else packet.pts
            if stamp is None or packet.is_discard or packet.is_corrupt:
                continue
            end = opened.seconds(stamp + (packet.duration or 0), packet.stream)
            whole = max(whole, end)
            if packet.stream_index == opened.stream.index:
                picture = max(picture, end if packet.duration else end + usual)
    except FFmpegError:
        pass  # what can be read ends here
    return picture, whole
