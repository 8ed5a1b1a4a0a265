"""Frames of a video at evenly spaced times, and never one that is shown at or after the cut point.

The stretch from `start` to the cut point, or to the end of the video, is divided into pieces of 1 / rate seconds; the
middle of each is asked for, and what it gives is the frame being shown then: the last one that appeared. `count` sets
the number of pieces; `fps` sets their length, and a last, shorter piece counts where its middle lies in the stretch.
A frame is given again where it is still being shown, so that times may be equal but never decrease.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.config import FrameConfig
from recipe.errors import InputError
from recipe.perception.footage import Footage, Shown, open_footage
from recipe.perception.picture import image, pose
from recipe.types import Frames

LEAP = 0.5
"""Seconds of video that jumping to a keyframe must save: less is decoded sooner than jumped over."""


class VideoInfo(NamedTuple):
    """What a video file holds, as it is shown."""

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


class Grid(NamedTuple):
    """Times that are asked for, and how many of them a second holds."""

    times: NDArray[np.float64]
    rate: float


def probe(path: Path) -> VideoInfo:
    """What a video file holds, by its first frame and its end. Raises InputError for what cannot be decoded."""
    with open_footage(path) as footage:
        shape = pose(footage.first.frame, footage.aspect)
        height, width, _ = shape.shape
        codec = str(footage.stream.codec_context.name)
        return VideoInfo(footage.end, footage.rate, width, height, shape.rotation, codec, footage.complete)


def read_frames(path: Path, config: FrameConfig, until: float | None = None, start: float = 0.0) -> Frames:
    """Frames shown from `start` on and before `until`, both in seconds of the file's clock; by default all of it.

    Sizes are the video's own; an image of more than twice `config.max_pixels` pixels is reduced to so many. Holds no
    more than the images it gives and what the decoder needs. Raises InputError for a file that is no video, or that
    is damaged before the last frame asked for, and for a stretch in which it shows nothing.
    """
    with open_footage(path) as footage:
        grid = sampling_grid(config, *_stretch(path, footage, until, start))
        return _collect(footage, grid, config.max_pixels)


def sampling_grid(config: FrameConfig, begin: float, end: float) -> Grid:
    """The times to ask for in the stretch from `begin` to `end` seconds.

    >>> sampling_grid(FrameConfig(fps=2.0), 0.0, 1.8)
    Grid(times=array([0.25, 0.75, 1.25, 1.75]), rate=2.0)
    >>> sampling_grid(FrameConfig(count=2), 0.0, 1.0)
    Grid(times=array([0.25, 0.75]), rate=2.0)
    """
    rate, count = config.fps, config.count
    if count is None:
        count = max(1, math.ceil((end - begin) * rate - 0.5))
        if count <= config.max_frames:
            return _grid(begin, end, count, rate)
        count = config.max_frames
    return _grid(begin, end, count, count / (end - begin))


def shown_at(footage: Footage, times: NDArray[np.float64], leap: float = LEAP) -> Iterator[Shown]:
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


def _stretch(path: Path, footage: Footage, until: float | None, start: float) -> tuple[float, float]:
    """Where asking begins and ends, in seconds: from the first frame on, and up to the cut point or the last frame."""
    if not 0 <= start < math.inf:
        raise InputError.at(path, f"the start {start} is no time in a video", "give seconds from 0 on", field="start")
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
    return begin, until


def _collect(footage: Footage, grid: Grid, max_pixels: int) -> Frames:
    shape = pose(footage.first.frame, footage.aspect, max_pixels)
    images = np.empty((len(grid.times), *shape.shape), dtype=np.uint8)
    times = np.empty(len(grid.times))
    last: Shown | None = None
    for place, shown in enumerate(shown_at(footage, grid.times)):
        images[place] = images[place - 1] if shown is last else image(shown.frame, shape)
        times[place], last = shown.time, shown
    return Frames(images, times, grid.rate)


def _grid(begin: float, end: float, count: int, rate: float) -> Grid:
    middles = begin + (np.arange(count, dtype=np.float64) + 0.5) / rate
    # Rounding, or a stretch of less than half a piece, could otherwise ask for the cut point itself.
    return Grid(np.minimum(middles, max(begin, np.nextafter(end, -np.inf))), rate)
