"""Examples for planners, split by goal and by cut point, and noisy pre-training text for a base model.

A cut point is a goal with an ordered history. Held-out goals belong to `test_goals`. Of the other goals, a
quarter of the cut points, chosen by a hash, belong to `test_cuts`: the planner knows the goal but has never
been trained to go on from there.
"""

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from recipe.errors import InputError
from recipe.types import Example
from recipe.world.graph import TaskGraph, World
from recipe.world.narrator import SOURCE

Split = Literal["train", "test_cuts", "test_goals"]
SPLITS: tuple[Split, ...] = get_args(Split)
NOISY_SPLIT = "careless"
"""The split name of noisy pre-training text."""

TEST_SHARE = 4
"""One in so many cut points is tested on."""
FEWEST_LEFT = 2
"""Steps that a cut leaves to be planned, at least."""
# Tries to find a prompt that was not drawn yet.
_DRAWS = 50


@dataclass(frozen=True, slots=True)
class TextNoise:
    """Errors of noisy pre-training text: each number is a probability per step."""

    drop: float = 0.22
    swap: float = 0.3
    alien: float = 0.25
    repeat: float = 0.12
    stop: float = 0.12
    """Probability, tried again and again, that the last step is missing."""
    systematic: float = 0.0
    """Share of a goal's texts that has each of the goal's own errors, which are drawn once: a quarter of its steps is
    forgotten, a fifth of its neighbours change places, and for every seven steps there is a foreign one. With
    independent errors alone, a base model's likeliest plan is the right one."""


Cut = tuple[tuple[str, ...], tuple[str, ...]]
"""Step ids done and step ids left."""


def cut_split(graph: TaskGraph, history: Sequence[str]) -> Split:
    """The split of a cut point, of step ids; stable across runs, machines and versions of Python."""
    if graph.held_out:
        return "test_goals"
    # Not hash(), which Python salts anew in every process.
    share = zlib.crc32("\n".join((graph.goal, *history)).encode()) % TEST_SHARE
    return "train" if share else "test_cuts"


def draw_examples(
    world: World, split: str, count: int, seed: int = 0, goals: Sequence[str] | None = None
) -> list[Example]:
    """`count` examples of a split: random valid orders, cut after at least one step and before the last two.

    Goals, all unless `goals` names some, take turns; a prompt comes up again only when no goal gives a new one. Fewer
    examples of the same seed are the first of more. Raises InputError for an unknown split or goal, and for goals
    without a cut point in the split.
    """
    if split not in SPLITS:
        raise InputError(f"The world has no split {split!r}; the splits are {', '.join(SPLITS)}.")
    graphs = [world.graph(goal) for goal in (world.goals if goals is None else goals)]
    graphs = [graph for graph in graphs if graph.held_out == (split == "test_goals")]
    rng = random.Random(f"examples {split} {seed}")
    examples: list[Example] = []
    drawn: set[tuple[str, tuple[str, ...]]] = set()
    while len(examples) < count:
        before = len(examples)
        for graph in graphs:
            video_id = f"world-{split}-{seed}-{len(examples):06d}"
            for _ in range(_DRAWS):
                cut = _cut(graph, rng)
                if cut_split(graph, cut[0]) != split:
                    continue
                example = _example(world, graph, rng, video_id, split, cut)
                if (example.goal, example.history) not in drawn:
                    drawn.add((example.goal, example.history))
                    examples.append(example)
                    break
        if len(examples) == before and not drawn:
            raise InputError(f"The world has no cut point in split {split!r}; add goals.")
        # All prompts that there are have come: they may come again.
        if len(examples) == before:
            drawn.clear()
    return examples[:count]


def noisy_examples(
    world: World,
    count: int,
    seed: int = 0,
    goals: Sequence[str] | None = None,
    noise: TextNoise = TextNoise(),
    name: str = NOISY_SPLIT,
) -> list[Example]:
    """Pre-training text of a base model: fluent lists with steps missing, swapped, foreign or repeated.

    Covers all goals unless `goals` names some, the held-out ones included, as a pretrained model has read
    about everything. `name` begins the ids of the examples and is their split. Raises InputError for an unknown goal.
    """
    graphs = [world.graph(goal) for goal in (goals or world.goals)]
    errors = {graph.goal: _goal_errors(graph, graphs, seed) for graph in graphs} if noise.systematic else {}
    examples = []
    for index in range(count):
        rng = random.Random(f"{name} {seed} {index}")
        graph = rng.choice(graphs)
        history, left = _cut(graph, rng)
        if errors:
            left = errors[graph.goal].made(left, len(history), noise.systematic, rng)
        everything = list(world.wordings)
        out: list[str] = []
        for step in left:
            if rng.random() < noise.drop:
                continue
            if rng.random() < noise.alien:
                out.append(rng.choice(everything if rng.random() < 0.5 else graph.steps))
            out.append(step)
            if rng.random() < noise.repeat:
                out.append(rng.choice([*history, *out]))
        for position in range(len(out) - 1):
            if rng.random() < noise.swap:
                out[position], out[position + 1] = out[position + 1], out[position]
        while len(out) > 1 and rng.random() < noise.stop:
            out.pop()
        written = (history, tuple(out) or left[:1] or history[-1:])
        examples.append(_example(world, graph, rng, f"world-{name}-{seed}-{index:06d}", name, written))
    return examples


class _GoalErrors(NamedTuple):
    """What texts about a goal get wrong again and again, as step ids."""

    forgotten: frozenset[str]
    turned: tuple[tuple[str, str], ...]
    foreign: tuple[tuple[int, str], ...]
    """Each with the number of steps before it."""

    def made(self, left: Sequence[str], done: int, share: float, rng: random.Random) -> tuple[str, ...]:
        """The steps left after so many that are `done`, with each error in a `share` of the texts."""
        out = [step for step in left if not (step in self.forgotten and rng.random() < share)]
        for first, second in self.turned:
            if first in out and second in out and rng.random() < share:
                places = sorted([out.index(first), out.index(second)])
                out[places[0]], out[places[1]] = second, first
        for place, step in self.foreign:
            if place >= done and rng.random() < share:
                out.insert(min(place - done, len(out)), step)
        return tuple(out)


def _goal_errors(graph: TaskGraph, graphs: Sequence[TaskGraph], seed: int) -> _GoalErrors:
    rng = random.Random(f"errors {seed} {graph.goal}")
    order = graph.draw(rng)
    forgotten = frozenset(rng.sample(order, round(len(order) / 4)))
    pairs = [pair for pair in pairwise(order) if not forgotten & {*pair}]
    turned = rng.sample(pairs, min(len(pairs), round(len(order) / 5)))
    others = sorted({step for other in graphs if other.goal != graph.goal for step in other.steps} - {*graph.steps})
    count = max(1, round(0.15 * len(order))) if others else 0
    foreign = [(rng.randrange(1, len(order)), rng.choice(others)) for _ in range(count)]
    return _GoalErrors(forgotten, tuple(turned), tuple(foreign))


def _cut(graph: TaskGraph, rng: random.Random) -> Cut:
    order = graph.draw(rng)
    at = rng.randint(1, len(order) - FEWEST_LEFT)
    return order[:at], order[at:]


def _example(world: World, graph: TaskGraph, rng: random.Random, video_id: str, split: str, cut: Cut) -> Example:
    history, continuation = (tuple(world.label(step, rng) for step in steps) for steps in cut)
    at = len(history)
    return Example(f"{video_id}-{at}", SOURCE, video_id, graph.goal, history, continuation, at, split)
