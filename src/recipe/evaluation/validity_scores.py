"""From checked plans to a file of scores: means clustered by goal, counts, and one row a plan with its lines told.

An example without a prediction counts as an empty plan, which scores 0. A metric is the mean over the samples of an
example first, then over examples.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from recipe.artifacts import JsonObject
from recipe.errors import InputError, listed
from recipe.evaluation.cases import MISSING, SHORTENED, Missing
from recipe.evaluation.judge_agreement import agreement_with
from recipe.evaluation.readings import Reader, Reading, shortened
from recipe.evaluation.scores import Counts, JudgeIdentity, ValidityScores
from recipe.evaluation.validity import ScoredPlan, prompt_means, summarise
from recipe.evaluation.verdicts import Judged
from recipe.planning.predictions import Prediction, match_predictions
from recipe.prompting import visible
from recipe.types import Example


class Asked(NamedTuple):
    """The plans that are to be checked."""

    examples: list[Example]
    predictions: list[Prediction]
    """In the order of the examples; an empty one for each example without any."""
    missing: frozenset[str]
    """Ids of the examples without a prediction."""
    skipped: dict[str, int]
    """Examples that are left out because their goals have no task graph, by goal."""
    elsewhere: int
    """Predictions for examples of other splits, left out."""


def asked_plans(
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    reader: Reader,
    known: Sequence[Example] | None = None,
    missing: Missing = "zero",
    skip_goals: bool = False,
) -> Asked:
    """The plans of `examples` whose goals have a task graph; `known` are the examples of all splits.

    Raises InputError for predictions for unknown examples, for missing ones where those are refused, and for goals
    without a graph where they are not to be skipped.
    """
    matched = match_predictions(examples, predictions, known)
    skipped: dict[str, int] = {}
    for example in examples:
        if not reader.knows(example.goal):
            skipped[example.goal] = skipped.get(example.goal, 0) + 1
    if skipped and (not skip_goals or sum(skipped.values()) == len(examples)):
        raise _unknown_goals(reader, skipped, len(examples))
    kept = [example for example in examples if example.goal not in skipped]
    lost = frozenset(matched.missing).intersection(example.example_id for example in kept)
    if lost and missing == "refuse":
        first = listed([example.example_id for example in kept if example.example_id in lost])
        remedy = "plan for them, or let them count as empty plans"
        raise InputError(f"{len(lost)} of {len(kept)} examples have no prediction: {first}; {remedy}.")
    planned: dict[str, list[Prediction]] = {example.example_id: [] for example in kept}
    for prediction in matched.predictions:
        if prediction.example_id in planned:
            planned[prediction.example_id].append(prediction)
    plans = [one for name, some in planned.items() for one in some or [Prediction(name, ())]]
    return Asked(kept, plans, lost, skipped, matched.elsewhere)


def _unknown_goals(reader: Reader, skipped: Mapping[str, int], examples: int) -> InputError:
    """What the reader says of the first of them, and how many there are."""
    count = sum(skipped.values())
    try:
        reader.read(next(iter(skipped)), (), ())
    except InputError as error:
        others = f" {len(skipped)} such goals" if len(skipped) > 1 else " such a goal"
        return InputError(f"{error} {count} of {examples} examples have{others}; --skip-goals leaves them out.")
    raise AssertionError("a goal that the reader does not know was read")


def validity_scores(
    system: str,
    graphs: str,
    asked: Asked,
    scored: Sequence[ScoredPlan],
    settings: Mapping[str, str] | None = None,
    judges: Iterable[tuple[JudgeIdentity, Sequence[Judged]]] = (),
    seed: int = 0,
) -> ValidityScores:
    """The scores of checked plans, and their agreement with judges of the same plans."""
    means = prompt_means(scored)
    by_goal: dict[str, list[float]] = {}
    for goal, value in zip(means.goals, means.values["score"], strict=True):
        by_goal.setdefault(visible(goal), []).append(float(value))
    told = dict(settings or {})
    if asked.skipped:
        told["goals without a graph"] = str(len(asked.skipped))
        told["examples left out with them"] = str(sum(asked.skipped.values()))
    if asked.elsewhere:
        told["predictions for other splits"] = str(asked.elsewhere)
    return ValidityScores(
        system=system,
        graphs=graphs,
        metrics=summarise("", system, means, seed).metrics,
        counts=_counts(asked, scored),
        settings=told,
        by_goal={goal: fmean(values) for goal, values in sorted(by_goal.items())},
        samples=means.samples,
        agreement=tuple(agreement_with(judge, rows, scored, seed) for judge, rows in judges),
    )


def plan_rows(scored: Sequence[ScoredPlan], missing: frozenset[str] = frozenset()) -> Iterable[JsonObject]:
    """One row a plan: the lines that were read, what each is and which step it names, and what is missing."""
    for plan in scored:
        if (reading := plan.reading) is None:
            continue
        read = len(reading.lines) - reading.unread
        yield {
            "example_id": plan.example_id,
            "sample": plan.sample,
            "goal": visible(plan.goal),
            "metrics": plan.metrics(),
            "steps": list(reading.lines[:read]),
            "statuses": [line.status for line in reading.statuses()[:read]],
            "nodes": list(reading.plan[:read]),
            "similarities": list(reading.similarities[:read]),
            "unread": reading.unread,
            "missing_steps": list(reading.missing_words()),
            "flags": [*([MISSING] if plan.example_id in missing else []), *_flags(reading)],
        }


def _counts(asked: Asked, scored: Sequence[ScoredPlan]) -> Counts:
    return Counts(
        plans=len(scored),
        videos=len({(example.source, example.video_id) for example in asked.examples}),
        missing=len(asked.missing),
        empty=sum(plan.steps == 0 and plan.example_id not in asked.missing for plan in scored),
        shortened=sum(plan.reading is not None and bool(_flags(plan.reading)) for plan in scored),
    )


def _flags(reading: Reading) -> list[str]:
    return [SHORTENED] if reading.unread or any(map(shortened, reading.lines)) else []
