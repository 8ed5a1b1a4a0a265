"""Critical failures (How2Score; Chang et al., 2026, arXiv 2602.08808): does a plan fail to reach its goal, and where?

The judge is shown a goal, a procedure that reaches it (L1) and a plan (L2), and lists each failure that makes the plan
useless. The score is the share of plans without one. The prompt belongs to the publisher, whose judge was trained on
it: it is read from a file, with the places `{goal}`, `{reference_steps}` and `{steps}`, and braces of its own doubled.

Procedures are compared whole. An example's history stands at the head of both lists, unless the prompt has a place
`{history}` for it. Steps are numbered from 1, a line each, and the prompt is filled in one pass.

*Answer.* The last JSON object that has `reasoning` and `critical_failures` counts, each failure with `failure`,
`L1_steps` and `L2_steps`. Anything else is no verdict, and asked for again: nothing is guessed and nothing is 0.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from recipe.artifacts import JsonObject, fingerprint, not_a_file
from recipe.errors import InputError, quoted
from recipe.evaluation.judge.plans import Case
from recipe.evaluation.judge.rubric import ParsedVerdict, last_object
from recipe.evaluation.judge.verdicts import critical_failure
from recipe.models.protocol import Answer, Chat, unanswered
from recipe.prompting import visible
from recipe.text import final_answer
from recipe.types import CriticalFailure, CriticalFailures, Unscored

RUBRIC = "critical-failures"
MAX_TOKENS = 4096
"""Longest answer that the publisher allows; its judge reasons before it lists."""
_SPECIAL = re.compile(
    r"[<\ufe64\uff1c]\u200d*(?=[|\uff5c])|[\[\ufe47\uff3b](?=[/\uff0f][I\uff29][N\uff2e][S\uff33][T\uff34][\]\ufe48\uff3d])"
)
"""Where a special token of a chat template would begin, also in the full-width forms that NFKC makes plain."""
_PLACES = ("goal", "reference_steps", "steps")
_CLOSE = "\n\nReturn only valid json."
"""The publisher's last line, which its prompt file does not hold."""
_STEPS: JsonObject = {"type": "array", "items": {"type": "integer"}}
SCHEMA: JsonObject = {
    "name": "critical_failures",
    "schema": {
        "type": "object",
        "properties": {
            "reasoning": {"type": "string"},
            "critical_failures": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"failure": {"type": "string"}, "L1_steps": _STEPS, "L2_steps": _STEPS},
                    "required": ["failure", "L1_steps", "L2_steps"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["reasoning", "critical_failures"],
        "additionalProperties": False,
    },
}
"""The form of an answer, for endpoints that take a schema."""
_NO_ACTION = CriticalFailure("the plan holds no actionable step", (), ())
WORST = CriticalFailures((_NO_ACTION,))
"""The judgement by rule, which is a failure."""


@dataclass(frozen=True, slots=True)
class FailurePrompt:
    """A prompt that asks for critical failures, as its file has it."""

    text: str
    parts: tuple[tuple[str, str], ...]
    """Literal texts, each with the name of the place after it, which is empty at the end."""

    @classmethod
    def read(cls, path: Path) -> "FailurePrompt":
        """The prompt in a file. Raises InputError where it is none: a place is missing, unknown or badly written."""
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise not_a_file(path) from None
        except UnicodeDecodeError:
            raise InputError.at(path, "the text is not UTF-8", "convert the file to UTF-8") from None
        remedy = "use prompts/judge.txt of github.com/lilakk/how2everything; write braces of the text itself twice"
        try:
            parts = [(literal, name, spec or change) for literal, name, spec, change in Formatter().parse(text)]
        except ValueError as error:
            raise InputError.at(path, f"its braces do not match ({error})", remedy) from None
        names = {name for _, name, _ in parts if name is not None}
        if bad := [name for _, name, more in parts if name is not None and (more or name not in (*_PLACES, "history"))]:
            raise InputError.at(path, f"the place {{{bad[0]}}} is unknown", remedy)
        if lacking := [name for name in _PLACES if name not in names]:
            raise InputError.at(path, f"the place {{{lacking[0]}}} is missing", remedy)
        return cls(text, tuple((literal, name or "") for literal, name, _ in parts))

    schema = SCHEMA
    nothing = WORST

    @staticmethod
    def described() -> dict[str, str]:
        """The rubric's name for a judge's settings."""
        return {"rubric": RUBRIC}

    @property
    def prompt(self) -> str:
        """SHA-256 of the text and the form of an answer."""
        return fingerprint([self.text, _CLOSE, SCHEMA])

    def ask(self, case: Case) -> Chat:
        """The chat that asks for the failures of a case."""
        example, own = case.example, "history" in (name for _, name in self.parts)
        before = () if own else example.history
        lists = {
            "history": example.history,
            "reference_steps": (*before, *example.continuation),
            "steps": (*before, *case.steps),
        }
        values = {"": "", "goal": _line(example.goal)}
        for slot, steps in lists.items():
            values[slot] = "\n".join(f"{number}. {_line(step)}" for number, step in enumerate(steps, start=1))
        values["history"] = values["history"] or "nothing yet"
        return [{"role": "user", "content": "".join(text + values[slot] for text, slot in self.parts) + _CLOSE}]

    @staticmethod
    def parse(text: str) -> ParsedVerdict:
        """The failures in a judge's answer.

        >>> FailurePrompt.parse('{"reasoning": "Same.", "critical_failures": []}').outcome
        CriticalFailures(failures=(), reasoning='Same.')
        >>> FailurePrompt.parse("I see no failure.").outcome
        Unscored(reason="the answer holds no list of failures: 'I see no failure.'")
        """
        if reason := unanswered(Answer(text)):
            return ParsedVerdict(Unscored(reason))
        answer = last_object(final_answer(text) or "", ("reasoning", "critical_failures"))
        if answer is None:
            return ParsedVerdict(Unscored(f"the answer holds no list of failures: {quoted(text)}"))
        reasoning, items = answer["reasoning"], answer["critical_failures"]
        if not isinstance(reasoning, str):
            return ParsedVerdict(Unscored(f"the reasoning is no text: {quoted(str(reasoning))}"))
        if not isinstance(items, list):
            return ParsedVerdict(Unscored(f"critical_failures is no list: {quoted(str(items))}"))
        failures = []
        for item in items:
            if (failure := critical_failure(item)) is None:
                problem = f"a failure is not a text with L1_steps and L2_steps, numbers from 1: {quoted(str(item))}"
                return ParsedVerdict(Unscored(problem))
            failures.append(failure)
        return ParsedVerdict(CriticalFailures(tuple(failures), reasoning), "json")


def _line(text: str) -> str:
    """A text as one line that can be seen and holds no special token of a chat template."""
    return _SPECIAL.sub(r"\g<0> ", " ".join(visible(text).split()))
