"""A stand-in for the judge of diversity: how little two plans agree by their embeddings, cut to the five levels.

    difference = 1 - (F + F ordered) / 2          of the likeness of their steps (see `proxy`), any order and in order

The nearest level is given, the higher one of two. It is at most 0.25 where a plan is of no use: one that is off the
goal, or that repeats the history for more than half. Off the goal is a plan that is no nearer to goal and history, each
embedded as one text, than 95% of the continuations of other goals are on the embedded world's training goals.

It is not the paper's judge: plans that differ in words that the encoder does not know as one are different to it.
"""

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np

from recipe.artifacts import fingerprint
from recipe.evaluation.agreement import Embed
from recipe.evaluation.diversity import LEVELS
from recipe.evaluation.diversity_judge import Compared, Question
from recipe.evaluation.likeness import PERCENTILE, Likeness, calibrate, ordered_likeness
from recipe.evaluation.scores import JudgeIdentity
from recipe.progress import SILENT, Progress
from recipe.types import Example
from recipe.world.examples import draw_examples
from recipe.world.load import load_world

CAP = 0.25
"""The most that a plan of no use can differ."""
MOST_COPIED = 0.5
"""Share of a plan that may repeat the history."""
VERSION = 1
"""Of the formula: another one is another judge."""
_TOGETHER = 512
"""Questions whose texts are embedded in one call."""


class ProxyDiversityJudge:
    """Compares plans by embeddings; a `DiversityJudge`, and named for what it is."""

    def __init__(self, embed: Embed, encoder: str = "minilm") -> None:
        """`encoder` is the name that the judge's own name tells. Raises ComputeError for one that tells nothing."""
        self._embed, self.calibration, self.on_goal = embed, calibrate(embed), _goal_affinity(embed)
        settings = {
            "encoder": encoder,
            "chance": f"{self.calibration.chance:.3f}",
            "same": f"{self.calibration.same:.3f}",
            "on_goal": f"{self.on_goal:.3f}",
        }
        computed = {"version": VERSION, "cap": CAP, "copied": MOST_COPIED, **settings}
        self.identity = JudgeIdentity(f"proxy ({encoder})", "proxy", encoder, fingerprint(computed), settings)

    def compare(self, questions: Sequence[Question], progress: Progress = SILENT) -> list[Compared]:
        """The level of each question, in order."""
        found = []
        with progress.task("comparing plans by embeddings", total=len(questions)) as advance:
            for at in range(0, len(questions), _TOGETHER):
                batch = questions[at : at + _TOGETHER]
                likeness = self.likeness(batch)
                found += [Compared(self._level(one, likeness), "proxy") for one in batch]
                advance(len(batch))
        return found

    def likeness(self, questions: Sequence[Question]) -> Likeness:
        """What compares all texts of these questions."""
        return Likeness(self._embed, self.calibration, [text for one in questions for text in _texts(one)])

    def _level(self, question: Question, likeness: Likeness) -> float:
        level = nearest_level(difference(question.first, question.second, likeness))
        useful = all(self.useful(question.example, plan, likeness) for plan in question[1:])
        return level if useful else min(CAP, level)

    def useful(self, example: Example, plan: tuple[str, ...], likeness: Likeness) -> bool:
        """Whether a plan is on the goal, and more than the history again; `likeness` knows the question's texts."""
        [[cosine]] = likeness.cosines([_asked(example)], [_joined(plan)])
        done = likeness.between(plan, example.history).max(axis=1, initial=0.0)
        return bool(cosine > self.on_goal and (done == 1).mean() <= MOST_COPIED)


def difference(first: Sequence[str], second: Sequence[str], likeness: Likeness) -> float:
    """How little two plans agree, 0 to 1; the same in either order."""
    matched = sum(pair.likeness for pair in likeness.pairs(first, second))
    ordered = ordered_likeness(likeness.between(first, second))
    return 1 - (matched + ordered) / (len(first) + len(second))


def nearest_level(value: float) -> float:
    """The nearest of the five levels, the higher one of two.

    >>> nearest_level(0.37), nearest_level(0.375), nearest_level(1.0)
    (0.25, 0.5, 1.0)
    """
    steps = len(LEVELS) - 1
    return min(math.floor(steps * value + 0.5 + 1e-9), steps) / steps


def _goal_affinity(embed: Embed) -> float:
    """The cosine below which 95% of the continuations of other goals lie."""
    world = load_world()
    goals = sum(not graph.held_out for graph in world.goals.values())
    drawn = draw_examples(world, "train", goals)
    vectors = embed([_asked(one) for one in drawn]) @ embed([_joined(one.continuation) for one in drawn]).T
    apart = [vectors[i, j] for i, j in permutations(range(goals), 2) if drawn[i].goal != drawn[j].goal]
    return round(float(np.percentile(apart, PERCENTILE)), 3)


def _asked(example: Example) -> str:
    return _joined((example.goal, *example.history))


def _joined(steps: Sequence[str]) -> str:
    return ". ".join(steps)


def _texts(question: Question) -> tuple[str, ...]:
    example, first, second = question
    return (*first, *second, *example.history, _asked(example), _joined(first), _joined(second))
