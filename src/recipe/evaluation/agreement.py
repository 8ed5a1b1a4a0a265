"""How far a plan agrees with the one continuation that was annotated, where no task graph says what is valid.

A line of a plan is taken for the annotated step that is nearest to it by embedding, so that wordings do not count.

    F1         = 2 |plan and reference| / (|plan| + |reference|)      as multisets: saying a step twice gains nothing
    ordered F1 = 2 LCS(plan, reference) / (|plan| + |reference|)      the longest common subsequence

Neither is the paper's judge, and a right plan that differs from the reference counts as wrong.
"""

from collections import Counter
from collections.abc import Hashable, Sequence

from recipe.errors import InputError
from recipe.planning.admissible import AdmissibleActions
from recipe.planning.admissible import Embed as Embed


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
