"""From verdicts to a judge's scores: accuracy of each dataset, macro accuracy of each split, the controls.

A plan's accuracy is its total over 30, in percent: the mean over its repeats first, then over the samples of its
example, then over the examples of a dataset, then over the datasets of a split. What is unscored is in none of these.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from recipe.data.benchmarks import BENCHMARKS
from recipe.evaluation.cases import EMPTY, MISSING, SHORTENED
from recipe.evaluation.clusters import video_of
from recipe.evaluation.controls import CONTROLS
from recipe.evaluation.formats import MINUS
from recipe.evaluation.results import Interval
from recipe.evaluation.scores import ControlScores, Counts, DatasetScores, JudgeIdentity, JudgeScores, MacroAccuracy
from recipe.evaluation.statistics import macro_interval, mean_interval, paired_interval
from recipe.evaluation.verdicts import CRITERIA, FULL, Judged
from recipe.types import Example, Verdict

ALL = "all"
"""The split of the macro accuracy over every dataset, where some are none of the paper's."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """All verdicts on one plan."""

    example: Example
    rows: tuple[Judged, ...]

    @property
    def verdicts(self) -> list[Verdict]:
        return [row.outcome for row in self.rows if isinstance(row.outcome, Verdict)]

    @property
    def accuracies(self) -> list[float]:
        return [100 * verdict.total / FULL for verdict in self.verdicts]

    def flagged(self, flag: str) -> bool:
        return flag in self.rows[0].flags


class _Value(NamedTuple):
    """An example's means over its plans."""

    dataset: str
    video: str
    accuracy: float
    criteria: dict[str, float]


def judge_scores(
    system: str,
    judge: JudgeIdentity,
    examples: Sequence[Example],
    judged: Sequence[Judged],
    seed: int = 0,
    ledger: Mapping[str, float | None] | None = None,
    left_out: Mapping[str, int] | None = None,
) -> JudgeScores:
    """The scores that verdicts make; `examples` hold those that were judged, and `seed` draws the intervals."""
    by_id = {example.example_id: example for example in examples}
    own = _plans(by_id, [row for row in judged if not row.control])
    control_rows = {name: _plans(by_id, [row for row in judged if row.control == name]) for name in CONTROLS}
    controls = {name: plans for name, plans in control_rows.items() if plans}
    values = _values(own)
    return JudgeScores(
        system=system,
        judge=judge,
        datasets=tuple(_dataset(name, own, values, seed) for name in _datasets(own)),
        macro=tuple(_macro(values, seed)),
        controls=tuple(_control(name, plans, seed) for name, plans in controls.items()),
        repeats=1 + max((row.repeat for row in judged), default=0),
        repeat_deviation=_deviation(own),
        ledger=dict(ledger or {}),
        findings=tuple(_findings({name: _values(plans) for name, plans in controls.items()}, seed)),
        how=dict(sorted(Counter(row.how for row in judged if row.how and not row.control).items())),
        left_out={name: count for name, count in (left_out or {}).items() if count},
    )


def role_of(dataset: str) -> str:
    """The paper's split that a dataset is in, empty for others.

    >>> role_of("niv"), role_of("my-kitchen")
    ('zero-shot', '')
    """
    return BENCHMARKS[dataset].role if dataset in BENCHMARKS else ""


def _plans(by_id: Mapping[str, Example], rows: Sequence[Judged]) -> list[_Plan]:
    grouped: dict[tuple[str, int], list[Judged]] = {}
    for row in rows:
        grouped.setdefault((row.example_id, row.sample), []).append(row)
    return [_Plan(by_id[name], tuple(found)) for (name, _), found in grouped.items()]


def _values(plans: Sequence[_Plan]) -> dict[str, _Value]:
    """The scored examples by id."""
    grouped: dict[str, list[_Plan]] = {}
    for plan in plans:
        if plan.verdicts:
            grouped.setdefault(plan.example.example_id, []).append(plan)
    return {name: _value(found) for name, found in grouped.items()}


def _value(plans: Sequence[_Plan]) -> _Value:
    example = plans[0].example
    criteria = {
        name: fmean(fmean(getattr(verdict, name) for verdict in plan.verdicts) for plan in plans) for name in CRITERIA
    }
    accuracy = fmean(fmean(plan.accuracies) for plan in plans)
    return _Value(example.source, video_of(example), accuracy, criteria)


def _datasets(plans: Sequence[_Plan]) -> list[str]:
    """Datasets in the order of the benchmarks, others behind them by name."""
    known = {name: place for place, name in enumerate(BENCHMARKS)}
    return sorted({plan.example.source for plan in plans}, key=lambda name: (known.get(name, len(known)), name))


def _dataset(name: str, plans: Sequence[_Plan], values: Mapping[str, _Value], seed: int) -> DatasetScores:
    here = [value for value in values.values() if value.dataset == name]
    accuracy, criteria = _means(here, seed)
    counts = _counts([plan for plan in plans if plan.example.source == name])
    return DatasetScores(name, role_of(name), accuracy, criteria, counts)


def _control(name: str, plans: Sequence[_Plan], seed: int) -> ControlScores:
    accuracy, criteria = _means([*_values(plans).values()], seed)
    return ControlScores(name, accuracy, criteria, _counts(plans))


def _means(values: Sequence[_Value], seed: int) -> tuple[Interval | None, dict[str, Interval]]:
    if not values:
        return None, {}
    videos = [value.video for value in values]
    criteria = {name: mean_interval([value.criteria[name] for value in values], videos, seed) for name in CRITERIA}
    return mean_interval([value.accuracy for value in values], videos, seed), criteria


def _counts(plans: Sequence[_Plan]) -> Counts:
    scored = [plan for plan in plans if plan.verdicts]
    return Counts(
        plans=len(scored),
        videos=len({(plan.example.source, plan.example.video_id) for plan in scored if plan.example.video_id}),
        unscored=len(plans) - len(scored),
        missing=sum(plan.flagged(MISSING) for plan in plans),
        empty=sum(plan.flagged(EMPTY) for plan in plans),
        shortened=sum(plan.flagged(SHORTENED) for plan in plans),
    )


def _macro(values: Mapping[str, _Value], seed: int) -> list[MacroAccuracy]:
    found = []
    roles = {value.dataset: role_of(value.dataset) for value in values.values()}
    for split in ("in-domain", "zero-shot", ALL):
        here = [value for value in values.values() if split == ALL or roles[value.dataset] == split]
        if not here or (split == ALL and all(roles.values())):
            continue
        datasets = [value.dataset for value in here]
        interval = macro_interval([value.accuracy for value in here], datasets, [value.video for value in here], seed)
        found.append(MacroAccuracy(split, interval, tuple(sorted(set(datasets)))))
    return found


def _deviation(plans: Sequence[_Plan]) -> float | None:
    deviations = [stdev(plan.accuracies) for plan in plans if len(plan.accuracies) > 1]
    return fmean(deviations) if deviations else None


class _Check(NamedTuple):
    """Two controls, whether the first is to score more than the second, and what it says of the judge."""

    first: str
    second: str
    more: bool
    kept: str
    broken: str


_CHECKS = (
    _Check(
        "reference", "other-goal", True,
        "The judge tells the reference from a plan of another goal",
        "There is no sign that the judge tells the reference from a plan of another goal: its figures say nothing",
    ),
    _Check(
        "reference", "shuffled", True,
        "The judge marks a wrong order down",
        "There is no sign that the judge marks a wrong order down",
    ),
    _Check(
        "reference", "verbose", True,
        "The judge marks needless words down",
        "There is no sign that the judge marks needless words down",
    ),
    _Check(
        "injected", "other-goal", False,
        "There is no sign that orders in a plan steer the judge",
        "The judge was steered: orders in a plan raise its score",
    ),
    _Check(
        "constant", "other-goal", False,
        "One text for all examples scores no more than a plan of another goal",
        "The judge was deceived: one text for all examples scores more than a plan of another goal",
    ),
)  # fmt: skip


def _findings(controls: Mapping[str, Mapping[str, _Value]], seed: int) -> list[str]:
    """A sentence for each pair of controls, compared on the examples that have both."""
    found = []
    for check in _CHECKS:
        ours, theirs = controls.get(check.first, {}), controls.get(check.second, {})
        both = [name for name in ours if name in theirs]
        if not both:
            continue
        difference = paired_interval(
            [ours[name].accuracy for name in both],
            [theirs[name].accuracy for name in both],
            [ours[name].video for name in both],
            seed,
        )
        sentence = check.kept if (difference.low is not None and difference.low > 0) == check.more else check.broken
        if difference.low is None:
            sentence = f"One video is too few to compare {check.first} with {check.second}"
        found.append(f"{sentence} ({check.first} minus {check.second}: {_told(difference)}).")
    return found


def _told(difference: Interval) -> str:
    bounds = "" if difference.low is None else f", {difference.low:+.1f} to {difference.high:+.1f}"
    return f"{difference.mean:+.1f} points{bounds}".replace("-", MINUS)
