"""Whether a protocol is the published one: the row Random w/ goal depends on nothing else, and is known exactly.

Samples, actions, the metrics' treatment of ends and repeats: a choice that differs from the published one moves a
figure of that row. So a run whose row lies elsewhere may not be compared with the paper's table.
"""

from collections.abc import Sequence
from typing import NamedTuple

from recipe.data.vpa import Sample
from recipe.evaluation.published import PublishedTable
from recipe.evaluation.vpa.actions import ActionIds
from recipe.evaluation.vpa.chance import expected

TOLERANCE = 0.3
"""Points by which a figure of the row may differ."""
ROW = "Random w/ goal"


class Calibration(NamedTuple):
    """The row as it is here beside the published one, in percent."""

    figures: dict[str, float]
    """By the keys of the published columns, `horizon.measure`."""
    published: dict[str, float]
    by_task: bool = False
    """Whether the actions are those of another taxonomy, which this row does not tell apart."""

    @property
    def apart(self) -> float:
        """The largest difference of a figure, infinite where one is missing."""
        absent = set(self.published) - set(self.figures)
        differences = (abs(self.figures[key] - self.published[key]) for key in self.published if key not in absent)
        return float("inf") if absent else max(differences, default=float("inf"))

    @property
    def calibrated(self) -> bool:
        """Whether every figure lies within the tolerance, over the published actions."""
        return self.apart <= TOLERANCE and not self.by_task

    @property
    def sentence(self) -> str:
        """What it means for the run."""
        if self.calibrated:
            return f"calibrated: random-goal lies within {self.apart:.2f} points of the published row"
        if self.by_task and self.apart <= TOLERANCE:
            return "protocol not calibrated: published rows count a string once, and here each task's step is an action"
        by = f"{self.apart:.2f} points from" if self.apart < float("inf") else "without a figure of"
        return f"protocol not calibrated: random-goal lies {by} the published row; do not compare with published rows"


def calibrate(samples: Sequence[Sample], ids: ActionIds, table: PublishedTable) -> Calibration:
    """The exact expectation of random plans from the goal's card, beside the row of `table`."""
    figures = expected_figures(samples, ids, [column.key for column in table.columns], with_goal=True)
    row = next(one for one in table.rows if one.name == ROW)
    columns = zip(table.columns, row.values, strict=True)
    known = {column.key: value for column, value in columns if value is not None}
    return Calibration(figures, known, ids.taxonomy.by_task)


def expected_figures(
    samples: Sequence[Sample], ids: ActionIds, keys: Sequence[str], with_goal: bool
) -> dict[str, float]:
    """Exact means of random plans in percent by key, `horizon.measure`; those of a horizon without samples absent."""
    figures: dict[str, float] = {}
    for horizon in dict.fromkeys(int(key.partition(".")[0]) for key in keys):
        held = [one for one in samples if horizon in one.horizons]
        if held:
            success, accuracy, iou = expected(held, ids, horizon, with_goal)
            means = {"success_rate": success.mean(), "accuracy": accuracy.mean(), "iou": iou.mean()}
            figures |= {f"{horizon}.{name}": 100 * float(value) for name, value in means.items()}
    return {key: figures[key] for key in keys if key in figures}
