"""The baselines that a VPA result is read against: plans by chance, plans counted in training videos, and the published
rows.

*Chance* takes every action with the same probability, repeats allowed, of all actions or of the goal's card. The
paper's rows Random and Random w/ goal are these. They depend on nothing but the samples, the actions and the measures,
so they are the calibration of the protocol: samples, actions, or a treatment of ends and repeats that differ from the
published ones move a figure of the row, and then the run may not be compared with the paper's table. Their expectation
is exact.

*Floors* look at no video; they count in the training and validation videos what usually comes next:

    unigram    the most frequent action, at every position
    ranked     the most frequent actions, each once, most frequent first
    bigram     from the last step done, or the start, to its most frequent successor, and on from there

Each is counted over all videos or, with `goal-` before its name, over those of the goal. The end of a video is a
successor like any other; after it, or any action that nothing follows, comes the most frequent action. Ties go to the
order of the release. The history is the annotated one. The paper does not define its rows Most Probable, and none of
these floors reproduces them, so they have names of their own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from math import comb
from typing import Literal, NamedTuple, get_args

import numpy as np

from recipe.evaluation.published import PublishedTable
from recipe.evaluation.vpa.measures import MEASURES, ActionIds, Array, Ids
from recipe.evaluation.vpa.protocol import END, Sample, Taxonomy
from recipe.types import Procedure

Floor = Literal["unigram", "ranked", "bigram", "goal-unigram", "goal-ranked", "goal-bigram"]
FLOORS: tuple[Floor, ...] = get_args(Floor)

DRAWS = 150
"""Random plans of each sample that a row is the mean of."""
TOLERANCE = 0.3
"""Points by which a figure of the row may differ."""
_ROW = "Random w/ goal"
_START = ""


def random_plans(
    samples: Sequence[Sample], ids: ActionIds, width: int, with_goal: bool, draws: int = DRAWS, seed: int = 0
) -> Iterator[Ids]:
    """`draws` arrays of random plans [samples, width], the same again for the same seed."""
    goals = [sample.goal if with_goal else None for sample in samples]
    pools = {goal: ids.pool(goal) for goal in dict.fromkeys(goals)}
    sizes = np.array([len(pools[goal]) for goal in goals])
    table = np.zeros((len(samples), int(sizes.max())), dtype=np.int64)
    for row, goal in enumerate(goals):
        table[row, : sizes[row]] = pools[goal]
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        yield np.take_along_axis(table, rng.integers(sizes[:, None], size=(len(samples), width)), axis=1)


def expected(samples: Sequence[Sample], ids: ActionIds, horizon: int, with_goal: bool) -> Array:
    """The exact expectation of the measures of a random plan, for each sample [measures, samples]."""
    references = ids.references(samples, horizon)
    goals = [sample.goal if with_goal else None for sample in samples]
    pools = {goal: frozenset(ids.pool(goal).tolist()) for goal in dict.fromkeys(goals)}
    rows = []
    for row, goal in zip(references.tolist(), goals, strict=True):
        pool, size = pools[goal], len(pools[goal])
        # What is not in the pool, as the end is not, is never hit.
        # Accuracy: the mean over positions of 1 / size where the action is in the pool, 0 elsewhere.
        possible = sum(action in pool for action in row)
        inside, outside = len(pool.intersection(row)), len(set(row) - pool)
        # T independent draws, each right with probability 1 / size.
        success = size**-horizon if possible == horizon else 0.0
        rows.append((success, possible / horizon / size, _expected_iou(size, inside, outside, horizon)))
    return np.array(rows, dtype=np.float64).T


@cache
def _expected_iou(size: int, inside: int, outside: int, horizon: int) -> float:
    """The mean IoU of `horizon` draws from `size` actions, `inside` of which are among those of the reference.

    Of all sequences, C(inside, k) C(size - inside, l) surjections(horizon, k + l) hold k of them and l others.
    """
    total = 0.0
    for common in range(1, min(inside, horizon) + 1):
        for others in range(min(size - inside, horizon - common) + 1):
            kinds = common + others
            # By inclusion and exclusion: the sequences in which each of these kinds occurs.
            surjections = sum((-1) ** left * comb(kinds, left) * (kinds - left) ** horizon for left in range(kinds + 1))
            ways = comb(inside, common) * comb(size - inside, others) * surjections
            total += ways * common / (inside + outside + others)
    return float(total / size**horizon)


def floor_plans(
    floor: Floor, samples: Iterable[Sample], training: Iterable[Procedure], taxonomy: Taxonomy, width: int
) -> list[tuple[str, ...]]:
    """The plan of `width` actions for each sample; empty where nothing was counted for its goal."""
    by_goal, kind = floor.startswith("goal-"), floor.removeprefix("goal-")
    # How often actions occur, and follow another, in the videos of each goal or, under an empty name, of all.
    single: dict[str, Counter[str]] = {}
    after: dict[tuple[str, str], Counter[str]] = {}
    for procedure in training:
        goal = procedure.goal if by_goal else ""
        steps = [step.text for step in procedure.steps]
        single.setdefault(goal, Counter()).update(steps)
        for last, following in zip([_START, *steps], [*steps, END], strict=True):
            after.setdefault((goal, last), Counter())[following] += 1

    # The most frequent actions first; ties go to the order of the release.
    order = {action: number for number, action in enumerate((*taxonomy.actions, END))}
    ranked = {
        key: sorted(counts, key=lambda action: (-counts[action], order[action]))
        for key, counts in (*single.items(), *after.items())
    }
    made: dict[tuple[str, str], tuple[str, ...]] = {}
    plans = []
    for sample in samples:
        last = sample.history[-1] if sample.history else _START
        goal = sample.goal if by_goal else ""
        if (key := (goal, last)) not in made:
            frequent = ranked.get(goal, [])
            plan = frequent[:1] * width if kind == "unigram" else frequent[:width] if kind == "ranked" else []
            while kind == "bigram" and frequent and len(plan) < width:
                last = ranked.get((goal, last), frequent)[0]
                plan.append(last)
            made[key] = tuple(plan)
        plans.append(made[key])
    return plans


class Calibration(NamedTuple):
    """The row computed here compared with the published one."""

    apart: float
    """The largest difference of a figure, in percentage points."""

    @classmethod
    def of(cls, samples: Sequence[Sample], ids: ActionIds, table: PublishedTable) -> "Calibration":
        """The exact expectation of random plans from the goal's card, compared with the row of `table`."""
        figures = expected_figures(samples, ids, [column.key for column in table.columns], with_goal=True)
        row = next(row for row in table.rows if row.name == _ROW)
        columns = zip(table.columns, row.values, strict=True)
        return cls(max(abs(figures[column.key] - value) for column, value in columns if value is not None))

    @property
    def calibrated(self) -> bool:
        """Whether every figure lies within the tolerance."""
        return self.apart <= TOLERANCE

    @property
    def sentence(self) -> str:
        """The consequence for the run."""
        if self.calibrated:
            return f"calibrated: random-goal lies within {self.apart:.2f} points of the published row"
        by = f"random-goal lies {self.apart:.2f} points from the published row"
        return f"protocol not calibrated: {by}; do not compare with published rows"


def expected_figures(
    samples: Sequence[Sample], ids: ActionIds, keys: Sequence[str], with_goal: bool
) -> dict[str, float]:
    """Exact means of random plans in percent by key, `horizon.measure`."""
    figures: dict[str, float] = {}
    for horizon in dict.fromkeys(int(key.partition(".")[0]) for key in keys):
        values = expected(samples, ids, horizon, with_goal)
        figures |= {
            f"{horizon}.{name}": 100 * float(value.mean()) for name, value in zip(MEASURES, values, strict=True)
        }
    return {key: figures[key] for key in keys}
