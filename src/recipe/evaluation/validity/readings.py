"""Plans in free words as steps of a task graph: what scores and statuses are made of.

*Which steps a line may name.* A line with the words of a step, up to case and punctuation, names that step. Any other
line is compared with all wordings of the goal's steps by the cosine of an encoder; below the threshold it names none.
It may name each step within `MARGIN` of the nearest one, and the nearest one's twins, steps whose words are the same or
nearly so. A line in exact words names a twin only once the steps of its words are done: the second "flip the pancake"
is "flip it again".

*Which of them it names* is chosen for history and plan together. A line takes a step that no line before it took, where
its words fit one. Among all such choices, the best one covers the most required steps, then the most steps; among
equals it breaks the fewest dependencies in the plan, then in the history, and then is the nearest in words. So every
valid order is read as itself and scores 1. To read a sequence of equally named steps is membership in a pomset's
language, which is NP-complete in general (Feigenbaum, Kahn and Lund, Complexity results for pomset languages, 1993).
Here it is a search over the sets of steps that can be done after each line: exact while no more than `BEAM` of them are
open at once, which the known graphs stay far below. Beyond that the best `BEAM` go on.

The score is that of `world.validity`. It depends on the goal's own graph only, and not on which other plans or graphs
are read with it. A line is one step, unless lines are to be split.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.data.task_graphs import GoalGraph, TaskGraphs, goal_key
from recipe.errors import ComputeError, InputError
from recipe.evaluation.matching import Embed
from recipe.prompting import visible
from recipe.world.graph import TaskGraph, World
from recipe.world.validity import PlanKey, Validity, plan_key, score_key

MOST_LINES = 1_000
"""Lines of a plan that are read, or twice the goal's steps where those are more; the others name no step."""
MOST_CHARACTERS = 500
"""Characters of a line that are read."""
BEAM = 64
"""Sets of done steps that are followed at once."""
MARGIN = 0.02
"""A step that is less similar than the nearest one by this much may still be named."""
TWINS = 0.95
"""Least similarity of two steps that lines are not trusted to tell apart."""
FOREIGN = 0.85
"""Share of the steps of other goals that a threshold keeps out."""
THRESHOLDS = {"minilm": 0.6}
"""Least similarity of a line that means a step, by encoder: by the rule of `FOREIGN` on the graphs of CaptainCook4D."""
# Decimals of a similarity; those after them depend on what else was encoded in the same batch.
_DIGITS = 4
# Texts embedded in one call.
_AT_ONCE = 4096
_JOINTS = re.compile(r"\s*(?:;|,?\s(?:and\s+then|then|and)\s)\s*", re.IGNORECASE)
_CUT = "…"

Vectors = NDArray[np.float32]
Status = Literal["valid", "repeat", "alien", "out-of-order", "unknown"]
"""The status of a line of a plan: a new step of the goal whose prerequisites are met; a step already done; a step
that does not belong to the goal; a step of the goal that comes too early; not known."""
STATUSES = {
    "valid": ("✓", "a new step of the goal whose prerequisites are met"),
    "repeat": ("↺", "already done, in the history or in the plan"),
    "out-of-order": ("↯", "a step of the goal that comes too early"),
    "alien": ("✕", "not a step of this goal"),
}
"""Mark and meaning of each status of a line; a mark as well as a colour, for readers who see no colours."""


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One line of a plan and its status."""

    text: str
    status: Status = "unknown"


def shown(text: str) -> str:
    """A line as it is read: without invisible characters, and no longer than a limit; judges see the same."""
    line = visible(text[:MOST_CHARACTERS]).strip()
    return line[: MOST_CHARACTERS - 1] + _CUT if len(text) > MOST_CHARACTERS else line


def _bounded(steps: Sequence[str], graph: TaskGraph) -> tuple[list[str], list[str]]:
    """The lines that are read and those after them, so that a plan without end takes bounded time."""
    lines, most = [shown(text) for text in steps], max(MOST_LINES, 2 * len(graph.after))
    return lines[:most], lines[most:]


def shortened(line: str) -> bool:
    """Whether a line as it is read lacks its end."""
    return len(line) == MOST_CHARACTERS and line.endswith(_CUT)


class GraphPlan(NamedTuple):
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
    """Of each line to its step's nearest wording; None where it names none or no encoder was used."""
    unread: int = 0
    """Lines at the end of a plan that is too long to be read whole; they name no step."""

    def score(self) -> Validity:
        """The validity of the plan after the history."""
        return score_key(self.graph, self.history, self.plan)

    def missing(self) -> tuple[str, ...]:
        """The required steps that neither history nor plan names, in file order and in their usual words."""
        named = {*self.history, *self.plan}
        steps = (step for step in self.graph.after if step in self.graph.required - named)
        return tuple(self.wordings[step][0] for step in steps)

    def statuses(self) -> tuple[PlanLine, ...]:
        """The status of each line: valid, repeated, foreign to the goal, or too early; unknown where it is not read."""
        known = self.graph.after.keys()
        done = set(known).intersection(self.history)
        present = done | set(known).intersection(self.plan)
        lines = []
        for text, step in zip(self.lines, self.plan, strict=True):
            status: Status = "alien"
            if step is not None and step in known:
                early = not self.graph.before(step, present) <= done
                status = "repeat" if step in done else "out-of-order" if early else "valid"
                done.add(step)
            lines.append(PlanLine(text, status))
        read = len(lines) - self.unread
        return (*lines[:read], *(PlanLine(line.text) for line in lines[read:]))


class WorldReader:
    """The embedded world, which knows the words of its steps without an encoder."""

    def __init__(self, world: World) -> None:
        self._world = world

    def knows(self, goal: str) -> bool:
        """Whether the world has the goal."""
        return goal in self._world.goals

    def learn(self, texts: Iterable[tuple[str, str]]) -> None:
        """Nothing to do: the world compares words, and remembers them by itself."""

    def read(self, goal: str, history: Sequence[str], steps: Sequence[str]) -> GraphPlan:
        """A plan as steps of the world. Raises InputError for an unknown goal."""
        graph = self._world.graph(goal)
        (lines, unread), (done, _) = _bounded(steps, graph), _bounded(history, graph)
        plan, nothing = plan_key(self._world, goal, lines), (None,) * len(unread)
        before, similarities = plan_key(self._world, goal, done), (None,) * (len(lines) + len(unread))
        read = (*lines, *unread)
        return GraphPlan(graph, self._world.wordings, before, plan + nothing, read, similarities, len(unread))


class _StepCandidate(NamedTuple):
    """A step that a line may name."""

    step: str
    similarity: float


class _Candidates(NamedTuple):
    """The steps that a line may name, best first; none for a line that names no step."""

    first: tuple[_StepCandidate, ...] = ()
    then: tuple[_StepCandidate, ...] = ()
    """Only where all of `first` are done."""

    def free(self, done: frozenset[str]) -> list[_StepCandidate]:
        """Those that are not done. A line that only repeats its step is a repeat, unless a twin is still open."""
        free = ([own for own in steps if own.step not in done] for steps in (self.first, self.then))
        return next(filter(None, free), [])


class _Cost(NamedTuple):
    """The cost of a choice, in the order of weight."""

    broken_in_plan: int = 0
    broken_in_history: int = 0
    dissimilarity: float = 0.0

    def plus(self, broken: int, planned: bool, dissimilarity: float) -> "_Cost":
        """The cost with that of one more line, of the plan or of the history."""
        return _Cost(
            self.broken_in_plan + broken * planned,
            self.broken_in_history + broken * (not planned),
            # Rounded, so that ties are ties on every processor.
            round(self.dissimilarity + dissimilarity, 4),
        )


@dataclass(frozen=True, slots=True)
class _State:
    """A set of done steps and the best choices that lead to it."""

    done: frozenset[str]
    cost: _Cost
    choice: str | None = None
    previous: "_State | None" = None

    def path(self) -> PlanKey:
        """The choice for each line that led here."""
        steps, state = list[str | None](), self
        while state.previous is not None:
            steps.append(state.choice)
            state = state.previous
        return tuple(reversed(steps))


class _Chooser:
    """Chooses which steps of one task graph lines name."""

    def __init__(self, graph: TaskGraph) -> None:
        self._graph = graph
        followers: dict[str, list[str]] = {step: [] for step in graph.after}
        for later, direct in graph.after.items():
            for earlier in direct:
                followers[earlier].append(later)
        # The followers of an optional step, also through optional steps that are left out: a -> (b) -> c says a -> c.
        self._waiting: dict[str, set[str]] = {}
        for step in graph.optional:
            waiting, open_steps = self._waiting.setdefault(step, set()), list(followers[step])
            while open_steps:
                if (later := open_steps.pop()) not in waiting:
                    waiting.add(later)
                    open_steps += followers[later] if later in graph.optional else []
        self._places = {
            step: (frozenset(direct), frozenset(followers[step]), step in graph.optional)
            for step, direct in graph.after.items()
        }

    def choose(self, lines: Sequence[_Candidates], history: int) -> PlanKey:
        """The step of each line, None for a line that names none; the first `history` lines are done already.

        A search over the sets of steps that can be done after each line, which keeps the cheapest way to each set.
        """
        required = self._graph.required
        states = [_State(frozenset(), _Cost())]
        for index, candidates in enumerate(lines):
            planned, best = index >= history, dict[frozenset[str], _State]()
            for state in states:
                free = candidates.free(state.done)
                # Of those that neither words nor dependencies tell apart, the first; others lead to the same scores.
                alike = {
                    (self._places[candidate.step], candidate.similarity): candidate for candidate in reversed(free)
                }
                free = list(alike.values())[::-1]
                if len(free) > BEAM:  # no more than are followed at once: the first that break nothing, where any do
                    unbroken = (candidate for candidate in free if not self._broken(candidate.step, state.done))
                    free = list(islice(unbroken, BEAM)) or free[:BEAM]
                if free:
                    following = []
                    for step, similarity in free:
                        cost = state.cost.plus(self._broken(step, state.done), planned, 1 - similarity)
                        following.append(_State(state.done | {step}, cost, step, state))
                else:  # a repeated step and none at all change nothing
                    again = candidates.first[0].step if candidates.first else None
                    following = [_State(state.done, state.cost, again, state)]
                for new in following:
                    # Two ways to the same set of done steps have the same future: only the cheaper one goes on.
                    if new.cost < best.setdefault(new.done, new).cost:
                        best[new.done] = new
            ranked = sorted(
                best.values(), key=lambda state: (-len(state.done & required), -len(state.done), state.cost)
            )
            states = ranked[:BEAM]
        return states[0].path()

    def _broken(self, step: str, done: frozenset[str]) -> int:
        """Dependencies broken by doing `step` now: its own, and those of done steps that it comes too late for."""
        early = len(self._graph.before(step, done) - done)
        if step not in self._graph.optional:
            return early
        present = done | {step}
        return early + sum(step in self._graph.before(later, present) for later in self._waiting[step] & done)


class Matcher:
    """One goal's steps with their wordings and vectors."""

    def __init__(self, graph: GoalGraph, vectors: Vectors, threshold: float, margin: float = MARGIN) -> None:
        self._steps = tuple(graph.wordings)
        self._vectors, self._threshold, self._margin = vectors, threshold, margin
        self._starts = np.cumsum([0, *(len(texts) for texts in graph.wordings.values())])[:-1]
        self._exact: dict[str, list[str]] = defaultdict(list)
        for step, texts in graph.wordings.items():
            for text in dict.fromkeys(map(same_words, texts)):
                self._exact[text].append(step)
        between = np.maximum.reduceat(self._by_step(vectors), self._starts, axis=0)
        self._twins = {
            step: tuple(_StepCandidate(self._steps[j], float(row[j])) for j in np.flatnonzero(row >= TWINS) if j != i)
            for i, (step, row) in enumerate(zip(self._steps, between, strict=True))
        }

    def exact(self, text: str) -> _Candidates | None:
        """The steps whose words `text` has, with their twins; None for other words."""
        if not (steps := self._exact.get(same_words(text))):
            return None
        twins = {twin.step: twin for step in reversed(steps) for twin in self._twins[step] if twin.step not in steps}
        nearest_first = sorted(twins.values(), key=lambda twin: -twin.similarity)
        return _Candidates(tuple(_StepCandidate(step, 1.0) for step in steps), tuple(nearest_first))

    def near(self, vector: Vectors) -> _Candidates:
        """The steps that a text in other words may mean, by its vector float32 [d]."""
        row = self._by_step(vector[None])[0]
        best = float(row.max())
        if best < self._threshold:
            return _Candidates()
        order = np.argsort(-row, kind="stable")
        # A step below the threshold is no reading, however near the best one is.
        near = [self._steps[j] for j in order if row[j] >= max(best - self._margin, self._threshold)]
        twins = {meant.step for meant in self._twins[near[0]]}
        return _Candidates(
            tuple(_StepCandidate(self._steps[j], float(row[j])) for j in order if self._steps[j] in twins.union(near))
        )

    def _by_step(self, vectors: Vectors) -> Vectors:
        """Similarity of texts [n, d] to the nearest wording of each step [n, steps]."""
        nearest: Vectors = np.maximum.reduceat((vectors @ self._vectors.T).round(_DIGITS), self._starts, axis=1)
        return nearest


def same_words(text: str) -> str:
    """A text as exact words are compared: without case and punctuation, which does not tell wordings apart.

    >>> same_words("Flip the pancake!") == same_words("flip  the pancake")
    True
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = "".join(char if unicodedata.category(char)[0] in "LMN" else " " for char in folded).split()
    return " ".join(words or folded.split())


def wording_vectors(graphs: TaskGraphs, embed: Embed) -> list[Vectors]:
    """The vectors of each graph's wordings in order [wordings, d], of all graphs in one call."""
    texts = [[shown(text) for wordings in graph.wordings.values() for text in wordings] for graph in graphs]
    vectors = embedded(embed, [text for some in texts for text in some])
    return np.split(vectors, np.cumsum([len(some) for some in texts])[:-1])


def embedded(embed: Embed, texts: list[str]) -> Vectors:
    """Unit vectors of texts. Raises ComputeError where an encoder gives numbers that are none."""
    vectors = embed(texts)
    if not np.isfinite(vectors).all():
        raise ComputeError("the encoder gave a vector that is not finite; choose another encoder.")
    return vectors


def threshold_of(graphs: TaskGraphs, embed: Embed) -> float:
    """The similarity that 85% of steps do not reach to the nearest step of a goal that is not theirs (`FOREIGN`).

    Wordings that two goals share are left out: they are no foreign steps. Raises InputError for a single goal.
    """
    if len(graphs) < 2:
        raise InputError("a threshold cannot be found from one goal alone; give --threshold, for example 0.6.")
    vectors = wording_vectors(graphs, embed)
    words = [{same_words(text) for wordings in graph.wordings.values() for text in wordings} for graph in graphs]
    texts = [[same_words(text) for wordings in graph.wordings.values() for text in wordings] for graph in graphs]
    foreign = [
        similarity
        for i, own in enumerate(vectors)
        for j, others in enumerate(vectors)
        if i != j
        for text, similarity in zip(texts[i], (own @ others.T).max(axis=1), strict=True)
        if text not in words[j]
    ]
    if not foreign:
        raise InputError("all goals have the same steps, so that no threshold can be found; give --threshold.")
    # Two decimals: a threshold that is written down and read again is the same.
    return round(float(np.quantile(foreign, FOREIGN)), 2)


class GraphReader:
    """Task graphs and an encoder; each text is embedded once for all goals."""

    def __init__(
        self, graphs: TaskGraphs, embed: Embed, threshold: float, *, margin: float = MARGIN, split_lines: bool = False
    ) -> None:
        self.graphs = graphs
        self._embed, self._split_lines = embed, split_lines
        vectors = zip(graphs.by_key.items(), wording_vectors(graphs, embed), strict=True)
        self._matchers = {key: Matcher(graph, own, threshold, margin) for (key, graph), own in vectors}
        self._choosers = {key: _Chooser(graph.graph) for key, graph in graphs.by_key.items()}
        # An empty line names no step.
        self._known: dict[str, dict[str, _Candidates]] = defaultdict(lambda: {"": _Candidates()})

    def knows(self, goal: str) -> bool:
        """Whether the goal has a task graph."""
        return self.graphs.find(goal) is not None

    def learn(self, texts: Iterable[tuple[str, str]]) -> None:
        """Compare new (goal, text) pairs, in few calls of the encoder. Raises InputError for an unknown goal."""
        goals: dict[str, set[str]] = defaultdict(set)
        for goal, whole in texts:
            self.graphs.of(goal)
            key, text = goal_key(goal), shown(whole)
            if text in self._known[key]:
                continue
            if (exact := self._matchers[key].exact(text)) is not None:
                self._known[key][text] = exact
            else:
                goals[text].add(key)
        new = sorted(goals)
        for start in range(0, len(new), _AT_ONCE):
            block = new[start : start + _AT_ONCE]
            for text, vector in zip(block, embedded(self._embed, block), strict=True):
                for key in goals[text]:
                    self._known[key][text] = self._matchers[key].near(vector)

    def read(self, goal: str, history: Sequence[str], steps: Sequence[str]) -> GraphPlan:
        """A plan as steps of its goal. Raises InputError for a goal without a graph."""
        known = self.graphs.of(goal)
        key, graph = goal_key(goal), known.graph
        (lines, unread), (done, _) = _bounded(steps, graph), _bounded(history, graph)
        self.learn((goal, text) for text in (*done, *lines))
        if self._split_lines:
            done, lines = self._split(goal, done), self._split(goal, lines)
        candidates = [self._known[key][text] for text in (*done, *lines)]
        chosen, before = self._choosers[key].choose(candidates, len(done)), len(done)
        similarities: list[float | None] = []
        for own, step in zip(candidates[before:], chosen[before:], strict=True):
            meant = (candidate.similarity for candidate in (*own.first, *own.then) if candidate.step == step)
            similarities.append(next(meant, None))
        nothing = (None,) * len(unread)
        return GraphPlan(
            graph=graph,
            wordings=known.wordings,
            history=chosen[:before],
            plan=chosen[before:] + nothing,
            lines=(*lines, *unread),
            similarities=(*similarities, *nothing),
            unread=len(unread),
        )

    def _split(self, goal: str, lines: Sequence[str]) -> list[str]:
        """Lines in which "and", "then" or a semicolon joins several steps, as one line a step."""
        parts = {line: [part for part in map(shown, _JOINTS.split(line)) if part] for line in lines}
        self.learn((goal, part) for own in parts.values() for part in own)
        known, split = self._known[goal_key(goal)], list[str]()
        for line in lines:
            # It is split where each part is nearer to a step than the whole line is, and no two to the same step.
            nearest = [known[part].first[:1] for part in parts[line]]
            apart = {meant.step for own in nearest for meant in own}
            whole = max((meant.similarity for meant in known[line].first), default=0.0)
            several = 1 < len(parts[line]) <= len(apart)
            joined = several and min(own[0].similarity for own in nearest) > whole
            split += parts[line] if joined else [line]
        return split


PlanReader = WorldReader | GraphReader
"""Reads plans as steps of the task graphs of their goals."""
