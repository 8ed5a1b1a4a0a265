"""Verification by contrast: narrations of the activity against narrations of anything else (docs/verifier.md)."""

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.backends import Backend
from recipe.alignment.ragged import Float32, Int64
from recipe.alignment.reference import free_matching
from recipe.config import RewardConfig
from recipe.errors import ComputeError
from recipe.reward.cache import LruCache
from recipe.reward.embeddings import StepEmbeddings, Vectors
from recipe.reward.grounded import Gains, calibrated, gains, grounded_reward, order_agreement, weights
from recipe.reward.landscape import Landscape
from recipe.reward.method import NarrationIndex, PooledAlignment
from recipe.reward.pools import Judges, choose_judges
from recipe.reward.prompts import PromptGroup, Steps
from recipe.reward.relevance import Said, centred, step_relevance
from recipe.types import Hit, Reward

_JUDGES_KEPT = 4_096
"""Prompts whose judges are remembered: a training set's prompts return at every epoch."""
_FLOORS_KEPT = 32_768
_SEGMENTS_KEPT = 131_072
"""Segments in memory as float32, 192 MiB at 384 dimensions: prompts with one goal share most of their judges."""
_SAID: Said = (0.6, 0.85)
"""A step counts as said sooner than in R0: other words for a step that is done are no progress."""

Prompt = tuple[str, Steps]


class _Group(NamedTuple):
    """The texts of a group, each once, as the corpus sees them."""

    goal: Vectors | None
    """[d]; None where the prompt has no goal."""
    vectors: Vectors
    """[C, d], centred."""
    floors: Float32
    """[C]."""
    rows: list[list[int]]
    """Columns of h, then of each plan."""


class _Panel(NamedTuple):
    """What both sets of narrations say of a group; row 0 is h, row g is h + c_g."""

    pool: Gains
    background: Gains
    matched: NDArray[np.float64]
    """B with each narration of the pool, [G + 1, P]."""
    said: NDArray[np.float64]
    """N of the group's columns over the pool, [C, C]."""


class GroundedMethod:
    """The grounded reward; its judges depend on goal and history only, so that all plans of a prompt share them."""

    def __init__(
        self, corpus: NarrationIndex, config: RewardConfig, embeddings: StepEmbeddings, backend: Backend
    ) -> None:
        self._corpus, self._config = corpus, config.grounded
        self._embeddings, self._backend = embeddings, backend
        self._judges = LruCache[Prompt, Judges](_JUDGES_KEPT)
        self._hits = LruCache[Steps, list[Hit]](_JUDGES_KEPT)
        self._floors = LruCache[str, np.float32](_FLOORS_KEPT)
        mean_length = max(int(corpus.offsets[-1]) // max(len(corpus), 1), 1)
        self._segments = LruCache[int, Vectors](_SEGMENTS_KEPT // mean_length)

    @cached_property
    def _landscape(self) -> Landscape:
        return Landscape.of(self._corpus)

    def read(self, group: PromptGroup) -> list[str]:
        """The goal, where there is one, and the steps of h and of every plan."""
        return [*([group.goal] if group.goal.strip() else []), *group.steps]

    def find_pools(self, groups: Sequence[PromptGroup]) -> None:
        """Find and remember the judges of all prompts in one scan of the corpus."""
        prompts = dict.fromkeys((group.goal, group.history) for group in groups)
        missing = [prompt for prompt in prompts if _asked(prompt) and self._judges.get(prompt) is None]
        found = self._search(list(dict.fromkeys(steps for prompt in missing for steps in _asked(prompt))))
        for prompt in missing:
            hits = [found[steps] for steps in _asked(prompt)]
            self._judges.put(prompt, choose_judges(hits, self._landscape.lengths, self._config, _seed(prompt)))

    def _search(self, queries: Sequence[Steps]) -> dict[Steps, list[Hit]]:
        """Stage 1 of goals and histories; a goal's is remembered for the next history."""
        found = {steps: hits for steps in queries if (hits := self._hits.get(steps)) is not None}
        if missing := [steps for steps in queries if steps not in found]:
            vectors = [self._embeddings.stacked(steps) for steps in missing]
            hits_of = self._corpus.search_batch(vectors, self._config.candidates)
            for steps, hits in zip(missing, hits_of, strict=True):
                found[steps] = hits
                self._hits.put(steps, hits)
        return found

    def rewards(self, group: PromptGroup) -> list[Reward]:
        """The reward of each plan of one prompt, in order. Raises ComputeError."""
        judges = self._judges_of(group.goal, group.history)
        texts = self._group(group)
        panel = self._panel(judges, texts)
        return [self._reward(judges, panel, texts, row) for row in range(1, len(texts.rows))]

    def alignments(self, goal: str, history: Steps, plan: Steps) -> list[PooledAlignment]:
        """The best one-to-one matching of h + c with each narration of the pool, W in place of raw similarities."""
        steps = history + plan
        if not steps:
            return []
        texts = self._group(PromptGroup(goal, history, [plan]))
        columns = [column for row in texts.rows for column in row]
        found = []
        for hit in self._judges_of(goal, history).pool:
            W = self._similarities([hit.narration], texts).W[:, columns].T
            matching = free_matching(W)
            matches = tuple((i, k) for i, k in matching.path if i is not None and k is not None)
            found.append(PooledAlignment(hit, matching.score / len(steps), matches, W))
        return sorted(found, key=lambda aligned: -aligned.score)

    def _judges_of(self, goal: str, history: Steps) -> Judges:
        if (judges := self._judges.get((goal, history))) is None:
            self.find_pools([PromptGroup(goal, history, [])])
            judges = self._judges.get((goal, history))
        return judges or Judges((), ())

    def _group(self, group: PromptGroup) -> _Group:
        texts = list(dict.fromkeys(self.read(group)))
        place = {text: column for column, text in enumerate(texts)}
        rows = [[place[step] for step in steps] for steps in (group.history, *group.plans)]
        if not texts:
            return _Group(None, np.zeros((0, 0), np.float32), np.zeros(0, np.float32), rows)
        X = centred(self._embeddings.stacked(texts), self._landscape.mean)
        return _Group(X[0] if group.goal.strip() else None, X, self._floors_of(texts, X), rows)

    def _floors_of(self, texts: Sequence[str], X: Vectors) -> Float32:
        """b of each text [C], remembered: a policy writes the same steps over and over."""
        known = {text: floor for text in texts if (floor := self._floors.get(text)) is not None}
        if new := [column for column, text in enumerate(texts) if text not in known]:
            for column, floor in zip(new, self._landscape.floors(X[new]), strict=True):
                known[texts[column]] = floor
                self._floors.put(texts[column], floor)
        return np.array([known[text] for text in texts], np.float32)

    def _panel(self, judges: Judges, texts: _Group) -> _Panel:
        bounds = np.cumsum([len(row) for row in texts.rows])
        columns = [column for row in texts.rows for column in row]
        W, offsets = self._similarities([hit.narration for hit in judges.pool], texts)
        pool = self._backend.grouped_free_alignment(W[:, columns], bounds, offsets)
        said = self._backend.precedence(W, offsets)
        W, offsets = self._similarities(judges.background, texts)
        background = self._backend.grouped_free_alignment(W[:, columns], bounds, offsets)
        others = background.matched.shape[1]
        alike = np.full(others, 1.0 / max(others, 1))
        return _Panel(gains(pool, weights(pool)), gains(background, alike), pool.matched, said)

    def _similarities(self, narrations: Sequence[int], texts: _Group) -> "_Similarities":
        vectors = [self._vectors(number) for number in narrations]
        offsets = np.cumsum([0, *map(len, vectors)])
        if not len(texts.vectors) or not vectors:
            return _Similarities(np.zeros((offsets[-1], len(texts.vectors)), np.float32), offsets)
        raw = self._landscape.similarities(np.concatenate(vectors), texts.vectors)
        if not np.isfinite(raw).all():
            raise ComputeError("Similarities hold NaN or infinity; check the corpus with: recipe corpus verify.")
        return _Similarities(calibrated(raw, texts.floors), offsets)

    def _vectors(self, narration: int) -> Vectors:
        """The segments of a narration [L, d], remembered: widening them from disk costs more than their products."""
        if (vectors := self._segments.get(narration)) is None:
            vectors = self._corpus.embeddings(narration)
            self._segments.put(narration, vectors)
        return vectors

    def _reward(self, judges: Judges, panel: _Panel, texts: _Group, row: int) -> Reward:
        h, plan = texts.rows[0], texts.rows[row]
        coverage = float(panel.pool.matched[0] - panel.background.matched[0]) / len(h) if h else None
        abstained = _is_below(coverage, self._config.abstain_below)
        parts = {
            "gain": float(panel.pool.plans[row - 1]),
            "background": float(panel.background.plans[row - 1]),
            "relevance": float(step_relevance(texts.goal, texts.vectors[h], texts.vectors[plan], _SAID).sum()),
            "order": order_agreement(panel.said[np.ix_(plan, plan)]),
            "price": max(panel.pool.history - panel.background.history, 0.0) / max(len(h), 1) * self._config.price,
        }
        if abstained:
            parts |= {"gain": 0.0, "background": 0.0, "order": 0.0, "price": 0.0}
        full = float(panel.pool.matched[row]) / max(len(h) + len(plan), 1)
        best = panel.matched[row]
        return Reward(
            total=grounded_reward(parts, len(plan), self._config),
            aligned_history=float(panel.pool.matched[0]) / max(len(h), 1),
            aligned_full=full,
            rho=(parts["gain"] - parts["background"]) / max(len(plan), 1),
            gated=False,
            steps=len(plan),
            pool=judges.pool,
            best_narration=judges.pool[int(best.argmax())].narration if len(best) and best.max() > 0 else None,
            coverage=coverage,
            abstained=abstained,
            parts=parts,
        )


class _Similarities(NamedTuple):
    """W [S, C] of some narrations and their offsets."""

    W: Float32
    offsets: Int64


def _is_below(coverage: float | None, threshold: float | None) -> bool:
    return threshold is not None and coverage is not None and coverage < threshold


def _asked(prompt: Prompt) -> list[Steps]:
    """The sequences that stage 1 is asked for."""
    goal, history = prompt
    return [steps for steps in ((goal,) if goal.strip() else (), history) if steps]


def _seed(prompt: Prompt) -> int:
    return int.from_bytes(hashlib.sha256(json.dumps(prompt).encode()).digest()[:8], "big")
