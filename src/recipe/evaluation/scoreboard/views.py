"""Example by example: every system's plan, its scores, and the narrations that support it, as data of the page.

The data has short keys, because there are thousands of examples: `id`, `d`ataset, `s`plit, `g`oal, `h`istory,
`r`eference and `p`lans; of a plan its s`y`stem, sample `k`, s`t`eps, `n`otes, `v`erdicts, `st`atuses, `a`ctions,
missing required steps `w`, metrics `q`, and `m`, its score on each measure (a judge, validity, VPA), in percent.

An explanation by narrations costs the reward of a plan and of the plan without each of its steps, so only some examples
have one: those where the systems differ most, by the first measure.
"""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice, zip_longest

from recipe.artifacts import JsonObject, fingerprint
from recipe.data.roles import ROLES
from recipe.errors import MissingExtra
from recipe.evaluation import measure_named
from recipe.evaluation.judge.plans import SHORTENED
from recipe.evaluation.metrics import METRICS
from recipe.evaluation.scoreboard.accuracy import dataset_name, judge_results
from recipe.evaluation.scoreboard.sources import ReportSources
from recipe.evaluation.scores import Row
from recipe.evaluation.validity.readings import STATUSES
from recipe.explain.explain import explain, in_words
from recipe.explain.page import panel, step_rows
from recipe.explain.records import Links
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

    @property
    def explicable(self) -> bool:
        """Whether it has steps that can be aligned and shown; the longest plans are left out."""
        readable = all(step.strip() and len(step) <= STEP for step in self.steps)
        return not self.actions and 0 < len(self.steps) <= STEPS and readable

    def score(self, measure: int) -> float | None:
        """The score on a measure in percent, the mean over repeats; None where it has none."""
        values = self.scores.get(measure)
        return sum(values) / len(values) if values else None


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
    rubrics: Mapping[str, JsonObject]
    """Of the measures that are judges: names of criteria, and lowest and highest score."""

    def widest_differences(self, count: int) -> list[ExampleView]:
        """The examples with a goal whose plans differ most on the first measure, those in front first."""
        spreads = []
        for view in self.examples:
            readable = all(step.strip() and len(step) <= STEP for step in view.history)
            if view.goal and readable and any(plan.explicable for plan in view.first()):
                values = [value for plan in view.first() if (value := plan.score(0)) is not None]
                spreads.append((max(values) - min(values) if values else -1.0, view))
        return [view for _, view in sorted(spreads, key=lambda pair: -pair[0])[:count]]


def gather_views(board: ReportSources) -> ExampleViews:
    """All rows by example; examples that no row is about are left out."""
    results = judge_results(source.scores for source in board.sources)
    names = {id(scores): result.name for result in results for scores in result.scores}
    criteria = {id(scores): result.criteria for result in results for scores in result.scores}
    # A measure with two encoders or graphs is two: a mean of both values would be of neither.
    settings: dict[str, dict[str, int]] = {}
    for scored in (source.scores for source in board.sources):
        known = settings.setdefault(scored.measure, {})
        known.setdefault(fingerprint(scored.identity), len(known) + 1)
    titled = []
    for source in board.sources:
        if any("steps" in row.details for row in source.rows or ()):  # not of pairs of plans
            scored, title = source.scores, measure_named(source.scores.measure).title
            if len(known := settings[scored.measure]) > 1:
                title += f" (setting {known[fingerprint(scored.identity)]})"
            titled.append((names.get(id(scored), title), source))
    # Judges first: examples are ordered by the first measure.
    measures = [*dict.fromkeys(names.values())]
    measures += dict.fromkeys(name for name, _ in titled if name not in names.values())
    views: dict[str, ExampleView] = {}
    for name, source in titled:
        measure, kind = measures.index(name), measure_named(source.scores.measure)
        system = board.systems.index(source.scores.system)
        splits = {
            dataset: group.name
            for group in source.scores.of("split")
            for dataset in group.datasets
            if group.name in ROLES and kind.name == "judge"
        }
        for row in source.rows or ():
            if row.control or "steps" not in row.details:
                continue
            if (view := views.get(row.example_id)) is None:
                view = views[row.example_id] = ExampleView(row.example_id)
                if example := board.examples.get(row.example_id):
                    view.dataset, view.split = example.source, splits.get(example.source, "")
                    view.goal, view.history, view.reference = example.goal, example.history, example.continuation
            plan = _plan_of(view, row, system, str(source.path))
            plan.flags |= dict.fromkeys(_texts(row.details.get("flags")))
            scores = plan.scores.setdefault(measure, [])
            if (value := row.metrics.get(kind.main)) is not None:
                scores.append(100 * value / kind.scale[1] if kind.scale else value)
            if kind.name == "judge":
                verdict: JsonObject = {"j": measure, "e": row.details["repeat"], "o": row.details["how"]}
                if row.unscored:
                    verdict["u"] = shown(row.unscored, ANSWER)
                else:
                    own = (row.metrics[name] for name in criteria[id(source.scores)])
                    verdict["c"] = [int(score) if score == int(score) else round(score, 2) for score in own]
                if row.details["text"]:
                    verdict["x"] = shown(row.details["text"], ANSWER)
                plan.verdicts.append(verdict)
            if "statuses" in row.details:
                plan.statuses = list(_texts(row.details["statuses"]))
                plan.metrics = {name: row.metrics[name] for name in _PARTS if name in row.metrics}
                plan.lacking = _texts(row.details.get("missing_steps"))
            if "gold" in row.details:
                _add_actions(view, plan, row)
    order = {example: number for number, example in enumerate(board.examples)}
    ordered = sorted(views.values(), key=lambda view: order.get(view.example_id, len(order)))
    rubrics = {
        result.name: {"n": [*(name.replace("_", " ") for name in result.criteria)], "s": list(result.scale)}
        for result in results
    }
    return ExampleViews(tuple(measures), tuple(ordered), rubrics)


def _plan_of(view: ExampleView, row: Row, system: int, file: str) -> PlanView:
    """The plan that a row is about: one entry for equal plans of a system, whichever file they are from.

    Ratings of people need not repeat the plan, so a row without steps is of the plan that is known. A judge reads a
    long plan from its start alone, and the whole plan is shown.
    """
    texts, flags = _texts(row.details["steps"]), _texts(row.details.get("flags"))
    same = [plan for plan in view.plans.values() if (plan.system, plan.sample) == (system, row.sample)]
    for plan in same:
        if plan.steps == texts or not texts:
            return plan
        if not plan.steps and not plan.flags:
            plan.steps = texts
            return plan
        both = min(len(plan.steps), len(texts))
        begun = plan.steps[:both] == texts[:both]
        if begun and SHORTENED in (flags if len(texts) == both else plan.flags):
            plan.steps = max(plan.steps, texts, key=len)
            return plan
    return view.plans.setdefault((system, row.sample, file if same else ""), PlanView(system, row.sample, texts))


def _add_actions(view: ExampleView, plan: PlanView, row: Row) -> None:
    """Samples of VPA: the reference actions, those predicted, and by what margin each was the nearest one."""
    view.goal = view.goal or str(row.details.get("goal", ""))
    view.dataset = view.dataset or "CrossTask, VPA"
    view.history = view.history or _texts(row.details.get("history"))
    gold, predicted = _texts(row.details["gold"]), _texts(row.details.get("predicted"))
    view.reference = view.reference or gold
    margins = []
    for value in row.details.get("margins") or ():  # what is no finite number is shown as missing
        finite = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
        margins.append(float(value) if finite else None)
    plan.actions = [
        [None if action is None else shown(action, STEP), shown(right, STEP), margin]
        for right, action, margin in islice(zip_longest(gold, predicted, margins), len(gold))
    ]


def _texts(value: object) -> tuple[str, ...]:
    """The texts of a list in a row's details; none where it is no list."""
    return tuple(map(str, value)) if isinstance(value, list) else ()


def page_data(
    board: ReportSources, views: ExampleViews, colours: Mapping[str, str], grounded: Mapping[str, Mapping[str, str]]
) -> JsonObject:
    """The data of the page's script; `grounded` names the element that explains a system's plan, by example."""
    examples = []
    for view in views.examples:
        plans = []
        for plan in sorted(view.plans.values(), key=lambda plan: (plan.system, plan.sample)):
            scores = [plan.score(measure) for measure in range(len(views.measures))]
            longer = [f"{len(plan.steps):,} steps, the first {STEPS} shown"] if len(plan.steps) > STEPS else []
            data: JsonObject = {
                "y": plan.system,
                "k": plan.sample,
                "t": [shown(step, STEP) for step in plan.steps[:STEPS]],
                "n": [*plan.flags, *longer],
                "v": plan.verdicts,
                "st": plan.statuses[:STEPS],
                "a": plan.actions,
                "w": [shown(step, STEP) for step in plan.lacking[:STEPS]],
                "q": {name: round(value, 4) for name, value in plan.metrics.items()},
                "m": [None if value is None else round(value, 2) for value in scores],
                "x": grounded.get(view.example_id, {}).get(plan.name, ""),
            }
            plans.append({name: value for name, value in data.items() if value or name in ("y", "t", "m")})
        data = {
            # Half a character, which an id of JSON may hold, and no file in UTF-8 can.
            "id": view.example_id.encode("utf-8", "replace").decode(),
            "d": shown(dataset_name(view.dataset), STEP),
            "s": view.split,
            "g": shown(view.goal, STEP),
            "h": [shown(step, STEP) for step in view.history[:STEPS]],
            "r": [shown(step, STEP) for step in view.reference[:STEPS]],
            "p": plans,
        }
        examples.append({name: value for name, value in data.items() if value or name in ("id", "p")})
    return {
        "systems": [shown(name, STEP) for name in board.systems],
        "colours": [colours[name] for name in board.systems],
        "measures": [shown(name, STEP) for name in views.measures],
        "rubrics": [views.rubrics.get(name) for name in views.measures],
        "statuses": {name: list(status) for name, status in STATUSES.items()},
        "metrics": {name: METRICS[name] for name in _PARTS},
        "examples": examples,
    }


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
    chosen = views.widest_differences(count)
    with progress.task("explaining plans", total=len(chosen)) as advance:
        for view in chosen:
            for plan in (plan for plan in view.first() if plan.explicable):
                name = f"ground-{len(elements)}"
                explanation = explain(verifier, goal=view.goal, history=view.history, continuation=plan.steps)
                best = explanation.best
                values = {
                    "explanation": explanation,
                    "sentence": next(iter(in_words(explanation)), ""),
                    "rows": list(step_rows(explanation, links)),
                    "panel": None if best is None else panel(explanation, best, links),
                }
                elements.append(Markup(template.render(name=name, **values)))
                names.setdefault(view.example_id, {})[plan.name] = name
            advance(1)
    return PlanExplanations(tuple(elements), names, len(chosen), time.perf_counter() - start)
