"""From checked plans to a file of scores: means clustered by goal, counts, one row a plan, and agreement with judges.

A metric is the mean over the samples of an example first, then over examples. An example without a prediction counts as
an empty plan, which scores 0.

Agreement with a judge is by rank. Spearman's rho is the correlation of the ranks, equal values sharing their mean rank;
its interval draws whole goals with replacement and ranks each draw anew. Kendall's tau-b is given beside it. Plans that
either scores by rule are left out: a missing or empty plan is 0 to both, which is no agreement.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from recipe.artifacts import JsonObject
from recipe.errors import InputError, listed
from recipe.evaluation.judge.plans import MISSING, SHORTENED, Missing
from recipe.evaluation.judge.verdicts import Judgement, read_verdicts
from recipe.evaluation.scores import (
    Counts,
    JudgeAgreement,
    JudgeIdentity,
    JudgeScores,
    ValidityScores,
    read_scores,
    rows_path,
)
from recipe.evaluation.validity.measure import ScoredPlan, prompt_means, summarise
from recipe.evaluation.validity.readings import GraphPlan, Reader, shortened, shown
from recipe.models.sampling import Decoding, distinct_decodings
from recipe.planning.predictions import Prediction, match_predictions
from recipe.prompting import visible
from recipe.stats import kendall, spearman
from recipe.types import Example, Verdict

RULE = "rule"
"""`Judgement.how` of a plan that no judge was shown."""


class PlanSelection(NamedTuple):
    """The plans to check, and what was left out."""

    examples: list[Example]
    predictions: list[Prediction]
    """In the order of the examples; an empty one for each example without any."""
    missing: frozenset[str]
    """Ids of the examples without a prediction."""
    skipped: dict[str, int]
    """Examples that are left out because their goals have no task graph, by goal."""
    elsewhere: int
    """Predictions for examples of other splits, left out."""

    @property
    def decoding(self) -> tuple[Decoding, ...]:
        """How the plans were sampled; empty where that is not known."""
        return distinct_decodings(one.decoding for one in self.predictions if one.example_id not in self.missing)


def select_plans(
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    reader: Reader | None,
    known: Sequence[Example] | None = None,
    missing: Missing = "zero",
    skip_goals: bool = False,
) -> PlanSelection:
    """The plans of `examples` whose goals have a task graph, of all without a reader; `known` are those of all splits.

    Raises InputError for predictions for unknown examples, for missing ones where those are refused, and for goals
    without a graph where they are not to be skipped.
    """
    matched = match_predictions(examples, predictions, known)
    skipped: dict[str, int] = {}
    for example in examples:
        if reader is not None and not reader.knows(example.goal):
            skipped[example.goal] = skipped.get(example.goal, 0) + 1
    if reader is not None and skipped and (not skip_goals or sum(skipped.values()) == len(examples)):
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
    return PlanSelection(kept, plans, lost, skipped, matched.elsewhere)


def _unknown_goals(reader: Reader, skipped: Mapping[str, int], examples: int) -> InputError:
    """The reader's error for the first unknown goal, and how many there are."""
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
    selection: PlanSelection,
    scored: Sequence[ScoredPlan],
    settings: Mapping[str, str] | None = None,
    judges: Iterable[tuple[JudgeIdentity, Sequence[Judgement]]] = (),
    seed: int = 0,
) -> ValidityScores:
    """The scores of checked plans, and their agreement with judges of the same plans."""
    means = prompt_means(scored)
    by_goal: dict[str, list[float]] = {}
    for goal, value in zip(means.goals, means.values["score"], strict=True):
        by_goal.setdefault(visible(goal), []).append(float(value))
    described = dict(settings or {})
    if selection.skipped:
        described["goals without a graph"] = str(len(selection.skipped))
        described["examples left out with them"] = str(sum(selection.skipped.values()))
    if selection.elsewhere:
        described["predictions for other splits"] = str(selection.elsewhere)
    return ValidityScores(
        system=system,
        graphs=graphs,
        metrics=summarise("", system, means, seed).metrics,
        counts=_counts(selection, scored),
        settings=described,
        by_goal={goal: fmean(values) for goal, values in sorted(by_goal.items())},
        samples=means.samples,
        agreement=tuple(agreement_with(judge, rows, scored, seed) for judge, rows in judges),
        decoding=selection.decoding,
    )


def plan_rows(scored: Sequence[ScoredPlan], missing: frozenset[str] = frozenset()) -> Iterable[JsonObject]:
    """One row a plan: the lines that were read, the status and step of each, and the missing steps."""
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


def read_judged(path: Path) -> list[tuple[JudgeIdentity, list[Judgement]]]:
    """The judges of a file with their verdicts: scores of `recipe evaluate judge` with the rows beside, or rows alone.

    Raises InputError for scores of another kind and for a file without verdicts.
    """
    if path.suffix != ".jsonl":
        scores = read_scores(path)
        if not isinstance(scores, JudgeScores):
            remedy = "give scores of `recipe evaluate judge`, or verdicts as JSON lines"
            raise InputError.at(path, f"these are scores of kind {scores.kind!r}", remedy, field="kind")
        return [(scores.judge, read_verdicts(rows_path(path)))]
    by_judge: dict[str, list[Judgement]] = defaultdict(list)
    for row in read_verdicts(path):
        by_judge[row.judge or path.stem].append(row)
    return [(_identity(name, rows), rows) for name, rows in by_judge.items()]


def agreement_with(
    judge: JudgeIdentity, rows: Sequence[Judgement], scored: Sequence[ScoredPlan], seed: int = 0
) -> JudgeAgreement:
    """Agreement over the plans that have a verdict; repeats of a verdict are averaged.

    A correlation is None where all plans are equal to one of the two. Raises InputError where no plan has a verdict, or
    a verdict is on another plan of the same name.
    """
    totals: dict[tuple[str, int], list[float]] = defaultdict(list)
    steps: dict[tuple[str, int], tuple[str, ...]] = {}
    for row in rows:
        if not row.control and row.how != RULE and isinstance(row.outcome, Verdict):
            totals[row.example_id, row.sample].append(row.outcome.total)
            steps[row.example_id, row.sample] = row.steps
    shared = [
        plan for plan in scored if plan.validity is not None and plan.steps and (plan.example_id, plan.sample) in totals
    ]
    if not shared:
        raise InputError(f"{judge.name} gave no verdict on any of these plans; give verdicts on the same predictions.")
    for plan in shared:
        _require_same(judge, plan, steps[plan.example_id, plan.sample])
    ours = np.array([plan.validity.score for plan in shared if plan.validity is not None])
    theirs = np.array([fmean(totals[plan.example_id, plan.sample]) for plan in shared])
    return JudgeAgreement(
        judge, len(shared), spearman(ours, theirs, [plan.goal for plan in shared], seed), kendall(ours, theirs)
    )


def _require_same(judge: JudgeIdentity, plan: ScoredPlan, judged: Sequence[str]) -> None:
    """A judge sees the plan from its start, each line as it is read here; rows of people may lack it."""
    own = plan.texts[: len(judged)]
    if judged and tuple(shown(text) for text in own) != tuple(judged):
        raise InputError(
            f"{judge.name} judged another plan as sample {plan.sample} of {plan.example_id!r}; "
            "give verdicts on the same predictions."
        )


def _identity(name: str, rows: Sequence[Judgement]) -> JudgeIdentity:
    """The judge as its rows alone describe it."""
    ways = {row.how for row in rows}
    return JudgeIdentity(name, "human" if "human" in ways else "proxy" if "proxy" in ways else "llm")


def _counts(selection: PlanSelection, scored: Sequence[ScoredPlan]) -> Counts:
    return Counts(
        plans=len(scored),
        videos=len({(example.source, example.video_id) for example in selection.examples}),
        missing=len(selection.missing),
        empty=sum(plan.steps == 0 and plan.example_id not in selection.missing for plan in scored),
        shortened=sum(plan.reading is not None and bool(_flags(plan.reading)) for plan in scored),
    )


def _flags(reading: GraphPlan) -> list[str]:
    return [SHORTENED] if reading.unread or any(map(shortened, reading.lines)) else []
