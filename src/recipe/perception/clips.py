"""What shows an example's history: frames of its video, decoded up to its cut point."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from recipe.config import FrameConfig
from recipe.errors import InputError
from recipe.perception.frames import read_frames
from recipe.perception.videos import VideoFolder
from recipe.types import Example, Frames

Clips = Callable[[Example], Frames]
"""The video history h_V of an example: frames shown before its first step to be planned."""


class VideoClips:
    """Clips of the videos in a folder. The last few are kept, so that one prompt's completions share one decoding."""

    def __init__(self, folder: VideoFolder | Path, config: FrameConfig, keep: int = 4) -> None:
        """`keep` clips are held in memory. Raises InputError where the folder does not exist."""
        self._videos = folder if isinstance(folder, VideoFolder) else VideoFolder(folder)

        @lru_cache(maxsize=keep)
        def read(path: Path, until: float) -> Frames:
            return read_frames(path, config, until)

        self._read = read

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
