"""The batch functions of a backend by the reference, pair by pair: slow, and needs nothing but NumPy.

Layout, arguments and results are those of `recipe.alignment.ragged`.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recipe.alignment import reference
from recipe.alignment.ragged import Float32, FreeAlignment, GroupAlignment, Ragged, ragged


def monotone_coverage(W: ArrayLike, offsets: ArrayLike) -> Float32:
    """A_mono of one sequence against each narration: W [S, M], offsets [N + 1] -> [N]. Raises InputError."""
    score: Float32 = _coverage(ragged(W, offsets))[0]
    return score


def grouped_monotone_coverage(W: ArrayLike, bounds: ArrayLike, offsets: ArrayLike) -> Float32:
    """A_mono of h and of each h + c_g: W [S, C], bounds [G + 1], offsets [N + 1] -> [G + 1, N].

    Row 0 is h; a sequence without steps scores 0. Raises InputError.
    """
    return _coverage(ragged(W, offsets, bounds))


def grouped_needleman_wunsch(
    W: ArrayLike, bounds: ArrayLike, offsets: ArrayLike, gap: float = reference.GAP
) -> GroupAlignment:
    """A_NW of h and of each h + c_g: W [S, C], bounds [G + 1], offsets [N + 1] -> [G + 1, N].

    Raises InputError.
    """
    batch = ragged(W, offsets, bounds)
    result = GroupAlignment(_zeros(batch), _zeros(batch).astype(np.int32))
    for row, n, similarities in _pairs(batch):
        alignment = reference.needleman_wunsch(similarities, gap)
        result.score[row, n], result.length[row, n] = alignment.score, len(alignment.path)
    return result


def grouped_free_alignment(W: ArrayLike, bounds: ArrayLike, offsets: ArrayLike) -> FreeAlignment:
    """The two free-gap scores of h and of each h + c_g: W >= 0 [S, C], bounds [G + 1], offsets [N + 1] -> [G + 1, N].

    Raises InputError.
    """
    batch = ragged(W, offsets, bounds)
    result = FreeAlignment(_zeros(batch).astype(np.float64), _zeros(batch).astype(np.float64))
    for row, n, similarities in _pairs(batch):
        result.matched[row, n] = reference.free_matching(similarities).score
        result.covered[row, n] = reference.free_coverage(similarities)
    return result


def precedence(W: ArrayLike, offsets: ArrayLike) -> NDArray[np.float64]:
    """The sum over narrations of how much each says step i before step j: W [S, C], offsets [N + 1] -> [C, C].

    Raises InputError.
    """
    batch = ragged(W, offsets)
    parts = (batch.W[a:b].T for a, b in pairwise(batch.offsets))
    return np.asarray(sum((reference.precedence(part) for part in parts), np.zeros((batch.W.shape[1],) * 2)))


def _coverage(batch: Ragged) -> Float32:
    score = _zeros(batch)
    for row, n, similarities in _pairs(batch):
        score[row, n] = reference.monotone_coverage(similarities)
    return score


def _pairs(batch: Ragged) -> Iterator[tuple[int, int, Float32]]:
    """Each sequence with at least one step against each narration: row, narration, W [M, L]."""
    W, offsets, bounds = batch
    for row in range(bounds.size):
        own = range(bounds[row - 1], bounds[row]) if row else range(0)
        steps = [*range(bounds[0]), *own]
        if steps:
            for n in range(offsets.size - 1):
                yield row, n, W[offsets[n] : offsets[n + 1], steps].T


def _zeros(batch: Ragged) -> Float32:
    return np.zeros((batch.bounds.size, batch.offsets.size - 1), np.float32)
