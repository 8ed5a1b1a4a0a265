"""What a study costs before anything starts: runs, hours, memory and disk, from the costs that a scale states."""

from collections.abc import Sequence
from dataclasses import dataclass

from recipe.experiments.stages import Training
from recipe.reproduce.measures import FrontierPlans, NextActions, Sampling
from recipe.reproduce.runs import Below, ScaleRuns
from recipe.training.cost import STARTING, training_seconds

EXAMPLES = 40_000
"""Training examples that are assumed where a scale takes all (paper: four datasets, four cuts of each video)."""
PROMPTS = 4_000
"""Prompts that are assumed where a scale takes all."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of what is left to do at a scale."""

    scale: str
    training_runs: int
    stages: int
    done: int
    """Stages that need not run."""
    hours: float
    """Of the stages that are left, one after the other on one device."""
    longest_hours: float
    """Of the longest chain of stages: no number of devices is faster."""
    memory_gb: float
    """Of each device."""
    disk_gb: float
    source: str
    """Where these figures come from."""


def estimate(made: ScaleRuns, done: Sequence[str]) -> Estimate:
    """The cost of the stages that are not in `done`, by name."""
    seconds = {stage.name: 0.0 if stage.name in done else _seconds(stage.settings, made) for stage in made.stages}
    until: dict[str, float] = {}
    for stage in made.stages:
        until[stage.name] = seconds[stage.name] + max((until[need] for need in stage.needs), default=0.0)
    training = [stage for stage in made.stages if isinstance(_inner(stage.settings), Training)]
    left = [stage for stage in training if stage.name not in done]
    return Estimate(
        scale=made.name,
        training_runs=len(left),
        stages=len(made.stages),
        done=len(done),
        hours=sum(seconds.values()) / 3600,
        longest_hours=max(until.values(), default=0.0) / 3600,
        memory_gb=made.scale.cost.memory_gb,
        disk_gb=len(left) * made.scale.cost.model_gb,
        source=made.scale.cost.source,
    )


def _inner(settings: object) -> object:
    return settings.settings if isinstance(settings, Below) else settings


def _seconds(settings: object, made: ScaleRuns) -> float:
    own, cost, scale = _inner(settings), made.scale.cost, made.scale
    examples = scale.world.get("train", EXAMPLES) if made.on_world else scale.train or EXAMPLES
    prompts = 2 * scale.world.get("test", PROMPTS) if made.on_world else scale.test or PROMPTS
    if isinstance(own, Training):
        return STARTING + training_seconds(own.config, cost, examples)
    if isinstance(own, Sampling | FrontierPlans):
        return STARTING + cost.plan_seconds * prompts * getattr(own, "samples", 1)
    if isinstance(own, NextActions):
        return STARTING + cost.plan_seconds * min(prompts, own.limit or prompts) * own.cost
    return STARTING
