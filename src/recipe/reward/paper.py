"""The paper's reward (RECIPE, section 3.2): its equations, and the pool of narrations that they are applied to."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.backends import Backend
from recipe.alignment.reference import needleman_wunsch
from recipe.config import RewardConfig
from recipe.errors import ComputeError
from recipe.reward.embeddings import LruCache, StepEmbeddings
from recipe.reward.method import NarrationIndex, PooledAlignment
from recipe.reward.scorer import PromptGroup, Steps
from recipe.types import Hit, Reward

# The paper's reward (RECIPE, section 3.2, equations 7 and 8) as pure functions of two alignment scores.


class PaperReward(NamedTuple):
    """The parts that the two scores A(h) and A(h + c) determine."""

    baseline: float
    """A(h), or 0 without the history baseline."""
    rho: float
    gated: bool
    total: float


def paper_reward(aligned_history: float, aligned_full: float, config: RewardConfig) -> PaperReward:
    """R of a completion from A(h) and A(h + c), with the ablations of `config`.

    >>> paper_reward(0.2, 0.6, RewardConfig())
    PaperReward(baseline=0.2, rho=0.49999999999999994, gated=False, total=0.6)
    >>> paper_reward(0.2, 0.2, RewardConfig()).total
    -0.2
    """
    baseline = aligned_history if config.history_baseline else 0.0
    rho = relative_progress(baseline, aligned_full, config)
    gated = config.gate and rho < config.tau
    return PaperReward(baseline, rho, gated, penalty(rho, config) if gated else aligned_full)


def relative_progress(baseline: float, aligned_full: float, config: RewardConfig) -> float:
    """rho = (A(h + c) - A(h)) / max(1 - A(h), epsilon), or its numerator alone (equation 7, ablation)."""
    progress = aligned_full - baseline
    return progress / max(1.0 - baseline, config.epsilon) if config.relative_progress else progress


def penalty(rho: float, config: RewardConfig) -> float:
    """clip(alpha (rho - tau), -1, 0), the branch below the gate (equation 8)."""
    return min(max(config.alpha * (rho - config.tau), -1.0), 0.0)


# The paper's verification (RECIPE, section 3.2): a pool by A_mono, the best A_NW on it, the gated reward.


_POOLS_KEPT = 4_096
"""Pools in memory: a training set's histories return at every epoch."""


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


class PaperMethod:
    """The paper's reward; the goal is not read."""

    def __init__(
        self, corpus: NarrationIndex, config: RewardConfig, embeddings: StepEmbeddings, backend: Backend
    ) -> None:
        self._corpus, self._config = corpus, config
        self._embeddings, self._backend = embeddings, backend
        self._pools = LruCache[Steps, tuple[Hit, ...]](_POOLS_KEPT)

    def read(self, group: PromptGroup) -> list[str]:
        """The steps of h and of every plan."""
        return group.steps

    def find_pools(self, groups: Sequence[PromptGroup]) -> None:
        """Find and remember the pools of all groups in one scan of the corpus."""
        self._find([steps for group in groups for steps in self._pooled(group)])

    def rewards(self, group: PromptGroup) -> list[Reward]:
        """The reward of each plan of one prompt, in order; the G plans share the rows of h. Raises ComputeError."""
        h, plans = group.history, group.plans
        if self._config.pool == "history" and h:
            panel = self._panel(self._pool(h), h, plans)
            return [self._reward(panel, row, panel.highest(0), plan) for row, plan in enumerate(plans, start=1)]
        return [self._reward_alone(h, plan) for plan in plans]

    def alignments(self, goal: str, history: Steps, plan: Steps) -> list[PooledAlignment]:
        """Stage 2's path on each narration of the pool, also where the config scores without stage 2."""
        steps = history + plan
        pool = self._pool(history if self._config.pool == "history" and history else steps)
        found = [self._aligned(hit, steps) for hit in pool if steps]
        return sorted(found, key=lambda aligned: -aligned.score)

    def _aligned(self, hit: Hit, steps: Steps) -> PooledAlignment:
        W = self._embeddings.stacked(steps) @ self._corpus.embeddings(hit.narration).T
        alignment = needleman_wunsch(W, self._config.gap)
        matches = tuple((i, k) for i, k in alignment.path if i is not None and k is not None)
        return PooledAlignment(hit, alignment.score, matches, W)

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

    def _pooled(self, group: PromptGroup) -> list[Steps]:
        """The sequences that retrieve a pool each, for one prompt."""
        h = group.history
        if self._config.pool == "history" and h:
            return [h]
        return [*(h + plan for plan in group.plans), *([h] if self._config.pool == "own" else [])]

    def _pool(self, steps: Steps) -> tuple[Hit, ...]:
        """Stage 1, remembered; no steps have no pool."""
        return self._find([steps])[0] if steps else ()

    def _find(self, sequences: Sequence[Steps]) -> list[tuple[Hit, ...]]:
        """The same for many sequences; those that are not remembered are searched for in one scan of the corpus."""
        pools = {steps: self._pools.get(steps) for steps in sequences if steps}
        if missing := [steps for steps, pool in pools.items() if pool is None]:
            queries = [self._embeddings.stacked(steps) for steps in missing]
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
        W = np.concatenate(narrations) @ self._embeddings.stacked([*h, *(step for plan in plans for step in plan)]).T
        if not np.isfinite(W).all():
            raise ComputeError("Similarities hold NaN or infinity; check the corpus with: recipe corpus verify.")
        if not self._config.stage2:
            return _Panel(pool, self._backend.grouped_monotone_coverage(W, bounds, offsets))
        return _Panel(pool, self._backend.grouped_needleman_wunsch(W, bounds, offsets, self._config.gap).score)
