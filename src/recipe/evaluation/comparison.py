"""Two systems on the same examples: their difference, how certain it is, and how large.

The p-value is of a permutation test. Were the systems alike, each video's difference could as well have had the other
sign; so the signs of whole videos are flipped, not those of examples, because examples of one video are alike. It is
the share of flips whose mean difference is at least as far from 0 as the one found: of all flips where they can be
enumerated, else of 10,000 drawn ones with the one found counted among them (Phipson and Smyth, Permutation P-values
Should Never Be Zero), so that it is never 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recipe.errors import ComputeError
from recipe.evaluation.results import Interval
from recipe.evaluation.statistics import macro_interval

Array = NDArray[np.float64]

FLIPS = 10_000
"""Drawn flips where not all are enumerated."""
ENUMERATED = 14
"""Videos with a difference up to which all flips are enumerated."""
_AT_ONCE = 1000
_ROUNDING = 1e-9
"""Flips that differ by less than this share of the largest possible difference are ties."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`first` minus `second` over the same examples; every dataset weighs the same where several are given."""

    first: float
    second: float
    difference: Interval
    p_value: float
    """Two-sided; 1 where no flip says more."""
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
        raise ComputeError("a comparison was asked of a value that is not finite.")
    named = [""] * len(clusters) if datasets is None else datasets
    difference = macro_interval(ours - theirs, named, clusters, seed)
    weights, videos, strata = _weights(named), *_videos(named, clusters)
    sums = np.bincount(videos, weights=weights * (ours - theirs)).astype(np.float64)
    p_value, exact = _sign_flips(sums, seed)
    means = np.bincount(videos, weights=ours - theirs) / np.bincount(videos)
    signs = np.sign(np.where(np.isclose(ours, theirs, rtol=_ROUNDING, atol=0), 0, ours - theirs))
    return Comparison(
        first=_mean(ours, named),
        second=_mean(theirs, named),
        difference=difference,
        p_value=p_value,
        exact=exact,
        effect=_effect(difference.mean, means, strata),
        better=float((signs > 0).mean()),
        equal=float((signs == 0).mean()),
        worse=float((signs < 0).mean()),
    )


def adjusted(p_values: Sequence[float]) -> list[float]:
    """P-values [tests] adjusted by Holm, which keeps the chance of any false one at their level however they depend.

    >>> adjusted([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    found, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        found[place] = highest
    return found


def _mean(values: Array, datasets: Sequence[str]) -> float:
    """Mean over datasets of their means."""
    labels = np.asarray(datasets)
    return float(np.mean([values[labels == name].mean() for name in np.unique(labels)]))


def _weights(datasets: Sequence[str]) -> Array:
    """What each example weighs in the mean [examples]."""
    _, place, sizes = np.unique(np.asarray(datasets), return_inverse=True, return_counts=True)
    return np.asarray(1 / (len(sizes) * sizes[place]), dtype=np.float64)


def _videos(datasets: Sequence[str], clusters: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Each example's video [examples], and each video's dataset [videos]; one name in two datasets is two videos."""
    _, strata = np.unique(np.asarray(datasets), return_inverse=True)
    _, within = np.unique(np.asarray(clusters), return_inverse=True)
    videos, place = np.unique(np.stack([strata, within]), axis=1, return_inverse=True)
    return place.reshape(-1), videos[0]


def _sign_flips(sums: Array, seed: int) -> tuple[float, bool]:
    """Share of sign flips of `sums` [videos] whose sum is at least as far from 0, and whether that is of all flips."""
    moved = sums[np.abs(sums) > _ROUNDING * np.abs(sums).max()]  # flipping the others changes nothing
    reach = abs(moved.sum()) - _ROUNDING * np.abs(moved).sum()
    if len(moved) <= ENUMERATED:
        flips = np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved)) & 1
        return float((np.abs((1 - 2 * flips) @ moved) >= reach).mean()), True
    rng = np.random.default_rng(seed)
    sizes = [min(_AT_ONCE, FLIPS - start) for start in range(0, FLIPS, _AT_ONCE)]
    drawn = ((1 - 2 * rng.integers(0, 2, size=(size, len(moved)))) @ moved for size in sizes)
    as_far = sum(int((np.abs(one) >= reach).sum()) for one in drawn)
    return (1 + as_far) / (1 + FLIPS), False


def _effect(difference: float, means: Array, strata: NDArray[np.intp]) -> float | None:
    """`means` [videos] of differences, and the dataset of each; the variances of datasets weigh the same."""
    groups = [means[strata == one] for one in np.unique(strata)]
    if min(map(len, groups)) == 1:
        return None
    deviation = float(np.sqrt(np.mean([group.var(ddof=1) for group in groups])))
    return difference / deviation if deviation > _ROUNDING * float(np.abs(means).max()) else None
