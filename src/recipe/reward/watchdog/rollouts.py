"""The completions of a training step, live or recorded by any trainer, and statistics of them.

A record is JSON lines with goal, history, completion and reward. A run folder holds `completions/step-NNNNN.jsonl`.
Elsewhere each line has a `step`, or its file is named so. `reward` is a number, null where it was not computed, or an
object with `total` and `gated`; `clipped` is optional.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.artifacts import JsonObject, read_jsonl, text_field
from recipe.errors import InputError
from recipe.reward.scorer import Steps
from recipe.text import plan_steps

NEAR = 0.75
"""Share of common words from which on two lines count as the same."""
_SMALL = frozenset(
    {"a", "an", "the", "some", "it", "its", "of", "to", "in", "into", "on", "onto", "at", "with", "and"}
    | {"then", "now", "next", "first", "finally", "please"}
)
"""Function words."""
_WORD = re.compile(r"\w+")
_STEP = re.compile(r"step[-_](\d+)")


class Rollout(NamedTuple):
    """One completion of a training step."""

    goal: str
    history: Steps
    plan: Steps
    """Empty for a completion without steps."""
    reward: float | None
    """None where it could not be computed."""
    gated: bool = False
    """Whether the reward is a penalty for no progress."""
    clipped: bool = False
    """Whether the completion was cut at the token limit."""


class StepStatistics(NamedTuple):
    """The numbers of one step; None where the step has no completions to take a number from."""

    step: int
    length: float
    """Mean steps of a plan."""
    copied: float | None
    """Share of all steps planned that the history holds already."""
    repeated: float | None
    """Share of all steps planned that the same plan holds already."""
    reward: float | None
    """Mean over the completions that were scored."""
    gated: float | None
    """Share of those that fell below the gate."""
    still: float | None
    """Share of groups whose completions all earn the same, so that nothing is learnt from them."""
    clipped: float
    """Share of completions that were cut at the token limit."""
    length_pay: float | None
    """Correlation of reward and length among the completions of a prompt, all groups pooled."""


def step_statistics(step: int, rollouts: Sequence[Rollout]) -> StepStatistics:
    """The statistics of a step's completions, at least one; a prompt's completions are a group."""
    planned = sum(len(one.plan) for one in rollouts)
    copied = sum(_copies(one.history, one.plan) for one in rollouts)
    repeated = sum(_repeats(one.plan) for one in rollouts)
    scored = [one for one in rollouts if one.reward is not None]
    groups = _groups(scored)
    return StepStatistics(
        step=step,
        length=planned / len(rollouts),
        copied=copied / planned if planned else None,
        repeated=repeated / planned if planned else None,
        reward=_mean([one.reward for one in scored if one.reward is not None]),
        gated=_mean([float(one.gated) for one in scored]),
        still=_mean([float(np.ptp(rewards) < 1e-9) for rewards, _ in groups]),
        clipped=sum(one.clipped for one in rollouts) / len(rollouts),
        length_pay=_pooled_correlation(groups),
    )


def copied_share(history: Sequence[str], plan: Sequence[str]) -> float:
    """Share of a plan's lines that repeat a step of the history; 0 for a plan without lines.

    >>> copied_share(["Add the eggs."], ["now add eggs", "whisk"])
    0.5
    """
    return _copies(history, plan) / len(plan) if plan else 0.0


def repeated_share(plan: Sequence[str]) -> float:
    """Share of a plan's lines that repeat an earlier line; 0 for a plan without lines.

    >>> repeated_share(["whisk", "pour", "then whisk", "whisk"])
    0.5
    """
    return _repeats(plan) / len(plan) if plan else 0.0


def _copies(history: Sequence[str], plan: Sequence[str]) -> int:
    done = [content_words(step) for step in history]
    return sum(_is_among(content_words(line), done) for line in plan)


def _repeats(plan: Sequence[str]) -> int:
    lines = [content_words(line) for line in plan]
    return sum(_is_among(line, lines[:place]) for place, line in enumerate(lines))


def _is_among(line: frozenset[str], before: Iterable[frozenset[str]]) -> bool:
    return any(line == one or len(line & one) >= NEAR * len(line | one) for one in before)


@lru_cache(maxsize=65_536)
def content_words(line: str) -> frozenset[str]:
    """The words of a line without function words; all of them where it has no others."""
    words = frozenset(_WORD.findall(line.casefold()))
    return words - _SMALL or words


def _groups(scored: Sequence[Rollout]) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Rewards and lengths of each prompt with two scored completions or more."""
    by_prompt: dict[tuple[str, Steps], list[tuple[float, float]]] = {}
    for one in scored:
        if one.reward is not None:
            by_prompt.setdefault((one.goal, one.history), []).append((one.reward, float(len(one.plan))))
    tables = [np.array(pairs) for pairs in by_prompt.values() if len(pairs) > 1]
    return [(table[:, 0], table[:, 1]) for table in tables]


def _pooled_correlation(groups: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> float | None:
    """sum cov / sqrt(sum var * sum var) within groups; None where reward or length never differs."""
    moved = [(rewards - rewards.mean(), lengths - lengths.mean()) for rewards, lengths in groups]
    spread = sum(float(r @ r) for r, _ in moved) * sum(float(n @ n) for _, n in moved)
    if spread < 1e-18:
        return None
    return sum(float(r @ n) for r, n in moved) / float(np.sqrt(spread))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


class StepRecord(NamedTuple):
    """The completions of one training step."""

    step: int
    rollouts: tuple[Rollout, ...]


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
    """The rollout of a line of a record."""
    reward = row["reward"]
    total, gated = (reward["total"], reward.get("gated", False)) if isinstance(reward, dict) else (reward, False)
    return Rollout(
        goal=row["goal"],
        history=tuple(row["history"]),
        plan=plan_steps(row["completion"], cut=bool(row.get("clipped", False))),
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
    too_large = type(total) is int and abs(total) > sys.float_info.max
    if too_large or (total is not None and type(total) not in (int, float)):
        remedy = "give a number, null, or an object with 'total'"
        raise InputError.at(file, "no reward", remedy, line=line, field="reward")
    return as_rollout(row)
