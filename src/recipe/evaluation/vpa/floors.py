"""Floors that look at no video: what usually comes next, counted in the training and validation videos.

    unigram    the most frequent action, at every position
    ranked     the most frequent actions, each once, most frequent first
    bigram     from the last step done, or the start, to its most frequent successor, and on from there

Each is counted over all videos or, with `goal-` before its name, over those of the goal. The end of a video is a
successor like any other; after it, or any action that nothing follows, comes the most frequent action. Ties go to the
order of the release. The history is the annotated one.

The paper's rows Most Probable, which it does not define, are reproduced by none of these; so they have names of their
own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, get_args

from recipe.data.vpa import END, Sample, Taxonomy
from recipe.types import Procedure

Floor = Literal["unigram", "ranked", "bigram", "goal-unigram", "goal-ranked", "goal-bigram"]
FLOORS: tuple[Floor, ...] = get_args(Floor)

_START = ""


class _Counts(NamedTuple):
    """How often actions occur, and follow another, in the videos of one goal or of all."""

    single: Counter[str]
    after: dict[str, Counter[str]]


def floor_plans(
    floor: Floor, samples: Iterable[Sample], training: Iterable[Procedure], taxonomy: Taxonomy, width: int
) -> list[tuple[str, ...]]:
    """The plan of `width` actions for each sample; empty where nothing was counted for its goal."""
    by_goal = floor.startswith("goal-")
    counted = _count(training, taxonomy, by_goal)
    order = {action: place for place, action in enumerate((*taxonomy.actions, END))}
    plan = _KINDS[floor.removeprefix("goal-")]
    nothing = _Counts(Counter(), {})
    made: dict[tuple[str, str], tuple[str, ...]] = {}
    plans = []
    for sample in samples:
        last = taxonomy.action(sample.history[-1], sample.goal) if sample.history else _START
        key = (sample.goal if by_goal else "", last)
        if key not in made:
            made[key] = tuple(plan(counted.get(key[0], nothing), last, width, order))
        plans.append(made[key])
    return plans


def _count(training: Iterable[Procedure], taxonomy: Taxonomy, by_goal: bool) -> dict[str, _Counts]:
    counted: dict[str, _Counts] = {}
    for procedure in training:
        counts = counted.setdefault(procedure.goal if by_goal else "", _Counts(Counter(), {}))
        steps = [taxonomy.action(step.text, procedure.goal) for step in procedure.steps]
        counts.single.update(steps)
        for last, following in zip([_START, *steps], [*steps, END], strict=True):
            counts.after.setdefault(last, Counter())[following] += 1
    return counted


def _ranked(counts: Counter[str], order: dict[str, int]) -> list[str]:
    return sorted(counts, key=lambda action: (-counts[action], order[action]))


def _unigram(counts: _Counts, last: str, width: int, order: dict[str, int]) -> list[str]:
    return _ranked(counts.single, order)[:1] * width


def _most_frequent(counts: _Counts, last: str, width: int, order: dict[str, int]) -> list[str]:
    return _ranked(counts.single, order)[:width]


def _bigram(counts: _Counts, last: str, width: int, order: dict[str, int]) -> list[str]:
    plan: list[str] = []
    while len(plan) < width and counts.single:
        last = _ranked(counts.after.get(last) or counts.single, order)[0]
        plan.append(last)
    return plan


_KINDS: dict[str, Callable[[_Counts, str, int, dict[str, int]], Sequence[str]]] = {
    "unigram": _unigram,
    "ranked": _most_frequent,
    "bigram": _bigram,
}
