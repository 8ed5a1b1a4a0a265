"""The drawn code of the world in pictures: an object is a shape, a colour and a border; an action a tool, its tone and
a motion.

A step's id is a verb and an object (`pour-oil`), and each has a code of its own, so that no two steps look alike.
Nothing is written: a planner can read a clip only by learning what the drawings stand for.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.errors import InputError
from recipe.world.graph import World

Plane = NDArray[np.float64]
Inside = Callable[[Plane, Plane], NDArray[np.bool_]]
"""Which points (x, y), y downwards, of the square from -1 to 1 belong to a drawing."""

_SUPERSAMPLING = 4
_ASSIGNMENT = 4
"""Seed of the assignment of codes: which verb and which object look how."""


class Code(NamedTuple):
    """What a step looks like; each part is an index, and SIZES says of how many."""

    shape: int
    colour: int
    border: int
    tool: int
    motion: int
    tone: int


class Motion(NamedTuple):
    """What the object does from the first frame of a pair to the second."""

    right: float = 0.0
    """Pixels."""
    down: float = 0.0
    """Pixels."""
    turn: float = 0.0
    """Degrees."""
    growth: float = 1.0


def _polygon(*points: tuple[float, float]) -> Inside:
    def inside(x: Plane, y: Plane) -> NDArray[np.bool_]:
        odd = np.zeros(x.shape, dtype=bool)
        for (x0, y0), (x1, y1) in zip(points, (*points[1:], points[0]), strict=True):
            if y0 != y1:
                odd ^= ((y0 > y) != (y1 > y)) & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
        return odd

    return inside


def _bar(left: float, top: float, right: float, bottom: float) -> Inside:
    return lambda x, y: (x >= left) & (x <= right) & (y >= top) & (y <= bottom)


def _disc(radius: float, x0: float = 0.0, y0: float = 0.0, flat: float = 1.0) -> Inside:
    return lambda x, y: (x - x0) ** 2 + ((y - y0) / flat) ** 2 <= radius**2


def _any(*parts: Inside) -> Inside:
    return lambda x, y: np.logical_or.reduce([part(x, y) for part in parts])


def _without(part: Inside, hole: Inside) -> Inside:
    return lambda x, y: part(x, y) & ~hole(x, y)


def _star(points: int, inner: float) -> Inside:
    angles = [math.pi * (index / points - 0.5) for index in range(2 * points)]
    radii = [1.0 if index % 2 == 0 else inner for index in range(2 * points)]
    return _polygon(*((r * math.cos(a), r * math.sin(a)) for r, a in zip(radii, angles, strict=True)))


_BOX = _bar(-0.85, -0.85, 0.85, 0.85)
_SLASH = _polygon((-1, 0.75), (0.75, -1), (1, -0.75), (-0.75, 1))
_BACKSLASH = _polygon((-1, -0.75), (-0.75, -1), (1, 0.75), (0.75, 1))
SHAPES: Sequence[Inside] = (
    _disc(1),
    _BOX,
    _polygon((0, -1), (0.95, 0.8), (-0.95, 0.8)),
    _any(_bar(-0.33, -1, 0.33, 1), _bar(-1, -0.33, 1, 0.33)),
    _star(5, 0.42),
    _without(_disc(1), _disc(0.48)),
    _without(_disc(1), _disc(0.78, 0.45, -0.2)),
    _disc(1, flat=0.45),
    _without(_BOX, _bar(-0.4, -0.4, 0.4, 0.4)),
    _any(_bar(-0.9, -0.95, -0.3, 0.95), _bar(-0.9, 0.35, 0.9, 0.95)),
    _polygon((-0.95, -0.95), (0.95, -0.95), (-0.95, 0.95)),
    _any(_bar(-0.95, -0.95, 0.95, -0.35), _bar(-0.3, -0.95, 0.3, 0.95)),
)
TOOLS: Sequence[Inside] = (
    _any(_bar(-0.9, -0.95, 0.9, -0.3), _bar(-0.2, -0.9, 0.2, 1)),
    _polygon(
        (-1, 0.2),
        (-0.5, -0.8),
        (0, 0.2),
        (0.5, -0.8),
        (1, 0.2),
        (1, 0.8),
        (0.5, -0.2),
        (0, 0.8),
        (-0.5, -0.2),
        (-1, 0.8),
    ),
    _any(_disc(0.3, -0.7), _disc(0.3), _disc(0.3, 0.7)),
    _any(_bar(-0.9, -0.9, -0.45, 0.9), _bar(0.45, -0.9, 0.9, 0.9), _bar(-0.9, 0.45, 0.9, 0.9)),
    _SLASH,
    _any(_SLASH, _BACKSLASH),
    _any(_bar(-1, -0.9, 1, -0.5), _bar(-1, -0.2, 1, 0.2), _bar(-1, 0.5, 1, 0.9)),
    _polygon((0, -1), (0.8, 0), (0, 1), (-0.8, 0)),
)
COLOURS = (
    (225, 35, 35),
    (245, 140, 20),
    (240, 225, 40),
    (60, 180, 50),
    (40, 205, 205),
    (40, 80, 225),
    (150, 60, 200),
    (245, 245, 245),
    (25, 25, 35),
)
BORDERS = ((20, 20, 20), (240, 240, 240))
TONES = (((245, 245, 245), (20, 20, 20)), ((20, 20, 20), (240, 240, 240)), ((220, 40, 60), (240, 240, 240)))
"""Each tone of a tool with its border."""
MOTIONS = (
    Motion(),
    Motion(right=7),
    Motion(right=-7),
    Motion(down=7),
    Motion(down=-7),
    Motion(turn=50),
    Motion(growth=0.6),
    Motion(growth=1.5),
)
SIZES = Code(len(SHAPES), len(COLOURS), len(BORDERS), len(TOOLS), len(MOTIONS), len(TONES))


def draw_codes(world: World) -> dict[str, Code]:
    """The code of every step, by step id; the same in every run. Raises InputError for a world that has too many."""
    verbs, objects = (sorted({words[part] for words in map(_words, world.wordings)}) for part in (0, 1))
    rng = random.Random(_ASSIGNMENT)
    looks = _assign("objects", objects, SIZES[:3], rng)
    doings = _assign("verbs", verbs, SIZES[3:], rng)
    return {step: Code(*looks[_words(step)[1]], *doings[_words(step)[0]]) for step in world.wordings}


def _words(step: str) -> tuple[str, str]:
    verb, _, thing = step.partition("-")
    return verb, thing


def _assign(kind: str, names: Sequence[str], sizes: Sequence[int], rng: random.Random) -> dict[str, tuple[int, ...]]:
    codes = [tuple(int(part) for part in code) for code in np.ndindex(*sizes)]
    if len(names) > len(codes):
        problem = f"its steps name {len(names)} {kind}, and {len(codes)} can be drawn"
        raise InputError.at("the world", problem, "give a smaller world")
    rng.shuffle(codes)
    return dict(zip(names, codes, strict=False))


def stencils(drawings: Sequence[Inside], size: int, margin: float) -> NDArray[np.float32]:
    """Coverage [drawings, size, size] of each pixel, from 0 to 1; a drawing fills the square but for its margin."""
    fine = size * _SUPERSAMPLING
    axis = (np.arange(fine) + 0.5) / fine * 2 - 1
    x, y = np.meshgrid(axis / (1 - margin), axis / (1 - margin))
    drawn = np.stack([inside(x, y) for inside in drawings])
    parts = drawn.reshape(-1, size, _SUPERSAMPLING, size, _SUPERSAMPLING)
    return np.asarray(parts.mean((2, 4)), dtype=np.float32)
