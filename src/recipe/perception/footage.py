"""The frames of a video file in the order they are shown, from its beginning or from a keyframe on."""

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from recipe.errors import InputError
from recipe.perception.container import CONVERT, FFmpegError, open_container
from recipe.perception.ending import find_ending


class Shown(NamedTuple):
    """A decoded frame of PyAV, and the seconds at which it appears."""

    time: float
    frame: Any


class Footage:
    """A video file to decode; open it with `open_footage`.

    Times are seconds since the earliest of picture and sound begins, as players count them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.end, self.complete, self._keyframes = find_ending(path)
        self._opened = open_container(path)
        self.aspect = self._opened.aspect
        try:
            self._beginning: Iterator[Shown] | None = self._decode(self._opened.container.demux(self.stream))
            first = next(self._beginning, None)
            if first is None:
                raise self.damaged(float("-inf"))
            self.first = first
        except BaseException:
            self.close()
            raise

    @property
    def stream(self) -> Any:
        """The video stream of PyAV."""
        return self._opened.stream

    @property
    def rate(self) -> float:
        """Frames a second on average; 0 where the file does not say."""
        return float(self.stream.average_rate or self.stream.guessed_rate or 0)

    def keyframe(self, time: float) -> float:
        """The last time up to `time` at which decoding may begin, as far as the file's index knows; else -inf."""
        place = self._place(time)
        return self._opened.seconds(self._keyframes[place]) if place >= 0 else float("-inf")

    def frames(self, time: float = float("-inf")) -> Iterator[Shown]:
        """Frames in the order they are shown, from the last keyframe at or before `time`, by default from the first.

        Another call ends what an earlier one gave. Raises InputError at damage, after the frames before it.
        """
        for place in range(self._place(time), -1, -1):
            self._beginning = None
            if feed := self._landed(self._keyframes[place], time):
                return feed
        if self._beginning is None:
            self.close()
            self._opened = open_container(self._path)
            return self._decode(self._opened.container.demux(self.stream))
        rest, self._beginning = self._beginning, None
        return itertools.chain([self.first], rest)

    def damaged(self, time: float) -> InputError:
        """The error of a file whose frames cannot be read after `time` seconds."""
        where = f"after {time:.2f} s" if time > float("-inf") else "from its beginning"
        if self.complete:
            return InputError.at(self._path, f"the video is damaged {where}", CONVERT)
        return InputError.at(self._path, f"the file breaks off: no frames can be read {where}", "fetch it again")

    def close(self) -> None:
        self._opened.container.close()

    def _landed(self, stamp: int, time: float) -> Iterator[Shown] | None:
        """Frames from the keyframe on to which seeking to a time stamp leads; None where it is shown after `time`.

        An index may tell when a keyframe is decoded, which can be earlier than it is shown.
        """
        try:
            self._opened.container.seek(stamp, stream=self.stream)
            packets = self._opened.container.demux(self.stream)
            first = next(packets)
        except FFmpegError:
            return None
        if not first.is_keyframe or first.pts is None or self._opened.seconds(first.pts) > time:
            return None
        return self._decode(itertools.chain([first], packets), self._opened.seconds(first.pts))

    def _decode(self, packets: Iterator[Any], keyframe: float = float("-inf")) -> Iterator[Shown]:
        last = float("-inf")
        try:
            for packet in packets:
                if not packet.size and not self.complete:
                    # What a decoder still gives at a break may lack frames that should be shown in between.
                    raise self.damaged(last)
                for frame in packet.decode():
                    if frame.pts is None:
                        raise InputError.at(self._path, "its frames have no times", CONVERT)
                    begin = self._opened.seconds(frame.pts)
                    # After a seek, frames shown before the keyframe lack what they are predicted from.
                    if begin >= keyframe and begin > last:
                        if frame.is_corrupt:
                            raise self.damaged(last)
                        yield Shown(begin, frame)
                        last = begin
        except FFmpegError:
            raise self.damaged(last) from None

    def _place(self, time: float) -> int:
        return bisect_right(self._keyframes, time, key=self._opened.seconds) - 1


@contextmanager
def open_footage(path: Path) -> Iterator[Footage]:
    """A video file to decode, closed afterwards. Raises InputError for what is no video or holds no pictures."""
    footage = Footage(path)
    try:
        yield footage
    finally:
        footage.close()
