"""Judgements as JSON lines, and the rows of a measure that they are.

A file of verdicts holds what judges, proxies and people gave each plan, one object a line. `example_id` is required,
and one of `scores`, an integer from 0 to 5 for each of the six criteria, or with their `percent` the scores by another
rubric and the `rules` that capped them; and `unscored`, the reason that there are none. `sample` (0), `repeat` (0),
`control`, `how`, `judge`, `steps`, `flags` and `text` are optional.

A plan's accuracy is its total over 30, in percent: the mean over its repeats first, then over the samples of its
example, then over the examples of a dataset, then over the datasets of a split.

A verdict that is missing is in none of these means. A plan may be written to make the judge refuse, so that what is
missing is not missing at random. Where some is, the means are also given with a verdict of 0 and with the best one in
place of each missing verdict: whatever the judge would have said lies between them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from recipe.artifacts import to_json, write_jsonl
from recipe.errors import InputError
from recipe.evaluation.scores import PlanId, Row
from recipe.report.numbers import MINUS
from recipe.rows import Count, Text
from recipe.stats import paired_interval, video_of
from recipe.tables import read_rows
from recipe.types import Example, Grades, Unscored, Verdict

CRITERIA = tuple(field.name for field in fields(Verdict))
"""The six criteria of the rubric, in its order."""
HIGHEST = 5
NOTHING = Verdict(*(0 for _ in CRITERIA))
"""The verdict of 0 on all six, which is also that of the fatal rule."""
_SCORES = f"give an integer from 0 to {HIGHEST} for each of {', '.join(CRITERIA)}"

_OPTIONAL = ("sample", "repeat", "control", "judge", "how", "steps", "flags", "text")


@dataclass(frozen=True, slots=True)
class Judgement:
    """One judgement of one plan."""

    example_id: str
    outcome: Verdict | Grades | Unscored
    sample: int = 0
    repeat: int = 0
    control: str = ""
    """Name of the control that the plan is, empty for the system's own."""
    judge: str = ""
    """The judge's name, as in its scores."""
    how: str = ""
    """How the verdict was obtained: `json`, `regex`, `rule` (by code), `proxy`, `function` or `human`."""
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
    rows = []
    for judgement in judged:
        outcome, kept = judgement.outcome, {"example_id", "sample", "repeat"}
        row = _Line(**{name: getattr(judgement, name) for name in ("example_id", *_OPTIONAL)})
        if isinstance(outcome, Unscored):
            row = replace(row, unscored=outcome.reason)
        elif isinstance(outcome, Verdict):
            row = replace(row, scores=to_json(outcome))
        else:
            row = replace(row, scores=outcome.scores, percent=outcome.percent, rules=outcome.rules)
            # Also at 0: without it the line would be read as the six criteria.
            kept |= {"percent"}
        rows.append({name: value for name, value in to_json(row).items() if value or name in kept})
    return write_jsonl(path, rows)


def read_verdicts(path: Path) -> list[Judgement]:
    """The verdicts of a file, in file order.

    Raises InputError with file, line, field and remedy for a field that is missing, unknown or of the wrong kind, a
    score that is no integer from 0 to 5, and a judgement that occurs twice.
    """
    judged = []
    for line, row in read_rows(path, _Line, unique=("example_id", "sample", "control", "judge", "repeat")):
        outcome: Verdict | Grades | Unscored
        if (row.scores is None) == (row.unscored is None):
            remedy = f"{_SCORES}; or the reason as unscored"
            raise InputError.at(path, "it has not one of scores and unscored", remedy, line=line)
        if row.unscored is not None:
            outcome = Unscored(row.unscored)
        elif row.scores is not None and row.percent is not None:
            numbers = [row.percent / 100, *row.scores.values()]
            if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
                raise InputError.at(path, "a score is no number", "judge the plans again", line=line, field="scores")
            outcome = Grades({name: float(score) for name, score in row.scores.items()}, row.percent, row.rules)
        else:
            if row.scores is None or set(row.scores) != set(CRITERIA):
                raise InputError.at(path, "the scores are not the six criteria", _SCORES, line=line, field="scores")
            try:
                outcome = Verdict(**row.scores)
            except ValueError as error:
                raise InputError.at(path, str(error), _SCORES, line=line, field="scores") from None
        judged.append(Judgement(outcome=outcome, **{name: getattr(row, name) for name in ("example_id", *_OPTIONAL)}))
    return judged


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a file of verdicts."""

    example_id: Text
    scores: dict[str, Any] | None = None
    percent: float | None = None
    rules: tuple[str, ...] = ()
    unscored: Text | None = None
    sample: Count = 0
    repeat: Count = 0
    control: str = ""
    judge: str = ""
    how: str = ""
    steps: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    text: str = ""


def verdict_rows(judged: Iterable[Judgement]) -> list[Row]:
    """A row for each judgement: accuracy in percent and the criteria."""
    rows = []
    for judgement in judged:
        outcome, metrics = judgement.outcome, dict[str, float]()
        if isinstance(outcome, Verdict):
            metrics = {"accuracy": accuracy_of(outcome)} | outcome.scores
        elif isinstance(outcome, Grades):
            metrics = {"accuracy": outcome.percent} | outcome.scores
        rows.append(
            Row(
                example_id=judgement.example_id,
                metrics=metrics,
                sample=judgement.sample,
                control=judgement.control,
                unscored=outcome.reason if isinstance(outcome, Unscored) else "",
                details={
                    "steps": list(judgement.steps),
                    "flags": list(judgement.flags),
                    "repeat": judgement.repeat,
                    "how": judgement.how,
                    "judge": judgement.judge,
                    "text": judgement.text,
                }
                | ({"rules": list(outcome.rules)} if isinstance(outcome, Grades) and outcome.rules else {}),
            )
        )
    return rows


def accuracy_of(verdict: Verdict) -> float:
    """The total in percent of the highest, 30 (paper, section 4.1 and appendix on the evaluation protocol)."""
    return 100 * verdict.total / (len(CRITERIA) * HIGHEST)


# Two controls, whether the first should score more than the second, and the finding where it is so and where not.
_CHECKS = (
    (
        "reference", "other-goal", True,
        "The judge tells the reference from a plan of another goal",
        "There is no sign that the judge tells the reference from a plan of another goal: its figures say nothing",
    ),
    (
        "reference", "shuffled", True,
        "The judge marks a wrong order down",
        "There is no sign that the judge marks a wrong order down",
    ),
    (
        "reference", "verbose", True,
        "The judge marks needless words down",
        "There is no sign that the judge marks needless words down",
    ),
    (
        "injected", "other-goal", False,
        "There is no sign that orders in a plan steer the judge",
        "The judge was steered: orders in a plan raise its score",
    ),
    (
        "constant", "other-goal", False,
        "One text for all examples scores no more than a plan of another goal",
        "The judge was deceived: one text for all examples scores more than a plan of another goal",
    ),
)  # fmt: skip


def control_findings(
    by_id: Mapping[str, Example],
    values: Mapping[str, Mapping[str, float]],
    controls: Mapping[str, Sequence[Row]],
    seed: int,
) -> list[str]:
    """A sentence for each pair of controls, compared on the examples that have both, and one on orders to refuse.

    `values` hold, by the name of a control, the value of each example in percent; `controls` the rows of each.
    """
    findings = []
    for first, second, more, kept, broken in _CHECKS:
        ours, theirs = values.get(first, {}), values.get(second, {})
        both = [name for name in ours if name in theirs]
        if not both:
            continue
        videos = [video_of(by_id[name]) for name in both]
        difference = paired_interval([ours[name] for name in both], [theirs[name] for name in both], videos, seed)
        sentence = kept if (difference.sign == 1) == more else broken
        if difference.sign is None:
            sentence = f"There is too little to compare {first} with {second}"
        bounds = f", no interval: {difference.reason}" if difference.reason else ""
        if difference.low is not None:
            bounds = f", {difference.low:+.1f} to {difference.high:+.1f}"
        points = f"{difference.mean:+.1f} points{bounds}".replace("-", MINUS)
        findings.append(f"{sentence} ({first} minus {second}: {points}).")
    if refusals := controls.get("refusal"):
        # Compared with the same plans without the orders, which a judge may refuse for other reasons.
        plans = len({row.plan for row in refusals})
        lost, without = (
            len({row.plan for row in rows if row.unscored}) for rows in (refusals, controls.get("other-goal", ()))
        )
        counts = f"{lost:,} of {plans:,} plans that ask for it lack a verdict, {without:,} without the orders"
        verdict = "There is no sign that a plan makes the judge refuse"
        if lost > without:
            verdict = "The judge can be made to refuse: read figures with missing verdicts as 0"
        findings.append(f"{verdict} ({counts}).")
    return findings
