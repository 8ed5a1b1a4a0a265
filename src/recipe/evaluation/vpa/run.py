"""One evaluation on VPA: the task, a baseline or predictions, their scores and rows, and the rows to read them against.

Numbers of procedure planning (PDPP, SCHEMA, ViterbiPlanNet and others) are of another task, which is given the goal's
picture and windows of exactly T actions; they are in no table here.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from recipe.data.supervision import cut_at
from recipe.errors import InputError
from recipe.evaluation.judge.plans import MISSING
from recipe.evaluation.measures import Measure
from recipe.evaluation.metrics import regime_colours
from recipe.evaluation.published import published
from recipe.evaluation.scores import Row, Scores
from recipe.evaluation.vpa.baselines import (
    DRAWS,
    FLOORS,
    Calibration,
    Floor,
    expected_figures,
    floor_plans,
    random_plans,
)
from recipe.evaluation.vpa.measures import MEASURES, ActionIds, Ids, measure_plans
from recipe.evaluation.vpa.protocol import HORIZONS, Sample, cut_samples, read_release
from recipe.evaluation.vpa.remap import LOW_MARGIN, MappedPlan, remap
from recipe.planning.admissible import Embed
from recipe.planning.prediction_files import match_predictions
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.report.elements import Cell, Figure, Section, Table, headings, row
from recipe.stats import Interval
from recipe.types import Example, Procedure

Chance = Literal["random", "random-goal"]
BASELINES: tuple[str, ...] = (*get_args(Chance), *FLOORS)
"""Baselines without a model: plans by chance, and floors that are counted in training videos."""
Training = Literal["train", "train+validation"]
WIDTH = max(HORIZONS)
"""Actions of a plan that count."""
# Floors that are shown with a result.
_FLOORS: tuple[Floor, ...] = ("goal-unigram", "goal-bigram")


@dataclass(frozen=True, slots=True)
class VpaTask:
    """The samples to plan for, and how they were cut."""

    samples: list[Sample]
    cuts: list[Example]
    """Every cut of the tested videos: predictions may be for more than the samples."""
    training: list[Procedure]
    """Videos that floors are counted in."""
    ids: ActionIds
    calibration: Calibration
    settings: dict[str, str]

    def floor(self, name: str) -> Ids:
        """The plans of a floor [samples, T]. Raises InputError where there are no training videos."""
        if not self.training:
            raise InputError(
                f"baseline {name!r} is counted in training videos, and the lists name none; check splits/."
            )
        chosen = next(known for known in FLOORS if known == name)
        return self.ids.of(floor_plans(chosen, self.samples, self.training, self.ids.taxonomy, WIDTH), WIDTH)

    def references(self, system: str) -> list["ReferenceRow"]:
        """Chance in exact expectation, floors that the result is not itself, and the published table."""
        table = published("vpa")
        keys = [column.key for column in table.columns]
        rows = [
            ReferenceRow("chance", name, expected_figures(self.samples, self.ids, keys, with_goal))
            for name, with_goal in (("random, expected", False), ("random-goal, expected", True))
        ]
        for name in _FLOORS if self.training else ():
            # A floor that is the result itself is not shown beside it.
            if name != system:
                measured = measure_plans(self.samples, self.ids, [self.floor(name)])
                figures = {key: float(np.mean([metrics[key] for metrics in measured])) for key in keys}
                rows.append(ReferenceRow("floor", name, figures))
        for line in table.rows:
            figures = {key: value for key, value in zip(keys, line.values, strict=True) if value is not None}
            rows.append(ReferenceRow(line.group, line.name, figures, published=True))
        return rows


def open_task(root: Path | str, training: Training = "train+validation") -> VpaTask:
    """CrossTask under `root`, cut for its test videos. Raises InputError."""
    release = read_release(root)
    tested = release.split("test")
    splits = ("train",) if training == "train" else ("train", "val")
    samples = cut_samples(tested, release.cards)
    ids = ActionIds(release.taxonomy())
    calibration = Calibration.of(samples, ids, published("vpa"))
    return VpaTask(
        samples=samples,
        cuts=[cut_at(procedure, cut) for procedure in tested for cut in range(len(procedure.steps))],
        training=[procedure for procedure in release.procedures if procedure.split in splits],
        ids=ids,
        calibration=calibration,
        settings={"calibration": calibration.sentence, "training": training},
    )


class VpaMeasure(Measure):
    """The first T actions of a plan against those of the video, as Visual Planning for Assistance has it."""

    name = "vpa"
    title = "visual planning for assistance"
    about = (
        "SR is the share of samples whose first T actions all equal the reference in order, mAcc the share of "
        "positions that do. mIoU here is per sample: the intersection over the union of the sets of predicted and "
        "reference actions of one sample, then the mean over samples. The paper does not define its mIoU, and "
        "published code computes four different quantities under that name: rows of different origin may not be "
        "comparable in it."
    )
    main = "3.accuracy"
    compared = ("1.accuracy", *(f"{horizon}.{name}" for horizon in (3, 4) for name in MEASURES))
    further = tuple(f"{horizon}.{name}" for horizon in HORIZONS for name in MEASURES)
    unit = "%"
    digits = 1
    of_examples = False

    def __init__(
        self,
        task: VpaTask,
        embed: Callable[[], Embed],
        encoder: str = "",
        history: str = "oracle",
        within_goal: bool = False,
        low_margin: float = LOW_MARGIN,
        supervised: bool = False,
    ) -> None:
        """`embed` opens the encoder of this name, which maps steps that are no actions; empty for a baseline."""
        super().__init__()
        self.task, self._embed, self._within_goal, self._low_margin = task, embed, within_goal, low_margin
        self._extras: dict[str, Any] = {"supervised": supervised}
        held = {"encoder": encoder} if encoder else {}
        # One sample set serves every T, the end of a video is an action, and steps are in the order of the file.
        cut = {"rule": "vlamp", "step order": "file"}
        self.identity = {"protocol": "shared", "taxonomy": str(len(task.ids.taxonomy.actions)), **cut, **held}
        self.settings = {"history": history, **task.settings}
        if encoder:
            # Only floors are counted in training videos.
            del self.settings["training"]
            self.settings["admissible actions"] = "the goal's card" if within_goal else "all"

    @classmethod
    def open(cls, settings: Any, embed: Callable[[], Embed], model: Any = None) -> "VpaMeasure":
        return cls(open_task(settings.root), embed, settings.encoder)

    def require(self, examples: Sequence[Example]) -> None:
        if [sample.sample_id for sample in self.task.samples] != [example.example_id for example in examples]:
            problem = "the examples are not the samples of VPA's protocol"
            raise InputError(f"{problem}; make them by `recipe vpa examples` from the same CrossTask.")

    def rows(
        self, examples: Sequence[Example], predictions: Sequence[Prediction], progress: Progress = SILENT
    ) -> list[Row]:
        """A row for each sample of the task, which the examples have to be; its first prediction counts.

        A sample without a prediction is wrong at every position. Raises InputError for other examples, and for
        predictions for what is no cut of a test video.
        """
        self.require(examples)
        task = self.task
        matched = match_predictions(examples, predictions, task.cuts)
        first: dict[str, Prediction] = {}
        for prediction in sorted(matched.predictions, key=lambda item: item.sample):
            first.setdefault(prediction.example_id, prediction)
        steps = {name: prediction.steps for name, prediction in first.items()}
        mapped, measured = remap(
            task.samples, steps, task.ids.taxonomy, self._embed, self._within_goal, self._low_margin
        )
        left_out = {
            "further_samples": float(len(matched.predictions) - len(first)),
            "predictions_outside_the_protocol": float(matched.elsewhere),
        }
        self._extras["remap"] = measured | {name: count for name, count in left_out.items() if count}
        plans = task.ids.of([plan.actions for plan in mapped], WIDTH)
        return self._rows([plans], mapped)

    def baseline_rows(self, name: str, seed: int = 0, draws: int = DRAWS) -> list[Row]:
        """A row for each sample of a baseline of `BASELINES`; for several draws the means, with the first plan.

        Raises InputError for another name, and for a floor without training videos.
        """
        task = self.task
        plans: Iterator[Ids]
        if name not in BASELINES:
            raise InputError(f"baseline {name!r} is unknown; known are {', '.join(BASELINES)}.")
        if name in FLOORS:
            first = task.floor(name)
            plans = iter([first])
        else:
            plans = random_plans(task.samples, task.ids, WIDTH, name == "random-goal", draws, seed)
            # The first of these draws again, which the same seed gives, so that none is taken from them.
            first = next(random_plans(task.samples, task.ids, WIDTH, name == "random-goal", 1, seed))
        return self._rows(plans, [MappedPlan(actions=task.ids.named(own)) for own in first.tolist()])

    def _rows(self, draws: Iterable[Ids], plans: Sequence[MappedPlan]) -> list[Row]:
        measured = measure_plans(self.task.samples, self.task.ids, draws)
        rows = []
        for sample, plan, metrics in zip(self.task.samples, plans, measured, strict=True):
            gold = sample.target[:WIDTH]
            details = {
                "goal": sample.goal,
                "history": list(sample.history),
                "gold": list(gold),
                "predicted": list(plan.actions[: len(gold)]),
                "steps": list(plan.steps),
                "similarities": list(plan.similarities),
                "margins": list(plan.margins),
                "flags": [MISSING] if plan.missing else [],
            }
            rows.append(Row(sample.sample_id, metrics, cluster=self.cluster_of(sample.example()), details=details))
        return rows

    def extras(self, rows: Sequence[Row], seed: int) -> dict[str, Any]:
        """What is to be known of the mapping, and whether the planner was supervised."""
        return self._extras

    @classmethod
    def metric_title(cls, metric: str) -> str:
        horizon, _, name = metric.partition(".")
        return f"{ {'success_rate': 'SR', 'accuracy': 'mAcc', 'iou': 'mIoU'}.get(name, name) }, T={horizon}"

    @classmethod
    def cell(cls, metric: str, value: Interval | float | None, signed: bool = False) -> Cell:
        return Cell(value, cls.digits, signed=signed)

    @classmethod
    def sections(cls, scores: Sequence[Scores], every: Sequence[Scores]) -> list[Section]:
        """Adds the published rows and the mapping of steps."""
        from recipe.evaluation.scoreboard.accuracy import published_table  # noqa: PLC0415

        [section] = super().sections(scores, every)
        tables = [published_table(published("vpa"), "Published results on CrossTask")]
        if remapped := dict.fromkeys(name for scored in scores for name in scored.extras.get("remap", {})):
            cells = ((Cell(scored.extras.get("remap", {}).get(name), 3) for name in remapped) for scored in scores)
            own = tuple(row(scored.system, *line) for scored, line in zip(scores, cells, strict=True))
            tables.append(Table("Mapping steps to actions", "system", headings(*remapped), own, folded=True))
        warnings = []
        for scored in scores:
            if scored.settings["history"] == "oracle":
                warnings.append(
                    f"{scored.system} read the true history; published systems read a history from the video."
                )
            if (sentence := scored.settings.get("calibration", "")) and not sentence.startswith("calibrated"):
                warnings.append(f"{scored.system}: {sentence}.")
        if len({scored.identity["taxonomy"] for scored in scores}) > 1:
            warnings.append("The systems differ in their number of actions: rows that differ there are not comparable.")
        return [replace(section, blocks=(*section.blocks, *tables), warnings=tuple(warnings))]

    @classmethod
    def figures(cls, scores: Sequence[Scores]) -> list[Figure]:
        """Mean accuracy at each horizon, with the published rows that calibrate the protocol or lead the table."""
        from recipe.report.plots import Mark, inline_svg, intervals  # noqa: PLC0415 - matplotlib is for reports alone

        keys, marks = [column.key for column in published("vpa").columns], []
        for key in (f"{horizon}.accuracy" for horizon in HORIZONS):
            name = f"T={key.partition('.')[0]}"
            marks += [Mark(name, scored.overall.values.get(key), scored.system) for scored in scores]
            if key in keys:
                values = [own.values[keys.index(key)] for own in published("vpa").rows if own.group == "zero-shot"]
                marks += [Mark(name, Interval(value), hollow=True) for value in values if value is not None]
        drawn = intervals(marks, colours=regime_colours(scored.system for scored in scores), unit="mAcc, percent")
        caption = "Mean accuracy by horizon, 95% interval; grey: the published zero-shot rows."
        return [Figure(inline_svg(drawn, "vpa", caption), caption)]


class ReferenceRow(NamedTuple):
    """One row, in percent."""

    group: str
    system: str
    figures: dict[str, float]
    """By the keys of the published columns, `horizon.measure`."""
    published: bool = False
    """Printed in the paper, and not computed here."""
