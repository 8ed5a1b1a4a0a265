"""Measures of Visual Planning for Assistance on arrays of action ids: success, accuracy, edits and four mIoUs.

Four different quantities are called mIoU in published code:

    per_sample   |plan and reference| / |plan or reference| as sets, mean over samples      VLaMP; PDPP, KEPP "MIoU2"
    batch        one such quotient over all actions of a batch                              PDPP, KEPP "MIoU1"
    cumulative   per sample, but with sets that are never cleared within a batch            SCHEMA, PlanLLM and heirs
    bitwise      per sample, sum of (plan & reference) / sum of (plan | reference) on ids   P3IV and its heirs

Only the first is a measure of plans: it does not change with the size or the order of batches. The others show what a
published figure may mean; none is comparable with it, or with the same one at another batch size.

Ids are integers from 0; `NONE` stands where a plan is shorter than T. Such a position is wrong, and in no set.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.evaluation.vpa.protocol import END, Sample, Taxonomy

Ids = NDArray[np.int64]
"""Action ids [samples, T]."""
Array = NDArray[np.float64]

NONE = -1
"""No action."""
MEASURES = ("success_rate", "accuracy", "iou")
"""Of a sample at a horizon, as the paper's table has them."""
NOT_COMPARABLE = ("iou_batch_256", "iou_cumulative_256", "iou_cumulative_32", "iou_bitwise")
"""Further quantities that are called mIoU: not comparable with `iou`, nor with themselves at another batch size."""


class Positions(NamedTuple):
    """Measures of each sample, each of shape [samples]."""

    success: Array
    """1 where all T actions are those of the reference, in order."""
    accuracy: Array
    """Share of the T positions that are right; references are never shorter, so that its mean is the micro average."""
    iou: Array
    """`per_sample`."""


def positions(plan: Ids, reference: Ids) -> Positions:
    """Success, accuracy and IoU of each sample.

    >>> positions(np.array([[3, 4, 4]]), np.array([[3, 5, 4]]))
    Positions(success=array([0.]), accuracy=array([0.66666667]), iou=array([0.66666667]))
    """
    right = (plan == reference) & (plan != NONE)
    return Positions(right.all(axis=1).astype(np.float64), right.mean(axis=1), per_sample_iou(plan, reference))


def per_sample_iou(plan: Ids, reference: Ids) -> Array:
    """Intersection over union of the two sets of actions of each sample [samples]; 0 for two empty ones."""
    own, theirs = plan != NONE, reference != NONE
    for ids, first in ((plan, own), (reference, theirs)):  # an action counts where it did not stand earlier in its row
        for position in range(1, ids.shape[1]):
            first[:, position] &= (ids[:, :position] != ids[:, position, None]).all(axis=1)
    held = (plan[:, :, None] == reference[:, None, :]).any(axis=2)
    common = (own & held).sum(axis=1)
    union = own.sum(axis=1) + theirs.sum(axis=1) - common
    return np.asarray(common / np.maximum(union, 1), dtype=np.float64)


def batch_iou(plan: Ids, reference: Ids, size: int) -> float:
    """`batch`: one quotient for each batch of `size` samples, mean over batches. Not comparable."""
    ends = np.append(np.arange(size - 1, len(plan) - 1, size), len(plan) - 1)
    return float(_accumulated(plan, reference, size)[ends].mean())


def cumulative_iou(plan: Ids, reference: Ids, size: int) -> float:
    """`cumulative`: each sample's quotient over all actions of its batch so far, mean over samples. Not comparable."""
    return float(_accumulated(plan, reference, size).mean())


def bitwise_iou(plan: Ids, reference: Ids) -> float:
    """`bitwise`: each sample's common bits of the ids over their joint bits, mean over samples. Not comparable.

    It depends on how the actions are numbered. A sample whose ids have no bit counts as 0.
    """
    own, theirs = np.maximum(plan, 0), np.maximum(reference, 0)
    return float(((own & theirs).sum(axis=1) / np.maximum((own | theirs).sum(axis=1), 1)).mean())


def edit_distance(plan: Ids, reference: Ids) -> Array:
    """Levenshtein distance of each sample over T [samples], as VLaMP has it; a shorter plan is compared as it is.

    >>> edit_distance(np.array([[1, 2, 3, NONE]]), np.array([[2, 3, 4, 5]]))
    array([0.75])
    """
    samples, width = reference.shape
    lengths = (plan != NONE).sum(axis=1)
    above = np.tile(np.arange(width + 1), (samples, 1))
    edits = np.where(lengths == 0, width, 0)
    for row in range(1, plan.shape[1] + 1):
        current = np.empty_like(above)
        current[:, 0] = row
        for column in range(1, width + 1):
            differs = plan[:, row - 1] != reference[:, column - 1]
            apart = np.minimum(above[:, column], current[:, column - 1]) + 1
            current[:, column] = np.minimum(apart, above[:, column - 1] + differs)
        edits = np.where(lengths == row, current[:, width], edits)
        above = current
    return np.asarray(edits / width, dtype=np.float64)


def _accumulated(plan: Ids, reference: Ids, size: int) -> Array:
    """The quotient over all actions of its batch up to each sample [samples]."""
    samples, batches = len(plan), -(-len(plan) // size)
    actions = int(max(plan.max(initial=0), reference.max(initial=0))) + 1
    entered = []
    for ids in (plan, reference):
        # The number within its batch of the first sample with each action [batches, actions]; `size` for none.
        first = np.full(batches * actions, size, dtype=np.int64)
        sample = np.repeat(np.arange(samples), ids.shape[1])
        known = ids.ravel() != NONE
        np.minimum.at(first, (sample // size * actions + ids.ravel())[known], (sample % size)[known])
        entered.append(first.reshape(batches, actions))
    counted = []
    for first in (np.minimum(*entered), np.maximum(*entered)):  # an action is in the union when the first set has it
        flat = (np.arange(batches)[:, None] * (size + 1) + first).ravel()
        counts = np.bincount(flat, minlength=batches * (size + 1)).reshape(batches, size + 1)
        counted.append(counts[:, :size].cumsum(axis=1).ravel()[:samples])
    union, common = counted
    return np.asarray(common / np.maximum(union, 1), dtype=np.float64)


class ActionIds:
    """Numbers the actions of a taxonomy in its order, the end of a video last."""

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self.names = (*taxonomy.actions, END)
        self._number = {name: number for number, name in enumerate(self.names)}

    def pool(self, goal: str | None) -> Ids:
        """The ids of the goal's card, or of every action but the end [actions]."""
        names = self.taxonomy.actions if goal is None else self.taxonomy.card(goal)
        return np.array([self._number[name] for name in names], dtype=np.int64)

    def references(self, samples: Sequence[Sample], width: int) -> Ids:
        """The reference actions [samples, width], `NONE` after the end of a target."""
        return self.of(
            [[self.taxonomy.action(step, sample.goal) for step in sample.target] for sample in samples], width
        )

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


class SampleMeasures(NamedTuple):
    """Measures of plans in percent, means over several draws of each sample."""

    metrics: list[dict[str, float]]
    """Of each sample, `horizon.measure` to value, at each horizon that it counts at."""
    further: dict[str, dict[str, float]]
    """By horizon and name: means over samples of what no comparison is made in."""

    def figures(self) -> dict[str, float]:
        """The mean of each metric over the samples that have it."""
        names = dict.fromkeys(name for metrics in self.metrics for name in metrics)
        return {name: float(np.mean([metrics[name] for metrics in self.metrics if name in metrics])) for name in names}


def measure_plans(
    samples: Sequence[Sample], ids: ActionIds, draws: Iterable[Ids], horizons: Sequence[int]
) -> SampleMeasures:
    """Success rate, accuracy and IoU of each sample at each horizon; of several draws the means, sample by sample.

    `draws` are plans [samples, T] in the order of the samples, T being the largest horizon or more.
    """
    chosen = {T: np.array([T in sample.horizons for sample in samples]) for T in horizons}
    references = ids.references(samples, max(horizons))
    sums: dict[int, Array] = {T: np.zeros((5, int(chosen[T].sum()))) for T in horizons}
    others: dict[int, list[Array]] = {T: [] for T in horizons}
    count = 0
    for plan in draws:
        count += 1
        for T in horizons:
            own, reference = plan[chosen[T], :T], references[chosen[T], :T]
            more = (edit_distance(own, reference), own[:, 0] == reference[:, 0])
            sums[T] += np.stack([*positions(own, reference), *more])
            cumulative = [cumulative_iou(own, reference, size) for size in (256, 32)]
            others[T].append(np.array([batch_iou(own, reference, 256), *cumulative, bitwise_iou(own, reference)]))
    metrics: list[dict[str, float]] = [{} for _ in samples]
    further = {}
    for T in horizons:
        values = 100 * sums[T] / count
        for index, column in zip(np.flatnonzero(chosen[T]).tolist(), values.T.tolist(), strict=True):
            metrics[index] |= {f"{T}.{name}": value for name, value in zip(MEASURES, column[:3], strict=True)}
        distance, first = values[3:].mean(axis=1).tolist()
        incomparable = dict(zip(NOT_COMPARABLE, (100 * np.mean(others[T], axis=0)).tolist(), strict=True))
        further[str(T)] = {"next_action": first, "edit_distance": distance} | incomparable
    return SampleMeasures(metrics, further)
