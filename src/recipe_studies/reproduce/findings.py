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
from recipe.report.elements import difference_text
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
ACCURACY = "accuracy"
MAIN_COLUMNS = dict.fromkeys(SPLITS, ACCURACY) | {"3.accuracy": "mAcc at T = 3"}
"""Columns in which regimes have to beat the controls, and what is compared there."""


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
        within = f", margin {self.margin:g}" if self.margin else ""
        measured = difference_text(self.difference, digits)
        return f"{self.sentence}{where}: {self.verdict}; difference {measured}{within}."


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


# An accuracy that is missing, by reading.
_MISSING = dict(zip(BOUNDS, (0.0, 100.0), strict=True))


@dataclass(frozen=True, slots=True)
class Values:
    """A measure of the plans of each regime, as an array [seeds, prompts] with the prompts of `names`."""

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
        # A mean over all n1 + n2 datasets in which each side weighs as its own mean does: with (n1 + n2) / n1 on the
        # first side and -(n1 + n2) / n2 on the second it is the first mean minus the second.
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
    # Bonferroni: k intervals at 1 - (1 - LEVEL) / k hold together at LEVEL. A bound is mean -+ t * error, so that the
    # quotient of two quantiles of t makes it wider.
    freedom = seeds - 1 if seeds > 1 else min(interval.clusters or 2 for interval in differences) - 1
    tail = (1 - LEVEL) / 2
    wider = float(stdtrit(freedom, 1 - tail / len(differences)) / stdtrit(freedom, 1 - tail))
    low = max(mean - wider * (mean - low) for mean, low, _ in ends)
    return replace(best, low=low, high=max(mean + wider * (high - mean) for mean, _, high in ends))


Readings = tuple[Values, ...]
"""A measure as it is, and with what is missing as 0 and as the best."""


def measure_table(folder: Path, made: ScaleRuns, paper: PaperTable) -> TableFigures:
    """The figures and findings of a table from the files of its runs below the folder of a scale."""
    runs = [replace(run, regime=row.name) for row in paper.rows for run in made.runs_of(row.regime)]
    runs += made.frontier if paper.name == "frontier" else ()
    judged = paper.name not in ("video", "diversity", "vpa")
    trained = [run for name in CONTROL_REGIMES if judged for run in made.runs_of(name)]
    columns = _columns(folder, paper, runs, trained)
    values = {column: readings[0] for column, readings in columns.items()}
    rows = {row.name: row for row in paper.rows}
    measured = [*dict.fromkeys(run.regime for run in runs)]
    is_whole = all(
        np.array_equal(least.table[name], most.table[name]) for _, least, most in columns.values() for name in measured
    )
    figures = []
    for name in measured:
        for column, readings in columns.items():
            key = "coin" if (paper.name, column) == ("diversity", ACCURACY) else column
            printed = paper.published_value(rows[name], made.scale.title, key) if name in rows else None
            known, least, most = (reading.figure(name, column, printed) for reading in readings)
            of_reading = () if is_whole else zip(READINGS, (least.value, known.value, most.value), strict=True)
            figures.append(replace(known, readings=dict(of_reading)))
    asked = [
        (claim, split)
        for claim in _claims(made, paper, measured)
        for split in claim.splits or [column for column in columns if column not in SPLITS]
    ]
    if paper.name == "vpa":
        asked.sort(key=lambda pair: [*columns].index(pair[1]))
    nothing = Values((), (), (), {})
    findings = [
        values.get(split, nothing).finding(
            paper, claim, split, values.get(claim.against, nothing) if claim.against else None
        )
        for claim, split in asked
    ]
    controls, not_beaten = _controls(folder, paper, values, measured, trained)
    return TableFigures(
        name=paper.name,
        columns=tuple(columns),
        figures=tuple(figures),
        findings=tuple(findings),
        prompts=tuple(_shown_prompts(folder, runs)) if paper.name == "qualitative" else (),
        controls=tuple(controls),
        not_beaten=tuple(not_beaten),
        notes=tuple(_notes(folder, made, paper, runs)),
        labels=_labels(made, runs, paper, [figure.regime for figure in controls]),
    )


def _columns(folder: Path, paper: PaperTable, runs: Sequence[Run], trained: Sequence[Run]) -> dict[str, Readings]:
    """The columns of a table: measures at horizons, the diversity and accuracy of the same prompts, or accuracies."""
    if paper.name == "vpa":
        goals = (row for run in runs[:1] for _, row in read_jsonl(folder / run.file("vpa")))
        known = {row["example_id"]: ("", row["goal"]) for row in goals}
        keys = [column.key for column in published("vpa").columns]
        return {key: 3 * (_load_values(folder, runs, "vpa", key, known=known),) for key in keys}
    if paper.name == "diversity":
        diverse, accurate = [], []
        for reading in ("", *BOUNDS):
            read = _load_values(folder, runs, "diversity", "diversity", reading)
            diverse.append(replace(read, datasets=("",) * len(read.names)))
            known = {name: ("", cluster) for name, cluster in zip(read.names, read.clusters, strict=True)}
            accurate.append(_load_values(folder, runs, "scores", ACCURACY, reading, known))
        return {"diversity": tuple(diverse), ACCURACY: tuple(accurate)}
    every = _load_values(folder, [*runs, *trained], "scores", ACCURACY)
    least, most = (_load_values(folder, runs, "scores", ACCURACY, reading) for reading in BOUNDS)
    return {
        column: (every.restricted(datasets), least.restricted(datasets), most.restricted(datasets))
        for column, datasets in columns_of(every.datasets, per_dataset=paper.per_dataset)
    }


def _claims(made: ScaleRuns, paper: PaperTable, measured: Sequence[str]) -> Iterator[Claim]:
    """The claims of a table that hold for this scale; a claim on frontier models comes once for each model."""
    for claim in paper.claims:
        if claim.scales and made.scale.title not in claim.scales:
            continue
        if claim.second != FRONTIER:
            yield claim
        for name in measured if claim.second == FRONTIER else ():
            if name not in paper.regimes:
                sentence = claim.sentence.replace(FRONTIER, name)
                yield replace(claim, first=name, second=name, sentence=sentence)


HISTORY, JUDGED_HISTORY, DIVERSITY_HISTORY = "history", "judge's history", "diversity judge's history"
"""Headings of the histories that planners of next actions, and judges, are told."""
STEPS = "steps of GRPO"


def _labels(
    made: ScaleRuns, runs: Sequence[Run], paper: PaperTable, controls: Sequence[str]
) -> dict[str, dict[str, str]]:
    """What the planner of next actions, or the judge of each run, read of what was done; its steps of training."""
    settings = {stage.name: stage.settings for stage in made.stages}
    labels: dict[str, dict[str, str]] = {}
    if paper.name == "vpa":
        measured = {run.regime for run in runs}
        rows = [row for row in paper.rows if row.name in measured]
        histories = {row.name: _history_name(settings, row.history, VPA_SAMPLES) for row in rows}
        return {HISTORY: histories | {name: "annotated, its last step" for name in controls if name.endswith("bigram")}}
    for run in runs:
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


def _load_values(
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


def _controls(
    folder: Path, paper: PaperTable, columns: Mapping[str, Values], measured: Sequence[str], trained: Sequence[Run]
) -> tuple[list[MeasuredFigure], list[str]]:
    """Figures of the controls, and the regimes that do not beat them; none where no controls were measured.

    A control and a regime are compared on the prompts that have both. Controls that were `trained` are compared with
    the regimes of RL alone.
    """
    compared: list[tuple[str, str, Values, list[str]]] = []  # title, column, values with the control's, regimes
    path = folder / (FLOOR_ROWS if paper.name == "vpa" else CONTROLS)
    has_rows = paper.name not in ("video", "diversity") and path.is_file()
    rows = [row for _, row in read_jsonl(path)] if has_rows else []
    for control in dict.fromkeys(row["control"] for row in rows):
        for column, values in columns.items():
            measure = column if paper.name == "vpa" else ACCURACY
            known = {row["example_id"]: row[measure] for row in rows if row["control"] == control}
            both = values.chosen([index for index, name in enumerate(values.names) if known.get(name) is not None])
            if both.names:
                title = f"{CONTROL}{control}"
                table = {**both.table, title: np.asarray([[known[name] for name in both.names]])}
                compared.append((title, column, replace(both, table=table), list(measured)))
    rewarded = [name for name in measured if name in paper.regimes and regime(name).rewarded]
    for name in dict.fromkeys(run.regime for run in trained):
        title = f"{CONTROL}{regime(name).title}"
        for column, values in columns.items():
            both = replace(values, table={**values.table, title: values.table[name]})
            compared.append((title, column, both, rewarded))
    titles = {row.name: row.title for row in paper.rows}  # a model behind an endpoint has its own name
    figures: list[MeasuredFigure] = []
    differences: list[Difference] = []
    for title, column, both, regimes in compared:
        floor = paper.controls.get(title.removeprefix(CONTROL))
        printed = None if floor is None else published("vpa").value("zero-shot", floor, column)
        figures.append(both.figure(title, column, printed))
        if column in MAIN_COLUMNS:
            differences += [
                Difference(column, titles.get(name, name), title, MAIN_COLUMNS[column], both.difference(name, title))
                for name in regimes
            ]
    sentences = [
        f"{column}: {sentence}" if column in SPLITS else sentence
        for column in dict.fromkeys(row.split for row in differences)
        for sentence in control_sentences([row for row in differences if row.split == column], digits=1)
    ]
    return figures, sentences


def columns_of(datasets: Iterable[str], *, per_dataset: bool) -> Iterable[tuple[str, list[str]]]:
    """Columns of a table of accuracies: each dataset where wanted, then each split with its datasets."""
    # As the paper's tables have them.
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


def _notes(folder: Path, made: ScaleRuns, paper: PaperTable, runs: Sequence[Run]) -> Iterator[str]:
    """What is missing in the plans of VidAssist and its baselines, and how a frontier model was sampled otherwise."""
    if paper.name == "frontier":  # an endpoint may not take a field that the models of this machine are sampled with
        cards = {
            run.regime: distinct_decodings(plan.decoding for plan in read_predictions(folder / run.file("plans")))
            for run in (*made.runs_of("base"), *made.frontier)
        }
        others = [name for name in cards if name != "base"] if "base" in cards else []
        yield from filter(None, (decoding_note(cards["base"], cards[name], ("base", name)) for name in others))
    for row in paper.rows:
        own = [run for run in runs if run.regime == row.name and row.method is not None]
        counts, unscored = Counter[str](), Counter[str]()
        for run in own:
            written = read_json(manifest_of(folder / run.file("plans")))["counts"]
            unscored.update(written["untold"])
            counts.update({name: count for name, count in written.items() if isinstance(count, int)})
        for sentence in count_sentences({**counts, "untold": unscored}) if own else ():
            yield f"{row.title}: {sentence}."


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
    # From the middle of each stretch, so that not every table begins with the first example.
    for example in examples[stride // 2 :: stride][:SHOWN_PROMPTS]:
        reference = ShownPlan("reference", tuple(map(PlanLine, example.continuation)))
        shown = [own[example.example_id] for own in plans.values() if example.example_id in own]
        yield ShownPrompt("", example.goal, example.history, (reference, *shown))
