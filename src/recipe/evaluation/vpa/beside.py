"""What a result is read against: chance and floors on the same samples, and the rows that the paper publishes.

Numbers of procedure planning (PDPP, SCHEMA, ViterbiPlanNet and others) are of another task, which is given the goal's
picture and windows of exactly T actions; they are in no table here.
"""

from typing import NamedTuple

from recipe.evaluation.published import PublishedTable, published
from recipe.evaluation.scores import VpaScores
from recipe.evaluation.vpa.calibration import Calibration, expected_figures
from recipe.evaluation.vpa.floors import Floor
from recipe.evaluation.vpa.run import Task, floor_row

_SHOWN: tuple[Floor, ...] = ("goal-unigram", "goal-bigram")


class BesideRow(NamedTuple):
    """One row, in percent."""

    group: str
    system: str
    figures: dict[str, float]
    """By the keys of the published columns, `horizon.measure`."""
    published: bool = False
    """Printed in the paper, and not computed here."""


class Beside(NamedTuple):
    """Rows beside a result, and whether they may be compared."""

    rows: list[BesideRow]
    calibration: Calibration
    columns: PublishedTable


def beside(task: Task, scores: VpaScores) -> Beside:
    """Chance in exact expectation, floors that the result is not itself, and the published table."""
    table = published("vpa")
    keys = [column.key for column in table.columns]
    rows = [
        BesideRow("chance", name, expected_figures(task.samples, task.ids, keys, with_goal))
        for name, with_goal in (("random, expected", False), ("random-goal, expected", True))
    ]
    if task.training:
        rows += [
            BesideRow("floor", name, {key: value for key, value in floor_row(task, name).items() if key in keys})
            for name in _SHOWN
            if name != scores.system
        ]
    rows += [
        BesideRow(
            row.group,
            row.name,
            {key: value for key, value in zip(keys, row.values, strict=True) if value is not None},
            True,
        )
        for row in table.rows
    ]
    return Beside(rows, task.calibration, table)


def figures_of(scores: VpaScores) -> dict[str, float]:
    """The means of a result by `horizon.measure`."""
    found = {}
    for one in scores.horizons:
        for name, value in (("success_rate", one.success_rate), ("accuracy", one.accuracy), ("iou", one.iou)):
            found[f"{one.horizon}.{name}"] = value.mean
    return found
