"""What shows an example's history in pictures, and the controls that tell whether a planner looks at it."""

import random
from collections.abc import Sequence

import numpy as np

from recipe.errors import InputError
from recipe.types import Example, Frames
from recipe.world.frames import Painter, Style
from recipe.world.graph import World

GREY = 118
"""Of a blank frame."""
_TRIES = 6


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
        return self._drawn(history_steps(self._world, example), example, draw)

    def other(self, example: Example) -> Frames:
        """A clip of the same goal and as many steps and frames, of which as many as possible were not done."""
        done = history_steps(self._world, example)
        rng = random.Random(f"other {self._seed} {example.example_id}")
        own = self._world.graph(example.goal).steps
        drawn = [rng.sample(own, len(done)) for _ in range(_TRIES)]
        return self._drawn(max(drawn, key=lambda steps: len({*steps} - {*done})), example, 0)

    def blank(self, example: Example) -> Frames:
        """As many grey frames as the history's clip has."""
        frames = self(example)
        return Frames(np.full_like(frames.images, GREY), frames.times, frames.rate)

    def _drawn(self, steps: Sequence[str], example: Example, draw: int) -> Frames:
        # How long each place of a clip lasts is the example's, so that another history takes as many frames.
        return self._painter.clip(steps, (self._seed, example.example_id, draw), self._style)


def history_steps(world: World, example: Example) -> tuple[str, ...]:
    """The step ids of an example's history. Raises InputError for a goal or a step that is not of the world."""
    own = world.graph(example.goal).after
    steps = tuple(world.recogniser.step(text, own) for text in example.history)
    for text, step in zip(example.history, steps, strict=True):
        if step is None:
            raise InputError(f"{example.example_id}: {text!r} is no step of the world and cannot be drawn.")
    return tuple(step for step in steps if step is not None)
