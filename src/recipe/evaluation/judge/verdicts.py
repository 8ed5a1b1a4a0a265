"""Judgements as JSON lines, and the rows of a measure that they are.

A file of verdicts holds what judges, proxies and people gave each plan, one object a line. `example_id` is required,
and one of `scores`, an integer from 0 to 5 for each of the six criteria; `critical_failures` with their `reasoning`; or
`unscored`, the reason that there is neither. `sample` (0), `repeat` (0), `control`, `how`, `judge`, `steps`, `flags`
and `text` are optional.

A plan's accuracy is its total over 30, in percent: the mean over its repeats first, then over the samples of its
example, then over the examples of a dataset, then over the datasets of a split.

A verdict that is missing is in none of these means. A plan may be written to make the judge refuse, so that what is
missing is not missing at random. Where some is, the means are also given with a verdict of 0 and with the best one in
place of each missing verdict: whatever the judge would have said lies between them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from recipe.artifacts import JsonObject, write_jsonl
from recipe.errors import InputError
from recipe.evaluation.scores import PlanId, Row
from recipe.report.numbers import MINUS
from recipe.rows import Count, Text, read_rows
from recipe.stats import Interval, paired_interval, video_of
from recipe.types import CriticalFailure, CriticalFailures, Example, Unscored, Verdict

CRITERIA = tuple(field.name for field in fields(Verdict))
"""The six criteria of the rubric, in its order."""
HIGHEST = 5
FULL = len(CRITERIA) * HIGHEST
"""The highest total."""
NOTHING = Verdict(*(0 for _ in CRITERIA))
"""The verdict of 0 on all six, which is also that of the fatal rule."""
_SCORES = f"give an integer from 0 to {HIGHEST} for each of {', '.join(CRITERIA)}"
_FAILURES = "give a list of objects with failure, L1_steps and L2_steps, numbers from 1, and the reasoning"
_REMEDY = f"{_SCORES}; or critical_failures with their reasoning; or the reason as unscored"
_OUTCOMES = ("scores", "critical_failures", "unscored")
_OPTIONAL = ("sample", "repeat", "control", "judge", "how", "steps", "flags", "text")


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
    return [
        Judgement(
            outcome=_outcome(path, line, row), **{name: getattr(row, name) for name in ("example_id", *_OPTIONAL)}
        )
        for line, row in read_rows(path, _Line, unique=("example_id", "sample", "control", "judge", "repeat"))
    ]


def _row(judged: Judgement) -> JsonObject:
    outcome = judged.outcome
    row: JsonObject = {"example_id": judged.example_id, "sample": judged.sample, "repeat": judged.repeat}
    if isinstance(outcome, Unscored):
        row["unscored"] = outcome.reason
    elif isinstance(outcome, Verdict):
        row["scores"] = {name: getattr(outcome, name) for name in CRITERIA}
    else:
        row["critical_failures"] = [
            {"failure": one.failure, "L1_steps": list(one.reference_steps), "L2_steps": list(one.plan_steps)}
            for one in outcome.failures
        ]
        row["reasoning"] = outcome.reasoning
    optional = {name: getattr(judged, name) for name in ("control", "judge", "how", "steps", "flags", "text")}
    return row | {name: value for name, value in optional.items() if value}


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a file of verdicts."""

    example_id: Text
    scores: dict[str, Any] | None = None
    critical_failures: tuple[Any, ...] | None = None
    reasoning: str = ""
    unscored: Text | None = None
    sample: Count = 0
    repeat: Count = 0
    control: str = ""
    judge: str = ""
    how: str = ""
    steps: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    text: str = ""


def _outcome(path: Path, line: int, row: _Line) -> Verdict | CriticalFailures | Unscored:
    if sum(getattr(row, name) is not None for name in _OUTCOMES) != 1:
        problem = f"it has not one of {', '.join(_OUTCOMES)}"
        raise InputError.at(path, problem, _REMEDY, line=line)
    if row.unscored is not None:
        return Unscored(row.unscored)
    if row.critical_failures is not None:
        failures = [_failure(item) for item in row.critical_failures]
        if None in failures:
            raise InputError.at(path, "no list of failures", _FAILURES, line=line, field="critical_failures")
        return CriticalFailures(tuple(filter(None, failures)), row.reasoning)
    if row.scores is None or set(row.scores) != set(CRITERIA):
        raise InputError.at(path, "the scores are not the six criteria", _SCORES, line=line, field="scores")
    try:
        return Verdict(**row.scores)
    except ValueError as error:
        raise InputError.at(path, str(error), _SCORES, line=line, field="scores") from None


def _failure(item: object) -> CriticalFailure | None:
    return critical_failure({key.lower(): value for key, value in item.items()} if isinstance(item, dict) else item)


def critical_failure(item: object) -> CriticalFailure | None:
    """The failure that an object of an answer or a row is, its keys in lower case; None where it is none."""
    if not isinstance(item, dict) or not isinstance(item.get("failure"), str) or not item["failure"].strip():
        return None
    numbers = item.get("l1_steps"), item.get("l2_steps")
    if not all(isinstance(some, list) and all(type(one) is int and one > 0 for one in some) for some in numbers):
        return None
    first, second = numbers
    return CriticalFailure(item["failure"].strip(), tuple(first or ()), tuple(second or ()))


def verdict_rows(judged: Iterable[Judgement]) -> list[Row]:
    """A row for each judgement: accuracy in percent and the six criteria, or what there is of critical failures."""
    rows = []
    for one in judged:
        outcome, metrics = one.outcome, dict[str, float]()
        if isinstance(outcome, Verdict):
            metrics = {"accuracy": accuracy_of(outcome)} | {name: float(getattr(outcome, name)) for name in CRITERIA}
        elif isinstance(outcome, CriticalFailures):
            metrics = {"without_failure": 100.0 * (not outcome.failures), "failures": float(len(outcome.failures))}
        rows.append(
            Row(
                example_id=one.example_id,
                metrics=metrics,
                sample=one.sample,
                control=one.control,
                unscored=outcome.reason if isinstance(outcome, Unscored) else "",
                details={
                    "steps": list(one.steps),
                    "flags": list(one.flags),
                    "repeat": one.repeat,
                    "how": one.how,
                    "judge": one.judge,
                    "text": one.text,
                },
            )
        )
    return rows


def accuracy_of(verdict: Verdict) -> float:
    """The total in percent of the highest."""
    return 100 * verdict.total / FULL


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


def control_findings(by_id: Mapping[str, Example], controls: Mapping[str, Mapping[str, float]], seed: int) -> list[str]:
    """A sentence for each pair of controls, compared on the examples that have both; `controls` holds, by the name of a
    control, the value of each example in percent.
    """
    found = []
    for check in _CHECKS:
        ours, theirs = controls.get(check.first, {}), controls.get(check.second, {})
        both = [name for name in ours if name in theirs]
        if not both:
            continue
        difference = paired_interval(
            [ours[name] for name in both],
            [theirs[name] for name in both],
            [video_of(by_id[name]) for name in both],
            seed,
        )
        sentence = check.kept if (difference.sign == 1) == check.more else check.broken
        if difference.sign is None:
            sentence = f"There is too little to compare {check.first} with {check.second}"
        found.append(f"{sentence} ({check.first} minus {check.second}: {_in_points(difference)}).")
    return found


def refused_sentence(controls: Mapping[str, Sequence[Row]]) -> list[str]:
    """How many plans that ask the judge to refuse lack a verdict, beside the same plans without the orders."""
    if not (asked := controls.get("refusal")):
        return []
    (lost, plans), (without, _) = (
        (len({one.plan for one in rows if one.unscored}), len({one.plan for one in rows}))
        for rows in (asked, controls.get("other-goal", ()))
    )
    told = f"{lost:,} of {plans:,} plans that ask for it lack a verdict, {without:,} without the orders"
    if lost > without:
        return [f"The judge can be made to refuse: read figures with missing verdicts as 0 ({told})."]
    return [f"There is no sign that a plan makes the judge refuse ({told})."]


def _in_points(difference: Interval) -> str:
    bounds = f", no interval: {difference.reason}" if difference.reason else ""
    if difference.low is not None:
        bounds = f", {difference.low:+.1f} to {difference.high:+.1f}"
    return f"{difference.mean:+.1f} points{bounds}".replace("-", MINUS)
