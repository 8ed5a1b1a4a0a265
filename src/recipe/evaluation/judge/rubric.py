"""The paper's rubric: six criteria from 0 to 5, the prompt that asks for them, and how an answer is parsed.

*Prompt.* Goal, history, reference and prediction are data. They go into the prompt as JSON with every line break
written as an escape, between two lines with a code that is a hash of that JSON: no text can write a line of its own
there, let alone the closing one. Brackets are escapes, too, so that no text can write the special tokens of a chat
template; so are their other forms in Unicode, such as full-width ones. The prompt is filled in one pass, and values
are never read as templates. The paper's fluff rule also caps a "holistic score" that is none of the six criteria: there
is nothing to cap.

*Answer.* What is read stands behind the judge's thought. The last JSON object that has the six criteria counts,
whatever is written around it: judges that think aloud write drafts first. Where there is none, pairs of a criterion and
a number are looked for in the text. A score may be written `4`, `4.0`, `"4"` or `4/5`, and is clamped to 0..5 (paper,
appendix). One that is no whole number, on another scale, or given twice with different values is no score, and one
criterion without a score leaves the plan unscored: nothing is guessed.
"""

import json
import math
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple
from unicodedata import normalize

from recipe.artifacts import JsonObject, fingerprint
from recipe.errors import quoted
from recipe.evaluation.judge.plans import Case
from recipe.evaluation.judge.verdicts import CRITERIA, HIGHEST
from recipe.models.protocol import Answer, Chat, unanswered
from recipe.prompting import fill, packaged, visible
from recipe.text import final_answer
from recipe.types import CriticalFailures, Unscored, Verdict

_READ = 50_000
"""Characters at the end of an answer that are read."""
_TRIES = 1_000
"""Opening braces that are tried."""
_SCORE = r"(?P<value>[-+]?\d+(?:\.\d+)?)(?:\s{0,3}(?:/|out of)\s{0,3}(?P<scale>\d+(?:\.\d+)?))?"
_SCORE_ALONE = re.compile(rf"\s*{_SCORE}\s*")
_MARKS = r"[\s\"'*_`]{0,8}"
"""Quotes and emphasis around names and numbers."""
_PAIRS = {
    name: re.compile(
        # After the start of a line or a mark, so that "the predicted continuation: 3 steps" is no score.
        rf"(?:^|[^\w\s])[ \t]{{0,8}}(?:\d{{1,2}}[.)]\s{{0,8}})?{_MARKS}{name.replace('_', '[ _-]{1,3}')}{_MARKS}"
        rf"(?:\([^()\n]{{0,40}}\){_MARKS})?(?:(?:score|rating){_MARKS})?[:=|]{_MARKS}"
        rf"{_SCORE}(?!\.?\w|[%/])(?=[\"'*_`\s]{{0,8}}(?:$|[,;|)}}\]\n(.–—-]))",
        re.IGNORECASE | re.MULTILINE,
    )
    for name in CRITERIA
}

MEANINGS = {
    "logical_progression": (
        "cause and effect are strict: what each step physically needs has been done before it. Mark down what is "
        "assumed without being said, and what contradicts the logic of the reference."
    ),
    "temporal_alignment": (
        "the order of time is right. Mark down steps put in without cause, steps in another order, and wordiness that "
        "lets the sequence drift."
    ),
    "spatial_grounding": (
        "objects and places fit the scene that goal, history and reference tell of. Mark down invented objects and "
        "places that contradict the reference."
    ),
    "continuation": (
        "it goes on smoothly from the history. Mark down steps of the history done again, abrupt turns, and skipped "
        "steps that are needed in between."
    ),
    "clarity": "it is precise and can be read at once. Mark down phrasing that buries the instruction.",
    "semantic_alignment": (
        "it matches the intent and the plan of the reference as a whole. Mark down other objects and other actions."
    ),
}
"""The meaning of each criterion, after the paper's appendix on the evaluation protocol."""

SCHEMA: JsonObject = {
    "name": "verdict",
    "schema": {
        "type": "object",
        "properties": {name: {"type": "integer", "enum": [*range(HIGHEST + 1)]} for name in CRITERIA},
        "required": list(CRITERIA),
        "additionalProperties": False,
    },
}
"""The form of an answer, for endpoints that take a schema."""


class _Escapes(dict[int, str]):
    """Escapes of `<>[]`, and of what a reader who normalises takes for these, for a quote or for a backslash."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        forms = char if char.isascii() else f"{normalize('NFKC', char)}{normalize('NFKD', char)}"
        hostile = any(form in ("<>[]" if char.isascii() else '<>[]"\\') for form in forms)
        # As JSON writes it, which gives characters beyond 16 bits two escapes.
        self[code] = f"\\u{code:04x}" if hostile and char.isascii() else json.dumps(char)[1:-1] if hostile else char
        return self[code]


_ESCAPES = _Escapes()


def render(case: Case) -> Chat:
    """The chat that asks for the verdict on a case."""
    example = case.example
    data = as_data(
        {
            "goal": example.goal,
            "history": example.history,
            "reference": example.continuation,
            "prediction": case.steps,
        }
    )
    parts = []
    if case.left_out:
        parts.append(f"its last {case.left_out} steps are left out")
    if case.cut:
        parts.append(f"{case.cut} of its steps are cut off in the end, which is marked by an ellipsis")
    note = f" The prediction is too long to be shown whole: {' and '.join(parts)}." if parts else ""
    keys = ", ".join(f'"{name}": ...' for name in CRITERIA)
    values = {"code": code_of(data), "data": data, "note": note, "keys": keys}
    return [
        {"role": "system", "content": _system()},
        {"role": "user", "content": fill(packaged("recipe.evaluation.judge", "judge"), values)},
    ]


def prompt_hash() -> str:
    """SHA-256 of the whole prompt without the data: templates, criteria and schema."""
    return fingerprint([_system(), packaged("recipe.evaluation.judge", "judge"), SCHEMA])


def as_data(fields: dict[str, str | Sequence[str]]) -> str:
    """Texts and lists of texts as JSON, an item a line; what could hide text becomes blank, `<>[]` become escapes.

    >>> print(as_data({"goal": "tea", "prediction": ["pour <b>", 'say "hi"']}))
    {
     "goal": "tea",
     "prediction": [
      "pour \\u003cb\\u003e",
      "say \\"hi\\""
     ]
    }
    """
    lines = []
    for name, value in fields.items():
        texts = [value] if isinstance(value, str) else value
        # The escapes come after JSON's own, so that no text can write a backslash of its own.
        items = [json.dumps(visible(text), ensure_ascii=False).translate(_ESCAPES) for text in texts]
        whole = "[\n  " + ",\n  ".join(items) + "\n ]" if items else "[]"
        lines.append(f" {json.dumps(name)}: {items[0] if isinstance(value, str) else whole}")
    return "{\n" + ",\n".join(lines) + "\n}"


def code_of(data: str) -> str:
    """The code of the lines around data, which the data does not hold.

    >>> code_of("{}")
    '44136fa355b3678a'
    """
    code = sha256(data.encode()).hexdigest()[:16]
    while code in data:
        code = sha256(code.encode()).hexdigest()[:16]
    return code


def _system() -> str:
    criteria = "\n".join(f"- {name}: {MEANINGS[name]}" for name in CRITERIA)
    return fill(packaged("recipe.evaluation.judge", "judge_system"), {"criteria": criteria})


class ParsedVerdict(NamedTuple):
    """A verdict, and whether it was read as `json` or by `regex`; or why there is none."""

    outcome: Verdict | CriticalFailures | Unscored
    how: str = ""


def parse(text: str) -> ParsedVerdict:
    """The verdict in a judge's answer.

    >>> parse('{"logical_progression": 4, "temporal_alignment": 9, "spatial_grounding": 4, "continuation": 3,'
    ... ' "clarity": 2, "semantic_alignment": 4}').outcome.total
    22
    >>> parse("I cannot judge this.").outcome
    Unscored(reason="the answer holds no verdict: 'I cannot judge this.'")
    """
    if reason := unanswered(Answer(text)):
        return ParsedVerdict(Unscored(reason))
    read = (final_answer(text) or "")[-_READ:]
    values: dict[str, Any] | None = last_object(read, CRITERIA)
    if values is not None:
        how, numbers_of = "json", {name: {_whole(values[name])} for name in CRITERIA}
    else:
        how, numbers_of = "regex", {name: {_whole(match) for match in _PAIRS[name].finditer(read)} for name in CRITERIA}
        values = numbers_of
        if not any(numbers_of.values()):
            return ParsedVerdict(Unscored(f"the answer holds no verdict: {quoted(text)}"))
    scores = {}
    for name, numbers in numbers_of.items():
        # Two different numbers for one criterion are no score: nothing is guessed.
        score = next(iter(numbers)) if len(numbers) == 1 else None
        if score is None:
            shown = quoted(json.dumps(values[name], default=list))
            return ParsedVerdict(Unscored(f"{name} is not one whole number from 0 to {HIGHEST}: {shown}"))
        scores[name] = min(max(score, 0), HIGHEST)
    return ParsedVerdict(Verdict(**scores), how)


def last_object(text: str, names: Sequence[str]) -> dict[str, Any] | None:
    """The last JSON object that has these keys, in any spelling and made lower case; None where there is none."""
    text = text[-_READ:]
    decoder, end = json.JSONDecoder(object_pairs_hook=_plain_keys), len(text)
    for _ in range(_TRIES):
        end = text.rfind("{", 0, end)
        if end < 0:
            return None
        try:
            value, _end = decoder.raw_decode(text, end)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and all(name in value for name in names):
            return value
    return None


def _plain_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's keys in lower case; a tuple, which no JSON holds, where one key has two different values."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        name = re.sub(r"[\s_-]+", "_", key.strip().lower())
        values[name] = (values[name], value) if name in values and values[name] != value else value
    return values


def _whole(value: Any) -> int | None:
    """A score as a whole number, None where it is none: a JSON value, or a match of a number with its scale."""
    if isinstance(value, str):
        value = _SCORE_ALONE.fullmatch(value)
    if isinstance(value, re.Match):
        if value["scale"] is not None and float(value["scale"]) != HIGHEST:
            return None
        value = float(value["value"])
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        return None
    return int(value) if value == int(value) else None
