"""Controls of a measure of agreement: plans that nobody would call planned, and which systems do not beat them.

A measure with a single reference pays for more than planning: for naming the goal, for saying what is done, for the
vocabulary of a goal. What it pays for these is what a system has to beat. Controls are plans like any other and are
measured like them; a system is compared with a control prompt by prompt, with intervals that draw whole goals.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TypeVar

import numpy as np

from recipe.evaluation.metrics import Difference
from recipe.evaluation.validity.measure import PromptMeans, ScoredPlan
from recipe.planning.predictions import Prediction
from recipe.stats import paired_interval, video_of
from recipe.text import same_goal
from recipe.types import Example

Sample = TypeVar("Sample", Prediction, ScoredPlan)

GOAL, HISTORY, LABELS = "the goal alone", "history copied", "two labels of the goal"
SAMPLE = "a random sample of the base"
"""One of the base's samples of each prompt: what choosing one by a reward has to beat."""
COUNT = 2
"""Labels that a plan of labels has."""


def control_plans(
    examples: Sequence[Example], annotated: Iterable[Example], seed: int = 0
) -> dict[str, dict[str, Prediction]]:
    """Control to the plan of each example that has one, by its id.

    Two labels of the goal are drawn, seeded, from the steps of other videos of the same goal among `annotated`; an
    example whose goal no other video has two different steps of has no such plan.
    """
    labels: dict[tuple[str, str], dict[str, set[str]]] = {}
    for example in annotated:
        videos = labels.setdefault(_goal(example), {})
        videos.setdefault(video_of(example), set()).update(example.history, example.continuation)
    plans_of: dict[str, dict[str, Prediction]] = {GOAL: {}, HISTORY: {}, LABELS: {}}
    for example in examples:
        name, own = example.example_id, video_of(example)
        plans_of[GOAL][name] = Prediction(name, (example.goal,))
        plans_of[HISTORY][name] = Prediction(name, example.history)
        # Other videos alone: the labels of its own are the reference.
        known = labels.get(_goal(example), {})
        # Sorted: the order of a set of texts differs from process to process.
        steps = sorted(set().union(*(steps for video, steps in known.items() if video != own)))
        if len(steps) >= COUNT:
            plans_of[LABELS][name] = Prediction(name, tuple(_random(seed, name).sample(steps, COUNT)))
    return {control: plans for control, plans in plans_of.items() if plans}


def random_samples(predictions: Iterable[Sample], seed: int = 0) -> dict[str, Sample]:
    """One sample of each example, drawn, seeded, by its id."""
    samples: dict[str, list[Sample]] = {}
    for prediction in predictions:
        samples.setdefault(prediction.example_id, []).append(prediction)
    return {
        name: _random(seed, name).choice(sorted(own, key=lambda item: item.sample)) for name, own in samples.items()
    }


def control_differences(
    split: str, systems: Mapping[str, PromptMeans], controls: Mapping[str, PromptMeans], metric: str, seed: int = 0
) -> tuple[Difference, ...]:
    """Each system minus each control in a metric, over the prompts that both have; none where they share none."""
    differences = []
    for system, means in systems.items():
        for control, base in controls.items():
            index = {name: row for row, name in enumerate(base.example_ids)}
            rows = [row for row, name in enumerate(means.example_ids) if name in index]
            if rows and metric in means.values and metric in base.values:
                others = base.values[metric][[index[means.example_ids[row]] for row in rows]]
                goals = [means.goals[row] for row in rows]
                value = paired_interval(np.asarray(means.values[metric])[rows], others, goals, seed)
                differences.append(Difference(split, system, control, metric, value))
    return tuple(differences)


def _goal(example: Example) -> tuple[str, str]:
    return example.source, same_goal(example.goal)


def _random(seed: int, name: str) -> Random:
    return Random(hashlib.sha256(f"{seed}/{name}".encode()).digest())
