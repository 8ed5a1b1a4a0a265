"""Which step a line means when its words fit several: the choice that breaks the fewest dependencies.

A recipe may say "flip the pancake" twice. A line takes a step that no line before it took, where its words fit one.
Among all such choices for history and plan together, the best one covers the most required steps, then the most steps;
among equals it breaks the fewest dependencies in the plan, then in the history, and then is the nearest in words. So
every valid order is read as itself.

To read a sequence of equally named steps is membership in a pomset's language, which is NP-complete in general
(Feigenbaum, Kahn and Lund, Complexity results for pomset languages, 1993). Here it is a search over the sets of steps
that can be done after each line: exact while no more than `BEAM` of them are open at once, which the graphs that we
know stay far below. Beyond that the best `BEAM` go on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from recipe.world.graph import TaskGraph
from recipe.world.validity import PlanKey

BEAM = 64
"""Sets of done steps that are followed at once."""


class Meant(NamedTuple):
    """A step that a line may mean."""

    step: str
    similarity: float


class Candidates(NamedTuple):
    """The steps that a line may mean, best first; none for a line that means no step."""

    first: tuple[Meant, ...] = ()
    then: tuple[Meant, ...] = ()
    """Meant only where all of `first` are done."""


class _Cost(NamedTuple):
    """What speaks against a choice, in the order of weight."""

    broken_in_plan: int = 0
    broken_in_history: int = 0
    dissimilarity: float = 0.0


@dataclass(frozen=True, slots=True)
class _Reached:
    """A set of done steps and the best way found to it."""

    done: frozenset[str]
    cost: _Cost
    choice: str | None = None
    previous: "_Reached | None" = None

    def choices(self) -> PlanKey:
        """The step of each line, in order."""
        found, at = [], self
        while at.previous is not None:
            found.append(at.choice)
            at = at.previous
        return tuple(reversed(found))


class Chooser:
    """Reads lines against one task graph."""

    def __init__(self, graph: TaskGraph) -> None:
        self._graph = graph
        followers: dict[str, list[str]] = {step: [] for step in graph.after}
        for later, direct in graph.after.items():
            for earlier in direct:
                followers[earlier].append(later)
        self._waiting = {step: _waiting(graph, step, followers) for step in graph.optional}
        self._places = {
            step: (frozenset(direct), frozenset(followers[step]), step in graph.optional)
            for step, direct in graph.after.items()
        }

    def choose(self, lines: Sequence[Candidates], history: int) -> PlanKey:
        """The step of each line, None for one that means none; the first `history` lines are done already."""
        reached = [_Reached(frozenset(), _Cost())]
        for index, candidates in enumerate(lines):
            found: dict[frozenset[str], _Reached] = {}
            for state in reached:
                for following in self._following(state, candidates, planned=index >= history):
                    known = found.setdefault(following.done, following)
                    if following.cost < known.cost:
                        found[following.done] = following
            reached = sorted(found.values(), key=self._rank)[:BEAM]
        return reached[0].choices()

    def _rank(self, state: _Reached) -> tuple[int, int, _Cost]:
        return -len(state.done & self._graph.required), -len(state.done), state.cost

    def _following(self, state: _Reached, candidates: Candidates, planned: bool) -> list[_Reached]:
        """What `state` becomes by one more line; a repeated step and none at all change nothing."""
        for meant in candidates:
            if free := [one for one in meant if one.step not in state.done]:
                return [self._take(state, one, planned) for one in self._worth_following(self._distinct(free), state)]
        again = candidates.first[0].step if candidates.first else None
        return [_Reached(state.done, state.cost, again, state)]

    def _distinct(self, free: Sequence[Meant]) -> list[Meant]:
        """The first of those that neither words nor dependencies tell apart."""
        return list({(self._places[one.step], one.similarity): one for one in reversed(free)}.values())[::-1]

    def _worth_following(self, free: list[Meant], state: _Reached) -> list[Meant]:
        """No more than are followed at once: of more, the first that break nothing, where any do."""
        if len(free) <= BEAM:
            return free
        unbroken = (one for one in free if not self._broken(one.step, state.done))
        return list(islice(unbroken, BEAM)) or free[:BEAM]

    def _take(self, state: _Reached, meant: Meant, planned: bool) -> _Reached:
        broken = self._broken(meant.step, state.done)
        plan, history, far = state.cost
        cost = _Cost(plan + broken * planned, history + broken * (not planned), round(far + 1 - meant.similarity, 4))
        return _Reached(state.done | {meant.step}, cost, meant.step, state)

    def _broken(self, step: str, done: frozenset[str]) -> int:
        """Dependencies broken by doing `step` now: its own, and those of done steps that it comes too late for."""
        early = len(self._graph.before(step, done) - done)
        if step not in self._graph.optional:
            return early
        present = done | {step}
        return early + sum(step in self._graph.before(later, present) for later in self._waiting[step] & done)


def _waiting(graph: TaskGraph, step: str, followers: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """What may wait for an optional step directly: its followers, also through optional steps that are left out."""
    found: set[str] = set()
    asked = list(followers[step])
    while asked:
        if (later := asked.pop()) not in found:
            found.add(later)
            asked += followers[later] if later in graph.optional else []
    return frozenset(found)
