"""Does the corpus know these procedures? Their steps against as many steps mixed from other goals.

The steps s of a whole procedure are compared with narrations by a one-to-one match in order,

    B(s, y) = max over i_1 < i_2 < ... and k_1 < k_2 < ... of sum_j W[i_j, k_j],
    W_ik = clip((<s_i, y_k> - b_i) / (1 - b_i), 0, 1),

with centred embeddings and b_i the 95% quantile of <s_i, y> over a sample of the corpus's segments. The statistic is

    kappa(s) = (mean of B over the 10 narrations nearest to s - mean of B over 40 random ones) / |s|,

and a procedure's kappa is compared with those of 4 mixtures: as many steps, each from a procedure of another goal of
the same source. A corpus that knows single steps but no such procedure gives both alike.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.errors import ComputeError
from recipe.progress import SILENT, Progress
from recipe.reward.audit.corruptions import Embed
from recipe.reward.audit.selection import Performed, Selection, same_goal
from recipe.reward.embeddings import Vectors
from recipe.reward.method import NarrationIndex
from recipe.reward.prompts import Steps
from recipe.reward.relevance import centred

NEAR, FAR = 10, 40
"""Narrations that are nearest to a procedure, and random ones."""
SAMPLE = 6_000
"""Segments that background similarities are taken over, at least where the corpus has as many."""
BACKGROUND = 0.95
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
    vectors = dict(
        zip(distinct := sorted({step for steps in sequences for step in steps}), embed(distinct), strict=True)
    )
    background = _Background(corpus, np.mean(list(vectors.values()), axis=0), seed)
    queries = [np.stack([vectors[step] for step in steps]) for steps in sequences]
    found = corpus.search_batch(queries, min(NEAR, len(corpus) // 4))
    kappas = []
    with progress.task("Cover procedures", len(sequences)) as advance:
        for query, hits in zip(queries, found, strict=True):
            kappas.append(background.kappa(query, [hit.narration for hit in hits]))
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


def in_order(W: NDArray[np.float32]) -> float:
    """B: the greatest sum of a one-to-one match of steps and segments in order; W [M, L] >= 0.

    >>> in_order(np.array([[0.0, 0.5, 0.0], [0.75, 0.0, 0.25]], np.float32))
    0.75
    """
    best = np.zeros(W.shape[1] + 1, dtype=np.float32)
    for row in W:
        matched = best.copy()
        matched[1:] = np.maximum(best[1:], best[:-1] + row)
        best = np.maximum.accumulate(matched)
    return float(best[-1])


class _Background:
    """What similarities and matches are by chance in this corpus."""

    def __init__(self, corpus: NarrationIndex, mean: NDArray[np.float32], seed: int) -> None:
        self._corpus, self._mean = corpus, mean
        self._order = np.random.default_rng(seed).permutation(len(corpus))
        sample = self._sample()
        self._centre = np.asarray(sample.mean(axis=0), dtype=np.float32)
        self._segments = centred(sample, self._centre)
        self._known: dict[int, Vectors] = {}

    def kappa(self, steps: Vectors, near: Sequence[int]) -> float:
        """Of steps [M, d] whose nearest narrations are `near`."""
        found = set(near)
        far = [int(index) for index in self._order[: FAR + len(near)] if int(index) not in found][:FAR]
        x = centred(steps, self._mean)
        b = np.quantile(x @ self._segments.T, BACKGROUND, axis=1)[:, None].astype(np.float32)

        def mean_match(narrations: Sequence[int]) -> float:
            return float(np.mean([in_order(self._calibrated(x, b, index)) for index in narrations]))

        return (mean_match(near) - mean_match(far)) / len(steps)

    def _calibrated(self, x: Vectors, b: NDArray[np.float32], index: int) -> NDArray[np.float32]:
        if index not in self._known:
            self._known[index] = centred(self._corpus.embeddings(index), self._centre)
        W = (x @ self._known[index].T - b) / (1 - b)
        return np.asarray(np.clip(W, 0.0, 1.0), dtype=np.float32)

    def _sample(self) -> Vectors:
        """Segments of narrations in random order, until there are enough."""
        found, count = [], 0
        for index in self._order:
            found.append(self._corpus.embeddings(int(index)))
            count += len(found[-1])
            if count >= SAMPLE:
                break
        return np.concatenate(found)
