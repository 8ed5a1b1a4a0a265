"""A drawn clip as a video file, so that people can watch it and the readers of videos can be tried on it."""

from pathlib import Path

import numpy as np

from recipe.artifacts import atomic_path
from recipe.errors import InputError, MissingExtra
from recipe.types import Frames

try:
    import av
except ModuleNotFoundError as error:
    raise MissingExtra("writing a video", "video") from error

ENLARGED = 6
"""Each pixel becomes a square of this side: frames large enough for any reader, that reduce to what was drawn."""
_QUALITY = "8"
"""Constant rate factor of x264: what is lost lies below the drawing's own noise."""


def write_clip(path: Path, frames: Frames) -> None:
    """Write frames as H.264, each shown for 1 / rate seconds, all or nothing.

    Raises InputError for a file name that is not a video's.
    """
    if path.suffix.lower() not in (".mp4", ".mkv", ".mov"):
        raise InputError.at(path, "this is no name of a video", "give one that ends in .mp4, .mkv or .mov")
    with atomic_path(path) as partial, av.open(str(partial), "w", format=_container(path)) as file:
        stream = file.add_stream("libx264", rate=round(frames.rate), options={"crf": _QUALITY})
        stream.height, stream.width = (size * ENLARGED for size in frames.images.shape[1:3])
        stream.pix_fmt = "yuv420p"
        for image in frames.images:
            large = np.repeat(np.repeat(image, ENLARGED, 0), ENLARGED, 1)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(large, format="rgb24")))
        file.mux(stream.encode())


def _container(path: Path) -> str:
    return {".mkv": "matroska"}.get(path.suffix.lower(), path.suffix.lower()[1:])
