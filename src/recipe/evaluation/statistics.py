"""Means with 95% intervals when prompts of one goal are alike: whole goals are drawn, not prompts.

The bootstrap draws as many goals as there are, with replacement, and takes the mean over all their prompts.
Its percentiles are too narrow for few goals, so they are widened to those whose normal interval would be the
t interval (the expanded percentile interval of Hesterberg, What Teachers Should Know About the Bootstrap).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from recipe.errors import ComputeError, MissingExtra
from recipe.evaluation.results import Interval

try:
    from scipy.special import stdtrit
except ModuleNotFoundError as error:
    raise MissingExtra("evaluation", "report") from error

Array = NDArray[np.float64]

DRAWS = 10_000
"""Bootstrap resamples of an interval."""
LEVEL = 0.95


def mean_interval(values: Sequence[float] | Array, clusters: Sequence[str], seed: int = 0) -> Interval:
    """Mean of `values` [prompts] with its interval; `clusters` [prompts] names each prompt's goal.

    With a single goal there is a mean and no interval. Raises ComputeError without values or where one is not
    finite.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0 or not np.isfinite(data).all():
        raise ComputeError("a mean was asked of no values, or of a value that is not finite.")
    names, index = np.unique(np.asarray(clusters), return_inverse=True)
    if len(index) != len(data):
        raise ComputeError(f"{len(data)} values come with {len(index)} clusters.")
    sums = np.bincount(index, weights=data).astype(np.float64)
    sizes = np.bincount(index).astype(np.float64)
    mean, count = float(data.mean()), len(names)
    if count == 1:
        return Interval(mean, observations=len(data), clusters=1)
    low, high = np.quantile(_resampled_means(sums, sizes, seed), _levels(count))
    return Interval(mean, float(low), float(high), observations=len(data), clusters=count)


def paired_interval(
    values: Sequence[float] | Array, baseline: Sequence[float] | Array, clusters: Sequence[str], seed: int = 0
) -> Interval:
    """Mean of `values - baseline` over the same prompts [prompts], with its interval."""
    first, second = np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape:
        raise ComputeError(f"{first.size} values cannot be paired with {second.size}.")
    return mean_interval(first - second, clusters, seed)


def _resampled_means(sums: Array, sizes: Array, seed: int) -> Array:
    """Means [draws] over as many clusters, drawn with replacement; `sums` and `sizes` [clusters]."""
    draws = _draws(len(sums), DRAWS, seed)
    return np.asarray((draws @ sums) / (draws @ sizes), dtype=np.float64)


@lru_cache(maxsize=4)
def _draws(count: int, resamples: int, seed: int) -> Array:
    """How often each cluster is drawn [resamples, count]; kept, because all metrics of a table share it."""
    shares = np.full(count, 1 / count)
    return np.random.default_rng(seed).multinomial(count, shares, size=resamples).astype(np.float64)


def _levels(count: int) -> tuple[float, float]:
    """The two percentiles of `count` clusters, as shares."""
    # The inverse of Student's t; scipy.stats.t.ppf is the same function behind four times the import.
    student = float(stdtrit(count - 1, (1 + LEVEL) / 2))
    tail = NormalDist().cdf(-student * math.sqrt(count / (count - 1)))
    return tail, 1 - tail
