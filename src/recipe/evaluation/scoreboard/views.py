"""Example by example: every system's plan, its scores, and the narrations that support it, as data of the page.

The data has short keys, because there are thousands of examples: `id`, `d`ataset, `s`plit, `g`oal, `h`istory,
`r`eference and `p`lans; of a plan its s`y`stem, sample `k`, s`t`eps, `n`otes, `v`erdicts, `st`atuses, `a`ctions,
missing required steps `w`, metrics `q`, and `m`, its score on each measure (a judge, validity, VPA), in percent.

An explanation by narrations costs the reward of a plan and of the plan without each of its steps, so only some examples
have one: those where the systems differ most, by the first measure.
"""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from types import MappingProxyType
from typing import TypeGuard

from recipe.artifacts import JsonObject
from recipe.errors import MissingExtra
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.evaluation.measures import ROLES, measure_named
from recipe.evaluation.metrics import METRICS
from recipe.evaluation.scoreboard.accuracy import CRITERION_NAMES, dataset_name, judge_results
from recipe.evaluation.scoreboard.sources import Board, Source
from recipe.evaluation.scores import Row
from recipe.evaluation.validity.readings import STATUSES
from recipe.explain.explain import explain, in_words
from recipe.explain.page import panel, step_rows
from recipe.explain.records import Explanation, Links
from recipe.progress import SILENT, Progress
from recipe.report.html import page_environment, shown
from recipe.reward.verifier import Verifier

try:
    from markupsafe import Markup
except ModuleNotFoundError as error:
    raise MissingExtra("the report", "report") from error

STEP, STEPS, ANSWER = 400, 60, 1500
"""Characters of a step, steps of a plan, and characters of a judge's answer that are shown."""
_PARTS = ("score", "order", "coverage", "clean", "reward")
_NO_SPLITS: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class PlanView:
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
class ExampleView:
    """One example while its rows are gathered."""

    example_id: str
    dataset: str = ""
    split: str = ""
    goal: str = ""
    history: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    plans: dict[tuple[int, int, str], PlanView] = field(default_factory=dict)
    """By system, sample and file, because two files of a system may hold different plans."""

    def first(self) -> list[PlanView]:
        """Each system's first sample, which is what judges score."""
        earliest: dict[int, int] = {}
        for plan in self.plans.values():
            earliest[plan.system] = min(plan.sample, earliest.get(plan.system, plan.sample))
        return [plan for plan in self.plans.values() if plan.sample == earliest[plan.system]]


@dataclass(frozen=True, slots=True)
class ExampleViews:
    """Every example with its plans, in the order of the examples, and the measures that score them."""

    measures: tuple[str, ...]
    examples: tuple[ExampleView, ...]

    @property
    def names(self) -> frozenset[str]:
        """Ids of the examples that rows are about."""
        return frozenset(view.example_id for view in self.examples)


def gather_views(board: Board) -> ExampleViews:
    """All rows by example; examples that no row is about are left out."""
    results = judge_results(source.scores for source in board.sources)
    names = {id(scores): result.name for result in results for scores in result.scores}
    titled = [
        (names.get(id(source.scores), measure_named(source.scores.measure).title), source)
        for source in board.sources
        if any("steps" in one.details for one in source.rows or ())  # not of pairs of plans
    ]
    # Judges first: examples are ordered by the first measure.
    measures = [
        *dict.fromkeys(names.values()),
        *dict.fromkeys(name for name, _ in titled if name not in names.values()),
    ]
    gatherer = _Gatherer(board)
    for name, source in titled:
        gatherer.add(source, measures.index(name))
    order = {example: place for place, example in enumerate(board.examples)}
    ordered = sorted(gatherer.views.values(), key=lambda view: order.get(view.example_id, len(order)))
    return ExampleViews(tuple(measures), tuple(ordered))


def mean_score(plan: PlanView, measure: int) -> float | None:
    """A plan's score on a measure in percent, the mean over repeats; None where it has none."""
    values = plan.scores.get(measure)
    return sum(values) / len(values) if values else None


def page_data(
    board: Board, views: ExampleViews, colours: Mapping[str, str], grounded: Mapping[str, Mapping[str, str]]
) -> JsonObject:
    """The data of the page's script; `grounded` names the element that explains a system's plan, by example."""
    return {
        "systems": [shown(name, STEP) for name in board.systems],
        "colours": [colours[name] for name in board.systems],
        "measures": [shown(name, STEP) for name in views.measures],
        "criteria": list(CRITERION_NAMES.values()),
        "statuses": {name: list(status) for name, status in STATUSES.items()},
        "metrics": {name: METRICS[name] for name in _PARTS},
        "examples": [_example_data(view, views.measures, grounded.get(view.example_id, {})) for view in views.examples],
    }


class _Gatherer:
    """The views while rows are added to them."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.views: dict[str, ExampleView] = {}

    def add(self, source: Source, measure: int) -> None:
        """Add the rows of a file on the system's own plans."""
        kind = measure_named(source.scores.measure)
        splits = {
            dataset: group.name
            for group in source.scores.of("split")
            for dataset in group.datasets
            if group.name in ROLES
        }
        for one in source.rows or ():
            if one.control or "steps" not in one.details:
                continue
            view = self._view(one.example_id, splits if kind.name == "judge" else _NO_SPLITS)
            plan = self._plan(view, source, one.sample, _texts(one.details["steps"]))
            plan.flags |= dict.fromkeys(_texts(one.details.get("flags")))
            scores = plan.scores.setdefault(measure, [])
            if (value := one.metrics.get(kind.main)) is not None:
                scores.append(100 * value / kind.scale[1] if kind.scale else value)
            if kind.name == "judge":
                plan.verdicts.append(_verdict(one, measure))
            if "statuses" in one.details:
                plan.statuses = list(_texts(one.details["statuses"]))
                plan.metrics = {name: one.metrics[name] for name in _PARTS if name in one.metrics}
                plan.lacking = _texts(one.details.get("missing_steps"))
            if "gold" in one.details:
                _add_actions(view, plan, one)

    def _view(self, example_id: str, splits: Mapping[str, str] = _NO_SPLITS) -> ExampleView:
        if example_id not in self.views:
            view = self.views[example_id] = ExampleView(example_id)
            if example := self._board.examples.get(example_id):
                view.dataset, view.split = example.source, splits.get(example.source, "")
                view.goal, view.history, view.reference = example.goal, example.history, example.continuation
        return self.views[example_id]

    def _plan(self, view: ExampleView, source: Source, sample: int, steps: Sequence[str]) -> PlanView:
        """The plan that a row is about: one entry for equal plans of a system, whichever file they are from.

        Ratings of people need not repeat the plan, so a row without steps is of the plan that is known.
        """
        system = self._board.systems.index(source.scores.system)
        texts = tuple(steps)
        same = [plan for plan in view.plans.values() if (plan.system, plan.sample) == (system, sample)]
        for plan in same:
            if plan.steps == texts or not texts:
                return plan
            if not plan.steps and not plan.flags:
                plan.steps = texts
                return plan
        key = (system, sample, str(source.path) if same else "")
        return view.plans.setdefault(key, PlanView(system, sample, texts))


def _add_actions(view: ExampleView, plan: PlanView, row: Row) -> None:
    """Samples of VPA: the reference actions, those predicted, and by what margin each was the nearest one."""
    view.goal = view.goal or str(row.details.get("goal", ""))
    view.dataset = view.dataset or "CrossTask, VPA"
    view.history = view.history or _texts(row.details.get("history"))
    gold, predicted = _texts(row.details["gold"]), _texts(row.details.get("predicted"))
    view.reference = view.reference or gold
    margins = [float(one) if _is_number(one) else None for one in _list(row.details.get("margins"))]
    plan.actions = [
        [_short(action) if action is not None else None, _short(right), margin]
        for right, action, margin in islice(zip_longest(gold, predicted, margins), len(gold))
    ]


def _verdict(row: Row, measure: int) -> JsonObject:
    data: JsonObject = {"j": measure, "e": row.details["repeat"], "o": row.details["how"]}
    if row.unscored:
        data["u"] = shown(row.unscored, ANSWER)
    else:
        data["c"] = [int(row.metrics[name]) for name in CRITERIA]
    return data | ({"x": shown(row.details["text"], ANSWER)} if row.details["text"] else {})


def _example_data(view: ExampleView, measures: Sequence[str], grounded: Mapping[str, str]) -> JsonObject:
    data: JsonObject = {
        "id": view.example_id.encode("utf-8", "replace").decode(),
        "d": _short(dataset_name(view.dataset)),
        "s": view.split,
        "g": _short(view.goal),
        "h": _steps(view.history),
        "r": _steps(view.reference),
        "p": [
            _plan_data(plan, measures, grounded)
            for plan in sorted(view.plans.values(), key=lambda one: (one.system, one.sample))
        ],
    }
    return {name: value for name, value in data.items() if value or name in ("id", "p")}


def _plan_data(plan: PlanView, measures: Sequence[str], grounded: Mapping[str, str]) -> JsonObject:
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
    """Whether it is a finite number: another is shown as missing."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


@dataclass(frozen=True, slots=True)
class PlanExplanations:
    """Explanations of plans, ready for the page."""

    elements: tuple[Markup, ...] = ()
    names: Mapping[str, Mapping[str, str]] | None = None
    """Example to plan, as `system/sample`, to the id of its element."""
    examples: int = 0
    seconds: float = 0.0


NO_EXPLANATIONS = PlanExplanations()


def explain_plans(
    verifier: Verifier, views: ExampleViews, count: int, links: Links, progress: Progress = SILENT
) -> PlanExplanations:
    """Explain each system's first plan for `count` examples. Raises ComputeError, CorpusError as the verifier does."""
    start, environment = time.perf_counter(), page_environment("recipe.explain")
    template = environment.get_template("ground.html.jinja")
    elements: list[Markup] = []
    names: dict[str, dict[str, str]] = {}
    chosen = widest_differences(views, count)
    with progress.task("explaining plans", total=len(chosen)) as advance:
        for view in chosen:
            for plan in _plans(view):
                name = f"ground-{len(elements)}"
                explanation = explain(verifier, view.history, plan.steps, view.goal)
                elements.append(Markup(template.render(name=name, **_evidence(explanation, links))))
                names.setdefault(view.example_id, {})[plan.name] = name
            advance(1)
    return PlanExplanations(tuple(elements), names, len(chosen), time.perf_counter() - start)


def widest_differences(views: ExampleViews, count: int) -> list[ExampleView]:
    """The examples with a goal whose plans differ most on the first measure, those in front first."""
    able = [view for view in views.examples if view.goal and _fit(view.history) and _plans(view)]
    return sorted(able, key=lambda view: -_spread(view))[:count]


def _plans(view: ExampleView) -> Sequence[PlanView]:
    """Plans with steps that can be aligned and shown; the longest ones are left out."""
    return [plan for plan in view.first() if not plan.actions and 0 < len(plan.steps) <= STEPS and _fit(plan.steps)]


def _fit(steps: Sequence[str]) -> bool:
    return all(step.strip() and len(step) <= STEP for step in steps)


def _spread(view: ExampleView) -> float:
    values = [value for plan in view.first() if (value := mean_score(plan, 0)) is not None]
    return max(values) - min(values) if values else -1.0


def _evidence(explanation: Explanation, links: Links) -> dict[str, object]:
    best = explanation.best
    return {
        "explanation": explanation,
        "sentence": next(iter(in_words(explanation)), ""),
        "rows": list(step_rows(explanation, links)),
        "panel": None if best is None else panel(explanation, best, links),
    }
