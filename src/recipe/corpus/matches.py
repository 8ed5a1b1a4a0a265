"""Which segment covers which step: the assignment that attains A_mono."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Match(NamedTuple):
    """A step and the segment that covers it, by index, with their cosine similarity."""

    step: int
    segment: int
    similarity: float


def best_matches(W: NDArray[np.float32]) -> list[Match]:
    """The monotone assignment of the highest sum, for W [M steps, L segments]; of equal ones, the earliest.

    >>> best_matches(np.float32([[0.5, 1.0, 0.0], [1.0, 0.0, 0.75]]))
    [Match(step=0, segment=1, similarity=1.0), Match(step=1, segment=2, similarity=0.75)]
    """
    D = np.array(W, dtype=np.float64)
    for i in range(1, len(D)):
        D[i] += np.maximum.accumulate(D[i - 1])
    matches = []
    end = D.shape[1]
    for i in reversed(range(len(D))):
        k = int(np.argmax(D[i, :end]))
        matches.append(Match(i, k, float(W[i, k])))
        end = k + 1
    return matches[::-1]
