"""The grounded reward: narrations of the activity against narrations of anything else (docs/reward.md).

A plan is worth what it adds to the history by narrations of the same activity, less what it adds by narrations of
anything else, in an order that many narrations confirm:

    R(c) = [(G_P(c) - G_Q(c) + rho' r(c)) (1 + lambda O(c)) - phi gamma(h) |c|] / (|c| + H)
    rho' = rho (1 - theta(h))

The goal counts as a step that is done: h begins with it. A step that restates the goal adds nothing, and one that
repeats a step that is done or planned adds a little less than a new one. P are narrations near the goal and the
history, Q narrations far from both and of like lengths; neither depends on c, so that a plan cannot choose them.

    W_ik = clip((<x_i, y_k> - b_i) / (1 - b_i), 0, 1)          b_i: what step i reaches with 5% of the corpus
                                                               times what is new in step i of a plan
    B(s) = max matching of steps with segments, one to one, in order, gaps free
    A(s) = max explanation of segments by steps in order, one step a segment, gaps free
    G_S(c) = sqrt( mean_S [B(h + c) - B(h)] mean_S [A(h + c) - A(h)] )

B alone rewards steps that paraphrase each other, each with a segment of its own. A alone rewards one step that is like
many segments. Their geometric mean rewards neither. Over P the means are weighted by B(h): a narration that matches
the history is better evidence for what follows.

    O(c) = mean over i < j of (N_ij - N_ji) / (N_ij + N_ji + 1),   N_ij = sum_P sum_{k < l} W_ik W_jl

is the vote of the pool on the order of each pair of steps, whether they are new or not: an order statistic of many
narrations, where B and A read each narration alone. r(c) is relevance to goal and history and needs no corpus
(`recipe.reward.baselines`), so that a corpus that does not cover the activity leaves a reward that still depends on the
topic; a step that is like the goal counts as a repeat in r too. gamma(h) is the mean gain of a step of the history, and
phi the share of it that each step of the plan costs. |c| + H, with H about the number of steps of a plan, makes the
reward a Dice coefficient: a division by |c| would reward short plans, no division long ones.

theta(h), in [0, 1], is how far the corpus is trusted. It is 0 by default; with the setting `trust` it rises with the
coverage of the prompt between two thresholds. What is assumed of any prompt then gives way where narrations tell this
one: relevance, that repeats count less, and that lines near the goal count less. Speech repeats itself and names its
goal all the time; step lists do neither, and their true steps may repeat or be named like the goal.

All vectors are centred by the mean of the corpus, because sentence embeddings share a large common part.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recipe.alignment.backends import Backend
from recipe.alignment.reference import Float32, FreeAlignment, Int64, free_matching
from recipe.config.reward import ORDER, REPEATS, GroundedConfig, RewardConfig
from recipe.errors import ComputeError
from recipe.reward.baselines import NoveltyScale, centred, closeness, novelty, relevance_texts, unlike
from recipe.reward.embeddings import LruCache, NarrationIndex, Vectors, stacked
from recipe.reward.scorer import Method, Prompt, PromptGroup, Steps
from recipe.types import Hit, PooledAlignment, Reward

Float64 = NDArray[np.float64]

FLOOR = 0.95
"""Quantile of a step's similarities to the corpus from which on they count."""
# Narrations and segments at most of the sample by which the corpus is known.
_BASELINE_NARRATIONS, _BASELINE_SEGMENTS = 1024, 6000
# Narrations on either side in the order of lengths, among which one of like length is drawn.
_LENGTH_WINDOW = 16
# Added to every B(h) before narrations are weighted by it, so that they weigh alike where none tells the history.
_EVEN = 1e-3
# A step counts as a repeat sooner than in R0: other words for a step that is done are no progress.
_NOVELTY: NoveltyScale = (0.6, 0.85)
# The same for likeness to the goal.
_GOAL_NOVELTY: NoveltyScale = (0.5, 0.8)
# Likeness to the goal from which on a step's similarities to narrations count less, and not at all. Speech names the
# goal again and again, so that restating it would find segments even where the goal has one already; lower values take
# too much from true steps that name the object of the goal.
_GOAL_RESTATED: NoveltyScale = (0.75, 0.999)
# Prompts whose pools are kept, as numbers of narrations and scores, 50 MiB at most: a training set's prompts return at
# every epoch. No vector is kept: `NarrationIndex.similarities` reads those of a pool where they are stored, in less
# time than a copy of them takes.
_PROMPTS_KEPT = 4_096
_FLOORS_KEPT = 32_768
# Steps whose similarities to the sample are held at a time, 6 MiB.
_FLOORS_TOGETHER = 256
# Weight of the middle of a narration in the time of a step that the pool hardly says.
_PRIOR = 0.01


_upper_triangle = lru_cache(maxsize=256)(np.triu_indices)  # plans of one length recur


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
    # Counted from what the step reaches anyway: steps in common words are near every segment. Without it the audit
    # loses 1.6 to 3.7 points.
    W = np.asarray((similarities - floors) / np.maximum(1.0 - floors, 1e-6), dtype=np.float32)
    return np.clip(W, 0.0, 1.0, out=W)


def weights(pool: FreeAlignment) -> Float64:
    """How much each narration of the pool counts, [K]: by B(h), sum 1."""
    # By B(h) alone, which the plan cannot change: weights by h + c would let a plan choose its judges.
    matched = pool.matched[0] + _EVEN
    return np.asarray(matched / matched.sum())


def _contrast(pool: FreeAlignment, others: FreeAlignment) -> tuple[Gains, Gains]:
    """The gains by P, whose narrations weigh by B(h), and by Q."""
    count = others.matched.shape[1]
    return gains(pool, weights(pool)), gains(others, np.full(count, 1.0 / max(count, 1)))


def _coverage(relevant: Gains, background: Gains, steps: int) -> float | None:
    """How much more of h, of `steps` steps, P tells than Q: a mean over steps, at most 1; None without steps."""
    return float(relevant.matched[0] - background.matched[0]) / steps if steps else None


def _trusted(coverage: float | None, config: GroundedConfig) -> float:
    """theta of a prompt of this coverage, 0 to 1.

    >>> round(_trusted(0.25, GroundedConfig(trust=(0.2, 0.3))), 6)
    0.5
    """
    if config.trust is None or coverage is None:
        return 0.0
    low, high = config.trust
    return float(np.clip((coverage - low) / (high - low), 0.0, 1.0))


def gains(aligned: FreeAlignment, weight: Float64) -> Gains:
    """G_S of each plan over narrations with these weights [N]."""
    matched, covered = aligned.matched @ weight, aligned.covered @ weight
    # The gain of c over h, and not the score of h + c: what is done already earns nothing. The mean over narrations,
    # not the greatest: one chance match in the pool would decide (4 to 8 points of the audit).
    added = np.maximum(matched[1:] - matched[0], 0.0) * np.maximum(covered[1:] - covered[0], 0.0)
    return Gains(float(np.sqrt(matched[0] * covered[0])), np.sqrt(added), matched)


def order_agreement(precedence: ArrayLike) -> float:
    """O of a plan from N [n, n], -1 to 1; 0 where there is no pair.

    >>> order_agreement([[0.0, 1.0], [0.0, 0.0]])
    0.5
    """
    N = np.asarray(precedence, dtype=np.float64)
    first, later = _upper_triangle(len(N), 1)
    if not len(first):
        return 0.0
    before, after = N[first, later], N[later, first]
    # 1 in the denominator is one vote against knowing: a pair that few narrations mention counts little.
    return float(((before - after) / (before + after + 1.0)).mean())


def grounded_reward(parts: Mapping[str, float], steps: int, config: GroundedConfig) -> float:
    """R of a plan of `steps` steps, -1 to 1, from its parts; 0 without steps.

    The parts are gain, background, relevance, that to the goal alone, order (lambda O) and price.

    >>> parts = dict(gain=3.0, background=1.0, relevance=0.0, goal_relevance=0.0, order=0.0, price=0.0)
    >>> grounded_reward(parts, 4, GroundedConfig(horizon=4))
    0.25
    """
    total = sum(grounded_terms(parts, steps, config).values())
    return float(min(max(total, -1.0), 1.0))  # in this order NaN stays NaN


def grounded_terms(parts: Mapping[str, float], steps: int, config: GroundedConfig) -> dict[str, float]:
    """R of a plan by where it comes from: corpus, goal, history, price; the sum is R, unclipped.

    Relevance without order is that of goal and history; what gain and order add is the corpus's. Empty without steps,
    and for parts of another reward.
    """
    if not steps or not {"gain", "background", "relevance", "goal_relevance", "order", "price"} <= parts.keys():
        return {}
    contrast, order = parts["gain"] - parts["background"], parts["order"]
    to_goal = parts["goal_relevance"]
    # Order scales what the corpus adds and relevance too: a plan of relevant steps in a wrong order is not a good one.
    terms = {"goal": config.relevance * to_goal, "history": config.relevance * (parts["relevance"] - to_goal)}
    terms["corpus"] = contrast * (1.0 + order) + config.relevance * parts["relevance"] * order
    terms["price"] = -parts["price"] * steps
    # A Dice coefficient. Divided by |c| alone the audit lost 2 to 3 points, undivided 5 to 7, against the root of |c|,
    # between which this lies.
    return {name: value / (steps + config.horizon) for name, value in terms.items()}


def corpus_share(rewards: Sequence[Reward], prompts: Sequence[Prompt], config: GroundedConfig) -> float | None:
    """The corpus's share of the differences between rewards of one prompt, 0 to 1: what GRPO learns of it.

    Without price, R is a term K of the corpus (`grounded_terms`) and others that read none. The
    share is sum |K - its mean| over the same sum for K and the others; means are over the completions of a prompt. A
    net reads both, and is left out. None where nothing differs, or where rewards lack the grounded parts.
    """
    groups: dict[Prompt, list[tuple[float, float]]] = {}
    for reward, prompt in zip(rewards, prompts, strict=True):
        if not {"gain", "background", "relevance", "order"} <= reward.parts.keys():
            return None
        terms = grounded_terms(reward.parts, reward.steps, config)
        corpus = terms.pop("corpus", 0.0)
        groups.setdefault(prompt, []).append((corpus, sum(terms.values()) - terms.get("price", 0.0)))
    moved = np.zeros(2)
    for group in groups.values():
        table = np.array(group)
        # Differences within a prompt, because GRPO sees nothing else: the mean of a group falls out of its advantages.
        moved += np.abs(table - table.mean(axis=0)).sum(axis=0)
    return float(moved[0] / moved.sum()) if moved.sum() > 1e-12 else None


class NarrationLengths(NamedTuple):
    """How long the narrations of a corpus are, in segments."""

    own: NDArray[np.int64]
    """[N], in corpus order."""
    order: NDArray[np.int64]
    """[N], narrations from the shortest to the longest."""
    first: NDArray[np.int64]
    """[N], where in that order the narrations begin that are as long as this one."""
    last: NDArray[np.int64]
    """[N], where they end."""

    @classmethod
    def of(cls, own: NDArray[np.int64]) -> "NarrationLengths":
        """Sort the lengths [N] of all narrations, once."""
        order = np.argsort(own, kind="stable")
        rising = own[order]
        return cls(own, order, np.searchsorted(rising, own, "left"), np.searchsorted(rising, own, "right"))

    def alike(self, number: int, draw: np.random.Generator) -> NDArray[np.int64]:
        """Some narrations of about the length of one: of the same length where there are many."""
        first, last = int(self.first[number]), int(self.last[number])
        if last - first > 2 * _LENGTH_WINDOW:
            first = int(draw.integers(first, last - 2 * _LENGTH_WINDOW + 1))
            return self.order[first : first + 2 * _LENGTH_WINDOW]
        middle = (first + last) // 2
        return self.order[max(middle - _LENGTH_WINDOW, 0) : middle + _LENGTH_WINDOW]


@dataclass(frozen=True, slots=True)
class SimilarityBaseline:
    """How similar any text is to a corpus: its mean, and quantiles of a step's similarities to a sample of it."""

    mean: NDArray[np.float32]
    """[d], of the sampled narrations' segments."""
    sample: Vectors
    """[n, d], centred segments of unit norm."""
    lengths: NarrationLengths

    @classmethod
    def of(cls, corpus: NarrationIndex) -> "SimilarityBaseline":
        """The baseline of a corpus, from narrations drawn the same way every time."""
        # Seeded by the corpus alone: two processes with one corpus have one baseline, to the last bit.
        draw = np.random.default_rng(len(corpus))
        narrations = np.sort(draw.permutation(len(corpus))[:_BASELINE_NARRATIONS])
        segments = np.concatenate([corpus.embeddings(int(number)) for number in narrations])
        mean = segments.mean(axis=0)
        drawn = np.sort(draw.permutation(len(segments))[:_BASELINE_SEGMENTS])
        return cls(mean, centred(segments[drawn], mean), NarrationLengths.of(np.diff(corpus.offsets)))

    def similarities(self, corpus: NarrationIndex, narrations: Sequence[int], steps: Vectors) -> tuple[Float32, Int64]:
        """Cosines [S, C] of the segments of some narrations, centred on the way, with centred steps [C, d]; and the
        narrations' offsets.

        <y - m, x> / |y - m| takes no more than the products of the segments with the steps and with the mean, which is
        the last column of them; moving and scaling all segments would.
        """
        products, offsets = corpus.similarities(narrations, np.vstack([steps, self.mean]))
        # |y - m|^2 = 1 - 2 <y, m> + |m|^2 for unit y; 1e-12 where a segment is the mean itself.
        norms = np.sqrt(np.maximum(1.0 - 2.0 * products[:, -1] + self.mean @ self.mean, 1e-12))
        # BLAS rounds the product of a row with a vector by where the row stands; this sum does not.
        shift = np.einsum("cd,d->c", steps, self.mean)
        return np.asarray((products[:, :-1] - shift) / norms[:, None], dtype=np.float32), offsets

    def floors(self, steps: Vectors) -> NDArray[np.float32]:
        """b [n] of centred steps [n, d]: the FLOOR quantile of their similarities to the corpus."""
        floors = np.empty(len(steps), np.float32)
        for start in range(0, len(steps), _FLOORS_TOGETHER):
            part = slice(start, start + _FLOORS_TOGETHER)
            # Of rows that are contiguous: of columns it takes three times as long.
            similarities = np.ascontiguousarray((self.sample @ steps[part].T).T)
            floors[part] = np.quantile(similarities, FLOOR, axis=1, overwrite_input=True)
        return floors


class NarrationPools(NamedTuple):
    """P and Q of a prompt."""

    relevant: tuple[Hit, ...]
    """P, the best first."""
    background: tuple[int, ...]
    """Q."""


def choose_pools(
    rankings: Sequence[Sequence[Hit]], lengths: NarrationLengths, config: GroundedConfig, seed: int
) -> NarrationPools:
    """P and Q from the rankings of stage 1 for the goal and for the history, each the best first.

    P takes turns between the rankings. Q is drawn among narrations that are in no ranking, each of about the length of
    one of P: narrations that are longer than the rest find more in any text.
    """
    # In turns, because a ranking by the history alone finds narrations that hold the step which is then repeated (3 to
    # 5 points of the audit).
    pool = list(dict.fromkeys(hit.narration for rank in zip(*rankings, strict=False) for hit in rank))
    pool = pool[: config.pool_size]
    best = {hit.narration: hit for hits in reversed(rankings) for hit in hits}
    # A small corpus is ranked whole: all but its nearest quarter then counts as far.
    near = [hit.narration for hits in rankings for hit in hits[: max(len(lengths.own) // 4, 1)]]
    taken = np.zeros(len(lengths.own), np.bool_)
    taken[near + pool] = True
    draw = np.random.default_rng(seed)
    background = list[int]()
    # Of like length: B and A grow with the segments of a narration, so that Q of other lengths would measure length.
    for i in range(config.background_size if pool else 0):
        alike = lengths.alike(pool[i % len(pool)], draw)
        alike = alike[~taken[alike]]
        if len(alike):
            background.append(int(alike[draw.integers(len(alike))]))
            taken[background[-1]] = True
    return NarrationPools(tuple(best[number] for number in pool), tuple(background))


class GroupTexts(NamedTuple):
    """The texts of a group, each once: a column is a text."""

    vectors: Vectors
    """[C, d], centred."""
    cosines: list[Float32]
    """Of h and each plan with the plan, [m + n, n]."""
    to_goal: Float32 | None
    """Cosines [T] of the steps of all plans with the goal; None where the prompt has none."""
    to_history: Float32
    """[T, m]."""
    floors: Float32
    """[C]."""
    rows: list[list[int]]
    """Columns of h, which begins with the goal where there is one, then of each plan."""
    history: list[int]
    """Columns of the steps that are done."""
    columns: list[int]
    """Columns of h and of all plans, in order."""

    @property
    def first(self) -> int:
        """Where in h the steps that are done begin: 1 behind a goal, else 0."""
        return len(self.rows[0]) - len(self.history)


@dataclass(frozen=True, slots=True)
class PromptAlignment:
    """What the pool says of all texts of one prompt's plans; a column is a text."""

    texts: GroupTexts
    similarities: Float32
    """W [S, C] of the segments of P."""
    offsets: Int64
    """[K + 1], of the narrations of P."""
    weights: Float64
    """[K]: how much each narration counts."""
    precedence: NDArray[np.floating]
    """N [C, C]."""

    def support_and_time(self) -> tuple[Float64, Float64]:
        """How much of a narration's best segment each column has on average [C], and when it is said, 0 to 1, [C]."""
        W, offsets, weights = self.similarities, self.offsets, self.weights
        count = W.shape[1]
        if not len(W):
            return np.zeros(count), np.full(count, 0.5)
        # Sums over rows add one row after the other, so that no other column changes a digit.
        support = (np.maximum.reduceat(W, offsets[:-1], axis=0) * weights[:, None]).sum(axis=0)
        lengths = np.diff(offsets)
        when = (np.arange(len(W)) - np.repeat(offsets[:-1], lengths) + 0.5) / np.repeat(lengths, lengths)
        each = np.repeat(weights, lengths)
        # Squared: the many weak likenesses, to segments at all times, would draw every step to the middle.
        squared = np.square(W)
        mass = (squared * each.astype(np.float32)[:, None]).sum(axis=0, dtype=np.float64)
        moment = (squared * (each * when).astype(np.float32)[:, None]).sum(axis=0, dtype=np.float64)
        return np.asarray(support, np.float64), (moment + 0.5 * _PRIOR) / (mass + _PRIOR)


class GroundedMethod(Method):
    """The grounded reward on a corpus; both pools depend on goal and history only, so that all plans share them."""

    def __init__(self, corpus: NarrationIndex, config: RewardConfig, backend: Backend) -> None:
        self._corpus, self._config, self._backend = corpus, config.grounded, backend
        self._pools_kept = LruCache[Prompt, NarrationPools](_PROMPTS_KEPT)
        self._hits_kept = LruCache[Steps, list[Hit]](_PROMPTS_KEPT)
        self._floors_kept = LruCache[str, np.float32](_FLOORS_KEPT)

    @cached_property
    def _baseline(self) -> SimilarityBaseline:
        return SimilarityBaseline.of(self._corpus)

    @property
    def centre(self) -> NDArray[np.float32]:
        """The mean [d] of the corpus, by which vectors are centred."""
        return self._baseline.mean

    texts = staticmethod(relevance_texts)

    def rewards(self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]) -> list[list[Reward]]:
        """The rewards of each group's plans, after one scan of the corpus for all pools. Raises ComputeError."""
        return [rewards for rewards, _ in self.rewards_and_alignments(groups, vectors)]

    def rewards_and_alignments(
        self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]
    ) -> list[tuple[list[Reward], PromptAlignment]]:
        """The same, each group with what its pool says of the texts of its plans, for rewards that build on it."""
        pools = self._pools(groups, vectors)
        return [
            self._group_rewards(pools[group.goal, group.history], texts)
            for group, texts in zip(groups, self._texts(groups, vectors), strict=True)
        ]

    def alignments(self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]) -> list[list[PooledAlignment]]:
        """The best one-to-one matching of h and each group's only plan with each narration of P, by W."""
        pools = self._pools(groups, vectors)
        alignments = []
        for group, texts in zip(groups, self._texts(groups, vectors), strict=True):
            pool = pools[group.goal, group.history]
            columns, aligned = texts.columns, list[PooledAlignment]()
            near, far = self._similarities(pool, texts)
            similar, offsets = near
            _, _, counted = self._novelties(texts, near, far)
            counted_similarities = similar[:, columns] * counted
            first = texts.first  # the goal takes part, and is not shown as a step
            for hit, (start, stop) in zip(pool.relevant, pairwise(offsets), strict=True) if columns else ():
                W = counted_similarities[start:stop].T
                matching = free_matching(W)
                pairs = [(i, k) for i, k in matching.path if i is not None and k is not None and i >= first]
                matches = tuple((i - first, k) for i, k in pairs)
                aligned.append(PooledAlignment(hit, matching.score / len(columns), matches, W[first:]))
            alignments.append(sorted(aligned, key=lambda narration: -narration.score))
        return alignments

    def _pools(self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]) -> dict[Prompt, NarrationPools]:
        """P and Q of each prompt; what is not kept is searched for in one scan of the corpus."""
        pools: dict[Prompt, NarrationPools] = {}
        missing = []
        for prompt in dict.fromkeys((group.goal, group.history) for group in groups):
            if (kept := self._pools_kept.get(prompt)) is not None:
                pools[prompt] = kept
            else:
                missing.append(prompt)
        # A goal's hits are kept for its next history; a history's serve its own prompt alone, whose pools are kept.
        hits: dict[Steps, list[Hit]] = {}
        unknown = []
        for steps in dict.fromkeys(steps for prompt in missing for steps in _queries(prompt)):
            if (kept_hits := self._hits_kept.get(steps)) is not None:
                hits[steps] = kept_hits
            else:
                unknown.append(steps)
        if unknown:
            goals = {(goal,) for goal, _ in missing}
            queries = [stacked(vectors, steps) for steps in unknown]
            for steps, ranking in zip(
                unknown, self._corpus.search_batch(queries, self._config.candidates), strict=True
            ):
                hits[steps] = ranking
                if steps in goals:
                    self._hits_kept.put(steps, ranking)
        for prompt in missing:
            rankings = [hits[steps] for steps in _queries(prompt)]
            # From the prompt, not from a counter: a prompt's Q is the same in every batch, process and run.
            seed = int.from_bytes(hashlib.sha256(json.dumps(prompt).encode()).digest()[:8], "big")
            pools[prompt] = choose_pools(rankings, self._baseline.lengths, self._config, seed)
            self._pools_kept.put(prompt, pools[prompt])
        return pools

    def _texts(self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]) -> list[GroupTexts]:
        """The texts of each group; the floors of all that are new take one product."""
        texts = list(dict.fromkeys(text for group in groups for text in self.texts(group)))
        index = {text: number for number, text in enumerate(texts)}
        mean = self._baseline.mean
        X = centred(stacked(vectors, texts), mean) if texts else np.zeros((0, len(mean)), np.float32)
        # Floors are kept, because a policy writes the same steps again.
        floors = {text: floor for text in texts if (floor := self._floors_kept.get(text)) is not None}
        if new := [text for text in texts if text not in floors]:
            for text, floor in zip(new, self._baseline.floors(X[[index[text] for text in new]]), strict=True):
                floors[text] = floor
                self._floors_kept.put(text, floor)

        members = []
        for group in groups:
            own = list(dict.fromkeys(self.texts(group)))
            column = {text: number for number, text in enumerate(own)}
            history, *plans = ([column[step] for step in steps] for steps in (group.history, *group.plans))
            # The goal is the first of the texts, column 0.
            h = [0, *history] if group.goal.strip() else history
            x = X[np.array([index[text] for text in own], np.intp)]
            b = np.array([floors[text] for text in own], np.float32)
            # A product for each plan, so that other plans change no digit of it.
            products = [x[h + plan] @ x[plan].T for plan in plans]
            joined = np.concatenate(
                [np.zeros((len(h), 0), np.float32), *(product[: len(h)] for product in products)], axis=1
            )
            to_goal, to_history = joined[0] if group.goal.strip() else None, joined[len(h) - len(history) :].T
            columns = [number for row in (h, *plans) for number in row]
            members.append(GroupTexts(x, products, to_goal, to_history, b, [h, *plans], history, columns))
        return members

    def _similarities(
        self, pools: NarrationPools, texts: GroupTexts
    ) -> tuple[tuple[Float32, Int64], tuple[Float32, Int64]]:
        """W [S, C] of P and of Q, each with the offsets of its narrations, by one product. Raises ComputeError."""
        narrations = [*(hit.narration for hit in pools.relevant), *pools.background]
        raw, offsets = self._baseline.similarities(self._corpus, narrations, texts.vectors)
        if not np.isfinite(raw).all():
            raise ComputeError("Similarities hold NaN or infinity; check the corpus with: recipe corpus verify.")
        W, count = calibrated(raw, texts.floors), len(pools.relevant)
        middle = offsets[count]
        return (W[:middle], offsets[: count + 1]), (W[middle:], offsets[count:] - middle)

    def _novelties(
        self, texts: GroupTexts, relevant: tuple[Float32, Int64], background: tuple[Float32, Int64]
    ) -> tuple[float, Float32, Float32]:
        """theta of the prompt, from W of P and of Q with their offsets; how new each step of all plans is for
        relevance; and what the similarities of each column of h and of all plans are multiplied by.
        """
        h, theta = texts.rows[0], 0.0
        if self._config.trust is not None and h:
            pool, others = (
                self._backend.grouped_free_alignment(W[:, h], [len(h)], offsets)
                for W, offsets in (relevant, background)
            )
            theta = _trusted(_coverage(*_contrast(pool, others), len(h)), self._config)
        cosines = (similar[texts.first :] for similar in texts.cosines)  # the goal is compared by itself
        new = np.concatenate([np.zeros(0, np.float32), *(novelty(similar, _NOVELTY) for similar in cosines)])
        # Not to 0: true step lists repeat steps. Repeats judged by the segments that they share cost lists 4 to 15
        # points of the audit.
        factor = 1.0 - REPEATS * (1.0 - theta) * (1.0 - new)
        if texts.to_goal is not None:
            new = np.minimum(new, unlike(texts.to_goal, _GOAL_NOVELTY))
            factor = factor * (1.0 - (1.0 - theta) * (1.0 - unlike(texts.to_goal, _GOAL_RESTATED)))
        return theta, new, np.concatenate([np.ones(len(h), np.float32), factor], dtype=np.float32)

    def _group_rewards(self, pools: NarrationPools, texts: GroupTexts) -> tuple[list[Reward], PromptAlignment]:
        bounds = np.cumsum([len(row) for row in texts.rows])
        near, far = self._similarities(pools, texts)
        theta, new, counted = self._novelties(texts, near, far)
        columns = texts.columns
        (W, offsets), (others_W, others_offsets) = near, far
        # `take` gives rows that are contiguous, as the backend reads them; W[:, columns] does not.
        aligned = self._backend.grouped_free_alignment(W.take(columns, axis=1) * counted, bounds, offsets)
        precedence = self._backend.precedence(W, offsets)
        apart = self._backend.grouped_free_alignment(others_W.take(columns, axis=1) * counted, bounds, others_offsets)
        # P minus Q: what any narration of this length says of these steps is no evidence for the activity.
        relevant, background = _contrast(aligned, apart)
        h = texts.rows[0]
        coverage = _coverage(relevant, background, len(h))
        # A step costs a share of what a true step earns here: the history's own mean gain, since its steps are known to
        # be true.
        price = max(relevant.history - background.history, 0.0) / max(len(h), 1) * self._config.price
        close, close_goal = (new * near for near in closeness(texts.to_goal, texts.to_history))
        rewards = []
        for row, plan in enumerate(texts.rows[1:], start=1):
            own = slice(*(bounds[row - 1 : row + 1] - len(h)))
            parts = {
                "gain": float(relevant.plans[row - 1]),
                "background": float(background.plans[row - 1]),
                "relevance": float(close[own].sum()) * (1.0 - theta),
                "order": ORDER * order_agreement(precedence[np.ix_(plan, plan)]),
                "price": price,
                "goal_relevance": float(close_goal[own].sum()) * (1.0 - theta),
            }
            best = aligned.matched[row]
            reward = Reward(
                total=grounded_reward(parts, len(plan), self._config),
                aligned_history=float(relevant.matched[0]) / max(len(h), 1),
                aligned_full=float(relevant.matched[row]) / max(len(h) + len(plan), 1),
                rho=(parts["gain"] - parts["background"]) / max(len(plan), 1),
                gated=False,
                steps=len(plan),
                pool=pools.relevant,
                # For the page alone; the reward is a mean over P.
                best_narration=pools.relevant[int(best.argmax())].narration if len(best) and best.max() > 0 else None,
                coverage=coverage,
                parts=parts,
            )
            rewards.append(reward)
        alignment = PromptAlignment(texts, W, offsets, weights(aligned), precedence)
        return rewards, alignment


def _queries(prompt: Prompt) -> list[Steps]:
    """The sequences that stage 1 searches for: the goal and the history, those that hold text."""
    goal, history = prompt
    return [steps for steps in ((goal,) if goal.strip() else (), history) if steps]
