"""Who says how different two plans are: the protocol, and the judge that asks a language model.

The paper's prompt is not printed; this one follows its description. The two plans stand in the data as equals: which
of them is `plan_1` is decided by whoever asks. A value that is none of the five levels is no answer, because there is
no telling what scale it is on; a pair without an answer is *unscored*, and never 0.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from recipe.artifacts import JsonObject, fingerprint
from recipe.engines.protocol import Answer, Chat, Refused
from recipe.errors import quoted
from recipe.evaluation.asking import AskedModel, unanswered
from recipe.evaluation.diversity import LEVELS
from recipe.evaluation.rubric import as_data, code_of
from recipe.evaluation.scores import JudgeIdentity
from recipe.progress import SILENT, Progress
from recipe.prompting import fill, packaged
from recipe.types import Example

SCHEMA: JsonObject = {
    "name": "diversity",
    "schema": {
        "type": "object",
        "properties": {"score": {"type": "number", "enum": list(LEVELS)}},
        "required": ["score"],
        "additionalProperties": False,
    },
}
_READ = 50_000
"""Characters at the end of an answer that are read."""
_OBJECT = re.compile(r"\{[^{}]*\}")
_MARKS = r"[\s\"'*_`]{0,8}"
_NAME = r"(?:(?:the|my|final|overall)[ \t]){0,3}(?:(?:procedural[ _-]{1,3})?diversity[ _-]{1,3})?score"
_PAIR = re.compile(
    rf"(?:^|[^\w\s])[ \t]{{0,8}}{_MARKS}{_NAME}{_MARKS}[:=]{_MARKS}"
    r"(?P<value>[-+]?(?:\d{1,6}(?:\.\d{1,6})?|\.\d{1,6}))(?![\w%/])(?!\.\d)",
    re.IGNORECASE | re.MULTILINE,
)


class Question(NamedTuple):
    """Two different plans for one prompt, in the order in which they are shown."""

    example: Example
    first: tuple[str, ...]
    second: tuple[str, ...]


class Compared(NamedTuple):
    """What a judge says of a question."""

    level: float | None
    """One of LEVELS; None where there is none."""
    how: str = ""
    """`json`, `regex`, `rule` or `proxy`; empty without a level."""
    reason: str = ""
    """Why there is no level."""
    text: str = ""
    """The raw answer."""


class DiversityJudge(Protocol):
    """Anything that tells how different two plans are."""

    @property
    def identity(self) -> JudgeIdentity:
        """What tells it from other judges."""
        ...

    def compare(self, questions: Sequence[Question], progress: Progress = SILENT) -> list[Compared]:
        """What it says of each question, in order."""
        ...


class LlmDiversityJudge(AskedModel):
    """A language model that is shown goal, history and two plans."""

    @property
    def identity(self) -> JudgeIdentity:
        """Name, model, prompt and settings."""
        return self._identity(prompt_hash(), {"repeats", "batch_size"})

    def compare(self, questions: Sequence[Question], progress: Progress = SILENT) -> list[Compared]:
        """One answer to each question.

        Raises ComputeError or InputError where the engine fails altogether; what it answered is kept in its cache.
        """
        chats = [render(question) for question in questions]
        return [told.read for [told] in self._answers(chats, SCHEMA, _compared, _readable, 1, progress)]


def _compared(outcome: Answer | Refused) -> Compared:
    return Compared(None, reason=unanswered(outcome)) if isinstance(outcome, Refused) else parse(outcome.text)


def _readable(compared: Compared) -> bool:
    return compared.level is not None


def render(question: Question) -> Chat:
    """The chat that asks how different two plans are; they are data, and fenced as the rubric's."""
    example = question.example
    data = as_data(
        {"goal": example.goal, "history": example.history, "plan_1": question.first, "plan_2": question.second}
    )
    return [
        {"role": "system", "content": packaged("recipe.evaluation", "diversity_system").strip()},
        {
            "role": "user",
            "content": fill(packaged("recipe.evaluation", "diversity"), {"code": code_of(data), "data": data}),
        },
    ]


def prompt_hash() -> str:
    """SHA-256 of all that is said to the judge but the data."""
    return fingerprint([packaged("recipe.evaluation", name) for name in ("diversity_system", "diversity")] + [SCHEMA])


def parse(text: str) -> Compared:
    """The level in an answer: of the last JSON object with a score, else of what the text calls its score.

    >>> parse('Both steep tea. {"score": 0.25}').level, parse("**Score:** 1").level
    (0.25, 1.0)
    >>> parse('{"score": 0.3}').reason
    'the score is none of 0, 0.25, 0.5, 0.75, 1: 0.3'
    """
    read = text[-_READ:]
    for found in reversed(_OBJECT.findall(read)):
        scores = _scores(found)
        if scores:
            return _level(scores, "json", text)
    pairs = [match["value"] for match in _PAIR.finditer(read)]
    if pairs:
        return _level(pairs, "regex", text)
    return Compared(None, reason=f"the answer holds no score: {quoted(text)}" if text.strip() else _EMPTY, text=text)


_EMPTY = "the answer is empty"


def _scores(found: str) -> list[Any]:
    """What a JSON object gives under `score`, in any spelling; more than one where it repeats the key."""
    try:
        pairs: list[tuple[str, Any]] = json.loads(found, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return []
    return [value for name, value in pairs if name.strip().casefold() in ("score", "diversity_score", "diversity")]


def _level(values: Sequence[Any], how: str, text: str) -> Compared:
    levels = {_number(value) for value in values}
    level = next(iter(levels)) if len(levels) == 1 else None
    if level in LEVELS:
        return Compared(level, how, text=text)
    shown = ", ".join(quoted(str(value)) if isinstance(value, str) else str(value)[:40] for value in values[:3])
    named = ", ".join(f"{known:g}" for known in LEVELS)
    return Compared(None, reason=f"the score is none of {named}: {shown}", text=text)


def _number(value: Any) -> float | None:
    """A score as a number; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
