"""Measures of plans: what a measure is, and the scores that its rows make.

A measure is one class in one file. It gives each plan a row of metrics; commands, comparisons, reports and the board do
the rest. A package of its own adds one by an entry point (docs/evaluation.md):

    [project.entry-points."recipe.measures"]
    steps = "my_package:StepsMeasure"

A figure is the mean over the rows of a plan first, then over the samples of an example, then over examples; that of a
split is the mean over its datasets. Intervals draw whole videos, or whole goals.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from recipe.data.roles import ROLES, in_order, role_of
from recipe.errors import InputError, listed
from recipe.evaluation.judge.plans import EMPTY, MISSING, SHORTENED, Missing
from recipe.evaluation.metrics import (
    CONTROL,
    METRICS,
    Difference,
    control_sentences,
    metric_cell,
    ordered_metrics,
    readings_table,
    regime_colours,
)
from recipe.evaluation.scores import READINGS, Counts, Group, PlanId, Row, Scores, read_rows
from recipe.models.sampling import Decoding, distinct_decodings
from recipe.planning.prediction_files import match_predictions
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.report.elements import NONE, Cell, Figure, Section, Table, headings, row
from recipe.stats import Interval, macro_intervals, paired_interval, video_of
from recipe.types import Example

ALL = "all"
"""The split of every dataset, where some are none of the paper's."""
_MISSING: dict[str, Literal[0, 1] | None] = dict(zip(READINGS, (0, None, 1), strict=True))
Values = dict[PlanId, dict[str, float]]
"""The metrics of each plan."""


class Measure:
    """How good plans are, by one definition: the base class of all measures, with what most of them share."""

    name: ClassVar[str]
    """Of the command and in files of scores, at most 16 characters."""
    title: ClassVar[str]
    """In tables."""
    about: ClassVar[str] = ""
    """What the figures say, for the report."""
    main: ClassVar[str]
    """The metric that systems are ranked by."""
    compared: ClassVar[tuple[str, ...]] = ()
    """Metrics that a comparison shows unless others are asked for; empty for the main one."""
    further: ClassVar[tuple[str, ...]] = ()
    """Metrics on a board besides the main one; empty for all."""
    unit: ClassVar[Literal["%", ""]] = ""
    digits: ClassVar[int] = 2
    """Of the main metric."""
    scale: ClassVar[tuple[float, float] | None] = None
    """Least and highest value of the main metric, where there are."""
    cluster: ClassVar[Literal["video", "goal"]] = "video"
    """What intervals draw whole."""
    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """(worst, best) of metrics that a plan may lack: bounds for a missing value."""
    controls: ClassVar[tuple[str, ...]] = ()
    """Controls in the order of tables; others follow as they come."""
    of_examples: ClassVar[bool] = True
    """Whether rows are of the examples that were given: not of pairs of plans, or of samples that it cuts itself."""
    beats_controls: ClassVar[bool] = False
    """Whether a system that is any good scores more than each control."""

    def __init__(self) -> None:
        # JSON values in which two evaluations must agree for a comparison.
        self.identity: dict[str, Any] = {}
        self.settings: dict[str, str] = {}

    @classmethod
    def open(cls, settings: Any, embed: Callable[[], Any], model: Any = None) -> "Measure":
        """The measure with the settings of a board or of validation; `embed` opens their encoder.

        `model` is that of a judge, None where none is asked. Raises InputError for settings that it cannot be opened
        with.
        """
        return cls()

    def knows(self, example: Example) -> bool:
        """Whether this measure can be taken of plans for the example."""
        return True

    def require(self, examples: Sequence[Example]) -> None:
        """Raise InputError for examples that this measure cannot be taken of."""

    def rows(
        self, examples: Sequence[Example], predictions: Sequence[Prediction], progress: Progress = SILENT
    ) -> list[Row]:
        """A row for each prediction, each of which is for one of the examples."""
        raise NotImplementedError

    def extras(self, rows: Sequence[Row], seed: int) -> dict[str, Any]:
        """What this measure alone says of the rows, as JSON values."""
        return {}

    def findings(self, rows: Sequence[Row], examples: Sequence[Example], seed: int) -> list[str]:
        """Sentences about the rows, such as what the controls say of a judge."""
        return []

    @classmethod
    def cluster_of(cls, example: Example) -> str:
        """What an interval draws whole with this example."""
        return example.goal if cls.cluster == "goal" else video_of(example)

    @classmethod
    def plan_values(cls, rows: Iterable[Row], missing: Literal[0, 1] | None = None) -> Values:
        """The metrics of each plan, means over its rows.

        What a row lacks counts as the worst value with `missing` 0, as the best with 1, and not at all without it; a
        plan without a value is then left out.
        """
        grouped: dict[PlanId, list[dict[str, float]]] = {}
        for measured in rows:
            known = grouped.setdefault(measured.plan, [])
            if not measured.unscored:
                known.append(measured.metrics)
            elif missing is not None:
                known.append({name: bounds[missing] for name, bounds in cls.bounds.items()})
        return {plan: means_of(known) for plan, known in grouped.items() if known}

    @classmethod
    def read_rows(cls, path: Path) -> list[Row]:
        """The rows of a file. Raises InputError with file, line, field and remedy."""
        return read_rows(path)

    @classmethod
    def cell(cls, metric: str, value: Interval | float | None, signed: bool = False) -> Cell:
        """A value of a metric, or a difference of two, as tables show it."""
        if metric == cls.main and metric not in METRICS:
            return Cell(value, cls.digits, signed=signed)
        return metric_cell(value, metric, signed)

    @classmethod
    def metric_title(cls, metric: str) -> str:
        """A metric in words."""
        words = METRICS.get(metric) or (cls.title if metric == cls.main else metric.replace("_", " "))
        return f"{words}, %" if metric == cls.main and cls.unit else words

    @classmethod
    def sections(cls, scores: Sequence[Scores], every: Sequence[Scores]) -> list[Section]:
        """The part of a report on this measure, of which there are scores; `every` are all scores of the report."""
        title = cls.title[:1].upper() + cls.title[1:]
        settings = dict.fromkeys(name for scored in scores for name in scored.settings)
        described = tuple(
            row(scored.system, *(scored.settings.get(name, NONE) for name in settings)) for scored in scores
        )
        return [
            Section(
                name=cls.name,
                title=title,
                short=title,
                paragraphs=(f"{cls.about} Intervals are 95%, clustered by {cls.cluster}.".strip(),),
                blocks=(
                    *cls.group_tables(scores, title),
                    *cls.figures(scores),
                    *([Table("Settings", "system", headings(*settings), described, folded=True)] if settings else []),
                ),
                findings=tuple(dict.fromkeys(sentence for scored in scores for sentence in scored.findings)),
            )
        ]

    @classmethod
    def group_tables(cls, scores: Sequence[Scores], caption: str) -> list[Table]:
        """Every metric of every group, and the readings of the main one where verdicts are missing."""
        metrics = ordered_metrics(name for scored in scores for group in scored.groups for name in group.values)
        groups = [(scored, group) for scored in scores for group in scored.distinct]
        judged, against = scores[0].judge is not None, any(group.difference for _, group in groups)
        rows = []
        for scored, group in groups:
            cells = [cls.cell(name, group.values.get(name)) for name in metrics]
            cells += [cls.cell(cls.main, group.difference, signed=True)] if against else []
            counts = (group.counts.plans, group.counts.unscored, group.counts.missing)
            judge = [scored.judge.name] if scored.judge else []
            if group.kind == "control":
                over = f"with {scored.system}"
                rows.append(row(_group_title(group), *judge, over, *cells, *counts, kind="control"))
            else:
                rows.append(row(scored.system, *judge, _group_title(group), *cells, *counts))
        columns = [*(["judge"] if judged else []), "over", *map(cls.metric_title, metrics)]
        columns += [*(["system minus control"] if against else []), "plans", "unscored", "missing"]
        read = [(f"{scored.system}, {_group_title(group)}", group.readings) for scored, group in groups]
        table = Table(caption, "system", headings(*columns), tuple(rows), about="95% interval below")
        return [table, *readings_table(caption, read, cls.digits)]

    @classmethod
    def figures(cls, scores: Sequence[Scores]) -> list[Figure]:
        """The main metric of each group with its interval; none where no plan has a value."""
        from recipe.report.plots import Mark, inline_svg, intervals  # noqa: PLC0415 - matplotlib is for reports alone

        marks = [
            Mark(_group_title(group), value, "" if group.kind == "control" else scored.system)
            for scored in scores
            for group in scored.distinct
            if (value := group.values.get(cls.main)) is not None
        ]
        if not marks:
            return []
        caption = f"{cls.title[:1].upper()}{cls.title[1:]}: mean and 95% interval."
        colours = regime_colours(scored.system for scored in scores)
        drawn = intervals(marks, colours=colours, xlim=cls.scale, unit="percent" if cls.unit else "")
        return [Figure(inline_svg(drawn, cls.name, caption), caption)]


class PlanSelection(NamedTuple):
    """The plans to measure, and what was left out."""

    examples: list[Example]
    predictions: list[Prediction]
    """In the order of the examples; an empty one for each example without any."""
    missing: frozenset[str]
    """Ids of the examples without a prediction."""
    other_splits: int
    """Predictions for examples of other splits, left out."""

    def of(self, examples: Sequence[Example], missing: Missing = "zero") -> "PlanSelection":
        """The plans of some of the examples. Raises InputError for missing ones where those are refused."""
        names = {example.example_id for example in examples}
        lost = [example.example_id for example in examples if example.example_id in self.missing]
        if lost and missing == "refuse":
            problem = f"{len(lost)} of {len(examples)} examples have no prediction: {listed(lost)}"
            raise InputError(f"{problem}; plan for them, or let them count as empty plans.")
        own = [prediction for prediction in self.predictions if prediction.example_id in names]
        return self._replace(examples=[*examples], predictions=own, missing=frozenset(lost))

    def first(self) -> "PlanSelection":
        """The first sample of each example alone."""
        first: dict[str, Prediction] = {}
        # The lowest number, whatever the order of the file.
        for prediction in sorted(self.predictions, key=lambda prediction: prediction.sample):
            first.setdefault(prediction.example_id, prediction)
        return self._replace(predictions=[*first.values()])

    @property
    def decoding(self) -> tuple[Decoding, ...]:
        """How the plans were sampled; empty where that is not known."""
        return distinct_decodings(
            prediction.decoding for prediction in self.predictions if prediction.example_id not in self.missing
        )


def select_plans(
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    known: Sequence[Example] | None = None,
    missing: Missing = "zero",
) -> PlanSelection:
    """The plans of `examples`; `known` are all that may have been planned for.

    Raises InputError for predictions for unknown examples, and for missing ones where those are refused.
    """
    matched = match_predictions(examples, predictions, known)
    planned: dict[str, list[Prediction]] = {example.example_id: [] for example in examples}
    for prediction in matched.predictions:
        planned[prediction.example_id].append(prediction)
    plans = [plan for name, some in planned.items() for plan in some or [Prediction(name, ())]]
    return PlanSelection([*examples], plans, frozenset(matched.missing), matched.elsewhere).of(examples, missing)


def measured_rows(measure: Measure, selection: PlanSelection, progress: Progress = SILENT) -> list[Row]:
    """The rows of the selected plans, with what every row has: the cluster, the steps, and the flags."""
    clusters = {example.example_id: measure.cluster_of(example) for example in selection.examples}
    steps = {(prediction.example_id, prediction.sample): prediction.steps for prediction in selection.predictions}
    rows = []
    for measured in measure.rows(selection.examples, selection.predictions, progress):
        own = steps.get((measured.example_id, measured.sample), ())
        flags = list(measured.details.get("flags", ()))
        if not measured.control and measured.example_id in selection.missing:
            flags = [MISSING, *flags]
        elif not measured.control and not own:
            flags = [EMPTY, *flags]
        details = {"steps": list(own)} if not measured.control else {}
        details |= measured.details | ({"flags": flags} if flags else {})
        rows.append(replace(measured, cluster=measured.cluster or clusters[measured.example_id], details=details))
    return rows


def summarise(
    measure: Measure,
    system: str,
    rows: Sequence[Row],
    examples: Iterable[Example],
    seed: int = 0,
    ledger: Mapping[str, float | None] | None = None,
    left_out: Mapping[str, int] | None = None,
    decoding: tuple[Decoding, ...] = (),
) -> Scores:
    """The scores that rows make; `examples` hold those of the rows, and `seed` draws the intervals.

    Raises ComputeError for a value that is not finite, and as `extras` of the measure does.
    """
    by_id = {example.example_id: example for example in examples}
    own = [row for row in rows if not row.control]
    sources = in_order({by_id[row.example_id].source for row in own})
    overall = _group(measure, "", "all", own, by_id, seed)
    values = measure.plan_values(own)
    # A split is a mean over datasets that have a value.
    scored = {by_id[plan.example_id].source for plan in values}
    groups: list[Group] = []
    alone = len(sources) == 1  # then all plans are those of the dataset and of its split
    for name in sources:
        of_dataset = [row for row in own if by_id[row.example_id].source == name]
        group = overall if alone else _group(measure, name, "dataset", of_dataset, by_id, seed)
        groups.append(replace(group, name=name, kind="dataset"))
    others = not all(map(role_of, scored))
    for split in (*ROLES, *([ALL] if others else [])):
        if datasets := tuple(sorted(name for name in scored if split in (role_of(name), ALL))):
            of_split = [row for row in own if split in (role_of(by_id[row.example_id].source), ALL)]
            group = overall if alone else _group(measure, split, "split", of_split, by_id, seed)
            groups.append(replace(group, name=split, kind="split", datasets=datasets))
    groups.append(overall)
    names = dict.fromkeys(row.control for row in rows if row.control)
    order = {name: number for number, name in enumerate(measure.controls)}
    for name in sorted(names, key=lambda name: order.get(name, len(order))):
        control = [row for row in rows if row.control == name]
        group = _group(measure, name, "control", control, by_id, seed)
        if measure.beats_controls:
            ours, theirs = example_means(values), example_means(measure.plan_values(control))
            if both := [name for name in ours if name in theirs]:
                first, second = ([side[name][measure.main] for name in both] for side in (ours, theirs))
                clusters = [measure.cluster_of(by_id[name]) for name in both]
                group = replace(group, difference=paired_interval(first, second, clusters, seed))
        groups.append(group)
    samples = Counter(plan.example_id for plan in {row.plan for row in own})
    skipped = {name: count for name, count in (left_out or {}).items() if count}
    extras = {"samples": min(samples.values(), default=0), "left_out": skipped} | measure.extras(rows, seed)
    findings = measure.findings(rows, [*by_id.values()], seed)
    if measure.beats_controls:
        differences = [
            Difference("", system, group.name, measure.main, group.difference) for group in groups if group.difference
        ]
        findings = [*control_sentences(differences), *findings]
    return Scores(
        measure=measure.name,
        system=system,
        identity=measure.identity,
        groups=tuple(groups),
        settings=measure.settings,
        ledger=dict(ledger or {}),
        findings=tuple(findings),
        extras=extras,
        decoding=decoding,
    )


def _group(
    measure: Measure,
    name: str,
    kind: Literal["dataset", "split", "all", "control"],
    rows: Sequence[Row],
    by_id: Mapping[str, Example],
    seed: int,
) -> Group:
    """The figures of some rows."""
    values = measure.plan_values(rows)
    lost = any(row.unscored for row in rows) and measure.main in measure.bounds
    read: dict[str, Interval] = {}
    for reading, missing in _MISSING.items() if lost else ():
        means = {
            example: {measure.main: metrics[measure.main]}
            for example, metrics in example_means(measure.plan_values(rows, missing)).items()
        }
        if means:
            read[reading] = _intervals(measure, means, kind == "split", by_id, seed)[measure.main]
    # Example by example, so that one with more samples weighs no more (paper, section 4.1).
    means = example_means(values)
    plans: dict[PlanId, Row] = {}
    for measured in rows:
        plans.setdefault(measured.plan, measured)
    # Of plans and not of rows: a plan with three verdicts is missing once.
    flags = Counter(flag for row in plans.values() for flag in set(row.details.get("flags", ())))
    videos = {(by_id[plan.example_id].source, by_id[plan.example_id].video_id) for plan in values}
    counts = Counts(
        plans=len(values),
        videos=sum(bool(video) for _, video in videos),
        # With each missing value as the worst one, every plan has a value.
        unscored=len(measure.plan_values(rows, 0)) - len(values),
        missing=flags[MISSING],
        empty=flags[EMPTY],
        shortened=flags[SHORTENED],
    )
    return Group(name, kind, _intervals(measure, means, kind == "split", by_id, seed), counts, read)


def _intervals(
    measure: Measure, means: Mapping[str, Mapping[str, float]], macro: bool, by_id: Mapping[str, Example], seed: int
) -> dict[str, Interval]:
    """The mean of each metric over the examples that have it; with `macro` over datasets of their means."""
    together: dict[tuple[str, ...], list[str]] = {}
    for name in dict.fromkeys(name for metrics in means.values() for name in metrics):
        together.setdefault(tuple(example for example, metrics in means.items() if name in metrics), []).append(name)
    intervals: dict[str, Interval] = {}
    for known, names in together.items():
        own = [by_id[example] for example in known]
        # One call for all metrics: they share the draws of the bootstrap.
        table = np.array([[means[example][name] for example in known] for name in names])
        datasets = [row.source if macro else "" for row in own]
        intervals |= zip(
            names, macro_intervals(table, datasets, [measure.cluster_of(row) for row in own], seed), strict=True
        )
    return {name: intervals[name] for name in dict.fromkeys(name for metrics in means.values() for name in metrics)}


def means_of(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric over the rows that have it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: fmean([row[name] for row in rows if name in row]) for name in names}


def example_means(values: Values) -> dict[str, dict[str, float]]:
    """The metrics of each example, means over its samples."""
    samples: dict[str, list[dict[str, float]]] = {}
    for plan, means in values.items():
        samples.setdefault(plan.example_id, []).append(means)
    return {name: means_of(own) for name, own in samples.items()}


def _group_title(group: Group) -> str:
    """A group as tables show it."""
    if group.kind == "split":
        return f"macro: {group.name}"
    if group.kind == "control":
        return CONTROL + group.name
    return group.name or ("all plans" if group.kind == "all" else "no dataset")


def terminal_tables(kind: type[Measure], scores: Scores, rows: str = "") -> list[Table]:
    """The scores as a terminal shows them; `rows` is the name of the file of rows, if it is written."""
    groups, against = scores.distinct, any(group.difference for group in scores.groups)
    by = f", judged by {scores.judge.name}" if scores.judge else ""
    repeats = scores.extras.get("repeats", 1)
    by += f", {repeats} verdicts each" if repeats > 1 else ""
    extra = ["system minus control"] if against else ["unscored"]
    first = Table(
        caption=f"{scores.system}{by}: {kind.metric_title(kind.main)}",
        first="over",
        headings=headings("mean", "95% interval", "plans", *extra),
        rows=tuple(
            row(
                _group_title(group),
                *kind.cell(kind.main, group.values.get(kind.main)).split(),
                group.counts.plans,
                kind.cell(kind.main, group.difference, signed=True) if against else group.counts.unscored,
                section="controls" if group.kind == "control" else "",
            )
            for group in groups
        ),
    )
    read = readings_table(kind.title, [(_group_title(group), group.readings) for group in groups], kind.digits)

    # Lines below the tables: counts, what was left out, findings, settings, cost.
    counts, samples = scores.overall.counts, scores.extras.get("samples", 1)
    notes = []
    if examples := max((value.observations for value in scores.overall.values.values()), default=0):
        notes.append(f"{examples:,} examples, {samples} {'samples' if samples > 1 else 'sample'} each.")
    if counts.missing or counts.empty:
        notes.append(f"Scored by rule: {counts.missing:,} missing and {counts.empty:,} empty.")
    if counts.shortened:
        notes.append(f"{counts.shortened:,} plans were read shortened.")
    if counts.unscored:
        reasons = f": {rows} holds the reasons" if rows else ""
        notes.append(f"{counts.unscored:,} are unscored, which is not 0{reasons}.")
    if left_out := scores.extras["left_out"]:
        notes.append(f"Not measured: {', '.join(f'{count:,} of {name}' for name, count in left_out.items())}.")
    notes += scores.findings
    for control in scores.of("control"):
        if control.difference and control.difference.observations < counts.plans:
            notes.append(f"The control {control.name!r} exists for {control.counts.plans:,} plans.")
    notes += (f"{name}: {value}" for name, value in scores.settings.items())
    spent = [
        f"{name.replace('_', ' ')} {f'{value:,.4f}' if isinstance(value, float) else f'{value:,}'}"
        for name, value in scores.ledger.items()
        if value is not None
    ]
    if spent:
        notes.append(f"Asked: {', '.join(spent)}.")

    names = [name for name in ordered_metrics(scores.overall.values) if name != kind.main]
    if not names:
        return [*read, replace(first, notes=tuple(notes))]
    second = Table(
        caption="Further metrics of all plans",
        first="metric",
        headings=headings("mean", "95% interval"),
        rows=tuple(
            row(kind.metric_title(name), *kind.cell(name, scores.overall.values[name]).split()) for name in names
        ),
        notes=tuple(notes),
    )
    return [first, *read, second]
