"""R0, the reward that reads no corpus: steps that are near the goal and the history, and are new.

    R0(c) = |c|^(-1/2) sum_i nov_i max(0, (cos(c_i, g) + mean_{s in h} cos(c_i, s)) / 2)
    nov_i = 1 - clip((max over earlier s of h + c of cos(c_i, s) - 1/2) / (1/2), 0, 1)

It knows topic and repetition and nothing of order or content, so that any claim that a corpus verifies a plan must beat
it. Embeddings are centred: the mean of all instructions carries no information, and takes up much of a raw cosine.
"""

import numpy as np
from numpy.typing import NDArray

from recipe.reward.embeddings import Vectors

NoveltyScale = tuple[float, float]
"""Similarities to an earlier step from which on a step counts as partly a repeat, and as a repeat."""
NOVELTY: NoveltyScale = (0.5, 1.0)
"""Of R0."""


def centred(vectors: Vectors, mean: NDArray[np.float32]) -> Vectors:
    """Rows of float32 [n, d] minus `mean` [d], with unit norm again; a row that is the mean stays 0."""
    moved = vectors - mean
    norms = np.linalg.norm(moved, axis=1, keepdims=True)
    return np.asarray(moved / np.maximum(norms, 1e-12), dtype=np.float32)


def relevance(goal: Vectors | None, history: Vectors, plan: Vectors) -> float:
    """R0 of a plan: centred unit-norm goal [d] or none, history [m, d], plan [n, d]; 0 for an empty plan.

    >>> x, y = np.eye(2, dtype=np.float32)
    >>> relevance(x, x[None], np.stack([y, y]))
    0.0
    >>> relevance(x, y[None], x[None])
    0.5
    """
    return float(step_relevance(goal, history, plan).sum() / np.sqrt(max(len(plan), 1)))


def step_relevance(
    goal: Vectors | None, history: Vectors, plan: Vectors, scale: NoveltyScale = NOVELTY
) -> NDArray[np.float32]:
    """What each step of a plan is worth to R0, [n]; without a goal or a history, the other one alone counts."""
    return np.asarray(novelty(history, plan, scale) * closeness(goal, history, plan)[0], dtype=np.float32)


def closeness(goal: Vectors | None, history: Vectors, plan: Vectors) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """How near each step is to goal and history, and the part of it that is due to the goal, [n] each.

    The mean of both cosines, at least 0, divided between them by what each adds above 0; without a goal or a history,
    the other one alone counts.
    """
    nothing = np.zeros(len(plan), np.float32)
    to_goal = nothing if goal is None else plan @ goal
    to_history = (plan @ history.T).mean(axis=1) if len(history) else nothing
    known = max((goal is not None) + bool(len(history)), 1)
    near = np.maximum((to_goal + to_history) / known, 0.0)
    above = np.maximum(to_goal, 0.0), np.maximum(to_history, 0.0)
    return near, np.asarray(near * above[0] / np.maximum(above[0] + above[1], 1e-12), dtype=np.float32)


def novelty(history: Vectors, plan: Vectors, scale: NoveltyScale = NOVELTY) -> NDArray[np.float32]:
    """nov [n] of each step of the plan against all steps before it, 0 (a repeat) to 1 (new)."""
    similar = np.concatenate([history, plan]) @ plan.T
    m, n = len(history), len(plan)
    earlier = np.arange(m + n)[:, None] < m + np.arange(n)[None, :]
    closest = np.where(earlier, similar, -1.0).max(axis=0, initial=-1.0)
    return unlike(closest, scale)


def unlike(similar: NDArray[np.float32], scale: NoveltyScale) -> NDArray[np.float32]:
    """How new a step of this similarity is: 1 up to the first end of the scale, 0 from the second on."""
    return np.asarray(1.0 - np.clip((similar - scale[0]) / (scale[1] - scale[0]), 0.0, 1.0), dtype=np.float32)
