"""The grounded reward as pure functions of similarities (docs/verifier.md tells why, and what each part is worth).

A plan is worth what it adds to the history in the eyes of narrations of the same activity, less what it adds in the
eyes of narrations of anything else, in an order that many narrations confirm:

    R(c) = [(G_P(c) - G_Q(c) + rho r(c)) (1 + O(c)) - phi gamma(h) |c|] / (|c| + H)

P are narrations near the goal and the history, Q narrations far from both and of like lengths; neither depends on c, so
that a plan cannot choose its judges.

    W_ik = clip((<x_i, y_k> - b_i) / (1 - b_i), 0, 1)          b_i: what step i reaches with 5% of the corpus
    B(s) = max matching of steps with segments, one to one, in order, gaps free
    A(s) = max explanation of segments by steps in order, one step a segment, gaps free
    G_S(c) = sqrt( mean_S [B(h + c) - B(h)] mean_S [A(h + c) - A(h)] )

B alone pays for steps that paraphrase each other, each with a segment of its own; A alone for one step that resembles
much; their geometric mean for neither. Over P the means are weighted by B(h): a narration that tells the history is
a better judge of what follows.

    O(c) = mean over i < j of (N_ij - N_ji) / (N_ij + N_ji + 1),   N_ij = sum_P sum_{k < l} W_ik W_jl

is the vote of the pool on the order of each pair of steps: an order statistic of many narrations, where B and A ask
each narration alone. r(c) is relevance to goal and history and needs no corpus (`recipe.reward.relevance`), so that a
corpus that does not cover the activity leaves a reward that still knows the topic. gamma(h) is what a step of the
history earns, phi its share that a step must earn to pay for itself. |c| + H, with H about the number of steps that
a plan may have, makes the reward a Dice coefficient: dividing by |c| pays for stopping early, by nothing for never
stopping.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recipe.alignment.ragged import FreeAlignment
from recipe.config import GroundedConfig

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
