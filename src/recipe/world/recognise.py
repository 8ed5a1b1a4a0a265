"""From free text back to step ids, without an encoder.

A text that is a known wording, up to case and punctuation, is that step. Otherwise its words are compared
with each step's: precision is the share of the text's word weight that occurs in any wording of the step,
recall the largest share of one wording's word weight that occurs in the text, and their harmonic mean must
reach a threshold and be the unique best. A word weighs log((1 + n) / m) where m of the n steps use it. Mixing
precision over all wordings with recall of one keeps blends of two wordings of the same step, as a small
language model writes them, but not blends of two steps.
"""

import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import lru_cache

THRESHOLD = 0.7
"""Least similarity of a text that is no known wording."""
OWN_BONUS = 0.05
"""How much less similar a step of the goal at hand may be than a foreign one and still be preferred."""
MARGIN = 0.02
"""A best step that leads by less is ambiguous."""

_LEAST = THRESHOLD / (2 - THRESHOLD)
"""No recall lifts a lower precision to the threshold."""

_WORD = re.compile(r"[a-z0-9']+")


def words(text: str) -> tuple[str, ...]:
    """Lower-case words without punctuation.

    >>> words("Boil the water, please.")
    ('boil', 'the', 'water', 'please')
    """
    return tuple(_WORD.findall(text.lower().replace("’", "'")))


class Recogniser:
    """Maps texts to step ids; answers are remembered, because sampled plans repeat themselves."""

    def __init__(self, wordings: Mapping[str, tuple[str, ...]]) -> None:
        self._exact = {words(wording): step for step, known in wordings.items() for wording in known}
        self._wordings = {step: [frozenset(words(text)) for text in known] for step, known in wordings.items()}
        self._vocabulary = {step: frozenset[str]().union(*sets) for step, sets in self._wordings.items()}
        self._users: dict[str, set[str]] = defaultdict(set)
        for step, vocabulary in self._vocabulary.items():
            for word in vocabulary:
                self._users[word].add(step)
        count = len(wordings)
        self._rare = math.log(1 + count)
        self._weight = {word: math.log((1 + count) / len(steps)) for word, steps in self._users.items()}
        self._nearest = lru_cache(maxsize=100_000)(self._similarities)

    def step(self, text: str, own: Collection[str] = ()) -> str | None:
        """The step that `text` says, or None; steps in `own`, those of the goal at hand, are preferred."""
        said = words(text)
        if said in self._exact:
            return self._exact[said]
        near = ((score + OWN_BONUS * (step in own), step) for step, score in self._nearest(said))
        ranked = sorted(near, reverse=True)
        if not ranked or (len(ranked) > 1 and ranked[0][0] - ranked[1][0] < MARGIN):
            return None
        return ranked[0][1]

    def _similarities(self, said: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
        """Steps at least as similar as the threshold, with their similarity."""
        text = frozenset(said)
        total = self._mass(text)
        shared: dict[str, float] = defaultdict(float)
        for word in text:
            for step in self._users.get(word, ()):
                shared[step] += self._weight[word]
        likely = ((step, mass / total) for step, mass in shared.items() if mass >= _LEAST * total)
        scored = ((step, self._similarity(text, step, precision)) for step, precision in likely)
        return tuple((step, score) for step, score in scored if score >= THRESHOLD)

    def _similarity(self, text: frozenset[str], step: str, precision: float) -> float:
        recall = max(self._mass(text & wording) / self._mass(wording) for wording in self._wordings[step])
        return 2 * precision * recall / (precision + recall)

    def _mass(self, some: frozenset[str]) -> float:
        return sum(self._weight.get(word, self._rare) for word in some)
