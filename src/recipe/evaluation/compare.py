"""Two systems' rows by one measure, compared plan by plan.

A plan is paired with that of the same example and sample. What either side lacks, or has no value of, is in neither
mean and counted. Pairs are averaged over the samples of an example first, as the scores themselves are.

Where a judge gave a plan of both no verdict, the difference is also given with each missing verdict as 0, and as it
would be at the least and at the most: 0 in place of one side's, the best in place of the other's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from recipe.data.roles import ROLES, in_order, role_of
from recipe.errors import InputError
from recipe.evaluation import measure_named
from recipe.evaluation.measures import ALL, Values
from recipe.evaluation.metrics import readings_table
from recipe.evaluation.scoreboard.sources import ScoredFile
from recipe.evaluation.scores import PlanId, rows_path
from recipe.models.sampling import decoding_note
from recipe.report.elements import Cell, Table, TableRow, headings, row
from recipe.stats import Comparison, Interval, adjusted, compare, macro_intervals
from recipe.types import Example

Array = NDArray[np.float64]
P_DIGITS, P_LEAST = 3, 0.001
"""Digits of a p-value, and the smallest that is shown."""

# What a missing verdict counts as on either side: the worst (0) or the best (1).
_BOUNDS: dict[str, tuple[Literal[0, 1], Literal[0, 1]]] = {"lowest": (0, 1), "missing_as_0": (0, 0), "highest": (1, 0)}


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One metric on one dataset, or on several with equal weight."""

    metric: str
    over: str
    """A dataset, `in-domain datasets`, `zero-shot datasets` or `all datasets`; empty where datasets are not known."""
    datasets: tuple[str, ...]
    result: Comparison
    adjusted: float | None = None
    """The p-value adjusted for all rows (Holm); None for a single row."""
    readings: dict[str, Interval] = field(default_factory=dict)
    """The difference where verdicts are missing: `missing_as_0` on both sides, `missing_left_out`, `lowest` (as 0 in
    the first, as the best in the second) and `highest`; empty where none is."""


@dataclass(frozen=True, slots=True)
class SystemComparison:
    """A whole comparison."""

    measure: str
    first: str
    second: str
    rows: tuple[ComparisonRow, ...]
    examples: int
    """Examples with a pair that both sides score."""
    left_out: dict[str, int]
    """Plans that are in no mean: `only first`, `only second`, `unscored`."""
    clusters: str
    """Clusters of the interval and the test: `video`, `goal` or `example`."""
    judge: str = ""
    """Name of the judge, if there is one."""
    notes: tuple[str, ...] = ()
    """A sentence where the two were not sampled alike, or where that is not known."""

    def tables(self) -> list[Table]:
        """The comparison as a table, and its readings where verdicts are missing."""
        measure = measure_named(self.measure)
        several = len({line.metric for line in self.rows}) > 1
        rows, read = list[TableRow](), []
        for line in self.rows:
            metric, result = measure.metric_title(line.metric), line.result
            name = f"{metric}, {line.over}" if several and line.over else line.over or metric
            p_value = result.p_value if line.adjusted is None else line.adjusted
            values = (
                *(measure.cell(line.metric, value) for value in (result.first, result.second)),
                measure.cell(line.metric, result.difference, signed=True),
            )
            read.append((name, line.readings))
            rows.append(row(name, *values, Cell(p_value, P_DIGITS, least=P_LEAST), Cell(result.effect, 2)))
        left_out = ", ".join(f"{count:,} {words}" for words, count in self.left_out.items() if count) or "none"
        p_heading = "p (Holm)" if len(self.rows) > 1 else "p"
        note = f"Intervals and sign flips are of whole {self.clusters}s. Plans left out: {left_out}."
        table = Table(
            caption=f"first: {self.first}, second: {self.second}, {self.examples:,} examples",
            first="metric" if several or not self.rows[0].over else "over",
            headings=headings("first", "second", "difference, 95%", p_heading, "d"),
            rows=tuple(rows),
            notes=(note, *self.notes),
        )
        return [table, *readings_table("First minus second", read, measure.digits, signed=True)]


def compare_systems(
    first: ScoredFile, second: ScoredFile, examples: Mapping[str, Example], metrics: Sequence[str] = (), seed: int = 0
) -> SystemComparison:
    """Compare two systems; without examples, judged ones stand for themselves.

    Raises InputError for files of different measures, judges, protocols or graphs, without rows, for an unknown metric,
    and where no plan has a value on both sides.
    """
    _require_alike(first, second)
    measure = measure_named(first.scores.measure)
    for source in (first, second):
        if source.rows is None:
            raise InputError.at(rows_path(source.path), "the file does not exist", "keep the rows next to their scores")
    ours, theirs = first.values, second.values
    # Sorted, so that draws of the bootstrap do not depend on the order of a file.
    shared = sorted(ours[0].keys() & theirs[0].keys())
    rows_of_both = (*(first.rows or ()), *(second.rows or ()))
    clusters = {row.example_id: row.cluster for row in rows_of_both if row.cluster and not row.control}
    clusters |= {name: measure.cluster_of(example) for name, example in examples.items()}
    datasets = {name: example.source for name, example in examples.items()}

    named, of_theirs = (dict.fromkeys(name for own in side[None].values() for name in own) for side in (ours, theirs))
    known = [name for name in named if name in of_theirs]
    # The criteria of another rubric have a scale that the measure does not know; in percent a verdict is 0 to 100.
    judge = first.scores.judge
    bounded = {measure.main} if judge and "rubric" in judge.settings else measure.bounds.keys()
    chosen = metrics or [name for name in measure.compared or (measure.main,) if name in known]
    rows: list[ComparisonRow] = []
    scored: set[PlanId] = set()
    for metric in chosen or [measure.main]:
        both = [plan for plan in shared if all(metric in side[None].get(plan, {}) for side in (ours, theirs))]
        if not both:
            raise InputError(f"no plan of both has a value of {metric!r}; known are {', '.join(known) or 'none'}.")
        scored.update(both)
        names, pairs = _paired_means(both, ours[None], theirs[None], metric)
        lost = metric in bounded and any(
            side[0][plan][metric] != side[1][plan][metric] for side in (ours, theirs) for plan in shared
        )
        # First minus second of each example [readings, examples]; the examples are more than those that both score.
        all_names, bounds = list[str](), list[Array]()
        for worst, best in _BOUNDS.values() if lost else ():
            all_names, values = _paired_means(shared, ours[worst], theirs[best], metric)
            bounds.append(values[0] - values[1])
        apart = np.array(bounds)
        for over, own in _groups(names, datasets).items():
            places = [index for index, name in enumerate(names) if datasets.get(name, "") in own]
            sources = [datasets.get(names[index], "") for index in places]
            videos = [clusters.get(names[index], names[index]) for index in places]
            our_means, their_means = pairs[:, places].tolist()
            result = compare(our_means, their_means, videos, sources, seed)
            readings: dict[str, Interval] = {}
            if lost:
                places = [index for index, name in enumerate(all_names) if datasets.get(name, "") in own]
                sources = [datasets.get(all_names[index], "") for index in places]
                videos = [clusters.get(all_names[index], all_names[index]) for index in places]
                # One call for all readings: they share the draws of the bootstrap.
                readings = dict(zip(_BOUNDS, macro_intervals(apart[:, places], sources, videos, seed), strict=True))
                # Equal where all missing verdicts are of other datasets than these.
                missing = readings["lowest"] != readings["highest"]
                readings = readings | {"missing_left_out": result.difference} if missing else {}
            present = tuple(sorted({datasets.get(name, "") for name in names} & own))
            rows.append(ComparisonRow(metric, over, present, result, readings=readings))
    note = decoding_note(first.scores.decoding, second.scores.decoding, (first.scores.system, second.scores.system))
    levels = adjusted([row.result.p_value for row in rows])
    if len(rows) > 1:
        rows = [replace(row, adjusted=level) for row, level in zip(rows, levels, strict=True)]
    return SystemComparison(
        measure=measure.name,
        first=first.scores.system,
        second=second.scores.system,
        rows=tuple(rows),
        examples=len({plan.example_id for plan in scored}),
        left_out={
            "only first": len(ours[0].keys() - theirs[0].keys()),
            "only second": len(theirs[0].keys() - ours[0].keys()),
            "unscored": len(shared) - len(scored),
        },
        clusters=measure.cluster if examples or clusters else "example",
        judge=judge.name if judge else "",
        notes=() if note is None else (note,),
    )


def _paired_means(plans: Sequence[PlanId], ours: Values, theirs: Values, metric: str) -> tuple[list[str], Array]:
    """The examples of some plans, and each side's mean over their samples [2, examples]."""
    samples: dict[str, list[PlanId]] = {}
    for plan in plans:
        samples.setdefault(plan.example_id, []).append(plan)
    means = [[fmean([side[plan][metric] for plan in own]) for own in samples.values()] for side in (ours, theirs)]
    return list(samples), np.array(means)


def _require_alike(first: ScoredFile, second: ScoredFile) -> None:
    """Raise InputError where the two measured different things."""
    if first.scores.measure != second.scores.measure:
        names = f"{first.scores.measure} and {second.scores.measure}"
        raise InputError.at(second.path, f"the files hold scores of two measures, {names}", "give two of one measure")
    ours, theirs = first.scores.identity, second.scores.identity
    for name in dict.fromkeys([*ours, *theirs]):
        our_value, their_value = ours.get(name), theirs.get(name)
        if our_value == their_value:
            continue
        if name == "judge" and our_value and their_value:
            differing = ", ".join(key for key in our_value if our_value[key] != their_value[key])
            names = (
                our_value["name"]
                if our_value["name"] == their_value["name"]
                else f"{our_value['name']} and {their_value['name']}"
            )
            problem = f"it is by another judge than {first.path} ({names}; they differ in {differing})"
            raise InputError.at(second.path, problem, "judge both with the same judge, prompt and settings")
        problem = f"{name} is {their_value!r}, and {our_value!r} in {first.path}"
        raise InputError.at(second.path, problem, "evaluate both in the same way", field=f"identity.{name}")


def _groups(examples: Sequence[str], datasets: Mapping[str, str]) -> dict[str, set[str]]:
    """The datasets of some examples one by one, and in groups; one group where there is one."""
    names = in_order({datasets.get(example, "") for example in examples})
    groups = {name: {name} for name in names}
    if len(names) > 1:
        roles = {name: role_of(name) for name in names}
        for role, words in ROLES.items():
            of_role = {name for name in names if roles[name] == role}
            groups |= {words: of_role} if len(of_role) > 1 else {}
        if not all(roles.values()):
            groups[f"{ALL} datasets"] = set(names)
    return groups
