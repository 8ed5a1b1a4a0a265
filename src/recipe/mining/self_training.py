"""Training of a verifier on the corpus that it reads, and the test whether it should be used.

Pseudo-prompts (`recipe.mining.pseudo_prompts`) are corrupted in the audit's classes and by random edits. Their own
narrations leave the corpus while their plans are scored. The nets of `recipe.reward.self_trained` learn from pairs:

    classes    the true continuation against each of its corruptions
    edits      of two edited plans, the one with the higher F1 in order, where they differ by more than .08
    samples    of two plans that a policy wrote, the one that is more like the true continuation in order

The test trains nets on three quarters of the goals and asks them about the others, four times over. Whether the reward
should be used follows from it without any annotation. It is necessary and not sufficient (docs/reward.md).
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from recipe.alignment import backends
from recipe.artifacts import JsonObject, fingerprint
from recipe.audit.attack import composed_plans, spread
from recipe.audit.perturb import ALTERNATIVE, TRUE, AuditPrompt, build_prompts, select
from recipe.audit.samples import prompt_id
from recipe.audit.score import wins
from recipe.config.reward import RewardConfig
from recipe.data.video_ids import VideoIds
from recipe.errors import InputError
from recipe.evaluation.matching import Likeness, calibrate, ordered_likeness
from recipe.mining.pseudo_prompts import (
    CorpusKind,
    PartOfCorpus,
    PseudoProcedures,
    RankedPlan,
    edited_plans,
    foreign_steps,
    other_words,
    pseudo_procedures,
    repeats_in_other_words,
)
from recipe.models.store import AnswerStore
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.reward.embeddings import NarrationIndex, StepEmbeddings
from recipe.reward.grounded import GroundedMethod
from recipe.reward.plan_features import plan_features
from recipe.reward.scorer import PromptGroup, Steps
from recipe.reward.self_trained import SEEDS, PositionModel, SelfTrained, base_settings, card_of, train_nets
from recipe.stats import Interval, mean_interval
from recipe.text import same_goal
from recipe.types import Procedure

Float64 = NDArray[np.float64]
PairKind = Literal["classes", "edits", "samples"]
PAIRS: tuple[PairKind, ...] = get_args(PairKind)
MEASURES = {
    "edits": "pairs of edits ranked right",
    "classes": "true over the audit's corruptions",
    "alternative": "true over another true plan",
    "best_of": "true over the best of 64 composed plans",
    "repeats": "true over repeats in other words",
    "samples": "pairs of a policy's plans ranked right",
}
"""What the test measures on pseudo-prompts that the nets have not seen, each as a share."""

PROMPTS = 120
FEWEST_PROMPTS = 24
"""Pseudo-prompts without which nothing is trained."""
# Edited plans of a prompt, and plans with repeats in other words.
_EDITS, _REPEATS = 24, 4
_FOLDS = 4
# Prompts with composed plans.
_ATTACKED = 48
# Difference of quality from which on one plan is better than another.
_APART = 0.08
# Weight of a ranked pair at most, which else is their difference of quality, and of a pair of a class.
_HEAVIEST, _CLASS_WEIGHT = 0.5, 0.3
# How often pairs of each kind are drawn, against each other.
_DRAWN: Mapping[PairKind, float] = {"classes": 0.45, "edits": 0.45, "samples": 0.3}
# Shares of prompts in which a true plan may win over another one.
_TIED = (0.35, 0.65)
# Prompts with a figure below which it decides nothing.
_FEW = 10
# Prompts that are scored and kept at a time.
_TOGETHER = 8
# Of the procedure: kept work of another one is not used.
_VERSION = 1


@dataclass(slots=True)
class PseudoPrompt:
    """A prompt made of the corpus, all of its plans, and what was computed of them."""

    prompt: AuditPrompt
    edits: list[RankedPlan]
    repeats: list[Steps]
    composed: list[Steps]
    samples: list[RankedPlan] = field(default_factory=list)
    places: dict[Steps, int] = field(default_factory=dict)
    """Of each different plan, its row."""
    totals: Float64 = field(default_factory=lambda: np.zeros(0))
    """The grounded reward of each different plan, [G]."""
    numbers: Float64 = field(default_factory=lambda: np.zeros((0, 0)))
    """[G, 49]."""

    def rows(self, plans: Sequence[Steps]) -> list[int]:
        """The rows of plans."""
        return [self.places[plan] for plan in plans]

    @property
    def corrupted(self) -> list[Steps]:
        """The corruptions of the true continuation that hold steps."""
        return [plan for name, plan in self.prompt.variants.items() if name not in (TRUE, ALTERNATIVE) and plan]


class GateRow(NamedTuple):
    """One measure of the test, with intervals over goals; the difference is paired."""

    measure: str
    grounded: float
    with_net: Interval
    difference: Interval


class Gate(NamedTuple):
    """What the test says."""

    rows: tuple[GateRow, ...]
    use: bool
    reason: str
    """In words, why it should be used or not."""

    @classmethod
    def of(cls, rows: Sequence[GateRow]) -> "Gate":
        """Whether a reward with these figures should be used, and why.

        It must rank edits better, beyond its interval; leave a true plan and another true one tied, from 35 to 65
        within its interval, or no further apart than before; and be worse, beyond its interval, neither against the
        best of 64 and repeats nor at a policy's plans, where there are any.
        """
        shown, by = tuple(rows), {row.measure: row for row in rows}
        edits = by.get("edits")
        if edits is None or not (edits.difference.sign or 0) > 0:
            return cls(shown, False, "it does not rank edited plans better than the grounded reward does")
        if (tie := by.get("alternative")) is not None and tie.difference.observations >= _FEW:
            # Another narration's steps are chosen by rule, so that even a perfect reward need not find a tie.
            share, (low, high) = tie.with_net, _TIED
            least, greatest = (share.mean if end is None else end for end in (share.low, share.high))
            if (least > high or greatest < low) and abs(share.mean - 0.5) > abs(tie.grounded - 0.5):
                preferred = f"{100 * share.mean:.0f}% of prompts, which should tie"
                return cls(shown, False, f"of two true plans it prefers one in {preferred}")
        for measure in ("best_of", "repeats", "samples"):
            row = by.get(measure)
            if row is not None and row.difference.observations >= _FEW and row.difference.sign == -1:
                return cls(shown, False, f"it is worse than the grounded reward at: {MEASURES[measure]}")
        return cls(shown, True, "it ranks edited plans better, and nothing else is worse beyond chance")


class Trained(NamedTuple):
    """A self-trained reward before it is written."""

    reward: SelfTrained
    gate: Gate
    card: JsonObject
    """For `SelfTrained.write`."""


@dataclass(slots=True)
class PseudoSet:
    """All pseudo-prompts of a corpus with the part of the corpus that they are scored against."""

    pseudo: PseudoProcedures
    rest: PartOfCorpus
    prompts: list[PseudoPrompt]
    embeddings: StepEmbeddings
    tasks: int
    """Prompts that come from procedures of the user."""

    def add_samples(self, samples: Sequence[Prediction]) -> None:
        """Give each prompt the plans that a policy wrote for it, ranked by their likeness in order to the true one.

        Raises InputError where none is for a prompt.
        """
        own, embeddings = {prompt_id(prompt.prompt): prompt for prompt in self.prompts}, self.embeddings
        sampled = [prediction for prediction in samples if prediction.example_id in own and prediction.steps]
        if not sampled:
            raise InputError(
                "no sample is for a pseudo-prompt; write the prompts with --prompts-output, with the same corpus, "
                "--tasks, --prompts and --seed, and plan for them."
            )
        texts = [step for prompt in self.prompts for step in prompt.prompt.true] + [
            step for prediction in sampled for step in prediction.steps
        ]
        likeness = Likeness(embeddings.stacked, calibrate(embeddings.stacked), texts)
        for prediction in sampled:
            prompt = own[prediction.example_id]
            ordered = ordered_likeness(likeness.between(prediction.steps, prompt.prompt.true))
            # Dice's coefficient, with the ordered likeness in place of the steps that both plans share.
            quality = 2 * ordered / (len(prediction.steps) + len(prompt.prompt.true))
            prompt.samples.append(RankedPlan(prediction.steps, quality))


def pseudo_set(
    corpus: NarrationIndex,
    config: RewardConfig,
    *,
    tasks: Sequence[Procedure] = (),
    count: int = PROMPTS,
    kind: CorpusKind | None = None,
    samples: Sequence[Prediction] = (),
    seed: int = 0,
) -> PseudoSet:
    """The pseudo-prompts of a corpus, and of the user's `tasks`, with all plans that are made of them.

    The same input gives the same prompts, whatever the `samples`, which are predictions for them. Raises InputError for
    a corpus without goals, of one goal, or too small, and for samples of which none is for a prompt.
    """
    # Room for every step of all plans: those of a prompt share most of them.
    embeddings = StepEmbeddings(corpus.encoder, 1 << 18)
    pseudo = pseudo_procedures(corpus, embeddings.stacked, count, kind, seed)
    selection = select([*pseudo.procedures, *tasks], seed)
    if len(selection.audited) < FEWEST_PROMPTS:
        raise InputError(
            f"A self-trained reward needs {FEWEST_PROMPTS} pseudo-prompts, and {len(selection.audited)} of the "
            f"{len(corpus):,} narrations can be one; use a larger corpus, or add your own procedures with --tasks."
        )
    task_videos = VideoIds(procedure.video_id for procedure in tasks)
    also = (
        [number for number in range(len(corpus)) if task_videos.may_be(corpus.narration(number).video_id)]
        if tasks
        else []
    )
    rest = PartOfCorpus(corpus, [*pseudo.numbers, *also])
    if problem := config.contrast_problem(len(rest)):
        raise InputError(f"Without the narrations of its pseudo-prompts the corpus is too small to train on. {problem}")

    prompts = build_prompts(selection, embeddings.stacked, seed)
    foreign = foreign_steps(prompts, embeddings.stacked, seed)
    steps = [step for prompt in prompts for step in (*prompt.history, *prompt.true)]
    reworded = other_words(rest, embeddings.stacked, steps)
    attacked = {id(prompt) for prompt in spread(prompts, _ATTACKED)}
    made = [
        PseudoPrompt(
            prompt,
            edited_plans(prompt, others, reworded, _EDITS, seed),
            repeats_in_other_words(prompt, reworded, _REPEATS, seed),
            composed_plans(prompt, seed) if id(prompt) in attacked else [],
        )
        for prompt, others in zip(prompts, foreign, strict=True)
    ]
    prompt_set = PseudoSet(pseudo, rest, made, embeddings, sum(prompt.source != "pseudo" for prompt in prompts))
    if samples:
        prompt_set.add_samples(samples)
    return prompt_set


def compute_numbers(
    prompt_set: PseudoSet, corpus: NarrationIndex, config: RewardConfig, work: Path | None, progress: Progress = SILENT
) -> PositionModel:
    """Score all plans of all prompts against the rest of the corpus; returns the model of positions that was learned.

    A folder `work` keeps what is done, so that a call that was killed goes on there with the same result. Raises as
    `Verifier.score`.
    """
    # With the grounded reward alone: the nets must not learn from those of an earlier training.
    base = config.grounded.model_copy(update={"self_trained": "", "self_trained_anyway": False})
    method = GroundedMethod(prompt_set.rest, config.model_copy(update={"grounded": base}), backends.load("auto"))
    positions = PositionModel.of(prompt_set.rest, method.centre)
    store, identity = None, list[Any]()
    if work is not None:
        own, rest = sorted(prompt_set.pseudo.numbers), prompt_set.rest
        # Narrations of the user's procedures leave the corpus, too: others, as many, leave another one.
        also = sorted({*rest.left_out}.difference(own))
        identity = [_VERSION, card_of(corpus), base_settings(config.grounded), (own, len(rest), *also)]
        store = AnswerStore(work)
    with progress.task("scoring plans of pseudo-prompts", len(prompt_set.prompts)) as advance:
        for start in range(0, len(prompt_set.prompts), _TOGETHER):
            batch, groups = prompt_set.prompts[start : start + _TOGETHER], list[PromptGroup]()
            for prompt in batch:
                ranked = [plan.steps for plan in (*prompt.edits, *prompt.samples)]
                plans = list(
                    dict.fromkeys([*prompt.prompt.variants.values(), *ranked, *prompt.repeats, *prompt.composed])
                )
                prompt.places = {plan: row for row, plan in enumerate(plans)}
                groups.append(PromptGroup(prompt.prompt.goal, prompt.prompt.history, plans))
            key = fingerprint([identity, groups])
            entry = None if store is None else store.find(key)
            if entry is None:
                texts = [text for group in groups for text in method.texts(group)]
                scored = method.rewards_and_alignments(groups, prompt_set.embeddings.by_text(texts))
                entry = {
                    "totals": [[reward.total for reward in rewards] for rewards, _ in scored],
                    "numbers": [
                        plan_features(alignment, rewards, positions(alignment.texts.vectors)).tolist()
                        for rewards, alignment in scored
                    ],
                }
                if store is not None:
                    store.keep(key, entry)
            for prompt, totals, numbers in zip(batch, entry["totals"], entry["numbers"], strict=True):
                prompt.totals, prompt.numbers = np.array(totals, np.float64), np.array(numbers, np.float64)
            advance(len(batch))
    return positions


def train(
    prompts: Sequence[PseudoPrompt], positions: PositionModel, *, seed: int = 0, kinds: Sequence[PairKind] = PAIRS
) -> SelfTrained:
    """Nets trained on the pairs of these prompts, with their weight relative to the grounded reward."""
    better, worse = list[Float64](), list[Float64]()
    weights, kind_of = list[float](), list[PairKind]()
    for prompt in prompts:
        true = prompt.places[prompt.prompt.true]
        pairs: dict[PairKind, list[tuple[int, int, float]]] = {kind: [] for kind in PAIRS}
        pairs["classes"] = [(true, row, _CLASS_WEIGHT) for row in prompt.rows(prompt.corrupted)]
        pairs["edits"] = _ranked_pairs(prompt, [*prompt.edits, RankedPlan(prompt.prompt.true, 1.0)])
        pairs["samples"] = _ranked_pairs(prompt, prompt.samples)
        for kind in kinds:
            for first, second, weight in pairs[kind]:
                better.append(prompt.numbers[first])
                worse.append(prompt.numbers[second])
                weights.append(weight)
                kind_of.append(kind)
    counts = {kind: kind_of.count(kind) for kind in PAIRS}
    # A kind with many pairs must not outweigh the others.
    drawn = [_DRAWN[kind] / counts[kind] for kind in kind_of]
    nets = train_nets(np.stack(better), np.stack(worse), weights, drawn, seed=seed)

    # Spread and range over the plans that hold steps.
    held = [[row for plan, row in prompt.places.items() if plan] for prompt in prompts]
    values = [nets.values(prompt.numbers[rows]) for prompt, rows in zip(prompts, held, strict=True)]
    spread_of_net = float(np.mean([own.std() for own in values]))
    spread_of_reward = float(np.mean([prompt.totals[rows].std() for prompt, rows in zip(prompts, held, strict=True)]))
    every = np.concatenate(values)
    # With this weight the nets spread the plans of a prompt as far as the grounded reward does.
    return SelfTrained(
        nets, positions, spread_of_reward / max(spread_of_net, 1e-9), float(every.min()), float(every.max())
    )


def _ranked_pairs(prompt: PseudoPrompt, plans: Sequence[RankedPlan]) -> list[tuple[int, int, float]]:
    """Rows of a better and a worse plan, and the weight of the pair."""
    rows = prompt.rows([plan.steps for plan in plans])
    return [
        (rows[i], rows[j], min(first.quality - second.quality, _HEAVIEST))
        for i, first in enumerate(plans)
        for j, second in enumerate(plans)
        if first.steps and second.steps and first.quality - second.quality > _APART
    ]


def rewards_of(prompt: PseudoPrompt, trained: SelfTrained) -> Float64:
    """R of each different plan of a prompt, [G]."""
    shares = trained.shares(prompt.numbers)
    for plan, row in prompt.places.items():
        if not plan:
            shares[row] = 0.0
    return np.clip(prompt.totals + shares, -1.0, 1.0)


def run_gate(
    prompts: Sequence[PseudoPrompt], positions: PositionModel, *, seed: int = 0, kinds: Sequence[PairKind] = PAIRS
) -> Gate:
    """The test on prompts of goals that the nets were not trained on."""
    # By goal, so that no net is tested on a goal that it was trained on.
    folds = [
        int.from_bytes(hashlib.sha256(f"{seed}/{same_goal(prompt.prompt.goal)}".encode()).digest()[:4], "big") % _FOLDS
        for prompt in prompts
    ]
    shares: dict[str, list[tuple[float, float, str]]] = {measure: [] for measure in MEASURES}
    for fold in range(_FOLDS):
        own = [prompt for prompt, place in zip(prompts, folds, strict=True) if place == fold]
        others = [prompt for prompt, place in zip(prompts, folds, strict=True) if place != fold]
        if not own or not others:
            continue
        trained = train(others, positions, seed=seed, kinds=kinds)
        for prompt in own:
            before, after = _shares(prompt, prompt.totals), _shares(prompt, rewards_of(prompt, trained))
            for measure, share in before.items():
                shares[measure].append((share, after[measure], same_goal(prompt.prompt.goal)))
    rows = []
    for measure, triples in shares.items():
        if triples:
            grounded, with_net, goals = zip(*triples, strict=True)
            difference = mean_interval(np.subtract(with_net, grounded), goals, seed)
            rows.append(GateRow(measure, float(np.mean(grounded)), mean_interval(with_net, goals, seed), difference))
    return Gate.of(rows)


def _shares(prompt: PseudoPrompt, rewards: Float64) -> dict[str, float]:
    """The measures of one prompt, those that it has."""
    true = float(rewards[prompt.places[prompt.prompt.true]])
    shares = {}
    if pairs := _ranked_pairs(prompt, [*prompt.edits, RankedPlan(prompt.prompt.true, 1.0)]):
        shares["edits"] = float(np.mean([wins(float(rewards[a]), float(rewards[b])) for a, b, _ in pairs]))
    if plans := prompt.corrupted:
        shares["classes"] = float(np.mean([wins(true, float(rewards[row])) for row in prompt.rows(plans)]))
    if alternative := prompt.prompt.variants.get(ALTERNATIVE):
        shares["alternative"] = wins(true, float(rewards[prompt.places[alternative]]))
    if prompt.composed:
        shares["best_of"] = wins(true, float(rewards[prompt.rows(prompt.composed)].max()))
    if prompt.repeats:
        shares["repeats"] = float(np.mean([wins(true, float(rewards[row])) for row in prompt.rows(prompt.repeats)]))
    if pairs := _ranked_pairs(prompt, prompt.samples):
        shares["samples"] = float(np.mean([wins(float(rewards[a]), float(rewards[b])) for a, b, _ in pairs]))
    return shares


def self_train(
    corpus: NarrationIndex,
    config: RewardConfig,
    prompt_set: PseudoSet,
    *,
    seed: int = 0,
    work: Path | None = None,
    progress: Progress = SILENT,
) -> Trained:
    """Train and test a reward on pseudo-prompts. Raises as `compute_numbers`."""
    positions = compute_numbers(prompt_set, corpus, config, work, progress)
    with progress.task("training and testing", _FOLDS + 1) as advance:
        gate = run_gate(prompt_set.prompts, positions, seed=seed)
        advance(_FOLDS)
        reward = train(prompt_set.prompts, positions, seed=seed)
        advance(1)
    if not math.isfinite(reward.weight + reward.lowest + reward.highest):
        raise InputError("The nets did not converge to numbers; check the corpus with: recipe corpus verify.")
    card = card_of(corpus) | {
        "grounded": base_settings(config.grounded),
        "kind": prompt_set.pseudo.kind,
        "seed": seed,
        "nets": SEEDS,
        "counts": {
            "narrations": len(corpus),
            "left_out": len(corpus) - len(prompt_set.rest),
            "prompts": len(prompt_set.prompts),
            "tasks": prompt_set.tasks,
            "goals": len({same_goal(prompt.prompt.goal) for prompt in prompt_set.prompts}),
            "plans": sum(len(prompt.places) for prompt in prompt_set.prompts),
            "samples": sum(len(prompt.samples) for prompt in prompt_set.prompts),
        },
        "gate": [
            {"measure": row.measure, "grounded": row.grounded, "with_net": row.with_net.mean}
            | {"difference": [row.difference.mean, row.difference.low, row.difference.high]}
            | {"prompts": row.difference.observations}
            for row in gate.rows
        ],
        "use": gate.use,
        "reason": gate.reason,
    }
    return Trained(reward, gate, card)
