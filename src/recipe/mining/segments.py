"""Which segments of a narration are like steps, and which are talk around them.

A segment is step-like where both hold:

    it names an action     one of its words begins a step of the embedded world, such as "pour" or "attach", and is none
                           of the common words, such as "make"
    its score is enough    score = (m(segment) - m(talk)) / (m(steps) - m(talk))
                           m(x) = mean of the 5 highest cosines of x with steps - the same with small talk

m(talk) and m(steps) are means over the world's own small talk and steps, each compared with the others, so that 0 is
as small talk and 1 as steps under every encoder. Nothing is fitted but the threshold (docs/data.md).
"""

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from recipe.errors import ComputeError
from recipe.types import Segment
from recipe.world.load import load_world

Vectors = NDArray[np.float32]
NEAREST = 5
"""Texts of either kind that a segment is compared with."""
# Words that begin steps, and are in many other sentences, too.
_COMMON = "do even find free get give go have help keep let look make note part see take use work"
_WORD = re.compile(r"[^\W\d_]+")


class StepLikeness:
    """Scores segments under one encoder by the steps and the small talk of the embedded world."""

    def __init__(self, embed: Callable[[Sequence[str]], Vectors]) -> None:
        """Embed the world's texts. Raises ComputeError for an encoder that finds talk as near to steps as steps are."""
        world = load_world()
        steps = sorted({usual for usual, *_ in world.wordings.values()})
        talk = sorted({*world.talk.small_talk, *world.talk.closings})
        wordings = (wording for own in world.wordings.values() for wording in own)
        self._actions = frozenset(wording.split()[0] for wording in wordings) - frozenset(_COMMON.split())
        self._steps, self._talk = embed(steps), embed(talk)
        own_steps, own_talk = self._steps @ self._steps.T, self._talk @ self._talk.T
        across = self._steps @ self._talk.T
        # No text is its own neighbour.
        for own in (own_steps, own_talk):
            np.fill_diagonal(own, -np.inf)
        self._zero = float(np.mean(_highest(across.T) - _highest(own_talk)))
        self._unit = float(np.mean(_highest(own_steps) - _highest(across))) - self._zero
        if not self._unit > 0:
            raise ComputeError("the encoder finds small talk as near to steps as steps are; use another encoder.")

    def scores(self, vectors: Vectors) -> NDArray[np.float64]:
        """The score of each segment, from unit-norm vectors [L, d]: float64 [L]."""
        margin = _highest(vectors @ self._steps.T) - _highest(vectors @ self._talk.T)
        return np.asarray((margin - self._zero) / self._unit, dtype=np.float64)

    def names_action(self, text: str) -> bool:
        """Whether a word of a text begins a step of the world and is none of the common words."""
        return not self._actions.isdisjoint(_WORD.findall(text.lower()))

    def select(self, segments: Sequence[Segment], vectors: Vectors, threshold: float) -> NDArray[np.bool_]:
        """Which segments, with their vectors [L, d], are step-like: bool [L]."""
        named = np.array([self.names_action(segment.text) for segment in segments], dtype=np.bool_)
        return named & (self.scores(vectors) >= threshold)


def _highest(cosines: Vectors) -> NDArray[np.float32]:
    """Mean of the highest cosines of each row of [n, m]."""
    return np.asarray(np.sort(cosines, axis=1)[:, -NEAREST:].mean(axis=1))
