"""How often the intervals hold the truth, and how often the permutation test sees what is not there, by simulation.

    python benchmarks/interval_coverage.py [--trials 1000] [--seed 2]

Datasets of videos that differ in size and share a part of every value: 1 to 9 examples a video, half of the variance
between videos. The intervals and the test are compared with those of a normal distribution that take every example
for independent. Draws without an interval are counted apart. The method was chosen with seed 1; seed 2 reports.
"""

import argparse
from typing import NamedTuple

import numpy as np
from common import add_json, table, write_result
from numpy.typing import NDArray

from recipe import stats
from recipe.stats import Interval, compare, krippendorff_alpha, macro_interval

DRAWS = 2000
LEVEL = 0.05
Array = NDArray[np.float64]


class Design(NamedTuple):
    """Datasets whose videos are drawn alike."""

    sizes: tuple[int, ...]
    """Videos of each dataset."""
    kind: str = "normal"
    chances: tuple[float, ...] = ()
    """Of an event, or of +1 and -1."""
    examples: str = "1 to 9"
    """Examples of a video: so many, `1`, or `skewed`."""

    @property
    def symmetric(self) -> bool:
        """Whether values are as likely as their opposites, which the test assumes."""
        return self.kind in ("normal", "skewed") or self.chances[:1] == self.chances[1:]


SHAPES: dict[str, Design] = {
    "2 videos": Design((2,)),
    "3 videos": Design((3,)),
    "5 videos": Design((5,)),
    "8 videos": Design((8,)),
    "30 videos": Design((30,)),
    "datasets of 5, 8 and 12 videos": Design((5, 8, 12)),
    "7 datasets of 8 videos": Design((8,) * 7),
    "datasets of 30, 60 and 100 videos": Design((30, 60, 100)),
    "datasets of 3, 40, 40 and 40 videos": Design((3, 40, 40, 40)),
    "datasets of 2 and 200 videos": Design((2, 200)),
    "5 videos of very unequal size": Design((5,), examples="skewed"),
    "12 videos of very unequal size": Design((12,), examples="skewed"),
    "30 videos of very unequal size": Design((30,), examples="skewed"),
    "5 videos, skewed values": Design((5,), "skewed"),
    "8 videos, skewed values": Design((8,), "skewed"),
    "20 videos, skewed values": Design((20,), "skewed"),
    "datasets of 5, 8 and 12 videos, skewed values": Design((5, 8, 12), "skewed"),
    "20 videos, events of 2%": Design((20,), "events", (0.02,)),
    "20 videos, events of 5%": Design((20,), "events", (0.05,)),
    "20 videos, events of 10%": Design((20,), "events", (0.1,)),
    "60 videos, events of 5%": Design((60,), "events", (0.05,)),
    "20 videos of 1 example, events of 5%": Design((20,), "events", (0.05,), "1"),
    "20 videos of 1 example, events of 10%": Design((20,), "events", (0.1,), "1"),
    "20 videos of 1 example, events of 25%": Design((20,), "events", (0.25,), "1"),
    "2 datasets of 20 videos, events of 10%": Design((20, 20), "events", (0.1,)),
    "20 videos, differences +1 in 6% and -1 in 2%": Design((20,), "differences", (0.06, 0.02)),
    "60 videos, differences +1 in 6% and -1 in 2%": Design((60,), "differences", (0.06, 0.02)),
    "60 videos, differences +1 in 4% and -1 in 4%": Design((60,), "differences", (0.04, 0.04)),
    "5 videos, half of the values 0 or 1": Design((5,), "mixed", (0.2,)),
    "20 videos, half of the values 0 or 1": Design((20,), "mixed", (0.2,)),
}


class Drawn(NamedTuple):
    """Values of some examples; the true mean is the same in every dataset."""

    values: Array
    datasets: list[str]
    videos: list[str]


def draw(rng: np.random.Generator, design: Design) -> Drawn:
    """Datasets of so many videos."""
    count = sum(design.sizes)
    examples = rng.integers(1, 10, size=count)
    if design.examples == "1":
        examples = np.ones(count, dtype=np.int64)
    elif design.examples == "skewed":
        examples = np.ceil(3 * np.exp(1.2 * rng.normal(size=count))).astype(np.int64)
    video = np.repeat(np.arange(count), examples)
    values = _values(rng, design, video, count)
    datasets = np.repeat(np.arange(len(design.sizes)), design.sizes)[video]
    return Drawn(values, datasets.astype(str).tolist(), video.astype(str).tolist())


def _values(rng: np.random.Generator, design: Design, video: NDArray[np.intp], count: int) -> Array:
    examples = len(video)
    if design.kind == "normal":
        return np.asarray(rng.normal(size=count)[video] + rng.normal(size=examples))
    if design.kind == "skewed":
        return np.asarray((rng.exponential(size=count) - 1)[video] + rng.normal(size=examples))
    if design.kind == "differences":
        up, down = design.chances
        shared, own = (
            rng.choice([1.0, -1.0, 0.0], size=size, p=[up, down, 1 - up - down]) for size in (count, examples)
        )
        return np.where(rng.random(examples) < 0.5, shared[video], own)
    [chance] = design.chances
    # Half of the variance of an event lies between videos.
    spread = 1.0 if design.kind == "events" else 2.0
    events = (rng.random(examples) < rng.beta(spread * chance, spread * (1 - chance), size=count)[video]).astype(float)
    if design.kind == "events":
        return events
    graded = np.clip(0.5 + 0.15 * (rng.normal(size=count)[video] + rng.normal(size=examples)), 0, 1)
    return np.where(rng.random(examples) < 0.5, events, graded)


def truth_of(design: Design) -> float:
    """The true mean."""
    if design.kind == "events":
        return design.chances[0]
    if design.kind == "differences":
        return design.chances[0] - design.chances[1]
    return 0.5 * design.chances[0] + 0.25 if design.kind == "mixed" else 0.0


def held(found: Interval, truth: float = 0.0) -> bool:
    """Whether an interval holds the truth."""
    return found.low is not None and found.high is not None and found.low <= truth <= found.high


def coverage(design: Design, trials: int, seed: int) -> dict[str, float | None]:
    """Shares of trials in which an interval holds the truth, and in which the test rejects it."""
    rng, truth = np.random.default_rng([seed, 0]), truth_of(design)
    found, naive, alarms = list[Interval](), 0, 0
    for _ in range(trials):
        one = draw(rng, design)
        if design.symmetric:
            compared = compare(one.values.tolist(), [0.0] * len(one.values), one.videos, one.datasets)
            alarms += compared.p_value <= LEVEL
            found.append(compared.difference)
        else:
            found.append(macro_interval(one.values, one.datasets, one.videos))
        naive += abs(found[-1].mean - truth) <= normal_half(one)
    printed = [(one, one.high - one.low) for one in found if one.low is not None and one.high is not None]
    return {
        "interval": sum(held(one, truth) for one, _ in printed) / len(printed) if printed else None,
        "width": float(np.median([width for _, width in printed])) if printed else None,
        "without": 1 - len(printed) / trials,
        "naive interval": naive / trials,
        "false alarms": alarms / trials if design.symmetric else None,
        "naive false alarms": 1 - naive / trials if design.symmetric else None,
    }


def normal_half(one: Drawn) -> float:
    """Half the normal interval of the macro mean were all examples independent."""
    names = np.array(one.datasets)
    parts = [one.values[names == name] for name in sorted(set(one.datasets))]
    errors = [part.std(ddof=1) / np.sqrt(len(part)) if len(part) > 1 else 0.0 for part in parts]
    return float(1.96 * np.sqrt(np.square(errors).sum()) / len(parts))


def raters(rng: np.random.Generator, plans: int, noise: float) -> Array:
    """Grades from 0 to 5 [3 raters, plans] that share a part."""
    return np.asarray(np.clip(np.round(2.5 + rng.normal(size=plans) + noise * rng.normal(size=(3, plans))), 0, 5))


def alpha_coverage(plans: int, noise: float, trials: int, seed: int) -> dict[str, float | None]:
    """Share of trials in which alpha's interval holds its value in large, of those with an interval."""
    rng = np.random.default_rng([seed, 1])
    large = krippendorff_alpha(raters(rng, 100_000, noise), "ordinal", ["all"] * 100_000).alpha
    assert large is not None
    found = [krippendorff_alpha(raters(rng, plans, noise), "ordinal").alpha for _ in range(trials)]
    printed = [(one, one.high - one.low) for one in found if one and one.low is not None and one.high is not None]
    return {
        "interval": sum(held(one, large.mean) for one, _ in printed) / len(printed) if printed else None,
        "width": float(np.median([width for _, width in printed])) if printed else None,
        "without": 1 - len(printed) / trials,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--only", default="", help="shapes whose name holds this")
    add_json(parser, "statistics")
    options = parser.parse_args()
    trials, seed = options.trials, options.seed
    stats.DRAWS = stats.FLIPS = DRAWS
    found = {}
    for name, design in SHAPES.items():
        if options.only in name:
            found[name] = coverage(design, trials, seed)
            shown(name, found[name])
    alphas = {}
    for plans, noise in ((5, 0.8), (10, 0.8), (15, 0.8), (40, 0.8), (100, 0.8), (15, 0.2), (40, 0.2)):
        name = f"{plans} plans, 3 raters{', who hardly differ' if noise < 0.5 else ''}"
        if options.only in name:
            alphas[name] = alpha_coverage(plans, noise, trials, seed)
            shown(name, alphas[name])
    setup = {"trials": trials, "draws": DRAWS, "seed": seed}
    shares = [table({name: percent(row) for name, row in part.items()}, first)
              for first, part in (("data sets", found), ("alpha", alphas)) if part]  # fmt: skip
    write_result(
        options.json,
        setup | {"coverage and false alarms": found, "coverage of alpha": alphas},
        title="How often intervals hold the truth",
        guide="statistics.md",
        body=[
            f"{trials:,} data sets of each shape (seed {seed}): how often a given interval holds the truth, how "
            "often there is "
            f"none, its median width, and how often the test rejects what is true at {LEVEL:.0%}.",
            *shares,
        ],
        partial=bool(options.only) or trials < parser.get_default("trials"),
    )


def percent(row: dict[str, float | None]) -> dict[str, str]:
    """Shares in percent, and the width as it is, below what a column of the results page is called."""
    titles = {"width": "median width", "false alarms": f"false alarms at {LEVEL:.0%}"}
    return {
        titles.get(name, name): "-" if value is None else f"{value:.2f}" if name == "width" else f"{value:.1%}"
        for name, value in row.items()
    }


def shown(name: str, row: dict[str, float | None]) -> None:
    print(f"{name:46}", *(f"{key} {'-' if value is None else f'{value:.3f}'}" for key, value in row.items()), sep="  ")


if __name__ == "__main__":
    main()
