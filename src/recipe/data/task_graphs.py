"""Task graphs written by people, as JSON: those of CaptainCook4D, and your own.

    {"goal": "make tea",
     "steps": {"boil": "Boil the water", "steep": ["Steep the tea", "Let the tea steep"], "sugar": "Add sugar"},
     "edges": [["boil", "steep"]], "after": {"sugar": ["steep"]}, "optional": ["sugar"]}

`edges` holds pairs [before, after]; `after` says the same from the other side, and both may be given. A file holds one
graph or a list of them, a folder any number of files. CaptainCook4D's own files have `steps` and `edges` only: the goal
is then the file's name, START and END are no steps, and `instruction` takes the verb off each description.
"""

import difflib
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from recipe.artifacts import not_a_file, read_json
from recipe.data.captaincook4d import ANNOTATIONS, activity_names, instruction
from recipe.errors import InputError, listed
from recipe.rows import Text, faults_of
from recipe.world.graph import TaskGraph

START, END = "START", "END"
_FOLDER = "task_graphs"
_FORM = 'give {"goal": ..., "steps": {id: text}, "edges": [[before, after], ...]}'

# Not isinstance: True is an int, too, and no name of a step.
_Id = Annotated[str, BeforeValidator(lambda node: str(node) if type(node) is int else node)]
_Wordings = Annotated[
    tuple[Text, ...], Field(min_length=1), BeforeValidator(lambda text: (text,) if isinstance(text, str) else text)
]


class _GraphFile(BaseModel):
    """A graph as its file has it."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    goal: Text | None = None
    steps: dict[str, _Wordings]
    edges: tuple[tuple[_Id, _Id], ...] = ()
    after: dict[str, tuple[_Id, ...]] = {}
    optional: tuple[_Id, ...] = ()

    def pairs(self) -> list[tuple[str, str, str]]:
        """Each dependency once as (before, after, field that says so first), in file order."""
        fields: dict[tuple[str, str], str] = {}
        for index, edge in enumerate(self.edges):
            fields.setdefault(edge, f"edges[{index}]")
        for later, direct in self.after.items():
            for earlier in direct:
                fields.setdefault((earlier, later), f"after.{later}")
        return [(earlier, later, field) for (earlier, later), field in fields.items()]


@dataclass(frozen=True, slots=True)
class GoalGraph:
    """A goal's task graph and how each of its steps is worded."""

    graph: TaskGraph
    wordings: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class TaskGraphs:
    """Task graphs by goal; `goal_key` identifies a goal."""

    origin: str
    """The file or folder that they were read from."""
    by_key: Mapping[str, GoalGraph]

    def find(self, goal: str) -> GoalGraph | None:
        """The graph of a goal, None where there is none; case, space and punctuation do not count."""
        return self.by_key.get(goal_key(goal))

    def of(self, goal: str) -> GoalGraph:
        """The graph of a goal. Raises InputError with the nearest names for an unknown one."""
        if (graph := self.find(goal)) is not None:
            return graph
        names = {key: graph.graph.goal for key, graph in self.by_key.items()}
        near = difflib.get_close_matches(goal_key(goal), names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(repr(names[key]) for key in near)}?" if near else "give it one."
        raise InputError(f"{self.origin} has no task graph of goal {goal!r}; {hint}")

    def __iter__(self) -> Iterator[GoalGraph]:
        return iter(self.by_key.values())

    def __len__(self) -> int:
        return len(self.by_key)


def goal_key(goal: str) -> str:
    """A goal as it is compared: letters, marks and digits without case, so that a squeezed file name is its goal.

    >>> goal_key("Breakfast Burritos") == goal_key("breakfastburritos")
    True
    """
    text = unicodedata.normalize("NFKC", goal).casefold()
    # A goal of signs alone is compared as it is.
    return "".join(char for char in text if unicodedata.category(char)[0] in "LMN") or " ".join(text.split())


def read_task_graphs(path: Path) -> TaskGraphs:
    """The graphs of a file, of a folder of JSON files, or of CaptainCook4D's folder.

    Goals of CaptainCook4D have their activities' names where the annotations come with the graphs.
    Raises InputError with file, field and remedy for what is no graph: a cycle, a step that is not listed, no steps, a
    step that START does not lead to or that does not lead to END, a goal that has a graph already.
    """
    # Activities of the annotations in a folder around the graphs, if there are any.
    around = (path, *path.parents[:2])
    root = next((folder for folder in around if (folder / ANNOTATIONS).is_file()), None)
    names = {} if root is None else {goal_key(name): name for name in activity_names(root)}
    return TaskGraphs(str(path), _read(path, names))


def count_task_graphs(folder: Path) -> int:
    """Number of task graphs of CaptainCook4D in `folder`, 0 without its folder of them. Raises InputError."""
    return len(_read(folder / _FOLDER, {})) if any((folder / _FOLDER).glob("*.json")) else 0


def _read(path: Path, names: Mapping[str, str]) -> dict[str, GoalGraph]:
    """Graphs by key; `names` are those of goals that files are called after."""
    if path.is_file():
        files = [path]
    elif not path.is_dir():
        raise not_a_file(path)
    else:
        folder = path / _FOLDER if (path / _FOLDER).is_dir() else path
        files = sorted(folder.glob("*.json"))
        if not files:
            problem = "no task graph is in this folder"
            raise InputError.at(folder, problem, "put JSON files there, one or more graphs each")
    graphs: dict[str, GoalGraph] = {}
    origin: dict[str, Path] = {}
    for file in files:
        value = read_json(file)
        # An empty list would pass for a file without a fault, and without a graph.
        if value == []:
            raise InputError.at(file, "the list is empty", _FORM)
        several = isinstance(value, list)
        entries = [(f"[{index}]", entry) for index, entry in enumerate(value)] if several else [("", value)]
        for place, entry in entries:
            if not isinstance(entry, dict):
                raise InputError.at(file, "no task graph but another JSON value", _FORM, field=place or None)
            prefix = f"{place}." if place else ""
            try:
                written = _GraphFile.model_validate(entry)
            except ValidationError as error:
                first = next(faults_of(error, _GraphFile))
                raise InputError.at(file, first.problem, _FORM, field=f"{prefix}{first.field}") from None
            if written.goal is None and place:
                remedy = "name the goal of each graph of a list"
                raise InputError.at(file, "the field is missing", remedy, field=f"{prefix}goal")
            graph = _graph(file, prefix, written, names)
            key = goal_key(graph.graph.goal)
            if key in graphs:
                problem = f"goal {graph.graph.goal!r} has a graph already, in {origin[key]}"
                raise InputError.at(file, problem, "keep one graph of each goal", field=f"{prefix}goal")
            graphs[key], origin[key] = graph, file
    return graphs


def _graph(file: Path, prefix: str, written: _GraphFile, names: Mapping[str, str]) -> GoalGraph:
    """The graph of a file; `prefix` is its place there, for messages. Raises InputError."""

    def fault(problem: str, remedy: str, field: str) -> InputError:
        return InputError.at(file, problem, remedy, field=f"{prefix}{field}")

    pairs = written.pairs()
    start, end = ({node for node, texts in written.steps.items() if texts == (word,)} for word in (START, END))
    mentioned = [(node, field) for earlier, later, field in pairs for node in (earlier, later)]
    mentioned += [(node, f"optional[{index}]") for index, node in enumerate(written.optional)]
    for node, field in mentioned:
        if node not in written.steps:
            raise fault(f"step {node!r} is not listed", "list it under steps or remove it here", field)
        if field.startswith("optional") and node in start | end:
            raise fault("START and END are no steps", "name steps of the goal only", field)
    steps = [node for node in written.steps if node not in start | end]
    if not steps:
        raise fault("the graph has no step", "list the steps of the goal", "steps")

    # Nothing comes before START or after END; where they stand, every step lies between them.
    for earlier, later, field in pairs:
        if later in start or earlier in end:
            raise fault("an edge leads into START or out of END", "remove or turn it", field)
    followed = {earlier for earlier, _, _ in pairs}
    preceded = {later for _, later, _ in pairs}
    # Without a circle, a step that something leads to is reached from one that nothing leads to.
    if start and (lost := [node for node in steps if node not in preceded]):
        raise fault(f"START does not lead to {listed(lost)}", "add an edge to each", "edges")
    if end and (lost := [node for node in steps if node not in followed]):
        raise fault(f"{listed(lost)} does not lead to END", "add an edge from each", "edges")

    after: dict[str, list[str]] = {node: [] for node in steps}
    for earlier, later, _ in pairs:
        if earlier in after and later in after:
            after[later].append(earlier)
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        circle = " -> ".join(repr(node) for node in error.args[1])
        raise fault(f"steps wait for each other: {circle}", "remove one edge of the circle", "edges") from None
    goal = written.goal or names.get(goal_key(file.stem), file.stem)
    graph = TaskGraph(goal, file.stem, {n: tuple(e) for n, e in after.items()}, frozenset(written.optional))
    wordings = {}
    for node in steps:
        texts = written.steps[node] if written.goal else map(instruction, written.steps[node])
        wordings[node] = tuple(dict.fromkeys(texts))
    return GoalGraph(graph, wordings)
