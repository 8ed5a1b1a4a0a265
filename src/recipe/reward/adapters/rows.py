"""From what a trainer hands over to a row: the side channels, and the text of a completion."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from recipe.errors import InputError
from recipe.reward.adapters.batch import Row
from recipe.reward.prompts import Steps


def row_of(completion: str, *places: Any) -> Row:
    """A completion with its goal and history, from the first of `places` that holds a goal.

    A place is a mapping, the text of a JSON object, or an object with the attributes. Raises InputError.

    >>> row_of("1. Pour", None, '{"goal": "Make tea", "history": ["Boil water"]}')
    Row(goal='Make tea', history=('Boil water',), completion='1. Pour')
    """
    for place in map(_fields, places):
        if place.get("goal") is not None:
            return Row(_goal(place["goal"]), history_of(place.get("history")), completion)
    raise InputError('a sample comes without its goal; hand over {"goal": "...", "history": ["...", ...]} with it.')


def rows_of(completions: Sequence[Any], goals: Sequence[str], histories: Sequence[Any]) -> list[Row]:
    """One row for each completion of a batch in columns. Raises InputError."""
    columns = zip(completions, goals, histories, strict=True)
    return [Row(_goal(goal), history_of(history), text_of(completion)) for completion, goal, history in columns]


def history_of(value: Any) -> Steps:
    """Steps from a list, an array or the text of a JSON list. Raises InputError.

    >>> history_of('["Boil water"]')
    ('Boil water',)
    """
    steps = _parsed(value) if isinstance(value, str) else value
    if hasattr(steps, "tolist"):  # a column read from Parquet is an array
        steps = steps.tolist()
    if not isinstance(steps, list | tuple) or not all(isinstance(step, str) for step in steps):
        raise InputError(f"the history is {value!r}; give the steps that are done as a list of texts, [] for none.")
    return tuple(steps)


def text_of(completion: Any) -> str:
    """A completion's text, where it is one, else that of its last message.

    >>> text_of([{"role": "assistant", "content": [{"type": "text", "text": "1. Pour"}]}])
    '1. Pour'
    """
    if isinstance(completion, str):
        return completion
    content = completion[-1]["content"] if completion else None
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text") or "" for part in content)


def _goal(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise InputError(f"the goal is {value!r}; give it as a text.")


def _fields(place: Any) -> Mapping[str, Any]:
    value = _parsed(place) if isinstance(place, str) else place
    if value is None or isinstance(value, str | list):
        return {}
    if isinstance(value, Mapping):
        return value
    return {name: getattr(value, name, None) for name in ("goal", "history")}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
