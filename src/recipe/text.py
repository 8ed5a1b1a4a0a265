"""Plan text to steps and back, and the chat messages of a planner."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from recipe.errors import HALVES, InputError, quoted
from recipe.types import Frames, Malformed, Plan

SYSTEM_PROMPT = (
    "You plan procedures. Given a goal and the steps already done, "
    "write only the remaining steps as a numbered list, one short step per line."
)
"""Asks for the format that `parse_plan` reads; short, because small models read it at every prompt."""

_MARKER = re.compile(r"^\s*(?:step\s+)?(?:(\d{1,3})\s*[.):](?!\d)|[-*•])\s*", re.IGNORECASE)
_EMPHASIS = re.compile(r"\*\*|__|`")


def parse_plan(text: str) -> Plan | Malformed:
    """The steps written in a completion, or why there are none.

    Where some lines carry a number or a bullet, the steps are those of the first list (`first_list`), so that neither a
    preamble nor what a model goes on with is mistaken for a step; otherwise each non-empty line is a step.

    >>> parse_plan("Here is the rest:\\n1. Boil water\\n2) Steep the tea\\nEnjoy! Another way:\\n1. Use a bag")
    Plan(steps=('Boil water', 'Steep the tea'))
    >>> parse_plan("  ").reason
    'the completion is empty'
    """
    lines = _lines(text)
    if not lines:
        return Malformed("the completion is empty", text)
    steps = first_list(text) if any(map(_MARKER.match, lines)) else _worded(lines)
    return Plan(steps) if steps else Malformed("no line of the completion holds a step", text)


def plan_steps(text: str) -> tuple[str, ...]:
    """The steps of a completion, none where it is malformed.

    >>> plan_steps("1. Boil water"), plan_steps(" ")
    (('Boil water',), ())
    """
    plan = parse_plan(text)
    return plan.steps if isinstance(plan, Plan) else ()


def as_steps(texts: object) -> tuple[str, ...]:
    """The steps of a list of texts or of a plan, as a tuple. Raises InputError for anything else, with its remedy.

    >>> as_steps(["boil the water", "pour it"])
    ('boil the water', 'pour it')
    """
    if isinstance(texts, Plan):
        return texts.steps
    if isinstance(texts, str):
        raise InputError(f"Steps are a list of texts, not one text; write [{quoted(texts)}].")
    if not isinstance(texts, Iterable):
        raise InputError(f"Steps are a list of texts, not {texts!r}; write them in square brackets.")
    steps = tuple(texts)
    for number, step in enumerate(steps, start=1):
        if not isinstance(step, str):
            nested = isinstance(step, Sequence | Plan)
            kind = "a list of steps itself" if nested else f"of type {type(step).__name__}"
            remedy = "give one plan here, a flat list of texts" if nested else "give texts"
            raise InputError(f"Steps are a list of texts, and step {number} is {kind}; {remedy}.")
        whole_text(f"text of step {number}", step)
    return steps


def whole_text(name: str, value: object) -> str:
    """The value where it is a text without half a character (a lone surrogate). Raises InputError with the name."""
    if not isinstance(value, str):
        raise InputError(f"the {name} is {value!r:.160}; give it as a text.")
    if HALVES.search(value):
        raise InputError(f"the {name} holds half a character ({quoted(value)}); repair or remove it.")
    return value


def first_list(text: str) -> tuple[str, ...]:
    """The steps of the first list in a text, none where no line carries a number or a bullet.

    The list ends where its numbers go back. It ends, too, where a line without a mark stands that is not indented,
    unless the numbers go on behind it: a heading or a remark between steps. Lines may be added to a text without
    changing the steps before them.

    >>> first_list("1. Boil water\\nNow the tea:\\n2. Steep it\\n1. Serve")
    ('Boil water', 'Steep it')
    >>> first_list("- boil water\\n  for a minute\\n- steep the tea\\nTips:\\n- use fresh water")
    ('boil water', 'steep the tea')
    """
    steps: list[str] = []
    last, begun, interrupted = 0, False, False
    for line in _lines(text):
        mark = _MARKER.match(line)
        if mark is None:
            interrupted = interrupted or (begun and not line[0].isspace())
            continue
        number = int(mark[1]) if mark[1] else None
        if (number is None and interrupted) or (number is not None and number < last + interrupted):
            break
        begun, interrupted, last = True, False, last if number is None else number
        steps.append(line)
    return _worded(steps)


def every_list(text: str) -> tuple[str, ...]:
    """The steps of all lists in a text; where no line carries a number or a bullet, each non-empty line is a step.

    >>> every_list("First:\\n- boil water\\nThen:\\n- steep the tea")
    ('boil water', 'steep the tea')
    """
    lines = _lines(text)
    return _worded([line for line in lines if _MARKER.match(line)] or lines)


def _lines(text: str) -> list[str]:
    """The non-blank lines, without emphasis."""
    return [line for line in _EMPHASIS.sub("", text).splitlines() if line.strip()]


def _worded(lines: Sequence[str]) -> tuple[str, ...]:
    """Lines without their marks, those that hold a word or a number."""
    stripped = (_MARKER.sub("", line).strip() for line in lines)
    return tuple(step for step in stripped if any(char.isalnum() for char in step))


def format_plan(steps: Sequence[str]) -> str:
    """Steps as the numbered list that `parse_plan` reads.

    >>> format_plan(["Boil water", "Steep the tea"])
    '1. Boil water\\n2. Steep the tea'
    """
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))


def planner_messages(goal: str, history: Sequence[str]) -> list[dict[str, str]]:
    """The chat that asks a planner for the steps after `history`; the reply is the assistant's turn."""
    done = format_plan(history) if history else "nothing yet"
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": f"Goal: {goal}\nDone:\n{done}"},
    ]


def video_messages(goal: str, video: Frames) -> list[dict[str, Any]]:
    """The chat that asks for the steps after what `video` shows: the clip stands where `planner_messages` writes it."""
    parts = [{"type": "text", "text": f"Goal: {goal}\nDone:\n"}, {"type": "video", "video": video}]
    return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": parts}]
