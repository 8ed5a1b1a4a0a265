"""Plan text to steps and back, and the chat messages of a planner."""

import re
from collections.abc import Sequence
from typing import Any

from recipe.types import Example, Frames, Malformed, Plan

SYSTEM_PROMPT = (
    "You plan procedures. Given a goal and the steps already done, "
    "write only the remaining steps as a numbered list, one short step per line."
)
"""Asks for the format that `parse_plan` reads; short, because small models read it at every prompt."""

_MARKER = re.compile(r"^\s*(?:step\s+)?(?:\d{1,3}\s*[.):](?!\d)|[-*•])\s*", re.IGNORECASE)
_EMPHASIS = re.compile(r"\*\*|__|`")


def parse_plan(text: str) -> Plan | Malformed:
    """The steps written in a completion, or why there are none.

    Where some lines carry a number or a bullet, only those are steps, so that a preamble is not mistaken for one;
    otherwise each non-empty line is a step.

    >>> parse_plan("Here is the rest:\\n1. Boil water\\n2) Steep the tea")
    Plan(steps=('Boil water', 'Steep the tea'))
    >>> parse_plan("  ").reason
    'the completion is empty'
    """
    lines = [line for line in _EMPHASIS.sub("", text).splitlines() if line.strip()]
    if not lines:
        return Malformed("the completion is empty", text)
    marked = [line for line in lines if _MARKER.match(line)]
    stripped = (_MARKER.sub("", line).strip() for line in marked or lines)
    steps = tuple(step for step in stripped if any(char.isalnum() for char in step))
    return Plan(steps) if steps else Malformed("no line of the completion holds a step", text)


def plan_steps(text: str) -> tuple[str, ...]:
    """The steps of a completion, none where it is malformed.

    >>> plan_steps("1. Boil water"), plan_steps(" ")
    (('Boil water',), ())
    """
    plan = parse_plan(text)
    return plan.steps if isinstance(plan, Plan) else ()


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


def training_messages(example: Example) -> list[dict[str, str]]:
    """The chat that a policy of text is trained on: with Phi's history where the example has one, else its own."""
    return planner_messages(example.goal, example.history if example.told_history is None else example.told_history)


def video_messages(goal: str, video: Frames) -> list[dict[str, Any]]:
    """The chat that asks for the steps after what `video` shows: the clip stands where `planner_messages` writes it."""
    parts = [{"type": "text", "text": f"Goal: {goal}\nDone:\n"}, {"type": "video", "video": video}]
    return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": parts}]
