"""Means with intervals, comparison of two systems, agreement of raters, rank correlation.

Values of one cluster (a goal, or a video) are alike, so every interval and test draws whole clusters.

*Intervals* of a mean hold two intervals. One is a t interval: the variance is that of the jackknife, which leaves out
one cluster at a time, and the degrees of freedom are Satterthwaite's, which are fewer than the clusters less one where
clusters differ in size (Bell and McCaffrey, Bias Reduction in Standard Errors for Linear Regression with Multi-Stage
Samples). It reaches beyond the observed values, which rare differences and few clusters need. The other is a bootstrap
interval: as many clusters as there are, drawn with replacement, and the mean over all their values. It leans to the
longer tail, and so does the t interval (Johnson, Modified t Tests and Confidence Intervals for Asymmetrical
Populations). Its percentiles are too narrow for few clusters, so they are widened to those whose normal interval would
be the t interval (the expanded percentile interval of Hesterberg, What Teachers Should Know About the Bootstrap).

The mean over datasets of their means (the paper's macro average) draws within each dataset, and the variances of
datasets add up. Two videos may be alike by chance, so the degrees of freedom are the fewer of those that the estimated
variances give and of those that equal clusters everywhere would give.

Where all clusters are equal, or all but a few, the spread of the others is not known, and there is no interval. Alpha,
rank correlations and other statistics that are no means have the bootstrap interval alone, from ten clusters on.

*P-values* are of a permutation test. Were two systems alike, each video's difference could as well have had the other
sign; so the signs of whole videos are flipped. The p-value is the share of flips whose mean difference is at least as
far from 0 as the observed one: of all flips where they can be enumerated, else of 10,000 drawn ones, with the observed
one counted among them (Phipson and Smyth, Permutation P-values Should Never Be Zero), so that it is never 0.

*Agreement* is Krippendorff's alpha = 1 - D_o / D_e: the observed disagreement over the one expected were the same
ratings dealt at random (Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011). It takes any number of raters
and missing ratings.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.errors import ComputeError, MissingExtra
from recipe.types import Example

Array = NDArray[np.float64]
Level = Literal["nominal", "ordinal", "interval"]
"""Values without an order, in an order, or with distances that count."""

LEVEL = 0.95
DRAWS = 10_000
"""Bootstrap resamples of an interval."""
FLIPS = 10_000
"""Drawn flips where not all are enumerated."""
ENUMERATED = 14
"""Videos with a difference up to which all flips are enumerated."""
# Draws multiplied at once, which bounds the memory that thousands of videos take.
_DRAWS_AT_ONCE = 1000
# Draws ranked at once.
_RANKED = 200
# Flips that differ by less than this share of the largest possible difference are ties.
_ROUNDING = 1e-9
# Values nearer to 0 count as 0.
_SMALLEST = 1e-60
# Share of resamples without variation up to which they are left out; with more there is no interval.
_UNDEFINED = 0.01
# Clusters from which the bootstrap alone bounds a statistic.
_BOOTSTRAPPED = 10
# Third moments over variances by which Johnson's t interval reaches further on the side of the longer tail.
# Johnson adds m3 / (6 n s^2) + m3 / (3 s^4) (x - mu)^2 to the mean; at an end of the interval (x - mu)^2 = z^2 s^2 / n.
_LEAN = (1 + 2 * NormalDist().inv_cdf((1 + LEVEL) / 2) ** 2) / 6
# Clusters from which a dataset's skewness is estimated.
_LEANING = 6
# Clusters that are all on one side of 0 once in 32 times by chance, which is below 5%.
_SAME_SIGN = 6
# Clusters of a dataset that must differ from its most frequent value; twice as many do for several datasets.
_DIFFERING = 4

Reason = Literal["", "one cluster", "few clusters", "all equal", "few differ"]
"""Why there is no interval: a dataset has one cluster; there are fewer than ten for a bootstrap; all clusters have one
value; or too few differ from the most frequent one."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95% interval; `low` and `high` are None where there is none, and `reason` says why."""

    mean: float
    low: float | None = None
    high: float | None = None
    observations: int = 0
    """Prompts (not samples) that the mean is over."""
    clusters: int = 0
    """Goals or videos that the prompts come from: what the bootstrap draws."""
    reason: Reason = ""

    @property
    def sign(self) -> int | None:
        """1 or -1 where the interval excludes 0, 0 where it holds 0, None where there is no interval to say so.

        Equal clusters have no interval. Six of them are on one side of 0 by chance once in 32 times, which is clear.

        >>> Interval(0.5, 0.1, 0.9).sign, Interval(0.5, -0.1, 1.1).sign, Interval(0.5, reason="few differ").sign
        (1, 0, None)
        """
        if self.low is not None and self.high is not None:
            return (self.low > 0) - (self.high < 0)
        if self.reason == "all equal" and (self.clusters >= _SAME_SIGN or self.mean == 0):
            return (self.mean > 0) - (self.mean < 0)
        return None

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) for value in (self.mean, self.low, self.high) if value is not None):
            raise ComputeError("a mean or its interval is not finite; leave out what was not computed.")


class _Clustered(NamedTuple):
    """One dataset's values, summed by cluster."""

    sums: Array
    """[rows, clusters]"""
    sizes: Array
    """Values in each cluster [clusters]."""

    @property
    def means(self) -> Array:
        """Mean over values, not over clusters [rows]."""
        return np.asarray(self.sums.sum(axis=1) / self.sizes.sum(), dtype=np.float64)

    @property
    def shares(self) -> Array:
        """Share of the values in each cluster [clusters]."""
        return np.asarray(self.sizes / self.sizes.sum(), dtype=np.float64)

    def sandwich(self) -> Array:
        """Variance of the mean as a ratio of two sums over clusters, as the bootstrap has it [rows]."""
        return np.asarray(np.square(self._residuals()).sum(axis=1), dtype=np.float64)

    def jackknife(self) -> Array:
        """Variance of the mean [rows]: (n - 1) / n times the sum of (mean without a cluster - mean)^2."""
        # Leaving a cluster out moves the mean by its residual over the share of the values that stay.
        moved = self._residuals() / (1 - self.shares)
        return np.asarray((1 - 1 / len(self.sizes)) * np.square(moved).sum(axis=1), dtype=np.float64)

    def skewness(self) -> Array:
        """Third central moment of the mean [rows], unbiased where clusters are of one size; 0 below six clusters."""
        count = len(self.sizes)
        unbiased = count**2 / ((count - 1) * (count - 2)) if count >= _LEANING else 0.0
        return np.asarray(unbiased * (self._residuals() ** 3).sum(axis=1), dtype=np.float64)

    def freedom(self) -> float:
        """Satterthwaite's degrees of freedom of the variance: clusters less one where all are of one size."""
        # (tr G)^2 / tr(G^2), G being the quadratic form of the squared residuals of means with variances 1 / share.
        # The trace sums over clusters, so that no matrix [clusters, clusters] is made.
        squares, cubes = (float((self.shares**power).sum()) for power in (2, 3))
        return (1 - squares) ** 2 / (squares - 2 * cubes + squares**2)

    def differing(self) -> NDArray[np.intp]:
        """Clusters whose mean is not the most frequent one [rows]."""
        means = np.sort(self.sums / self.sizes, axis=1)
        new = np.diff(means, axis=1, prepend=-np.inf) > _ROUNDING * np.abs(means).max(axis=1, keepdims=True)
        # The lengths of runs of equal means, of all rows in one array: a row's longest is of its most frequent mean.
        runs = np.bincount(new.ravel().cumsum() - 1)
        first = np.concatenate([[0], new.sum(axis=1).cumsum()[:-1]])
        return np.asarray(means.shape[1] - np.maximum.reduceat(runs, first), dtype=np.intp)

    def _residuals(self) -> Array:
        return np.asarray((self.sums - self.means[:, None] * self.sizes) / self.sizes.sum(), dtype=np.float64)


def mean_interval(values: Sequence[float] | Array, clusters: Sequence[str], seed: int = 0) -> Interval:
    """Mean of `values` [prompts] with its interval; `clusters` [prompts] names each prompt's goal.

    With a single goal, and where too few goals differ, there is a mean and no interval. Raises ComputeError without
    values or where one is not finite.
    """
    return macro_interval(values, [""] * len(values), clusters, seed)


def macro_interval(
    values: Sequence[float] | Array, datasets: Sequence[str], clusters: Sequence[str], seed: int = 0
) -> Interval:
    """Mean over datasets of their means of `values` [prompts], with its interval: every dataset weighs the same.

    `datasets` and `clusters` [prompts] name each prompt's dataset and video. Videos are drawn within their dataset;
    the datasets are fixed, so that the interval says nothing about others. One name in two datasets is two videos.
    Where a dataset has a single video, or all its videos are equal, there is a mean and no interval. Raises
    ComputeError as `mean_interval` does.
    """
    return macro_intervals(np.asarray(values, dtype=np.float64)[None], datasets, clusters, seed)[0]


def macro_intervals(values: Array, datasets: Sequence[str], clusters: Sequence[str], seed: int = 0) -> list[Interval]:
    """As `macro_interval`, of each row of `values` [rows, prompts]: all rows share their draws, which is far faster."""
    groups = _grouped(values, datasets, clusters)
    prompts, count = values.shape[1], sum(len(group.sizes) for group in groups)
    means, reasons = np.mean([group.means for group in groups], axis=0), _reasons(groups)
    intervals = [
        Interval(float(mean), observations=prompts, clusters=count, reason=reason)
        for mean, reason in zip(means, reasons, strict=True)
    ]
    rows = [row for row, reason in enumerate(reasons) if not reason]
    if not rows:
        return intervals
    groups = [_Clustered(group.sums[rows], group.sizes) for group in groups]
    variance, student = _student(groups)
    sandwich = np.sum([group.sandwich() for group in groups], axis=0) / len(groups) ** 2
    # The bootstrap has the variance of the sandwich: at this normal quantile it reaches as far as the t interval.
    tails = _extra("scipy.special").ndtr(-student * np.sqrt(variance / sandwich))
    # Of independent datasets third moments add up as variances do; the mean divides them by the cube of their number.
    lean = _LEAN * np.sum([group.skewness() for group in groups], axis=0) / len(groups) ** 3 / variance
    drawn: Array = np.zeros(())
    for stream, group in enumerate(groups):
        # Sums and sizes are drawn together: a mean over clusters of different sizes is a ratio of both.
        totals = resampled_totals(np.concatenate([group.sums, group.sizes[None]]).T, seed, stream)
        drawn = drawn + totals[:, :-1] / totals[:, -1:] / len(groups)
    half = student * np.sqrt(variance)  # t interval: mean +- t s
    for index, row in enumerate(rows):
        low, high = np.quantile(drawn[:, index], (tails[index], 1 - tails[index]))
        least = intervals[row].mean - half[index] + min(lean[index], 0)
        most = intervals[row].mean + half[index] + max(lean[index], 0)
        # The wider of the two at either end: a bootstrap shows the skewness, the t interval the few clusters.
        intervals[row] = replace(intervals[row], low=float(min(low, least)), high=float(max(high, most)))
    return intervals


def seeded_interval(
    values: Sequence[Sequence[float]] | Array, datasets: Sequence[str], clusters: Sequence[str]
) -> Interval:
    """Mean over datasets of their means of `values` [seeds, prompts], with a 95% interval over seeds and prompts.

    Two variances are added: that of the means of whole seeds, and that of each prompt's mean over seeds, by cluster
    within its dataset. Chance that is of both a seed and a prompt counts in both, so that the interval is rather too
    wide than too narrow. It is a t interval with Satterthwaite's degrees of freedom. One seed gives an interval over
    prompts alone; a dataset of a single cluster, or of equal ones, gives none. Raises ComputeError as `macro_interval`
    does.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2:
        raise ComputeError(f"values of shape {table.shape} are not of seeds and prompts.")
    by_seed = np.mean([group.means for group in _grouped(table, datasets, clusters)], axis=0)
    groups = _grouped(table.mean(axis=0)[None], datasets, clusters)
    mean, count, [reason] = float(by_seed.mean()), sum(len(group.sizes) for group in groups), _reasons(groups)
    if reason and (reason != "all equal" or np.ptp(by_seed) == 0):  # else seeds alone have the variance
        return Interval(mean, observations=table.shape[1], clusters=count, reason=reason)
    [variance], [student] = _student(groups, by_seed)
    half = float(student * math.sqrt(variance))
    return Interval(mean, mean - half, mean + half, observations=table.shape[1], clusters=count)


def paired_interval(
    values: Sequence[float] | Array, baseline: Sequence[float] | Array, clusters: Sequence[str], seed: int = 0
) -> Interval:
    """Mean of `values - baseline` over the same prompts [prompts], with its interval."""
    first, second = np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape:
        raise ComputeError(f"{first.size} values cannot be paired with {second.size}.")
    return mean_interval(first - second, clusters, seed)


def resampled_totals(columns: Array, seed: int = 0, stream: int = 0) -> Array:
    """Sums [draws, columns] of `columns` [clusters, columns] over as many clusters, drawn with replacement.

    One seed and stream draws the same clusters for everything that is measured on as many of them.
    """
    draws = _draws(len(columns), DRAWS, seed, stream)
    blocks = range(0, len(draws), _DRAWS_AT_ONCE)
    return np.concatenate([draws[start : start + _DRAWS_AT_ONCE].astype(np.float64) @ columns for start in blocks])


def bootstrap_interval(value: float, drawn: Array, observations: int, clusters: int) -> Interval:
    """A statistic with the interval of its `drawn` resamples [draws] of whole clusters; NaN where one is not defined.

    There is none below ten clusters, and where a bound is the end of what the resamples reach: then too few differ.
    """
    interval = Interval(value, observations=observations, clusters=clusters)
    defined = drawn[~np.isnan(drawn)]
    if clusters < _BOOTSTRAPPED:
        return replace(interval, reason="one cluster" if clusters == 1 else "few clusters")
    if len(defined) < (1 - _UNDEFINED) * len(drawn):
        return replace(interval, reason="few differ")
    # No interval of width 0: it would claim certainty that few equal values do not give.
    if np.ptp(defined) <= _ROUNDING:
        return replace(interval, reason="all equal")
    # So many resamples at an end show how far resamples can go, and not how far other clusters would.
    ends = [np.abs(defined - end) <= _ROUNDING for end in (defined.min(), defined.max())]
    if max(float(end.mean()) for end in ends) > (1 - LEVEL) / 2:
        return replace(interval, reason="few differ")
    low, high = np.quantile(defined, expanded_levels(clusters))
    return replace(interval, low=float(low), high=float(high))


def expanded_levels(count: int) -> tuple[float, float]:
    """The two percentiles of a bootstrap over `count` clusters that bound its 95% interval, as shares.

    Those whose normal interval is the t interval; the variance of a bootstrap is too small by (count - 1) / count.
    """
    # The inverse of Student's t; scipy.stats.t.ppf is the same function behind four times the import.
    student = float(_extra("scipy.special").stdtrit(count - 1, (1 + LEVEL) / 2))
    tail = NormalDist().cdf(-student * math.sqrt(count / (count - 1)))
    return tail, 1 - tail


def _grouped(values: Array, datasets: Sequence[str], clusters: Sequence[str]) -> list[_Clustered]:
    """`values` [rows, prompts] summed by cluster within each dataset."""
    if values.size == 0 or not np.isfinite(values).all():
        raise ComputeError("there is no mean of no values, or of a value that is not finite.")
    # Fourth powers of differences are divided by each other; of smaller values they would underflow to 0.
    values = np.where(np.abs(values) < _SMALLEST, 0.0, values)
    names, dataset_of = np.unique(np.asarray(datasets), return_inverse=True)
    labels = np.asarray(clusters)
    if values.ndim != 2 or not len(dataset_of) == values.shape[1] == len(labels):
        raise ComputeError(f"{values.shape} values come with {len(dataset_of)} datasets and {len(labels)} clusters.")
    groups = []
    for dataset in range(len(names)):
        own = np.flatnonzero(dataset_of == dataset)
        _, index = np.unique(labels[own], return_inverse=True)
        # Stable, so that sums are added in the order of the prompts, and round alike.
        order = np.argsort(index, kind="stable")
        sizes = np.bincount(index)
        starts = np.concatenate([[0], sizes.cumsum()[:-1]])
        groups.append(_Clustered(np.add.reduceat(values[:, own[order]], starts, axis=1), sizes.astype(np.float64)))
    return groups


def _reasons(groups: Sequence[_Clustered]) -> list[Reason]:
    """Why each row has no interval; empty where it has one."""
    counts = [len(group.sizes) for group in groups]
    if min(counts) == 1:
        return ["one cluster"] * len(groups[0].sums)
    differing = np.array([group.differing() for group in groups])
    needed = min(_DIFFERING * min(len(groups), 2), sum(counts) - len(groups))
    # Several datasets of one value each are equal where that is the same value.
    equal = ~differing.any(axis=0) & (np.ptp([group.means for group in groups], axis=0) <= _ROUNDING)
    enough = differing.all(axis=0) & (differing.sum(axis=0) >= needed)
    return ["" if known else "all equal" if same else "few differ" for known, same in zip(enough, equal, strict=True)]


def _student(groups: Sequence[_Clustered], by_seed: Array | None = None) -> tuple[Array, Array]:
    """The variance of the mean over datasets [rows], and how many standard errors its t interval reaches [rows].

    The means of seeds, where there are several, add their variance as if they were a dataset of their own.
    """
    freedoms = np.array([group.freedom() for group in groups])
    variances = np.array([group.jackknife() for group in groups]) / len(groups) ** 2
    alike = np.array([np.square(group.shares).sum() for group in groups])
    variance = variances.sum(axis=0)
    # Of equal clusters everywhere, whose variances are in proportion to the sums of squared shares.
    freedom = np.full(len(variance), alike.sum() ** 2 / (alike**2 / freedoms).sum())
    known = variance > 0
    estimated = variance[known] ** 2 / (variances[:, known] ** 2 / freedoms[:, None]).sum(axis=0)
    freedom[known] = np.minimum(freedom[known], estimated)
    if by_seed is not None and len(by_seed) > 1:
        own, degrees = by_seed.var(ddof=1) / len(by_seed), len(by_seed) - 1
        both = variance + own
        freedom, variance = both**2 / (variance**2 / freedom + own**2 / degrees), both
    return variance, np.asarray(_extra("scipy.special").stdtrit(freedom, (1 + LEVEL) / 2), dtype=np.float64)


@lru_cache(maxsize=64)
def _draws(count: int, resamples: int, seed: int, stream: int) -> NDArray[np.uint16]:
    """How often each cluster is drawn [resamples, count]; kept, because all metrics of a table share it.

    Datasets that are averaged take streams of their own: with one stream they would be drawn alike.
    """
    shares = np.full(count, 1 / count)
    # 16 bits take a quarter of the memory of floats; one cluster is drawn about once, and never 65,536 times.
    return np.random.default_rng([seed, stream]).multinomial(count, shares, size=resamples).astype(np.uint16)


def video_of(example: Example) -> str:
    """A name for the video that an example is cut from, one of its own in each dataset; the goal without a video.

    >>> video_of(Example("a", "coin", "v1", "make tea", ("boil",), ("pour",), 1))
    'coin v1'
    """
    if example.video_id:
        return f"{example.source} {example.video_id}"
    return f"goal {example.source} {example.goal}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`first` minus `second` over the same examples; every dataset weighs the same where several are given."""

    first: float
    second: float
    difference: Interval
    p_value: float
    exact: bool
    """Whether all flips were enumerated."""
    effect: float | None
    """Cohen's d of pairs: the difference over the standard deviation of the videos' differences (within datasets); None
    where a dataset has one video or where all videos differ alike."""
    better: float
    """Share of examples on which the first is better; `better`, `equal` and `worse` add up to 1."""
    equal: float
    worse: float


def compare(
    first: Sequence[float],
    second: Sequence[float],
    clusters: Sequence[str],
    datasets: Sequence[str] | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare two systems' values [examples], paired by place; `clusters` [examples] names each example's video.

    With `datasets` [examples] means are over datasets of their means, as the paper's macro accuracy. Raises
    ComputeError without values, where one is not finite, and for lists of unequal length.
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if ours.shape != theirs.shape:
        raise ComputeError(f"{ours.size} values cannot be paired with {theirs.size}.")
    if not (np.isfinite(ours) & np.isfinite(theirs)).all():
        raise ComputeError("a value to compare is not finite.")
    labels = [""] * len(clusters) if datasets is None else datasets
    difference = macro_interval(ours - theirs, labels, clusters, seed)
    _, dataset, sizes = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
    # One name in two datasets is two videos.
    _, cluster = np.unique(np.asarray(clusters), return_inverse=True)
    videos, video = np.unique(np.stack([dataset, cluster]), axis=1, return_inverse=True)
    # NumPy 2.0 gives the inverse of an axis a second dimension.
    video = video.reshape(-1)
    weights = 1 / (len(sizes) * sizes[dataset])
    p_value, exact = _sign_flips(np.bincount(video, weights=weights * (ours - theirs)).astype(np.float64), seed)

    # Cohen's d of videos' differences; the variances of datasets weigh the same.
    effect: float | None = None
    means = np.bincount(video, weights=ours - theirs) / np.bincount(video)
    groups = [means[videos[0] == number] for number in range(len(sizes))]
    if min(map(len, groups)) > 1:
        deviation = float(np.sqrt(np.mean([group.var(ddof=1) for group in groups])))
        # Videos that differ alike have no deviation but that of rounding, which would give an effect of any size.
        if deviation > _ROUNDING * float(np.abs(means).max()):
            effect = difference.mean / deviation
    means_of = [
        float(np.mean([values[dataset == number].mean() for number in range(len(sizes))])) for values in (ours, theirs)
    ]
    # Values that differ by rounding alone are equal.
    signs = np.sign(np.where(np.isclose(ours, theirs, rtol=_ROUNDING, atol=0), 0, ours - theirs))
    return Comparison(
        first=means_of[0],
        second=means_of[1],
        difference=difference,
        p_value=p_value,
        exact=exact,
        effect=effect,
        better=float((signs > 0).mean()),
        equal=float((signs == 0).mean()),
        worse=float((signs < 0).mean()),
    )


def adjusted(p_values: Sequence[float]) -> list[float]:
    """P-values [tests] adjusted by Holm, which keeps the chance of any false one at their level however they depend.

    >>> adjusted([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    levels, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        levels[index] = highest
    return levels


def _sign_flips(sums: Array, seed: int) -> tuple[float, bool]:
    """Share of sign flips of `sums` [videos] whose sum is at least as far from 0, and whether that is of all flips."""
    moved = sums[np.abs(sums) > _ROUNDING * np.abs(sums).max()]  # flipping the others changes nothing
    # Less what rounding may take: the observed signs reach as far as themselves.
    reach = abs(moved.sum()) - _ROUNDING * np.abs(moved).sum()
    if len(moved) <= ENUMERATED:
        # The bits of all numbers below 2^n are all sign vectors.
        flips = np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved)) & 1
        return float((np.abs((1 - 2 * flips) @ moved) >= reach).mean()), True
    rng = np.random.default_rng(seed)
    sizes = [min(_DRAWS_AT_ONCE, FLIPS - start) for start in range(0, FLIPS, _DRAWS_AT_ONCE)]
    drawn = ((1 - 2 * rng.integers(0, 2, size=(size, len(moved)))) @ moved for size in sizes)
    as_far = sum(int((np.abs(total) >= reach).sum()) for total in drawn)
    # The observed signs are one of the flips (Phipson and Smyth), so that p is never 0.
    return (1 + as_far) / (1 + FLIPS), False


@dataclass(frozen=True, slots=True)
class Reliability:
    """Krippendorff's alpha, or the reason that there is none."""

    alpha: Interval | None
    """1 for perfect agreement, 0 for that of chance; `observations` are units rated twice or more."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RaterPair:
    """Two raters on the units that both rated."""

    units: int
    exact: float
    """Share of units with the same rating."""
    near: float
    """Share of units whose ratings differ by 1 at most."""
    bias: Interval
    """Mean of the first's ratings minus the second's."""
    spearman: float | None
    """Rank correlation; None where a rater gave all units the same."""


def krippendorff_alpha(
    ratings: Sequence[Sequence[float]] | Array, level: Level, clusters: Sequence[str] | None = None, seed: int = 0
) -> Reliability:
    """Alpha of `ratings` [raters, units], NaN where a rater left a unit out, with its 95% interval.

    `clusters` [units] names what the bootstrap draws whole, each unit by itself without. Alpha is not defined where no
    unit was rated twice or where all ratings are the same: then there is a reason, and neither 0 nor 1.
    """
    table = np.asarray(ratings, dtype=np.float64)
    if table.ndim != 2 or np.isinf(table).any():
        raise ComputeError("agreement needs a table [raters, units] of finite ratings.")
    # A unit that was rated once pairs with nothing, and alpha leaves it out (Krippendorff).
    kept = (~np.isnan(table)).sum(axis=0) > 1
    labels = np.asarray(clusters if clusters is not None else [str(unit) for unit in range(table.shape[1])])
    if len(labels) != table.shape[1]:
        raise ComputeError(f"{table.shape[1]} units come with {len(labels)} clusters.")
    if not kept.any():
        return Reliability(None, "no plan was rated twice")
    rated, labels = table[:, kept], labels[kept]
    values = np.unique(rated[~np.isnan(rated)])
    if len(values) == 1:
        return Reliability(None, f"every rating is {values[0]:g}, so that agreement beyond chance is not defined")
    columns = _moments(rated) if level == "interval" else _coincidences(rated, values)
    value = float(_alphas(columns.sum(axis=0)[None], level)[0])
    names, cluster = np.unique(labels, return_inverse=True)
    by_cluster = np.zeros((len(names), columns.shape[1]))
    np.add.at(by_cluster, cluster, columns)
    drawn = _alphas(resampled_totals(by_cluster, seed), level)
    return Reliability(bootstrap_interval(value, drawn, rated.shape[1], len(names)))


def compare_raters(
    first: Sequence[float] | Array, second: Sequence[float] | Array, clusters: Sequence[str], seed: int = 0
) -> RaterPair:
    """Two raters' ratings [units], all known. Raises ComputeError without units, and for lists of unequal length."""
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    bias = paired_interval(ours, theirs, clusters, seed)
    apart = np.abs(ours - theirs)
    correlation: float | None = None
    if not ((ours == ours[0]).all() or (theirs == theirs[0]).all()):
        rank = _extra("scipy.stats").rankdata
        correlation = float(np.corrcoef(rank(ours), rank(theirs))[0, 1])
    return RaterPair(
        units=len(ours),
        bias=bias,
        exact=float((apart <= _ROUNDING).mean()),
        near=float((apart <= 1 + _ROUNDING).mean()),
        spearman=correlation,
    )


def _coincidences(rated: Array, values: Array) -> Array:
    """Pairs of values [units, values * values] that each unit's raters gave, each rating weighing one."""
    counts = (rated[:, :, None] == values).sum(axis=0).astype(np.float64)
    pairs = counts[:, :, None] * counts[:, None, :]
    index = np.arange(len(values))
    # No rating makes a pair with itself.
    pairs[:, index, index] -= counts
    return np.asarray((pairs / (counts.sum(axis=1) - 1)[:, None, None]).reshape(len(counts), -1), dtype=np.float64)


def _moments(rated: Array) -> Array:
    """Sums of each unit for interval differences [units, 4]: ratings, their sum, that of squares, the disagreement.

    The squared differences of all pairs of m ratings v add up to 2 (m sum v^2 - (sum v)^2), so that no table of values
    is needed, which totals would make large.
    """
    # Centred: the difference of two large squares would lose its digits.
    centred = rated - np.nanmean(rated)
    counts = (~np.isnan(rated)).sum(axis=0).astype(np.float64)
    sums, squares = np.nansum(centred, axis=0), np.nansum(centred**2, axis=0)
    return np.stack([counts, sums, squares, 2 * (counts * squares - sums**2) / (counts - 1)], axis=1)


def _alphas(totals: Array, level: Level) -> Array:
    """Alpha [draws] of summed moments or coincidences [draws, columns]; NaN where a draw's ratings are all the same.

    The ordinal difference of two values is that of their middle ranks among the ratings, so that sums of its squares
    need no table of differences either.
    """
    if level == "interval":
        count, sums, squares, observed = totals.T
        expected = 2 * (count * squares - sums**2)
        varied = expected > _ROUNDING * count * squares
    else:
        side = math.isqrt(totals.shape[1])
        pairs = totals.reshape(-1, side, side)
        counts = pairs.sum(axis=2)
        count, varied = counts.sum(axis=1), (counts > 0).sum(axis=1) > 1
        if level == "nominal":
            observed, expected = count - np.trace(pairs, axis1=1, axis2=2), count**2 - (counts**2).sum(axis=1)
        else:
            ranks = np.cumsum(counts, axis=1) - counts / 2
            squares = (counts * ranks**2).sum(axis=1)
            observed = 2 * (squares - np.einsum("di,dij,dj->d", ranks, pairs, ranks, optimize=True))
            expected = 2 * (count * squares - (counts * ranks).sum(axis=1) ** 2)
    return np.asarray(1 - observed * (count - 1) / np.where(varied, expected, np.nan), dtype=np.float64)


def _correlations(first: Array, second: Array, weights: Array) -> Array:
    """Correlation of the ranks under each row of `weights` [draws, plans], which say how often a plan is drawn."""
    x, y = _ranks(first, weights), _ranks(second, weights)
    total = weights.sum(axis=1, keepdims=True)
    x -= (weights * x).sum(axis=1, keepdims=True) / total
    y -= (weights * y).sum(axis=1, keepdims=True) / total
    spread = np.sqrt((weights * x**2).sum(axis=1) * (weights * y**2).sum(axis=1))
    shared = (weights * x * y).sum(axis=1)
    # A draw that leaves one score constant has no correlation: NaN, and not 0.
    correlations: Array = np.divide(shared, spread, out=np.full(len(weights), np.nan), where=spread > 1e-9)
    return correlations


def _ranks(values: Array, weights: Array) -> Array:
    """Mid-ranks of each plan [draws, plans] when plan j is there weights[., j] times."""
    distinct, value_of = np.unique(values, return_inverse=True)
    members = np.zeros((len(values), len(distinct)))
    members[np.arange(len(values)), value_of] = 1
    counts = weights @ members
    # Plans with lower values and half of those with the same: the mid-rank less 1/2, which changes no correlation.
    ranks: Array = (counts.cumsum(axis=1) - counts / 2)[:, value_of]
    return ranks


def kendall(first: Array, second: Array) -> float | None:
    """Kendall's tau-b; None where either is constant."""
    if min(np.ptp(first), np.ptp(second)) == 0:
        return None
    return float(_extra("scipy.stats").kendalltau(first, second).statistic)


def spearman(first: Array, second: Array, clusters: Sequence[str], seed: int = 0) -> Interval | None:
    """Rank correlation of two scores [plans] with its interval; None where either is constant.

    Draws in which one of them is constant have no correlation and are left out of the interval. There is none below ten
    clusters.
    """
    # The observed plans are the draw that takes each once.
    once = np.ones((1, len(first)))
    value = float(_correlations(first, second, once)[0])
    if np.isnan(value):
        return None
    names, cluster = np.unique(np.asarray(clusters), return_inverse=True)
    drawn = resampled_totals(np.eye(len(names)), seed)[:, cluster]
    blocks = range(0, len(drawn), _RANKED)
    correlations = np.concatenate([_correlations(first, second, drawn[start : start + _RANKED]) for start in blocks])
    return bootstrap_interval(value, correlations, len(first), len(names))


def _extra(module: str) -> Any:
    """A module of the extra `report`, imported when it is needed: commands that compute no interval load nothing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtra("evaluation", "report") from error
