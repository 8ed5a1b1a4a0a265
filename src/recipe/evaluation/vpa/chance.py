"""Plans by chance: every action with the same probability, repeats allowed, of all actions or of the goal's card.

The paper's rows Random and Random w/ goal are these, which makes them the calibration of the protocol: they depend on
nothing but the samples, the actions and the measures. What is drawn has an exact expectation, too.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from math import comb

import numpy as np

from recipe.data.vpa import Sample
from recipe.evaluation.vpa.actions import ActionIds
from recipe.evaluation.vpa.measures import Ids, Positions

DRAWS = 150
"""Random plans of each sample that a row is the mean of."""


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


def expected(samples: Sequence[Sample], ids: ActionIds, horizon: int, with_goal: bool) -> Positions:
    """What the measures of a random plan are in expectation, exactly, for each sample."""
    references = ids.references(samples, horizon)
    goals = [sample.goal if with_goal else None for sample in samples]
    pools = {goal: frozenset(ids.pool(goal).tolist()) for goal in dict.fromkeys(goals)}
    rows = [_expected(tuple(row), pools[goal]) for row, goal in zip(references.tolist(), goals, strict=True)]
    success, accuracy, iou = np.array(rows, dtype=np.float64).T
    return Positions(success, accuracy, iou)


@cache
def _expected(reference: tuple[int, ...], pool: frozenset[int]) -> tuple[float, float, float]:
    """Success, accuracy and IoU against one reference [T]; what is not in the pool, as the end is not, is never hit."""
    size, horizon = len(pool), len(reference)
    possible = sum(action in pool for action in reference)
    inside, outside = len(pool.intersection(reference)), len(set(reference) - pool)
    success = size**-horizon if possible == horizon else 0.0
    return success, possible / horizon / size, _expected_iou(size, inside, outside, horizon)


@cache
def _expected_iou(size: int, inside: int, outside: int, horizon: int) -> float:
    """The mean IoU of `horizon` draws from `size` actions, `inside` of which are among those of the reference.

    Of all sequences, C(inside, k) C(size - inside, l) surjections(horizon, k + l) hold k of them and l others.
    """
    total = 0.0
    for common in range(1, min(inside, horizon) + 1):
        for others in range(min(size - inside, horizon - common) + 1):
            ways = comb(inside, common) * comb(size - inside, others) * _surjections(horizon, common + others)
            total += ways * common / (inside + outside + others)
    return float(total / size**horizon)


@cache
def _surjections(length: int, kinds: int) -> int:
    """Sequences of `length` that hold each of `kinds` actions and no other."""
    return sum((-1) ** left * comb(kinds, left) * (kinds - left) ** length for left in range(kinds + 1))
