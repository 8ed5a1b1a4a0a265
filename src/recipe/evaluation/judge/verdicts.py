"""Verdicts as JSON lines, and a judge's scores made from them.

A file of verdicts holds what judges, proxies and people gave each plan, one object a line. `example_id` and either
`scores`, an integer from 0 to 5 for each of the six criteria, or `unscored`, the reason that there are none, are
required. `sample` (0), `repeat` (0), `control`, `how`, `judge`, `steps`, `flags` and `text` are optional.

A plan's accuracy is its total over 30, in percent: the mean over its repeats first, then over the samples of its
example, then over the examples of a dataset, then over the datasets of a split.

A verdict that is missing is in none of these means. A plan may be written to make the judge refuse, so that what is
missing is not missing at random. Where some is, the means are also given with a verdict of 0 and with the best one in
place of each missing verdict: whatever the judge would have said lies between them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from recipe.artifacts import JsonObject, only_fields, optional_field, read_jsonl, text_field, write_jsonl
from recipe.data.benchmarks import BENCHMARKS, PAPERS
from recipe.errors import InputError
from recipe.evaluation.judge.plans import CONTROLS, EMPTY, MISSING, SHORTENED
from recipe.evaluation.scores import (
    READINGS,
    ControlScores,
    Counts,
    DatasetScores,
    JudgeIdentity,
    JudgeScores,
    MacroAccuracy,
)
from recipe.report.numbers import MINUS
from recipe.stats import Interval, macro_interval, mean_interval, paired_interval, video_of
from recipe.types import CriticalFailures, Example, Unscored, Verdict

CRITERIA = tuple(field.name for field in fields(Verdict))
"""The six criteria of the rubric, in its order."""
HIGHEST = 5
FULL = len(CRITERIA) * HIGHEST
"""The highest total."""
NOTHING, BEST = (Verdict(*(score for _ in CRITERIA)) for score in (0, HIGHEST))
"""The verdict of 0 on all six, which is also that of the fatal rule, and the best one."""
ALL = "all"
"""The split of the macro accuracy over every dataset, where some are none of the paper's."""
_REMEDY = f"give an integer from 0 to {HIGHEST} for each of {', '.join(CRITERIA)}"
_DEFAULTS: dict[str, Any] = {"sample": 0, "repeat": 0, "control": "", "judge": "", "how": "", "text": ""}
_LISTS = ("steps", "flags")


class PlanId(NamedTuple):
    """Which plan was judged: those of one system differ in this."""

    example_id: str
    sample: int
    control: str = ""
    """Name of the control that the plan is, empty for the system's own."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One judgement of one plan."""

    example_id: str
    outcome: Verdict | CriticalFailures | Unscored
    sample: int = 0
    repeat: int = 0
    control: str = ""
    """Name of the control that the plan is, empty for the system's own."""
    judge: str = ""
    """The judge's name, as in its scores."""
    how: str = ""
    """How the verdict was obtained: `json`, `regex`, `rule` (in code, without a call), `proxy` or `human`."""
    steps: tuple[str, ...] = ()
    """The plan that was judged."""
    flags: tuple[str, ...] = ()
    """`missing`, `empty`, `shortened`."""
    text: str = ""
    """The judge's raw answer."""

    @property
    def plan_id(self) -> PlanId:
        """The plan that was judged."""
        return PlanId(self.example_id, self.sample, self.control)


def write_verdicts(path: Path, judged: Iterable[Judgement]) -> int:
    """Write verdicts as JSON lines, all or nothing; returns their number."""
    return write_jsonl(path, map(_row, judged))


def read_verdicts(path: Path) -> list[Judgement]:
    """The verdicts of a file, in file order.

    Raises InputError with file, line, field and remedy for a field that is missing, unknown or of the wrong kind, a
    score that is no integer from 0 to 5, and a judgement that occurs twice.
    """
    seen: dict[tuple[object, ...], int] = {}
    found = []
    for line, row in read_jsonl(path):
        only_fields(path, line, row, ("example_id", "scores", "unscored", *_DEFAULTS, *_LISTS))
        judged = _judgement(path, line, row)
        key = (judged.example_id, judged.sample, judged.repeat, judged.control, judged.judge)
        if (first := seen.setdefault(key, line)) != line:
            problem = f"{judged.example_id!r} was already judged so in line {first}"
            raise InputError.at(path, problem, "number repeats and samples, or keep one", line=line, field="repeat")
        found.append(judged)
    return found


def _row(judged: Judgement) -> JsonObject:
    outcome = judged.outcome
    scores: JsonObject = (
        {"unscored": outcome.reason}
        if isinstance(outcome, Unscored)
        else {"scores": {name: getattr(outcome, name) for name in CRITERIA}}
    )
    row: JsonObject = {"example_id": judged.example_id, "sample": judged.sample, "repeat": judged.repeat, **scores}
    optional = {name: getattr(judged, name) for name in ("control", "judge", "how", "steps", "flags", "text")}
    return row | {name: list(value) if name in _LISTS else value for name, value in optional.items() if value}


def _judgement(path: Path, line: int, row: JsonObject) -> Judgement:
    example_id, outcome = text_field(path, line, row, "example_id"), _outcome(path, line, row)
    optional = {name: optional_field(path, line, row, name, default) for name, default in _DEFAULTS.items()}
    optional |= {name: texts_field(path, line, row, name) for name in _LISTS}
    return Judgement(example_id, outcome, **optional)


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


def texts_field(path: Path, line: int, row: JsonObject, field: str) -> tuple[str, ...]:
    value = row.get(field, [])
    if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
        raise InputError.at(path, "no list of strings", "give a list, or leave it out", line=line, field=field)
    return tuple(value)


def plan_means(
    judged: Iterable[Judgement], control: str = "", missing: Verdict | None = None
) -> dict[PlanId, dict[str, float]]:
    """Means of each plan over its verdicts: accuracy in percent, total, and each criterion.

    Only the system's own plans, or those of a control. A verdict that is missing counts as `missing`; without that it
    is left out, and so is a plan without any.
    """
    verdicts: dict[PlanId, list[Verdict]] = {}
    for one in judged:
        if one.control == control:
            scored = verdicts.setdefault(one.plan_id, [])
            outcome = one.outcome if isinstance(one.outcome, Verdict) else missing
            scored += [outcome] if outcome is not None else []
    return {
        plan: {"accuracy": fmean(map(accuracy_of, some)), **{name: _mean(some, name) for name in (*CRITERIA, "total")}}
        for plan, some in verdicts.items()
        if some
    }


def example_means(
    judged: Iterable[Judgement], control: str = "", missing: Verdict | None = None
) -> dict[str, dict[str, float]]:
    """Means of each example over its samples, each the mean over its verdicts; `missing` as in `plan_means`."""
    samples: dict[str, list[dict[str, float]]] = {}
    for plan, means in plan_means(judged, control, missing).items():
        samples.setdefault(plan.example_id, []).append(means)
    return {name: {key: fmean(one[key] for one in some) for key in some[0]} for name, some in samples.items()}


def accuracy_of(verdict: Verdict) -> float:
    """The total in percent of the highest."""
    return 100 * verdict.total / FULL


def _mean(verdicts: Iterable[Verdict], name: str) -> float:
    return fmean(getattr(verdict, name) for verdict in verdicts)


def judge_scores(
    system: str,
    judge: JudgeIdentity,
    examples: Sequence[Example],
    judged: Sequence[Judgement],
    seed: int = 0,
    ledger: Mapping[str, float | None] | None = None,
    left_out: Mapping[str, int] | None = None,
) -> JudgeScores:
    """The scores that verdicts make; `examples` hold those that were judged, and `seed` draws the intervals."""
    by_id = {example.example_id: example for example in examples}
    own = [row for row in judged if not row.control]
    controls = {name: rows for name in CONTROLS if (rows := [row for row in judged if row.control == name])}
    return JudgeScores(
        system=system,
        judge=judge,
        datasets=tuple(
            DatasetScores(
                name,
                role_of(name),
                *_summary(by_id, [row for row in own if by_id[row.example_id].source == name], seed),
            )
            for name in in_order({by_id[row.example_id].source for row in own})
        ),
        macro=tuple(_macro(by_id, own, seed)),
        controls=tuple(ControlScores(name, *_summary(by_id, rows, seed)) for name, rows in controls.items()),
        repeats=1 + max((row.repeat for row in judged), default=0),
        repeat_deviation=_deviation(own),
        ledger=dict(ledger or {}),
        findings=(
            *control_findings(by_id, {name: example_means(rows, name) for name, rows in controls.items()}, seed),
            *refused_sentence(controls),
        ),
        how=dict(sorted(Counter(row.how for row in own if row.how).items())),
        left_out={name: count for name, count in (left_out or {}).items() if count},
    )


def in_order(datasets: Iterable[str]) -> list[str]:
    """Datasets in the order of the benchmarks, others after them by name."""
    order = {name: place for place, name in enumerate(BENCHMARKS)}
    return sorted(datasets, key=lambda name: (order.get(name, len(order)), name))


def role_of(dataset: str) -> str:
    """The paper's split that a dataset is in, empty for others.

    >>> role_of("niv"), role_of("my-kitchen")
    ('zero-shot', '')
    """
    return BENCHMARKS[dataset].role if dataset in PAPERS else ""


def by_plan(judged: Iterable[Judgement]) -> dict[PlanId, list[Judgement]]:
    """The judgements of each plan, in order of first appearance."""
    grouped: dict[PlanId, list[Judgement]] = {}
    for one in judged:
        grouped.setdefault(one.plan_id, []).append(one)
    return grouped


def _summary(
    by_id: Mapping[str, Example], rows: Sequence[Judgement], seed: int
) -> tuple[Interval | None, dict[str, Interval], Counts, dict[str, Interval]]:
    """Accuracy, criteria, counts and readings of plans."""
    control = rows[0].control if rows else ""

    def interval(means: Mapping[str, Mapping[str, float]], measure: str) -> Interval:
        videos = [video_of(by_id[name]) for name in means]
        return mean_interval([one[measure] for one in means.values()], videos, seed)

    means, counts = example_means(rows, control), counts_of(by_id, rows, Verdict)
    read = _readings(rows, control, lambda means: interval(means, "accuracy"))
    if not means:
        return None, {}, counts, read
    return interval(means, "accuracy"), {name: interval(means, name) for name in CRITERIA}, counts, read


def _readings(
    rows: Sequence[Judgement], control: str, figure: Callable[[dict[str, dict[str, float]]], Interval]
) -> dict[str, Interval]:
    """A figure of the means of examples by each reading; empty where no verdict is missing."""
    if not any(isinstance(row.outcome, Unscored) for row in rows):
        return {}
    readings = zip(READINGS, (NOTHING, None, BEST), strict=True)
    means = {name: example_means(rows, control, missing) for name, missing in readings}
    return {name: figure(one) for name, one in means.items() if one}


def counts_of(
    by_id: Mapping[str, Example], rows: Sequence[Judgement], kind: type[Verdict | CriticalFailures]
) -> Counts:
    """How many plans have a judgement of this kind, and how many others there are."""
    plans = list(by_plan(rows).values())
    scored = [plan for plan in plans if any(isinstance(row.outcome, kind) for row in plan)]
    examples = [by_id[plan[0].example_id] for plan in scored]
    flags = Counter(flag for plan in plans for flag in set(plan[0].flags))
    return Counts(
        plans=len(scored),
        videos=len({(example.source, example.video_id) for example in examples if example.video_id}),
        unscored=len(plans) - len(scored),
        missing=flags[MISSING],
        empty=flags[EMPTY],
        shortened=flags[SHORTENED],
    )


def _macro(by_id: Mapping[str, Example], rows: Sequence[Judgement], seed: int) -> Iterator[MacroAccuracy]:
    """Macro accuracy of each split that has a verdict."""

    def interval(means: Mapping[str, Mapping[str, float]]) -> Interval:
        examples, accuracy = [by_id[name] for name in means], [one["accuracy"] for one in means.values()]
        return macro_interval(accuracy, [one.source for one in examples], [video_of(one) for one in examples], seed)

    others = not all(role_of(by_id[name].source) for name in example_means(rows))
    for split in ("in-domain", "zero-shot", *([ALL] if others else [])):
        own = [row for row in rows if split in (role_of(by_id[row.example_id].source), ALL)]
        if means := example_means(own):
            datasets = tuple(sorted({by_id[name].source for name in means}))
            yield MacroAccuracy(split, interval(means), datasets, _readings(own, "", interval))


def _deviation(rows: Iterable[Judgement]) -> float | None:
    """Mean over plans of the standard deviation of their accuracies; None where no plan has two verdicts."""
    accuracies = [
        [accuracy_of(row.outcome) for row in plan if isinstance(row.outcome, Verdict)]
        for plan in by_plan(rows).values()
    ]
    deviations = [stdev(values) for values in accuracies if len(values) > 1]
    return fmean(deviations) if deviations else None


class _ControlCheck(NamedTuple):
    """Two controls, whether the first should score more than the second, and the finding for each outcome."""

    first: str
    second: str
    more: bool
    kept: str
    broken: str


_CHECKS = (
    _ControlCheck(
        "reference", "other-goal", True,
        "The judge tells the reference from a plan of another goal",
        "There is no sign that the judge tells the reference from a plan of another goal: its figures say nothing",
    ),
    _ControlCheck(
        "reference", "shuffled", True,
        "The judge marks a wrong order down",
        "There is no sign that the judge marks a wrong order down",
    ),
    _ControlCheck(
        "reference", "verbose", True,
        "The judge marks needless words down",
        "There is no sign that the judge marks needless words down",
    ),
    _ControlCheck(
        "injected", "other-goal", False,
        "There is no sign that orders in a plan steer the judge",
        "The judge was steered: orders in a plan raise its score",
    ),
    _ControlCheck(
        "constant", "other-goal", False,
        "One text for all examples scores no more than a plan of another goal",
        "The judge was deceived: one text for all examples scores more than a plan of another goal",
    ),
)  # fmt: skip


def control_findings(
    by_id: Mapping[str, Example], controls: Mapping[str, Mapping[str, Mapping[str, float]]], seed: int
) -> list[str]:
    """A sentence for each pair of controls, compared on the examples that have both."""
    found = []
    for check in _CHECKS:
        ours, theirs = controls.get(check.first, {}), controls.get(check.second, {})
        both = [name for name in ours if name in theirs]
        if not both:
            continue
        difference = paired_interval(
            [ours[name]["accuracy"] for name in both],
            [theirs[name]["accuracy"] for name in both],
            [video_of(by_id[name]) for name in both],
            seed,
        )
        sentence = check.kept if (difference.sign == 1) == check.more else check.broken
        if difference.sign is None:
            sentence = f"There is too little to compare {check.first} with {check.second}"
        found.append(f"{sentence} ({check.first} minus {check.second}: {_in_points(difference)}).")
    return found


def refused_sentence(controls: Mapping[str, Sequence[Judgement]]) -> list[str]:
    """How many plans that ask the judge to refuse lack a verdict, beside the same plans without the orders."""
    if not (asked := controls.get("refusal")):
        return []
    counts = [
        (sum(any(isinstance(row.outcome, Unscored) for row in rows) for rows in plans.values()), len(plans))
        for plans in (by_plan(asked), by_plan(controls.get("other-goal", ())))
    ]
    (lost, plans), (without, _) = counts
    told = f"{lost:,} of {plans:,} plans that ask for it lack a verdict, {without:,} without the orders"
    if lost > without:
        return [f"The judge can be made to refuse: read figures with missing verdicts as 0 ({told})."]
    return [f"There is no sign that a plan makes the judge refuse ({told})."]


def _in_points(difference: Interval) -> str:
    bounds = f", no interval: {difference.reason}" if difference.reason else ""
    if difference.low is not None:
        bounds = f", {difference.low:+.1f} to {difference.high:+.1f}"
    return f"{difference.mean:+.1f} points{bounds}".replace("-", MINUS)
