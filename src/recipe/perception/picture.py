"""A decoded frame as an image: upright, with square pixels, and no larger than a model can use.

A frame is scaled by FFmpeg's bicubic filter, which widens as it shrinks so that nothing aliases, then turned.
"""

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.perception.container import Interpolation

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
    width, height = _square(frame.width, frame.height, aspect)
    if max_pixels is not None and width * height > SURPLUS * max_pixels:
        scale = math.sqrt(SURPLUS * max_pixels / (width * height))
        width, height = max(1, int(width * scale)), max(1, int(height * scale))
    return Pose(width, height, *_turn(frame))


def image(frame: Any, pose: Pose) -> NDArray[np.uint8]:
    """RGB uint8 [H, W, 3] of a frame; a view, not contiguous where it is turned."""
    scaled = frame.reformat(pose.width, pose.height, format="rgb24", interpolation=Interpolation.BICUBIC).to_ndarray()
    turned = scaled.transpose(1, 0, 2) if pose.swapped else scaled
    result: NDArray[np.uint8] = turned[:: -1 if pose.flip_rows else 1, :: -1 if pose.flip_columns else 1]
    return result


def _square(width: int, height: int, aspect: Fraction | None) -> tuple[int, int]:
    """Size with square pixels: the width is stretched or shrunk, as players do."""
    return (max(1, round(width * aspect)), height) if aspect else (width, height)


def _turn(frame: Any) -> tuple[bool, bool, bool]:
    """Swapped, rows flipped, columns flipped, from the display matrix (ISO/IEC 14496-12, 6.2.2), to quarter turns.

    A point (x, y) is shown at (a x + c y, b x + d y).
    """
    matrix = next((one for one in frame.side_data if one.type.name == "DISPLAYMATRIX"), None)
    if matrix is None:
        return False, False, False
    a, b, _, c, d = np.frombuffer(bytes(matrix), dtype=np.int32)[:5].tolist()
    if abs(b) + abs(c) > abs(a) + abs(d):
        return True, b < 0, c < 0
    return False, d < 0, a < 0
