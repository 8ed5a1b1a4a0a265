"""Goals as task graphs: which steps a goal takes, and which of them must wait for which.

`b after a` means that a has to be done before b. An optional step may be left out; what must wait for an
absent step then waits for what that step would have waited for, so that leaving it out loosens nothing else.
"""

import difflib
import random
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from recipe.errors import InputError
from recipe.world.recognise import Recogniser

LABEL_WORDINGS = 2
"""An annotator writes the first wordings of a step, the usual one most often; narrators use them all."""


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """One goal's steps as an acyclic graph; `after` maps each step to what it waits for, in file order."""

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
        found: set[str] = set()
        passed: set[str] = set()
        asked = list(self.after[step])
        while asked:
            earlier = asked.pop()
            if earlier not in self.optional or earlier in present:
                found.add(earlier)
            elif earlier not in passed:
                passed.add(earlier)
                asked += self.after[earlier]
        return frozenset(found)

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

    def orders(self) -> Iterator[tuple[str, ...]]:
        """Every valid order under every choice of optional steps; their number grows like a factorial."""
        for count in range(len(self.optional) + 1):
            for chosen in combinations(sorted(self.optional), count):
                yield from self._complete((), self.required | set(chosen))

    def _complete(self, order: tuple[str, ...], used: AbstractSet[str]) -> Iterator[tuple[str, ...]]:
        if len(order) == len(used):
            yield order
        for step in self.ready(set(order), used):
            yield from self._complete((*order, step), used)


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
