"""Reads the world from its data files and refuses what would make validity ambiguous.

`docs/world.md` describes the format. All files of the folder share one space of step ids, so that goals share
steps.
"""

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from recipe.config.base import read_toml
from recipe.errors import InputError
from recipe.world.graph import Talk, TaskGraph, World, words

TALK = "talk.toml"
SHORTEST, LONGEST = 5, 12
"""Least and most steps of a goal."""
FEWEST_WORDINGS = 3
"""Least wordings of a step."""

_LINE = re.compile(r"(?P<step>[a-z0-9-]+)(?P<optional>\?)?(?:\s+after\s+(?P<after>[a-z0-9-]+(\s*,\s*[a-z0-9-]+)*))?")
_STEP_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_TALK_SLOTS = {"openings": ("{goal}",), "afterthoughts": ("{step}",), "repeats": ("{step}",)}


def load_world(folder: Path | Traversable | str | None = None) -> World:
    """The world in `folder`, by default the packaged one.

    Raises InputError that names the file, the goal or step, and the remedy.
    """
    packaged = resources.files("recipe.world") / "goals"
    source = Path(folder) if isinstance(folder, str) else folder or packaged
    if not source.is_dir():
        raise InputError.at(str(source), "the folder does not exist", "give a folder with the world's TOML files")
    tables = [file for file in source.iterdir() if file.name.endswith(".toml") and file.is_file()]
    files: dict[str, dict[str, Any]] = {}
    # By name: the order of goals decides what a seed draws, and no file system promises one.
    for file in sorted(tables, key=lambda file: file.name):
        try:
            content = read_toml(file.read_text(encoding="utf-8-sig"))
        except ValueError as error:
            raise InputError.at(file.name, f"not valid TOML ({error})", "repair the file") from None
        if file.name != TALK and (unknown := set(content) - {"steps", "goals"}):
            raise InputError.at(file.name, f"unknown table {min(unknown)!r}", "use steps and goals only")
        for name, table in content.items():
            if file.name != TALK and not isinstance(table, dict):
                raise InputError.at(file.name, f"{name!r} is no table", f"write [{name}]", field=name)
        files[file.name] = content
    if TALK not in files:
        remedy = "add what narrators say around their steps"
        raise InputError.at(f"{source}/{TALK}", "the file does not exist", remedy)
    content = files.pop(TALK)
    for field in Talk.__slots__:
        lines = content.get(field)
        if not isinstance(lines, list) or not lines or not all(isinstance(line, str) for line in lines):
            raise InputError.at(TALK, "not a list of texts", "give a non-empty list of texts", field=field)
        for slot in _TALK_SLOTS.get(field, ()):
            if missing := [line for line in lines if slot not in line]:
                problem = f"{missing[0]!r} lacks {slot}"
                raise InputError.at(TALK, problem, f"write {slot} into it", field=field)
    talk = Talk(**{field: tuple(content[field]) for field in Talk.__slots__})

    wordings: dict[str, tuple[str, ...]] = {}
    for name, content in files.items():
        _add_wordings(name, content.get("steps", {}), wordings)
    goals: dict[str, TaskGraph] = {}
    for name, content in files.items():
        for goal, entry in content.get("goals", {}).items():
            if goal in goals:
                raise InputError.at(name, f"the goal {goal!r} exists already", "give it another name")
            goals[goal] = _graph(name, goal, entry, wordings)
    return World(goals, wordings, talk)


def _add_wordings(name: str, table: Mapping[str, object], wordings: dict[str, tuple[str, ...]]) -> None:
    owner = {words(wording): step for step, known in wordings.items() for wording in known}
    for step, line in table.items():
        if not _STEP_ID.fullmatch(step):
            raise InputError.at(name, f"{step!r} is no step id", "write it as action-object", field="steps")
        if step in wordings:
            raise InputError.at(name, f"the step {step!r} is defined twice", "keep one definition", field="steps")
        if not isinstance(line, str):
            raise InputError.at(name, "the wordings are no text", "write them as one text with |", field=step)
        wordings[step] = tuple(wording.strip() for wording in line.split("|"))
        if len(wordings[step]) < FEWEST_WORDINGS:
            problem = f"the step has only {len(wordings[step])} wordings"
            raise InputError.at(name, problem, f"give at least {FEWEST_WORDINGS}, separated by |", field=step)
        for wording in wordings[step]:
            if wording != wording.lower() or wording.endswith(".") or not wording:
                problem = f"the wording {wording!r} is not in the agreed form"
                raise InputError.at(name, problem, "write a lower-case imperative without a full stop", field=step)
            if (other := owner.get(words(wording))) is not None:
                problem = f"the wording {wording!r} already belongs to {other!r}"
                raise InputError.at(name, problem, "word it differently, so that a text means one step", field=step)
            owner[words(wording)] = step


def _graph(name: str, goal: str, entry: Mapping[str, Any], wordings: Mapping[str, object]) -> TaskGraph:
    def refuse(problem: str, remedy: str) -> InputError:
        return InputError.at(name, problem, remedy, field=goal)

    if not isinstance(entry, dict):
        raise refuse("the goal is no table", "write it as [goals.NAME]")
    if unknown := set(entry) - {"held_out", "steps"}:
        raise refuse(f"unknown field {min(unknown)!r}", "use held_out and steps only")
    if not isinstance(held_out := entry.get("held_out", False), bool):
        raise refuse(f"held_out is {held_out!r}", "write true or false")  # "no" would count as true
    if not isinstance(entry.get("steps"), str):
        raise refuse("the goal has no steps", "write steps as a text, one a line")
    after: dict[str, tuple[str, ...]] = {}
    optional = set()
    for line in entry["steps"].strip().splitlines():
        parts = _LINE.fullmatch(line.strip())
        if parts is None:
            raise refuse(f"cannot read the line {line.strip()!r}", "write `step`, `step after a, b` or `step? after a`")
        step = parts["step"]
        if step in after:
            raise refuse(f"the step {step!r} is listed twice", "list each step once")
        after[step] = tuple(earlier.strip() for earlier in (parts["after"] or "").split(",") if earlier)
        if parts["optional"]:
            optional.add(step)
    if not SHORTEST <= len(after) <= LONGEST:
        raise refuse(f"the goal has {len(after)} steps", f"give {SHORTEST} to {LONGEST} steps")
    for step, earlier in after.items():
        if step not in wordings:
            raise refuse(f"the step {step!r} has no wordings", "define it under [steps]")
        if absent := [other for other in earlier if other not in after]:
            problem = f"{step!r} comes after {absent[0]!r}, which the goal does not list"
            raise refuse(problem, "list that step or remove the dependency")
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        circle = ", ".join(sorted(set(error.args[1])))
        raise refuse(f"the steps {circle} wait for each other", "remove one dependency of the circle") from None
    graph = TaskGraph(goal, name.removesuffix(".toml"), after, frozenset(optional), held_out)
    if len(graph.required) < SHORTEST - 1:
        raise refuse(f"only {len(graph.required)} steps are required", f"require at least {SHORTEST - 1}")
    return graph
