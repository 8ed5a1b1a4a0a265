"""What grounds plans in a corpus: the compact form of an explanation, as a `<template>` that an example's page shows.

An explanation costs the reward of a plan and of the plan without each of its steps, so only some examples have one:
those where the systems differ most, by the first measure.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recipe.errors import MissingExtra
from recipe.evaluation.explanation_page import page_environment, panel, step_rows
from recipe.evaluation.scoreboard.cases import STEP, STEPS, Case, Cases, Shown, mean_score
from recipe.progress import SILENT, Progress
from recipe.reward.explanation.explain import Explained, explain
from recipe.reward.explanation.links import Links
from recipe.reward.explanation.records import Explanation
from recipe.reward.explanation.words import in_words

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
