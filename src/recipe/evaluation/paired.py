"""Two systems' rows of one kind, compared plan by plan.

A plan is paired with that of the same example and sample. What either side lacks, or has no score of, is in neither
mean and counted. Pairs are averaged over the samples of an example first, as the scores themselves are.

Where a judge gave a plan of both no verdict, the difference is also given with each missing verdict as 0, and as it
would be at the least and at the most: 0 in place of one side's, the best in place of the other's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from recipe.artifacts import JsonObject, to_json
from recipe.errors import InputError
from recipe.evaluation.diversity.scores import prompt_diversity, read_pairs
from recipe.evaluation.judge.critical import NONE, WORST, failure_means, read_failures
from recipe.evaluation.judge.verdicts import BEST, CRITERIA, NOTHING, PlanId, in_order, plan_means, role_of
from recipe.evaluation.scoreboard.sources import Board, Source
from recipe.evaluation.scores import rows_path
from recipe.models.sampling import decoding_note
from recipe.stats import Comparison, Interval, adjusted, compare, macro_interval, video_of
from recipe.types import Example

DEFAULT = {
    "judge": ("accuracy",),
    "critical-failures": ("without_failure", "failures"),
    "validity": ("score",),
    "match": ("matched_ordered_f1",),
    "diversity": ("diversity",),
    "vpa": ("1.accuracy", *(f"{horizon}.{name}" for horizon in (3, 4) for name in ("success_rate", "accuracy", "iou"))),
}
"""Metrics that are compared unless others are asked for: those of the paper's tables."""
ROLES = {"in-domain": "in-domain datasets", "zero-shot": "zero-shot datasets"}
ALL = "all datasets"
_MUST_AGREE = {
    "judge": ("judge",),
    "critical-failures": ("judge",),
    "diversity": ("judge", "samples"),
    "validity": ("graphs",),
    "match": (),
    "vpa": ("protocol", "taxonomy"),
}
"""Fields of scores in which two files must not differ."""
_MUST_AGREE_SETTINGS = ("encoder", "threshold", "margin", "lines", "graphs", "rule", "step order")


@dataclass(slots=True)
class PlanValues:
    """The values that one system's rows hold for its plans."""

    values: dict[str, dict[PlanId, float]] = field(default_factory=dict)
    """By metric."""
    bounds: dict[str, tuple[dict[PlanId, float], dict[PlanId, float]]] = field(default_factory=dict)
    """By metric that may be missing: the values with missing verdicts as 0 and as the best."""
    plans: set[PlanId] = field(default_factory=set)
    """All plans, those without a score included."""
    clusters: dict[str, str] = field(default_factory=dict)
    """The cluster of each example, where the rows name it."""


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

    kind: str
    first: str
    second: str
    rows: tuple[ComparisonRow, ...]
    examples: int
    """Examples with a pair that both sides score."""
    left_out: dict[str, int]
    """Plans that are in no mean: `only first`, `only second`, `unscored`."""
    clusters: str
    """Clusters of the interval and the test: `video`, `goal` or `example`."""
    notes: tuple[str, ...] = ()
    """A sentence where the two were not sampled alike, or where that is not known."""


def compare_systems(board: Board, metrics: Sequence[str] = (), seed: int = 0) -> SystemComparison:
    """Compare the two systems of a board with two files; without its examples, judged examples stand for themselves.

    Raises InputError for files of different kinds, judges, protocols or graphs, without rows, for an unknown metric,
    and where no plan is scored on both sides.
    """
    first, second = board.sources
    _require_alike(first, second)
    kind = first.scores.kind
    ours, theirs = (_values(source, metrics or DEFAULT[kind]) for source in (first, second))
    shared = ours.plans & theirs.plans
    clusters = _clusters(kind, board.examples) or ours.clusters
    chosen = metrics or [name for name in DEFAULT[kind] if name in ours.values and name in theirs.values]
    rows: list[ComparisonRow] = []
    scored: set[PlanId] = set()
    for metric in chosen:
        sides = [side.values.get(metric, {}) for side in (ours, theirs)]
        both = sorted(plan for plan in shared if all(plan in values for values in sides))
        if not both:
            known = ", ".join(sorted(ours.values.keys() & theirs.values.keys())) or "none"
            raise InputError(f"no plan of both has a value of {metric!r}; known are {known}.")
        scored.update(both)
        bounds = [side.bounds[metric] for side in (ours, theirs) if metric in side.bounds]
        read = _readings(board, shared, clusters, bounds, seed)
        names, (first_means, second_means) = _example_means(both, sides)
        for over, places in _groups([_dataset(board, name) for name in names]).items():
            own = [names[place] for place in places]
            first_values, second_values = ([side[place] for place in places] for side in (first_means, second_means))
            datasets = [_dataset(board, name) for name in own]
            result = compare(first_values, second_values, [clusters.get(name, name) for name in own], datasets, seed)
            readings = {name: values[over] for name, values in read.items()}
            if readings and readings["lowest"] != readings["highest"]:  # else nothing is missing here
                readings["missing_left_out"] = result.difference
            else:
                readings = {}
            rows.append(ComparisonRow(metric, over, tuple(sorted(set(datasets))), result, readings=readings))
    note = decoding_note(first.scores.decoding, second.scores.decoding, (first.scores.system, second.scores.system))
    levels = adjusted([row.result.p_value for row in rows])
    if len(rows) > 1:
        rows = [replace(row, adjusted=level) for row, level in zip(rows, levels, strict=True)]
    return SystemComparison(
        kind=kind,
        first=first.scores.system,
        second=second.scores.system,
        rows=tuple(rows),
        examples=len({plan.example_id for plan in scored}),
        left_out={
            "only first": len(ours.plans - theirs.plans),
            "only second": len(theirs.plans - ours.plans),
            "unscored": len(shared - scored),
        },
        clusters=_cluster_word(kind, bool(board.examples)),
        notes=() if note is None else (note,),
    )


def _example_means(
    plans: Iterable[PlanId], sides: Sequence[Mapping[PlanId, float]]
) -> tuple[list[str], list[list[float]]]:
    """The examples of some plans, and each side's mean over the samples of each."""
    by_example: dict[str, list[PlanId]] = {}
    for plan in plans:
        by_example.setdefault(plan.example_id, []).append(plan)
    return list(by_example), [[fmean(values[plan] for plan in own) for own in by_example.values()] for values in sides]


def _readings(
    board: Board,
    shared: Iterable[PlanId],
    clusters: Mapping[str, str],
    bounds: Sequence[tuple[dict[PlanId, float], dict[PlanId, float]]],
    seed: int,
) -> dict[str, dict[str, Interval]]:
    """The difference by reading and by what it is over, where a verdict on a plan of both is missing, else nothing."""
    plans = sorted(shared)
    if all(least[plan] == most[plan] for least, most in bounds for plan in plans):
        return {}
    first, second = bounds
    pairs = {"lowest": (first[0], second[1]), "missing_as_0": (first[0], second[0]), "highest": (first[1], second[0])}
    found: dict[str, dict[str, Interval]] = {}
    for name, sides in pairs.items():
        found[name] = {}
        names, means = _example_means(plans, sides)
        for over, places in _groups([_dataset(board, one) for one in names]).items():
            own = [names[place] for place in places]
            apart = [means[0][place] - means[1][place] for place in places]
            datasets = [_dataset(board, one) for one in own]
            found[name][over] = macro_interval(apart, datasets, [clusters.get(one, one) for one in own], seed)
    return found


def _require_alike(first: Source, second: Source) -> None:
    """Raise InputError where the two measured different things."""
    if first.scores.kind != second.scores.kind:
        kinds = f"{first.scores.kind} and {second.scores.kind}"
        raise InputError.at(second.path, f"the files hold scores of two kinds, {kinds}", "give two of one kind")
    ours, theirs = to_json(first.scores), to_json(second.scores)
    for name in _MUST_AGREE[first.scores.kind]:
        if ours.get(name) == theirs.get(name):
            continue
        if name == "judge":
            raise _other_judge(first.path, second.path, ours[name], theirs[name])
        problem = f"{name} is {theirs.get(name)!r}, and {ours.get(name)!r} in {first.path}"
        raise InputError.at(second.path, problem, "evaluate both in the same way", field=name)
    for name in _MUST_AGREE_SETTINGS:
        here, there = (side.get("settings", {}).get(name) for side in (ours, theirs))
        if here != there:
            problem = f"the setting {name!r} is {there!r}, and {here!r} in {first.path}"
            raise InputError.at(second.path, problem, "evaluate both in the same way", field="settings")


def _other_judge(first: Path, second: Path, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> InputError:
    differing = [name for name in ours if ours[name] != theirs[name]]
    names = ours["name"] if ours["name"] == theirs["name"] else f"{ours['name']} and {theirs['name']}"
    problem = f"it is by another judge than {first} ({names}; they differ in {', '.join(differing)})"
    return InputError.at(second, problem, "judge both with the same judge, prompt and settings")


def _values(source: Source, metrics: Iterable[str]) -> PlanValues:
    if (judgements := source.judgements) is not None:
        least, means, most = (plan_means(judgements, missing=missing) for missing in (NOTHING, None, BEST))

        def column(means: Mapping[PlanId, Mapping[str, float]], name: str) -> dict[PlanId, float]:
            return {plan: one[name] for plan, one in means.items()}

        names = ("accuracy", *CRITERIA)
        return PlanValues(
            values={name: column(means, name) for name in names},
            bounds={name: (column(least, name), column(most, name)) for name in names},
            plans={one.plan_id for one in judgements if not one.control},
        )
    if source.rows is None:
        raise InputError.at(rows_path(source.path), "the file does not exist", "keep the rows beside their scores")
    if source.scores.kind == "diversity":
        pairs = read_pairs(rows_path(source.path))
        zero, values, full = (
            {PlanId(name, 0): value for name, value in prompt_diversity(pairs, missing).items()}
            for missing in (0.0, None, 1.0)
        )
        prompts = {PlanId(pair.example_id, 0) for pair in pairs}
        return PlanValues({"diversity": values}, {"diversity": (zero, full)}, prompts)
    if source.scores.kind == "critical-failures":
        judged = read_failures(rows_path(source.path))
        failed = failure_means(judged)
        names = ("without_failure", "failures")
        by_name = {name: {plan: one[place] for plan, one in failed.items()} for place, name in enumerate(names)}
        worst, best = (
            {plan: one[0] for plan, one in failure_means(judged, missing=missing).items()} for missing in (WORST, NONE)
        )
        # A number of failures has no highest value that could stand in for a missing one.
        return PlanValues(
            by_name, {"without_failure": (worst, best)}, {one.plan_id for one in judged if not one.control}
        )
    found = PlanValues()
    horizons = sorted({int(name.split(".")[0]) for name in metrics if name[:1].isdigit()})
    for line, row in enumerate(source.rows, start=1):
        try:
            if source.scores.kind in ("validity", "match"):
                plan, cluster = PlanId(row["example_id"], int(row.get("sample", 0))), f"goal {row['goal']}"
                measures = dict(row["metrics"])
            else:
                plan, cluster = PlanId(row["sample_id"], 0), f"video {row['video_id']}"
                measures = vpa_measures(row, horizons)
        except (KeyError, TypeError, ValueError):
            problem, remedy = "the row lacks what is compared", "evaluate the system again with this version"
            raise InputError.at(rows_path(source.path), problem, remedy, line=line) from None
        found.plans.add(plan)
        found.clusters[plan.example_id] = cluster
        for name, value in measures.items():
            found.values.setdefault(name, {})[plan] = float(value)
    return found


def vpa_measures(row: JsonObject, horizons: Sequence[int]) -> dict[str, float]:
    """A sample's measures in percent at each horizon that it counts at."""
    correct, gold, predicted = list(row["correct"]), list(row["gold"]), list(row["predicted"])
    values: dict[str, float] = {}
    for horizon in horizons:
        if horizon in row["horizons"]:
            own, right = set(predicted[:horizon]), set(gold[:horizon])
            values[f"{horizon}.success_rate"] = 100.0 * all(correct[:horizon])
            values[f"{horizon}.accuracy"] = 100.0 * sum(correct[:horizon]) / horizon
            values[f"{horizon}.iou"] = 100.0 * len(own & right) / max(1, len(own | right))
    return values


def _groups(sources: Sequence[str]) -> dict[str, list[int]]:
    """Places in `sources` [examples] of each dataset and of each group of datasets; one group where there is one."""
    datasets = in_order(set(sources))
    groups = {name: {name} for name in datasets}
    if len(datasets) > 1:
        roles = {name: role_of(name) for name in datasets}
        for role, words in ROLES.items():
            named = {name for name in datasets if roles[name] == role}
            groups |= {words: named} if len(named) > 1 else {}
        if not all(roles.values()):
            groups[ALL] = set(datasets)
    return {over: [place for place, name in enumerate(sources) if name in names] for over, names in groups.items()}


def _dataset(board: Board, example: str) -> str:
    return board.examples[example].source if example in board.examples else ""


def _clusters(kind: str, examples: Mapping[str, Example]) -> dict[str, str]:
    """The cluster of each example, from the examples; the rows of the other kinds name it themselves."""
    if kind == "diversity":
        return {name: f"goal {one.source} {one.goal}" for name, one in examples.items()}
    judged = kind in ("judge", "critical-failures")
    return {name: video_of(one) for name, one in examples.items()} if judged else {}


def _cluster_word(kind: str, known: bool) -> str:
    words = {"validity": "goal", "match": "goal", "vpa": "video", "judge": "video", "critical-failures": "video"}
    return words.get(kind, "goal") if known or kind in ("validity", "match", "vpa") else "example"
