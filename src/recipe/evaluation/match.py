"""Plans against the annotated continuation: matched step F1 of predictions, beside controls on the same examples.

A metric is the mean over the samples of an example first, then over examples; intervals draw whole goals. An example
without a prediction counts as an empty plan, which scores 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from recipe.artifacts import JsonObject
from recipe.evaluation.controls import control_differences, control_plans, control_sentences
from recipe.evaluation.judge.plans import MISSING
from recipe.evaluation.matching import StepMatcher
from recipe.evaluation.metrics import CONTROL
from recipe.evaluation.scores import Counts, MatchControl, MatchScores
from recipe.evaluation.validity.measure import Difference, ScoredPlan, prompt_means, score_predictions, summarise
from recipe.evaluation.validity.scores import PlanSelection
from recipe.planning.predictions import Prediction
from recipe.prompting import visible
from recipe.reward.watchdog import copied_share
from recipe.types import Example

MAIN = "matched_ordered_f1"
"""The metric in which systems are compared with controls."""


def match_metrics(matcher: StepMatcher, example: Example, steps: Sequence[str]) -> dict[str, float]:
    """Metrics of a plan beside its reference continuation."""
    matched, apart = matcher.agreement(example, steps), float(len(steps) - len(example.continuation))
    return {
        "matched_f1": matched.f1,
        "matched_ordered_f1": matched.ordered_f1,
        "length_error": apart,
        "length_apart": abs(apart),
        "copied": copied_share(example.history, steps),
    }


def score_matches(
    matcher: StepMatcher, examples: Sequence[Example], predictions: Sequence[Prediction]
) -> list[ScoredPlan]:
    """Every prediction with its metrics, in order. Raises InputError for an unknown example."""
    known = {example.example_id: example for example in examples}
    matcher.learn(step for one in predictions for step in one.steps)
    return [
        replace(plan, more=match_metrics(matcher, known[plan.example_id], plan.texts))
        for plan in score_predictions(None, examples, predictions)
    ]


def match_scores(
    system: str,
    matcher: StepMatcher,
    selection: PlanSelection,
    scored: Sequence[ScoredPlan],
    annotated: Iterable[Example],
    settings: Mapping[str, str],
    seed: int = 0,
) -> MatchScores:
    """The scores of matched plans and of the controls; labels of a goal are those of other videos among `annotated`."""
    means = prompt_means(scored)
    controls = []
    for name, plans in control_plans(selection.examples, annotated, seed).items():
        control = prompt_means(score_matches(matcher, selection.examples, list(plans.values())))
        [against] = control_differences("", {system: means}, {CONTROL + name: control}, MAIN, seed)
        metrics = summarise("", name, control, seed).metrics
        controls.append(MatchControl(name, metrics, against.value, len(control.example_ids)))
    described = dict(settings)
    if selection.elsewhere:
        described["predictions for other splits"] = str(selection.elsewhere)
    return MatchScores(
        system=system,
        metrics=summarise("", system, means, seed).metrics,
        counts=Counts(
            plans=len(scored),
            videos=len({(example.source, example.video_id) for example in selection.examples}),
            missing=len(selection.missing),
            empty=sum(plan.steps == 0 and plan.example_id not in selection.missing for plan in scored),
        ),
        controls=tuple(controls),
        settings=described,
        samples=means.samples,
        decoding=selection.decoding,
    )


def match_sentences(scores: MatchScores) -> list[str]:
    """A sentence where the system does not beat every control."""
    return control_sentences([Difference("", scores.system, one.name, MAIN, one.difference) for one in scores.controls])


def match_rows(matcher: StepMatcher, selection: PlanSelection, scored: Sequence[ScoredPlan]) -> Iterable[JsonObject]:
    """One row a plan: its lines, and the step of the reference that each matches, null for none."""
    known = {example.example_id: example for example in selection.examples}
    for plan in scored:
        yield {
            "example_id": plan.example_id,
            "sample": plan.sample,
            "goal": visible(plan.goal),
            "metrics": plan.metrics(),
            "steps": list(plan.texts),
            "matched": list(matcher.names(known[plan.example_id], plan.texts)),
            "flags": [MISSING] if plan.example_id in selection.missing else [],
        }
