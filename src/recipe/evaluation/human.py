"""Ratings of people as the verdicts of a judge, so that tables and pages show them like any other.

Several people are the repeats of one judge: means are over them first, and their spread is told. A verdict needs all
six criteria; ratings of fewer are left out and counted, and still count where raters are compared. A sheet may hold the
plans of several systems: for each of them the items of the others are left out and counted.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from recipe.errors import InputError
from recipe.evaluation.raters import rated_plans
from recipe.evaluation.rating_sheets import PlanKey, item_code
from recipe.evaluation.ratings import Rating
from recipe.evaluation.scores import JudgeIdentity
from recipe.evaluation.verdicts import CRITERIA, Judged
from recipe.types import Verdict


class HumanVerdicts(NamedTuple):
    """People as one judge."""

    identity: JudgeIdentity
    rows: list[Judged]
    incomplete: int
    """Ratings without all six criteria, left out."""
    elsewhere: int
    """Ratings of items that are no plans of this system, left out."""


def human_verdicts(ratings: Sequence[Rating], judged: Iterable[Judged]) -> HumanVerdicts:
    """The verdicts that ratings are; `judged` are verdicts on the same plans, from which the sheet was made.

    Raises InputError for a rating by `example_id` of a plan that is not among them, for a plan that one person rated
    under two names, and where no rating of these plans has all six criteria.
    """
    judged = list(judged)
    items = {item_code(one) for one in judged}
    here = [rating for rating in ratings if not rating.item or rating.item in items]
    people = list(dict.fromkeys(rating.rater for rating in ratings))
    name = f"human: {', '.join(people)}"
    rows: dict[tuple[PlanKey, int], Judged] = {}
    incomplete = 0
    for rating, plans in rated_plans(here, judged):
        if len(rating.scores) < len(CRITERIA):
            incomplete += 1
            continue
        for key, shown in plans.items():
            place = (key, people.index(rating.rater))
            if place in rows:
                raise InputError(f"{rating.rater} rated sample {key.sample} of {key.example_id!r} twice; keep one.")
            rows[place] = _row(rating, key, place[1], name, shown.steps)
    if not rows:
        raise InputError(
            f"none of {len(ratings)} ratings is of these plans and has all six criteria; give the verdicts that the "
            "sheet was made from, or compare with `recipe evaluate agreement`, which takes ratings of fewer."
        )
    identity = JudgeIdentity(name, "human", settings={"raters": str(len(people))})
    return HumanVerdicts(identity, list(rows.values()), incomplete, len(ratings) - len(here))


def _row(rating: Rating, key: PlanKey, repeat: int, name: str, steps: tuple[str, ...]) -> Judged:
    text = f"{rating.rater}: {rating.comment}" if rating.comment else rating.rater
    verdict = Verdict(**rating.scores)
    return Judged(key.example_id, verdict, key.sample, repeat, key.control, name, "human", steps, text=text)
