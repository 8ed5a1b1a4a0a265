"""Judges and people who rated the same plans: how far they agree."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from recipe.errors import InputError
from recipe.evaluation.judge.verdicts import CRITERIA, FULL, Judgement
from recipe.evaluation.people.ratings import Rating, rated_plans
from recipe.evaluation.scoreboard.sources import Board, judgements_of
from recipe.evaluation.scores import PlanId
from recipe.stats import Level, RaterPair, Reliability, compare_raters, krippendorff_alpha, video_of
from recipe.types import Verdict

TOTAL = "total"
MEASURES: dict[str, Level] = {**dict.fromkeys(CRITERIA, "ordinal"), TOTAL: "interval"}
"""Measures on which raters are compared, with their level: grades are in an order, their sum has distances."""
Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rater:
    """A judge or a person, and its mean rating of each plan, by measure."""

    name: str
    plans: dict[PlanId, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Spread:
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
class Agreement:
    """Agreement of raters on the plans that two or more of them rated."""

    raters: tuple[str, ...]
    plans: int
    """Plans that two or more rated."""
    alpha: dict[str, Reliability]
    """By measure, over all raters."""
    pairs: dict[str, dict[str, RaterPair]] = field(default_factory=dict)
    """Of the first rater with the second, by `first | second` and measure."""
    spread: Spread | None = None
    """None where fewer than two plans have a total by every rater."""


def agreement_of(
    board: Board, ratings: Sequence[Rating] = (), controls: bool = False, seed: int = 0
) -> tuple[Agreement | None, dict[str, Agreement]]:
    """Agreement of the judges of a board and of people, and that of the repeats of each judge with several.

    The first is None for a single judge. Raises InputError where judges saw different plans, and for a single judge
    without repeats.
    """
    for source in board.sources:
        judgements_of(source)
    videos = {name: video_of(one) for name, one in board.examples.items() if one.video_id}
    named = [(source.scores.judge.name, source) for source in board.sources if source.scores.judge]
    names = [name for name, _ in named]
    judges = {
        name if names.count(name) == 1 else f"{name} ({source.path.stem})": judgements_of(source)
        for name, source in named
    }
    [first, *_] = judges.values()
    for (_, source), judged in zip(named, judges.values(), strict=True):
        require_same_plans(first, judged, str(source.path))
    raters = [judge_rater(name, judged, controls) for name, judged in judges.items()]
    raters += human_raters(ratings, [one for judged in judges.values() for one in judged], controls)
    repeats = {name: repeat_raters(name, judged, controls) for name, judged in judges.items()}
    within = {name: agreement(some, videos, seed, pairs=False) for name, some in repeats.items() if len(some) > 1}
    if len(raters) == 1 and not within:
        raise InputError("one judge without repeats has nothing to agree with; give another, or --ratings.")
    return (agreement(raters, videos, seed) if len(raters) > 1 else None), within


def judge_rater(name: str, judged: Sequence[Judgement], controls: bool = False) -> Rater:
    """A judge as a rater: the mean over the repeats that are scored; plans without one are absent."""
    groups: dict[PlanId, list[Verdict]] = {}
    for one in judged:
        if isinstance(one.outcome, Verdict) and one.how != "rule" and (controls or not one.control):
            groups.setdefault(one.plan_id, []).append(one.outcome)
    return Rater(name, {key: _means(verdicts) for key, verdicts in groups.items()})


def repeat_raters(name: str, judged: Sequence[Judgement], controls: bool = False) -> list[Rater]:
    """Each repeat of a judge as a rater of its own."""
    by_repeat: dict[int, list[Judgement]] = {}
    for one in judged:
        by_repeat.setdefault(one.repeat, []).append(one)
    return [judge_rater(f"{name}, repeat {n + 1}", rows, controls) for n, rows in sorted(by_repeat.items())]


def human_raters(ratings: Iterable[Rating], judged: Sequence[Judgement], controls: bool = False) -> list[Rater]:
    """Each person as a rater, `human: NAME`; `judged` are the verdicts on the plans that they rated.

    Raises InputError as `rated_plans` does.
    """
    found: dict[str, dict[PlanId, dict[str, float]]] = {}
    for rating, plans in rated_plans(ratings, judged):
        grades = found.setdefault(f"human: {rating.rater}", {})
        grades |= {key: _human(rating) for key in plans if controls or not key.control}
    return [Rater(name, grades) for name, grades in found.items()]


def require_same_plans(first: Sequence[Judgement], second: Sequence[Judgement], name: str) -> None:
    """Raise InputError where two judges were shown different plans under one name."""
    shown = {one.plan_id: one.steps for one in first}
    for one in second:
        steps = shown.get(one.plan_id, ())
        if steps and one.steps and steps != one.steps:
            raise InputError(
                f"{name}: sample {one.sample} of {one.example_id!r} is another plan than in the first file; "
                "agreement is about the same plans, and two systems are compared by `recipe evaluate compare`."
            )


def agreement(raters: Sequence[Rater], videos: Mapping[str, str], seed: int = 0, pairs: bool = True) -> Agreement:
    """Compare raters on the plans that two or more rated; `videos` names each example's cluster, itself where absent.

    Raises InputError where no plan was rated by two.
    """
    counts: dict[PlanId, int] = {}
    for rater in raters:
        for key in rater.plans:
            counts[key] = counts.get(key, 0) + 1
    plans = sorted(key for key, count in counts.items() if count > 1)
    if not plans:
        raise InputError("no plan was rated by two raters; give ratings of the same plans.")
    clusters = [videos.get(key.example_id) or key.example_id for key in plans]
    tables = {measure: _table(raters, plans, measure) for measure in MEASURES}
    return Agreement(
        raters=tuple(rater.name for rater in raters),
        plans=len(plans),
        alpha={name: krippendorff_alpha(table, MEASURES[name], clusters, seed) for name, table in tables.items()},
        pairs=_pairs(raters, tables, clusters, seed) if pairs else {},
        spread=spread_of([rater.name for rater in raters], 100 * tables[TOTAL] / FULL),
    )


def spread_of(names: Sequence[str], table: Table) -> Spread | None:
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
    return Spread(plans, means, float(by_rater.std(ddof=1)), shares)


def _pairs(
    raters: Sequence[Rater], tables: Mapping[str, Table], clusters: Sequence[str], seed: int
) -> dict[str, dict[str, RaterPair]]:
    labels = np.asarray(clusters)
    found: dict[str, dict[str, RaterPair]] = {}
    for first, second in combinations(range(len(raters)), 2):
        of_pair = found.setdefault(f"{raters[first].name} | {raters[second].name}", {})
        for measure, table in tables.items():
            both = ~np.isnan(table[[first, second]]).any(axis=0)
            if both.any():
                of_pair[measure] = compare_raters(table[first, both], table[second, both], list(labels[both]), seed)
    return found


def _table(raters: Sequence[Rater], plans: Sequence[PlanId], measure: str) -> Table:
    """Ratings [raters, plans], NaN where there is none."""
    rows = [[rater.plans.get(key, {}).get(measure, np.nan) for key in plans] for rater in raters]
    return np.array(rows, dtype=np.float64)


def _means(verdicts: Sequence[Verdict]) -> dict[str, float]:
    return {measure: float(np.mean([getattr(one, measure) for one in verdicts])) for measure in MEASURES}


def _human(rating: Rating) -> dict[str, float]:
    """The ratings of a person; the total only where all six are given."""
    given = {name: float(score) for name, score in rating.scores.items()}
    return {**given, TOTAL: sum(given.values())} if len(given) == len(CRITERIA) else given
