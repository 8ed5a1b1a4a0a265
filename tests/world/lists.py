"""Annotated videos of the world as narrations: what the lists of steps on web pages are to speech."""

import random
import zlib

from recipe.types import Narration, Segment
from recipe.world.graph import World


def step_lists(world: World, goal: str, count: int, seed: int = 0) -> list[Narration]:
    """`count` annotated videos of one goal as narrations without times: a valid order each, a step a segment."""
    graph, lists = world.graph(goal), []
    for index in range(count):
        rng = random.Random(f"list {seed} {goal} {index}")
        steps = tuple(Segment(world.label(step, rng)) for step in graph.draw(rng))
        name = f"world-list-{zlib.crc32(goal.encode()):08x}-{index:04d}"
        lists.append(Narration(name, steps, title=goal, source="world"))
    return lists
