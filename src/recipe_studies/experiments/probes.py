"""Probe plans: the rewards of the reference continuation and of perturbed plans for the same prompts."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from recipe.artifacts import to_json, write_json
from recipe.config import RewardConfig
from recipe.data.examples import read_examples
from recipe.progress import Progress
from recipe.types import Example
from recipe_studies.experiments.results import ProbePlan, RewardParts
from recipe_studies.experiments.study import CORPUS, TEST

PROBES = "probe_rewards.json"
PROMPTS = 60
"""Test prompts that the plans are made for, at most."""
SMALL_TALK_LINES = 12

REFERENCE, OTHER_GOAL, SMALL_TALK = "true continuation", "continuation of another goal", "small talk"
Perturbation = Callable[[Example, Example, random.Random], Sequence[str]]
"""From an example and one of another goal to a plan for the first."""
PERTURBATIONS: Mapping[str, Perturbation] = {
    REFERENCE: lambda example, _, __: example.continuation,
    "every step said twice": lambda example, _, __: [step for step in example.continuation for _ in range(2)],
    "first half": lambda example, _, __: example.continuation[: max(1, len(example.continuation) // 2)],
    "reversed": lambda example, _, __: example.continuation[::-1],
    "history copied": lambda example, _, __: example.history,
    "history, then the true continuation": lambda example, _, __: (*example.history, *example.continuation),
    OTHER_GOAL: lambda _, other, __: other.continuation,
}


@dataclass(frozen=True, slots=True)
class ProbeRewards:
    """The verifier that rewards the probe plans, and whether their validity is known, too."""

    reward: RewardConfig
    world: bool
    seed: int


def reward_probes(run_dir: Path, settings: ProbeRewards, progress: Progress) -> None:
    """Mean reward and its parts of every kind of probe plan over the same prompts, to `probe_rewards.json`."""
    from recipe.corpus.store import Corpus
    from recipe.reward.scorer import PromptGroup, score_or_raise
    from recipe.reward.verifier import Verifier
    from recipe.world.load import load_world
    from recipe.world.validity import score_plan

    examples = read_examples(run_dir / TEST)
    prompts = examples[:: max(1, len(examples) // PROMPTS)][:PROMPTS]
    world = load_world() if settings.world else None
    perturbations = dict(PERTURBATIONS)
    if world is not None:
        lines = world.talk.small_talk
        perturbations[SMALL_TALK] = lambda _, __, rng: rng.sample(lines, min(SMALL_TALK_LINES, len(lines)))
    if len({example.goal for example in examples}) == 1:
        del perturbations[OTHER_GOAL]
    rng = random.Random(settings.seed)
    groups = []
    for example in prompts:
        other = rng.choice([row for row in examples if row.goal != example.goal] or [example])
        plans = [perturb(example, other, rng) for perturb in perturbations.values()]
        groups.append(PromptGroup.of(example.goal, example.history, plans))
    verifier = Verifier(Corpus.open(run_dir / CORPUS), settings.reward)
    with progress.task("rewarding probe plans"):
        rewards = score_or_raise(verifier, groups)
    probes = []
    for index, name in enumerate(perturbations):
        validity = None
        if world is not None:
            plans = [group.plans[index] for group in groups]
            pairs = zip(groups, plans, strict=True)
            validity = fmean(score_plan(world, group.goal, group.history, plan).score for group, plan in pairs)
        own = [group_rewards[index] for group_rewards in rewards]
        names = ("total", "aligned_history", "aligned_full", "rho", "gated")
        means = {part: fmean(getattr(reward, part) for reward in own) for part in names}
        probes.append(ProbePlan(name, RewardParts(**means, plans=len(own)), validity))
    write_json(run_dir / PROBES, to_json(probes))
