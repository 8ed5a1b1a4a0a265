"""Which steps of a goal a line in free words may mean.

A line with the words of a step, up to case and punctuation, means that step. Any other line is compared with all
wordings of the goal's steps by the cosine of an encoder; below the threshold it means none. It may mean each step
within `MARGIN` of the nearest one, and the nearest one's twins, steps whose words are the same or nearly so. A line in
exact words means a twin only once the steps of its words are done: the second "flip the pancake" is "flip it again".
"""

import unicodedata
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from recipe.data.task_graphs import GoalGraph, TaskGraphs
from recipe.errors import ComputeError, InputError
from recipe.evaluation.agreement import Embed
from recipe.evaluation.readings import shown
from recipe.evaluation.task_graph_choice import Candidates, Meant

MARGIN = 0.02
"""How much less similar than the nearest one a step may be and still be meant."""
TWINS = 0.95
"""Least similarity of two steps that lines are not trusted to tell apart."""
FOREIGN = 0.85
"""Share of the steps of other goals that a threshold keeps out."""
THRESHOLDS = {"minilm": 0.6}
"""Least similarity of a line that means a step, by encoder: by the rule of `FOREIGN` on the graphs of CaptainCook4D."""
_DIGITS = 4
"""Decimals of a similarity; those after them depend on what else was encoded in the same batch."""

Vectors = NDArray[np.float32]


class Matcher:
    """One goal's steps with their wordings and vectors."""

    def __init__(self, graph: GoalGraph, vectors: Vectors, threshold: float, margin: float = MARGIN) -> None:
        self._steps = tuple(graph.wordings)
        self._vectors, self._threshold, self._margin = vectors, threshold, margin
        self._starts = np.cumsum([0, *(len(said) for said in graph.wordings.values())])[:-1]
        self._exact: dict[str, list[str]] = defaultdict(list)
        for step, said in graph.wordings.items():
            for text in dict.fromkeys(map(same_words, said)):
                self._exact[text].append(step)
        between = np.maximum.reduceat(self._by_step(vectors), self._starts, axis=0)
        self._twins = {
            step: tuple(Meant(self._steps[j], float(row[j])) for j in np.flatnonzero(row >= TWINS) if j != i)
            for i, (step, row) in enumerate(zip(self._steps, between, strict=True))
        }

    def exact(self, text: str) -> Candidates | None:
        """The steps whose words `text` has, with their twins; None for other words."""
        if steps := self._exact.get(same_words(text)):
            return Candidates(tuple(Meant(step, 1.0) for step in steps), self._twins_of(steps))
        return None

    def near(self, vector: Vectors) -> Candidates:
        """The steps that a text in other words may mean, by its vector float32 [d]."""
        row = self._by_step(vector[None])[0]
        best = float(row.max())
        if best < self._threshold:
            return Candidates()
        order = np.argsort(-row, kind="stable")
        near = [self._steps[j] for j in order if row[j] >= max(best - self._margin, self._threshold)]
        twins = {meant.step for meant in self._twins[near[0]]}
        return Candidates(
            tuple(Meant(self._steps[j], float(row[j])) for j in order if self._steps[j] in twins.union(near))
        )

    def _by_step(self, vectors: Vectors) -> Vectors:
        """Similarity of texts [n, d] to the nearest wording of each step [n, steps]."""
        found: Vectors = np.maximum.reduceat((vectors @ self._vectors.T).round(_DIGITS), self._starts, axis=1)
        return found

    def _twins_of(self, steps: list[str]) -> tuple[Meant, ...]:
        found = {
            meant.step: meant for step in reversed(steps) for meant in self._twins[step] if meant.step not in steps
        }
        return tuple(sorted(found.values(), key=lambda meant: -meant.similarity))


def same_words(text: str) -> str:
    """A text as exact words are compared: without case and punctuation, which does not tell wordings apart.

    >>> same_words("Flip the pancake!") == same_words("flip  the pancake")
    True
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = "".join(char if unicodedata.category(char)[0] in "LMN" else " " for char in folded).split()
    return " ".join(words or folded.split())


def wording_vectors(graphs: TaskGraphs, embed: Embed) -> list[Vectors]:
    """The vectors of each graph's wordings in order [wordings, d], of all graphs in one call."""
    texts = [[shown(text) for said in graph.wordings.values() for text in said] for graph in graphs]
    vectors = embedded(embed, [text for some in texts for text in some])
    return np.split(vectors, np.cumsum([len(some) for some in texts])[:-1])


def embedded(embed: Embed, texts: list[str]) -> Vectors:
    """Unit vectors of texts. Raises ComputeError where an encoder gives numbers that are none."""
    vectors = embed(texts)
    if not np.isfinite(vectors).all():
        raise ComputeError("the encoder gave a vector that is not finite; choose another encoder.")
    return vectors


def threshold_of(graphs: TaskGraphs, embed: Embed, share: float = FOREIGN) -> float:
    """The similarity that `share` of steps do not reach to the nearest step of a goal that is not theirs.

    Wordings that two goals share are left out: they are no foreign steps. Raises InputError for a single goal.
    """
    if len(graphs) < 2:
        raise InputError("a threshold cannot be found from one goal alone; give --threshold, for example 0.6.")
    vectors = wording_vectors(graphs, embed)
    words = [{same_words(text) for said in graph.wordings.values() for text in said} for graph in graphs]
    texts = [[same_words(text) for said in graph.wordings.values() for text in said] for graph in graphs]
    found = [
        similarity
        for i, own in enumerate(vectors)
        for j, others in enumerate(vectors)
        if i != j
        for text, similarity in zip(texts[i], (own @ others.T).max(axis=1), strict=True)
        if text not in words[j]
    ]
    if not found:
        raise InputError("all goals have the same steps, so that no threshold can be found; give --threshold.")
    return round(float(np.quantile(found, share)), 2)
