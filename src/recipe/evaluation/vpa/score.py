"""From plans as arrays of ids to the figures of a table row, with intervals that draw whole videos."""

from collections.abc import Iterable, Sequence

import numpy as np

from recipe.data.vpa import Sample
from recipe.evaluation.scores import HorizonScores
from recipe.evaluation.statistics import mean_interval
from recipe.evaluation.vpa.actions import ActionIds
from recipe.evaluation.vpa.measures import (
    Array,
    Ids,
    batch_iou,
    bitwise_iou,
    cumulative_iou,
    edit_distance,
    positions,
)

NOT_COMPARABLE = ("iou_batch_256", "iou_cumulative_256", "iou_cumulative_32", "iou_bitwise")
"""Further quantities that are called mIoU: not comparable with `iou`, nor with themselves at another batch size."""


def score_plans(
    samples: Sequence[Sample], ids: ActionIds, draws: Iterable[Ids], horizons: Sequence[int], seed: int = 0
) -> tuple[HorizonScores, ...]:
    """The figures at each horizon, in percent; of several draws the means, sample by sample.

    `draws` are plans [samples, T] in the order of the samples, T being the largest horizon or more.
    """
    chosen = {T: np.array([T in one.horizons for one in samples]) for T in horizons}
    references = ids.references(samples, max(horizons))
    sums: dict[int, Array] = {T: np.zeros((5, int(chosen[T].sum()))) for T in horizons}
    others: dict[int, list[Array]] = {T: [] for T in horizons}
    count = 0
    for plan in draws:
        count += 1
        for T in horizons:
            own, reference = plan[chosen[T], :T], references[chosen[T], :T]
            further = (edit_distance(own, reference), own[:, 0] == reference[:, 0])
            sums[T] += np.stack([*positions(own, reference), *further])
            others[T].append(_not_comparable(own, reference))
    return tuple(
        _horizon([one for one in samples if T in one.horizons], T, sums[T] / count, others[T], seed) for T in horizons
    )


def _not_comparable(plan: Ids, reference: Ids) -> Array:
    return np.array(
        [
            batch_iou(plan, reference, 256),
            cumulative_iou(plan, reference, 256),
            cumulative_iou(plan, reference, 32),
            bitwise_iou(plan, reference),
        ]
    )


def _horizon(samples: Sequence[Sample], horizon: int, means: Array, others: list[Array], seed: int) -> HorizonScores:
    videos = [one.video_id for one in samples]
    success, accuracy, iou = (mean_interval(100 * values, videos, seed) for values in means[:3])
    distance, first = (100 * float(values.mean()) for values in means[3:])
    incomparable = dict(zip(NOT_COMPARABLE, 100 * np.mean(others, axis=0), strict=True))
    return HorizonScores(
        horizon=horizon,
        samples=len(samples),
        videos=len(set(videos)),
        success_rate=success,
        accuracy=accuracy,
        iou=iou,
        more={"next_action": first, "edit_distance": distance}
        | {name: float(value) for name, value in incomparable.items()},
    )
