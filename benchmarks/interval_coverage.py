"""How often the intervals hold the truth, and how often the permutation test sees what is not there, by simulation.

    python benchmarks/interval_coverage.py [--trials 2000]

Datasets of videos that differ in size and share a part of every value: 1 to 9 examples a video, half of the variance
between videos. Beside the intervals and the test stand those of a normal distribution that take every example for
independent. Writes benchmarks/results/interval_coverage.json.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from krippendorff import alpha
from numpy.typing import NDArray

from recipe import stats
from recipe.artifacts import write_json
from recipe.stats import Interval, compare, krippendorff_alpha, standard_error

RESULT = Path(__file__).parent / "results" / "interval_coverage.json"
DRAWS = 2000
LEVEL = 0.05
SHAPES: dict[str, tuple[int, ...]] = {
    "1 dataset of 8 videos": (8,),
    "1 dataset of 30 videos": (30,),
    "datasets of 5, 8 and 12 videos": (5, 8, 12),
    "7 datasets of 8 videos": (8,) * 7,
    "datasets of 30, 60 and 100 videos": (30, 60, 100),
    "datasets of 3, 40, 40 and 40 videos": (3, 40, 40, 40),
}


class Drawn(NamedTuple):
    """Values whose true mean is 0 in every dataset."""

    values: NDArray[np.float64]
    datasets: list[str]
    videos: list[str]


def draw(rng: np.random.Generator, sizes: Sequence[int], skewed: bool = False) -> Drawn:
    """Datasets of so many videos, of 1 to 9 examples each."""
    values, datasets, videos = [], [], []
    for dataset, count in enumerate(sizes):
        for video in range(count):
            shared = rng.exponential() - 1 if skewed else rng.normal()
            for _ in range(rng.integers(1, 10)):
                values.append(shared + rng.normal())
                datasets.append(str(dataset))
                videos.append(f"{dataset} {video}")
    return Drawn(np.array(values), datasets, videos)


def held(found: Interval, truth: float = 0.0) -> bool:
    """Whether an interval holds the truth."""
    return found.low is not None and found.high is not None and found.low <= truth <= found.high


def coverage(sizes: Sequence[int], trials: int, skewed: bool = False) -> dict[str, float]:
    """Shares of trials in which an interval holds the truth, and in which the test rejects it."""
    rng = np.random.default_rng(0)
    counts = dict.fromkeys(("interval", "naive interval", "false alarms", "naive false alarms"), 0)
    for _ in range(trials):
        one = draw(rng, sizes, skewed)
        found = compare(one.values, np.zeros(len(one.values)), one.videos, one.datasets)
        naive = abs(found.difference.mean) <= normal_half(one)
        counts["interval"] += held(found.difference)
        counts["naive interval"] += naive
        counts["false alarms"] += found.p_value <= LEVEL
        counts["naive false alarms"] += not naive
    return {name: count / trials for name, count in counts.items()}


def normal_half(one: Drawn) -> float:
    """Half the normal interval of the macro mean were all examples independent."""
    names = np.array(one.datasets)
    parts = [one.values[names == name] for name in sorted(set(one.datasets))]
    errors = [standard_error(part, [str(place) for place in range(len(part))]) or 0.0 for part in parts]
    return float(1.96 * np.sqrt(np.square(errors).sum()) / len(parts))


def raters(rng: np.random.Generator, plans: int) -> NDArray[np.float64]:
    """Grades from 0 to 5 [3 raters, plans] that share a part."""
    return np.clip(np.round(2.5 + rng.normal(size=plans) + 0.8 * rng.normal(size=(3, plans))), 0, 5)


def alpha_coverage(plans: int, trials: int) -> float:
    """Share of trials in which alpha's interval holds its value in large."""
    rng = np.random.default_rng(0)
    truth = float(alpha(reliability_data=raters(rng, 100_000), level_of_measurement="ordinal"))
    found = (krippendorff_alpha(raters(rng, plans), "ordinal").alpha for _ in range(trials))
    return sum(one is not None and held(one, truth) for one in found) / trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    trials = parser.parse_args().trials
    stats.DRAWS = stats.FLIPS = DRAWS
    found = {name: coverage(sizes, trials) for name, sizes in SHAPES.items()}
    found["skewed values, datasets of 5, 8 and 12 videos"] = coverage((5, 8, 12), trials, skewed=True)
    alphas = {f"{plans} plans, 3 raters": alpha_coverage(plans, trials) for plans in (15, 40, 100)}
    result = {"trials": trials, "draws": DRAWS, "coverage and false alarms": found, "coverage of alpha": alphas}
    write_json(RESULT, result)
    for name, row in found.items():
        print(f"{name:46}", *(f"{key} {value:.3f}" for key, value in row.items()), sep="  ")
    print(alphas)


if __name__ == "__main__":
    main()
