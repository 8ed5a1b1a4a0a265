"""What can go wrong between here and an endpoint: what passes and is tried again, and what never will.

Passing: time-outs, dropped and refused connections, 408, 409, 425, 429 and 5xx, and answers that are no chat completion
(a proxy's page, half a JSON), the last a few times only, because a wrong address answers like that for ever.
Final: every other status, and 429 for an empty account. Of those, 400, 413 and 422 may be about one chat alone.
"""

import json

from recipe.engines.endpoint.answers import Unreadable
from recipe.engines.retry_after import retry_after
from recipe.errors import InputError, MissingExtra, quoted

try:
    import httpx2
except ModuleNotFoundError as error:
    raise MissingExtra("asking an endpoint", "llm") from error

_PASSING = frozenset({408, 409, 425, 429})
_UNDECIDED = frozenset({408, 409, 502, 504})
"""After these the request may still be worked on, or was answered behind a gateway."""
_ONE_CHAT = frozenset({400, 413, 422})
"""What may be wrong with one request and not with the others."""
_OF_THE_CHAT = (
    "context length", "context_length", "context window", "maximum context", "max_model_len", "too long", "too large",
    "too many tokens", "content_filter", "content filter", "content_policy", "content policy", "moderation", "safety",
)  # fmt: skip
"""Words of hosts for a chat that is too long or that a filter stopped."""
_EMPTY_ACCOUNT = "insufficient_quota"
UNREAD_TRIES = 3
"""An answer that could not be read so often will not be."""
_REMEDIES = {
    401: "check the key and the environment variable that --key-variable names",
    402: "check the account's balance",
    403: "check the key and what it may be used for",
    404: "check the model's name, and that the address is the API's root, which usually ends in /v1",
    405: "check that the address is the API's root, which usually ends in /v1",
    413: "show fewer or smaller frames",
}


class Passing(Exception):
    """A failure that may be over at the next try."""

    def __init__(
        self,
        problem: str,
        remedy: str,
        *,
        wait: float | None = None,
        unread: bool = False,
        replied: bool = False,
    ) -> None:
        super().__init__(problem)
        self.remedy = remedy
        self.wait = wait
        """Seconds that the endpoint asked to wait."""
        self.unread = unread
        """True where something came that is no answer."""
        self.replied = replied
        """True where the endpoint is done with the request, so that the next is another."""


class Unfit(InputError):
    """A request that the endpoint does not take as it is; others may be answered."""

    of_the_chat = False
    """True where it says that the chat is too long, or that a filter stopped it."""
    said = ""
    """All that it says."""


FAILURES = (httpx2.RequestError, Unreadable, TimeoutError)
"""What `understood` understands."""


def understood(error: Exception, timeout: float) -> Passing:
    """A failure of the connection or of reading as one that passes."""
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        remedy = "check that the endpoint is not overloaded or still loading, or allow more with --timeout"
        return Passing(f"no answer within {timeout:g} s", remedy)
    if isinstance(error, httpx2.RequestError):
        reason = f"the connection failed ({type(error).__name__}: {str(error).rstrip('.') or 'no reason given'})"
        return Passing(reason, "check that the endpoint runs and that the address is right")
    if isinstance(error, Unreadable):
        remedy = "check that the address is the root of an OpenAI-compatible API, which usually ends in /v1"
        return Passing(str(error), remedy, unread=True, replied=True)
    raise error


def answered(response: httpx2.Response, url: str) -> Passing | InputError:
    """A failure that the endpoint tells, as one that passes or one that does not."""
    status, text = response.status_code, response.text
    body = _parsed(text)
    problem = f"the endpoint answers {status}: {_said(body, text)}"
    if status == 429 and _code(body) == _EMPTY_ACCOUNT:
        return InputError.at(url, problem, _REMEDIES[402])
    if status not in _PASSING and status < 500:
        remedy = _REMEDIES.get(status, "change the request: its frames, its length or the model")
        return _final(status, text, InputError.at(url, problem, remedy))
    if status == 429:
        remedy = "ask less at once (--concurrency) or later"
    else:
        remedy = "look into the endpoint's log, or try later"
    return Passing(problem, remedy, wait=retry_after(response.headers), replied=status not in _UNDECIDED)


def _final(status: int, text: str, failure: InputError) -> InputError:
    if status not in _ONE_CHAT:
        return failure
    unfit = Unfit(str(failure))
    unfit.said = text
    unfit.of_the_chat = status == 413 or any(word in text.lower() for word in _OF_THE_CHAT)
    return unfit


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _code(body: object) -> object:
    error = body.get("error") if isinstance(body, dict) else None
    return error.get("code") if isinstance(error, dict) else None


def _said(body: object, text: str) -> str:
    """What the endpoint says of its error, from the forms that hosts give it."""
    for _ in range(2):  # {"error": {"message": ...}} and {"message": ...}
        if isinstance(body, dict):
            body = body.get("message") or body.get("detail") or body.get("error") or body
    return quoted(body if isinstance(body, str) else json.dumps(body) if body else text)
