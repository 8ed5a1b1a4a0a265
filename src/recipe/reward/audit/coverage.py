"""Does the corpus know these procedures? Their steps against as many steps mixed from other goals.

The steps s of a whole procedure are matched with narrations one to one and in order, with free gaps (B) and calibrated
similarities (W), both those of the grounded reward (`recipe.reward.grounded`). The statistic is

    kappa(s) = (mean of B over the 10 narrations nearest to s - mean of B over 40 random ones) / |s|,

and a procedure's kappa is compared with those of 4 mixtures: as many steps, each from a procedure of another goal of
the same source. A corpus that knows single steps but no such procedure gives both alike.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np

from recipe.alignment import backends
from recipe.errors import ComputeError
from recipe.progress import SILENT, Progress
from recipe.reward.audit.corruptions import Embed
from recipe.reward.audit.selection import Performed, Selection, same_goal
from recipe.reward.embeddings import Vectors
from recipe.reward.grounded import calibrated
from recipe.reward.landscape import Landscape
from recipe.reward.method import NarrationIndex
from recipe.reward.prompts import Steps
from recipe.reward.relevance import centred

NEAR, FAR = 10, 40
"""Narrations that are nearest to a procedure, and random ones."""
MIXTURES = 4
"""Mixtures that a procedure is compared with."""
FEWEST = 8
"""Narrations of a corpus whose coverage can be told."""


class Covered(NamedTuple):
    """How far the corpus covers one procedure, and mixtures in its place."""

    performed: Performed
    kappa: float
    mixed: tuple[float, ...]
    """kappa of each mixture."""

    @property
    def wins(self) -> float:
        """Share of mixtures that are covered less than the procedure, those covered alike as halves."""
        return sum((self.kappa > one) + 0.5 * (self.kappa == one) for one in self.mixed) / len(self.mixed)


def corpus_coverage(
    corpus: NarrationIndex, selection: Selection, embed: Embed, seed: int = 0, progress: Progress = SILENT
) -> list[Covered]:
    """kappa of each audited procedure and of its mixtures; where a source has one goal only, there are no mixtures and
    its procedures are left out.

    Raises ComputeError for a corpus of fewer than 8 narrations: near and random ones cannot be told apart.
    """
    if len(corpus) < FEWEST:
        raise ComputeError(
            f"a corpus of {len(corpus)} narrations is too small to tell its coverage; {FEWEST} are needed."
        )
    mixtures = mixed_steps(selection, seed)
    if not mixtures:
        return []
    sequences = [steps for one, mixed in mixtures.items() for steps in (one.steps, *mixed)]
    distinct = sorted({step for steps in sequences for step in steps})
    vectors = dict(zip(distinct, embed(distinct), strict=True))
    matching = _Matching(corpus, np.mean(list(vectors.values()), axis=0), seed)
    queries = [np.stack([vectors[step] for step in steps]) for steps in sequences]
    found = corpus.search_batch(queries, min(NEAR, len(corpus) // 4))
    kappas = []
    with progress.task("Cover procedures", len(sequences)) as advance:
        for query, hits in zip(queries, found, strict=True):
            kappas.append(matching.kappa(query, [hit.narration for hit in hits]))
            advance(1)
    own = 1 + MIXTURES
    return [Covered(one, kappas[own * i], tuple(kappas[own * i + 1 : own * (i + 1)])) for i, one in enumerate(mixtures)]


def mixed_steps(selection: Selection, seed: int = 0) -> dict[Performed, list[Steps]]:
    """For each audited procedure 4 mixtures: as many steps, each of a procedure of its source with another goal.

    Procedures of a source with one goal only are left out.
    """
    by_goal: dict[tuple[str, str], list[Performed]] = {}
    for one in selection.usable:
        by_goal.setdefault((one.source, same_goal(one.goal)), []).append(one)
    others = {
        (source, goal): [
            one for key, videos in by_goal.items() if key[0] == source and key[1] != goal for one in videos
        ]
        for source, goal in by_goal
    }
    found = {}
    for one in selection.audited:
        random = Random("/".join((str(seed), one.source, one.video_id, "mixed")))
        if foreign := others[one.source, same_goal(one.goal)]:
            mixed = (tuple(random.choice(random.choice(foreign).steps) for _ in one.steps) for _ in range(MIXTURES))
            found[one] = list(mixed)
    return found


class _Matching:
    """kappa against one corpus."""

    def __init__(self, corpus: NarrationIndex, mean: Vectors, seed: int) -> None:
        self._corpus, self._mean = corpus, mean
        self._landscape = Landscape.of(corpus)
        self._backend = backends.load("auto")
        self._order = np.random.default_rng(seed).permutation(len(corpus))
        self._known: dict[int, Vectors] = {}

    def kappa(self, steps: Vectors, near: Sequence[int]) -> float:
        """Of steps [M, d] whose nearest narrations are `near`."""
        found = set(near)
        far = [int(index) for index in self._order[: FAR + len(near)] if int(index) not in found][:FAR]
        narrations = [self._segments(index) for index in (*near, *far)]
        x = centred(steps, self._mean)
        W = calibrated(np.concatenate(narrations) @ x.T, self._landscape.floors(x))
        offsets = np.cumsum([0, *map(len, narrations)])
        matched = self._backend.grouped_free_alignment(W, [0, len(steps)], offsets).matched[1]
        return float(matched[: len(near)].mean() - matched[len(near) :].mean()) / len(steps)

    def _segments(self, index: int) -> Vectors:
        """Centred segments of a narration; kept, because the random narrations are the same for all."""
        if index not in self._known:
            self._known[index] = centred(self._corpus.embeddings(index), self._landscape.mean)
        return self._known[index]
