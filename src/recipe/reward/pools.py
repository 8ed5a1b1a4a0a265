"""Who judges a prompt: narrations near it, and as many others of like lengths that are far from it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.config import GroundedConfig
from recipe.types import Hit

_LIKE = 16
"""Narrations on either side in the order of lengths, among which one of like length is drawn."""


class Judges(NamedTuple):
    """P and Q of a prompt."""

    pool: tuple[Hit, ...]
    """The best first."""
    background: tuple[int, ...]


def choose_judges(
    found: Sequence[Sequence[Hit]], lengths: NDArray[np.int64], config: GroundedConfig, seed: int
) -> Judges:
    """Judges from what stage 1 found for the goal and for the history, the best first.

    The pool takes turns between the rankings. `lengths` [N] are those of all narrations: judges that are longer than
    the rest find more in any text.
    """
    pool = list(dict.fromkeys(hit.narration for rank in zip(*found, strict=False) for hit in rank))[: config.pool_size]
    score = {hit.narration: hit.score for hits in reversed(found) for hit in hits}
    near = {hit.narration for hits in found for hit in hits[: max(len(lengths) // 4, 1)]} | set(pool)
    background = _of_like_length(pool, near, lengths, config.background_size, np.random.default_rng(seed))
    return Judges(tuple(Hit(number, score[number]) for number in pool), background)


def _of_like_length(
    pool: Sequence[int], near: set[int], lengths: NDArray[np.int64], size: int, draw: np.random.Generator
) -> tuple[int, ...]:
    """Narrations outside `near`, drawn one for each of the pool among those of about its length, none twice."""
    order = np.argsort(lengths, kind="stable")
    order = order[~np.isin(order, list(near))]
    chosen: dict[int, None] = {}
    for number in [pool[i % len(pool)] for i in range(size)] if pool else []:
        place = int(np.searchsorted(lengths[order], lengths[number]))
        alike = [int(n) for n in order[max(place - _LIKE, 0) : place + _LIKE] if int(n) not in chosen]
        if alike:
            chosen[alike[int(draw.integers(len(alike)))]] = None
    return tuple(chosen)
