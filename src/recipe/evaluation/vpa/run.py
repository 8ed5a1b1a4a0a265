"""One evaluation on VPA: the task, a baseline or predictions, their scores and rows, and the rows to read them against.

Numbers of procedure planning (PDPP, SCHEMA, ViterbiPlanNet and others) are of another task, which is given the goal's
picture and windows of exactly T actions; they are in no table here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from recipe.artifacts import JsonObject
from recipe.data.crosstask import StepOrder
from recipe.data.supervision import cut_at
from recipe.errors import InputError
from recipe.evaluation.published import PublishedTable, published
from recipe.evaluation.scores import HorizonScores, VpaScores
from recipe.evaluation.vpa.baselines import (
    DRAWS,
    FLOORS,
    Calibration,
    Floor,
    calibrate,
    expected_figures,
    floor_plans,
    random_plans,
)
from recipe.evaluation.vpa.measures import ActionIds, Ids, score_plans
from recipe.evaluation.vpa.protocol import HORIZONS, Protocol, Rule, Sample, cut_samples, read_release
from recipe.evaluation.vpa.remap import LOW_MARGIN, MappedPlan, remap
from recipe.models.sampling import distinct_decodings
from recipe.planning.admissible import Embed
from recipe.planning.predictions import Prediction, match_predictions
from recipe.types import Example, Procedure

Chance = Literal["random", "random-goal"]
BASELINES: tuple[str, ...] = (*get_args(Chance), *FLOORS)
"""Baselines without a model: plans by chance, and floors that are counted in training videos."""
Training = Literal["train", "train+validation"]
_FLOORS: tuple[Floor, ...] = ("goal-unigram", "goal-bigram")
"""Floors that stand beside a result."""


@dataclass(frozen=True, slots=True)
class Task:
    """The samples to plan for, and how they were cut."""

    samples: list[Sample]
    cuts: list[Example]
    """Every cut of the tested videos: predictions may be for more than the samples."""
    training: list[Procedure]
    """Videos that floors are counted in."""
    ids: ActionIds
    calibration: Calibration
    protocol: Protocol
    settings: dict[str, str]

    @property
    def width(self) -> int:
        """The largest horizon."""
        return max(HORIZONS)


class Result(NamedTuple):
    """Scores, and one row a sample."""

    scores: VpaScores
    rows: list[JsonObject]


def open_task(
    root: Path,
    protocol: Protocol = "shared",
    rule: Rule = "vlamp",
    order: StepOrder = "file",
    by_task: bool = False,
    training: Training = "train+validation",
) -> Task:
    """CrossTask under `root`, cut for its test videos. Raises InputError."""
    release = read_release(root, order)
    tested = release.split("test")
    splits = ("train",) if training == "train" else ("train", "val")
    samples = cut_samples(tested, release.cards, protocol, rule)
    ids = ActionIds(release.taxonomy(by_task))
    calibration = calibrate(samples, ids, published("vpa"))
    return Task(
        samples=samples,
        cuts=[cut_at(one, cut) for one in tested for cut in range(len(one.steps))],
        training=[one for one in release.procedures if one.split in splits],
        ids=ids,
        calibration=calibration,
        protocol=protocol,
        settings={"rule": rule, "step order": order, "calibration": calibration.sentence, "training": training},
    )


def run_baseline(task: Task, name: str, seed: int = 0, draws: int = DRAWS) -> Result:
    """A baseline of `BASELINES`. Raises InputError for another name, and for a floor without training videos."""
    if name not in BASELINES:
        raise InputError(f"baseline {name!r} is unknown; known are {', '.join(BASELINES)}.")
    settings = task.settings | {"seed": str(seed)}
    plans: Iterator[Ids]
    if name in FLOORS:
        first = _floor(task, name)
        plans = iter([first])
    else:
        settings = {key: value for key, value in settings.items() if key != "training"} | {"draws": str(draws)}
        plans = random_plans(task.samples, task.ids, task.width, name == "random-goal", draws, seed)
        first = next(random_plans(task.samples, task.ids, task.width, name == "random-goal", 1, seed))
    scores = VpaScores(
        system=name,
        protocol=task.protocol,
        taxonomy=task.ids.taxonomy.name,
        history="oracle" if name.endswith("bigram") else "",
        horizons=score_plans(task.samples, task.ids, plans, HORIZONS, seed),
        settings=settings,
        supervised=name in FLOORS,
    )
    rows = [
        _row(task, one, MappedPlan(actions=task.ids.named(row)))
        for one, row in zip(task.samples, first.tolist(), strict=True)
    ]
    return Result(scores, rows)


def _floor(task: Task, name: str) -> Ids:
    if not task.training:
        raise InputError(f"baseline {name!r} is counted in training videos, and the lists name none; check splits/.")
    plans = floor_plans(
        next(floor for floor in FLOORS if floor == name), task.samples, task.training, task.ids.taxonomy, task.width
    )
    return task.ids.of(plans, task.width)


def run_predictions(
    task: Task,
    predictions: Sequence[Prediction],
    open_embed: Callable[[], Embed],
    system: str,
    history: str = "oracle",
    within_goal: bool = False,
    low_margin: float = LOW_MARGIN,
    settings: Mapping[str, str] | None = None,
    supervised: bool = False,
    seed: int = 0,
) -> Result:
    """A file of predictions, of which the first sample of each example counts: VPA scores one plan.

    A sample without a prediction is wrong at every position, and counted in `remap`. Raises InputError that names
    predictions for what is no cut of a test video.
    """
    matched = match_predictions([one.example() for one in task.samples], predictions, task.cuts)
    first: dict[str, Prediction] = {}
    for prediction in sorted(matched.predictions, key=lambda one: one.sample):
        first.setdefault(prediction.example_id, prediction)
    steps = {name: prediction.steps for name, prediction in first.items()}
    mapped = remap(task.samples, steps, task.ids.taxonomy, open_embed, task.width, within_goal, low_margin)
    plans = task.ids.of([plan.actions for plan in mapped.plans], task.width)
    left_out = {
        "further_samples": float(len(matched.predictions) - len(first)),
        "predictions_outside_the_protocol": float(matched.elsewhere),
    }
    scores = VpaScores(
        system=system,
        protocol=task.protocol,
        taxonomy=task.ids.taxonomy.name,
        history=history,
        horizons=score_plans(task.samples, task.ids, [plans], HORIZONS, seed),
        settings={key: value for key, value in task.settings.items() if key != "training"}
        | {"seed": str(seed), "admissible actions": "the goal's card" if within_goal else "all"}
        | dict(settings or {}),
        remap=mapped.measures | {name: count for name, count in left_out.items() if count},
        supervised=supervised,
        decoding=distinct_decodings(prediction.decoding for prediction in first.values()),
    )
    rows = [_row(task, one, plan) for one, plan in zip(task.samples, mapped.plans, strict=True)]
    return Result(scores, rows)


def _row(task: Task, sample: Sample, plan: MappedPlan) -> JsonObject:
    """One sample as the pages of a report show it."""
    gold = [task.ids.taxonomy.action(step, sample.goal) for step in sample.target[: task.width]]
    predicted = list(plan.actions[: len(gold)])
    return {
        "sample_id": sample.sample_id,
        "video_id": sample.video_id,
        "goal": sample.goal,
        "history": list(sample.history),
        "gold": gold,
        "predicted": predicted,
        "steps": list(plan.steps),
        "similarities": list(plan.similarities),
        "margins": list(plan.margins),
        "correct": [place < len(predicted) and predicted[place] == one for place, one in enumerate(gold)],
        "missing": plan.missing,
        "horizons": list(sample.horizons),
    }


class ReferenceRow(NamedTuple):
    """One row, in percent."""

    group: str
    system: str
    figures: dict[str, float]
    """By the keys of the published columns, `horizon.measure`."""
    published: bool = False
    """Printed in the paper, and not computed here."""


class References(NamedTuple):
    """Rows beside a result, and whether they may be compared."""

    rows: list[ReferenceRow]
    calibration: Calibration
    columns: PublishedTable


def references(task: Task, scores: VpaScores) -> References:
    """Chance in exact expectation, floors that the result is not itself, and the published table."""
    table = published("vpa")
    keys = [column.key for column in table.columns]
    rows = [
        ReferenceRow("chance", name, expected_figures(task.samples, task.ids, keys, with_goal))
        for name, with_goal in (("random, expected", False), ("random-goal, expected", True))
    ]
    for name in _FLOORS if task.training else ():
        if name != scores.system:
            figures = figures_of(score_plans(task.samples, task.ids, [_floor(task, name)], HORIZONS))
            rows.append(ReferenceRow("floor", name, {key: figures[key] for key in keys if key in figures}))
    for row in table.rows:
        figures = {key: value for key, value in zip(keys, row.values, strict=True) if value is not None}
        rows.append(ReferenceRow(row.group, row.name, figures, published=True))
    return References(rows, task.calibration, table)


def figures_of(horizons: Iterable[HorizonScores]) -> dict[str, float]:
    """The means of a result by `horizon.measure`."""
    return {
        f"{one.horizon}.{name}": value.mean
        for one in horizons
        for name, value in (("success_rate", one.success_rate), ("accuracy", one.accuracy), ("iou", one.iou))
    }
