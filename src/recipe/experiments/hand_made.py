"""Plans written on purpose: what the verifier pays for the true continuation and for ways of spoiling it."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from recipe.artifacts import from_json, read_json, to_json, write_json
from recipe.config import RewardConfig
from recipe.data.examples import read_examples
from recipe.experiments.results import HandMade, RewardParts
from recipe.experiments.stages import CORPUS, TEST
from recipe.progress import Progress
from recipe.types import Example, Reward

HAND_MADE = "hand_made.json"
PROMPTS = 60
"""Test prompts that the plans are made for, at most."""
SMALL_TALK_LINES = 12

Spoil = Callable[[Example, Example, random.Random], Sequence[str]]
"""From an example and one of another goal to a plan for the first."""

OTHER_GOAL = "continuation of another goal"
PLANS: Mapping[str, Spoil] = {
    "true continuation": lambda example, _, __: example.continuation,
    "every step said twice": lambda example, _, __: [step for step in example.continuation for _ in range(2)],
    "first half": lambda example, _, __: example.continuation[: max(1, len(example.continuation) // 2)],
    "reversed": lambda example, _, __: example.continuation[::-1],
    "history copied": lambda example, _, __: example.history,
    "history, then the true continuation": lambda example, _, __: (*example.history, *example.continuation),
    OTHER_GOAL: lambda _, other, __: other.continuation,
}


@dataclass(frozen=True, slots=True)
class HandMadePlans:
    """Which verifier is asked, and whether the truth is known."""

    reward: RewardConfig
    world: bool
    seed: int


def reward_hand_made(run_dir: Path, settings: HandMadePlans, progress: Progress) -> None:
    """Mean reward and its parts of every kind of plan over the same prompts, to `hand_made.json`."""
    from recipe.corpus.store import Corpus
    from recipe.reward.scorer import PromptGroup, score_or_raise
    from recipe.reward.verifier import Verifier

    examples = read_examples(run_dir / TEST)
    prompts = examples[:: max(1, len(examples) // PROMPTS)][:PROMPTS]
    plans = dict(PLANS) | (_small_talk() if settings.world else {})
    if len({example.goal for example in examples}) == 1:
        del plans[OTHER_GOAL]
    verifier = Verifier(Corpus.open(run_dir / CORPUS), settings.reward)
    rng = random.Random(settings.seed)
    written: dict[str, list[Sequence[str]]] = {name: [] for name in plans}
    rewards: dict[str, list[Reward]] = {name: [] for name in plans}
    groups = []
    for example in prompts:
        other = rng.choice([one for one in examples if one.goal != example.goal] or [example])
        made = [spoil(example, other, rng) for spoil in plans.values()]
        groups.append(PromptGroup.of(example.goal, example.history, made))
    with progress.task("rewarding hand-made plans"):
        scored = score_or_raise(verifier, groups)
    for group, earned in zip(groups, scored, strict=True):
        for name, plan, reward in zip(plans, group.plans, earned, strict=True):
            written[name].append(plan)
            rewards[name].append(reward)
    validity = _validity(prompts, written) if settings.world else {}
    found = [HandMade(name, mean_parts(rewards[name]), validity.get(name)) for name in plans]
    write_json(run_dir / HAND_MADE, to_json(found))


def read_hand_made(run_dir: Path) -> tuple[HandMade, ...]:
    """What `reward_hand_made` found."""
    path = run_dir / HAND_MADE
    return from_json(read_json(path), tuple[HandMade, ...], str(path))


def mean_parts(rewards: Sequence[Reward]) -> RewardParts:
    """Means of the parts of several rewards."""
    return RewardParts(
        total=fmean(reward.total for reward in rewards),
        aligned_history=fmean(reward.aligned_history for reward in rewards),
        aligned_full=fmean(reward.aligned_full for reward in rewards),
        rho=fmean(reward.rho for reward in rewards),
        gated=fmean(reward.gated for reward in rewards),
        plans=len(rewards),
    )


def _small_talk() -> dict[str, Spoil]:
    from recipe.world.load import load_world

    lines = load_world().talk.small_talk
    return {"small talk": lambda _, __, rng: rng.sample(lines, min(SMALL_TALK_LINES, len(lines)))}


def _validity(prompts: Sequence[Example], plans: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, float]:
    from recipe.world.load import load_world
    from recipe.world.validity import score_plan

    world = load_world()

    def mean(written: Sequence[Sequence[str]]) -> float:
        pairs = zip(prompts, written, strict=True)
        return fmean(score_plan(world, one.goal, one.history, plan).score for one, plan in pairs)

    return {name: mean(written) for name, written in plans.items()}
