"""Clips that show an example's history, controls without that history, and a clip as a video file.

The controls show whether a planner uses what it sees.
"""

import random
from pathlib import Path

import numpy as np

from recipe.artifacts import atomic_path
from recipe.errors import InputError, MissingExtra
from recipe.types import Example, Frames
from recipe.world.frames import Painter, Style
from recipe.world.graph import World

# Middle grey, which reflects 18% of the light that white does, in sRGB.
GREY = 118
"""Of a blank frame."""
_TRIES = 6
ENLARGED = 6
"""Each pixel becomes a square of this side: large enough for any reader, and reducible to the drawing."""
# Constant rate factor of x264: the loss is smaller than the noise in the drawing.
_QUALITY = "8"


class DrawnClips:
    """Draws the history of an example of a world as a clip, anew for each `draw`."""

    def __init__(self, world: World, painter: Painter, seed: int = 0, style: Style = "train") -> None:
        self._world, self._painter, self._seed, self._style = world, painter, seed, style

    def __call__(self, example: Example) -> Frames:
        """The first drawing of the example's history. Raises InputError as `render`."""
        return self.render(example, 0)

    def render(self, example: Example, draw: int) -> Frames:
        """A drawing of the example's history, the same again for the same `draw`.

        Raises InputError for a goal or a step that is not of the world.
        """
        # How long each step of a clip lasts is the example's, so that another history takes as many frames.
        steps = history_steps(self._world, example)
        return self._painter.clip(steps, (self._seed, example.example_id, draw), self._style)

    def other(self, example: Example) -> Frames:
        """A clip of the same goal and as many steps and frames, of which as many as possible were not done."""
        done = history_steps(self._world, example)
        rng = random.Random(f"other {self._seed} {example.example_id}")
        own = self._world.graph(example.goal).steps
        drawn = [rng.sample(own, len(done)) for _ in range(_TRIES)]
        steps = max(drawn, key=lambda steps: len({*steps} - {*done}))
        return self._painter.clip(steps, (self._seed, example.example_id, 0), self._style)

    def blank(self, example: Example) -> Frames:
        """As many grey frames as the history's clip has."""
        frames = self(example)
        return Frames(np.full_like(frames.images, GREY), frames.times, frames.rate)


def history_steps(world: World, example: Example) -> tuple[str, ...]:
    """The step ids of an example's history. Raises InputError for a goal or a step that is not of the world."""
    own = world.graph(example.goal).after
    steps = tuple(world.recogniser.step(text, own) for text in example.history)
    for text, step in zip(example.history, steps, strict=True):
        if step is None:
            raise InputError(f"{example.example_id}: {text!r} is no step of the world and cannot be drawn.")
    return tuple(step for step in steps if step is not None)


def write_clip(path: Path, frames: Frames) -> None:
    """Write frames as H.264, each shown for 1 / rate seconds, all or nothing.

    People can watch the file, and readers of videos can be tested on it. Raises InputError for a file name that is not
    a video's, MissingExtra without PyAV.
    """
    container = {".mp4": "mp4", ".mkv": "matroska", ".mov": "mov"}.get(path.suffix.lower())
    if container is None:
        raise InputError.at(path, "this is no name of a video", "give one that ends in .mp4, .mkv or .mov")
    try:
        import av  # noqa: PLC0415 - the drawings do without it
    except ModuleNotFoundError as error:
        raise MissingExtra("writing a video", "video") from error
    # The container is named because a partial file has another ending, by which PyAV would choose.
    with atomic_path(path) as partial, av.open(str(partial), "w", format=container) as file:
        stream = file.add_stream("libx264", rate=round(frames.rate), options={"crf": _QUALITY})
        stream.height, stream.width = (size * ENLARGED for size in frames.images.shape[1:3])
        stream.pix_fmt = "yuv420p"
        for image in frames.images:
            large = np.repeat(np.repeat(image, ENLARGED, 0), ENLARGED, 1)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(large, format="rgb24")))
        file.mux(stream.encode())
