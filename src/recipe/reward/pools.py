"""Who judges a prompt: narrations near it, and as many others of like lengths that are far from it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.config import GroundedConfig
from recipe.types import Hit

_LIKE = 16
"""Narrations on either side in the order of lengths, among which one of like length is drawn."""


class Lengths(NamedTuple):
    """How long the narrations of a corpus are, in segments."""

    own: NDArray[np.int64]
    """[N], in corpus order."""
    order: NDArray[np.int64]
    """[N], narrations from the shortest to the longest."""
    rising: NDArray[np.int64]
    """[N], lengths in that order."""

    @classmethod
    def of(cls, own: NDArray[np.int64]) -> "Lengths":
        """Sort the lengths [N] of all narrations, once."""
        order = np.argsort(own, kind="stable")
        return cls(own, order, own[order])

    def alike(self, number: int, draw: np.random.Generator) -> NDArray[np.int64]:
        """Some narrations of about the length of one: of the same length where there are many."""
        first, last = (int(np.searchsorted(self.rising, self.own[number], side)) for side in ("left", "right"))
        if last - first > 2 * _LIKE:
            first = int(draw.integers(first, last - 2 * _LIKE + 1))
            return self.order[first : first + 2 * _LIKE]
        middle = (first + last) // 2
        return self.order[max(middle - _LIKE, 0) : middle + _LIKE]


class Judges(NamedTuple):
    """P and Q of a prompt."""

    pool: tuple[Hit, ...]
    """The best first."""
    background: tuple[int, ...]


def choose_judges(found: Sequence[Sequence[Hit]], lengths: Lengths, config: GroundedConfig, seed: int) -> Judges:
    """Judges from what stage 1 found for the goal and for the history, the best first.

    The pool takes turns between the rankings. The background is drawn among narrations that were not found, each of
    about the length of one of the pool: judges that are longer than the rest find more in any text.
    """
    pool = list(dict.fromkeys(hit.narration for rank in zip(*found, strict=False) for hit in rank))[: config.pool_size]
    score = {hit.narration: hit.score for hits in reversed(found) for hit in hits}
    # A small corpus is found whole: all but its nearest quarter then counts as far.
    near = {hit.narration for hits in found for hit in hits[: max(len(lengths.own) // 4, 1)]} | set(pool)
    draw = np.random.default_rng(seed)
    background: dict[int, None] = {}
    for i in range(config.background_size if pool else 0):
        alike = [int(n) for n in lengths.alike(pool[i % len(pool)], draw) if int(n) not in near | background.keys()]
        if alike:
            background[alike[int(draw.integers(len(alike)))]] = None
    return Judges(tuple(Hit(number, score[number]) for number in pool), tuple(background))
