"""Every way in which a request ends without a reward, as one envelope: {"error": {"code", "message"}}.

400  invalid_json, not_utf8        the body cannot be read
401  unauthorized                  the token is absent or wrong
413  body_too_large, too_many_plans
422  missing_field, unknown_field, invalid_field, too_many_steps, too_long
429  queue_full                    come back after Retry-After seconds
499  hung_up                       the client has gone; nobody reads this
500  internal                      a fault of the program; the log holds it
503  compute_failed, stopped       no reward could be computed: never a number in its place
504  timed_out
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from recipe.errors import InputError, RecipeError

_LOG = logging.getLogger(__name__)

Value = TypeVar("Value")
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


class Refusal(Exception):
    """A request that ends without a reward, for a reason told in one sentence."""

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


def attempt(what: str, call: Callable[[], Value]) -> Value | Refusal:
    """What `call` returns, or why it does not: also a fault of the program ends one request, not those beside it."""
    try:
        return call()
    except Refusal as refusal:
        return refusal
    except RecipeError as error:
        _LOG.warning("%s failed: %s", what, error)
        return Refusal("invalid_field" if isinstance(error, InputError) else "compute_failed", str(error))
    except Exception:  # noqa: BLE001 - logged with its traceback
        _LOG.exception("%s failed", what)
        return Refusal("internal", f"The service failed at {what}; its log tells why.")
