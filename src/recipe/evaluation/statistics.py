"""Means with 95% intervals when prompts of one goal, or of one video, are alike: whole goals are drawn, not prompts.

The bootstrap draws as many goals as there are, with replacement, and takes the mean over all their prompts.
Its percentiles are too narrow for few goals, so they are widened to those whose normal interval would be the
t interval (the expanded percentile interval of Hesterberg, What Teachers Should Know About the Bootstrap).

The mean over datasets of their means (the paper's macro average) draws within each dataset. Its t interval has
the degrees of freedom of Welch and Satterthwaite, because datasets differ in size and spread.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

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
_AT_ONCE = 1000
"""Draws multiplied at once, which bounds the memory that thousands of videos take."""


class _Clustered(NamedTuple):
    """One dataset's values, summed by cluster."""

    sums: Array
    """[clusters]"""
    sizes: Array
    """Values in each cluster [clusters]."""

    @property
    def mean(self) -> float:
        """Mean over values, not over clusters."""
        return float(self.sums.sum() / self.sizes.sum())

    def variance(self) -> float:
        """Variance of the mean as a ratio of two sums over clusters, without bias where clusters are of one size."""
        count, residuals = len(self.sums), self.sums - self.mean * self.sizes
        return float(count / (count - 1) * (residuals @ residuals) / self.sizes.sum() ** 2)


def mean_interval(values: Sequence[float] | Array, clusters: Sequence[str], seed: int = 0) -> Interval:
    """Mean of `values` [prompts] with its interval; `clusters` [prompts] names each prompt's goal.

    With a single goal there is a mean and no interval. Raises ComputeError without values or where one is not
    finite.
    """
    data = _finite(values)
    groups = _clustered(data, clusters)
    mean, count = float(data.mean()), len(groups.sums)
    if count == 1:
        return Interval(mean, observations=len(data), clusters=1)
    low, high = np.quantile(_resampled_means(groups.sums, groups.sizes, seed), expanded_levels(count))
    return Interval(mean, float(low), float(high), observations=len(data), clusters=count)


def macro_interval(
    values: Sequence[float] | Array, datasets: Sequence[str], clusters: Sequence[str], seed: int = 0
) -> Interval:
    """Mean over datasets of their means of `values` [prompts], with its interval: every dataset weighs the same.

    `datasets` and `clusters` [prompts] name each prompt's dataset and video. Videos are drawn within their dataset;
    the datasets are fixed, so that the interval says nothing about others. One name in two datasets is two videos.
    Where a dataset has a single video there is a mean and no interval. Raises ComputeError as `mean_interval` does.
    """
    data = _finite(values)
    names, place = np.unique(np.asarray(datasets), return_inverse=True)
    if not len(place) == len(data) == len(clusters):
        raise ComputeError(f"{len(data)} values come with {len(place)} datasets and {len(clusters)} clusters.")
    if len(names) == 1:
        return mean_interval(data, clusters, seed)
    labels = np.asarray(clusters)
    groups = [_clustered(data[place == one], labels[place == one]) for one in range(len(names))]
    mean, count = float(np.mean([group.mean for group in groups])), sum(len(group.sums) for group in groups)
    if any(len(group.sums) == 1 for group in groups):
        return Interval(mean, observations=len(data), clusters=count)
    drawn = [_resampled_means(group.sums, group.sizes, seed, one) for one, group in enumerate(groups)]
    low, high = np.quantile(np.mean(drawn, axis=0), _pooled_levels(groups))
    return Interval(mean, float(low), float(high), observations=len(data), clusters=count)


def paired_interval(
    values: Sequence[float] | Array, baseline: Sequence[float] | Array, clusters: Sequence[str], seed: int = 0
) -> Interval:
    """Mean of `values - baseline` over the same prompts [prompts], with its interval."""
    first, second = np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape:
        raise ComputeError(f"{first.size} values cannot be paired with {second.size}.")
    return mean_interval(first - second, clusters, seed)


def standard_error(values: Sequence[float] | Array, clusters: Sequence[str]) -> float | None:
    """Standard error of the mean of `values` [prompts] where those of a cluster are alike; None for one cluster.

    The sandwich estimate with its correction for few clusters (Miller, Adding Error Bars to Evals, appendix A).
    """
    groups = _clustered(_finite(values), clusters)
    return None if len(groups.sums) == 1 else math.sqrt(groups.variance())


def resampled_totals(columns: Array, seed: int = 0, stream: int = 0) -> Array:
    """Sums [draws, columns] of `columns` [clusters, columns] over as many clusters, drawn with replacement.

    One seed and stream draws the same clusters for everything that is measured on as many of them.
    """
    draws = _draws(len(columns), DRAWS, seed, stream)
    blocks = range(0, len(draws), _AT_ONCE)
    return np.concatenate([draws[start : start + _AT_ONCE].astype(np.float64) @ columns for start in blocks])


def expanded_levels(count: int) -> tuple[float, float]:
    """The two percentiles of a bootstrap over `count` clusters that bound its 95% interval, as shares."""
    return _widened(count - 1, count / (count - 1))


def _finite(values: Sequence[float] | Array) -> Array:
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0 or not np.isfinite(data).all():
        raise ComputeError("a mean was asked of no values, or of a value that is not finite.")
    return data


def _clustered(data: Array, clusters: Sequence[str] | NDArray[np.str_]) -> _Clustered:
    _, index = np.unique(np.asarray(clusters), return_inverse=True)
    if len(index) != len(data):
        raise ComputeError(f"{len(data)} values come with {len(index)} clusters.")
    sums, sizes = np.bincount(index, weights=data), np.bincount(index)
    return _Clustered(sums.astype(np.float64), sizes.astype(np.float64))


def _resampled_means(sums: Array, sizes: Array, seed: int, stream: int = 0) -> Array:
    """Means [draws] over as many clusters, drawn with replacement; `sums` and `sizes` [clusters]."""
    totals = resampled_totals(np.stack([sums, sizes], axis=1), seed, stream)
    return np.asarray(totals[:, 0] / totals[:, 1], dtype=np.float64)


@lru_cache(maxsize=16)
def _draws(count: int, resamples: int, seed: int, stream: int) -> NDArray[np.uint16]:
    """How often each cluster is drawn [resamples, count]; kept, because all metrics of a table share it.

    Datasets that are averaged take streams of their own: with one stream they would be drawn alike.
    """
    shares = np.full(count, 1 / count)
    return np.random.default_rng([seed, stream]).multinomial(count, shares, size=resamples).astype(np.uint16)


def _pooled_levels(groups: Sequence[_Clustered]) -> tuple[float, float]:
    """The two percentiles of a mean of several datasets' means: those of one where one has all the variance."""
    counts = np.array([len(group.sums) for group in groups], dtype=np.float64)
    variances = np.array([group.variance() for group in groups])
    if not variances.any():  # every draw is the mean, and so is every percentile
        return expanded_levels(int(counts.min()))
    shares = variances / variances.sum()
    freedom = 1 / (shares**2 / (counts - 1)).sum()
    return _widened(float(freedom), float(1 / (shares * (counts - 1) / counts).sum()))


def _widened(freedom: float, shrinkage: float) -> tuple[float, float]:
    """The percentiles whose normal interval is the t interval; the bootstrap variance is too small by `shrinkage`."""
    # The inverse of Student's t; scipy.stats.t.ppf is the same function behind four times the import.
    student = float(stdtrit(freedom, (1 + LEVEL) / 2))
    tail = NormalDist().cdf(-student * math.sqrt(shrinkage))
    return tail, 1 - tail
