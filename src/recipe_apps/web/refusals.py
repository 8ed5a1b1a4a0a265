"""Every way in which a request to a service ends without what was asked, in one form; and bodies read as messages.

A refusal is one envelope, {"error": {"code", "message"}}, at every endpoint:

400  invalid_json, not_utf8        the body cannot be read
401  unauthorized                  the token is absent or wrong
401  no_token, wrong_token         the same on a page that asks for the token itself: no challenge makes a browser ask
403  foreign_host                  the page was opened under a name that is not this machine's
403  forbidden                     the token's account may not do that
404  not_found                     no such thing, or not for this token
404  unknown_run, unknown_clip     there is none, or it has expired
408  too_slow                      the body did not arrive in time
409  not_kept                      feedback, where nothing is kept
409  other_corpus                  another corpus is served than the one that is meant
413  body_too_large, too_many_plans, too_many_values
415  not_json                      the content type is another
422  missing_field, unknown_field, invalid_field, too_many_steps, too_long, bad_clip
422  invalid_submission            the answer lists the problems, each with its line and field
429  queue_full, too_many_readers  ask again after Retry-After seconds
429  quota_used                    the account has had as many submissions scored as it may
499  hung_up                       the client has gone, and nobody reads this
500  internal                      a fault of the program; the log holds it
503  not_ready                     a probe's answer: ask another server, or later
503  compute_failed, stopped       nothing could be computed: never a number in its place
504  timed_out
"""

import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from recipe.artifacts import half_character
from recipe.config.synonyms import nearest_key
from recipe.errors import InputError, RecipeError

_LOG = logging.getLogger(__name__)

Value = TypeVar("Value")
Message = TypeVar("Message", bound=BaseModel)
Texts = Annotated[list[str], Field(fail_fast=True)]
"""Of a message: the first item that is no text is told, and the others are not looked at."""

_STATUS = {
    "invalid_json": 400,
    "not_utf8": 400,
    "unauthorized": 401,
    "no_token": 401,
    "wrong_token": 401,
    "foreign_host": 403,
    "forbidden": 403,
    "not_found": 404,
    "unknown_run": 404,
    "unknown_clip": 404,
    "too_slow": 408,
    "not_kept": 409,
    "other_corpus": 409,
    "not_json": 415,
    "body_too_large": 413,
    "too_many_plans": 413,
    "too_many_values": 413,
    "queue_full": 429,
    "too_many_readers": 429,
    "quota_used": 429,
    "hung_up": 499,
    "internal": 500,
    "compute_failed": 503,
    "stopped": 503,
    "not_ready": 503,
    "timed_out": 504,
}
_UNUSABLE = 422
# Of a body. Pydantic reads a list of millions, and tells the fault of each unknown field, within one hold of the
# interpreter: the limits come first.
_MOST_VALUES, _MOST_FIELDS = 250_000, 10_000
_FIELD = re.compile(rb'(?<!\\)"\s*:')
FAILURES = ("compute_failed", "internal", "queue_full", "stopped", "timed_out")
"""Refusals that say nothing about the sample: the same request may be answered later."""


class Refusal(Exception):
    """A request that ends without what was asked, with the reason in one sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message
        self.status = _STATUS.get(code, _UNUSABLE)
        # Basic alone: Chromium asks for no password where a line names another scheme as well.
        again = self.status == 503 or code in ("queue_full", "too_many_readers")
        self.headers = (
            {"WWW-Authenticate": 'Basic realm="recipe"'}
            if code == "unauthorized"
            else {"Retry-After": "1"}
            if again
            else {}
        )
        self.envelope = {"error": {"code": code, "message": message}}


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


def read(body: bytes, kind: type[Message]) -> Message:
    """A body as the message of an endpoint. Raises Refusal."""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal("not_utf8", f"The body is not UTF-8 at byte {error.start}; send JSON in UTF-8.") from None
    if body.count(b",") >= _MOST_VALUES:
        said = f"The body holds more than {_MOST_VALUES:,} values, by its commas; send less at once."
        raise Refusal("too_many_values", said)
    if kind.model_config.get("extra") == "forbid":
        fields = sum(1 for _ in islice(_FIELD.finditer(body), _MOST_FIELDS + 1))
        if fields > _MOST_FIELDS:
            known = ", ".join(sorted(kind.model_fields))
            raise Refusal("unknown_field", f"The body has more than {_MOST_FIELDS:,} fields; known fields are {known}.")
    return parsed(body, kind)


def parsed(text: str | bytes, kind: type[Message], within: str = "") -> Message:
    """JSON as a message; `within` names the field that holds it. Raises Refusal for the first problem."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        problems: list[Any] = error.errors(include_url=False)
    # An unknown field goes first, because a misspelt one leaves another missing.
    problem = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    field = ".".join([*([within] if within else []), *map(str, problem["loc"])])
    subject = f"Field {field!r}" if field else "The body"
    reason = problem["msg"].removeprefix("Value error, ")
    match problem["type"]:
        case "json_invalid":
            sentence = f"is not valid JSON ({reason.removeprefix('Invalid JSON: ')}); send a JSON object."
            # A lone surrogate is no JSON to pydantic, which names a column, and JSON to Python, which has the field.
            with suppress(ValueError, RecursionError):
                if (half := half_character(json.loads(text))) is not None:
                    field = ".".join(filter(None, (within, half.replace("[", ".").replace("]", ""))))
                    subject = f"Field {field!r}" if field else "The body"
                    sentence = "holds half a character; repair or remove it."
            raise Refusal("invalid_field" if within else "invalid_json", f"{subject} {sentence}")
        case "extra_forbidden":
            known = sorted(kind.model_fields)
            nearest = nearest_key(str(problem["loc"][-1]), known)
            hint = f"did you mean {nearest!r}?" if nearest else f"known fields are {', '.join(known)}."
            raise Refusal("unknown_field", f"Unknown field {field!r}; {hint}")
        case "missing":
            raise Refusal("missing_field", f"Field {field!r} is missing; add it.")
    colon = ":" if field else " cannot be used:"
    raise Refusal("invalid_field", f"{subject}{colon} {reason[0].lower()}{reason[1:]}.")
