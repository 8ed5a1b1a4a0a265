"""Judges and people who rated the same plans: how far they agree."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from recipe.errors import InputError
from recipe.evaluation.judge.verdicts import CRITERIA, FULL, Judgement
from recipe.evaluation.people.ratings import Rating, rated_plans
from recipe.evaluation.scoreboard.sources import ReportSources, judgements_of
from recipe.evaluation.scores import PlanId
from recipe.stats import Level, RaterPair, Reliability, compare_raters, krippendorff_alpha, video_of
from recipe.types import Grades, Verdict

TOTAL = "total"
MEASURES: dict[str, Level] = {**dict.fromkeys(CRITERIA, "ordinal"), TOTAL: "interval"}
"""Measures on which raters are compared, with their level: grades are in an order, their sum has distances."""
Ratings = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rater:
    """A judge or a person, and its mean rating of each plan, by measure."""

    name: str
    plans: dict[PlanId, dict[str, float]]


@dataclass(frozen=True, slots=True)
class RaterSpread:
    """Accuracies by each rater, in percent, over the plans that all of them rated.

    The raters may be one judge whose references are worded several times: the spread is then that over wordings.
    """

    plans: int
    means: dict[str, float]
    """Mean accuracy by rater."""
    deviation: float
    """Standard deviation of these means."""
    variance: dict[str, float] | None
    """Shares of the variance of a verdict: `plans`, `raters` (a rater is stricter on all plans) and `rest` (raters
    differ on a plan); the components of a two-way random-effects analysis of variance, at least 0. None where all
    verdicts are equal."""


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """Agreement of raters on the plans that two or more of them rated."""

    raters: tuple[str, ...]
    plans: int
    """Plans that two or more rated."""
    alpha: dict[str, Reliability]
    """By measure, over all raters."""
    pairs: dict[str, dict[str, RaterPair]] = field(default_factory=dict)
    """Of the first rater with the second, by `first | second` and measure."""
    spread: RaterSpread | None = None
    """None where fewer than two plans have a total by every rater."""


def agreement_of(
    board: ReportSources, ratings: Sequence[Rating] = (), controls: bool = False, seed: int = 0
) -> tuple[RaterAgreement | None, dict[str, RaterAgreement]]:
    """Agreement of the judges of a board and of people, and that of the repeats of each judge with several.

    The first is None for a single judge. Raises InputError where judges saw different plans, and for a single judge
    without repeats.
    """
    for source in board.sources:
        judgements_of(source)
        if source.scores.judge is not None and (rubric := source.scores.judge.settings.get("rubric")):
            problem = f"these are scores by rubric {rubric!r}, and people rate by the six criteria"
            raise InputError.at(source.path, problem, "give scores of a judge by the six criteria")
    videos = {name: video_of(example) for name, example in board.examples.items() if example.video_id}
    named = [(source.scores.judge.name, source) for source in board.sources if source.scores.judge]
    names = [name for name, _ in named]
    judges = {
        name if names.count(name) == 1 else f"{name} ({source.path.stem})": judgements_of(source)
        for name, source in named
    }
    [first, *_] = judges.values()
    shown = {judgement.plan_id: judgement.steps for judgement in first}
    for (_, source), judged in zip(named, judges.values(), strict=True):
        for judgement in judged:
            steps = shown.get(judgement.plan_id, ())
            if steps and judgement.steps and steps != judgement.steps:
                raise InputError(
                    f"{source.path}: sample {judgement.sample} of {judgement.example_id!r} is another plan than in the "
                    "first file; agreement is about the same plans, and two systems are compared by "
                    "`recipe evaluate compare`."
                )
    raters = [judge_rater(name, judged, controls) for name, judged in judges.items()]
    raters += human_raters(ratings, [judgement for judged in judges.values() for judgement in judged], controls)
    # Each repeat of a judge is a rater of its own.
    within = {}
    for name, judged in judges.items():
        repeats = [
            judge_rater(f"{name}, repeat {repeat + 1}", [row for row in judged if row.repeat == repeat], controls)
            for repeat in sorted({row.repeat for row in judged})
        ]
        if len(repeats) > 1:
            within[name] = agreement(repeats, videos, seed, pairs=False)
    if len(raters) == 1 and not within:
        raise InputError("one judge without repeats has nothing to agree with; give another, or --ratings.")
    return (agreement(raters, videos, seed) if len(raters) > 1 else None), within


def judge_rater(name: str, judged: Sequence[Judgement], controls: bool = False) -> Rater:
    """A judge as a rater: the mean over the repeats that are scored; plans without one are absent."""
    groups: dict[PlanId, list[dict[str, float]]] = {}
    for judgement in judged:
        shown = controls or not judgement.control
        if isinstance(judgement.outcome, Verdict | Grades) and judgement.how != "rule" and shown:
            scores = judgement.outcome.scores
            groups.setdefault(judgement.plan_id, []).append(scores | {TOTAL: sum(scores.values())})
    return Rater(
        name,
        {
            plan: {measure: float(np.mean([verdict[measure] for verdict in verdicts])) for measure in MEASURES}
            for plan, verdicts in groups.items()
        },
    )


def human_raters(ratings: Iterable[Rating], judged: Sequence[Judgement], controls: bool = False) -> list[Rater]:
    """Each person as a rater, `human: NAME`; `judged` are the verdicts on the plans that they rated.

    A person has a total where all six criteria are given. Raises InputError as `rated_plans` does.
    """
    people: dict[str, dict[PlanId, dict[str, float]]] = {}
    for rating, plans in rated_plans(ratings, judged):
        grades = {name: float(score) for name, score in rating.scores.items()}
        if len(grades) == len(CRITERIA):
            grades[TOTAL] = sum(grades.values())
        own = people.setdefault(f"human: {rating.rater}", {})
        own |= {plan: grades for plan in plans if controls or not plan.control}
    return [Rater(name, plans) for name, plans in people.items()]


def agreement(raters: Sequence[Rater], videos: Mapping[str, str], seed: int = 0, pairs: bool = True) -> RaterAgreement:
    """Compare raters on the plans that two or more rated; `videos` names each example's cluster, itself where absent.

    Raises InputError where no plan was rated by two.
    """
    counts = Counter(plan for rater in raters for plan in rater.plans)
    plans = sorted(plan for plan, count in counts.items() if count > 1)
    if not plans:
        raise InputError("no plan was rated by two raters; give ratings of the same plans.")
    clusters = [videos.get(plan.example_id) or plan.example_id for plan in plans]
    # Ratings [raters, plans], NaN where there is none.
    tables = {
        measure: np.array([[rater.plans.get(plan, {}).get(measure, np.nan) for plan in plans] for rater in raters])
        for measure in MEASURES
    }
    labels = np.asarray(clusters)
    compared: dict[str, dict[str, RaterPair]] = {}
    for first, second in combinations(range(len(raters)), 2) if pairs else ():
        of_pair = compared.setdefault(f"{raters[first].name} | {raters[second].name}", {})
        for measure, table in tables.items():
            both = ~np.isnan(table[[first, second]]).any(axis=0)
            if both.any():
                of_pair[measure] = compare_raters(table[first, both], table[second, both], list(labels[both]), seed)
    return RaterAgreement(
        raters=tuple(rater.name for rater in raters),
        plans=len(plans),
        alpha={name: krippendorff_alpha(table, MEASURES[name], clusters, seed) for name, table in tables.items()},
        pairs=compared,
        spread=spread_of([rater.name for rater in raters], 100 * tables[TOTAL] / FULL),
    )


def spread_of(names: Sequence[str], table: Ratings) -> RaterSpread | None:
    """The spread of accuracies [raters, plans], NaN where there is none; plans without one by every rater are left out.

    >>> spread_of(["a", "b"], np.array([[50.0, 70.0], [60.0, 80.0]])).variance
    {'plans': 0.8, 'raters': 0.2, 'rest': 0.0}
    """
    whole = table[:, ~np.isnan(table).any(axis=0)]
    raters, plans = whole.shape
    if plans < 2:
        return None
    by_rater, by_plan = whole.mean(axis=1), whole.mean(axis=0)
    rest = whole - by_rater[:, None] - by_plan + whole.mean()
    squares = float(np.square(rest).sum()) / ((raters - 1) * (plans - 1))
    components = {
        "plans": max(0.0, float(by_plan.var(ddof=1)) - squares / raters),
        "raters": max(0.0, float(by_rater.var(ddof=1)) - squares / plans),
        "rest": squares,
    }
    total = sum(components.values())
    shares = {name: value / total for name, value in components.items()} if total > 0 else None
    means = dict(zip(names, map(float, by_rater), strict=True))
    return RaterSpread(plans, means, float(by_rater.std(ddof=1)), shares)
