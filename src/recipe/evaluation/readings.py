"""A plan as steps of its goal's task graph, whoever matched its words: what scores and statuses are made of."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from recipe.evaluation.results import Line, Status
from recipe.prompting import visible
from recipe.world.graph import TaskGraph, World
from recipe.world.validity import PlanKey, Validity, plan_key, score_key

MOST_LINES = 1_000
"""Lines of a plan that are read, or twice the goal's steps where those are more; the others name no step."""
MOST_CHARACTERS = 500
"""Characters of a line that are read."""
_CUT = "…"


class Lines(NamedTuple):
    """A plan's lines as they are read."""

    read: list[str]
    unread: list[str]
    """Those after the last one that is read."""


def lines_of(steps: Sequence[str], graph: TaskGraph) -> Lines:
    """A plan cut to what is read of it, so that a plan without end takes bounded time."""
    lines, most = [shown(text) for text in steps], max(MOST_LINES, 2 * len(graph.after))
    return Lines(lines[:most], lines[most:])


def shown(text: str) -> str:
    """A line as it is read: without characters that could hide, and no longer than a limit; as judges are shown it."""
    seen = visible(text[:MOST_CHARACTERS]).strip()
    return seen[: MOST_CHARACTERS - 1] + _CUT if len(text) > MOST_CHARACTERS else seen


def shortened(line: str) -> bool:
    """Whether a line as it is read lacks its end."""
    return len(line) == MOST_CHARACTERS and line.endswith(_CUT)


class Reading(NamedTuple):
    """A plan as steps of its goal."""

    graph: TaskGraph
    wordings: Mapping[str, Sequence[str]]
    """Of the goal's steps, the usual one first."""
    history: PlanKey
    plan: PlanKey
    """The step of each line, None for a line that names none."""
    lines: tuple[str, ...]
    """The plan's lines as they were read."""
    similarities: tuple[float | None, ...]
    """Of each line to its step's nearest wording; None where it names none or no encoder was asked."""
    unread: int = 0
    """Lines at the end of a plan that is too long to be read whole; they name no step."""

    def score(self) -> Validity:
        """The validity of the plan after the history."""
        return score_key(self.graph, self.history, self.plan)

    def done(self) -> set[str]:
        """The steps of the history."""
        return set(self.graph.after).intersection(self.history)

    def missing(self) -> tuple[str, ...]:
        """The required steps that neither history nor plan names, in file order."""
        named = self.done().union(self.plan)
        return tuple(step for step in self.graph.after if step in self.graph.required - named)

    def missing_words(self) -> tuple[str, ...]:
        """The same in their usual words."""
        return tuple(self.wordings[step][0] for step in self.missing())

    def statuses(self) -> tuple[Line, ...]:
        """What each line is: valid, repeated, foreign to the goal, or too early."""
        done = self.done()
        present = done | set(self.graph.after).intersection(self.plan)
        found = []
        for text, step in zip(self.lines, self.plan, strict=True):
            found.append(Line(text, self._status(step, done, present)))
            if step in present:
                done.add(step)
        read = len(found) - self.unread
        return (*found[:read], *(Line(line.text) for line in found[read:]))

    def _status(self, step: str | None, done: set[str], present: set[str]) -> Status:
        if step is None or step not in self.graph.after:
            return "alien"
        if step in done:
            return "repeat"
        return "valid" if self.graph.before(step, present) <= done else "out-of-order"


class Reader(Protocol):
    """Anything that knows the task graphs of goals and which of their steps a text says."""

    def knows(self, goal: str) -> bool:
        """Whether the goal has a task graph."""
        ...

    def learn(self, asked: Iterable[tuple[str, str]]) -> None:
        """Compare (goal, text) pairs that will be read, many at once; reading alone does so, too, but one by one."""
        ...

    def read(self, goal: str, history: Sequence[str], steps: Sequence[str]) -> Reading:
        """`steps` as what remains to be done for `goal` after `history`. Raises InputError for an unknown goal."""
        ...


class WorldReader:
    """The embedded world, which knows the words of its steps without an encoder."""

    def __init__(self, world: World) -> None:
        self._world = world

    def knows(self, goal: str) -> bool:
        """Whether the world has the goal."""
        return goal in self._world.goals

    def learn(self, asked: Iterable[tuple[str, str]]) -> None:
        """Nothing to do: the world compares words, and remembers them by itself."""

    def read(self, goal: str, history: Sequence[str], steps: Sequence[str]) -> Reading:
        """A plan as steps of the world. Raises InputError for an unknown goal."""
        graph = self._world.graph(goal)
        (lines, unread), done = lines_of(steps, graph), lines_of(history, graph).read
        plan = plan_key(self._world, goal, lines) + (None,) * len(unread)
        return Reading(
            graph,
            self._world.wordings,
            plan_key(self._world, goal, done),
            plan,
            (*lines, *unread),
            (None,) * len(plan),
            len(unread),
        )
