"""Rewards that read no corpus: R0 and the number of steps. They are controls, and no rewards to train for.

What a verifier gains over them is what it verifies. As verifiers (`verifier = "r0"` and `"length"`) they have the same
corpus argument, wire form and commands as the others, so that a run differs from its control by one setting.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.backends import Backend
from recipe.config import RewardConfig
from recipe.reward.embeddings import NarrationIndex, StepEmbeddings, Vectors, stacked
from recipe.reward.relevance import centred, relevance
from recipe.reward.scorer import Outcome, PromptGroup, plain_reward, try_groups
from recipe.types import PooledAlignment, Reward
from recipe.world.load import load_world

LONGEST = 32
"""Steps of a plan from which on the control `length` is 1."""


class RelevanceScorer:
    """R0 of plans by `embed`, which gives unit-norm float32 [n, d]; `mean` [d] is what vectors are centred by."""

    def __init__(self, embed: Callable[[Sequence[str]], Vectors], mean: NDArray[np.float32]) -> None:
        self._embed, self._mean = embed, mean

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        """R0 of each plan; all goals and steps are embedded in one call."""
        return try_groups(groups, self._rewards)

    def _rewards(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        texts = list(dict.fromkeys(text for group in groups for text in relevance_texts(group)))
        vectors = dict(zip(texts, self._embed(texts), strict=True))
        return [relevance_rewards(group, vectors, self._mean) for group in groups]


def relevance_texts(group: PromptGroup) -> list[str]:
    """The texts that R0 reads: the goal, where there is one, and all steps."""
    return [*([group.goal] if group.goal.strip() else []), *group.steps]


def relevance_rewards(group: PromptGroup, vectors: Mapping[str, Vectors], mean: NDArray[np.float32]) -> list[Reward]:
    """R0 of each plan of a group, from the embedding [d] of each of its texts and their centre [d]."""
    texts = relevance_texts(group)
    if not texts:
        return [plain_reward(0.0, 0) for _ in group.plans]
    rows = centred(stacked(vectors, texts), mean)
    goal = rows[0] if group.goal.strip() else None
    steps = rows if goal is None else rows[1:]
    history, *plans = np.split(steps, np.cumsum([len(group.history), *map(len, group.plans)])[:-1])
    return [plain_reward(relevance(goal, history, plan), len(plan)) for plan in plans]


class RelevanceMethod:
    """R0 as a verifier: of the corpus it takes the encoder only.

    Vectors are centred by the mean of the embedded world's instructions, so that corpora with one encoder give one
    reward.
    """

    def __init__(self, corpus: NarrationIndex, _config: RewardConfig, _backend: Backend) -> None:
        self._embeddings = StepEmbeddings(corpus.encoder)

    @cached_property
    def _mean(self) -> NDArray[np.float32]:
        usual = [wordings[0] for wordings in load_world().wordings.values()]
        return np.asarray(self._embeddings.stacked(usual).mean(axis=0), dtype=np.float32)

    def texts(self, group: PromptGroup) -> list[str]:
        """The goal, where there is one, and all steps."""
        return relevance_texts(group)

    def rewards(self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]) -> list[list[Reward]]:
        """R0 of each group's plans."""
        return [relevance_rewards(group, vectors, self._mean) for group in groups]

    def alignments(self, groups: Sequence[PromptGroup], _vectors: Mapping[str, Vectors]) -> list[list[PooledAlignment]]:
        """None: nothing is aligned."""
        return [[] for _ in groups]


def length_reward(steps: int) -> float:
    """The control `length` of a plan of `steps` steps: their share of 32, at most 1.

    >>> length_reward(8), length_reward(40)
    (0.25, 1.0)
    """
    return min(steps / LONGEST, 1.0)


class LengthMethod:
    """The number of steps as a verifier; it reads neither the corpus nor any text."""

    def __init__(self, _corpus: NarrationIndex, _config: RewardConfig, _backend: Backend) -> None:
        pass

    def texts(self, group: PromptGroup) -> list[str]:
        """The steps, of which a blank one is an error as for every verifier."""
        return group.steps

    def rewards(self, groups: Sequence[PromptGroup], _vectors: Mapping[str, Vectors]) -> list[list[Reward]]:
        """`length_reward` of each group's plans."""
        return [[plain_reward(length_reward(len(plan)), len(plan)) for plan in group.plans] for group in groups]

    def alignments(self, groups: Sequence[PromptGroup], _vectors: Mapping[str, Vectors]) -> list[list[PooledAlignment]]:
        """None: nothing is aligned."""
        return [[] for _ in groups]
