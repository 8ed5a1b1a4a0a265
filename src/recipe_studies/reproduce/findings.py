"""From measured plans to figures with intervals over seeds and prompts, and what becomes of each claim of the paper."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from recipe.artifacts import read_json, read_jsonl
from recipe.data.examples import read_examples
from recipe.data.roles import TITLES, role_of
from recipe.errors import ComputeError
from recipe.evaluation.metrics import CONTROL, Difference, control_sentences
from recipe.evaluation.published import published
from recipe.evaluation.scores import READINGS
from recipe.evaluation.validity.readings import PlanLine
from recipe.models.sampling import decoding_note, distinct_decodings
from recipe.planning.prediction_files import read_predictions
from recipe.planning.vidassist.trace import count_sentences, manifest_of
from recipe.report.numbers import format_signed
from recipe.stats import LEVEL, Interval, seeded_interval, video_of
from recipe_studies.experiments.results import ShownPlan, ShownPrompt
from recipe_studies.reproduce.data import PROMPTS
from recipe_studies.reproduce.expand import VPA_SAMPLES, Run, ScaleRuns
from recipe_studies.reproduce.measures import BOUNDS, CONTROLS, FLOOR_ROWS, Scoring
from recipe_studies.reproduce.study import CONTROL_REGIMES, regime
from recipe_studies.reproduce.tables import FRONTIER, IN_DOMAIN, SHOWN_PROMPTS, SPLITS, ZERO_SHOT, Claim, PaperTable

Verdict = Literal["holds", "does not hold", "cannot tell", "not measured"]
Array = NDArray[np.float64]

WORLD_SPLITS = {"test_cuts": IN_DOMAIN, "test_goals": ZERO_SHOT}
"""The world's held-out cut points are of goals that are trained on, its held-out goals are not."""
ACCURACY, VPA_MAIN = "accuracy", "3.accuracy"


@dataclass(frozen=True, slots=True)
class MeasuredFigure:
    """One measured number of a table."""

    regime: str
    column: str
    """A dataset, a split, `diversity`, or `horizon.measure`."""
    value: Interval
    seeds: tuple[float, ...] = ()
    """Mean of each seed."""
    published: float | None = None
    readings: dict[str, Interval] = field(default_factory=dict)
    """The figure where verdicts of its table are missing (see `evaluation.scores`); empty where none is."""


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """A claim of the paper, and what the measured difference says of it."""

    table: str
    sentence: str
    source: str
    column: str
    verdict: Verdict
    difference: Interval | None = None
    """First regime minus second."""
    margin: float = 0.0

    @property
    def words(self) -> str:
        """The claim and what becomes of it here, in one sentence."""
        where = f" ({self.column})" if self.column else ""
        if self.difference is None:
            return f"{self.sentence}{where}: not measured here."
        digits = 3 if self.column == "diversity" else 1
        bounds = f" (no interval: {self.difference.reason})" if self.difference.reason else ""
        if self.difference.low is not None and self.difference.high is not None:
            low, high = (format_signed(bound, digits) for bound in (self.difference.low, self.difference.high))
            bounds = f" [{low}, {high}]"
        within = f", margin {self.margin:g}" if self.margin else ""
        mean = format_signed(self.difference.mean, digits)
        return f"{self.sentence}{where}: {self.verdict}; difference {mean}{bounds}{within}."


@dataclass(frozen=True, slots=True)
class TableFigures:
    """One table with what was measured for it."""

    name: str
    columns: tuple[str, ...]
    figures: tuple[MeasuredFigure, ...]
    findings: tuple[ClaimFinding, ...]
    prompts: tuple[ShownPrompt, ...] = ()
    controls: tuple[MeasuredFigure, ...] = ()
    """Figures of plans that no planner made, on benchmarks; their regimes begin with `control: `."""
    not_beaten: tuple[str, ...] = ()
    """A sentence for each regime that does not beat every control."""
    notes: tuple[str, ...] = ()
    """What is missing in its plans, or differs in how they were sampled, a sentence each."""
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """What is to be known of each regime, by heading, then by regime: such as the history that its judge reads."""


_MISSING = dict(zip(BOUNDS, (0.0, 100.0), strict=True))
"""An accuracy that is missing, by reading."""


@dataclass(frozen=True, slots=True)
class Values:
    """A measure of the plans of regimes: for each regime [seeds, prompts], the prompts those of `names`."""

    names: tuple[str, ...]
    """Ids of the prompts."""
    datasets: tuple[str, ...]
    clusters: tuple[str, ...]
    """What the prompts of one video, or of one goal of the world, have in common."""
    table: Mapping[str, Array]

    def chosen(self, indices: Sequence[int]) -> "Values":
        """The same over some of the prompts."""
        return Values(
            tuple(self.names[index] for index in indices),
            tuple(self.datasets[index] for index in indices),
            tuple(self.clusters[index] for index in indices),
            {regime: values[:, indices] for regime, values in self.table.items()},
        )

    def restricted(self, datasets: Sequence[str]) -> "Values":
        """The same over the prompts of some datasets."""
        return self.chosen([index for index, name in enumerate(self.datasets) if name in datasets])

    def difference(self, first: str, second: str, other: "Values | None" = None) -> Interval:
        """First minus second, paired by prompt, and by seed where both have seeds.

        With `other`, values of other datasets, second is taken there: the difference of two means over datasets.
        """
        ours, theirs = self.table[first], (other or self).table[second]
        if 1 not in (len(ours), len(theirs)) and len(ours) != len(theirs):
            raise ComputeError(f"{first!r} and {second!r} have different numbers of seeds.")
        if other is None:
            return seeded_interval(ours - theirs, self.datasets, self.clusters)
        # A mean over all datasets, in which each side weighs as its own mean does.
        seeds = max(len(ours), len(theirs))
        counts = [len(set(side.datasets)) for side in (self, other)]
        weights = sum(counts) / counts[0], -sum(counts) / counts[1]
        sides = [np.repeat(side, seeds // len(side), axis=0) for side in (ours, theirs)]
        values = np.hstack([weight * side for weight, side in zip(weights, sides, strict=True)])
        return seeded_interval(values, (*self.datasets, *other.datasets), (*self.clusters, *other.clusters))

    def figure(self, regime: str, column: str, published: float | None = None) -> MeasuredFigure:
        """The mean over datasets of a regime, with its interval over seeds and prompts and the mean of each seed."""
        labels, rows = np.asarray(self.datasets), self.table[regime]
        seeds = (float(np.mean([row[labels == name].mean() for name in np.unique(labels)])) for row in rows)
        value = seeded_interval(rows, self.datasets, self.clusters)
        return MeasuredFigure(regime, column, value, tuple(seeds), published)

    def finding(self, paper: PaperTable, claim: Claim, column: str, other: "Values | None" = None) -> ClaimFinding:
        """What becomes of a claim in a column; `second` of values of `other` datasets where those are given."""
        shown = f"{column} − {claim.against}" if claim.against else column
        known = {*self.table} if claim.second in (other or self).table else set[str]()
        if not {*claim.firsts} <= known:
            return ClaimFinding(paper.name, claim.sentence, claim.source, shown, "not measured")
        differences = [self.difference(first, claim.second, other) for first in claim.firsts]
        seeds = max(len(self.table[name]) for name in claim.firsts)
        difference, margin = largest(differences, seeds), claim.margin_in(column)
        verdict = verdict_on(difference, claim, margin)
        return ClaimFinding(paper.name, claim.sentence, claim.source, shown, verdict, difference, margin)


def largest(differences: Sequence[Interval], seeds: int) -> Interval:
    """The largest of several means, between the largest low and the largest high bound of intervals that cover all.

    Bounds are made wider by Bonferroni's correction, with the degrees of freedom of the seeds, which are the fewest
    that count, or with one seed those of the clusters.
    """
    best = max(differences, key=lambda interval: interval.mean)
    ends = [
        (interval.mean, interval.low, interval.high)
        for interval in differences
        if interval.low is not None and interval.high is not None
    ]
    if len(ends) < len(differences):  # one without an interval may be the largest
        reason = next(interval.reason for interval in differences if interval.low is None)
        return replace(best, low=None, high=None, reason=reason)
    freedom = seeds - 1 if seeds > 1 else min(interval.clusters or 2 for interval in differences) - 1
    tail = (1 - LEVEL) / 2
    wider = float(stdtrit(freedom, 1 - tail / len(differences)) / stdtrit(freedom, 1 - tail))
    low = max(mean - wider * (mean - low) for mean, low, _ in ends)
    return replace(best, low=low, high=max(mean + wider * (high - mean) for mean, _, high in ends))


def measure_table(folder: Path, made: ScaleRuns, paper: PaperTable) -> TableFigures:
    """The figures and findings of a table from the files of its runs below the folder of a scale."""
    if paper.name == "vpa":
        return _vpa(folder, made, paper)
    if paper.name == "diversity":
        return _diversity(folder, made, paper)
    measured = [run for name in paper.regimes for run in made.runs_of(name)]
    if paper.name == "frontier":
        measured += made.frontier
    trained = [name for name in CONTROL_REGIMES if paper.name != "video" and made.runs_of(name)]
    controls = [run for name in trained for run in made.runs_of(name)]
    every = load_values(folder, [*measured, *controls], "scores", "accuracy")
    values = replace(every, table={name: own for name, own in every.table.items() if name not in trained})
    columns = list(columns_of(values.datasets, per_dataset=paper.per_dataset))
    bounds = [load_values(folder, measured, "scores", "accuracy", reading) for reading in BOUNDS]
    # A figure for each row and column, then for each frontier model; all by each reading of what has no value.
    by_reading: list[list[MeasuredFigure]] = []
    for own in (values, *bounds):
        by_reading.append([])
        for row in paper.rows:
            for column, datasets in columns if row.regime in own.table else ():
                printed = paper.published_value(row, made.scale.title, column)
                by_reading[-1].append(own.restricted(datasets).figure(row.regime, column, printed))
        for name in [name for name in own.table if name not in paper.regimes]:
            by_reading[-1] += [own.restricted(datasets).figure(name, column) for column, datasets in columns]
    figures = _with_readings(*by_reading)
    parts = {column: values.restricted(datasets) for column, datasets in columns}
    nothing = replace(values, table={})
    findings: list[ClaimFinding] = []
    for claim in _claims(made, paper, [run.regime for run in measured]):
        for split in claim.splits or [column for column in parts if column not in SPLITS]:
            other = parts.get(claim.against, nothing) if claim.against else None
            findings.append(parts.get(split, nothing).finding(paper, claim, split, other))
    control_figures, not_beaten = _controls(folder, paper, values, {name: every.table[name] for name in trained})
    notes: list[str] = []
    if paper.name == "frontier":  # an endpoint may not take a field that the models of this machine are sampled with
        cards = {
            run.regime: distinct_decodings(plan.decoding for plan in read_predictions(folder / run.file("plans")))
            for run in (*made.runs_of("base"), *made.frontier)
        }
        others = [name for name in cards if name != "base"] if "base" in cards else []
        notes = [note for name in others if (note := decoding_note(cards["base"], cards[name], ("base", name)))]
    return TableFigures(
        name=paper.name,
        columns=tuple(dict.fromkeys(figure.column for figure in figures)),
        figures=tuple(figures),
        findings=tuple(findings),
        prompts=tuple(_shown_prompts(folder, measured)) if paper.name == "qualitative" else (),
        controls=tuple(control_figures),
        not_beaten=tuple(not_beaten),
        notes=tuple(notes),
        labels=_labels(made, measured, paper),
    )


def _claims(made: ScaleRuns, paper: PaperTable, measured: Sequence[str]) -> Iterator[Claim]:
    """The claims of a table that are of this scale, those of frontier models once for each."""
    for claim in paper.claims:
        if claim.scales and made.scale.title not in claim.scales:
            continue
        if claim.second != FRONTIER:
            yield claim
        for name in measured if claim.second == FRONTIER else ():
            if name not in paper.regimes:
                sentence = claim.sentence.replace(FRONTIER, name)
                yield claim.model_copy(update={"first": name, "second": name, "sentence": sentence})


HISTORY, JUDGED_HISTORY, DIVERSITY_HISTORY = "history", "judge's history", "diversity judge's history"
"""Headings of the histories that planners of next actions, and judges, are told."""
STEPS = "steps of GRPO"


def _labels(made: ScaleRuns, measured: Sequence[Run], paper: PaperTable) -> dict[str, dict[str, str]]:
    """What the judges of each run read of what was done, and with how many steps it was trained."""
    settings = {stage.name: stage.settings for stage in made.stages}
    labels: dict[str, dict[str, str]] = {}
    for run in measured:
        for kind, heading in (("scores", JUDGED_HISTORY), ("diversity", DIVERSITY_HISTORY)):
            scoring = settings.get(run.stage(kind)) if kind == "scores" or paper.name == kind else None
            if isinstance(scoring, Scoring) and not (scoring.on_world and kind == "scores"):
                shown_history = "annotated" if scoring.judge is None else scoring.judge.settings.history
                labels.setdefault(heading, {})[run.regime] = _history_name(settings, shown_history)
        training = settings.get(run.stage("grpo"))
        if paper.name == "steps" and training is not None:
            labels.setdefault(STEPS, {})[run.regime] = str(training.config.steps)
    return labels


def _history_name(settings: Mapping[str, Any], history: str, stage: str = "prompts") -> str:
    """A kind of history in words: Phi's is simulated where `stage`, which writes the prompts, has no file of Phi's."""
    if history == "annotated":
        return history
    return "Phi's" if getattr(settings.get(stage), "histories", None) else "Phi's, simulated"


def load_values(
    folder: Path,
    runs: Sequence[Run],
    kind: str,
    measure: str,
    reading: str = "",
    known: Mapping[str, tuple[str, str]] | None = None,
) -> Values:
    """Each prompt's mean of a measure over its plans, of a reading where one is named, from the rows of runs.

    `known` holds dataset and cluster of the prompts, by default those of the runs' test examples. Prompts that any run
    lacks a value for are left out of all. Raises ComputeError where none is left.
    """
    if known is None:
        known = {}
        for below in dict.fromkeys(run.folder for run in runs):
            for example in read_examples(folder / below / PROMPTS):
                on_world = example.split in WORLD_SPLITS
                dataset = example.split if on_world else example.source
                known[example.example_id] = dataset, example.goal if on_world else video_of(example)
    means: list[tuple[str, dict[str, float]]] = []
    for run in runs:
        samples: dict[str, list[float]] = {}
        for _, row in read_jsonl(folder / run.file(kind)):
            value = row.get(reading, row[measure])
            if value is None:
                value = _MISSING.get(reading)
            if value is not None:
                samples.setdefault(row["example_id"], []).append(value)
        means.append((run.regime, {name: fmean(values) for name, values in samples.items()}))
    shared = [name for name in known if all(name in own for _, own in means)]
    if not shared:
        raise ComputeError("no prompt was measured for every run of a table; look at the scores in the run folder.")
    table: dict[str, list[list[float]]] = {}
    for name, own in means:
        table.setdefault(name, []).append([own[prompt] for prompt in shared])
    return Values(
        tuple(shared),
        tuple(known[name][0] for name in shared),
        tuple(known[name][1] for name in shared),
        {name: np.asarray(values) for name, values in table.items()},
    )


def _with_readings(
    figures: Sequence[MeasuredFigure], least: Sequence[MeasuredFigure], most: Sequence[MeasuredFigure]
) -> list[MeasuredFigure]:
    """The figures with their readings, where what is missing makes a difference to any of them."""
    if list(least) == list(most):
        return list(figures)
    bounds = [{(figure.regime, figure.column): figure.value for figure in side} for side in (least, most)]
    complete = []
    for figure in figures:
        low, high = (side[figure.regime, figure.column] for side in bounds)
        complete.append(replace(figure, readings=dict(zip(READINGS, (low, figure.value, high), strict=True))))
    return complete


def _controls(
    folder: Path, paper: PaperTable, values: Values, trained: Mapping[str, Array]
) -> tuple[list[MeasuredFigure], list[str]]:
    """Figures of the controls, and the regimes that do not beat them; none where no controls were scored.

    A control and a regime are compared on the prompts that have both. Controls that were `trained` are compared with
    the regimes of RL alone.
    """
    path = folder / CONTROLS
    rows = [row for _, row in read_jsonl(path)] if paper.name != "video" and path.is_file() else []
    compared: list[tuple[str, Values, list[str]]] = []  # title, values with the control's, regimes to compare
    for control in dict.fromkeys(row["control"] for row in rows):
        known = {row["example_id"]: row["accuracy"] for row in rows if row["control"] == control}
        indices = [index for index, name in enumerate(values.names) if known.get(name) is not None]
        if indices:
            both, title = values.chosen(indices), f"{CONTROL}{control}"
            table = {**both.table, title: np.asarray([[known[name] for name in both.names]])}
            compared.append((title, replace(both, table=table), list(values.table)))
    rewarded = [name for name in values.table if name in paper.regimes and regime(name).rewarded]
    for name, own in trained.items():
        title = f"{CONTROL}{regime(name).title}"
        compared.append((title, replace(values, table={**values.table, title: own}), rewarded))
    figures: list[MeasuredFigure] = []
    differences: list[Difference] = []
    titles = {name: regime(name).title for name in paper.regimes}  # a model behind an endpoint has its own name
    for title, both, regimes in compared:
        for column, datasets in columns_of(both.datasets, per_dataset=paper.per_dataset):
            part = both.restricted(datasets)
            figures.append(part.figure(title, column))
            if column in SPLITS:
                differences += [
                    Difference(column, titles.get(name, name), title, ACCURACY, part.difference(name, title))
                    for name in regimes
                ]
    sentences = [
        f"{column}: {sentence}"
        for column in dict.fromkeys(row.split for row in differences)
        for sentence in control_sentences([row for row in differences if row.split == column], digits=1)
    ]
    return figures, sentences


def columns_of(datasets: Iterable[str], *, per_dataset: bool) -> Iterable[tuple[str, list[str]]]:
    """Columns of a table of accuracies: each dataset where wanted, then each split with its datasets."""
    order = [*WORLD_SPLITS, *TITLES]
    present = sorted(set(datasets), key=order.index)
    if per_dataset and not set(present) <= set(WORLD_SPLITS):
        yield from ((name, [name]) for name in present)
    for split in SPLITS:
        # A split of the world stands for a split of the paper; a benchmark belongs to one.
        if held := [name for name in present if (WORLD_SPLITS.get(name) or role_of(name)) == split]:
            yield split, held


def verdict_on(difference: Interval, claim: Claim, margin: float) -> Verdict:
    """Whether a claim holds: where the whole interval is on its side; it does not where all is on the other side."""
    low, high = difference.low, difference.high
    if low is None or high is None:
        return "cannot tell"
    if claim.direction == "like":
        if -margin < low and high < margin:
            return "holds"
        return "does not hold" if low > margin or high < -margin else "cannot tell"
    least = -margin if claim.direction == "not below" else 0.0
    if low > least:
        return "holds"
    return "does not hold" if high < least else "cannot tell"


def _diversity(folder: Path, made: ScaleRuns, paper: PaperTable) -> TableFigures:
    """Diversity of the prompts that were compared, and the accuracy of the same prompts."""
    runs = [run for name in paper.regimes for run in made.runs_of(name)]
    by_reading: dict[str, list[MeasuredFigure]] = {}
    findings: list[ClaimFinding] = []
    for reading in ("", *BOUNDS):
        diverse = load_values(folder, runs, "diversity", "diversity", reading)
        known = {name: ("", cluster) for name, cluster in zip(diverse.names, diverse.clusters, strict=True)}
        diverse = replace(diverse, datasets=("",) * len(known))
        accurate = load_values(folder, runs, "scores", "accuracy", reading, known)
        figures = by_reading[reading] = []
        for row in paper.rows:
            if row.regime in diverse.table:
                for column, key, values in (("diversity", "diversity", diverse), ("accuracy", "coin", accurate)):
                    printed = paper.published_value(row, made.scale.title, key)
                    figures.append(values.figure(row.regime, column, printed))
        sides = {"diversity": diverse, "accuracy": accurate}
        findings = findings or [
            sides[split].finding(paper, claim, split) for claim in _claims(made, paper, ()) for split in claim.splits
        ]
    complete = _with_readings(by_reading[""], *(by_reading[reading] for reading in BOUNDS))
    labels = _labels(made, runs, paper)
    return TableFigures(paper.name, ("diversity", "accuracy"), tuple(complete), tuple(findings), labels=labels)


def _vpa(folder: Path, made: ScaleRuns, paper: PaperTable) -> TableFigures:
    """Direct plans, VidAssist's and its baselines' over the same samples, beside plans without a model, and what is
    missing in VidAssist's.
    """
    settings = {stage.name: stage.settings for stage in made.stages}
    runs = {row: [replace(run, regime=row.name) for run in made.runs_of(row.regime)] for row in paper.rows}
    every = [run for own in runs.values() for run in own]
    known = {
        row["example_id"]: ("", row["goal"]) for run in every[:1] for _, row in read_jsonl(folder / run.file("vpa"))
    }
    floors = [row for _, row in read_jsonl(folder / FLOOR_ROWS)]
    columns = tuple(column.key for column in published("vpa").columns)
    figures, controls, findings, differences = [], [], [], list[Difference]()
    for column in columns:
        values = load_values(folder, every, "vpa", column, known=known)
        for row in paper.rows:
            if row.name in values.table:
                printed = paper.published_value(row, made.scale.title, column)
                figures.append(values.figure(row.name, column, printed))
        findings += [values.finding(paper, claim, column) for claim in paper.claims if column in claim.splits]
        for name in dict.fromkeys(row["control"] for row in floors):
            of = {row["example_id"]: row[column] for row in floors if row["control"] == name}
            title = f"{CONTROL}{name}"
            both = replace(values, table={**values.table, title: np.asarray([[of[key] for key in values.names]])})
            printed = (
                published("vpa").value("zero-shot", paper.controls[name], column) if name in paper.controls else None
            )
            controls.append(both.figure(title, column, printed))
            if column == VPA_MAIN:
                measure = "mAcc at T = 3"
                differences += [
                    Difference("", row.title, title, measure, both.difference(row.name, title))
                    for row in paper.rows
                    if row.name in values.table
                ]
    histories = {row.name: _history_name(settings, row.history, VPA_SAMPLES) for row, own in runs.items() if own}
    histories |= {figure.regime: "annotated, its last step" for figure in controls if figure.regime.endswith("bigram")}
    notes = []
    for row, own in runs.items():
        if row.method is None or not own:
            continue
        counts: Counter[str] = Counter()
        unscored: Counter[str] = Counter()
        for run in own:
            written = read_json(manifest_of(folder / run.file("plans")))["counts"]
            unscored.update(written["untold"])
            counts.update({name: count for name, count in written.items() if isinstance(count, int)})
        notes += [f"{row.title}: {sentence}." for sentence in count_sentences({**counts, "untold": unscored})]
    return TableFigures(
        name=paper.name,
        columns=columns,
        figures=tuple(figures),
        findings=tuple(findings),
        controls=tuple(controls),
        not_beaten=tuple(control_sentences(differences, digits=1)),
        notes=tuple(notes),
        labels={HISTORY: histories},
    )


def _shown_prompts(folder: Path, measured: Sequence[Run]) -> Iterable[ShownPrompt]:
    """Prompts spread over the test, with the first plan of each regime; chosen before any plan is looked at."""
    examples = read_examples(folder / PROMPTS)
    plans: dict[str, dict[str, ShownPlan]] = {}
    for run in measured:
        if run.regime in plans:
            continue
        rows = (row for _, row in read_jsonl(folder / run.file("scores")) if row["sample"] == 0)
        scores = {row["example_id"]: row["accuracy"] for row in rows}
        plans[run.regime] = {
            plan.example_id: ShownPlan(
                run.regime, tuple(map(PlanLine, plan.steps)), accuracy=scores.get(plan.example_id)
            )
            for plan in read_predictions(folder / run.file("plans"))
            if plan.sample == 0
        }
    stride = max(1, len(examples) // SHOWN_PROMPTS)
    for example in examples[stride // 2 :: stride][:SHOWN_PROMPTS]:
        reference = ShownPlan("reference", tuple(map(PlanLine, example.continuation)))
        shown = [own[example.example_id] for own in plans.values() if example.example_id in own]
        yield ShownPrompt("", example.goal, example.history, (reference, *shown))
