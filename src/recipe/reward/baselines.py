"""Rewards that read no corpus: R0 and the number of steps. They are controls, and no rewards to train for.

R0 rewards steps that are near the goal and the history, and are new:

    R0(c) = |c|^(-1/2) sum_i nov_i max(0, (cos(c_i, g) + mean_{s in h} cos(c_i, s)) / 2)
    nov_i = 1 - clip((max over earlier s of h + c of cos(c_i, s) - 1/2) / (1/2), 0, 1)

It knows topic and repetition and nothing of order or content, so that any claim that a corpus verifies a plan must beat
it. Embeddings are centred: the mean of all instructions carries no information, and takes up much of a raw cosine.
As verifiers (`verifier = "r0"` and `"length"`) the controls have the same corpus argument, JSON form and commands as
the others, so that a run differs from its control by one setting.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.backends import Backend
from recipe.config.reward import RewardConfig
from recipe.reward.embeddings import NarrationIndex, StepEmbeddings, Vectors, stacked
from recipe.reward.scorer import Method, PromptGroup, plain_reward
from recipe.types import Reward
from recipe.world.load import load_world

LONGEST_PLAN = 32
"""Steps of a plan from which on the control `length` is 1."""
NoveltyScale = tuple[float, float]
"""Similarities to an earlier step from which on a step counts as partly a repeat, and as a repeat."""
NOVELTY: NoveltyScale = (0.5, 1.0)
"""The scale of R0."""


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
    near, _ = closeness(None if goal is None else plan @ goal, plan @ history.T)
    worth = np.asarray(novelty(np.concatenate([history, plan]) @ plan.T, NOVELTY) * near, dtype=np.float32)
    # The root of |c|: a sum would pay every further step, a mean would pay one good step alone.
    return float(worth.sum() / np.sqrt(max(len(plan), 1)))


def closeness(
    to_goal: NDArray[np.float32] | None, to_history: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """How near each step is to goal and history, and the part of it that is due to the goal, [n] each.

    From its cosines with the goal, [n] or none, and with the history, [n, m]. The mean of both, at least 0, divided
    between them by what each adds above 0; without a goal or a history, the other one alone counts.
    """
    n, m = to_history.shape
    nothing = np.zeros(n, np.float32)
    by_goal = nothing if to_goal is None else to_goal
    by_history = to_history.mean(axis=1) if m else nothing
    known = max((to_goal is not None) + bool(m), 1)
    # A step far from the topic earns nothing, and takes nothing from others.
    near = np.maximum((by_goal + by_history) / known, 0.0)
    above = np.maximum(by_goal, 0.0), np.maximum(by_history, 0.0)
    return near, np.asarray(near * above[0] / np.maximum(above[0] + above[1], 1e-12), dtype=np.float32)


def novelty(similar: NDArray[np.float32], scale: NoveltyScale) -> NDArray[np.float32]:
    """nov [n] of each step of a plan against all steps before it, 0 (a repeat) to 1 (new).

    From the cosines [m + n, n] of history and plan with the plan.
    """
    n = similar.shape[1]
    m = len(similar) - n
    # Row i is a step of the history or of the plan before step j, column j.
    earlier = np.arange(m + n)[:, None] < m + np.arange(n)[None, :]
    closest = np.where(earlier, similar, -1.0).max(axis=0, initial=-1.0)
    return unlike(closest, scale)


def unlike(similar: NDArray[np.float32], scale: NoveltyScale) -> NDArray[np.float32]:
    """How new a step of this similarity is: 1 up to the first end of the scale, 0 from the second on."""
    return np.asarray(1.0 - np.clip((similar - scale[0]) / (scale[1] - scale[0]), 0.0, 1.0), dtype=np.float32)


class RelevanceScorer:
    """R0 of plans by `embed`, which gives unit-norm float32 [n, d]; `mean` [d] is what vectors are centred by."""

    def __init__(self, embed: Callable[[Sequence[str]], Vectors], mean: NDArray[np.float32]) -> None:
        self._embed, self._mean = embed, mean

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        """R0 of each plan; all goals and steps are embedded in one call. Raises as `embed`."""
        texts = list(dict.fromkeys(text for group in groups for text in relevance_texts(group)))
        vectors = dict(zip(texts, self._embed(texts), strict=True))
        return [_relevance_rewards(group, vectors, self._mean) for group in groups]


def relevance_texts(group: PromptGroup) -> list[str]:
    """The texts that R0 reads: the goal, where there is one, and all steps."""
    return [*([group.goal] if group.goal.strip() else []), *group.steps]


def _relevance_rewards(group: PromptGroup, vectors: Mapping[str, Vectors], mean: NDArray[np.float32]) -> list[Reward]:
    """R0 of each plan of a group, from the embedding [d] of each of its texts and their centre [d]."""
    texts = relevance_texts(group)
    if not texts:
        return [plain_reward(0.0, 0) for _ in group.plans]
    rows = centred(stacked(vectors, texts), mean)
    goal = rows[0] if group.goal.strip() else None
    steps = rows if goal is None else rows[1:]
    history, *plans = np.split(steps, np.cumsum([len(group.history), *map(len, group.plans)])[:-1])
    return [plain_reward(relevance(goal, history, plan), len(plan)) for plan in plans]


class RelevanceMethod(Method):
    """R0 as a verifier: of the corpus it takes the encoder only.

    Vectors are centred by the mean of the embedded world's instructions, so that corpora with one encoder give one
    reward.
    """

    def __init__(self, corpus: NarrationIndex, _config: RewardConfig, _backend: Backend) -> None:
        self._embeddings = StepEmbeddings(corpus.encoder)

    @cached_property
    def _mean(self) -> NDArray[np.float32]:
        # Not of the corpus: the control must not change with what it controls for.
        usual = [wordings[0] for wordings in load_world().wordings.values()]
        return np.asarray(self._embeddings.stacked(usual).mean(axis=0), dtype=np.float32)

    texts = staticmethod(relevance_texts)

    def rewards(self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]) -> list[list[Reward]]:
        """R0 of each group's plans."""
        return [_relevance_rewards(group, vectors, self._mean) for group in groups]


class LengthMethod(Method):
    """The number of steps as a verifier; it reads neither the corpus nor any text."""

    def __init__(self, _corpus: NarrationIndex, _config: RewardConfig, _backend: Backend) -> None:
        pass

    def rewards(self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]) -> list[list[Reward]]:
        """Of each plan the number of its steps as a share of 32, at most 1."""
        return [
            [plain_reward(min(len(plan) / LONGEST_PLAN, 1.0), len(plan)) for plan in group.plans] for group in groups
        ]
