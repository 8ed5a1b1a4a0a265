"""Which segments of speech narrations of the same activity say too: the steps, found without labels and without words.

The support of a segment y of narration n is

    s(y) = mean over the 20 narrations nearest to n of max_k W(y, k) - the same mean over 120 narrations drawn at random

with W the similarity counted from the floor of y (`recipe.reward.grounded`). What everybody says, such as a greeting,
is in the random narrations as well, and has no support. Two narrations are near where the means of their vectors are.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from recipe.errors import InputError
from recipe.progress import SILENT, Progress
from recipe.reward.baselines import centred
from recipe.reward.embeddings import NarrationIndex, Vectors
from recipe.reward.grounded import SimilarityBaseline, calibrated

NEAR, FAR = 20, 120
"""Narrations of the same activity, and random ones, that a segment is looked for in."""
_ROWS = 256
"""Narrations whose nearest ones are found in one product."""


def consensus(
    corpus: NarrationIndex, near: int = NEAR, far: int = FAR, seed: int = 0, progress: Progress = SILENT
) -> Iterator[NDArray[np.float32]]:
    """The support of every segment [L], narration by narration in corpus order, about -1 to 1.

    The cost grows with the square of the number of narrations, and is minutes for ten thousand. Raises InputError for a
    corpus of fewer than twice `near` narrations, in which the nearest ones are as good as random.
    """
    count = len(corpus)
    if count < 2 * near:
        raise InputError(
            f"support by other narrations needs at least {2 * near} narrations, and there are {count}; "
            "give more of them, or name a model that writes captions."
        )
    baseline = SimilarityBaseline.of(corpus)
    means = centred(np.stack([corpus.embeddings(number).mean(axis=0) for number in range(count)]), baseline.mean)
    draw = np.random.default_rng(seed)
    # One narration more than is used, for the one that is in its own draw.
    drawn = [int(number) for number in draw.permutation(count)[: far + 1]]
    with progress.task("comparing narrations", count) as advance:
        for start in range(0, count, _ROWS):
            alike = means[start : start + _ROWS] @ means.T
            for row, number in enumerate(range(start, min(start + _ROWS, count))):
                alike[row, number] = -np.inf
                nearest = np.sort(np.argpartition(-alike[row], near)[:near])
                own = centred(corpus.embeddings(number), baseline.mean)
                others = [other for other in drawn if other != number][:far]
                highest = highest_similarities(corpus, baseline, [*map(int, nearest), *others], own)
                yield highest[:near].mean(axis=0) - highest[near:].mean(axis=0)
                advance(1)


def highest_similarities(
    corpus: NarrationIndex, baseline: SimilarityBaseline, narrations: Sequence[int], segments: Vectors
) -> NDArray[np.float32]:
    """The highest W of each of some narrations with each centred segment [L, d], [n, L]."""
    similarities, offsets = baseline.similarities(corpus, narrations, segments)
    return np.maximum.reduceat(calibrated(similarities, baseline.floors(segments)), offsets[:-1], axis=0)
