"""The grounded reward: narrations of the activity against narrations of anything else (docs/verifier.md)."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recipe.alignment.backends import Backend
from recipe.alignment.ragged import Float32, FreeAlignment, Int64
from recipe.alignment.reference import free_matching
from recipe.config import GroundedConfig, RewardConfig
from recipe.errors import ComputeError
from recipe.reward.embeddings import LruCache, StepEmbeddings, Vectors
from recipe.reward.method import NarrationIndex, PooledAlignment
from recipe.reward.relevance import Said, centred, step_relevance
from recipe.reward.scorer import PromptGroup, Steps
from recipe.types import Hit, Reward

# Who judges a prompt: narrations near it, and as many others of like lengths that are far from it.


_LIKE = 16
"""Narrations on either side in the order of lengths, among which one of like length is drawn."""


class Lengths(NamedTuple):
    """How long the narrations of a corpus are, in segments."""

    own: NDArray[np.int64]
    """[N], in corpus order."""
    order: NDArray[np.int64]
    """[N], narrations from the shortest to the longest."""
    rising: NDArray[np.int64]
    """[N], lengths in that order."""

    @classmethod
    def of(cls, own: NDArray[np.int64]) -> "Lengths":
        """Sort the lengths [N] of all narrations, once."""
        order = np.argsort(own, kind="stable")
        return cls(own, order, own[order])

    def alike(self, number: int, draw: np.random.Generator) -> NDArray[np.int64]:
        """Some narrations of about the length of one: of the same length where there are many."""
        first, last = (int(np.searchsorted(self.rising, self.own[number], side)) for side in ("left", "right"))
        if last - first > 2 * _LIKE:
            first = int(draw.integers(first, last - 2 * _LIKE + 1))
            return self.order[first : first + 2 * _LIKE]
        middle = (first + last) // 2
        return self.order[max(middle - _LIKE, 0) : middle + _LIKE]


class Judges(NamedTuple):
    """P and Q of a prompt."""

    pool: tuple[Hit, ...]
    """The best first."""
    background: tuple[int, ...]


def choose_judges(found: Sequence[Sequence[Hit]], lengths: Lengths, config: GroundedConfig, seed: int) -> Judges:
    """Judges from what stage 1 found for the goal and for the history, the best first.

    The pool takes turns between the rankings. The background is drawn among narrations that were not found, each of
    about the length of one of the pool: judges that are longer than the rest find more in any text.
    """
    pool = list(dict.fromkeys(hit.narration for rank in zip(*found, strict=False) for hit in rank))[: config.pool_size]
    score = {hit.narration: hit.score for hits in reversed(found) for hit in hits}
    # A small corpus is found whole: all but its nearest quarter then counts as far.
    near = {hit.narration for hits in found for hit in hits[: max(len(lengths.own) // 4, 1)]} | set(pool)
    draw = np.random.default_rng(seed)
    background: dict[int, None] = {}
    for i in range(config.background_size if pool else 0):
        alike = [int(n) for n in lengths.alike(pool[i % len(pool)], draw) if int(n) not in near | background.keys()]
        if alike:
            background[alike[int(draw.integers(len(alike)))]] = None
    return Judges(tuple(Hit(number, score[number]) for number in pool), tuple(background))


# What a corpus says of any text at all: the level that a similarity must rise above to mean something.
#
# Sentence embeddings share a large common part, and some texts are near everything. All vectors are therefore centred
# by the mean of the corpus, and a step's similarity counts from the level that it reaches with 5% of the corpus.


_NARRATIONS = 1024
"""Narrations that are looked at, at most."""
_SEGMENTS = 6000
"""Segments that stand for the corpus, at most."""
FLOOR = 0.95
"""Quantile of a step's similarities to the corpus from which on they count."""


@dataclass(frozen=True, slots=True)
class Landscape:
    """A corpus seen from afar."""

    mean: NDArray[np.float32]
    """[d], of its segments."""
    sample: Vectors
    """[n, d], centred segments of unit norm."""
    lengths: Lengths

    @classmethod
    def of(cls, corpus: NarrationIndex) -> "Landscape":
        """Look at a corpus, at narrations drawn the same way every time."""
        draw = np.random.default_rng(len(corpus))
        seen = np.sort(draw.permutation(len(corpus))[:_NARRATIONS])
        segments = np.concatenate([corpus.embeddings(int(number)) for number in seen])
        mean = segments.mean(axis=0)
        drawn = np.sort(draw.permutation(len(segments))[:_SEGMENTS])
        return cls(mean, centred(segments[drawn], mean), Lengths.of(np.diff(corpus.offsets)))

    def similarities(self, segments: Vectors, steps: Vectors) -> NDArray[np.float32]:
        """Cosines [S, C] of segments of unit norm [S, d], centred on the way, with centred steps [C, d].

        <y - m, x> / |y - m| takes one product; moving and scaling all segments would cost more than that.
        """
        raw = segments @ np.vstack([steps, self.mean]).T
        norms = np.sqrt(np.maximum(1.0 - 2.0 * raw[:, -1] + self.mean @ self.mean, 1e-12))
        return np.asarray((raw[:, :-1] - steps @ self.mean) / norms[:, None], dtype=np.float32)

    def floors(self, steps: Vectors) -> NDArray[np.float32]:
        """b [n] of centred steps [n, d]: the FLOOR quantile of their similarities to the corpus."""
        return np.asarray(np.quantile(self.sample @ steps.T, FLOOR, axis=0), dtype=np.float32)


# The grounded reward as pure functions of similarities (docs/verifier.md tells why, and what each part is worth).
#
# A plan is worth what it adds to the history in the eyes of narrations of the same activity, less what it adds in the
# eyes of narrations of anything else, in an order that many narrations confirm:
#
#     R(c) = [(G_P(c) - G_Q(c) + rho r(c)) (1 + O(c)) - phi gamma(h) |c|] / (|c| + H)
#
# P are narrations near the goal and the history, Q narrations far from both and of like lengths; neither depends on c,
# so that a plan cannot choose its judges.
#
#     W_ik = clip((<x_i, y_k> - b_i) / (1 - b_i), 0, 1)          b_i: what step i reaches with 5% of the corpus
#     B(s) = max matching of steps with segments, one to one, in order, gaps free
#     A(s) = max explanation of segments by steps in order, one step a segment, gaps free
#     G_S(c) = sqrt( mean_S [B(h + c) - B(h)] mean_S [A(h + c) - A(h)] )
#
# B alone pays for steps that paraphrase each other, each with a segment of its own; A alone for one step that resembles
# much; their geometric mean for neither. Over P the means are weighted by B(h): a narration that tells the history is
# a better judge of what follows.
#
#     O(c) = mean over i < j of (N_ij - N_ji) / (N_ij + N_ji + 1),   N_ij = sum_P sum_{k < l} W_ik W_jl
#
# is the vote of the pool on the order of each pair of steps: an order statistic of many narrations, where B and A ask
# each narration alone. r(c) is relevance to goal and history and needs no corpus (`recipe.reward.relevance`), so that a
# corpus that does not cover the activity leaves a reward that still knows the topic. gamma(h) is what a step of the
# history earns, phi its share that a step must earn to pay for itself. |c| + H, with H about the number of steps that
# a plan may have, makes the reward a Dice coefficient: dividing by |c| pays for stopping early, by nothing for never
# stopping.


Float64 = NDArray[np.float64]

_EVEN = 1e-3
"""Added to every B(h) before narrations are weighted by it, so that a history that no one tells weighs all alike."""


class Gains(NamedTuple):
    """What one set of narrations says of h and of each plan."""

    history: float
    """sqrt(mean B(h) mean A(h))."""
    plans: Float64
    """G_S(c_g), [G]."""
    matched: Float64
    """mean B of h and of each h + c_g, [G + 1]."""


def calibrated(similarities: NDArray[np.float32], floors: NDArray[np.float32]) -> NDArray[np.float32]:
    """W: similarities [S, C] counted from the floor [C] of each step, 0 to 1.

    >>> calibrated(np.array([[0.2, 0.75]], np.float32), np.array([0.5, 0.5], np.float32)).tolist()
    [[0.0, 0.5]]
    """
    return np.asarray(np.clip((similarities - floors) / np.maximum(1.0 - floors, 1e-6), 0.0, 1.0), dtype=np.float32)


def weights(pool: FreeAlignment) -> Float64:
    """How much each narration of the pool counts, [K]: by B(h), sum 1."""
    told = pool.matched[0] + _EVEN
    return np.asarray(told / told.sum())


def gains(aligned: FreeAlignment, weight: Float64) -> Gains:
    """G_S of each plan over narrations with these weights [N]."""
    matched, covered = aligned.matched @ weight, aligned.covered @ weight
    added = np.maximum(matched[1:] - matched[0], 0.0) * np.maximum(covered[1:] - covered[0], 0.0)
    return Gains(float(np.sqrt(matched[0] * covered[0])), np.sqrt(added), matched)


def order_agreement(said: ArrayLike) -> float:
    """O of a plan from N [n, n], -1 to 1; 0 where there is no pair.

    >>> order_agreement([[0.0, 1.0], [0.0, 0.0]])
    0.5
    """
    N = np.asarray(said, dtype=np.float64)
    first, later = np.triu_indices(len(N), 1)
    if not len(first):
        return 0.0
    before, after = N[first, later], N[later, first]
    return float(((before - after) / (before + after + 1.0)).mean())


def grounded_reward(parts: Mapping[str, float], steps: int, config: GroundedConfig) -> float:
    """R of a plan of `steps` steps, -1 to 1, from gain, background, relevance, order and price; 0 without steps.

    >>> parts = dict(gain=3.0, background=1.0, relevance=0.0, order=0.0, price=0.0)
    >>> grounded_reward(parts, 4, GroundedConfig(horizon=4))
    0.25
    """
    if not steps:
        return 0.0
    contrast = parts["gain"] - parts["background"]
    worth = (contrast + config.relevance * parts["relevance"]) * (1.0 + parts["order"]) - parts["price"] * steps
    return float(np.clip(worth / (steps + config.horizon), -1.0, 1.0))


# Verification by contrast: narrations of the activity against narrations of anything else (docs/verifier.md).


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
