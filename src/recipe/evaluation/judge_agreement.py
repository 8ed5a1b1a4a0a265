"""How far validity and a judge agree on the same plans, by rank.

Spearman's rho is the correlation of the ranks, equal values sharing their mean rank; its interval draws whole goals
with replacement and ranks each draw anew. Kendall's tau-b is given beside it. Plans that either scores by rule are left
out: a missing or empty plan is 0 to both, which is no agreement.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from recipe.errors import InputError, MissingExtra
from recipe.evaluation.readings import shown
from recipe.evaluation.results import Interval
from recipe.evaluation.scores import JudgeAgreement, JudgeIdentity, JudgeScores, read_scores, rows_path
from recipe.evaluation.statistics import expanded_levels, resampled_totals
from recipe.evaluation.validity import ScoredPlan
from recipe.evaluation.verdicts import Judged, read_verdicts
from recipe.types import Verdict

try:
    from scipy.stats import kendalltau
except ModuleNotFoundError as error:
    raise MissingExtra("evaluation", "report") from error

Array = NDArray[np.float64]

RULE = "rule"
"""`Judged.how` of a plan that no judge was shown."""
_AT_ONCE = 200
"""Draws ranked at once."""


def read_judged(path: Path) -> list[tuple[JudgeIdentity, list[Judged]]]:
    """The judges of a file with their verdicts: scores of `recipe evaluate judge` with the rows beside, or rows alone.

    Raises InputError for scores of another kind and for a file without verdicts.
    """
    if path.suffix != ".jsonl":
        scores = read_scores(path)
        if not isinstance(scores, JudgeScores):
            remedy = "give scores of `recipe evaluate judge`, or verdicts as JSON lines"
            raise InputError.at(path, f"these are scores of kind {scores.kind!r}", remedy, field="kind")
        return [(scores.judge, read_verdicts(rows_path(path)))]
    by_judge: dict[str, list[Judged]] = defaultdict(list)
    for row in read_verdicts(path):
        by_judge[row.judge or path.stem].append(row)
    return [(_identity(name, rows), rows) for name, rows in by_judge.items()]


def agreement_with(
    judge: JudgeIdentity, rows: Sequence[Judged], scored: Sequence[ScoredPlan], seed: int = 0
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


def spearman(first: Array, second: Array, clusters: Sequence[str], seed: int = 0) -> Interval | None:
    """Rank correlation of two scores [plans] with its interval; None where either is constant.

    Draws in which one of them is constant have no correlation and are left out of the interval; with a single cluster
    there is none.
    """
    once = np.ones((1, len(first)))
    value = float(_correlations(first, second, once)[0])
    if np.isnan(value):
        return None
    names, place = np.unique(np.asarray(clusters), return_inverse=True)
    if len(names) == 1:
        return Interval(value, observations=len(first), clusters=1)
    drawn = resampled_totals(np.eye(len(names)), seed)[:, place]
    blocks = range(0, len(drawn), _AT_ONCE)
    found = np.concatenate([_correlations(first, second, drawn[start : start + _AT_ONCE]) for start in blocks])
    low, high = np.nanquantile(found, expanded_levels(len(names)))
    return Interval(value, float(low), float(high), observations=len(first), clusters=len(names))


def kendall(first: Array, second: Array) -> float | None:
    """Kendall's tau-b; None where either is constant."""
    if min(np.ptp(first), np.ptp(second)) == 0:
        return None
    return float(kendalltau(first, second).statistic)


def _correlations(first: Array, second: Array, weights: Array) -> Array:
    """Correlation of the ranks under each row of `weights` [draws, plans], which say how often a plan is drawn."""
    x, y = _ranks(first, weights), _ranks(second, weights)
    total = weights.sum(axis=1, keepdims=True)
    x -= (weights * x).sum(axis=1, keepdims=True) / total
    y -= (weights * y).sum(axis=1, keepdims=True) / total
    spread = np.sqrt((weights * x**2).sum(axis=1) * (weights * y**2).sum(axis=1))
    shared = (weights * x * y).sum(axis=1)
    found: Array = np.divide(shared, spread, out=np.full(len(weights), np.nan), where=spread > 1e-9)
    return found


def _ranks(values: Array, weights: Array) -> Array:
    """Mid-ranks of each plan [draws, plans] when plan j is there weights[., j] times."""
    distinct, place = np.unique(values, return_inverse=True)
    members = np.zeros((len(values), len(distinct)))
    members[np.arange(len(values)), place] = 1
    counts = weights @ members
    ranks: Array = (counts.cumsum(axis=1) - counts / 2)[:, place]
    return ranks


def _require_same(judge: JudgeIdentity, plan: ScoredPlan, judged: Sequence[str]) -> None:
    """A judge is shown the plan from its start, each line as we read it; rows of people may not hold it."""
    own = plan.texts[: len(judged)]
    if judged and tuple(shown(text) for text in own) != tuple(judged):
        raise InputError(
            f"{judge.name} judged another plan as sample {plan.sample} of {plan.example_id!r}; "
            "give verdicts on the same predictions."
        )


def _identity(name: str, rows: Sequence[Judged]) -> JudgeIdentity:
    """What rows alone say of who judged."""
    ways = {row.how for row in rows}
    return JudgeIdentity(name, "human" if "human" in ways else "proxy" if "proxy" in ways else "llm")
