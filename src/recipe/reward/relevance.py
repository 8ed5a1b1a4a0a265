"""R0, the reward that reads no corpus: steps that are near the goal and the history, and are new.

    R0(c) = |c|^(-1/2) sum_i nov_i max(0, (cos(c_i, g) + mean_{s in h} cos(c_i, s)) / 2)
    nov_i = 1 - clip((max over earlier s of h + c of cos(c_i, s) - 1/2) / (1/2), 0, 1)

It knows topic and repetition and nothing of order or content, so that any claim that a corpus verifies a plan must beat
it. Embeddings are centred: the mean of all instructions carries no information, and takes up much of a raw cosine.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from recipe.reward.embeddings import Vectors
from recipe.reward.scorer import as_steps
from recipe.types import Reward

Said = tuple[float, float]
"""Similarities to an earlier step from which on a step counts as partly said, and as said."""
SAID: Said = (0.5, 1.0)
"""Of R0."""


def centred(vectors: Vectors, mean: NDArray[np.float32]) -> Vectors:
    """Rows of float32 [n, d] minus `mean` [d], with unit norm again; a row that is the mean stays 0."""
    moved = vectors - mean
    norms = np.linalg.norm(moved, axis=1, keepdims=True)
    return np.asarray(moved / np.maximum(norms, 1e-12), dtype=np.float32)


def relevance(goal: Vectors, history: Vectors, plan: Vectors) -> float:
    """R0 of a plan: centred unit-norm goal [d], history [m, d], plan [n, d]; 0 for an empty plan.

    >>> x, y = np.eye(2, dtype=np.float32)
    >>> relevance(x, x[None], np.stack([y, y]))
    0.0
    >>> relevance(x, y[None], x[None])
    0.5
    """
    return float(step_relevance(goal, history, plan).sum() / np.sqrt(max(len(plan), 1)))


def step_relevance(goal: Vectors | None, history: Vectors, plan: Vectors, said: Said = SAID) -> NDArray[np.float32]:
    """What each step of a plan is worth to R0, [n]; without a goal or a history, the other one alone counts."""
    near = [] if goal is None else [plan @ goal]
    if len(history):
        near.append((plan @ history.T).mean(axis=1))
    if not near:
        return np.zeros(len(plan), np.float32)
    return np.asarray(novelty(history, plan, said) * np.maximum(sum(near) / len(near), 0.0), dtype=np.float32)


def novelty(history: Vectors, plan: Vectors, said: Said = SAID) -> NDArray[np.float32]:
    """nov [n] of each step of the plan against all that is said before it, 0 (said) to 1 (new)."""
    similar = np.concatenate([history, plan]) @ plan.T
    m, n = len(history), len(plan)
    earlier = np.arange(m + n)[:, None] < m + np.arange(n)[None, :]
    closest = np.where(earlier, similar, -1.0).max(axis=0, initial=-1.0)
    known = np.clip((closest - said[0]) / (said[1] - said[0]), 0.0, 1.0)
    return np.asarray(1.0 - known, dtype=np.float32)


class RelevanceScorer:
    """R0 as a scorer: the control that stands beside every verifier.

    `embed` gives unit-norm float32 [n, d], for example `Verifier.embed`; `mean` [d] is what vectors are centred by.
    """

    def __init__(self, embed: Callable[[Sequence[str]], Vectors], mean: NDArray[np.float32]) -> None:
        self._embed, self._mean = embed, mean

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        """R0 of each continuation of one prompt. Raises as `embed`."""
        h, plans = as_steps(history), [as_steps(plan) for plan in continuations]
        vectors = centred(self._embed([goal, *h, *(step for plan in plans for step in plan)]), self._mean)
        own = np.split(vectors, np.cumsum([1 + len(h), *map(len, plans)]))
        return [self._reward(vectors[0], own[0][1:], steps) for steps in own[1:-1]]

    @staticmethod
    def _reward(goal: Vectors, history: Vectors, plan: Vectors) -> Reward:
        return Reward(
            total=relevance(goal, history, plan),
            aligned_history=0.0,
            aligned_full=0.0,
            rho=0.0,
            gated=False,
            steps=len(plan),
            pool=(),
            best_narration=None,
        )
