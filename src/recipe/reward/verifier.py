"""The verifier: the one place where a corpus meets alignment (paper, section 3.2)."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from recipe.alignment import backends
from recipe.config import RewardConfig
from recipe.errors import ComputeError, InputError
from recipe.reward.cache import LruCache
from recipe.reward.embeddings import StepEmbeddings, TextEncoder, Vectors
from recipe.reward.explain import Explanation, ground_steps
from recipe.reward.paper import paper_reward
from recipe.reward.prompts import PromptGroup, Steps
from recipe.types import Hit, Narration, Reward

_STEPS_KEPT = 32_768
"""Step embeddings in memory: 128 MiB at 1024 dimensions."""
_POOLS_KEPT = 4_096
"""Pools in memory: a training set's histories return at every epoch."""
_PAPER = RewardConfig()


class NarrationIndex(Protocol):
    """What the verifier needs of a corpus."""

    @property
    def encoder(self) -> TextEncoder: ...

    def narration(self, index: int) -> Narration: ...

    def embeddings(self, index: int) -> Vectors:
        """Unit-norm float32 [L, d]."""
        ...

    def search_batch(self, queries: Sequence[Vectors], k: int) -> list[list[Hit]]:
        """For each query [M, d] the k narrations of the highest A_mono, best first, ties in corpus order."""
        ...


class _Panel(NamedTuple):
    """Scores of h (row 0) and of each h + c_g (row g) on the narrations of a pool."""

    pool: tuple[Hit, ...]
    scores: NDArray[np.float32]
    """[G + 1, K]."""

    def highest(self, row: int) -> float:
        """A(s, pool), 0 where there is nothing to align."""
        return float(self.scores[row].max()) if self.pool else 0.0

    def best(self, row: int) -> int | None:
        """The narration that attains A(s, pool); the first of equals."""
        return self.pool[int(self.scores[row].argmax())].narration if self.pool else None


class Verifier:
    """Scores continuations by how well they align with the corpus; safe to share between threads.

    `backend` names the alignment backend (`recipe.alignment.backends`).
    """

    def __init__(self, corpus: NarrationIndex, config: RewardConfig = _PAPER, *, backend: str = "auto") -> None:
        self._corpus = corpus
        self._config = config
        self._backend = backends.load(backend)
        self._embeddings = StepEmbeddings(corpus.encoder, _STEPS_KEPT)
        self._pools = LruCache[Steps, tuple[Hit, ...]](_POOLS_KEPT)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit-norm float32 [n, d] of steps, n >= 1; new texts are encoded in one call and kept.

        Raises InputError for a blank step, ComputeError where the encoder fails.
        """
        return np.stack(self._embeddings(texts))

    def prepare(self, groups: Sequence[PromptGroup]) -> None:
        """Encode all steps of these histories and plans, and find all their pools, each in one call.

        Scoring the prompts one by one then finds both remembered. Raises as `score`.
        """
        batch = [(_steps(group.history), [_steps(plan) for plan in group.plans]) for group in groups]
        if texts := [step for h, plans in batch for steps in (h, *plans) for step in steps]:
            self._embeddings(texts)
        self._find_pools([steps for h, plans in batch for steps in self._pooled(h, plans)])

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        """The reward of each continuation of one prompt, in order; the G continuations share the rows of h.

        The paper's reward does not read the goal. Raises InputError for a blank step, ComputeError for a score
        that cannot be computed.
        """
        h, plans = _steps(history), [_steps(continuation) for continuation in continuations]
        self.prepare([PromptGroup(goal, h, plans)])
        if self._config.pool == "history" and h:
            panel = self._panel(self._pool(h), h, plans)
            return [self._reward(panel, row, panel.highest(0), plan) for row, plan in enumerate(plans, start=1)]
        return [self._reward_alone(h, plan) for plan in plans]

    def explain(self, history: Sequence[str], continuation: Sequence[str], goal: str) -> Explanation:
        """The reward of one continuation and the segments of the best narration that ground its steps.

        The grounding is stage 2's path, also where the config scores without stage 2. Raises as `score`.
        """
        [reward] = self.score(history, [continuation], goal)
        if reward.best_narration is None:
            return Explanation(reward, None, ())
        h, plan = _steps(history), _steps(continuation)
        narration = self._corpus.narration(reward.best_narration)
        W = self.embed([*h, *plan]) @ self._corpus.embeddings(reward.best_narration).T
        return Explanation(reward, narration, ground_steps(h, plan, narration, W, self._config.gap))

    def _reward_alone(self, h: Steps, plan: Steps) -> Reward:
        """The reward where a continuation has its own pool: `full`, `own`, and wherever h is empty."""
        panel = self._panel(self._pool(h + plan), h, [plan])
        if self._config.pool == "own" and h:
            return self._reward(panel, 1, self._panel(self._pool(h), h, []).highest(0), plan)
        return self._reward(panel, 1, panel.highest(0), plan)

    def _reward(self, panel: _Panel, row: int, aligned_history: float, plan: Steps) -> Reward:
        full = panel.highest(row)
        parts = paper_reward(aligned_history, full, self._config)
        return Reward(
            total=parts.total,
            aligned_history=parts.baseline,
            aligned_full=full,
            rho=parts.rho,
            gated=parts.gated,
            steps=len(plan),
            pool=panel.pool,
            best_narration=panel.best(row),
        )

    def _pooled(self, h: Steps, plans: Sequence[Steps]) -> list[Steps]:
        """The sequences that retrieve a pool each, for one prompt."""
        if self._config.pool == "history" and h:
            return [h]
        return [*(h + plan for plan in plans), *([h] if self._config.pool == "own" else [])]

    def _pool(self, steps: Steps) -> tuple[Hit, ...]:
        """Stage 1, remembered; no steps have no pool."""
        return self._find_pools([steps])[0] if steps else ()

    def _find_pools(self, sequences: Sequence[Steps]) -> list[tuple[Hit, ...]]:
        """The same for many sequences; those that are not remembered are searched for in one scan of the corpus."""
        pools = {steps: self._pools.get(steps) for steps in sequences if steps}
        if missing := [steps for steps, pool in pools.items() if pool is None]:
            queries = [self.embed(steps) for steps in missing]
            for steps, hits in zip(missing, self._corpus.search_batch(queries, self._config.pool_size), strict=True):
                pools[steps] = tuple(hits)
                self._pools.put(steps, tuple(hits))
        return [pools.get(steps) or () for steps in sequences]

    def _panel(self, pool: tuple[Hit, ...], h: Steps, plans: Sequence[Steps]) -> _Panel:
        """Stage 2, or A_mono in its place, of all sequences on all narrations in one dynamic programme."""
        bounds = np.cumsum([len(h), *map(len, plans)])
        if not pool or not bounds[-1]:
            return _Panel(pool, np.zeros((len(bounds), len(pool)), np.float32))
        narrations = [self._corpus.embeddings(hit.narration) for hit in pool]
        offsets = np.cumsum([0, *map(len, narrations)])
        W = np.concatenate(narrations) @ self.embed([*h, *(step for plan in plans for step in plan)]).T
        if not np.isfinite(W).all():
            raise ComputeError("Similarities hold NaN or infinity; check the corpus with: recipe corpus verify.")
        if not self._config.stage2:
            return _Panel(pool, self._backend.grouped_monotone_coverage(W, bounds, offsets))
        return _Panel(pool, self._backend.grouped_needleman_wunsch(W, bounds, offsets, self._config.gap).score)


def _steps(texts: Sequence[str]) -> Steps:
    if isinstance(texts, str):
        raise InputError(f"Steps are a list of texts, not one text ({texts[:40]!r}); split it into steps.")
    return tuple(texts)
