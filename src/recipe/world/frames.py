"""The world in pictures: each step as a short clip of drawn symbols, many at once and never twice alike.

A step's id is a verb and an object (`pour-oil`). An object is a shape, a colour and a border; an action is a tool, its
tone and a motion. Each has a code of its own, so that no two steps look alike. Nothing is written: a planner can read a
clip only by learning what the drawings stand for.

A step is shown in one or two pairs of frames, 2 or 4 in all. The object lies on the left and moves from the first frame
of a pair to the second, the tool lies on the upper right. Place, size, angle, colour, light, background and noise are
drawn anew for every pair; one background style is kept out of training, so that a test shows an unseen one.
"""

import math
import random
import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from recipe.errors import InputError, MissingExtra
from recipe.types import Frames
from recipe.world.graph import World

try:
    import torch
    from torch.nn.functional import affine_grid, grid_sample, interpolate, max_pool2d
except ModuleNotFoundError as error:
    raise MissingExtra("the world in pictures", "video") from error

Plane = NDArray[np.float64]
Inside = Callable[[Plane, Plane], NDArray[np.bool_]]
"""Which points (x, y), y downwards, of the square from -1 to 1 belong to a drawing."""

Style = Literal["train", "unseen"]
"""Which backgrounds: those of training, or the one kept out of it."""
STYLES: tuple[Style, ...] = get_args(Style)
TRAINED = 4
"""Backgrounds of training; the one after them is the unseen one."""

# Four patches of 14 pixels a side, which Qwen2.5-VL merges into two tokens.
SIZE = 56
"""Pixels of a frame's side."""
# The rate at which Qwen2.5-VL samples videos, so that a pair lasts a second.
RATE = 2.0
"""Frames a second."""
PAIR = 2
"""Frames of a pair, which a visual tower with temporal patches of two reads at once."""
LONG_SHARE = 0.35
"""Share of the steps that last two pairs."""

# Finer than the largest symbol on a frame, about 40 pixels, so that drawing one only reduces it.
_STENCIL = 64
_MARGIN = 0.22
# Standard deviation of the noise, in grey levels.
_NOISE = 9.0


_OBJECT_WINDOW = (0, 4, 48, 56)
# Left, top, right and bottom of where a symbol can be, in pixels.
_TOOL_WINDOW = (26, 0, 56, 34)

_SUPERSAMPLING = 4
# Seed of the assignment of codes: which verb and which object look how.
_ASSIGNMENT = 4


Code = tuple[int, ...]
"""What a step looks like: shape, colour and border of the object, then tool, motion and tone, each an index below its
number in SIZES."""


def _polygon(*points: tuple[float, float]) -> Inside:
    def inside(x: Plane, y: Plane) -> NDArray[np.bool_]:
        odd = np.zeros(x.shape, dtype=bool)
        for (x0, y0), (x1, y1) in zip(points, (*points[1:], points[0]), strict=True):
            if y0 != y1:
                # The even-odd rule: a ray to the right leaves the figure by an odd number of crossings.
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


_TIPS = [(1.0 if tip % 2 == 0 else 0.42, math.pi * (tip / 5 - 0.5)) for tip in range(10)]
_STAR = _polygon(*((radius * math.cos(angle), radius * math.sin(angle)) for radius, angle in _TIPS))
_BOX = _bar(-0.85, -0.85, 0.85, 0.85)
_SLASH = _polygon((-1, 0.75), (0.75, -1), (1, -0.75), (-0.75, 1))
_BACKSLASH = _polygon((-1, -0.75), (-0.75, -1), (1, 0.75), (0.75, 1))
_ZIGZAG = _polygon(
    (-1, 0.2), (-0.5, -0.8), (0, 0.2), (0.5, -0.8), (1, 0.2),
    (1, 0.8), (0.5, -0.2), (0, 0.8), (-0.5, -0.2), (-1, 0.8),
)  # fmt: skip
SHAPES: Sequence[Inside] = (
    _disc(1),
    _BOX,
    _polygon((0, -1), (0.95, 0.8), (-0.95, 0.8)),
    _any(_bar(-0.33, -1, 0.33, 1), _bar(-1, -0.33, 1, 0.33)),
    _STAR,
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
    _ZIGZAG,
    _any(_disc(0.3, -0.7), _disc(0.3), _disc(0.3, 0.7)),
    _any(_bar(-0.9, -0.9, -0.45, 0.9), _bar(0.45, -0.9, 0.9, 0.9), _bar(-0.9, 0.45, 0.9, 0.9)),
    _SLASH,
    _any(_SLASH, _BACKSLASH),
    _any(_bar(-1, -0.9, 1, -0.5), _bar(-1, -0.2, 1, 0.2), _bar(-1, 0.5, 1, 0.9)),
    _polygon((0, -1), (0.8, 0), (0, 1), (-0.8, 0)),
)
COLOURS = (
    (225, 35, 35), (245, 140, 20), (240, 225, 40), (60, 180, 50), (40, 205, 205),
    (40, 80, 225), (150, 60, 200), (245, 245, 245), (25, 25, 35),
)  # fmt: skip
BORDERS = ((20, 20, 20), (240, 240, 240))
TONES = (((245, 245, 245), (20, 20, 20)), ((20, 20, 20), (240, 240, 240)), ((220, 40, 60), (240, 240, 240)))
"""Each tone of a tool with its border."""
# Of the object, from the first frame of a pair to the second: pixels to the right and down, degrees, growth.
MOTIONS = (
    (0, 0, 0, 1), (7, 0, 0, 1), (-7, 0, 0, 1), (0, 7, 0, 1), (0, -7, 0, 1),
    (0, 0, 50, 1), (0, 0, 0, 0.6), (0, 0, 0, 1.5),
)  # fmt: skip
SIZES = (len(SHAPES), len(COLOURS), len(BORDERS), len(TOOLS), len(MOTIONS), len(TONES))


def draw_codes(world: World) -> dict[str, Code]:
    """The code of every step, by step id; the same in every run. Raises InputError for a world that has too many."""
    names = {step: step.partition("-")[::2] for step in world.wordings}  # verb and object
    rng = random.Random(_ASSIGNMENT)
    looks: list[dict[str, tuple[int, ...]]] = []
    # Objects first: the order of the draws decides which code is whose.
    for kind, part, sizes in (("objects", 1, SIZES[:3]), ("verbs", 0, SIZES[3:])):
        named = sorted({pair[part] for pair in names.values()})
        codes = [tuple(int(index) for index in code) for code in np.ndindex(*sizes)]
        if len(named) > len(codes):
            problem = f"its steps name {len(named)} {kind}, and {len(codes)} can be drawn"
            raise InputError.at("the world", problem, "give a smaller world")
        rng.shuffle(codes)
        looks.append(dict(zip(named, codes, strict=False)))
    return {step: (*looks[0][thing], *looks[1][verb]) for step, (verb, thing) in names.items()}


class Painter:
    """Draws the steps of a world; a painter of the same world draws the same picture from the same seed."""

    def __init__(self, world: World) -> None:
        self.codes = draw_codes(world)
        self._row = {step: row for row, step in enumerate(self.codes)}
        self._codes = torch.tensor(list(self.codes.values()))

    def clip(self, steps: Sequence[str], seed: object, style: Style = "train") -> Frames:
        """The steps, by id, one after another; `seed` is anything with a stable repr.

        Raises InputError for an unknown step or none.
        """
        shown = spread(steps, random.Random(f"{seed!r} lengths"))
        images = np.ascontiguousarray(self.pairs(shown, generator(seed), style).flatten(0, 1).numpy())
        return Frames(images, np.arange(len(images)) / RATE, RATE)

    def pairs(self, steps: Sequence[str], draw: torch.Generator, style: Style = "train") -> torch.Tensor:
        """A pair of frames for each step id: uint8 [steps, 2, SIZE, SIZE, 3]. Raises InputError as `clip`."""
        if not steps:
            raise InputError("there is no step to draw; give at least one.")
        if unknown := [step for step in steps if step not in self._row]:
            raise InputError(f"the world has no step {unknown[0]!r}; give step ids of its goals.")
        codes, count = self._codes[[self._row[step] for step in steps]], len(steps)
        contrast, images = _background(count, draw, style)

        # The tool, on the upper right, which does not move. The order of the draws is part of the drawing.
        still = torch.zeros(2)
        x = 43 + 2.0 * _uniform(draw, count, 1) + 0.4 * _uniform(draw, count, 2)
        y = 15 + 2.0 * _uniform(draw, count, 1) + 0.4 * _uniform(draw, count, 2)
        radius = 11.5 * (1 + 0.1 * _uniform(draw, count, 1)) + still
        angle = 0.2 * _uniform(draw, count, 1) + still
        tone = _TONES[codes[:, 5]]
        colour = tone[:, 0] + 0.06 * _uniform(draw, count, 3)
        symbol = self._stencils[len(SHAPES) + codes[:, 3]]
        _paint(images, symbol, (x, y, radius, angle), _TOOL_WINDOW, colour, tone[:, 1])

        # The object, which moves from the first frame to the second.
        halves = torch.tensor([-0.5, 0.5])
        right, down, turn, growth = _MOTIONS[codes[:, 4]].T[..., None]
        x = 20 + 2.5 * _uniform(draw, count, 1) + 0.4 * _uniform(draw, count, 2) + right * halves
        y = 31 + 4.0 * _uniform(draw, count, 1) + 0.4 * _uniform(draw, count, 2) + down * halves
        # From growth**-1/2 to growth**1/2, so that the object has its usual size between the two frames.
        radius = 15.5 * (1 + 0.1 * _uniform(draw, count, 1)) * growth**halves
        angle = 0.22 * _uniform(draw, count, 1) + torch.deg2rad(turn) * halves
        colour = _COLOURS[codes[:, 1]] + 0.06 * _uniform(draw, count, 3)
        symbol = self._stencils[codes[:, 0]]
        _paint(images, symbol, (x, y, radius, angle), _OBJECT_WINDOW, colour, _BORDERS[codes[:, 2]])

        # Light and noise.
        cast = 255 * (0.5 - 0.5 * contrast + 0.06 * _uniform(draw, count, 1, 3, 1, 1))
        grain = self._noise[torch.randint(0, len(self._noise), (count,), generator=draw)]
        images.mul_(255 * contrast).add_(cast).add_(grain).clamp_(0, 255)
        return images.to(torch.uint8).permute(0, 1, 3, 4, 2)

    @cached_property
    def _stencils(self) -> torch.Tensor:
        """[symbols, 2, _STENCIL, _STENCIL]: where a symbol is, and where it or its border is."""
        # Drawn several times finer and averaged; a drawing fills the square but for its margin.
        fine = _STENCIL * _SUPERSAMPLING
        axis = (np.arange(fine) + 0.5) / fine * 2 - 1
        x, y = np.meshgrid(axis / (1 - _MARGIN), axis / (1 - _MARGIN))
        drawn = np.stack([drawing(x, y) for drawing in (*SHAPES, *TOOLS)])
        parts = drawn.reshape(-1, _STENCIL, _SUPERSAMPLING, _STENCIL, _SUPERSAMPLING)
        inside = torch.from_numpy(np.asarray(parts.mean((2, 4)), dtype=np.float32))[:, None]
        reach = int(_MARGIN / 2 * _STENCIL) - 1
        return torch.cat([inside, max_pool2d(inside, 2 * reach + 1, stride=1, padding=reach)], 1)

    @cached_property
    def _noise(self) -> torch.Tensor:
        """A stock of noise [stock, 2, 3, SIZE, SIZE]: drawing it anew would take longer than all else."""
        return _NOISE * torch.randn(128, PAIR, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(3))


def spread(steps: Sequence[str], rng: random.Random) -> list[str]:
    """The step that each pair of a clip shows: every step once or twice."""
    return [step for step in steps for _ in range(2 if rng.random() < LONG_SHARE else 1)]


def generator(seed: object) -> torch.Generator:
    """Random numbers from anything with a stable repr."""
    # Not hash(), which Python salts anew in every process.
    return torch.Generator().manual_seed(zlib.crc32(repr(seed).encode()))


_MOTIONS = torch.tensor(MOTIONS, dtype=torch.float32)
_COLOURS, _BORDERS, _TONES = (torch.tensor(table) / 255 for table in (COLOURS, BORDERS, TONES))


def _uniform(draw: torch.Generator, *shape: int, low: float = -1.0, high: float = 1.0) -> Any:
    return torch.rand(*shape, generator=draw) * (high - low) + low


def _background(count: int, draw: torch.Generator, style: Style) -> tuple[torch.Tensor, torch.Tensor]:
    """Contrast [count, 1, 1, 1, 1] of the light, and the pairs without symbols [count, 2, 3, SIZE, SIZE]."""
    kind = torch.randint(0, TRAINED, (count,), generator=draw) if style == "train" else torch.full((count,), TRAINED)
    angle, phase = (_uniform(draw, count, 1, 1, low=0, high=2 * math.pi) for _ in range(2))
    waves = 2 * math.pi * _uniform(draw, count, 1, 1, low=3, high=8)
    coarse = _uniform(draw, count, 1, 5, 5)
    pattern = torch.zeros(count, SIZE, SIZE)
    for number in range(1, TRAINED + 1):  # kind 0 is plain
        rows = (kind == number).nonzero()[:, 0]
        if not len(rows):
            continue
        across = torch.cos(angle[rows]) * _X + torch.sin(angle[rows]) * _X.T
        if number == 1:  # a slope
            pattern[rows] = across - 0.4
        elif number == 2:  # stripes
            pattern[rows] = 0.5 * torch.sign(torch.sin(waves[rows] * across + phase[rows]))
        elif number == 3:  # blotches
            pattern[rows] = interpolate(coarse[rows], size=(SIZE, SIZE), mode="bilinear")[:, 0]
        else:  # squares, the style that training does not see
            row = torch.sign(torch.sin(waves[rows] * _X[:1] + phase[rows]))
            pattern[rows] = 0.6 * row * row.transpose(1, 2)
    base = _uniform(draw, count, 3, 1, 1, low=0.3, high=0.7)
    drawn = torch.addcmul(base, pattern[:, None], _uniform(draw, count, 3, 1, 1, low=0.3, high=1), value=0.16)
    contrast = _uniform(draw, count, 1, 1, 1, 1, low=0.8, high=1.15)
    return contrast, torch.stack([drawn, drawn], 1)


_X = (torch.arange(SIZE) / SIZE).expand(SIZE, SIZE)


def _paint(
    images: torch.Tensor,
    stencil: torch.Tensor,
    pose: tuple[Any, Any, Any, Any],
    window: tuple[int, int, int, int],
    colour: Any,
    border: Any,
) -> None:
    """Lay a bordered symbol onto pairs [N, 2, 3, SIZE, SIZE], within its window.

    `pose`: x, y and radius in pixels, angle in radians, each [N, 2].
    """
    x, y, radius, angle = pose
    left, top, right, bottom = window
    middle = (left + right) / 2, (top + bottom) / 2
    cos, sin = (f(angle) / radius for f in (torch.cos, torch.sin))
    across, down = middle[0] - x, middle[1] - y
    half = (right - left) / 2, (bottom - top) / 2
    # From the window to the stencil: the inverse of the pose, by place, angle and radius.
    theta = torch.stack(
        [
            torch.stack([cos * half[0], sin * half[1], cos * across + sin * down], -1),
            torch.stack([-sin * half[0], cos * half[1], cos * down - sin * across], -1),
        ],
        -2,
    ).flatten(0, 1)
    grid = affine_grid(theta, [len(theta), 1, bottom - top, right - left], align_corners=False)
    # Outside its stencil a symbol is 0, which leaves the background.
    masks = grid_sample(stencil.repeat_interleave(PAIR, 0), grid, align_corners=False)
    inside, with_border = masks.unflatten(0, (-1, PAIR)).unbind(2)
    region = images[..., top:bottom, left:right]
    region.lerp_(border[:, None, :, None, None], with_border[:, :, None])
    region.lerp_(colour[:, None, :, None, None], inside[:, :, None])
