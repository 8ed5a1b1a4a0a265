"""Choosing among approximate scores: the highest, and all that a threshold cannot exclude."""

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.compilation import compiled


@compiled
def best(sums: NDArray[np.int32] | NDArray[np.float32], scales: NDArray[np.float64], chosen: NDArray[np.int64]) -> None:
    """Write to chosen [Q, k] the narrations of the highest sums [N, >= Q] times scales [N], k <= N."""
    queries, k = chosen.shape
    values = np.full((queries, k), -np.inf)
    for n in range(len(scales)):
        for q in range(queries):
            value = sums[n, q] * scales[n]
            if value > values[q, k - 1]:
                i = k - 1
                while i > 0 and values[q, i - 1] < value:
                    values[q, i], chosen[q, i] = values[q, i - 1], chosen[q, i - 1]
                    i -= 1
                values[q, i], chosen[q, i] = value, n


@compiled
def reaching(
    sums: NDArray[np.int32] | NDArray[np.float32],
    scales: NDArray[np.float64],
    factors: NDArray[np.float64],
    bounds: NDArray[np.float64],
    weights: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    narrations: NDArray[np.int64],
    queries: NDArray[np.int64],
) -> int:
    """Count the pairs whose sum * scale [N] * factor [Q] + bounds [N, 2] . weights [Q, 2] reaches its threshold [Q].

    As many as fit are written to narrations and queries, narration by narration.
    """
    count = 0
    for n in range(len(scales)):
        for q in range(len(factors)):
            reach = sums[n, q] * scales[n] * factors[q] + bounds[n, 0] * weights[q, 0] + bounds[n, 1] * weights[q, 1]
            if reach >= thresholds[q]:
                if count < len(narrations):
                    narrations[count], queries[count] = n, q
                count += 1
    return count
