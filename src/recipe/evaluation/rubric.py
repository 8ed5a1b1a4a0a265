"""The paper's rubric: six criteria from 0 to 5, two rules, the prompt that asks for them and the schema of its answer.

Goal, history, reference and prediction are data. They go into the prompt as JSON with every line break written as an
escape, between two lines with a code that is a hash of that JSON: no text can write a line of its own there, let alone
the closing one. Brackets are escapes, too, so that no text can write the special tokens of a chat template. The prompt
is filled in one pass, and values are never read as templates.

The paper's fluff rule also caps a "holistic score" that is none of the six criteria: there is nothing to cap.
"""

import json
from collections.abc import Sequence
from hashlib import sha256

from recipe.artifacts import JsonObject, fingerprint
from recipe.engines.protocol import Chat
from recipe.evaluation.cases import Case
from recipe.evaluation.rubric_answers import ParsedVerdict as ParsedVerdict
from recipe.evaluation.rubric_answers import parse as parse
from recipe.evaluation.verdicts import CRITERIA, HIGHEST
from recipe.prompting import fill, packaged, visible

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
"""What each criterion asks for, after the paper's appendix on the evaluation protocol."""

SCHEMA: JsonObject = {
    "name": "verdict",
    "schema": {
        "type": "object",
        "properties": {name: {"type": "integer", "enum": [*range(HIGHEST + 1)]} for name in CRITERIA},
        "required": list(CRITERIA),
        "additionalProperties": False,
    },
}
"""What an answer is to look like, for endpoints that take a schema."""

_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>[]"})


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
    keys = ", ".join(f'"{name}": ...' for name in CRITERIA)
    values = {"code": code_of(data), "data": data, "note": _note(case), "keys": keys}
    return [
        {"role": "system", "content": _system()},
        {"role": "user", "content": fill(packaged("recipe.evaluation", "judge"), values)},
    ]


def prompt_hash() -> str:
    """SHA-256 of all that is said to the judge but the data: templates, criteria and schema."""
    return fingerprint([_system(), packaged("recipe.evaluation", "judge"), SCHEMA])


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
    return "{\n" + ",\n".join(f" {_quoted(name)}: {_value(value)}" for name, value in fields.items()) + "\n}"


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
    return fill(packaged("recipe.evaluation", "judge_system"), {"criteria": criteria})


def _note(case: Case) -> str:
    """What the judge is told of a plan that is too long to be shown whole."""
    parts = []
    if case.left_out:
        parts.append(f"its last {case.left_out} steps are left out")
    if case.cut:
        parts.append(f"{case.cut} of its steps are cut off in the end, which is marked by an ellipsis")
    return f" The prediction is too long to be shown whole: {' and '.join(parts)}." if parts else ""


def _value(value: str | Sequence[str]) -> str:
    if isinstance(value, str):
        return _quoted(value)
    items = ",\n".join(f"  {_quoted(item)}" for item in value)
    return f"[\n{items}\n ]" if items else "[]"


def _quoted(text: str) -> str:
    return json.dumps(visible(text), ensure_ascii=False).translate(_ESCAPES)
