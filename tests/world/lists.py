"""Lists of steps: annotated videos of the world as narrations, and every valid order of a task graph."""

import random
import zlib
from collections.abc import Iterator
from itertools import combinations

from recipe.types import Narration, Segment
from recipe.world.graph import TaskGraph, World


def step_lists(world: World, goal: str, count: int, seed: int = 0) -> list[Narration]:
    """`count` annotated videos of one goal as narrations without times: a valid order each, a step a segment."""
    graph, lists = world.graph(goal), []
    for index in range(count):
        rng = random.Random(f"list {seed} {goal} {index}")
        steps = tuple(Segment(world.label(step, rng)) for step in graph.draw(rng))
        name = f"world-list-{zlib.crc32(goal.encode()):08x}-{index:04d}"
        lists.append(Narration(name, steps, title=goal, source="world"))
    return lists


def orders(graph: TaskGraph) -> Iterator[tuple[str, ...]]:
    """Every valid order under every choice of optional steps; their number grows like a factorial."""

    def completed(order: tuple[str, ...], used: frozenset[str]) -> Iterator[tuple[str, ...]]:
        if len(order) == len(used):
            yield order
        for step in graph.ready({*order}, used):
            yield from completed((*order, step), used)

    for count in range(len(graph.optional) + 1):
        for chosen in combinations(sorted(graph.optional), count):
            yield from completed((), graph.required.union(chosen))
