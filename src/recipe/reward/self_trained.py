"""A reward that was trained on the corpus that it reads: a small net around the grounded reward (docs/reward.md).

    R(c) = G(c) + a (f(c) - f_0),    a = sd(G) / sd(f)

G is the grounded reward, f the mean of three nets over 49 features of the plan (`recipe.reward.plan_features`). Both
standard deviations are those within the pseudo-prompts that the nets were trained on, so that G and f weigh alike. f is
kept between f_0 and f_1, the least and the greatest value there: no plan earns more than the best of those, and a plan
without steps earns 0 as before. `recipe.mining.self_training` trains the nets and says whether they should be used.

A folder holds `weights.npz`, plain arrays, and `self-trained.json`: what corpus, encoder and settings it belongs to.
"""

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.reference import Float32
from recipe.artifacts import JsonObject, atomic_path, read_json, write_json
from recipe.config.reward import GroundedConfig
from recipe.errors import ConfigError, EncoderMismatch, InputError
from recipe.reward.baselines import centred, relevance_texts
from recipe.reward.embeddings import NarrationIndex, Vectors
from recipe.reward.grounded import GroundedMethod, grounded_terms
from recipe.reward.plan_features import FEATURES, plan_features
from recipe.reward.scorer import Method, PromptGroup
from recipe.types import PooledAlignment, Reward

Float64 = NDArray[np.float64]

CARD, WEIGHTS = "self-trained.json", "weights.npz"
FORMAT = 1
HIDDEN = 24
"""Units of each hidden layer."""
SEEDS = 3
"""Nets, which differ in their first weights and in the pairs that they see."""
STEPS = 1500
"""Steps of training."""
# Pairs of a step, the learning rate, which falls to 0, the decay of weights, and the share of units left out.
_BATCH, _RATE, _DECAY, _DROPPED = 256, 3e-3, 0.05, 0.1
# Standard deviations at which a number is cut off.
_BEYOND = 4.0
# Narrations that usual places are learned from, at most, and how strongly the regression is held back.
_PLACED, _RIDGE = 1024, 1.0


@dataclass(frozen=True, slots=True)
class Nets:
    """Three nets 49-24-24-1 with a linear path, each [3, ...]; what they give is averaged."""

    mean: Float64
    """[49], of the numbers of all plans that they were trained on."""
    deviation: Float64
    """[49]."""
    first: Float64
    """[3, 49, 24]."""
    first_bias: Float64
    """[3, 1, 24]."""
    second: Float64
    """[3, 24, 24]."""
    second_bias: Float64
    """[3, 1, 24]."""
    last: Float64
    """[3, 24, 1]."""
    linear: Float64
    """[3, 49, 1]."""

    def standardised(self, numbers: NDArray[np.floating]) -> Float64:
        """Numbers [..., 49] in standard deviations from their mean, cut off at 4."""
        return np.asarray(np.clip((numbers - self.mean) / self.deviation, -_BEYOND, _BEYOND), dtype=np.float64)

    def values(self, numbers: NDArray[np.floating]) -> Float64:
        """f [n] of plans from their numbers [n, 49]; a plan's value does not depend on the others to the last digit."""
        rows = self.standardised(numbers)[:, None, None]  # a row for each net: [n, 1, 1, 49]
        return np.array([(self._layers(x)[1] @ self.last + x @ self.linear).mean() for x in rows], dtype=np.float64)

    def attribution(self, numbers: NDArray[np.floating]) -> Float64:
        """What each number [49] of one plan adds to f: its distance from the mean times the slope of the nets there."""
        x = self.standardised(numbers)
        below, above = self._layers(x[None, None])
        # Backwards through both layers; the derivative of tanh is 1 - tanh^2.
        back = (1.0 - above**2) * self.last.transpose(0, 2, 1)
        back = (back @ self.second.transpose(0, 2, 1)) * (1.0 - below**2)
        slopes = back @ self.first.transpose(0, 2, 1) + self.linear.transpose(0, 2, 1)
        return np.asarray(x * slopes.mean(axis=(0, 1)), dtype=np.float64)

    def _layers(self, x: Float64) -> tuple[Float64, Float64]:
        """What the two hidden layers of each net give for standardised numbers [1, 1, 49]: [3, 1, 24]."""
        below = np.tanh(x @ self.first + self.first_bias)
        return below, np.tanh(below @ self.second + self.second_bias)


class PositionModel(NamedTuple):
    """Where in a narration a text usually stands, by ridge regression from its centred vector."""

    weights: Float64
    """[d]; the result has mean 0 and standard deviation 1 over the segments of the corpus."""

    @classmethod
    def of(cls, corpus: NarrationIndex, mean: NDArray[np.float32]) -> "PositionModel":
        """From narrations drawn the same way every time; `mean` [d] is what vectors are centred by."""
        drawn = np.sort(np.random.default_rng(len(corpus)).permutation(len(corpus))[:_PLACED])
        segments = [centred(corpus.embeddings(int(number)), mean).astype(np.float64) for number in drawn]
        when = np.concatenate([np.linspace(-1.0, 1.0, len(own)) for own in segments])
        x = np.concatenate(segments)
        x -= x.mean(axis=0)
        spread = x.T @ x / len(x)
        # In proportion to the spread, so that encoders of any dimension are held alike.
        held = spread + _RIDGE * np.trace(spread) / len(spread) * np.eye(len(spread))
        direction = np.linalg.solve(held, x.T @ when / len(x))
        return cls(direction / max(float((x @ direction).std()), 1e-9))

    def __call__(self, vectors: Vectors) -> Float64:
        """The usual places [n] of texts from their centred vectors [n, d]."""
        return np.asarray((vectors * self.weights).sum(axis=1))


@dataclass(frozen=True, slots=True)
class SelfTrained:
    """What was trained on a corpus: nets, the model of positions, and how the nets weigh."""

    nets: Nets
    positions: PositionModel
    weight: float
    """a."""
    lowest: float
    """f_0."""
    highest: float
    """f_1."""

    def shares(self, numbers: NDArray[np.floating]) -> Float64:
        """What the nets add to the reward of each plan, a (f - f_0), from its numbers [n, 49]."""
        return self.weight * (np.clip(self.nets.values(numbers), self.lowest, self.highest) - self.lowest)

    def attribution(self, numbers: NDArray[np.floating]) -> dict[str, float]:
        """What each number [49] of a plan adds to its reward compared with an average plan, the largest first."""
        added = self.weight * self.nets.attribution(numbers)
        # By size whatever the sign: a number that takes away explains as much as one that adds.
        order = np.argsort(-np.abs(added), kind="stable")
        names = list(FEATURES)
        return {names[index]: float(added[index]) for index in order}

    def write(self, folder: Path, card: Mapping[str, Any]) -> JsonObject:
        """Write the folder whole or not at all; returns the card as written, with what was learned."""
        arrays = {field.name: getattr(self.nets, field.name) for field in fields(Nets)} | {
            "places": self.positions.weights
        }
        stream = io.BytesIO()
        np.savez(stream, **arrays)
        learned = {
            "weight": self.weight,
            "lowest": self.lowest,
            "highest": self.highest,
            "means": dict(zip(FEATURES, map(float, self.nets.mean), strict=True)),
            "sha256": hashlib.sha256(stream.getvalue()).hexdigest(),
        }
        whole = {"format": FORMAT, **card, **learned}
        with atomic_path(folder) as partial:
            partial.mkdir()
            (partial / WEIGHTS).write_bytes(stream.getvalue())
            write_json(partial / CARD, whole, sort_keys=False)
        return whole

    @classmethod
    def open(cls, folder: Path, corpus: NarrationIndex, config: GroundedConfig) -> "SelfTrained":
        """What a folder holds, for this corpus and these settings.

        Raises InputError for a folder that is missing, damaged or of another format, EncoderMismatch and ConfigError
        where it was trained on another encoder, corpus or with other settings, and where its own gate says that it
        should not be used and the settings do not say `self_trained_anyway`.
        """
        remedy = "make it with: recipe reward self-train"
        if not folder.is_dir():
            raise InputError.at(folder, "there is no such folder of a self-trained reward", remedy)
        card = read_json(folder / CARD)
        if not isinstance(card, dict) or card.get("format") != FORMAT:
            raise InputError.at(
                folder / CARD, "this is no card of a self-trained reward that this version reads", remedy
            )
        here = card_of(corpus)
        if card.get("encoder") != here["encoder"]:
            raise EncoderMismatch(
                f"{folder}: the reward was trained on a corpus with another encoder than this one; train it anew on "
                "this corpus with: recipe reward self-train."
            )
        if card.get("corpus") != here["corpus"]:
            raise ConfigError(
                f"{folder}: the reward was trained on another corpus than this one; train it anew on this corpus with: "
                "recipe reward self-train."
            )
        mine, its = base_settings(config), card.get("grounded")
        if other := sorted(name for name in mine if not isinstance(its, dict) or its.get(name) != mine[name]):
            raise ConfigError(
                f"{folder}: the reward was trained with another grounded.{other[0]} than the settings say; give the "
                "same settings, or train it anew with: recipe reward self-train --config."
            )
        if not card.get("use") and not config.self_trained_anyway:
            reason = card.get("reason", "no reason is kept")
            raise ConfigError(
                f"{folder}: by its own test this reward should not be used ({reason}); leave it out, or set "
                "grounded.self_trained_anyway = true."
            )
        try:
            data = (folder / WEIGHTS).read_bytes()
            if hashlib.sha256(data).hexdigest() != card["sha256"]:
                raise ValueError("its bytes are not those that were written")
            # No pickles: a folder from elsewhere must not run code.
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                held = {name: np.asarray(arrays[name], np.float64) for name in arrays.files}
            positions = PositionModel(held.pop("places"))
            return cls(Nets(**held), positions, *(float(card[name]) for name in ("weight", "lowest", "highest")))
        except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise InputError.at(folder / WEIGHTS, f"the weights are damaged ({error})", remedy) from None


class SelfTrainedMethod(Method):
    """The grounded reward, and what nets that were trained on its corpus add to it."""

    def __init__(self, grounded: GroundedMethod, trained: SelfTrained, config: GroundedConfig) -> None:
        self._grounded, self._trained, self._config = grounded, trained, config

    texts = staticmethod(relevance_texts)

    def rewards(self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]) -> list[list[Reward]]:
        """The rewards of each group's plans, after one scan of the corpus for all pools. Raises ComputeError."""
        scored = list[list[Reward]]()
        for rewards, features in self._rewards_and_features(groups, vectors):
            scored.append([])
            for reward, share in zip(rewards, self._trained.shares(features), strict=True):
                # An empty plan is worth 0 by definition, whatever a net makes of its numbers.
                added = float(share) if reward.steps else 0.0
                # Added to the unclipped reward: of plans beyond a bound the net still tells the better one.
                total = sum(grounded_terms(reward.parts, reward.steps, self._config).values()) + added
                parts = reward.parts | {"net": added}
                scored[-1].append(replace(reward, parts=parts, total=float(min(max(total, -1.0), 1.0))))
        return scored

    def alignments(self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]) -> list[list[PooledAlignment]]:
        """Those of the grounded reward."""
        return self._grounded.alignments(groups, vectors)

    def attributions(self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]) -> list[dict[str, float]]:
        """What each feature of each group's first plan adds to its reward; empty without steps."""
        return [
            self._trained.attribution(features[0]) if group.plans[0] else {}
            for group, (_, features) in zip(groups, self._rewards_and_features(groups, vectors), strict=True)
        ]

    def _rewards_and_features(
        self, groups: Sequence[PromptGroup], vectors: Mapping[str, Vectors]
    ) -> Iterator[tuple[list[Reward], Float32]]:
        for rewards, alignment in self._grounded.rewards_and_alignments(groups, vectors):
            yield rewards, plan_features(alignment, rewards, self._trained.positions(alignment.texts.vectors))


def card_of(corpus: NarrationIndex) -> JsonObject:
    """Which corpus and encoder an index is of. Raises ConfigError for an index without a manifest."""
    manifest = getattr(corpus, "manifest", None)
    if manifest is None:
        raise ConfigError("A self-trained reward belongs to a corpus folder; open it with Corpus.open.")
    return {"corpus": manifest["id"], "encoder": dict(manifest["encoder"])}


def base_settings(config: GroundedConfig) -> JsonObject:
    """The settings of the grounded reward that a self-trained one stands on, as plain values."""
    return config.model_dump(mode="json", exclude={"self_trained", "self_trained_anyway"})


def train_nets(
    better: NDArray[np.floating],
    worse: NDArray[np.floating],
    weights: Sequence[float],
    drawn: Sequence[float],
    seed: int = 0,
) -> Nets:
    """Nets that give `better` [P, 49] more than `worse` [P, 49], by a logistic loss over pairs.

    `weights` [P] multiply the loss of a pair, `drawn` [P] how often it is drawn. All three nets are trained at once,
    each on pairs of its own.
    """
    random = np.random.default_rng(seed)
    # By both sides: standardised apart, the difference between them would be gone.
    both = np.concatenate([better, worse]).astype(np.float64)
    mean, deviation = both.mean(axis=0), both.std(axis=0) + 1e-6
    scaled = [np.clip((side - mean) / deviation, -_BEYOND, _BEYOND) for side in (better, worse)]
    weight = np.asarray(weights, np.float64)
    up_to = np.cumsum(drawn) / np.sum(drawn)
    count = len(FEATURES)
    shapes = {
        "first": (count, HIDDEN),
        "first_bias": (1, HIDDEN),
        "second": (HIDDEN, HIDDEN),
        "second_bias": (1, HIDDEN),
        "last": (HIDDEN, 1),
        "linear": (count, 1),
    }
    inputs = {
        "first": count,
        "first_bias": count,
        "second": HIDDEN,
        "second_bias": HIDDEN,
        "last": HIDDEN,
        "linear": count,
    }
    # U(-1, 1) / sqrt(inputs), for biases too, as torch.nn.Linear begins.
    p = {name: random.uniform(-1.0, 1.0, (SEEDS, *shape)) / np.sqrt(inputs[name]) for name, shape in shapes.items()}
    moments = {name: (np.zeros_like(value), np.zeros_like(value)) for name, value in p.items()}
    for step in range(STEPS):
        # By the inverse of the cumulative shares, of which rounding may leave the last one below 1.
        pairs = np.minimum(np.searchsorted(up_to, random.random((SEEDS, _BATCH))), len(weight) - 1)
        x = np.concatenate([side[pairs] for side in scaled], axis=1)
        below = np.tanh(x @ p["first"] + p["first_bias"])
        # Inverted dropout: the units kept are scaled up here, so that nothing is scaled when the nets are used.
        kept = (random.random(below.shape) >= _DROPPED) / (1.0 - _DROPPED)
        dropped = below * kept
        above = np.tanh(dropped @ p["second"] + p["second_bias"])
        value = (above @ p["last"] + x @ p["linear"])[..., 0]

        # At 50 the slope is that of infinity within rounding, and from 710 on the exponential overflows.
        difference = np.clip(value[:, :_BATCH] - value[:, _BATCH:], -50.0, 50.0)
        # The slope of log(1 + exp(-difference)), the loss of a pair in the model of Bradley and Terry (1952).
        slope = -weight[pairs] / (1.0 + np.exp(difference)) / _BATCH
        out = np.concatenate([slope, -slope], axis=1)[..., None]
        back = (out @ p["last"].transpose(0, 2, 1)) * (1.0 - above**2)
        further = (back @ p["second"].transpose(0, 2, 1)) * kept * (1.0 - below**2)
        gradients = {
            "first": x.transpose(0, 2, 1) @ further,
            "first_bias": further.sum(axis=1, keepdims=True),
            "second": dropped.transpose(0, 2, 1) @ back,
            "second_bias": back.sum(axis=1, keepdims=True),
            "last": above.transpose(0, 2, 1) @ out,
            "linear": x.transpose(0, 2, 1) @ out,
        }
        # To 0 at the end, so that the last batches move nothing.
        rate = _RATE * (1.0 - step / STEPS)
        for name, gradient in gradients.items():  # AdamW (Loshchilov and Hutter, 2019)
            slow, square = moments[name]
            # 1 - beta: beta_1 = .9 for the mean, beta_2 = .999 for the square.
            slow += 0.1 * (gradient - slow)
            square += 0.001 * (gradient**2 - square)
            turn = slow / (1.0 - 0.9 ** (step + 1)) / (np.sqrt(square / (1.0 - 0.999 ** (step + 1))) + 1e-8)
            p[name] = p[name] * (1.0 - rate * _DECAY) - rate * turn
    return Nets(mean=mean, deviation=deviation, **p)
