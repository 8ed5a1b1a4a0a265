"""Frames of a video at evenly spaced times, and never one that is shown at or after the cut point."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.config.models import FrameConfig
from recipe.errors import InputError
from recipe.perception.footage import Footage, Interpolation, TimedFrame, open_footage
from recipe.perception.videos import VideoFolder
from recipe.types import Example, Frames

SURPLUS = 2
"""A frame is scaled down only where it has more than this many times the pixels wanted, and then to so many. What is
left is for the model's own processor, whose filter then decides how the image looks."""


class Pose(NamedTuple):
    """How the images of a video are scaled and turned: the same for all its frames."""

    width: int
    """Of the scaled frame, before it is turned."""
    height: int
    swapped: bool
    """Rows become columns; the two flips come after."""
    flip_rows: bool
    flip_columns: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the image."""
        return (self.width, self.height, 3) if self.swapped else (self.height, self.width, 3)

    @property
    def rotation(self) -> int:
        """Degrees clockwise that it is turned by: 0, 90, 180 or 270; of a mirror image, those without the mirror."""
        if self.swapped:
            return 270 if self.flip_rows else 90
        return 180 if self.flip_rows else 0


def pose(frame: Any, aspect: Fraction | None, max_pixels: int | None = None) -> Pose:
    """How to show the frames of a video, of which `frame` is one; `aspect` is a pixel's width by its height."""
    # To square pixels the width is stretched or shrunk, as players do.
    width, height = max(1, round(frame.width * (aspect or 1))), frame.height
    if max_pixels is not None and width * height > SURPLUS * max_pixels:
        scale = math.sqrt(SURPLUS * max_pixels / (width * height))
        width, height = max(1, int(width * scale)), max(1, int(height * scale))
    matrix = next((item for item in frame.side_data if item.type.name == "DISPLAYMATRIX"), None)
    if matrix is None:
        return Pose(width, height, False, False, False)
    # To quarter turns: the display matrix (ISO/IEC 14496-12, 6.2.2) shows a point (x, y) at (a x + c y, b x + d y).
    a, b, _, c, d = np.frombuffer(bytes(matrix), dtype=np.int32)[:5].tolist()
    if abs(b) + abs(c) > abs(a) + abs(d):
        return Pose(width, height, True, b < 0, c < 0)
    return Pose(width, height, False, d < 0, a < 0)


def image(frame: Any, pose: Pose) -> NDArray[np.uint8]:
    """RGB uint8 [H, W, 3] of a frame, upright and with square pixels; a view, not contiguous where it is turned.

    FFmpeg's bicubic filter scales it, which widens as it shrinks so that nothing aliases; then it is turned.
    """
    scaled = frame.reformat(pose.width, pose.height, format="rgb24", interpolation=Interpolation.BICUBIC).to_ndarray()
    turned = scaled.transpose(1, 0, 2) if pose.swapped else scaled
    result: NDArray[np.uint8] = turned[:: -1 if pose.flip_rows else 1, :: -1 if pose.flip_columns else 1]
    return result


LEAP = 0.5
"""Seconds of video that jumping to a keyframe must save: less is decoded sooner than jumped over."""


class VideoInfo(NamedTuple):
    """Length, rate and size of a video file, as it is shown."""

    duration: float
    """Seconds from the start of the file's clock to the end of its last frame."""
    fps: float
    """Frames a second on average; 0 where the file does not say."""
    width: int
    """Of the upright image with square pixels."""
    height: int
    rotation: int
    """Degrees clockwise by which stored frames are turned: 0, 90, 180 or 270."""
    codec: str
    complete: bool
    """False where the file breaks off before the end that its header states; `duration` then ends there."""


def probe(path: Path | str) -> VideoInfo:
    """Length, rate and size of a video file, by its first frame and its end.

    Raises InputError for what cannot be decoded.
    """
    with open_footage(path) as footage:
        shape = pose(footage.first.frame, footage.aspect)
        height, width, _ = shape.shape
        stream = footage.stream
        fps, codec = float(stream.average_rate or stream.guessed_rate or 0), str(stream.codec_context.name)
        return VideoInfo(footage.end, fps, width, height, shape.rotation, codec, footage.complete)


def read_frames(path: Path | str, config: FrameConfig, until: float | None = None, start: float = 0.0) -> Frames:
    """Frames shown from `start` on and before `until`, both in seconds of the file's clock; by default all of it.

    The stretch is divided into pieces of 1 / rate seconds, and each gives the frame that is shown at its middle: the
    last one that appeared. `count` sets the number of pieces; `fps` sets their length, and a last, shorter piece counts
    where its middle lies in the stretch. A frame is given again where it is still shown, so that times may be equal but
    never decrease.

    Sizes are the video's own; an image of more than twice `config.max_pixels` pixels is reduced to so many. Holds no
    more than the images it gives and what the decoder needs. Raises InputError for a file that is no video, or that
    is damaged before the last frame asked for, and for a stretch in which it shows nothing.
    """
    with open_footage(path) as footage:
        if not 0 <= start < math.inf:
            problem = f"the start {start} is no time in a video"
            raise InputError.at(path, problem, "give seconds from 0 on", field="start")
        first, end = footage.first.time, footage.end
        if until is None:
            if not footage.complete:
                raise footage.damaged(end)
            until = end
        elif not until > first:
            problem = f"nothing is shown before the cut point {until} s, since the first frame appears at {first:g} s"
            raise InputError.at(path, problem, "give a later cut point", field="until")
        elif until > end:
            if not footage.complete:
                raise footage.damaged(end)
            problem = f"the cut point {until} s lies beyond the end of the video, {end:.3f} s"
            raise InputError.at(path, problem, "check that the times belong to this video", field="until")
        begin = max(start, first)
        if not begin < until:
            remedy = f"give a start before {until:g} s"
            raise InputError.at(path, f"nothing is left to show from {start} s on", remedy, field="start")

        asked, rate = sampling_grid(config, begin, until)
        shape = pose(footage.first.frame, footage.aspect, config.max_pixels)
        images = np.empty((len(asked), *shape.shape), dtype=np.uint8)
        times = np.empty(len(asked))
        last: TimedFrame | None = None
        for place, shown in enumerate(shown_at(footage, asked)):
            images[place] = images[place - 1] if shown is last else image(shown.frame, shape)
            times[place], last = shown.time, shown
        return Frames(images, times, rate)


def sampling_grid(config: FrameConfig, begin: float, end: float) -> tuple[NDArray[np.float64], float]:
    """The times to ask for in the stretch from `begin` to `end` seconds, and how many of them a second holds.

    >>> sampling_grid(FrameConfig(fps=2.0), 0.0, 1.8)
    (array([0.25, 0.75, 1.25, 1.75]), 2.0)
    >>> sampling_grid(FrameConfig(count=2), 0.0, 1.0)
    (array([0.25, 0.75]), 2.0)
    """
    rate, count = config.fps, config.count
    if count is None:
        # The most pieces whose last middle lies before the end: (count - 1/2) / rate < end - begin.
        count = max(1, math.ceil((end - begin) * rate - 0.5))
    if config.count is not None or count > config.max_frames:
        count = config.count or config.max_frames
        rate = count / (end - begin)
    # The middle of the k-th piece lies at (k + 1/2) / rate.
    middles = begin + (np.arange(count, dtype=np.float64) + 0.5) / rate
    # Rounding, or a stretch of less than half a piece, could otherwise ask for the cut point itself.
    return (np.minimum(middles, max(begin, np.nextafter(end, -np.inf))), rate)


def shown_at(footage: Footage, times: NDArray[np.float64], leap: float = LEAP) -> Iterator[TimedFrame]:
    """The frame being shown at each of increasing `times`; none but the current one is held.

    Decoding goes on from frame to frame, but jumps to a keyframe that lies more than `leap` seconds ahead; the frames
    are the same. Raises InputError where damage begins before one that is asked for.
    """
    feed = footage.frames()
    current = following = next(feed, None)
    for time in times.tolist():
        if following and footage.keyframe(time) - following.time > leap:
            feed = footage.frames(time)
            current, following = None, next(feed, None)
        while following and following.time <= time:
            current, following = following, next(feed, None)
        if current is None:
            raise footage.damaged(time)
        yield current


Clips = Callable[[Example], Frames]
"""The video history h_V of an example: frames shown before its first step to be planned."""


class VideoClips:
    """Clips of the videos in a folder. The last few are kept, so that one prompt's completions share one decoding."""

    def __init__(self, folder: VideoFolder | Path | str, config: FrameConfig, keep: int = 4) -> None:
        """`keep` clips are held in memory. Raises InputError where the folder does not exist."""
        self._videos = folder if isinstance(folder, VideoFolder) else VideoFolder(folder)
        self._read = lru_cache(maxsize=keep)(lambda path, until: read_frames(path, config, until))

    def __call__(self, example: Example) -> Frames:
        """Frames shown before the example's `until`.

        Raises InputError where the video is missing or cannot be read up to there, and for an example that does not
        say where its history ends: the whole video would show what is to be planned.
        """
        if example.until is None:
            problem = "the example does not say where its history ends in the video"
            remedy = "prepare the examples from annotations with times"
            raise InputError.at(f"example {example.example_id}", problem, remedy, field="until")
        path = self._videos.find(example.source, example.video_id)
        if path is None:
            problem = f"no video {example.video_id!r} of {example.source or 'any source'}"
            remedy = "download it, or leave out examples without a video"
            raise InputError.at(self._videos.folder, problem, remedy)
        return self._read(path, example.until)
