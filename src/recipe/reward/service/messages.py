"""Limits and bodies of requests, and every way in which a request ends without a reward.

A refusal is one envelope, {"error": {"code", "message"}}, at every endpoint:

400  invalid_json, not_utf8        the body cannot be read
401  unauthorized                  the token is absent or wrong
413  body_too_large, too_many_plans
422  missing_field, unknown_field, invalid_field, too_many_steps, too_long
429  queue_full                    ask again after Retry-After seconds
499  hung_up                       the client has gone, and nobody reads this
500  internal                      a fault of the program; the log holds it
503  compute_failed, stopped       no reward could be computed: never a number in its place
504  timed_out
"""

import difflib
import logging
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from recipe.config import Positive, Settings
from recipe.errors import InputError, RecipeError
from recipe.reward.scorer import PromptGroup
from recipe.text import plan_steps

_LOG = logging.getLogger(__name__)

Value = TypeVar("Value")
Message = TypeVar("Message", bound=BaseModel)

_STATUS = {
    "invalid_json": 400,
    "not_utf8": 400,
    "unauthorized": 401,
    "body_too_large": 413,
    "too_many_plans": 413,
    "queue_full": 429,
    "hung_up": 499,
    "internal": 500,
    "compute_failed": 503,
    "stopped": 503,
    "not_ready": 503,
    "timed_out": 504,
}
_UNUSABLE = 422
FAILURES = ("compute_failed", "internal", "queue_full", "stopped", "timed_out")
"""Refusals that say nothing about the sample: the same request may be answered later."""


class ServiceSettings(Settings):
    """Limits of requests, and how they are batched."""

    max_steps: Positive = 200
    """Steps of a history or of a plan; more than a completion's token limit can write."""
    max_characters: Positive = 10_000
    """Characters of a step or a goal."""
    max_body: Positive = 4 << 20
    """Bytes of a request."""
    queue: Positive = 4096
    """Plans that may wait to be scored; requests beyond are refused with `queue_full`."""
    timeout: Annotated[float, Field(gt=0)] = 60.0
    """Seconds after which a request that is not scored ends in an error; counted by the worker's clock."""
    batch: Positive = 64
    """Plans scored together."""
    linger: Annotated[float, Field(ge=0, le=1)] = 0.001
    """Seconds that the first request after a pause waits for others to be scored with it."""
    token: SecretStr | None = None
    """What clients must send; without one, everyone may ask."""


class Refusal(Exception):
    """A request that ends without a reward, with the reason in one sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return _STATUS.get(self.code, _UNUSABLE)

    @property
    def headers(self) -> dict[str, str]:
        """What HTTP asks to send along."""
        if self.code == "unauthorized":
            return {"WWW-Authenticate": 'Bearer, Basic realm="recipe"'}
        return {"Retry-After": "1"} if self.status in (429, 503) else {}

    @property
    def envelope(self) -> dict[str, dict[str, str]]:
        """The body, the same at every endpoint."""
        return {"error": {"code": self.code, "message": self.message}}


def refusal(error: RecipeError) -> Refusal:
    """The refusal of a request that this error concerns."""
    return Refusal("invalid_field" if isinstance(error, InputError) else "compute_failed", str(error))


def attempt(what: str, call: Callable[[], Value]) -> Value | Refusal:
    """What `call` returns, or the refusal where it raises; a fault of the program is logged with its traceback."""
    try:
        return call()
    except Refusal as refused:
        return refused
    except RecipeError as error:
        _LOG.warning("%s failed: %s", what, error)
        return refusal(error)
    except Exception:  # noqa: BLE001 - logged with its traceback
        _LOG.exception("%s failed", what)
        return Refusal("internal", f"The service failed at {what}; see its log.")


class ScoreRequest(BaseModel):
    """The body of `/score`: one plan as steps or as a completion's text, or several plans of one prompt."""

    model_config = ConfigDict(extra="forbid", strict=True)

    goal: str
    history: list[str]
    continuation: list[str] | None = None
    completion: str | None = None
    continuations: list[list[str]] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if sum(form is not None for form in (self.continuation, self.completion, self.continuations)) != 1:
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
    first: Any = min(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
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
