"""What a verification method needs of a corpus, and what the verifier needs of a method."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from recipe.reward.embeddings import TextEncoder, Vectors
from recipe.reward.scorer import PromptGroup, Steps
from recipe.types import Hit, Narration, Reward


class NarrationIndex(Protocol):
    """What the verifier needs of a corpus."""

    @property
    def encoder(self) -> TextEncoder: ...

    @property
    def offsets(self) -> NDArray[np.int64]:
        """First segment of each narration in the corpus, and their number, [N + 1]."""
        ...

    def __len__(self) -> int: ...

    def narration(self, index: int) -> Narration: ...

    def embeddings(self, index: int) -> Vectors:
        """Unit-norm float32 [L, d]."""
        ...

    def search_batch(self, queries: Sequence[Vectors], k: int) -> list[list[Hit]]:
        """For each query [M, d] the k narrations of the highest A_mono, best first, ties in corpus order."""
        ...


@dataclass(frozen=True, slots=True)
class PooledAlignment:
    """How the steps of h + c align with one narration of the pool."""

    hit: Hit
    score: float
    """What this narration says of h + c, by the method's own alignment."""
    matches: tuple[tuple[int, int], ...]
    """(step, segment), both from 0 and both rising; a step that is not here is unmatched."""
    similarities: NDArray[np.float32]
    """[M steps, L segments], as the method sees them."""


class Method(Protocol):
    """One way of verifying: pools of narrations for prompts, and a reward for each continuation."""

    def read(self, group: PromptGroup) -> list[str]:
        """The texts of a group that the method embeds."""
        ...

    def find_pools(self, groups: Sequence[PromptGroup]) -> None:
        """Find and remember the pools of all groups in one scan of the corpus; their steps are encoded."""

    def rewards(self, group: PromptGroup) -> list[Reward]:
        """The reward of each plan of one prompt, in order. Raises ComputeError."""
        ...

    def alignments(self, goal: str, history: Steps, plan: Steps) -> list[PooledAlignment]:
        """How h + c aligns with each narration of its pool, the best first; nothing to align gives none."""
        ...
