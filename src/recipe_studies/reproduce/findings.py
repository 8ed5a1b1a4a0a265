"""From measured plans to figures with intervals over seeds and prompts, and what becomes of each claim of the paper."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from recipe.artifacts import JsonObject, read_json, read_jsonl
from recipe.data.benchmarks import BENCHMARKS
from recipe.data.examples import read_examples
from recipe.errors import ComputeError
from recipe.evaluation.controls import control_sentences
from recipe.evaluation.metrics import CONTROL
from recipe.evaluation.published import published
from recipe.evaluation.scores import READINGS
from recipe.evaluation.validity.measure import Difference
from recipe.models.sampling import decoding_note, distinct_decodings
from recipe.planning.predictions import read_predictions
from recipe.planning.vidassist.trace import count_sentences, manifest_of
from recipe.report.numbers import format_number, format_signed
from recipe.stats import Interval, seeded_interval, video_of
from recipe_studies.reproduce.data import PROMPTS
from recipe_studies.reproduce.measures import BOUNDS, CONTROLS
from recipe_studies.reproduce.runs import Run, ScaleRuns
from recipe_studies.reproduce.study import CONTROL_REGIMES, regime
from recipe_studies.reproduce.tables import IN_DOMAIN, SHOWN_PROMPTS, SPLITS, ZERO_SHOT, Claim, PaperTable

Verdict = Literal["holds", "does not hold", "cannot tell", "not measured"]
Array = NDArray[np.float64]

WORLD_SPLITS = {"test_cuts": IN_DOMAIN, "test_goals": ZERO_SHOT}
"""The world's held-out cut points are of goals that are trained on, its held-out goals are not."""
ACCURACY = "accuracy"
DATASETS = {"test_cuts": "held-out cut points", "test_goals": "held-out goals"}


@dataclass(frozen=True, slots=True)
class Figure:
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
class Finding:
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
        """The finding in one sentence."""
        where = f" ({self.column})" if self.column else ""
        if self.difference is None:
            return f"{self.sentence}{where}: not measured here."
        digits = 3 if self.column == "diversity" else 1
        bounds = f" (no interval: {self.difference.reason})" if self.difference.reason else ""
        if self.difference.low is not None and self.difference.high is not None:
            low, high = (format_signed(one, digits) for one in (self.difference.low, self.difference.high))
            bounds = f" [{low}, {high}]"
        within = f", margin {format_number(self.margin, 2 if digits == 3 else 0)}" if self.margin else ""
        mean = format_signed(self.difference.mean, digits)
        return f"{self.sentence}{where}: {self.verdict}; difference {mean}{bounds}{within}."


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan of the qualitative table."""

    regime: str
    steps: tuple[str, ...]
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """A prompt of the qualitative table with the plans of its rows; the reference is the first."""

    goal: str
    history: tuple[str, ...]
    plans: tuple[ShownPlan, ...]


@dataclass(frozen=True, slots=True)
class TableFigures:
    """One table with what was measured for it."""

    name: str
    columns: tuple[str, ...]
    figures: tuple[Figure, ...]
    findings: tuple[Finding, ...]
    prompts: tuple[ShownPrompt, ...] = ()
    controls: tuple[Figure, ...] = ()
    """Figures of plans that no planner made, on benchmarks; their regimes begin with `control: `."""
    not_beaten: tuple[str, ...] = ()
    """A sentence for each regime that does not beat every control."""
    notes: tuple[str, ...] = ()
    """What is missing in its plans, or differs in how they were sampled, a sentence each."""


@dataclass(frozen=True, slots=True)
class Values:
    """A measure of the plans of regimes: for each regime [seeds, prompts], the prompts those of `examples`."""

    names: tuple[str, ...]
    """Ids of the prompts."""
    datasets: tuple[str, ...]
    clusters: tuple[str, ...]
    """What the prompts of one video, or of one goal of the world, have in common."""
    table: Mapping[str, Array]

    def restricted(self, datasets: Sequence[str]) -> "Values":
        """The same over the prompts of some datasets."""
        return self.chosen([place for place, name in enumerate(self.datasets) if name in datasets])

    def chosen(self, chosen: Sequence[int]) -> "Values":
        """The same over the prompts at some places."""
        return Values(
            tuple(self.names[place] for place in chosen),
            tuple(self.datasets[place] for place in chosen),
            tuple(self.clusters[place] for place in chosen),
            {regime: values[:, chosen] for regime, values in self.table.items()},
        )

    def interval(self, regime: str) -> Interval:
        """Mean over datasets, with its interval over seeds and prompts."""
        return seeded_interval(self.table[regime], self.datasets, self.clusters)

    def difference(self, first: str, second: str) -> Interval:
        """First minus second, paired by prompt, and by seed where both have seeds."""
        ours, theirs = self.table[first], self.table[second]
        if 1 not in (len(ours), len(theirs)) and len(ours) != len(theirs):
            raise ComputeError(f"{first!r} and {second!r} have different numbers of seeds.")
        return seeded_interval(ours - theirs, self.datasets, self.clusters)

    def figure(self, regime: str, column: str, published: float | None = None) -> Figure:
        """The figure of a regime in a column, with the mean of each seed."""
        labels, rows = np.asarray(self.datasets), self.table[regime]
        seeds = (float(np.mean([row[labels == name].mean() for name in np.unique(labels)])) for row in rows)
        return Figure(regime, column, self.interval(regime), tuple(seeds), published)


def measure_table(folder: Path, made: ScaleRuns, one: PaperTable) -> TableFigures:
    """The figures and findings of a table from the files of its runs below the folder of a scale."""
    if one.name == "vpa":
        return _vpa(folder, made, one)
    if one.name == "diversity":
        return _diversity(folder, made, one)
    trained = [name for name in CONTROL_REGIMES if one.name != "video" and made.runs_of(name)]
    everything = _accuracies(folder, made, [*made_regimes(made, one), *trained])
    values = replace(everything, table={name: own for name, own in everything.table.items() if name not in trained})
    figures, findings = _accuracy_figures(made, one, values)
    read = [_accuracies(folder, made, made_regimes(made, one), reading) for reading in BOUNDS]
    figures = _with_readings(figures, *(_accuracy_figures(made, one, values)[0] for values in read))
    prompts = _shown(folder, made, one) if one.name == "qualitative" else ()
    columns = tuple(dict.fromkeys(figure.column for figure in figures))
    controls, not_beaten = _controls(folder, one, values, {name: everything.table[name] for name in trained})
    notes: list[str] = []
    if one.name == "frontier":  # an endpoint may not take a field that the models of this machine are sampled with
        cards = {
            run.regime: distinct_decodings(plan.decoding for plan in read_predictions(folder / run.file("plans")))
            for run in (*made.runs_of("base"), *made.frontier)
        }
        others = [name for name in cards if name != "base"] if "base" in cards else []
        notes = [note for name in others if (note := decoding_note(cards["base"], cards[name], ("base", name)))]
    return TableFigures(
        name=one.name,
        columns=columns,
        figures=tuple(figures),
        findings=tuple(findings),
        prompts=tuple(prompts),
        controls=tuple(controls),
        not_beaten=tuple(not_beaten),
        notes=tuple(notes),
    )


def made_regimes(made: ScaleRuns, one: PaperTable) -> list[str]:
    """The regimes of a table that were run, and the frontier models of its table."""
    known = {run.regime for run in made.runs}
    named = [name for name in one.regimes if name in known]
    return named + ([run.regime for run in made.frontier] if one.name == "frontier" else [])


def _accuracy_figures(made: ScaleRuns, one: PaperTable, values: Values) -> tuple[list[Figure], list[Finding]]:
    figures: list[Figure] = []
    columns = list(columns_of(values.datasets, per_dataset=one.per_dataset))
    for row in one.rows:
        if row.regime not in values.table:
            continue
        for column, datasets in columns:
            part = values.restricted(datasets)
            printed = one.published_value(row, made.scale.title, column)
            figures.append(part.figure(row.regime, column, printed))
    for name in values.table.keys() - set(one.regimes):
        figures += [values.restricted(datasets).figure(name, column) for column, datasets in columns]
    parts = {column: values.restricted(datasets) for column, datasets in columns if column in SPLITS}
    return figures, [_finding(one, claim, split, parts.get(split)) for claim in one.claims for split in claim.splits]


def _with_readings(figures: Sequence[Figure], least: Sequence[Figure], most: Sequence[Figure]) -> list[Figure]:
    """The figures with their readings, where what is missing makes a difference to any of them."""
    if list(least) == list(most):
        return list(figures)
    bounds = [{(one.regime, one.column): one.value for one in side} for side in (least, most)]
    found = []
    for one in figures:
        low, high = (side[one.regime, one.column] for side in bounds)
        found.append(replace(one, readings=dict(zip(READINGS, (low, one.value, high), strict=True))))
    return found


def _controls(
    folder: Path, one: PaperTable, values: Values, trained: Mapping[str, Array]
) -> tuple[list[Figure], list[str]]:
    """Figures of the controls, and the regimes that do not beat them; none where no controls were scored.

    A control and a regime are compared on the prompts that have both. Controls that were `trained` are compared with
    the regimes of RL alone.
    """
    path = folder / CONTROLS
    rows = measured_rows(path) if one.name != "video" and path.is_file() else []
    figures: list[Figure] = []
    differences: list[Difference] = []
    for control in dict.fromkeys(row["control"] for row in rows):
        known = {row["example_id"]: row["accuracy"] for row in rows if row["control"] == control}
        places = [place for place, name in enumerate(values.names) if known.get(name) is not None]
        if not places:
            continue
        both = values.chosen(places)
        title = f"{CONTROL}{control}"
        both = replace(both, table={**both.table, title: np.asarray([[known[name] for name in both.names]])})
        for column, datasets in columns_of(both.datasets, per_dataset=one.per_dataset):
            part = both.restricted(datasets)
            figures.append(part.figure(title, column))
            if column in SPLITS:
                differences += [
                    Difference(column, regime, title, ACCURACY, part.difference(regime, title))
                    for regime in values.table
                ]
    rl = [name for name in values.table if name in one.regimes and regime(name).rewarded]
    for name, table in trained.items():
        title = f"{CONTROL}{regime(name).title}"
        both = replace(values, table={**values.table, title: table})
        for column, datasets in columns_of(both.datasets, per_dataset=one.per_dataset):
            part = both.restricted(datasets)
            figures.append(part.figure(title, column))
            if column in SPLITS:
                differences += [Difference(column, own, title, ACCURACY, part.difference(own, title)) for own in rl]
    sentences = [
        f"{column}: {sentence}"
        for column in dict.fromkeys(one.split for one in differences)
        for sentence in control_sentences([one for one in differences if one.split == column], digits=1)
    ]
    return figures, sentences


def columns_of(datasets: Iterable[str], *, per_dataset: bool) -> Iterable[tuple[str, list[str]]]:
    """Columns of a table of accuracies: each dataset where wanted, then each split with its datasets."""
    order = [*WORLD_SPLITS, *BENCHMARKS]
    present = sorted(set(datasets), key=order.index)
    if per_dataset and not set(present) <= set(WORLD_SPLITS):
        yield from ((name, [name]) for name in present)
    for split in SPLITS:
        if held := [name for name in present if role_of(name) == split]:
            yield split, held


def role_of(dataset: str) -> str:
    """The split that a dataset, or a split of the world, stands for."""
    return WORLD_SPLITS.get(dataset) or BENCHMARKS[dataset].role


def _finding(one: PaperTable, claim: Claim, column: str, values: Values | None) -> Finding:
    measured = values is not None and {claim.first, claim.second} <= set(values.table)
    if values is None or not measured:
        return Finding(one.name, claim.sentence, claim.source, column, "not measured")
    difference = values.difference(claim.first, claim.second)
    verdict = judge(difference, claim)
    return Finding(one.name, claim.sentence, claim.source, column, verdict, difference, claim.margin)


def judge(difference: Interval, claim: Claim) -> Verdict:
    """Whether a claim holds: where the whole interval is on its side; it does not where all is on the other side."""
    low, high = difference.low, difference.high
    if low is None or high is None:
        return "cannot tell"
    if claim.direction == "like":
        if -claim.margin < low and high < claim.margin:
            return "holds"
        return "does not hold" if low > claim.margin or high < -claim.margin else "cannot tell"
    least = -claim.margin if claim.direction == "not below" else 0.0
    if low > least:
        return "holds"
    return "does not hold" if high < least else "cannot tell"


def _accuracies(folder: Path, made: ScaleRuns, regimes: Sequence[str], reading: str = "") -> Values:
    """Each prompt's mean accuracy over its plans, of a reading where one is named.

    Else prompts that any run lacks a verdict for are left out of all.
    """
    runs = [run for run in (*made.runs, *made.frontier) if run.regime in regimes]
    rows = {run: _means(folder / run.file("scores"), "accuracy", reading) for run in runs}
    return _values(_examples(folder, runs), rows)


_MISSING = dict(zip(BOUNDS, (0.0, 100.0), strict=True))
"""An accuracy that is missing, by reading."""


def _means(path: Path, measure: str, reading: str = "") -> dict[str, float]:
    """The mean of a measure over each example's rows that have it, or of a reading over all."""
    found: dict[str, list[float]] = {}
    for row in measured_rows(path):
        value = row.get(reading, row[measure])
        if value is None:
            value = _MISSING.get(reading)
        if value is not None:
            found.setdefault(row["example_id"], []).append(value)
    return {name: fmean(some) for name, some in found.items()}


def measured_rows(path: Path) -> list[JsonObject]:
    """The rows that a measure wrote."""
    return [row for _, row in read_jsonl(path)]


def _examples(folder: Path, runs: Sequence[Run]) -> dict[str, tuple[str, str]]:
    """Dataset and cluster of each prompt of some runs."""
    found: dict[str, tuple[str, str]] = {}
    for place in dict.fromkeys(run.folder for run in runs):
        for example in read_examples(folder / place / PROMPTS):
            on_world = example.split in WORLD_SPLITS
            dataset = example.split if on_world else example.source
            found[example.example_id] = dataset, example.goal if on_world else video_of(example)
    return found


def _values(known: Mapping[str, tuple[str, str]], rows: Mapping[Run, Mapping[str, float]]) -> Values:
    shared = [name for name in known if all(name in means for means in rows.values())]
    if not shared:
        raise ComputeError("no prompt was measured for every run of a table; look at the scores in the run folder.")
    table: dict[str, list[list[float]]] = {}
    for run, means in rows.items():
        table.setdefault(run.regime, []).append([means[name] for name in shared])
    return Values(
        tuple(shared),
        tuple(known[name][0] for name in shared),
        tuple(known[name][1] for name in shared),
        {regime: np.asarray(values) for regime, values in table.items()},
    )


def _diversity(folder: Path, made: ScaleRuns, one: PaperTable) -> TableFigures:
    """Diversity of the prompts that were compared, and the accuracy of the same prompts."""
    regimes = made_regimes(made, one)
    runs = [run for run in made.runs if run.regime in regimes]
    known = {name: ("", cluster) for name, (_, cluster) in _examples(folder, runs).items()}

    def measured(reading: str = "") -> tuple[Values, list[Figure]]:
        diverse = _values(known, {run: _means(folder / run.file("diversity"), "diversity", reading) for run in runs})
        chosen = {name: known[name] for name in diverse.names}
        accurate = _values(chosen, {run: _means(folder / run.file("scores"), "accuracy", reading) for run in runs})
        figures = []
        for row in one.rows:
            if row.regime in diverse.table:
                for column, key, values in (("diversity", "diversity", diverse), ("accuracy", "coin", accurate)):
                    printed = one.published_value(row, made.scale.title, key)
                    figures.append(values.figure(row.regime, column, printed))
        return diverse, figures

    diverse, figures = measured()
    figures = _with_readings(figures, *(measured(reading)[1] for reading in BOUNDS))
    findings = [_finding(one, claim, "diversity", diverse) for claim in one.claims]
    return TableFigures(one.name, ("diversity", "accuracy"), tuple(figures), tuple(findings))


def _vpa(folder: Path, made: ScaleRuns, one: PaperTable) -> TableFigures:
    """Direct plans and VidAssist's over the same samples, and what is missing in VidAssist's."""
    runs = {row: [replace(run, regime=row.name) for run in made.runs_of(row.regime)] for row in one.rows}
    rows = {run: measured_rows(folder / run.file("vpa")) for some in runs.values() for run in some}
    first = next(iter(rows.values()))
    known = {row["example_id"]: ("", row["goal"]) for row in first}
    columns = tuple(column.key for column in published("vpa").columns)
    figures, findings = [], []
    for column in columns:
        values = _values(known, {run: {row["example_id"]: row[column] for row in some} for run, some in rows.items()})
        for row in one.rows:
            if row.name in values.table:
                printed = one.published_value(row, made.scale.title, column)
                figures.append(values.figure(row.name, column, printed))
        findings += [_finding(one, claim, column, values) for claim in one.claims if column in claim.splits]
    notes = [
        f"{row.title}: {sentence}."
        for row, some in runs.items()
        if row.proposers is not None and some
        for sentence in _missing_in(folder, some)
    ]
    return TableFigures(one.name, columns, tuple(figures), tuple(findings), notes=tuple(notes))


def _missing_in(folder: Path, runs: Sequence[Run]) -> list[str]:
    """What is short or has no score in VidAssist's plans of some runs together."""
    counts: Counter[str] = Counter()
    unscored: Counter[str] = Counter()
    for run in runs:
        own = read_json(manifest_of(folder / run.file("plans")))["counts"]
        unscored.update(own["untold"])
        counts.update({name: count for name, count in own.items() if isinstance(count, int)})
    return count_sentences({**counts, "untold": unscored})


def _shown(folder: Path, made: ScaleRuns, one: PaperTable) -> Iterable[ShownPrompt]:
    """Prompts spread over the test, with the first plan of each regime; chosen before any plan is looked at."""
    examples = read_examples(folder / PROMPTS)
    runs = [made.runs_of(name)[0] for name in made_regimes(made, one)]
    plans = {run: _first_plans(folder, run) for run in runs}
    stride = max(1, len(examples) // SHOWN_PROMPTS)
    for example in examples[stride // 2 :: stride][:SHOWN_PROMPTS]:
        shown = [ShownPlan("reference", example.continuation, None)]
        shown += [plans[run][example.example_id] for run in runs if example.example_id in plans[run]]
        yield ShownPrompt(example.goal, example.history, tuple(shown))


def _first_plans(folder: Path, run: Run) -> dict[str, ShownPlan]:
    rows = (row for row in measured_rows(folder / run.file("scores")) if row["sample"] == 0)
    scores = {row["example_id"]: row["accuracy"] for row in rows}
    plans = (one for one in read_predictions(folder / run.file("plans")) if one.sample == 0)
    return {one.example_id: ShownPlan(run.regime, one.steps, scores.get(one.example_id)) for one in plans}
