"""Bodies of requests: bytes to checked prompts and plans, or a refusal that says what is wrong."""

import difflib
from collections.abc import Sequence
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from recipe.reward.prompts import PromptGroup
from recipe.reward.service.refusals import Refusal
from recipe.reward.service.settings import ServiceSettings
from recipe.text import plan_steps

Message = TypeVar("Message", bound=BaseModel)

_FORMS = ("continuation", "completion", "continuations")


class ScoreRequest(BaseModel):
    """What `/score` is asked: one plan as steps or as a completion's text, or several plans of one prompt."""

    model_config = ConfigDict(extra="forbid", strict=True)

    goal: str
    history: list[str]
    continuation: list[str] | None = None
    completion: str | None = None
    continuations: list[list[str]] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if len([name for name in _FORMS if getattr(self, name) is not None]) != 1:
            raise ValueError("give exactly one of 'continuation', 'completion' and 'continuations'")
        return self

    @property
    def plans(self) -> list[Sequence[str]]:
        """The plans, each as steps."""
        if self.completion is not None:
            return [plan_steps(self.completion)]
        return [*(self.continuations or [])] if self.continuation is None else [self.continuation]


def read(body: bytes, kind: type[Message]) -> Message:
    """A body as the message of an endpoint. Raises Refusal."""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal("not_utf8", f"The body is not UTF-8 at byte {error.start}; send JSON in UTF-8.") from None
    return parsed(body, kind)


def parsed(text: str | bytes, kind: type[Message], within: str = "") -> Message:
    """JSON as a message; `within` names the field that holds it. Raises Refusal."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise _refused(error, sorted(kind.model_fields), within) from None


def checked(
    goal: str, history: Sequence[str], plans: Sequence[Sequence[str]], settings: ServiceSettings
) -> PromptGroup:
    """A prompt and its plans, within the limits. Raises Refusal."""
    _check_text("The goal", goal, settings)
    _check_steps("The history", history, settings)
    for number, plan in enumerate(plans, start=1):
        _check_steps("The plan" if len(plans) == 1 else f"Plan {number}", plan, settings)
    return PromptGroup(goal, tuple(history), [tuple(plan) for plan in plans])


def _check_steps(name: str, steps: Sequence[str], settings: ServiceSettings) -> None:
    if len(steps) > settings.max_steps:
        most = settings.max_steps
        raise Refusal("too_many_steps", f"{name} has {len(steps)} steps; this service takes at most {most}.")
    for number, step in enumerate(steps, start=1):
        _check_text(f"{name}'s step {number}", step, settings)


def _check_text(name: str, text: str, settings: ServiceSettings) -> None:
    if not text or text.isspace():
        raise Refusal("invalid_field", f"{name} is blank; give it words or leave it out.")
    if len(text) > settings.max_characters:
        most = settings.max_characters
        raise Refusal("too_long", f"{name} has {len(text)} characters; this service takes at most {most}.")


def _refused(error: ValidationError, known: Sequence[str], within: str) -> Refusal:
    """The first problem in words; an unknown field goes first, because a misspelt one leaves another missing."""
    first: Any = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    field = ".".join([*([within] if within else []), *map(str, first["loc"])])
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        what = f"Field {within!r}" if within else "The body"
        code = "invalid_field" if within else "invalid_json"
        return Refusal(code, f"{what} is not valid JSON ({reason.removeprefix('Invalid JSON: ')}); send a JSON object.")
    if first["type"] == "extra_forbidden":
        nearest = difflib.get_close_matches(str(first["loc"][-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"known fields are {', '.join(known)}."
        return Refusal("unknown_field", f"Unknown field {field!r}; {hint}")
    if first["type"] == "missing":
        return Refusal("missing_field", f"Field {field!r} is missing; add it.")
    if not field:
        return Refusal("invalid_field", f"The body cannot be used: {reason[0].lower()}{reason[1:]}.")
    return Refusal("invalid_field", f"Field {field!r}: {reason[0].lower()}{reason[1:]}.")
