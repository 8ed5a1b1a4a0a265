"""Two systems' rows of one kind, paired plan by plan: what `recipe evaluate compare` compares.

A plan is paired with that of the same example and sample. What either side lacks, or has no score of, is in neither
mean and counted. Pairs are averaged over the samples of an example first, as the scores themselves are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from recipe.artifacts import JsonObject, to_json
from recipe.data.benchmarks import BENCHMARKS
from recipe.errors import InputError
from recipe.evaluation.diversity.scores import ComparedPair, prompt_diversity, read_pairs
from recipe.evaluation.judge.verdicts import CRITERIA, Judged, plan_means, role_of
from recipe.evaluation.scoreboard.sources import Board, Source
from recipe.evaluation.scores import rows_path
from recipe.stats import Comparison, adjusted, compare, video_of
from recipe.types import Example

DEFAULT = {
    "judge": ("accuracy",),
    "validity": ("score",),
    "diversity": ("diversity",),
    "vpa": ("1.accuracy", *(f"{horizon}.{name}" for horizon in (3, 4) for name in ("success_rate", "accuracy", "iou"))),
}
"""Metrics that are compared unless others are asked for: those of the paper's tables."""
ROLES = {"in-domain": "in-domain datasets", "zero-shot": "zero-shot datasets"}
ALL = "all datasets"
_MUST_AGREE = {
    "judge": ("judge",),
    "diversity": ("judge", "samples"),
    "validity": ("graphs",),
    "vpa": ("protocol", "taxonomy"),
}
"""Fields of scores in which two files must not differ."""
_MUST_AGREE_SETTINGS = ("encoder", "threshold", "margin", "lines", "graphs", "rule", "step order")


class Unit(NamedTuple):
    """A plan, by the names that both systems' rows have."""

    example_id: str
    sample: int


@dataclass(slots=True)
class Measures:
    """What one system's rows say of its plans."""

    values: dict[str, dict[Unit, float]] = field(default_factory=dict)
    """By metric."""
    units: set[Unit] = field(default_factory=set)
    """All plans, those without a score included."""
    clusters: dict[str, str] = field(default_factory=dict)
    """What each example is alike with, where the rows say so."""


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One metric on one dataset, or on several with equal weight."""

    metric: str
    over: str
    """A dataset, `in-domain datasets`, `zero-shot datasets` or `all datasets`; empty where datasets are not known."""
    datasets: tuple[str, ...]
    result: Comparison
    adjusted: float | None = None
    """The p-value adjusted for all rows (Holm); None for a single row."""


@dataclass(frozen=True, slots=True)
class ComparedSystems:
    """A whole comparison."""

    kind: str
    first: str
    second: str
    rows: tuple[ComparedRow, ...]
    examples: int
    """Examples with a pair that both sides score."""
    left_out: dict[str, int]
    """Plans that are in no mean: `only first`, `only second`, `unscored`."""
    clusters: str
    """What the interval and the test draw: `video`, `goal` or `example`."""


def compare_systems(board: Board, metrics: Sequence[str] = (), seed: int = 0) -> ComparedSystems:
    """Compare the two systems of a board with two files; without its examples, judged examples stand for themselves.

    Raises InputError for files of different kinds, judges, protocols or graphs, without rows, for an unknown metric,
    and where no plan is scored on both sides.
    """
    first, second = board.sources
    _require_alike(first, second)
    kind = first.scores.kind
    ours, theirs = (_measures(source, metrics or DEFAULT[kind]) for source in (first, second))
    shared = ours.units & theirs.units
    alike = _alike(kind, board.examples) or ours.clusters
    chosen = metrics or [name for name in DEFAULT[kind] if name in ours.values and name in theirs.values]
    rows: list[ComparedRow] = []
    scored: set[Unit] = set()
    for metric in chosen:
        known = [measures.values.get(metric, {}) for measures in (ours, theirs)]
        both = sorted(unit for unit in shared if all(unit in values for values in known))
        if not both:
            raise InputError(f"no plan of both has a value of {metric!r}; known are {_known(ours, theirs)}.")
        scored.update(both)
        rows += _rows(metric, _pairs(both, *known), board.examples, alike, seed)
    levels = adjusted([row.result.p_value for row in rows])
    if len(rows) > 1:
        rows = [replace(row, adjusted=level) for row, level in zip(rows, levels, strict=True)]
    return ComparedSystems(
        kind=kind,
        first=first.scores.system,
        second=second.scores.system,
        rows=tuple(rows),
        examples=len({unit.example_id for unit in scored}),
        left_out={
            "only first": len(ours.units - theirs.units),
            "only second": len(theirs.units - ours.units),
            "unscored": len(shared - scored),
        },
        clusters=_cluster_word(kind, bool(board.examples)),
    )


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


def _measures(source: Source, metrics: Iterable[str]) -> Measures:
    if source.judged is not None:
        return _judged(source.judged)
    if source.rows is None:
        raise InputError.at(rows_path(source.path), "the file does not exist", "keep the rows beside their scores")
    if source.scores.kind == "diversity":
        return _diversity(read_pairs(rows_path(source.path)))
    found = Measures()
    horizons = sorted({int(name.split(".")[0]) for name in metrics if name[:1].isdigit()})
    read = {"validity": _validity, "vpa": _vpa(horizons)}[source.scores.kind]
    for line, row in enumerate(source.rows, start=1):
        try:
            unit, cluster, values = read(row)
        except (KeyError, TypeError, ValueError):
            problem, remedy = "the row lacks what is compared", "evaluate the system again with this version"
            raise InputError.at(rows_path(source.path), problem, remedy, line=line) from None
        found.units.add(unit)
        found.clusters[unit.example_id] = cluster
        for name, value in values.items():
            found.values.setdefault(name, {})[unit] = float(value)
    return found


def _judged(judged: Sequence[Judged]) -> Measures:
    """Means over the repeats of each plan; controls are no plans of the system."""
    plans = plan_means(judged)
    return Measures(
        values={name: {Unit(*plan): means[name] for plan, means in plans.items()} for name in ("accuracy", *CRITERIA)},
        units={Unit(one.example_id, one.sample) for one in judged if not one.control},
    )


Read = tuple[Unit, str, Mapping[str, float]]


def _validity(row: JsonObject) -> Read:
    return Unit(row["example_id"], int(row.get("sample", 0))), f"goal {row['goal']}", dict(row["metrics"])


def _diversity(pairs: Sequence[ComparedPair]) -> Measures:
    """Diversity of each prompt, as its scores take it."""
    values = {Unit(name, 0): value for name, value in prompt_diversity(pairs).items()}
    return Measures({"diversity": values}, {Unit(pair.example_id, 0) for pair in pairs})


def _vpa(horizons: Sequence[int]) -> Callable[[JsonObject], Read]:
    """A sample's measures in percent at each horizon that it counts at."""

    def read(row: JsonObject) -> Read:
        correct, gold, predicted = list(row["correct"]), list(row["gold"]), list(row["predicted"])
        values: dict[str, float] = {}
        for horizon in horizons:
            if horizon in row["horizons"]:
                own, right = set(predicted[:horizon]), set(gold[:horizon])
                values[f"{horizon}.success_rate"] = 100.0 * all(correct[:horizon])
                values[f"{horizon}.accuracy"] = 100.0 * sum(correct[:horizon]) / horizon
                values[f"{horizon}.iou"] = 100.0 * len(own & right) / max(1, len(own | right))
        return Unit(row["sample_id"], 0), f"video {row['video_id']}", values

    return read


class _Pair(NamedTuple):
    """An example's means over the plans that both sides score."""

    example_id: str
    first: float
    second: float


def _pairs(both: Iterable[Unit], ours: Mapping[Unit, float], theirs: Mapping[Unit, float]) -> list[_Pair]:
    grouped: dict[str, list[Unit]] = {}
    for unit in both:
        grouped.setdefault(unit.example_id, []).append(unit)
    return [
        _Pair(name, fmean(ours[unit] for unit in units), fmean(theirs[unit] for unit in units))
        for name, units in grouped.items()
    ]


def _rows(
    metric: str, pairs: Sequence[_Pair], examples: Mapping[str, Example], alike: Mapping[str, str], seed: int
) -> Iterator[ComparedRow]:
    """A row for each dataset and for each group of them; one row where datasets are not known, or there is one."""

    def row(over: str, kept: Sequence[_Pair], labels: Sequence[str]) -> ComparedRow:
        clusters = [alike.get(pair.example_id, pair.example_id) for pair in kept]
        first, second = [pair.first for pair in kept], [pair.second for pair in kept]
        return ComparedRow(metric, over, tuple(sorted(set(labels))), compare(first, second, clusters, labels, seed))

    known = [examples[pair.example_id].source if pair.example_id in examples else "" for pair in pairs]
    places = {name: place for place, name in enumerate(BENCHMARKS)}
    datasets = sorted(set(known), key=lambda name: (places.get(name, len(places)), name))
    if len(datasets) == 1:
        yield row(datasets[0], pairs, known)
        return
    groups = {name: {name} for name in datasets}
    roles = {name: role_of(name) for name in datasets}
    for role, words in ROLES.items():
        named = {name for name in datasets if roles[name] == role}
        groups |= {words: named} if len(named) > 1 else {}
    if not all(roles.values()):
        groups[ALL] = set(datasets)
    for over, names in groups.items():
        kept = [pair for pair, name in zip(pairs, known, strict=True) if name in names]
        yield row(over, kept, [name for name in known if name in names])


def _alike(kind: str, examples: Mapping[str, Example]) -> dict[str, str]:
    """What each example is drawn with, where examples tell it; the rows of the other kinds tell it themselves."""
    if kind == "diversity":
        return {name: f"goal {one.source} {one.goal}" for name, one in examples.items()}
    return {name: video_of(one) for name, one in examples.items()} if kind == "judge" else {}


def _cluster_word(kind: str, known: bool) -> str:
    words = {"validity": "goal", "vpa": "video", "judge": "video", "diversity": "goal"}
    return words[kind] if known or kind in ("validity", "vpa") else "example"


def _known(*measures: Measures) -> str:
    return ", ".join(sorted(set.intersection(*(set(one.values) for one in measures)))) or "none"
