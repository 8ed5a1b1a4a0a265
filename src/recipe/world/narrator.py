"""What narrators say while they follow a task graph, with the noise of real narrations.

A narrator drops steps, merges two into one segment, mentions a step after the fact, swaps neighbours, repeats
itself, wanders off to steps of other goals, and chats. The order below is the order in which the noise is
laid on.
"""

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from recipe.types import Narration, Segment
from recipe.world.graph import TaskGraph, World

SOURCE = "world"


@dataclass(frozen=True, slots=True)
class NarratorStyle:
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
    plain: float = 0.0
    """Probability that a step is said as an annotator writes it, without a lead-in."""

    def cleaner(self, share: float) -> "NarratorStyle":
        """The style between this one, at a share of 0, and a list of all steps in a valid order, at 1."""
        less = {name: (1 - share) * getattr(self, name) for name in _NOISES}
        low, high = (round((1 - share) * length) for length in self.segments)
        return replace(self, **less, segments=(low, high), plain=self.plain + share * (1 - self.plain))


# What a list of steps has nothing of.
_NOISES = ("drop", "swap", "late", "merge", "repeat", "alien", "opening")


@dataclass(frozen=True, slots=True)
class _Utterance:
    """One segment before it has times, and the steps it mentions; small talk mentions none."""

    text: str
    steps: tuple[str, ...] = ()

    @classmethod
    def of(cls, world: World, step: str, rng: random.Random, templates: Sequence[str]) -> "_Utterance":
        """A step in a template with a place for it, or behind a lead-in without one."""
        # Template or wording first: the order of the draws decides what a seed gives.
        if "{step}" in templates[0]:
            template = rng.choice(templates)
            return cls(template.replace("{step}", rng.choice(world.wordings[step])), (step,))
        text = rng.choice(world.wordings[step])
        return cls(rng.choice(templates) + text, (step,))


def narrate(
    world: World, count: int, seed: int = 0, style: NarratorStyle = NarratorStyle(), goals: Sequence[str] | None = None
) -> list[Narration]:
    """`count` narrations, going round `goals`, by default all; each depends on the seed and its index only.

    Segments are in time order and do not overlap; times in seconds. Raises InputError for an unknown goal.
    """
    graphs = [world.graph(goal) for goal in (goals or world.goals)]
    narrations = []
    for index in range(count):
        # By its own index: a corpus of more narrations begins with the same ones.
        rng = random.Random(f"narration {seed} {index}")
        graph = graphs[index % len(graphs)]
        segments = []
        spoken = narrate_once(world, graph, rng, style)
        # Two to three words a second; hands need time after a step, talk goes on at once.
        clock = rng.uniform(0.0, 6.0)
        for utterance in spoken:
            length = 0.6 + len(utterance.text.split()) / rng.uniform(2.0, 3.2)
            segments.append(Segment(utterance.text, round(clock, 2), round(clock + length, 2)))
            clock += length + rng.expovariate(1 / 6 if utterance.steps else 1.0)
        narrations.append(Narration(f"world-{index:06d}", tuple(segments), title=graph.goal, source=SOURCE))
    return narrations


def goal_narrations(world: World, goal: str, count: int, seed: int = 0) -> list[Narration]:
    """`count` narrations of one goal with ids of its own; fewer of the same seed are the first of more.

    Raises InputError for an unknown goal.
    """
    # Not hash(), which Python salts anew in every process.
    own = zlib.crc32(f"{seed} {goal}".encode())
    narrations = narrate(world, count, own, goals=[goal])
    return [
        replace(narration, video_id=f"{SOURCE}-{own:08x}-{index:04d}") for index, narration in enumerate(narrations)
    ]


def narrate_once(
    world: World, graph: TaskGraph, rng: random.Random, style: NarratorStyle = NarratorStyle()
) -> list[_Utterance]:
    """One narrator's utterances with the steps that each mentions, which a narration no longer shows."""
    talk = world.talk
    performed = list(graph.draw(rng))
    kept = [step for step in performed if not rng.random() < style.drop] or performed[:1]
    for index in range(len(kept) - 1):
        if rng.random() < style.swap:
            kept[index], kept[index + 1] = kept[index + 1], kept[index]

    spoken: list[_Utterance] = []
    joinable = False
    for step in kept:
        joinable = not (joinable and rng.random() < style.merge)
        if joinable and style.plain and rng.random() < style.plain:
            spoken.append(_Utterance(world.label(step, rng), (step,)))
        elif joinable:
            spoken.append(_Utterance.of(world, step, rng, talk.lead_ins))
        else:
            text = spoken[-1].text + rng.choice(talk.joins) + rng.choice(world.wordings[step])
            spoken[-1] = _Utterance(text, (*spoken[-1].steps, step))
    for index in range(len(spoken) - 1):
        # Mentioned only after the next utterance or two.
        if len(spoken[index].steps) == 1 and rng.random() < style.late:
            late = _Utterance.of(world, spoken.pop(index).steps[0], rng, talk.afterthoughts)
            spoken.insert(min(index + rng.randint(1, 2), len(spoken)), late)

    everything = list(world.wordings)
    out: list[_Utterance] = []
    for utterance in spoken:
        out.append(utterance)
        if rng.random() < style.repeat:
            out.append(_Utterance.of(world, rng.choice(utterance.steps), rng, talk.repeats))
        if rng.random() < style.alien:
            out.append(_Utterance.of(world, rng.choice(everything), rng, talk.lead_ins))
    announced, closed = rng.random() < style.opening, rng.random() < style.opening
    missing = max(0, rng.randint(*style.segments) - len(out) - announced - closed)
    lines = list(talk.small_talk)
    for text in rng.sample(lines, min(missing, len(lines))):
        out.insert(rng.randint(0, len(out)), _Utterance(text))
    if announced:
        out.insert(0, _Utterance(rng.choice(talk.openings).replace("{goal}", graph.goal)))
    if closed:
        out.append(_Utterance(rng.choice(talk.closings)))
    return out
