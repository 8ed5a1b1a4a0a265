"""A_mono in float64 of chosen narrations, from the stored float16 vectors."""

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.compilation import compiled
from recipe.corpus.scan import _from_half

_LANES = 8


@compiled
def exact_scores(
    bits: NDArray[np.uint16],
    offsets: NDArray[np.int64],
    queries: NDArray[np.float64],
    steps: NDArray[np.int32],
    lengths: NDArray[np.int64],
    narrations: NDArray[np.int64],
    asked: NDArray[np.int64],
    scores: NDArray[np.float64],
) -> None:
    """Write A_mono of the queries `asked` [P] with the narrations [P] to scores [P].

    bits [S, d]: float16 vectors as uint16; queries [U, d]: unique steps; steps [Q, M]: rows in `queries`; lengths [Q].
    Dot products are sums in one fixed order: equal narrations score equally.
    """
    d = bits.shape[1]
    x = np.empty(d)
    best = np.empty(steps.shape[1])
    whole = d - d % _LANES
    lanes = np.empty(_LANES)
    for p in range(len(narrations)):
        n, q = narrations[p], asked[p]
        best[:] = -np.inf
        reached = 0.0
        for k in range(offsets[n], offsets[n + 1]):
            for j in range(d):
                x[j] = np.float64(_from_half(bits[k, j]))
            reached = 0.0
            for i in range(lengths[q]):
                step = queries[steps[q, i]]
                lanes[:] = 0.0
                for j in range(0, whole, _LANES):
                    for lane in range(_LANES):
                        lanes[lane] += step[j + lane] * x[j + lane]
                similarity = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + (
                    (lanes[1] + lanes[5]) + (lanes[3] + lanes[7])
                )
                for j in range(whole, d):
                    similarity += step[j] * x[j]
                reached = max(best[i], similarity + reached)
                best[i] = reached
        scores[p] = reached / lengths[q]
