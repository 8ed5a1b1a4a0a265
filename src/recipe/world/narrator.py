"""What people say while they follow a task graph, with the noise of real narrations.

A narrator drops steps, merges two into one segment, mentions a step after the fact, swaps neighbours, repeats
itself, wanders off to steps of other goals, and chats. The order below is the order in which the noise is
laid on.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from recipe.types import Narration, Segment
from recipe.world.graph import TaskGraph, World

SOURCE = "world"


@dataclass(frozen=True, slots=True)
class Habits:
    """Noise of narrators: each number is a probability per step, except `segments`."""

    drop: float = 0.15
    swap: float = 0.08
    late: float = 0.07
    merge: float = 0.12
    repeat: float = 0.15
    alien: float = 0.05
    opening: float = 0.7
    """Probability that the goal is announced; the same holds for a farewell."""
    segments: tuple[int, int] = (15, 25)
    """Small talk fills a narration up to a length drawn from this range, ends included."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One segment before it has times, and the steps it mentions; small talk mentions none."""

    text: str
    steps: tuple[str, ...] = ()


def narrate(
    world: World, count: int, seed: int = 0, habits: Habits = Habits(), goals: Sequence[str] | None = None
) -> list[Narration]:
    """`count` narrations, going round `goals`, by default all; each depends on the seed and its index only.

    Segments are in time order and do not overlap; times in seconds. Raises InputError for an unknown goal.
    """
    graphs = [world.graph(goal) for goal in (goals or world.goals)]
    narrations = []
    for index in range(count):
        rng = random.Random(f"narration {seed} {index}")
        graph = graphs[index % len(graphs)]
        segments = _timed(tell(world, graph, rng, habits), rng)
        narrations.append(Narration(f"world-{index:06d}", segments, title=graph.goal, source=SOURCE))
    return narrations


def tell(world: World, graph: TaskGraph, rng: random.Random, habits: Habits = Habits()) -> list[Utterance]:
    """One narrator's utterances with the steps that each mentions, which a narration no longer shows."""
    performed = list(graph.draw(rng))
    kept = [step for step in performed if rng.random() >= habits.drop] or performed[:1]
    for index in range(len(kept) - 1):
        if rng.random() < habits.swap:
            kept[index], kept[index + 1] = kept[index + 1], kept[index]
    told = _put_off(world, _spoken(world, kept, rng, habits), rng, habits)
    return _with_talk(world, graph.goal, _with_detours(world, told, rng, habits), rng, habits)


def _say(world: World, step: str, rng: random.Random) -> str:
    return rng.choice(world.wordings[step])


def _lead(world: World, text: str, rng: random.Random) -> str:
    return rng.choice(world.talk.lead_ins) + text


def _spoken(world: World, steps: Sequence[str], rng: random.Random, habits: Habits) -> list[Utterance]:
    """The steps as utterances, some of them two in one."""
    told: list[Utterance] = []
    joinable = False
    for step in steps:
        if joinable and rng.random() < habits.merge:
            text = told[-1].text + rng.choice(world.talk.joins) + _say(world, step, rng)
            told[-1] = Utterance(text, (*told[-1].steps, step))
            joinable = False
        else:
            told.append(Utterance(_lead(world, _say(world, step, rng), rng), (step,)))
            joinable = True
    return told


def _put_off(world: World, told: list[Utterance], rng: random.Random, habits: Habits) -> list[Utterance]:
    """Some steps are mentioned only after the next one or two."""
    told = list(told)
    for index in range(len(told) - 1):
        if len(told[index].steps) == 1 and rng.random() < habits.late:
            late = told.pop(index)
            text = rng.choice(world.talk.afterthoughts).replace("{step}", _say(world, late.steps[0], rng))
            told.insert(min(index + rng.randint(1, 2), len(told)), Utterance(text, late.steps))
    return told


def _with_detours(world: World, told: list[Utterance], rng: random.Random, habits: Habits) -> list[Utterance]:
    """Repeats of what was said, and steps of anything else."""
    everything = list(world.wordings)
    out: list[Utterance] = []
    for utterance in told:
        out.append(utterance)
        if rng.random() < habits.repeat:
            step = rng.choice(utterance.steps)
            out.append(Utterance(rng.choice(world.talk.repeats).replace("{step}", _say(world, step, rng)), (step,)))
        if rng.random() < habits.alien:
            step = rng.choice(everything)
            out.append(Utterance(_lead(world, _say(world, step, rng), rng), (step,)))
    return out


def _with_talk(world: World, goal: str, told: list[Utterance], rng: random.Random, habits: Habits) -> list[Utterance]:
    """Small talk in between, an announcement at the beginning and a farewell at the end."""
    out = list(told)
    ends = [rng.random() < habits.opening, rng.random() < habits.opening]
    wanted = max(0, rng.randint(*habits.segments) - len(out) - sum(ends))
    lines = list(world.talk.small_talk)
    for text in rng.sample(lines, min(wanted, len(lines))):
        out.insert(rng.randint(0, len(out)), Utterance(text))
    if ends[0]:
        out.insert(0, Utterance(rng.choice(world.talk.openings).replace("{goal}", goal)))
    if ends[1]:
        out.append(Utterance(rng.choice(world.talk.closings)))
    return out


def _timed(told: Sequence[Utterance], rng: random.Random) -> tuple[Segment, ...]:
    """Spoken at two to three words a second; hands need time after a step, talk goes on at once."""
    segments = []
    clock = rng.uniform(0.0, 6.0)
    for utterance in told:
        length = 0.6 + len(utterance.text.split()) / rng.uniform(2.0, 3.2)
        segments.append(Segment(utterance.text, round(clock, 2), round(clock + length, 2)))
        clock += length + rng.expovariate(1 / 6 if utterance.steps else 1.0)
    return tuple(segments)
