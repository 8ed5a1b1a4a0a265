"""How far raters agree: Krippendorff's alpha with its interval, and the plain measures that tell why it is low.

alpha = 1 - D_o / D_e: the disagreement found over the one expected were the same ratings dealt at random (Krippendorff,
Computing Krippendorff's Alpha-Reliability, 2011). It takes any number of raters and missing ratings. The bootstrap
draws whole clusters of units, as for means.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from recipe.errors import ComputeError, MissingExtra
from recipe.evaluation.results import Interval
from recipe.evaluation.statistics import expanded_levels, mean_interval, resampled_totals

try:
    from krippendorff import alpha as published_alpha
    from scipy.stats import rankdata
except ModuleNotFoundError as error:
    raise MissingExtra("agreement of judges", "report") from error

Array = NDArray[np.float64]
Level = Literal["nominal", "ordinal", "interval"]
"""Values without an order, in an order, or with distances that count."""

_ROUNDING = 1e-9
_UNDEFINED = 0.01
"""Share of resamples without variation up to which they are left out; with more there is no interval."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """Krippendorff's alpha, or the reason that there is none."""

    alpha: Interval | None
    """1 for perfect agreement, 0 for that of chance; `observations` are units rated twice or more."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
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
        raise ComputeError("agreement was asked of no table [raters, units], or of a rating that is not finite.")
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
    return Reliability(_with_interval(rated, values, level, labels, seed))


def compare_raters(
    first: Sequence[float] | Array, second: Sequence[float] | Array, clusters: Sequence[str], seed: int = 0
) -> Pair:
    """Two raters' ratings [units], all known; raises ComputeError without units."""
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    apart = np.abs(ours - theirs)
    return Pair(
        units=len(ours),
        bias=mean_interval(ours - theirs, clusters, seed),
        exact=float((apart <= _ROUNDING).mean()),
        near=float((apart <= 1 + _ROUNDING).mean()),
        spearman=_spearman(ours, theirs),
    )


def _with_interval(rated: Array, values: Array, level: Level, labels: NDArray[np.str_], seed: int) -> Interval:
    columns = _moments(rated) if level == "interval" else _coincidences(rated, values)
    found = _point(rated, columns, level)
    names, place = np.unique(labels, return_inverse=True)
    units, count = rated.shape[1], len(names)
    if count == 1:
        return Interval(found, observations=units, clusters=1)
    by_cluster = np.zeros((count, columns.shape[1]))
    np.add.at(by_cluster, place, columns)
    drawn = _alphas(resampled_totals(by_cluster, seed), level)
    defined = drawn[~np.isnan(drawn)]
    if len(defined) < (1 - _UNDEFINED) * len(drawn):
        return Interval(found, observations=units, clusters=count)
    low, high = np.quantile(defined, expanded_levels(count))
    return Interval(found, float(low), float(high), observations=units, clusters=count)


def _point(rated: Array, columns: Array, level: Level) -> float:
    if level == "interval":  # the package would hold a table of values for each unit, which totals make large
        return float(_alphas(columns.sum(axis=0)[None], level)[0])
    return float(published_alpha(reliability_data=rated, level_of_measurement=level))


def _coincidences(rated: Array, values: Array) -> Array:
    """Pairs of values [units, values * values] that each unit's raters gave, each rating weighing one."""
    counts = (rated[:, :, None] == values).sum(axis=0).astype(np.float64)
    pairs = counts[:, :, None] * counts[:, None, :]
    index = np.arange(len(values))
    pairs[:, index, index] -= counts
    return np.asarray((pairs / (counts.sum(axis=1) - 1)[:, None, None]).reshape(len(counts), -1), dtype=np.float64)


def _moments(rated: Array) -> Array:
    """What interval differences need of each unit [units, 4]: ratings, their sum, that of squares, the disagreement.

    The squared differences of all pairs of m ratings v add up to 2 (m sum v^2 - (sum v)^2), so that no table of values
    is needed, which totals would make large.
    """
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
        count, sums, squares, found = totals.T
        expected = 2 * (count * squares - sums**2)
        varied = expected > _ROUNDING * count * squares
    else:
        side = math.isqrt(totals.shape[1])
        pairs = totals.reshape(-1, side, side)
        counts = pairs.sum(axis=2)
        count, varied = counts.sum(axis=1), (counts > 0).sum(axis=1) > 1
        if level == "nominal":
            found, expected = count - np.trace(pairs, axis1=1, axis2=2), count**2 - (counts**2).sum(axis=1)
        else:
            ranks = np.cumsum(counts, axis=1) - counts / 2
            squares = (counts * ranks**2).sum(axis=1)
            found = 2 * (squares - np.einsum("di,dij,dj->d", ranks, pairs, ranks, optimize=True))
            expected = 2 * (count * squares - (counts * ranks).sum(axis=1) ** 2)
    return np.asarray(1 - found * (count - 1) / np.where(varied, expected, np.nan), dtype=np.float64)


def _spearman(first: Array, second: Array) -> float | None:
    if (first == first[0]).all() or (second == second[0]).all():
        return None
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])
