"""Recorded completions of any trainer: JSON lines with goal, history, completion and reward.

A run folder holds `completions/step-NNNNN.jsonl`. Elsewhere each line has a `step`, or its file is named so.
`reward` is a number, null where it was not computed, or an object with `total` and `gated`; `clipped` is optional.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from recipe.artifacts import JsonObject, read_jsonl, text_field
from recipe.errors import InputError
from recipe.reward.watchdog.rollouts import Rollout
from recipe.reward.watchdog.watch import Watchdog
from recipe.text import plan_steps

_STEP = re.compile(r"step[-_](\d+)")


class StepRecord(NamedTuple):
    """The completions of one training step."""

    step: int
    rollouts: tuple[Rollout, ...]


def replay(records: Iterable[StepRecord]) -> Watchdog:
    """A watchdog after these steps."""
    watchdog = Watchdog()
    for record in records:
        watchdog.observe(record.step, record.rollouts)
    return watchdog


def read_records(path: Path) -> Iterator[StepRecord]:
    """The steps recorded in a run folder, in a folder of JSON-lines files or in one such file, in order of step.

    Raises InputError where there are none, and with file, line and field for a line that cannot be read.
    """
    if path.is_dir() and (path / "completions").is_dir():
        path = path / "completions"
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise InputError.at(path, "no completions are recorded here", "give a run folder or a JSON-lines file")
    steps: dict[int, list[Rollout]] = {}
    for file in files:
        named = _STEP.search(file.stem)
        for line, row in read_jsonl(file):
            step = _step(file, line, row, None if named is None else int(named[1]))
            steps.setdefault(step, []).append(_checked(file, line, row))
    yield from (StepRecord(step, tuple(steps[step])) for step in sorted(steps))


def _step(file: Path, line: int, row: JsonObject, named: int | None) -> int:
    step = row.get("step", named)
    if type(step) is not int:
        remedy = "give the number of the training step, or name the file step-00001.jsonl"
        raise InputError.at(file, "no step is given", remedy, line=line, field="step")
    return step


def as_rollout(row: JsonObject) -> Rollout:
    """The rollout of a line with the fields that this module's docstring names."""
    reward = row["reward"]
    total, gated = (reward["total"], reward.get("gated", False)) if isinstance(reward, dict) else (reward, False)
    return Rollout(
        goal=row["goal"],
        history=tuple(row["history"]),
        plan=plan_steps(row["completion"]),
        reward=None if total is None else float(total),
        gated=bool(gated),
        clipped=bool(row.get("clipped", False)),
    )


def _checked(file: Path, line: int, row: JsonObject) -> Rollout:
    """The rollout of a line, checked field by field. Raises InputError."""
    text_field(file, line, row, "goal")
    history, reward = row.get("history"), row.get("reward", "")
    if not isinstance(row.get("completion"), str):
        raise InputError.at(file, "no text", "give the completion as a string", line=line, field="completion")
    if not isinstance(history, list) or any(not isinstance(step, str) for step in history):
        remedy = "give the steps done as a list of strings, which may be empty"
        raise InputError.at(file, "no list of steps", remedy, line=line, field="history")
    total = reward.get("total", "") if isinstance(reward, dict) else reward
    if total is not None and type(total) not in (int, float):
        remedy = "give a number, null, or an object with 'total'"
        raise InputError.at(file, "no reward", remedy, line=line, field="reward")
    return as_rollout(row)
