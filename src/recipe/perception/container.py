"""Opening a video file: its container, its picture stream, its clock, and every reason for which it is none."""

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


class Opened(NamedTuple):
    """An open container of PyAV, its video stream, and the seconds at which its clock starts."""

    container: Any
    stream: Any
    zero: Fraction

    @property
    def aspect(self) -> Fraction | None:
        """Width of a pixel by its height; None where the file does not say."""
        aspect = self.stream.sample_aspect_ratio
        return _fraction(aspect) if aspect else None

    def seconds(self, stamp: int, stream: Any = None) -> float:
        """Seconds into the file of a time stamp of a stream, of the video stream where none is given."""
        return float(stamp * _fraction((stream or self.stream).time_base) - self.zero)


def open_container(path: Path) -> Opened:
    """Open a video file; the caller closes the container. Raises InputError for what is not one or has no picture."""
    _check_file(path)
    try:
        # Neither a playlist nor a name with a colon may lead to a network.
        container = av.open(f"file:{path}", options={"protocol_whitelist": "file"})
    except FFmpegError as error:
        raise _not_a_video(path, error) from None
    try:
        return Opened(container, _video_stream(path, container), _zero(container))
    except BaseException:
        container.close()
        raise


def _check_file(path: Path) -> None:
    try:
        if path.is_dir():
            raise InputError.at(path, "this is a folder", "give the path of a video file")
        with path.open("rb") as file:
            if not file.read(1):
                raise InputError.at(path, "the file is empty", "fetch it again")
    except (FileNotFoundError, NotADirectoryError):
        raise InputError.at(path, "the file does not exist", "check the path") from None
    except OSError as error:
        raise InputError.at(path, f"the file cannot be read ({error.strerror})", "check its permissions") from None


def _not_a_video(path: Path, error: Exception) -> InputError:
    with path.open("rb") as file:
        start = file.read(8)
    if start[4:] == b"ftyp":
        problem = "the file breaks off or is damaged: the index of its frames (moov, moof) cannot be read"
        return InputError.at(path, problem, "fetch it again")
    reason = str(getattr(error, "strerror", None) or error).rstrip(".")
    return InputError.at(path, f"not a video that FFmpeg can read, or one that breaks off ({reason})", VIDEO_FILE)


def _video_stream(path: Path, container: Any) -> Any:
    if container.format.name.endswith("_pipe") or container.format.name in ("image2", "tty"):
        raise InputError.at(path, "this is a picture or a text, not a video", VIDEO_FILE)
    # To FFmpeg the cover of a song is a video stream.
    streams = [one for one in container.streams.video if not one.disposition & av.stream.Disposition.attached_pic]
    if not streams:
        if container.streams.audio:
            raise InputError.at(path, "the file holds sound but no pictures", "give a file with a video stream")
        raise InputError.at(path, "the file holds no pictures, or breaks off before it tells of them", VIDEO_FILE)
    stream = container.streams.best("video")
    stream = stream if stream in streams else streams[0]
    if stream.codec_context is None:
        raise InputError.at(path, "this FFmpeg has no decoder for its codec", CONVERT)
    stream.thread_type = "AUTO"
    return stream


def _zero(container: Any) -> Fraction:
    """Where the earliest of picture and sound begins; what comes before 0 (priming of sound) is not played."""
    streams = [*container.streams.video, *container.streams.audio]
    starts = [one.start_time * _fraction(one.time_base) for one in streams if one.start_time is not None]
    return max(min(starts, default=Fraction(0)), Fraction(0))


def _fraction(rational: Any) -> Fraction:
    return Fraction(rational.numerator, rational.denominator)
