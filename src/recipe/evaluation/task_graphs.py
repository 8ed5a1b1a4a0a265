"""Plans in free words against task graphs: lines are matched to steps (`task_graph_matching`), and the graph judges.

Which of several steps a line means is chosen for history and plan together (`task_graph_choice`), so that every valid
order scores 1. The score is that of `world.validity`. It depends on the goal's own graph only, and not on which other
plans or graphs are read with it. A line is one step, its nearest, unless lines are to be split.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from recipe.data.task_graphs import TaskGraphs, goal_key
from recipe.evaluation.agreement import Embed
from recipe.evaluation.readings import Reading, lines_of, shown
from recipe.evaluation.task_graph_choice import Candidates, Chooser
from recipe.evaluation.task_graph_matching import MARGIN, Matcher, embedded, wording_vectors

_AT_ONCE = 4096
"""Texts embedded in one call."""
_JOINTS = re.compile(r"\s*(?:;|,?\s(?:and\s+then|then|and)\s)\s*", re.IGNORECASE)


class GraphReader:
    """Task graphs and an encoder; each text is embedded once for all goals."""

    def __init__(
        self, graphs: TaskGraphs, embed: Embed, threshold: float, *, margin: float = MARGIN, split_lines: bool = False
    ) -> None:
        self.graphs = graphs
        self._embed, self._split_lines = embed, split_lines
        vectors = zip(graphs.by_key.items(), wording_vectors(graphs, embed), strict=True)
        self._matchers = {key: Matcher(graph, own, threshold, margin) for (key, graph), own in vectors}
        self._choosers = {key: Chooser(graph.graph) for key, graph in graphs.by_key.items()}
        self._known: dict[str, dict[str, Candidates]] = defaultdict(lambda: {"": Candidates()})

    def knows(self, goal: str) -> bool:
        """Whether the goal has a task graph."""
        return self.graphs.find(goal) is not None

    def learn(self, asked: Iterable[tuple[str, str]]) -> None:
        """Compare new (goal, text) pairs, in few calls of the encoder. Raises InputError for an unknown goal."""
        self._learn((self._key(goal), shown(text)) for goal, text in asked)

    def read(self, goal: str, history: Sequence[str], steps: Sequence[str]) -> Reading:
        """A plan as steps of its goal. Raises InputError for a goal without a graph."""
        key, known = self._key(goal), self.graphs.of(goal)
        graph = known.graph
        (lines, unread), done = lines_of(steps, graph), lines_of(history, graph).read
        self._learn((key, text) for text in (*done, *lines))
        if self._split_lines:
            done, lines = self._split(key, done), self._split(key, lines)
        candidates = [self._known[key][text] for text in (*done, *lines)]
        found = self._choosers[key].choose(candidates, len(done))
        plan = found[len(done) :]
        similarities = [_similarity(one, step) for one, step in zip(candidates[len(done) :], plan, strict=True)]
        nothing = (None,) * len(unread)
        return Reading(
            graph,
            known.wordings,
            found[: len(done)],
            plan + nothing,
            (*lines, *unread),
            (*similarities, *nothing),
            len(unread),
        )

    def _key(self, goal: str) -> str:
        self.graphs.of(goal)
        return goal_key(goal)

    def _learn(self, asked: Iterable[tuple[str, str]]) -> None:
        goals: dict[str, set[str]] = defaultdict(set)
        for key, text in asked:
            if text in self._known[key]:
                continue
            if (exact := self._matchers[key].exact(text)) is not None:
                self._known[key][text] = exact
            else:
                goals[text].add(key)
        texts = sorted(goals)
        for start in range(0, len(texts), _AT_ONCE):
            block = texts[start : start + _AT_ONCE]
            for text, vector in zip(block, embedded(self._embed, block), strict=True):
                for key in goals[text]:
                    self._known[key][text] = self._matchers[key].near(vector)

    def _split(self, key: str, lines: Sequence[str]) -> list[str]:
        """Lines in which "and", "then" or a semicolon joins several steps, as one line a step."""
        parts = {line: [part for part in _JOINTS.split(line) if part] for line in lines}
        self._learn((key, part) for some in parts.values() for part in some)
        return [part for line in lines for part in (parts[line] if self._joins(key, line, parts[line]) else [line])]

    def _joins(self, key: str, line: str, parts: Sequence[str]) -> bool:
        """Whether each part is nearer to a step than the whole line is, and no two to the same step."""
        nearest = [self._known[key][part].first[:1] for part in parts]
        apart = {meant.step for one in nearest for meant in one}
        if len(parts) < 2 or len(apart) < len(parts):
            return False
        whole = max((meant.similarity for meant in self._known[key][line].first), default=0.0)
        return min(one[0].similarity for one in nearest) > whole


def _similarity(candidates: Candidates, step: str | None) -> float | None:
    found = (meant.similarity for meants in candidates for meant in meants if meant.step == step)
    return next(found, None)
