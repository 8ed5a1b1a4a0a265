"""Measures of Visual Planning for Assistance on arrays of action ids: success, accuracy and mIoU.

mIoU is the intersection over the union of the two sets of actions of a sample, mean over samples, as VLaMP has it. It
does not change with the size or the order of batches.

Ids are integers from 0; `NONE` stands where a plan is shorter than T. Such a position is wrong, and in no set.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from recipe.evaluation.vpa.protocol import END, HORIZONS, Sample, Taxonomy

Ids = NDArray[np.int64]
"""Action ids [samples, T]."""
Array = NDArray[np.float64]

NONE = -1
"""No action."""
MEASURES = ("success_rate", "accuracy", "iou")
"""Of a sample at a horizon T, as the paper's table has them: 1 where all T actions are those of the reference in order;
the share of positions that are right; the intersection over the union of the two sets of actions, 0 of empty ones."""


def positions(plan: Ids, reference: Ids) -> Array:
    """Success, accuracy and IoU of each sample [measures, samples], by the `MEASURES` in order.

    >>> positions(np.array([[3, 4, 4]]), np.array([[3, 5, 4]])).round(2).tolist()
    [[0.0], [0.67], [0.67]]
    """
    right = (plan == reference) & (plan != NONE)
    # References are never shorter than T, so that the mean of the accuracies is the micro average.
    return np.stack([right.all(axis=1), right.mean(axis=1), per_sample_iou(plan, reference)])


def per_sample_iou(plan: Ids, reference: Ids) -> Array:
    """Intersection over union of the two sets of actions of each sample [samples]; 0 for two empty ones."""
    own, theirs = plan != NONE, reference != NONE
    for ids, first in ((plan, own), (reference, theirs)):  # an action counts where it did not stand earlier in its row
        for position in range(1, ids.shape[1]):
            first[:, position] &= (ids[:, :position] != ids[:, position, None]).all(axis=1)
    held = (plan[:, :, None] == reference[:, None, :]).any(axis=2)
    common = (own & held).sum(axis=1)
    # |A or B| = |A| + |B| - |A and B|.
    union = own.sum(axis=1) + theirs.sum(axis=1) - common
    return np.asarray(common / np.maximum(union, 1), dtype=np.float64)


class ActionIds:
    """Numbers the actions of a taxonomy in its order, the end of a video last."""

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self.names = (*taxonomy.actions, END)
        self._number = {name: number for number, name in enumerate(self.names)}

    def pool(self, goal: str | None) -> Ids:
        """The ids of the goal's card, or of every action but the end [actions]."""
        names = self.taxonomy.actions if goal is None else self.taxonomy.cards[goal]
        return np.array([self._number[name] for name in names], dtype=np.int64)

    def references(self, samples: Sequence[Sample], width: int) -> Ids:
        """The reference actions [samples, width], `NONE` after the end of a target."""
        return self.of([sample.target for sample in samples], width)

    def of(self, plans: Sequence[Sequence[str]], width: int) -> Ids:
        """The first `width` actions of each plan [plans, width]; `NONE` where a plan is shorter."""
        ids = np.full((len(plans), width), NONE, dtype=np.int64)
        for row, plan in enumerate(plans):
            numbers = [self._number[name] for name in plan[:width]]
            ids[row, : len(numbers)] = numbers
        return ids

    def named(self, row: Sequence[int]) -> tuple[str, ...]:
        """The actions of a row of ids, without `NONE`."""
        return tuple(self.names[number] for number in row if number != NONE)


def measure_plans(samples: Sequence[Sample], ids: ActionIds, draws: Iterable[Ids]) -> list[dict[str, float]]:
    """Success rate, accuracy and IoU of each sample in percent, `horizon.measure` to value; of several draws the means.

    `draws` are plans [samples, T] in the order of the samples, T being the largest horizon or more.
    """
    references = ids.references(samples, max(HORIZONS))
    sums = {T: np.zeros((len(MEASURES), len(samples))) for T in HORIZONS}
    count = 0
    for plan in draws:
        count += 1
        for T in HORIZONS:
            sums[T] += positions(plan[:, :T], references[:, :T])
    metrics: list[dict[str, float]] = [{} for _ in samples]
    for T in HORIZONS:
        for own, values in zip(metrics, (100 * sums[T] / count).T.tolist(), strict=True):
            own |= {f"{T}.{name}": value for name, value in zip(MEASURES, values, strict=True)}
    return metrics
