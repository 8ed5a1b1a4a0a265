"""Goals as task graphs, and free text mapped to the steps of a graph."""

import difflib
import math
import random
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, lru_cache

from recipe.errors import InputError

THRESHOLD = 0.7
"""Least similarity of a text that is no known wording."""
OWN_BONUS = 0.05
"""How much less similar a step of the goal at hand may be than a foreign one and still be preferred."""
MARGIN = 0.02
"""A best step that leads by less is ambiguous."""

LABEL_WORDINGS = 2
"""An annotator writes the first wordings of a step, the usual one most often; narrators use them all."""

# No recall lifts a lower precision to the threshold.
# 2 P R / (P + R) >= T and R <= 1 need P >= T / (2 - T).
_LEAST = THRESHOLD / (2 - THRESHOLD)

_WORD = re.compile(r"[a-z0-9']+")


def words(text: str) -> tuple[str, ...]:
    """Lower-case words without punctuation.

    >>> words("Boil the water, please.")
    ('boil', 'the', 'water', 'please')
    """
    return tuple(_WORD.findall(text.lower().replace("’", "'")))


class Recogniser:
    """Maps texts to step ids, without an encoder; caches answers, because sampled plans repeat themselves.

    A text that is a known wording, up to case and punctuation, is that step. Otherwise its words are compared with each
    step's: precision is the share of the text's word weight that occurs in any wording of the step, recall the largest
    share of one wording's word weight that occurs in the text, and their harmonic mean must reach a threshold and be
    the unique best. A word weighs log((1 + n) / m) where m of the n steps use it. Precision over all wordings with
    recall of one accepts blends of two wordings of the same step, as a small language model writes them, and refuses
    blends of two steps.
    """

    def __init__(self, wordings: Mapping[str, tuple[str, ...]]) -> None:
        self._exact = {words(wording): step for step, known in wordings.items() for wording in known}
        self._wordings = {step: [frozenset(words(text)) for text in known] for step, known in wordings.items()}
        self._vocabulary = {step: frozenset[str]().union(*sets) for step, sets in self._wordings.items()}
        self._users: dict[str, set[str]] = defaultdict(set)
        for step, vocabulary in self._vocabulary.items():
            for word in vocabulary:
                self._users[word].add(step)
        count = len(wordings)
        # Inverse document frequency with steps as documents; a word of no step weighs as one of a single step.
        self._rare = math.log(1 + count)
        self._weight = {word: math.log((1 + count) / len(steps)) for word, steps in self._users.items()}
        self._nearest = lru_cache(maxsize=100_000)(self._similarities)

    def step(self, text: str, own: Collection[str] = ()) -> str | None:
        """The step that `text` says, or None; steps in `own`, those of the goal at hand, are preferred."""
        spoken = words(text)
        # Also where the step is not of the goal at hand: a known wording is never ambiguous (`load_world` sees to it).
        if spoken in self._exact:
            return self._exact[spoken]
        near = ((score + OWN_BONUS * (step in own), step) for step, score in self._nearest(spoken))
        ranked = sorted(near, reverse=True)
        if not ranked or (len(ranked) > 1 and ranked[0][0] - ranked[1][0] < MARGIN):
            return None
        return ranked[0][1]

    def _similarities(self, spoken: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
        """Steps at least as similar as the threshold, with their similarity."""
        text = frozenset(spoken)
        total = self._mass(text)
        shared: dict[str, float] = defaultdict(float)
        for word in text:
            for step in self._users.get(word, ()):
                shared[step] += self._weight[word]
        similar = []
        for step, mass in shared.items():
            # Before recall, which is the slow part: most steps share a word and fail here.
            if mass >= _LEAST * total:
                precision = mass / total
                recall = max(self._mass(text & wording) / self._mass(wording) for wording in self._wordings[step])
                score = 2 * precision * recall / (precision + recall)
                if score >= THRESHOLD:
                    similar.append((step, score))
        return tuple(similar)

    def _mass(self, words_of_text: frozenset[str]) -> float:
        return sum(self._weight.get(word, self._rare) for word in words_of_text)


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """One goal's steps as an acyclic graph; `after` maps each step to the steps it waits for, in file order.

    An optional step may be left out. A step that waits for an absent one then waits for what that one would have waited
    for, so that leaving it out loosens nothing else.
    """

    goal: str
    domain: str
    after: Mapping[str, tuple[str, ...]]
    optional: frozenset[str] = frozenset()
    held_out: bool = False
    """Held-out goals are never trained on; they test whether planning carries over to new goals."""

    @property
    def steps(self) -> tuple[str, ...]:
        """All step ids, in file order."""
        return tuple(self.after)

    @property
    def required(self) -> frozenset[str]:
        """The steps that no valid plan leaves out."""
        return frozenset(self.after) - self.optional

    def before(self, step: str, present: AbstractSet[str]) -> frozenset[str]:
        """What `step` waits for directly when only the optional steps in `present` are done."""
        direct: set[str] = set()
        passed: set[str] = set()
        waiting = list(self.after[step])
        while waiting:
            earlier = waiting.pop()
            if earlier not in self.optional or earlier in present:
                direct.add(earlier)
            elif earlier not in passed:
                passed.add(earlier)
                waiting += self.after[earlier]
        return frozenset(direct)

    def ready(self, done: AbstractSet[str], used: AbstractSet[str]) -> list[str]:
        """The steps of `used` that are not done and wait for nothing any more, in file order."""
        return [step for step in self.after if step in used - done and self.before(step, used) <= done]

    def draw(self, rng: random.Random, optional_share: float = 0.5) -> tuple[str, ...]:
        """A random valid order; each optional step takes part with probability `optional_share`."""
        used = {step for step in self.after if step not in self.optional or rng.random() < optional_share}
        order: list[str] = []
        while len(order) < len(used):
            order.append(rng.choice(self.ready(set(order), used)))
        return tuple(order)


@dataclass(frozen=True, slots=True)
class Talk:
    """What narrators say around their steps; `{goal}` and `{step}` are filled in."""

    openings: tuple[str, ...]
    closings: tuple[str, ...]
    small_talk: tuple[str, ...]
    lead_ins: tuple[str, ...]
    joins: tuple[str, ...]
    afterthoughts: tuple[str, ...]
    repeats: tuple[str, ...]


@dataclass(frozen=True)
class World:
    """All goals, the wordings of all steps, and the narrators' talk."""

    goals: Mapping[str, TaskGraph]
    wordings: Mapping[str, tuple[str, ...]]
    talk: Talk

    @cached_property
    def recogniser(self) -> Recogniser:
        """Maps text back to steps."""
        return Recogniser(self.wordings)

    def graph(self, goal: str) -> TaskGraph:
        """The task graph of a goal, by name. Raises InputError with the nearest names for an unknown one."""
        if goal in self.goals:
            return self.goals[goal]
        near = difflib.get_close_matches(goal, self.goals, n=3, cutoff=0.3) or list(self.goals)
        raise InputError(f"The world has no goal {goal!r}; did you mean {' or '.join(map(repr, near))}?")

    def label(self, step: str, rng: random.Random) -> str:
        """A wording as an annotator writes it: mostly the usual one."""
        usual, *others = self.wordings[step][:LABEL_WORDINGS]
        return usual if rng.random() < 0.7 or not others else rng.choice(others)
