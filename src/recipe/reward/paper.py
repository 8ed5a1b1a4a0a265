"""The paper's reward (RECIPE, section 3.2): a pool by A_mono, the best A_NW on it, and the gate.

`examples/one_file.py` gives the same numbers, in one file of NumPy. Left to others here: stage 1 to the index
(`corpus/index.py`, exact and certified), both recursions to `alignment/` (`reference.py` is their specification),
embedding and failures to `reward/verifier.py` and `scorer.py`, narrations and vectors to `corpus/store.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.backends import Backend
from recipe.alignment.reference import needleman_wunsch
from recipe.config.reward import EPSILON, RewardConfig
from recipe.errors import ComputeError
from recipe.reward.embeddings import LruCache, NarrationIndex, Vectors, stacked
from recipe.reward.scorer import Method, PromptGroup, Steps
from recipe.types import Hit, PooledAlignment, Reward

# Pools in memory: a training set's histories return at every epoch.
_POOLS_KEPT = 4_096

Pool = tuple[Hit, ...]


class PaperReward(NamedTuple):
    """The parts that the two scores A(h) and A(h + c) determine."""

    baseline: float
    """A(h), or 0 without the history baseline."""
    rho: float
    gated: bool
    total: float


def paper_reward(aligned_history: float, aligned_full: float, config: RewardConfig) -> PaperReward:
    """R of a completion from A(h) and A(h + c) (equations 7 and 8), with the ablations of `config`.

        rho = (A(h + c) - A(h)) / max(1 - A(h), epsilon)
        R = A(h + c) where rho >= tau, else clip(alpha (rho - tau), -1, 0)

    >>> paper_reward(0.2, 0.6, RewardConfig())
    PaperReward(baseline=0.2, rho=0.49999999999999994, gated=False, total=0.6)
    >>> paper_reward(0.2, 0.2, RewardConfig()).total
    -0.2
    """
    # Without the baseline, and without relative progress, are rows of the ablation (paper, table of the reward).
    baseline = aligned_history if config.history_baseline else 0.0
    rho = aligned_full - baseline
    if config.relative_progress:
        # Relative to what is left to gain: the same rise is worth more where the history is aligned well already
        # (equation 7). Epsilon keeps a perfect history from dividing by 0.
        rho /= max(1.0 - baseline, EPSILON)
    # Equation 8: below tau the plan earns a penalty that grows with the shortfall, so that groups whose plans all fail
    # still differ.
    if config.gate == "on" and rho < config.tau:
        return PaperReward(baseline, rho, True, min(max(config.alpha * (rho - config.tau), -1.0), 0.0))
    return PaperReward(baseline, rho, False, rho if config.gate == "off" else aligned_full)


class PaperMethod(Method):
    """The paper's reward on a corpus; it does not read the goal."""

    def __init__(self, corpus: NarrationIndex, config: RewardConfig, backend: Backend) -> None:
        self._corpus, self._config, self._backend = corpus, config, backend
        self._kept = LruCache[Steps, Pool](_POOLS_KEPT)

    def rewards(self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]) -> list[list[Reward]]:
        """The rewards of each group's plans, after one scan of the corpus for all pools. Raises ComputeError."""
        pools = self._pools((steps for group in groups for steps in self._pooled(group)), vectors)
        return [self._group_rewards(group, pools, vectors) for group in groups]

    def alignments(self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]) -> list[list[PooledAlignment]]:
        """Stage 2's path of h and each group's only plan on the narrations of the pool, also without stage 2."""
        pooled = [self._pooled(group)[0] for group in groups]
        pools = self._pools(pooled, vectors)
        alignments = []
        for group, pool in zip(groups, (pools[steps] for steps in pooled), strict=True):
            aligned = list[PooledAlignment]()
            for hit in pool if group.steps else ():
                W = stacked(vectors, group.steps) @ self._corpus.embeddings(hit.narration).T
                alignment = needleman_wunsch(W, self._config.gap)
                matches = tuple((i, k) for i, k in alignment.path if i is not None and k is not None)
                aligned.append(PooledAlignment(hit, alignment.score, matches, W))
            alignments.append(sorted(aligned, key=lambda narration: -narration.score))
        return alignments

    def _pooled(self, group: PromptGroup) -> list[Steps]:
        """The sequences that retrieve a pool each: h for all plans, or one for each plan, and h too for `own`."""
        h = group.history
        # The paper leaves open which pool (SPEC, section 3): `history` is the reading by which the baseline does not
        # depend on the action, and a prompt's pool never changes.
        if self._config.pool == "history" and h:
            return [h]
        return [*(h + plan for plan in group.plans), *([h] if self._config.pool == "own" else [])]

    def _pools(self, sequences: Iterable[Steps], vectors: Mapping[str, Vectors]) -> dict[Steps, Pool]:
        """The pool of each sequence by stage 1; no steps have no pool."""
        # A goal alone retrieves nothing: the paper's verifier reads steps only.
        pools: dict[Steps, Pool] = {(): ()}
        missing = []
        for steps in dict.fromkeys(sequences):
            if (kept := self._kept.get(steps)) is not None:
                pools[steps] = kept
            elif steps:
                missing.append(steps)
        if missing:
            queries = [stacked(vectors, steps) for steps in missing]
            for steps, hits in zip(missing, self._corpus.search_batch(queries, self._config.pool_size), strict=True):
                pools[steps] = tuple(hits)
                self._kept.put(steps, tuple(hits))
        return pools

    def _group_rewards(
        self, group: PromptGroup, pools: Mapping[Steps, Pool], vectors: Mapping[str, Vectors]
    ) -> list[Reward]:
        h, plans = group.history, group.plans
        if self._config.pool == "history" and h:
            scores = self._scores(pools[h], h, plans, vectors)
            return [self._reward(pools[h], scores[row], scores[0], plan) for row, plan in enumerate(plans, start=1)]
        baseline = self._scores(pools[h], h, [], vectors)[0] if self._config.pool == "own" and h else None
        rewards = []
        for plan in plans:
            pool = pools[h + plan]
            own, full = self._scores(pool, h, [plan], vectors)
            rewards.append(self._reward(pool, full, own if baseline is None else baseline, plan))
        return rewards

    def _scores(
        self, pool: Pool, h: Steps, plans: Sequence[Steps], vectors: Mapping[str, Vectors]
    ) -> NDArray[np.float32]:
        """Scores of h (row 0) and of each h + c_g (row g) on the K narrations of a pool, [G + 1, K], by stage 2 or
        A_mono in its place; one dynamic programme, in which the plans share the rows of h.
        """
        # Row |h| of the table for h + c is the table for h, so that one pass gives A(h) and all A(h + c_g).
        bounds = np.cumsum([len(h), *map(len, plans)])
        if not pool or not bounds[-1]:
            return np.zeros((len(bounds), len(pool)), np.float32)
        narrations = [self._corpus.embeddings(hit.narration) for hit in pool]
        offsets = np.cumsum([0, *map(len, narrations)])
        W = np.concatenate(narrations) @ stacked(vectors, [*h, *(step for plan in plans for step in plan)]).T
        # A failure to compute is no reward: clipped, NaN would become a number.
        if not np.isfinite(W).all():
            raise ComputeError("Similarities hold NaN or infinity; check the corpus with: recipe corpus verify.")
        if not self._config.stage2:
            return self._backend.grouped_monotone_coverage(W, bounds, offsets)
        return self._backend.grouped_needleman_wunsch(W, bounds, offsets, self._config.gap).score

    def _reward(self, pool: Pool, full: NDArray[np.float32], own: NDArray[np.float32], plan: Steps) -> Reward:
        """From the scores [K] of h + c and of h; both scores are 0 where there is nothing to align."""
        # A(s, pool) is the score of the best narration, not a mean: one that tells the plan suffices.
        highest = float(full.max()) if len(full) else 0.0
        parts = paper_reward(float(own.max()) if len(own) else 0.0, highest, self._config)
        return Reward(
            total=parts.total,
            aligned_history=parts.baseline,
            aligned_full=highest,
            rho=parts.rho,
            gated=parts.gated,
            steps=len(plan),
            pool=pool,
            best_narration=pool[int(full.argmax())].narration if pool else None,
        )
