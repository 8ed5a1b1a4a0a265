"""Verdicts as JSON lines, and a judge's scores made from them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from recipe.artifacts import JsonObject, only_fields, read_jsonl, text_field, write_jsonl
from recipe.data.benchmarks import BENCHMARKS
from recipe.errors import InputError
from recipe.evaluation.judge.plans import CONTROLS, EMPTY, MISSING, SHORTENED
from recipe.evaluation.scores import ControlScores, Counts, DatasetScores, JudgeIdentity, JudgeScores, MacroAccuracy
from recipe.report.numbers import MINUS
from recipe.stats import Interval, macro_interval, mean_interval, paired_interval, video_of
from recipe.types import Example, Unscored, Verdict

# Verdicts as JSON lines: what judges, proxies and people gave each plan; the rows beside a file of judge scores.
#
# One object a line. `example_id` and either `scores`, an integer from 0 to 5 for each of the six criteria, or
# `unscored`, the reason that there are none, are required. `sample` (0), `repeat` (0), `control`, `how`, `judge`,
# `steps`, `flags` and `text` are optional, so that ratings of people can be written by hand.


CRITERIA = tuple(field.name for field in fields(Verdict))
"""The six criteria of the rubric, in its order."""
HIGHEST = 5
FULL = len(CRITERIA) * HIGHEST
"""The highest total."""
_REMEDY = f"give an integer from 0 to {HIGHEST} for each of {', '.join(CRITERIA)}"
_FIELDS = (
    "example_id", "sample", "repeat", "control", "judge", "how", "scores", "unscored", "steps", "flags", "text",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judged:
    """One judgement of one plan."""

    example_id: str
    outcome: Verdict | Unscored
    sample: int = 0
    repeat: int = 0
    control: str = ""
    """Name of the control that the plan is, empty for the system's own."""
    judge: str = ""
    """The judge's name, as in its scores."""
    how: str = ""
    """How the verdict was come by: `json`, `regex`, `rule` (in code, without a call), `proxy` or `human`."""
    steps: tuple[str, ...] = ()
    """The plan that was judged."""
    flags: tuple[str, ...] = ()
    """What was special: `missing`, `empty`, `shortened`."""
    text: str = ""
    """The judge's raw answer."""


def write_verdicts(path: Path, judged: Iterable[Judged]) -> int:
    """Write verdicts as JSON lines, all or nothing; returns their number."""
    return write_jsonl(path, map(_row, judged))


def read_verdicts(path: Path) -> list[Judged]:
    """The verdicts of a file, in file order.

    Raises InputError with file, line, field and remedy for a field that is missing, unknown or of the wrong kind, a
    score that is no integer from 0 to 5, and a judgement that occurs twice.
    """
    seen: dict[tuple[object, ...], int] = {}
    found = []
    for line, row in read_jsonl(path):
        only_fields(path, line, row, _FIELDS)
        judged = _judged(path, line, row)
        key = (judged.example_id, judged.sample, judged.repeat, judged.control, judged.judge)
        if (first := seen.setdefault(key, line)) != line:
            problem = f"{judged.example_id!r} was already judged so in line {first}"
            raise InputError.at(path, problem, "number repeats and samples, or keep one", line=line, field="repeat")
        found.append(judged)
    return found


def _row(judged: Judged) -> JsonObject:
    outcome = judged.outcome
    told: JsonObject = (
        {"unscored": outcome.reason}
        if isinstance(outcome, Unscored)
        else {"scores": {name: getattr(outcome, name) for name in CRITERIA}}
    )
    row: JsonObject = {"example_id": judged.example_id, "sample": judged.sample, "repeat": judged.repeat}
    optional: JsonObject = {
        "control": judged.control,
        "judge": judged.judge,
        "how": judged.how,
        "steps": list(judged.steps),
        "flags": list(judged.flags),
        "text": judged.text,
    }
    return row | told | {name: value for name, value in optional.items() if value}


def _judged(path: Path, line: int, row: JsonObject) -> Judged:
    return Judged(
        example_id=text_field(path, line, row, "example_id"),
        outcome=_outcome(path, line, row),
        sample=_typed(path, line, row, "sample", 0),
        repeat=_typed(path, line, row, "repeat", 0),
        control=_typed(path, line, row, "control", ""),
        judge=_typed(path, line, row, "judge", ""),
        how=_typed(path, line, row, "how", ""),
        steps=_texts(path, line, row, "steps"),
        flags=_texts(path, line, row, "flags"),
        text=_typed(path, line, row, "text", ""),
    )


def _outcome(path: Path, line: int, row: JsonObject) -> Verdict | Unscored:
    if ("scores" in row) == ("unscored" in row):
        raise InputError.at(path, "neither scores nor the reason that there are none", _REMEDY, line=line)
    if "unscored" in row:
        return Unscored(text_field(path, line, row, "unscored"))
    scores = row["scores"]
    if not isinstance(scores, dict) or set(scores) != set(CRITERIA):
        raise InputError.at(path, "the scores are not the six criteria", _REMEDY, line=line, field="scores")
    try:
        return Verdict(**scores)
    except ValueError as error:
        raise InputError.at(path, str(error), _REMEDY, line=line, field="scores") from None


def _typed(path: Path, line: int, row: JsonObject, field: str, default: Any) -> Any:
    value = row.get(field, default)
    if type(value) is not type(default) or (isinstance(value, int) and value < 0):
        kind = "a whole number from 0" if isinstance(default, int) else "a string"
        raise InputError.at(path, f"{value!r} is not {kind}", f"give {kind}, or leave it out", line=line, field=field)
    return value


def _texts(path: Path, line: int, row: JsonObject, field: str) -> tuple[str, ...]:
    value = row.get(field, [])
    if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
        raise InputError.at(path, "no list of strings", "give a list, or leave it out", line=line, field=field)
    return tuple(value)


# From verdicts to a judge's scores: accuracy of each dataset, macro accuracy of each split, the controls.
#
# A plan's accuracy is its total over 30, in percent: the mean over its repeats first, then over the samples of its
# example, then over the examples of a dataset, then over the datasets of a split. What is unscored is in none of these.


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
