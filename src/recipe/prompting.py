"""Prompts as text files: filled in one pass, with data fenced off, and the JSON in their answers; a planner's prompt.

A prompt names what it takes as `$goal`, and braces mean nothing, so that it may show JSON. Values are never read as
templates. A fence is longer than any run of backticks, or of what looks like them, in what it holds, so that data
cannot end it.

The prompt of a planner is a file that holds a chat, each message below a line `[system]`, `[user]` or `[assistant]`.
The last message is the user's and takes `$goal` and `$done`; those before it are sent as they are.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any
from unicodedata import normalize

from recipe.artifacts import CARD, JsonObject, read_json, read_text
from recipe.errors import InputError
from recipe.text import SYSTEM_PROMPT, format_plan
from recipe.types import Example, Frames

_TICKS = re.compile("`+")
# Controls, marks of direction, invisible letters, halves of characters, which cannot be sent; not the joiners, which
# some languages write with.
_HIDING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
# Joiners, accents and what chooses a shape: between two backticks a reader may not see them.
_IGNORED = re.compile("[\u00ad\u0300-\u036f\u200c\u200d\ufe00-\ufe0f]")
# What looks like a backtick and is none by Unicode's forms.
_TICK_LIKE = str.maketrans(dict.fromkeys("\u02cb\u2035", "`"))
# Characters of an answer that are searched for JSON.
_SEARCHED = 100_000
# Opening braces that are tried.
_TRIES = 100


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
    names, filled = set(parsed.get_identifiers()), set(values)
    if not parsed.is_valid() or names != filled:
        raise ValueError(f"the prompt takes {sorted(names)} and was given {sorted(filled)}")
    # In one pass: a `$` within a value is not read again.
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
    # Also for a reader who takes what looks like a backtick for one.
    read = _IGNORED.sub("", normalize("NFKC", shown)).translate(_TICK_LIKE)
    ticks = "`" * max(3, 1 + max(map(len, _TICKS.findall(read)), default=0))
    return f"{ticks}\n{shown}\n{ticks}"


def json_object(text: str) -> JsonObject | None:
    """The first JSON object in an answer, whatever is written around it; None where there is none.

    >>> json_object('Sure! {"score": 7} I hope'), json_object("{seven}")
    ({'score': 7}, None)
    """
    decoder, searched = json.JSONDecoder(), text[:_SEARCHED]
    for count, opening in enumerate(re.finditer(r"\{", searched)):
        # Each try may read to the end of the text: without a bound, braces alone would cost the square of its length.
        if count == _TRIES:
            return None
        try:
            value, _ = decoder.raw_decode(searched, opening.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


_HEADING = re.compile(r"^\[(system|user|assistant)\][ \t]*$", re.MULTILINE)
_PARTS = ("done", "goal")


@dataclass(frozen=True, slots=True)
class PlannerPrompt:
    """The chat that asks a planner for the steps that remain."""

    name: str
    """Of the file, without its folder and ending."""
    text: str
    """Of the file."""
    messages: tuple[tuple[str, str], ...]
    """Role and content of each message; the last content is a template."""

    @classmethod
    def parse(cls, name: str, text: str, origin: str) -> "PlannerPrompt":
        """The prompt that a text holds. Raises InputError, which names `origin`, for one that is no prompt."""
        before, *parts = _HEADING.split(text)
        messages = tuple((role, content.strip()) for role, content in zip(parts[::2], parts[1::2], strict=True))
        if before.strip() or not messages:
            raise InputError.at(origin, "it begins without a line [system] or [user]", "write one above each message")
        if empty := [role for role, content in messages if not content]:
            raise InputError.at(origin, f"the message below [{empty[0]}] is empty", "write it, or leave the line out")
        roles = [role for role, _ in messages]
        turns = roles[1:] if roles[0] == "system" else roles
        if len(turns) % 2 == 0 or turns != (["user", "assistant"] * len(turns))[: len(turns)]:
            remedy = "let [user] and [assistant] take turns, after at most one [system], and end with [user]"
            raise InputError.at(origin, f"its messages are {', '.join(roles)}", remedy)
        for role, content in messages[:-1]:
            if any(part in Template(content).get_identifiers() for part in _PARTS):
                raise InputError.at(
                    origin, f"the message below [{role}] takes $goal or $done", "let only the last message take them"
                )
        last = Template(messages[-1][1])
        # By the pattern: get_identifiers names each once, however often it occurs.
        names = sorted(match["named"] or match["braced"] or "" for match in last.pattern.finditer(last.template))
        if not last.is_valid() or [name for name in names if name] != list(_PARTS):
            remedy = "write $goal and $done once each there, and a plain dollar as $$"
            raise InputError.at(origin, "its last message does not take $goal and $done", remedy)
        return cls(name, text, messages)

    def chat(self, goal: str, history: Sequence[str]) -> list[dict[str, str]]:
        """The chat that asks for the steps after `history`; the reply is the assistant's turn."""
        done = format_plan(history) if history else "nothing yet"
        question = Template(self.messages[-1][1]).substitute(goal=goal, done=done)
        return [*self._shown(), {"role": "user", "content": question}]

    def training_chat(self, example: Example) -> list[dict[str, str]]:
        """The chat that a policy of text is trained on: with Phi's history where the example has one, else its own."""
        return self.chat(example.goal, example.history if example.told_history is None else example.told_history)

    def video_chat(self, goal: str, video: Frames) -> list[dict[str, Any]]:
        """As `chat`, with the clip `video` in place of the written history."""
        last = self.messages[-1][1]
        [slot] = (match for match in Template.pattern.finditer(last) if "done" in (match["named"], match["braced"]))
        before, after = (Template(text).substitute(goal=goal) for text in (last[: slot.start()], last[slot.end() :]))
        parts: list[dict[str, Any]] = [{"type": "text", "text": before}, {"type": "video", "video": video}]
        if after:
            parts.append({"type": "text", "text": after})
        shown: list[dict[str, Any]] = [*self._shown()]
        return [*shown, {"role": "user", "content": parts[1:] if not before else parts}]

    def _shown(self) -> list[dict[str, str]]:
        return [{"role": role, "content": content} for role, content in self.messages[:-1]]


PLAIN = PlannerPrompt.parse("plain", f"[system]\n{SYSTEM_PROMPT}\n\n[user]\nGoal: $goal\nDone:\n$done\n", "plain")
"""The default, without an example."""


def open_prompt(name: str) -> PlannerPrompt:
    """The prompt of a name, `plain` or that of a file in `recipe/prompts`, or of a file of one's own.

    Raises InputError where there is none, and for a file that holds no prompt.
    """
    if name == PLAIN.name:
        return PLAIN
    packages = files("recipe").joinpath("prompts")
    names = sorted(entry.name.removesuffix(".txt") for entry in packages.iterdir() if entry.name.endswith(".txt"))
    # Prompts of other commands, which no planner reads, have no lines of roles.
    known = [entry for entry in names if _HEADING.match(packaged("recipe", entry))]
    if name in known:
        return PlannerPrompt.parse(name, packaged("recipe", name), name)
    path = Path(name)
    if not path.exists() and path.name == name:
        problem = "there is no prompt of this name, and no such file"
        raise InputError.at(f"prompt {name!r}", problem, f"give {', '.join((PLAIN.name, *known))}, or a file")
    return PlannerPrompt.parse(path.stem, read_text(path), str(path))


def remembered_prompt(model: str | Path) -> PlannerPrompt:
    """The prompt that the model in a folder was trained with, as its card says; `PLAIN` for any other model.

    Raises InputError for a card that is damaged.
    """
    card = Path(model) / CARD
    if not card.is_file():
        return PLAIN
    kept = read_json(card)
    prompt = kept.get("prompt") if isinstance(kept, dict) else None
    if prompt is None:
        return PLAIN
    if not isinstance(prompt, dict) or not all(isinstance(prompt.get(key), str) for key in ("name", "text")):
        raise InputError.at(card, "it holds no prompt", "restore the file of the model", field="prompt")
    return PlannerPrompt.parse(prompt["name"], prompt["text"], str(card))
