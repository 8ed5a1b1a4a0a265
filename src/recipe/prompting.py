"""Prompts as text files of the package: filled in one pass, with data fenced off, and the JSON in their answers.

A prompt names what it takes as `$goal`, and braces mean nothing, so that it may show JSON. Values are never read as
templates. A fence is longer than any run of backticks in what it holds, so that data cannot end it.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from string import Template

from recipe.artifacts import JsonObject

_TICKS = re.compile("`+")
_HIDING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Controls, marks of direction, invisible letters, halves of characters, which cannot be sent; not the joiners, which
some languages write with."""
_SEARCHED = 100_000
"""Characters of an answer that are searched for JSON."""
_TRIES = 100
"""Opening braces that are tried."""


@cache
def packaged(package: str, name: str) -> str:
    """The text of `prompts/<name>.txt` in a package."""
    return files(package).joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8")


def fill(template: str, values: Mapping[str, str]) -> str:
    """A prompt without blank ends and with its values, each set in once and as it is.

    Raises ValueError unless the names that the template takes are those that are given.

    >>> fill('Goal: $goal. Answer {"score": 1}.', {"goal": "make $tea"})
    'Goal: make $tea. Answer {"score": 1}.'
    """
    parsed = Template(template.strip())
    taken, given = set(parsed.get_identifiers()), set(values)
    if not parsed.is_valid() or taken != given:
        raise ValueError(f"the prompt takes {sorted(taken)} and was given {sorted(given)}")
    return parsed.substitute(values)


def visible(text: str) -> str:
    """A text whose characters can be seen: those that could hide text become blank.

    >>> visible("boil\\u202e water\\x00")
    'boil  water '
    """
    return _HIDING.sub(" ", text)


def fence(text: str) -> str:
    """Data between two lines of backticks that it cannot write itself, `visible`.

    >>> print(fence("boil water"))
    ```
    boil water
    ```
    >>> fence("a ``` b").splitlines()[0]
    '````'
    """
    shown = visible(text)
    ticks = "`" * max(3, 1 + max(map(len, _TICKS.findall(shown)), default=0))
    return f"{ticks}\n{shown}\n{ticks}"


def json_object(text: str) -> JsonObject | None:
    """The first JSON object in an answer, whatever is written around it; None where there is none.

    >>> json_object('Sure! {"score": 7} I hope'), json_object("{seven}")
    ({'score': 7}, None)
    """
    decoder, searched = json.JSONDecoder(), text[:_SEARCHED]
    for tried, opening in enumerate(re.finditer(r"\{", searched)):
        if tried == _TRIES:
            return None
        try:
            value, _ = decoder.raw_decode(searched, opening.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None
