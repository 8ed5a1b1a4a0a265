"""Steps matched by their embeddings: agreement with the annotated continuation, and likeness on a common scale.

*Agreement* is how far a plan agrees with the one annotated continuation, where no task graph says what is valid. Each
line of a plan is taken for a step or for none, and then

    F1         = 2 |plan and reference| / (|plan| + |reference|)      as multisets: saying a step twice gains nothing
    ordered F1 = 2 LCS(plan, reference) / (|plan| + |reference|)      the longest common subsequence

A line that is taken for none counts in |plan| and is common with nothing. Neither is the paper's judge, and a right
plan that differs from the reference counts as wrong. There are two ways to take a line for a step:

    nearest    the nearest step of everything that is annotated (`NearestStep`): always some step
    matched    the nearest of the reference's steps, of those that are done, and of the goal itself (`StepMatcher`);
               none where that is no step of the reference, or where it is less alike than `FLOOR`

*Likeness* is how alike two steps are by their embeddings, on a scale that means the same with every encoder:

    likeness = (cosine - chance) / (same - chance), cut to [0, 1]

`chance` is the cosine below which 95% of the pairs of steps of different goals lie, `same` the one below which 95% of
the pairs of different steps of one goal lie. Both come from the usual wordings of the embedded world's training goals,
so that nothing is fitted to the texts that are judged, and to no measure of quality at all. `FLOOR` alone is chosen on
annotations, those of training videos (`benchmarks/agreement.py`).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.errors import ComputeError, InputError, MissingExtra
from recipe.planning.admissible import AdmissibleActions
from recipe.planning.admissible import Embed as Embed
from recipe.types import Example
from recipe.world.load import load_world

try:
    from scipy.optimize import linear_sum_assignment
except ModuleNotFoundError as error:
    raise MissingExtra("evaluation", "report") from error

Array = NDArray[np.float64]

PERCENTILE = 95
FLOOR = 2 / 3
"""Least likeness of a line to the step that it is taken for; with MiniLM a cosine of 0.574."""
# Of a cosine: it varies by a ten-thousandth with the other texts of a batch, which must not change a score.
_DECIMALS = 3
# The cost of steps that are out of place, which decides between pairings of equal likeness.
_IN_PLACE = 1e-4


class NearestStep:
    """Maps texts to the steps of a vocabulary, each text embedded once; ties go to the first in sorted order."""

    def __init__(self, embed: Embed, vocabulary: Sequence[str]) -> None:
        names = sorted(set(vocabulary))
        if not names:
            raise InputError("there are no annotated steps to compare plans with; give examples that hold some.")
        self._steps = AdmissibleActions(embed, names)

    def __call__(self, texts: Sequence[str]) -> tuple[str, ...]:
        """The nearest annotated step of each text."""
        return tuple(match.action for match in self._steps.map(texts))

    def learn(self, texts: Sequence[str]) -> None:
        """Embed those of the texts that are new in one call, for many plans at once."""
        self._steps.map(texts)


def step_f1(plan: Sequence[Hashable], reference: Sequence[Hashable]) -> float:
    """F1 of the steps as multisets; 0 for an empty plan, 1 for two empty ones.

    >>> step_f1(["stir", "pour"], ["pour", "stir"]), step_f1(["pour", "pour"], ["pour", "stir"])
    (1.0, 0.5)
    """
    # Steps count as often as they stand: a plan that says a step twice has one more step that is wrong.
    total = len(plan) + len(reference)
    return 2 * sum((Counter(plan) & Counter(reference)).values()) / total if total else 1.0


def ordered_f1(plan: Sequence[Hashable], reference: Sequence[Hashable]) -> float:
    """F1 of the steps that stand in the same order in both.

    >>> ordered_f1(["stir", "pour"], ["pour", "stir"]), ordered_f1(["pour", "wait", "stir"], ["pour", "stir"])
    (0.5, 0.8)
    """
    # The longest common subsequence, a row of the table at a time: L[i, j] = L[i - 1, j - 1] + 1 where steps are equal,
    # else the larger of L[i - 1, j] and L[i, j - 1].
    row = [0] * (len(reference) + 1)
    for step in plan:
        diagonal = 0
        for index, other in enumerate(reference, start=1):
            diagonal, row[index] = row[index], diagonal + 1 if step == other else max(row[index], row[index - 1])
    total = len(plan) + len(reference)
    return 2 * row[-1] / total if total else 1.0


class Agreement(NamedTuple):
    """How far a plan agrees with the reference, 0 to 1."""

    f1: float
    ordered_f1: float


class StepMatcher:
    """Takes the lines of a plan for steps of its example's reference, or for none; each text is embedded once.

    A line that is as near to the reference as to what is done or to the goal counts for the reference. Of equally near
    steps of the reference the first counts. No result depends on the texts of other plans.
    """

    def __init__(self, embed: Embed, scale: "CosineScale | None" = None, floor: float = FLOOR) -> None:
        """Without a scale it is calibrated; raises ComputeError for an encoder that tells no steps apart."""
        self._embed = embed
        self.scale = calibrate(embed) if scale is None else scale
        self.floor = floor
        self._least = self.scale.chance + floor * (self.scale.same - self.scale.chance)
        self._vectors: dict[str, Array] = {}

    def learn(self, texts: Iterable[str]) -> None:
        """Embed those of the texts that are new in one call, for many plans at once."""
        new = sorted({text for text in texts if text not in self._vectors})
        if new:
            vectors = np.asarray(self._embed(new), dtype=np.float64)
            if len(vectors) != len(new) or not np.isfinite(vectors).all():
                raise ComputeError(f"the encoder gave no usable vectors for {len(new)} texts; check its model.")
            self._vectors.update(zip(new, vectors, strict=True))

    def names(self, example: Example, steps: Sequence[str]) -> tuple[str | None, ...]:
        """The reference's step that each line stands for, None for no step of it."""
        wanted, others = tuple(dict.fromkeys(example.continuation)), (*example.history, example.goal)
        if not steps or not wanted:
            return (None,) * len(steps)
        self.learn((*steps, *wanted, *others))
        ours, theirs = self._cosines(steps, wanted), self._cosines(steps, others).max(axis=1)
        nearest = ours.argmax(axis=1)
        best = ours[np.arange(len(steps)), nearest]
        # A line that repeats the history or names the goal is nearer to those than to any step to come.
        counts = (best >= self._least) & (best >= theirs)
        return tuple(wanted[index] if count else None for index, count in zip(nearest, counts, strict=True))

    def agreement(self, example: Example, steps: Sequence[str]) -> Agreement:
        """F1 and ordered F1 of a plan with its example's reference. The reference itself gets 1.

        The reference is read as the plan is, so that steps which the encoder cannot tell apart are one step in both.
        """
        plan, reference = self.names(example, steps), self.names(example, example.continuation)
        return Agreement(step_f1(plan, reference), ordered_f1(plan, reference))

    def _cosines(self, lines: Sequence[str], steps: Sequence[str]) -> Array:
        first, second = (np.stack([self._vectors[text] for text in texts]) for texts in (lines, steps))
        cosines = np.minimum(np.round(first @ second.T, _DECIMALS), 1.0)
        # An encoder may give a text without words no direction; it is the same as itself all the same.
        return np.where([[line == step for step in steps] for line in lines], 1.0, cosines)


class CosineScale(NamedTuple):
    """The two ends of the scale, as cosines."""

    chance: float
    same: float

    def likeness(self, cosines: Array) -> Array:
        """Cosines on the scale, 0 to 1."""
        chance, same = self
        return np.asarray(np.clip((cosines - chance) / (same - chance), 0.0, 1.0), dtype=np.float64)


class StepPair(NamedTuple):
    """Two steps that are taken for each other, by their places, and how alike they are."""

    first: int
    second: int
    likeness: float


def calibrate(embed: Embed) -> CosineScale:
    """The ends of the scale of an encoder. Raises ComputeError for one that tells no steps apart."""
    world = load_world()
    # Training goals alone: a scale from the held-out ones would know what is tested.
    goals = [graph for graph in world.goals.values() if not graph.held_out]
    scale = scale_of([[world.wordings[step][0] for step in graph.steps] for graph in goals], embed)
    if not scale.chance < scale.same:
        raise ComputeError("the encoder finds steps of one goal no more alike than steps of different goals.")
    return scale


def scale_of(goals: Sequence[Sequence[str]], embed: Embed) -> CosineScale:
    """The ends that the steps of these goals give; steps that any goal shares are steps of one goal."""
    sets = [set(goal) for goal in goals]
    steps = sorted(set().union(*sets))
    member = np.array([[step in goal for goal in sets] for step in steps], dtype=np.float64)
    vectors = embed(steps)
    # Each pair of different steps once.
    above = np.triu_indices(len(steps), k=1)
    cosines, together = (vectors @ vectors.T)[above], (member @ member.T)[above] > 0
    # A percentile and no greatest value: one odd pair would set the scale.
    ends = (float(np.percentile(cosines[chosen], PERCENTILE)) for chosen in (~together, together))
    return CosineScale(*(round(end, _DECIMALS) for end in ends))


class Likeness:
    """Compares texts under one encoder's scale; holds their vectors."""

    def __init__(self, embed: Embed, scale: CosineScale, texts: Sequence[str]) -> None:
        """Embed all `texts` that will be compared, each once and in sorted order."""
        self.scale = scale
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
        return self.scale.likeness(self.cosines(first, second))

    def pairs(self, first: Sequence[str], second: Sequence[str]) -> list[StepPair]:
        """The assignment of steps to each other that is most alike in all, in the order of `first`.

        Each step is in one pair at most; pairs that are alike by chance only are left out.
        """
        if not first or not second:
            return []
        cosines = self.cosines(first, second)
        # Likeness by chance earns nothing, so that the assignment does not pair what has no pair.
        gains = np.maximum(cosines - self.scale.chance, 0.0)
        places = np.linspace(0, 1, len(first))[:, None] - np.linspace(0, 1, len(second))[None, :]
        likeness = self.scale.likeness(cosines)
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
    # B[i, j] = max(B[i - 1, j], B[i, j - 1], B[i - 1, j - 1] + likeness[i, j]).
    best = np.zeros(likeness.shape[1] + 1)
    for row in likeness:
        matched = np.concatenate([[0.0], best[:-1] + row])
        best = np.maximum.accumulate(np.maximum(best, matched))
    return float(best[-1])
