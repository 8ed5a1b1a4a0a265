"""Samples and plans as arrays of action ids, which is what measures are taken of."""

from collections.abc import Sequence

import numpy as np

from recipe.data.vpa import END, Sample, Taxonomy
from recipe.evaluation.vpa.measures import NONE, Ids


class ActionIds:
    """Numbers the actions of a taxonomy in its order, the end of a video last."""

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        self.names = (*taxonomy.actions, END)
        self._number = {name: number for number, name in enumerate(self.names)}

    def pool(self, goal: str | None) -> Ids:
        """The ids of the goal's card, or of every action but the end [actions]."""
        names = self.taxonomy.actions if goal is None else self.taxonomy.card(goal)
        return np.array([self._number[name] for name in names], dtype=np.int64)

    def references(self, samples: Sequence[Sample], width: int) -> Ids:
        """What was done next [samples, width], `NONE` after the end of a target."""
        return self.of([[self.taxonomy.action(step, one.goal) for step in one.target] for one in samples], width)

    def of(self, plans: Sequence[Sequence[str]], width: int) -> Ids:
        """The first `width` actions of each plan [plans, width]; `NONE` where a plan is shorter."""
        ids = np.full((len(plans), width), NONE, dtype=np.int64)
        for row, plan in enumerate(plans):
            numbers = [self._number[name] for name in plan[:width]]
            ids[row, : len(numbers)] = numbers
        return ids

    def named(self, row: Sequence[int]) -> tuple[str, ...]:
        """The actions of a row of ids, without `NONE`."""
        return tuple(self.names[number] for number in row if number != NONE)
