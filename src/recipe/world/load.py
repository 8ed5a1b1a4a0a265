"""Reads the world from its data files and refuses what would make validity ambiguous.

`docs/world.md` describes the format. All files of the folder share one space of step ids, so that goals share
steps.
"""

import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

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


def load_world(folder: Path | Traversable | None = None) -> World:
    """The world in `folder`, by default the packaged one.

    Raises InputError that names the file, the goal or step, and the remedy.
    """
    source = folder or resources.files("recipe.world") / "goals"
    files = {file.name: _read(file) for file in _data_files(source)}
    if TALK not in files:
        remedy = "add what narrators say around their steps"
        raise InputError.at(f"{source}/{TALK}", "the file does not exist", remedy)
    talk = _talk(files.pop(TALK))
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


def _data_files(source: Path | Traversable) -> list[Path | Traversable]:
    if not source.is_dir():
        remedy = "give a folder with the world's TOML files"
        raise InputError.at(str(source), "the folder does not exist", remedy)
    files = [file for file in source.iterdir() if file.name.endswith(".toml") and file.is_file()]
    return sorted(files, key=lambda file: file.name)


def _read(file: Path | Traversable) -> dict[str, Any]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError.at(file.name, f"not valid TOML ({error})", "repair the file") from None
    if file.name != TALK and (unknown := set(content) - {"steps", "goals"}):
        raise InputError.at(file.name, f"unknown table {min(unknown)!r}", "use steps and goals only")
    for name, table in content.items():
        if file.name != TALK and not isinstance(table, dict):
            raise InputError.at(file.name, f"{name!r} is no table", f"write [{name}]", field=name)
    return content


def _talk(content: Mapping[str, Any]) -> Talk:
    for field in Talk.__slots__:
        lines = content.get(field)
        if not isinstance(lines, list) or not lines or not all(isinstance(line, str) for line in lines):
            raise InputError.at(TALK, "not a list of texts", "give a non-empty list of texts", field=field)
        for slot in _TALK_SLOTS.get(field, ()):
            if missing := [line for line in lines if slot not in line]:
                problem = f"{missing[0]!r} lacks {slot}"
                raise InputError.at(TALK, problem, f"write {slot} into it", field=field)
    return Talk(**{field: tuple(content[field]) for field in Talk.__slots__})


def _add_wordings(name: str, table: Mapping[str, object], wordings: dict[str, tuple[str, ...]]) -> None:
    owner = {words(wording): step for step, known in wordings.items() for wording in known}
    for step, line in table.items():
        if not _STEP_ID.fullmatch(step):
            raise InputError.at(name, f"{step!r} is no step id", "write it as action-object", field="steps")
        if step in wordings:
            problem = f"the step {step!r} is defined twice"
            raise InputError.at(name, problem, "keep one definition", field="steps")
        if not isinstance(line, str):
            raise InputError.at(name, "the wordings are no text", "write them as one text with |", field=step)
        wordings[step] = tuple(wording.strip() for wording in line.split("|"))
        _check_wordings(name, step, wordings[step], owner)


def _check_wordings(name: str, step: str, known: tuple[str, ...], owner: dict[tuple[str, ...], str]) -> None:
    if len(known) < FEWEST_WORDINGS:
        remedy = f"give at least {FEWEST_WORDINGS}, separated by |"
        raise InputError.at(name, f"the step has only {len(known)} wordings", remedy, field=step)
    for wording in known:
        if wording != wording.lower() or wording.endswith(".") or not wording:
            problem = f"the wording {wording!r} is not in the agreed form"
            remedy = "write a lower-case imperative without a full stop"
            raise InputError.at(name, problem, remedy, field=step)
        if (other := owner.get(words(wording))) is not None:
            problem = f"the wording {wording!r} already belongs to {other!r}"
            remedy = "say it another way, so that a text means one step"
            raise InputError.at(name, problem, remedy, field=step)
        owner[words(wording)] = step


def _graph(name: str, goal: str, entry: Mapping[str, Any], wordings: Mapping[str, object]) -> TaskGraph:
    if not isinstance(entry, dict):
        raise InputError.at(name, "the goal is no table", "write it as [goals.NAME]", field=goal)
    if unknown := set(entry) - {"held_out", "steps"}:
        problem = f"unknown field {min(unknown)!r}"
        raise InputError.at(name, problem, "use held_out and steps only", field=goal)
    if not isinstance(entry.get("steps"), str):
        raise InputError.at(name, "the goal has no steps", "write steps as a text, one a line", field=goal)
    after: dict[str, tuple[str, ...]] = {}
    optional = set()
    for line in entry["steps"].strip().splitlines():
        parts = _LINE.fullmatch(line.strip())
        if parts is None:
            remedy = "write `step`, `step after a, b` or `step? after a`"
            raise InputError.at(name, f"cannot read the line {line.strip()!r}", remedy, field=goal)
        step = parts["step"]
        if step in after:
            raise InputError.at(name, f"the step {step!r} is listed twice", "list each step once", field=goal)
        after[step] = tuple(earlier.strip() for earlier in (parts["after"] or "").split(",") if earlier)
        if parts["optional"]:
            optional.add(step)
    held_out = bool(entry.get("held_out", False))
    graph = TaskGraph(goal, name.removesuffix(".toml"), after, frozenset(optional), held_out)
    _check_graph(name, graph, wordings)
    return graph


def _check_graph(name: str, graph: TaskGraph, wordings: Mapping[str, object]) -> None:
    if not SHORTEST <= len(graph.after) <= LONGEST:
        remedy = f"give {SHORTEST} to {LONGEST} steps"
        raise InputError.at(name, f"the goal has {len(graph.after)} steps", remedy, field=graph.goal)
    for step, earlier in graph.after.items():
        if step not in wordings:
            problem = f"the step {step!r} has no wordings"
            raise InputError.at(name, problem, "define it under [steps]", field=graph.goal)
        if unknown := [other for other in earlier if other not in graph.after]:
            problem = f"{step!r} comes after {unknown[0]!r}, which the goal does not list"
            raise InputError.at(name, problem, "list that step or remove the dependency", field=graph.goal)
    done: set[str] = set()
    while free := {step for step in graph.after if step not in done and done.issuperset(graph.after[step])}:
        done |= free
    if circular := sorted(set(graph.after) - done):
        problem = f"the steps {', '.join(circular)} wait for each other"
        raise InputError.at(name, problem, "remove one dependency of the circle", field=graph.goal)
    if len(graph.required) < SHORTEST - 1:
        problem = f"only {len(graph.required)} steps are required"
        raise InputError.at(name, problem, f"require at least {SHORTEST - 1}", field=graph.goal)
