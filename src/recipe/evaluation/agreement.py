"""Judges and people who rated the same plans by the six criteria: Krippendorff's alpha, and each pair of raters.

Ratings of people are JSON lines, or a table (CSV): `example_id`, `sample` (0), `control`, `rater` (the file's name) and
any of the criteria, 0 to 5. Further columns are ignored; a row without a criterion is not rated yet and left out.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, make_dataclass
from difflib import get_close_matches
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
from pydantic import Field

from recipe.errors import InputError
from recipe.evaluation.judge.verdicts import CRITERIA, HIGHEST, Judgement
from recipe.evaluation.scoreboard.sources import ReportSources, judgements_of
from recipe.evaluation.scores import PlanId
from recipe.report.elements import Cell, Table, headings, row
from recipe.rows import Count, Text, parse_row
from recipe.stats import Level, RaterPair, Reliability, compare_raters, krippendorff_alpha, video_of
from recipe.tables import row_texts
from recipe.types import Grades, Verdict

TOTAL = "total"
MEASURES: dict[str, Level] = {**dict.fromkeys(CRITERIA, "ordinal"), TOTAL: "interval"}
"""Measures on which raters are compared, with their level: grades are in an order, their sum has distances."""
Rater = Mapping[PlanId, Mapping[str, float]]
"""The ratings of a judge or a person: of each plan, by measure."""
_Score = Annotated[int, Field(ge=0, le=HIGHEST)]

# Made here, so that the names of the criteria stand in `Verdict` alone.
_Row = make_dataclass(
    "_Row",
    [
        ("example_id", Text),
        ("sample", Count, 0),
        ("control", str, ""),
        ("rater", str, ""),
        *((name, _Score | None, None) for name in CRITERIA),
    ],
)
_COLUMNS = [own.name for own in fields(_Row)]


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """Agreement of raters on the plans that two or more of them rated."""

    raters: tuple[str, ...]
    plans: int
    alpha: dict[str, Reliability]
    """By measure, over all raters."""
    pairs: dict[str, dict[str, RaterPair]]
    """Of the first rater with the second, by `first | second` and measure."""

    def tables(self) -> Iterator[Table]:
        """Alpha by measure over all raters, then each pair of them."""
        rows = (
            row(name.replace("_", " "), of.reason, "", "")
            if of.alpha is None
            else row(name.replace("_", " "), *Cell(of.alpha, 2).split(), of.alpha.observations)
            for name, of in self.alpha.items()
        )
        title = f"{len(self.raters)} raters, {self.plans:,} plans rated twice or more"
        yield Table(title, "measure", headings("alpha", "95% interval", "plans"), tuple(rows))
        columns = headings("same, percent", "±1, percent", "first minus second", "95% interval", "plans")
        for names, pair in self.pairs.items():
            of_pair = []
            for name, of in pair.items():
                shares = (Cell(own, 0, percent=True) for own in (of.exact, of.near))
                of_pair.append(row(name.replace("_", " "), *shares, *Cell(of.bias, 2, signed=True).split(), of.units))
            yield Table(names, "measure", columns, tuple(of_pair))


def read_ratings(path: Path, known: Collection[PlanId] | None = None) -> dict[str, dict[PlanId, dict[str, float]]]:
    """The ratings of a file, by rater; `known` are the plans that may be rated, any without.

    Raises InputError with file, line, field and remedy.
    """
    raters: dict[str, dict[PlanId, dict[str, float]]] = {}
    for line, text in row_texts(path, get_type_hints(_Row)):
        rated: Any = parse_row(path, line, text, _Row, "ignore")
        for name in json.loads(text).keys() - {*_COLUMNS}:
            # Other columns are ignored, but one that is nearly a criterion is a slip that would lose its ratings.
            if near := get_close_matches(name.lower(), _COLUMNS, n=1, cutoff=0.8):
                raise InputError.at(path, "the name is unknown", f"rename it to {near[0]!r}", line=line, field=name)
        scores = {name: float(score) for name in CRITERIA if (score := getattr(rated, name)) is not None}
        if not scores:
            continue
        plan = PlanId(rated.example_id, rated.sample, rated.control)
        if known is not None and plan not in known:
            problem = f"no judge's file holds sample {plan.sample} of {plan.example_id!r}"
            raise InputError.at(
                path, problem, "give scores of a judge of the same plans", line=line, field="example_id"
            )
        own = raters.setdefault(f"human: {rated.rater.strip() or path.stem}", {})
        if plan in own:
            problem = f"sample {plan.sample} of {plan.example_id!r} is rated twice by one rater"
            raise InputError.at(path, problem, "keep one of the two rows", line=line)
        own[plan] = scores | ({TOTAL: sum(scores.values())} if len(scores) == len(CRITERIA) else {})
    if not raters:
        raise InputError.at(path, "no row holds a rating", f"give columns example_id and {', '.join(CRITERIA)}")
    return raters


def _judge_rater(judged: Sequence[Judgement], controls: bool = False) -> Rater:
    """A judge as a rater: the mean over the repeats that are scored; plans without one are absent."""
    verdicts: dict[PlanId, list[dict[str, float]]] = {}
    for judgement in judged:
        if (
            isinstance(judgement.outcome, Verdict | Grades)
            # What code decided is no rating of the judge's.
            and judgement.how != "rule"
            and (controls or not judgement.control)
        ):
            scores = judgement.outcome.scores
            verdicts.setdefault(judgement.plan_id, []).append(scores | {TOTAL: sum(scores.values())})
    return {
        plan: {measure: float(np.mean([verdict[measure] for verdict in own])) for measure in MEASURES}
        for plan, own in verdicts.items()
    }


def raters_of(board: ReportSources, files: Sequence[Path] = (), controls: bool = False) -> dict[str, Rater]:
    """The judges of scores by the six criteria, and the people of files of ratings.

    Raises InputError where a rubric of one's own was used, where judges saw different plans, and for a name twice.
    """
    raters: dict[str, Rater] = {}
    shown: dict[PlanId, tuple[str, ...]] = {}
    known = set[PlanId]()
    for source in board.sources:
        judge = source.scores.judge
        if judge is not None and (rubric := judge.settings.get("rubric")):
            problem = f"these are scores by rubric {rubric!r}, and raters are compared on the six criteria"
            raise InputError.at(source.path, problem, "give scores of a judge by the six criteria")
        judged = judgements_of(source)
        if any(isinstance(own.outcome, Grades) and own.outcome.scores.keys() != {*CRITERIA} for own in judged):
            raise InputError.at(
                source.path, "its criteria are not the six", "give scores of a judge by the six criteria"
            )
        for judgement in judged:
            known.add(judgement.plan_id)
            if judgement.steps and shown.setdefault(judgement.plan_id, judgement.steps) != judgement.steps:
                problem = f"sample {judgement.sample} of {judgement.example_id!r} is another plan than in a file before"
                raise InputError.at(source.path, problem, "compare two systems with: recipe evaluate compare")
        name = "" if judge is None else judge.name
        raters[name if name not in raters else f"{name} ({source.path})"] = _judge_rater(judged, controls)
    for path in files:
        people = read_ratings(path, known)
        if again := people.keys() & raters.keys():
            raise InputError.at(path, f"{min(again)!r} also rates in a file before", "name raters apart by `rater`")
        raters |= people
    return raters


def agreement_of(raters: Mapping[str, Rater], board: ReportSources, seed: int = 0) -> RaterAgreement:
    """Compare raters on the plans that two or more rated; intervals draw whole videos where examples are known.

    Raises InputError where no plan was rated by two.
    """
    counts = Counter(plan for rater in raters.values() for plan in rater)
    plans = sorted(plan for plan, count in counts.items() if count > 1)
    if not plans:
        raise InputError(
            "no plan was rated by two raters; give another judge's scores, or --ratings of the same plans."
        )
    videos = {name: video_of(example) for name, example in board.examples.items() if example.video_id}
    clusters = np.array([videos.get(plan.example_id) or plan.example_id for plan in plans])
    # Ratings [raters, plans], NaN where there is none.
    tables = {
        measure: np.array([[rater.get(plan, {}).get(measure, np.nan) for plan in plans] for rater in raters.values()])
        for measure in MEASURES
    }
    pairs: dict[str, dict[str, RaterPair]] = {}
    names = list(raters)
    for first, second in combinations(range(len(names)), 2):
        of_pair = pairs.setdefault(f"{names[first]} | {names[second]}", {})
        for measure, table in tables.items():
            both = ~np.isnan(table[[first, second]]).any(axis=0)
            if both.any():
                of_pair[measure] = compare_raters(table[first, both], table[second, both], list(clusters[both]), seed)
    alpha = {name: krippendorff_alpha(table, MEASURES[name], list(clusters), seed) for name, table in tables.items()}
    return RaterAgreement(tuple(names), len(plans), alpha, pairs)
