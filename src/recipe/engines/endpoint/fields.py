"""Fields that not every host takes: structured output and log-probabilities.

Where a host refuses one by name before it has ever answered with it, it is asked again with less: a JSON schema, then
any JSON object, then text. What it takes is remembered, so that one question pays for finding out.
"""

from typing import Literal

from recipe.artifacts import JsonObject
from recipe.engines.endpoint.questions import Question

Structured = Literal["json_schema", "json_object", "off"]
_LESS: dict[Structured, Structured] = {"json_schema": "json_object", "json_object": "off"}
_FORMAT, _LOGPROBS = "response_format", "logprobs"
_NAMES = {
    _FORMAT: (
        "response_format",
        "response format",
        "json_schema",
        "json_object",
        "structured output",
        "guided",
        "grammar",
    ),
    _LOGPROBS: ("logprob",),
}
"""How hosts name a field that they refuse."""


class Fields:
    """What a host takes, as far as it is known."""

    def __init__(self, structured: Literal["auto", "json_schema", "json_object", "off"]) -> None:
        self.structured: Structured = "json_schema" if structured == "auto" else structured
        self.logprobs = True
        self._may_fall = structured == "auto"
        self._proven: set[str] = set()

    def of(self, question: Question) -> JsonObject:
        """The fields that a question asks for and the host may take."""
        fields: JsonObject = {}
        if question.schema is not None and self.structured == "json_schema":
            fields[_FORMAT] = {"type": "json_schema", "json_schema": {"strict": True} | question.schema}
        elif question.schema is not None and self.structured == "json_object":
            fields[_FORMAT] = {"type": "json_object"}
        if question.logprobs and self.logprobs:
            fields[_LOGPROBS] = True
        return fields

    def answered(self, sent: JsonObject) -> None:
        """The host answered with these fields, so that what it refuses later is no fault of theirs."""
        self._proven.update(_form(name, value) for name, value in sent.items())

    def refused(self, sent: JsonObject, said: str) -> str | None:
        """The field that the host refuses by name and never took; None where something else is wrong."""
        lower = said.lower()
        for name, value in sent.items():
            if _form(name, value) not in self._proven and any(word in lower for word in _NAMES[name]):
                return name
        return None

    def fall(self, name: str, sent: JsonObject) -> bool:
        """Ask for less than what was sent from now on; False where the settings leave no choice."""
        if name == _LOGPROBS:
            self.logprobs = False
            return True
        form: Structured = sent[_FORMAT]["type"]
        if self._may_fall and self.structured == form:  # another question may have found out before
            self.structured = _LESS[form]
        return self._may_fall


def form_of(sent: JsonObject) -> Structured:
    """How fields hold an answer to a schema.

    >>> form_of({"response_format": {"type": "json_object"}}), form_of({})
    ('json_object', 'off')
    """
    form: Structured = sent[_FORMAT]["type"] if _FORMAT in sent else "off"
    return form


def _form(name: str, value: object) -> str:
    return f"{name} {value['type']}" if isinstance(value, dict) else name
