"""The assessor: what a language model thinks of a partial plan that goes on with a candidate.

Its answer is read as JSON, else by pattern, and counts as not told where neither finds a score from 0 to 10.
"""

import re
from collections.abc import Sequence

from recipe.artifacts import JsonObject
from recipe.config import SamplingConfig
from recipe.engines.protocol import Answer, Engine, Refused
from recipe.planning.vidassist.prompts import Demonstrations, assess_chat
from recipe.planning.vidassist.values import Considered
from recipe.progress import SILENT, Progress
from recipe.prompting import json_object

_HIGHEST = 10
SCHEMA: JsonObject = {
    "name": "assessment",
    "schema": {
        "type": "object",
        "properties": {"score": {"type": "integer", "minimum": 0, "maximum": _HIGHEST}},
        "required": ["score"],
        "additionalProperties": False,
    },
}
"""What an answer is to look like, sent where the endpoint takes it."""
_READ = 2_000
"""Characters of an answer in which a score is looked for."""
_NUMBER = r"(?<![\d.\-])(\d+(?:\.\d+)?)(?!\d|\.\d|\s*(?:to|-|–)\s*\d)"
"""No part of another number, and not the beginning of a range."""
_PATTERNS = (
    re.compile(rf"\bscore\b\W{{0,12}}(?:is|of)?\W{{0,4}}{_NUMBER}", re.IGNORECASE),
    re.compile(rf"{_NUMBER}\s*(?:/|out of)\s*{_HIGHEST}\b", re.IGNORECASE),
    re.compile(rf"\A\W*{_NUMBER}\W*\Z"),
)


class Evaluation:
    """Partial-plan evaluation by a language model; 0 to 10 becomes 0 to 1."""

    name = "evaluation"

    def __init__(self, engine: Engine, sampling: SamplingConfig, shown: Demonstrations) -> None:
        self._engine, self._sampling, self._shown = engine, sampling, shown

    def score(self, considered: Sequence[Considered], progress: Progress = SILENT) -> list[float | None]:
        """All candidates of all partial plans are asked about at once; None for an answer without a score."""
        chats = [assess_chat(one.state, one.candidate.action, self._shown) for one in considered]
        answers = self._engine.outcomes(chats, 1, self._sampling, progress, schema=SCHEMA)
        return [_read(answer) for [answer] in answers]


def _read(answer: Answer | Refused) -> float | None:
    return None if isinstance(answer, Refused) else read_score(answer.text)


def read_score(text: str) -> float | None:
    """The score of an answer as a share of the highest; None where it holds none.

    >>> read_score('{"score": 7}'), read_score("I would say 7 out of 10."), read_score("good")
    (0.7, 0.7, None)
    """
    told = (json_object(text) or {}).get("score")
    if isinstance(told, int | float) and not isinstance(told, bool):
        return _share(told)
    shown = text[:_READ]
    found = next((match for pattern in _PATTERNS if (match := pattern.search(shown))), None)
    return None if found is None else _share(float(found[1]))


def _share(score: float) -> float | None:
    """None for what lies outside the scale: it is no score on it."""
    return score / _HIGHEST if 0 <= score <= _HIGHEST else None
