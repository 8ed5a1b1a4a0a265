"""Steps matched by their embeddings: agreement with the annotated continuation, and likeness on a common scale.

*Agreement* is how far a plan agrees with the one annotated continuation, where no task graph says what is valid. A line
of a plan is taken for the annotated step that is nearest to it by embedding, so that wordings do not count.

    F1         = 2 |plan and reference| / (|plan| + |reference|)      as multisets: saying a step twice gains nothing
    ordered F1 = 2 LCS(plan, reference) / (|plan| + |reference|)      the longest common subsequence

Neither is the paper's judge, and a right plan that differs from the reference counts as wrong.

*Likeness* is how alike two steps are by their embeddings, on a scale that means the same with every encoder:

    likeness = (cosine - chance) / (same - chance), cut to [0, 1]

`chance` is the cosine below which 95% of the pairs of steps of different goals lie, `same` the one below which 95% of
the pairs of different steps of one goal lie. Both come from the usual wordings of the embedded world's training goals,
so that nothing is fitted to the texts that are judged, and to no measure of quality at all.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.errors import ComputeError, InputError, MissingExtra
from recipe.planning.admissible import AdmissibleActions
from recipe.planning.admissible import Embed as Embed
from recipe.world.load import load_world

try:
    from scipy.optimize import linear_sum_assignment
except ModuleNotFoundError as error:
    raise MissingExtra("evaluation", "report") from error

Array = NDArray[np.float64]

PERCENTILE = 95
_DECIMALS = 3
"""Of a cosine: it varies by a ten-thousandth with the other texts of a batch, which must not change a score."""
_IN_PLACE = 1e-4
"""The cost of steps that are out of place, which decides between pairings of equal likeness."""


class NearestStep:
    """Maps texts to the steps of a vocabulary, each text embedded once; ties go to the first in sorted order."""

    def __init__(self, embed: Embed, vocabulary: Sequence[str]) -> None:
        names = sorted(set(vocabulary))
        if not names:
            raise InputError("there are no annotated steps to compare plans with; give examples that hold some.")
        self._steps = AdmissibleActions(embed, names)

    def __call__(self, texts: Sequence[str]) -> tuple[str, ...]:
        """The nearest annotated step of each text."""
        return tuple(mapped.action for mapped in self._steps.map(texts))

    def learn(self, texts: Sequence[str]) -> None:
        """Embed those of the texts that are new in one call, for many plans at once."""
        self._steps.map(texts)


def step_f1(plan: Sequence[Hashable], reference: Sequence[Hashable]) -> float:
    """F1 of the steps as multisets; 0 for an empty plan, 1 for two empty ones.

    >>> step_f1(["stir", "pour"], ["pour", "stir"]), step_f1(["pour", "pour"], ["pour", "stir"])
    (1.0, 0.5)
    """
    return _f1(sum((Counter(plan) & Counter(reference)).values()), plan, reference)


def ordered_f1(plan: Sequence[Hashable], reference: Sequence[Hashable]) -> float:
    """F1 of the steps that stand in the same order in both.

    >>> ordered_f1(["stir", "pour"], ["pour", "stir"]), ordered_f1(["pour", "wait", "stir"], ["pour", "stir"])
    (0.5, 0.8)
    """
    row = [0] * (len(reference) + 1)
    for step in plan:
        diagonal = 0
        for place, other in enumerate(reference, start=1):
            diagonal, row[place] = row[place], diagonal + 1 if step == other else max(row[place], row[place - 1])
    return _f1(row[-1], plan, reference)


def _f1(common: int, plan: Sequence[Hashable], reference: Sequence[Hashable]) -> float:
    total = len(plan) + len(reference)
    return 2 * common / total if total else 1.0


class Scale(NamedTuple):
    """The two ends of the scale, as cosines."""

    chance: float
    same: float


class StepPair(NamedTuple):
    """Two steps that are taken for each other, by their places, and how alike they are."""

    first: int
    second: int
    likeness: float


def calibrate(embed: Embed) -> Scale:
    """The ends of the scale of an encoder. Raises ComputeError for one that tells no steps apart."""
    world = load_world()
    goals = [graph for graph in world.goals.values() if not graph.held_out]
    found = scale_of([[world.wordings[step][0] for step in graph.steps] for graph in goals], embed)
    if not found.chance < found.same:
        raise ComputeError("the encoder finds steps of one goal no more alike than steps of different goals.")
    return found


def scale_of(goals: Sequence[Sequence[str]], embed: Embed) -> Scale:
    """The ends that the steps of these goals give; steps that any goal shares are steps of one goal."""
    sets = [set(goal) for goal in goals]
    steps = sorted(set().union(*sets))
    member = np.array([[step in goal for goal in sets] for step in steps], dtype=np.float64)
    vectors = embed(steps)
    above = np.triu_indices(len(steps), k=1)
    cosines, together = (vectors @ vectors.T)[above], (member @ member.T)[above] > 0
    ends = (float(np.percentile(cosines[chosen], PERCENTILE)) for chosen in (~together, together))
    return Scale(*(round(end, _DECIMALS) for end in ends))


class Likeness:
    """Compares texts under one encoder's scale; holds their vectors."""

    def __init__(self, embed: Embed, calibration: Scale, texts: Sequence[str]) -> None:
        """Embed all `texts` that will be compared, each once and in sorted order."""
        self.calibration = calibration
        distinct = sorted(set(texts))
        self._place = {text: row for row, text in enumerate(distinct)}
        self._vectors = embed(distinct) if distinct else np.zeros((0, 1), dtype=np.float32)

    def cosines(self, first: Sequence[str], second: Sequence[str]) -> Array:
        """Cosines [first, second], to three decimals."""
        rows, columns = ([self._place[text] for text in texts] for texts in (first, second))
        product = self._vectors[rows] @ self._vectors[columns].T
        return np.asarray(np.round(product, _DECIMALS), dtype=np.float64)

    def between(self, first: Sequence[str], second: Sequence[str]) -> Array:
        """Likenesses [first, second], 0 to 1."""
        return self.scaled(self.cosines(first, second))

    def scaled(self, cosines: Array) -> Array:
        """Cosines on the scale."""
        chance, same = self.calibration
        return np.asarray(np.clip((cosines - chance) / (same - chance), 0.0, 1.0), dtype=np.float64)

    def pairs(self, first: Sequence[str], second: Sequence[str]) -> list[StepPair]:
        """The assignment of steps to each other that is most alike in all, in the order of `first`.

        Each step is in one pair at most; pairs that are alike by chance only are left out.
        """
        if not first or not second:
            return []
        cosines = self.cosines(first, second)
        gains = np.maximum(cosines - self.calibration.chance, 0.0)
        places = np.linspace(0, 1, len(first))[:, None] - np.linspace(0, 1, len(second))[None, :]
        likeness = self.scaled(cosines)
        rows, columns = linear_sum_assignment(gains - _IN_PLACE * places**2, maximize=True)
        return [
            StepPair(int(i), int(j), float(likeness[i, j]))
            for i, j in zip(rows, columns, strict=True)
            if likeness[i, j]
        ]


def ordered_likeness(likeness: Array) -> float:
    """The most that pairs in the same order in both lists add up to; `likeness` [first, second].

    With likenesses of 0 and 1 it is the length of the longest common subsequence.

    >>> ordered_likeness(np.array([[0.0, 1.0], [1.0, 0.0]])), ordered_likeness(np.eye(2))
    (1.0, 2.0)
    """
    best = np.zeros(likeness.shape[1] + 1)
    for row in likeness:
        matched = np.concatenate([[0.0], best[:-1] + row])
        best = np.maximum.accumulate(np.maximum(best, matched))
    return float(best[-1])
