"""How far a plan agrees with the one continuation that was annotated, where no task graph says what is valid.

A line of a plan is taken for the annotated step that is nearest to it by embedding, so that wordings do not count.

    F1         = 2 |plan and reference| / (|plan| + |reference|)      as multisets: saying a step twice gains nothing
    ordered F1 = 2 LCS(plan, reference) / (|plan| + |reference|)      the longest common subsequence

Neither is the paper's judge, and a right plan that differs from the reference counts as wrong.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from recipe.errors import InputError

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts to unit-norm float32 [n, d]."""
_AT_ONCE = 4096
"""Texts compared with the vocabulary in one product."""


class NearestStep:
    """Maps texts to the steps of a vocabulary, each text embedded once; ties go to the first in sorted order."""

    def __init__(self, embed: Embed, vocabulary: Sequence[str]) -> None:
        self._embed, self._names = embed, sorted(set(vocabulary))
        if not self._names:
            raise InputError("there are no annotated steps to compare plans with; give examples that hold some.")
        self._vectors = embed(self._names)
        self._known = {name: name for name in self._names}

    def __call__(self, texts: Sequence[str]) -> tuple[str, ...]:
        """The nearest annotated step of each text."""
        self.learn(texts)
        return tuple(self._known[text] for text in texts)

    def learn(self, texts: Sequence[str]) -> None:
        """Embed those of the texts that are new in one call, for many plans at once."""
        new = sorted({text for text in texts if text not in self._known})
        for start in range(0, len(new), _AT_ONCE):
            asked = new[start : start + _AT_ONCE]
            nearest = (self._embed(asked) @ self._vectors.T).argmax(axis=1)
            self._known.update(zip(asked, (self._names[index] for index in nearest), strict=True))


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
