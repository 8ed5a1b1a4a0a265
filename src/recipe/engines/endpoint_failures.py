"""What can go wrong between here and an endpoint: what passes and is tried again, and what never will.

Passing: time-outs, dropped and refused connections, 408, 409, 425, 429 and 5xx, and answers that are no chat completion
(a proxy's page, half a JSON), the last a few times only, because a wrong address answers like that for ever.
Final: every other status, and 429 for an empty account.
"""

import json

from recipe.engines.endpoint_answers import Unreadable, quoted
from recipe.engines.retry_after import retry_after
from recipe.errors import InputError, MissingExtra

try:
    import openai
except ModuleNotFoundError as error:
    raise MissingExtra("asking an endpoint", "llm") from error

_PASSING = frozenset({408, 409, 425, 429})
_EMPTY_ACCOUNT = "insufficient_quota"
_READ_TRIES = 3
"""An answer that could not be read so often will not be."""
_ONE_CHAT = frozenset({400, 413, 422})
"""What may be wrong with one request and no other."""
_REMEDIES = {
    401: "check the key and the environment variable that --key-variable names",
    402: "check the account's balance",
    403: "check the key and what it may be used for",
    404: "check the model's name, and that the address is the API's root, which usually ends in /v1",
    405: "check that the address is the API's root, which usually ends in /v1",
    413: "show fewer or smaller frames",
}


class Unfit(InputError):
    """A chat that the endpoint does not take: too long, or stopped by a filter; others may be answered."""


class Passing(Exception):
    """A failure that may be over at the next try."""

    def __init__(self, problem: str, remedy: str, wait: float | None = None, tries: int | None = None) -> None:
        super().__init__(problem)
        self.remedy = remedy
        self.wait = wait
        """Seconds that the endpoint asked to wait."""
        self.tries = tries
        """Tries after which it is not passing any more; None where the settings say."""


def understood(error: Exception, url: str, timeout: float) -> Passing | InputError:
    """A failure of the SDK, of the connection or of reading, as one that passes or one that does not."""
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        remedy = "check that the endpoint is not overloaded or still loading, or allow more with --timeout"
        return Passing(f"no answer within {timeout:g} s", remedy)
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        reason = f"the connection failed ({type(cause).__name__}: {str(cause).rstrip('.') or 'no reason given'})"
        return Passing(reason, "check that the endpoint runs and that the address is right")
    if isinstance(error, Unreadable):
        remedy = "check that the address is the root of an OpenAI-compatible API, which usually ends in /v1"
        return Passing(str(error), remedy, tries=_READ_TRIES)
    if isinstance(error, openai.APIStatusError):
        return _status(error, url)
    raise error


def _status(error: openai.APIStatusError, url: str) -> Passing | InputError:
    status, said = error.status_code, _said(error)
    problem = f"the endpoint answers {status}: {said}"
    if status == 429 and error.code == _EMPTY_ACCOUNT:
        return InputError.at(url, problem, _REMEDIES[402])
    if status not in _PASSING and status < 500:
        remedy = _REMEDIES.get(status, "change the request: its frames, its length or the model")
        if status in _ONE_CHAT:
            return Unfit(str(InputError.at(url, problem, remedy)))
        return InputError.at(url, problem, remedy)
    if status == 429:
        remedy = "ask less at once (--concurrency) or later"
    else:
        remedy = "look into the endpoint's log, or try later"
    return Passing(problem, remedy, retry_after(error.response.headers))


def _said(error: openai.APIStatusError) -> str:
    """What the endpoint says of its error, from the forms that hosts give it."""
    body = error.body
    for _ in range(2):  # {"error": {"message": ...}} and what the SDK leaves of it
        if isinstance(body, dict):
            body = body.get("message") or body.get("detail") or body.get("error") or body
    return quoted(body if isinstance(body, str) else json.dumps(body) if body else error.response.text)
