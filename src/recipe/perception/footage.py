"""Video files: their container, their clock, where they end, and their frames in the order they are shown."""

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from recipe.errors import InputError, MissingExtra

try:
    import av
    from av.video.reformatter import Interpolation as Interpolation
except ModuleNotFoundError as error:
    raise MissingExtra("reading videos", "video") from error

FFmpegError: type[Exception] = av.error.FFmpegError
CONVERT = "fetch the file again, or convert it (ffmpeg -i FILE -c:v libx264 NEW.mp4)"
VIDEO_FILE = "give a video file, such as MP4 or WebM"
CONTAINERS = {
    "asf": "WMV",
    "avi": "AVI",
    "flv": "FLV",
    "matroska": "MKV, WebM",
    "mov": "MP4, MOV, M4V, 3GP",
    "mpeg": "MPEG-PS",
    "mpegts": "MPEG-TS",
    "ogg": "Ogg",
}
"""FFmpeg's demuxers that are used, with what people call their files: each holds its frames in the file itself. Among
those left out are lists that name other files (ffconcat, HLS, DASH, SDP), series of pictures, and text."""
MAX_PIXELS = 1 << 26
"""Pixels of a stored frame at most, twice those of 8K: a few bytes of a header can claim more memory than there is."""

# Width of a pixel by its height, or the other way round, at most: nothing can scale to what a header may claim.
_WIDEST = 16
_BOUNDED = {"max_pixels": str(MAX_PIXELS)}


class _VideoContainer(NamedTuple):
    """An open container of PyAV, its video stream, and the seconds at which its clock starts."""

    container: Any
    stream: Any
    zero: Fraction

    def seconds(self, stamp: int, stream: Any = None) -> float:
        """Seconds into the file of a time stamp of a stream, of the video stream where none is given."""
        return float(stamp * (stream or self.stream).time_base - self.zero)


def _open_container(path: Path) -> _VideoContainer:
    """Open a video file; the caller closes the container. Raises InputError for what is not one or has no picture."""
    try:
        if path.is_dir():
            raise InputError.at(path, "this is a folder", "give the path of a video file")
        with path.open("rb") as file:
            head = file.read(8)
        if not head:
            raise InputError.at(path, "the file is empty", "fetch it again")
    except (FileNotFoundError, NotADirectoryError):
        raise InputError.at(path, "the file does not exist", "check the path") from None
    except OSError as error:
        raise InputError.at(path, f"the file cannot be read ({error.strerror})", "check its permissions") from None
    try:
        # Neither what a file refers to nor a name with a colon may lead to a network. A title need not be UTF-8.
        options = {"protocol_whitelist": "file", "format_whitelist": ",".join(CONTAINERS)}
        container = av.open(f"file:{path}", options=options | _BOUNDED, metadata_errors="replace")
    except FFmpegError as error:
        if head[4:] == b"ftyp":
            problem = "the file breaks off or is damaged: the index of its frames (moov, moof) cannot be read"
            raise InputError.at(path, problem, "fetch it again") from None
        if isinstance(error, av.error.ArgumentError):
            problem = f"not a video of a kind that is read ({', '.join(CONTAINERS.values())})"
            raise InputError.at(path, problem, VIDEO_FILE) from None
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        problem = f"not a video that FFmpeg can read, or one that breaks off ({reason})"
        raise InputError.at(path, problem, VIDEO_FILE) from None
    try:
        # The clock starts with the earliest of picture and sound; what comes before 0 (priming of sound) is not played.
        streams = [*container.streams.video, *container.streams.audio]
        starts = [stream.start_time * stream.time_base for stream in streams if stream.start_time is not None]
        zero = max(min(starts, default=Fraction(0)), Fraction(0))
        return _VideoContainer(container, _video_stream(path, container), zero)
    except BaseException:
        container.close()
        raise


def _video_stream(path: Path, container: Any) -> Any:
    # To FFmpeg the cover of a song is a video stream.
    streams = [item for item in container.streams.video if not item.disposition & av.stream.Disposition.attached_pic]
    if not streams:
        if container.streams.audio:
            raise InputError.at(path, "the file holds sound but no pictures", "give a file with a video stream")
        raise InputError.at(path, "the file holds no pictures, or breaks off before them", VIDEO_FILE)
    stream = container.streams.best("video")
    stream = stream if stream in streams else streams[0]
    if stream.codec_context is None:
        raise InputError.at(path, "this FFmpeg has no decoder for its codec", CONVERT)
    width, height = stream.codec_context.width, stream.codec_context.height
    if width * height > MAX_PIXELS:
        raise InputError.at(
            path, f"its frames have {width} x {height} pixels; at most {MAX_PIXELS:,} are read", CONVERT
        )
    aspect = stream.sample_aspect_ratio
    if aspect and not 1 / _WIDEST <= aspect <= _WIDEST:
        raise InputError.at(path, f"its pixels are said to be {float(aspect):g} times as wide as high", CONVERT)
    stream.codec_context.options = _BOUNDED  # a frame may be larger than the header says
    stream.thread_type = "AUTO"
    return stream


# Seconds by which a file may end earlier than its header says and still counts as complete.
_SLACK = 1.0
# Seconds before the stated end at which reading starts: the frame shown last is not the one stored last, and some
# formats find no keyframe but any frame.
_TAIL = 5.0
# Of FFmpeg's clock of containers (AV_TIME_BASE).
_MICROSECONDS = 1_000_000
# AVFMT_TS_DISCONT, the flag of formats (MPEG-TS, MPEG-PS, Ogg) whose index is guessed while reading.
_GUESSES = 0x0200


def _find_ending(path: Path) -> tuple[float, bool, tuple[int, ...]]:
    """The end of a video file by its packets, since its header may be wrong. Raises InputError for what is no video.

    Returns the seconds when the time of the last frame is over, of an incomplete file as far as it can be read; whether
    the file is complete, or breaks off before the end that its header states; and the time stamps at which decoding may
    begin, in the stream's time base, as far as the file has an index.

    Reading starts a few seconds before the stated end; only a file that seems to break off is read from its beginning.
    Nothing is decoded.
    """
    opened = _open_container(path)
    container = opened.container
    picture = whole = float("-inf")
    try:
        stated: float | None = None  # seconds at which the file should end by its header
        begin: int = container.start_time or 0
        if (length := container.duration) is not None:
            stated = (begin + length) / _MICROSECONDS - float(opened.zero)
            with suppress(FFmpegError):
                container.seek(begin + max(0, length - int(_TAIL * _MICROSECONDS)))
                picture, whole = _last(opened, container.demux())
        # Some formats tell their index only once a seek has been asked for.
        entries = [] if container.format.flags & _GUESSES else list(opened.stream.index_entries)
        # An index that points behind the end of the file is that of a longer one, which broke off.
        held = max((entry.pos + entry.size for entry in entries), default=0) <= path.stat().st_size
        if picture == float("-inf") or whole < (stated or 0) - _SLACK:
            again = _open_container(path)
            try:
                picture, whole = _last(again, again.container.demux())
            finally:
                again.container.close()
        complete = held and (stated is None or whole >= stated - _SLACK)
        return picture, complete, tuple(sorted(entry.timestamp for entry in entries if entry.is_keyframe))
    finally:
        container.close()


def _last(opened: _VideoContainer, packets: Iterator[Any]) -> tuple[float, float]:
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


class TimedFrame(NamedTuple):
    """A decoded frame of PyAV, and the seconds at which it appears."""

    time: float
    frame: Any


class Footage:
    """A video file to decode; open it with `open_footage`.

    Times are seconds since the earliest of picture and sound begins, as players count them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.end, self.complete, self._keyframes = _find_ending(path)
        self._opened = _open_container(path)
        # Width of a pixel by its height; None where the file does not say.
        self.aspect: Fraction | None = self._opened.stream.sample_aspect_ratio or None
        try:
            self._beginning: Iterator[TimedFrame] | None = self._decode(self._opened.container.demux(self.stream))
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

    def keyframe(self, time: float) -> float:
        """The last time up to `time` at which decoding may begin, as far as the file's index knows; else -inf."""
        place = self._place(time)
        return self._opened.seconds(self._keyframes[place]) if place >= 0 else float("-inf")

    def frames(self, time: float = float("-inf")) -> Iterator[TimedFrame]:
        """Frames in the order they are shown, from the last keyframe at or before `time`, by default from the first.

        Another call ends what an earlier one gave. Raises InputError at damage, after the frames before it.
        """
        for place in range(self._place(time), -1, -1):
            self._beginning = None
            try:
                self._opened.container.seek(self._keyframes[place], stream=self.stream)
                packets = self._opened.container.demux(self.stream)
                first = next(packets)
            except FFmpegError:
                continue
            # An index may tell when a keyframe is decoded, which can be earlier than it is shown.
            if first.is_keyframe and first.pts is not None and self._opened.seconds(first.pts) <= time:
                return self._decode(itertools.chain([first], packets), self._opened.seconds(first.pts))
        if self._beginning is None:
            self.close()
            self._opened = _open_container(self._path)
            return self._decode(self._opened.container.demux(self.stream))
        rest, self._beginning = self._beginning, None
        return itertools.chain([self.first], rest)

    def damaged(self, time: float) -> InputError:
        """The error of a file whose frames cannot be read after `time` seconds."""
        where = f"after {time:.2f} s" if time > float("-inf") else "from its beginning"
        if self.complete and time == float("-inf"):
            where += f", or its frames have more than {MAX_PIXELS:,} pixels"
        if self.complete:
            return InputError.at(self._path, f"the video is damaged {where}", CONVERT)
        return InputError.at(self._path, f"the file breaks off: no frames can be read {where}", "fetch it again")

    def close(self) -> None:
        self._opened.container.close()

    def _decode(self, packets: Iterator[Any], keyframe: float = float("-inf")) -> Iterator[TimedFrame]:
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
                        yield TimedFrame(begin, frame)
                        last = begin
        except FFmpegError as error:
            if isinstance(error, MemoryError):
                raise InputError.at(self._path, "there is too little memory to decode it", CONVERT) from None
            raise self.damaged(last) from None

    def _place(self, time: float) -> int:
        return bisect_right(self._keyframes, time, key=self._opened.seconds) - 1


@contextmanager
def open_footage(path: Path | str) -> Iterator[Footage]:
    """A video file to decode, closed afterwards. Raises InputError for what is no video or holds no pictures."""
    footage = Footage(Path(path))
    try:
        yield footage
    finally:
        footage.close()
