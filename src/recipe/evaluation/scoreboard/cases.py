"""Example by example: every system's plan, what was measured of it, and the narrations that support it."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeGuard

from recipe.artifacts import JsonObject
from recipe.errors import MissingExtra
from recipe.evaluation.judge.verdicts import CRITERIA, FULL, Judged
from recipe.evaluation.metrics import METRICS
from recipe.evaluation.scoreboard.accuracy import CRITERION_NAMES, Bench, benches, dataset_name
from recipe.evaluation.scoreboard.sources import Board, Source, judge_key
from recipe.evaluation.scores import JudgeScores, ValidityScores, VpaScores
from recipe.evaluation.validity.readings import STATUSES
from recipe.explain.explain import Explained, explain, in_words
from recipe.explain.page import page_environment, panel, step_rows
from recipe.explain.records import Explanation, Links
from recipe.progress import SILENT, Progress
from recipe.report.html import shown
from recipe.types import Verdict

# Example by example: every system's plan with what was measured of it, as the data of the page's example views.
#
# Short keys, because there are thousands of examples: `id`, `d`ataset, `s`plit, `g`oal, `h`istory, `r`eference and
# `p`lans; of a plan its s`y`stem, sample `k`, s`t`eps, `n`otes, `v`erdicts, `st`atuses, `a`ctions, required
# steps that it lacks `w`, metrics `q`, and `m`, its score on each measure (a judge, validity, VPA), in percent.


STEP, STEPS, ANSWER = 400, 60, 1500
"""Characters of a step, steps of a plan, and characters of a judge's answer that are shown."""
_PARTS = ("score", "order", "coverage", "clean", "reward")
VALIDITY, VPA = "validity", "VPA"
_NO_SPLITS: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class Shown:
    """One plan of one system while its rows are gathered."""

    system: int
    sample: int
    steps: tuple[str, ...]
    verdicts: list[JsonObject] = field(default_factory=list)
    scores: dict[int, list[float]] = field(default_factory=dict)
    """By measure, one for each repeat."""
    statuses: list[str] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    actions: list[list[object]] = field(default_factory=list)
    flags: dict[str, None] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()
    """Required steps that neither history nor plan names."""

    @property
    def name(self) -> str:
        """Tells it from the other plans of its example."""
        return f"{self.system}/{self.sample}"


@dataclass(slots=True)
class Case:
    """One example while its rows are gathered."""

    example_id: str
    dataset: str = ""
    split: str = ""
    goal: str = ""
    history: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    plans: dict[tuple[int, int, str], Shown] = field(default_factory=dict)
    """By system, sample and file, because two files of a system may hold different plans."""

    def first(self) -> list[Shown]:
        """Each system's first sample, which is what judges score."""
        earliest: dict[int, int] = {}
        for plan in self.plans.values():
            earliest[plan.system] = min(plan.sample, earliest.get(plan.system, plan.sample))
        return [plan for plan in self.plans.values() if plan.sample == earliest[plan.system]]


@dataclass(frozen=True, slots=True)
class Cases:
    """Every example with its plans, in the order of the examples, and the measures that score them."""

    measures: tuple[str, ...]
    cases: tuple[Case, ...]

    @property
    def names(self) -> frozenset[str]:
        """Ids of the examples that rows are about."""
        return frozenset(case.example_id for case in self.cases)


def gather_cases(board: Board) -> Cases:
    """All rows by example; examples that no row is about are left out."""
    judges = benches(board)
    measures = [bench.name for bench in judges]
    measures += [name for name, kind in ((VALIDITY, ValidityScores), (VPA, VpaScores)) if board.of(kind)]
    found: dict[str, Case] = {}
    for source in board.sources:
        if source.judged is not None:
            _add_judged(board, source, found, _place(judges, source))
        elif source.rows is not None and isinstance(source.scores, ValidityScores):
            _add_valid(board, source, found, measures.index(VALIDITY))
        elif source.rows is not None and isinstance(source.scores, VpaScores):
            _add_actions(board, source, found, measures.index(VPA))
    order = {example: place for place, example in enumerate(board.examples)}
    ordered = sorted(found.values(), key=lambda case: order.get(case.example_id, len(order)))
    return Cases(tuple(measures), tuple(ordered))


def mean_score(plan: Shown, measure: int) -> float | None:
    """A plan's score on a measure in percent, the mean over repeats; None where it has none."""
    values = plan.scores.get(measure)
    return sum(values) / len(values) if values else None


def page_data(
    board: Board, cases: Cases, colours: Mapping[str, str], grounded: Mapping[str, Mapping[str, str]]
) -> JsonObject:
    """What the page's script reads; `grounded` names the element that explains a system's plan, by example."""
    return {
        "systems": [shown(name, STEP) for name in board.systems],
        "colours": [colours[name] for name in board.systems],
        "measures": [shown(name, STEP) for name in cases.measures],
        "criteria": list(CRITERION_NAMES.values()),
        "statuses": {name: list(told) for name, told in STATUSES.items()},
        "metrics": {name: METRICS[name] for name in _PARTS},
        "examples": [_case_data(case, cases.measures, grounded.get(case.example_id, {})) for case in cases.cases],
    }


def _place(judges: Sequence[Bench], source: Source) -> int:
    assert isinstance(source.scores, JudgeScores)
    key = judge_key(source.scores.judge)
    return next(place for place, bench in enumerate(judges) if judge_key(bench.judge) == key)


def _case(board: Board, found: dict[str, Case], example_id: str, splits: Mapping[str, str] = _NO_SPLITS) -> Case:
    if example_id not in found:
        example = board.examples.get(example_id)
        found[example_id] = (
            Case(example_id)
            if example is None
            else Case(
                example_id,
                example.source,
                splits.get(example.source, ""),
                example.goal,
                example.history,
                example.continuation,
            )
        )
    return found[example_id]


def _plan(board: Board, case: Case, source: Source, sample: int, steps: Sequence[str]) -> Shown:
    """The plan that a row is about: one entry for equal plans of a system, whichever file they are from.

    Ratings of people need not repeat the plan, so a row without steps is of the plan that is known.
    """
    system = board.systems.index(source.scores.system)
    texts = tuple(steps)
    same = [plan for plan in case.plans.values() if (plan.system, plan.sample) == (system, sample)]
    for plan in same:
        if plan.steps == texts or not texts:
            return plan
        if not plan.steps and not plan.flags:
            plan.steps = texts
            return plan
    key = (system, sample, str(source.path) if same else "")
    return case.plans.setdefault(key, Shown(system, sample, texts))


def _add_judged(board: Board, source: Source, found: dict[str, Case], measure: int) -> None:
    assert isinstance(source.scores, JudgeScores)
    splits = {one.dataset: one.split for one in source.scores.datasets}
    for row in source.judged or ():
        if row.control:
            continue
        plan = _plan(board, _case(board, found, row.example_id, splits), source, row.sample, row.steps)
        plan.verdicts.append(_verdict(row, measure))
        plan.flags |= dict.fromkeys(row.flags)
        scores = plan.scores.setdefault(measure, [])
        if isinstance(row.outcome, Verdict):
            scores.append(100 * row.outcome.total / FULL)


def _verdict(row: Judged, measure: int) -> JsonObject:
    told: JsonObject = {"j": measure, "e": row.repeat, "o": row.how}
    if isinstance(row.outcome, Verdict):
        told["c"] = [getattr(row.outcome, name) for name in CRITERIA]
    else:
        told["u"] = shown(row.outcome.reason, ANSWER)
    return told | ({"x": shown(row.text, ANSWER)} if row.text else {})


def _add_valid(board: Board, source: Source, found: dict[str, Case], measure: int) -> None:
    for row in source.rows or ():
        case = _case(board, found, row["example_id"])
        plan = _plan(board, case, source, row.get("sample", 0), _texts(row.get("steps")))
        plan.statuses = list(_texts(row.get("statuses")))
        metrics = row.get("metrics")
        metrics = metrics if isinstance(metrics, dict) else row
        plan.metrics = {name: float(metrics[name]) for name in _PARTS if _is_number(metrics.get(name))}
        plan.lacking = _texts(row.get("missing_steps"))
        plan.flags |= dict.fromkeys(_texts(row.get("flags")))
        if "score" in plan.metrics:
            plan.scores[measure] = [100 * plan.metrics["score"]]


def _add_actions(board: Board, source: Source, found: dict[str, Case], measure: int) -> None:
    """Samples of VPA: the reference actions, those predicted, and by what margin each was the nearest one."""
    for row in source.rows or ():
        case = _case(board, found, row["sample_id"])
        case.goal = case.goal or str(row.get("goal", ""))
        case.dataset = case.dataset or "CrossTask, VPA"
        case.history = case.history or _texts(row.get("history"))
        gold, predicted = _texts(row.get("gold")), _texts(row.get("predicted"))
        case.reference = case.reference or gold
        plan = _plan(board, case, source, row.get("sample", 0), _texts(row.get("steps")))
        margins = [float(one) if _is_number(one) else None for one in _list(row.get("margins"))]
        plan.actions = [
            [
                _short(predicted[place]) if place < len(predicted) else None,
                _short(action),
                margins[place] if place < len(margins) else None,
            ]
            for place, action in enumerate(gold)
        ]
        if gold:
            right = sum(one == other for one, other in zip(predicted, gold, strict=False))
            plan.scores[measure] = [100 * right / len(gold)]


def _case_data(case: Case, measures: Sequence[str], grounded: Mapping[str, str]) -> JsonObject:
    data: JsonObject = {
        "id": case.example_id.encode("utf-8", "replace").decode(),
        "d": _short(dataset_name(case.dataset)),
        "s": case.split,
        "g": _short(case.goal),
        "h": _steps(case.history),
        "r": _steps(case.reference),
        "p": [
            _plan_data(plan, measures, grounded)
            for plan in sorted(case.plans.values(), key=lambda one: (one.system, one.sample))
        ],
    }
    return {name: value for name, value in data.items() if value or name in ("id", "p")}


def _plan_data(plan: Shown, measures: Sequence[str], grounded: Mapping[str, str]) -> JsonObject:
    scores = [mean_score(plan, place) for place in range(len(measures))]
    data: JsonObject = {
        "y": plan.system,
        "k": plan.sample,
        "t": _steps(plan.steps),
        "n": [*plan.flags, *_notes(plan.steps)],
        "v": plan.verdicts,
        "st": plan.statuses[:STEPS],
        "a": plan.actions,
        "w": _steps(plan.lacking),
        "q": {name: round(value, 4) for name, value in plan.metrics.items()},
        "m": [None if value is None else round(value, 2) for value in scores],
        "x": grounded.get(plan.name, ""),
    }
    return {name: value for name, value in data.items() if value or name in ("y", "t", "m")}


def _notes(steps: Sequence[str]) -> Iterable[str]:
    if len(steps) > STEPS:
        yield f"{len(steps):,} steps, the first {STEPS} shown"


def _steps(steps: Sequence[str]) -> list[str]:
    return [_short(step) for step in steps[:STEPS]]


def _short(text: str) -> str:
    return shown(text, STEP)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in _list(value))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


# What grounds plans in a corpus: the compact form of an explanation, as a `<template>` that an example's page shows.
#
# An explanation costs the reward of a plan and of the plan without each of its steps, so only some examples have one:
# those where the systems differ most, by the first measure.


try:
    from markupsafe import Markup
except ModuleNotFoundError as error:
    raise MissingExtra("the report", "report") from error


@dataclass(frozen=True, slots=True)
class Grounds:
    """Explanations of plans, ready for the page."""

    elements: tuple[Markup, ...] = ()
    names: Mapping[str, Mapping[str, str]] | None = None
    """Example to plan, as `system/sample`, to the id of its element."""
    examples: int = 0
    seconds: float = 0.0


NO_GROUNDS = Grounds()


def ground(verifier: Explained, cases: Cases, count: int, links: Links, progress: Progress = SILENT) -> Grounds:
    """Explain each system's first plan for `count` examples. Raises ComputeError, CorpusError as the verifier does."""
    start, environment = time.perf_counter(), page_environment()
    template = environment.get_template("ground.html.jinja")
    elements: list[Markup] = []
    names: dict[str, dict[str, str]] = {}
    chosen = most_apart(cases, count)
    with progress.task("explaining plans", total=len(chosen)) as advance:
        for case in chosen:
            for plan in _plans(case):
                name = f"ground-{len(elements)}"
                found = explain(verifier, case.history, plan.steps, case.goal)
                elements.append(Markup(template.render(name=name, **_shown(found, links))))
                names.setdefault(case.example_id, {})[plan.name] = name
            advance(1)
    return Grounds(tuple(elements), names, len(chosen), time.perf_counter() - start)


def most_apart(cases: Cases, count: int) -> list[Case]:
    """The examples with a goal whose plans differ most on the first measure, those in front first."""
    able = [case for case in cases.cases if case.goal and _fit(case.history) and _plans(case)]
    return sorted(able, key=lambda case: -_spread(case))[:count]


def _plans(case: Case) -> Sequence[Shown]:
    """Those with steps that can be aligned and shown; the longest ones are left out."""
    return [plan for plan in case.first() if not plan.actions and 0 < len(plan.steps) <= STEPS and _fit(plan.steps)]


def _fit(steps: Sequence[str]) -> bool:
    return all(step.strip() and len(step) <= STEP for step in steps)


def _spread(case: Case) -> float:
    values = [value for plan in case.first() if (value := mean_score(plan, 0)) is not None]
    return max(values) - min(values) if values else -1.0


def _shown(explanation: Explanation, links: Links) -> dict[str, object]:
    best = explanation.best
    return {
        "explanation": explanation,
        "sentence": next(iter(in_words(explanation)), ""),
        "rows": list(step_rows(explanation, links)),
        "panel": None if best is None else panel(explanation, best, links),
    }
