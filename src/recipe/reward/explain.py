"""What a reward rests on: the narration that fits best, and the segment that grounds each step."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.reference import needleman_wunsch
from recipe.types import Narration, Reward, Segment


@dataclass(frozen=True, slots=True)
class GroundedStep:
    """A step of h + c and the segment that the optimal path matches it with, None where it is skipped."""

    text: str
    in_history: bool
    index: int | None
    """Position of the segment in its narration, from 0."""
    segment: Segment | None
    similarity: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A reward with its evidence; `narration` and `steps` are empty where nothing was aligned."""

    reward: Reward
    narration: Narration | None
    steps: tuple[GroundedStep, ...]


def ground_steps(
    history: Sequence[str],
    continuation: Sequence[str],
    narration: Narration,
    W: NDArray[np.float32],
    gap: float,
) -> tuple[GroundedStep, ...]:
    """Read each step's segment off the optimal path of stage 2; W has shape [steps, segments]."""
    segment_of = {i: k for i, k in needleman_wunsch(W, gap).path if i is not None}
    return tuple(
        _grounded(text, i < len(history), segment_of[i], narration, W[i])
        for i, text in enumerate((*history, *continuation))
    )


def _grounded(
    text: str, in_history: bool, index: int | None, narration: Narration, similarities: NDArray[np.float32]
) -> GroundedStep:
    if index is None:
        return GroundedStep(text, in_history, None, None, None)
    return GroundedStep(text, in_history, index, narration.segments[index], float(similarities[index]))
