"""Requests over HTTP: connections, time limits, waits between tries, and failures in one sentence.

A request that a server cannot answer now is sent again, later each time, until the patience of its client is used up: a
server that restarts is waited for. Proxies and certificates are those that the environment names, as HTTPX reads them.
"""

import logging
import math
import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, ClassVar, Self

import httpx2

from recipe.artifacts import JsonObject
from recipe.errors import ComputeError, InputError, RecipeError

_LOG = logging.getLogger(__name__)
# Seconds to reach a server.
_CONNECT = 10.0
# Of its own, so that waiting leaves the draws of a training run alone; unseeded, so that clients do not wait alike.
_JITTER = random.Random()


def server_address(url: str, example: str, error: type[RecipeError] = InputError) -> str:
    """The address of a server without a slash at its end. Raises `error` for one that is none of HTTP."""
    try:
        address = httpx2.URL(url)
        usable = address.scheme in ("http", "https") and bool(address.host) and address.port != 0
    except httpx2.InvalidURL:
        usable = False
    if not usable:
        raise error(f"{url!r} is no address of HTTP; give one such as {example}.")
    return str(address).rstrip("/")


def connection_settings(timeout: float, connections: int | None = None) -> dict[str, Any]:
    """Settings of an HTTPX client: seconds for each read and write, and connections at most; more requests wait."""
    return {
        # A request waits for a free connection for as long as it takes; its own time begins then.
        "timeout": httpx2.Timeout(timeout, connect=min(timeout, _CONNECT), pool=None),
        "limits": httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
    }


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that a response asks to wait: of `retry-after-ms`, or `retry-after` in seconds or as a date.

    None without a header that can be read.

    >>> retry_after({"retry-after": "2.5"}), retry_after({"retry-after": "soon"})
    (2.5, None)
    >>> retry_after({"retry-after": "Mon, 01 Jan 99999999999 00:00:00 GMT"})
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name, "")
        try:
            seconds = unit * float(value)
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - (time.time() if now is None else now)
            except (ValueError, OverflowError):  # the second of a year or a zone that no clock has
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def wait_before_try(tries: int, stated: float | None, first: float, longest: float) -> float:
    """Seconds between a try, the `tries`-th, and the next.

    What the server stated and a little more, else from half of `first` to all of it, and twice as long each time, up to
    `longest`.
    """
    if stated is not None:
        # A little more, so that clients with the same answer do not come back together.
        return stated + _JITTER.uniform(0.0, 0.5)
    # Any longest wait is passed long before, and the power of a float would overflow.
    doubled: float = first * 2 ** min(tries - 1, 16)
    return min(doubled, longest) * _JITTER.uniform(0.5, 1.0)


class HttpClient:
    """Asks one server of this project, from any thread; a context manager. A subclass says which server it is."""

    server: ClassVar[str]
    """Its name in errors."""
    retried: ClassVar[frozenset[int]]
    """Statuses of a server that cannot answer now; so is 429 with the seconds to wait."""
    most_tries: ClassVar[Mapping[str, int]] = {}
    """Tries after which a failure is final, by the code that the server gives it."""
    unavailable: ClassVar[type[RecipeError]] = ComputeError
    """The error of a server that does not answer for as long as the client waits."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float,
        patience: float,
        connections: int | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """`patience`: seconds for which a request is sent again, all tries included."""
        self.url, self._patience = url, patience
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        settings = connection_settings(timeout, connections)
        self._http = httpx2.Client(base_url=url, headers=headers, transport=transport, **settings)

    def send(self, method: str, path: str, **content: Any) -> JsonObject:
        """The JSON object of the answer, after as many tries as it takes; a request may arrive twice.

        Raises InputError where the server refuses the request, ComputeError where it fails or is another server, and
        `unavailable`.
        """
        # The clock of the day may be set while a client waits.
        began, tries = time.monotonic(), 0
        while True:
            tries, code, stated = tries + 1, "", None
            try:
                response = self._http.request(method, path, **content)
                stated = retry_after(response.headers)
                # A 429 that says no time is a limit that waiting does not lift, such as a spent quota.
                if response.status_code not in self.retried and (response.status_code != 429 or stated is None):
                    break
                code, reason = error_envelope(response)[0], self.refusal(response)
            except httpx2.RequestError as error:
                reason = f"{type(error).__name__}: {error}"
            final = tries >= self.most_tries.get(code, math.inf)
            wait, spent = wait_before_try(tries, stated, 0.4, 5.0), time.monotonic() - began
            if final or spent + wait >= self._patience:
                problem = f"no answer in {tries} {'try' if tries == 1 else 'tries'} and {spent:.0f} s ({reason})"
                kind = ComputeError if final else self.unavailable
                raise kind(f"{self.url}: {problem}; check that the {self.server} runs.")
            _LOG.warning("%s: %s; asking again in %.1f s", self.url, reason, wait)
            time.sleep(wait)
        if response.is_client_error:
            raise InputError(f"{self.url}: the {self.server} refuses the request: {self.refusal(response)}")
        if not response.is_success:
            raise ComputeError(f"{self.url}: the {self.server} failed: {self.refusal(response)}")
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise ComputeError(f"{self.url}: the answer is not a JSON object; check that this is a {self.server}.")
        return body

    def refusal(self, response: httpx2.Response) -> str:
        """What a response without a result says, in words."""
        code, message = error_envelope(response)
        return " ".join(filter(None, [f"{response.status_code}", code and f"({code})", message]))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def error_envelope(response: httpx2.Response) -> tuple[str, str]:
    """Code and message of an error of this project's servers; of another's answer, no code and how it begins."""
    try:
        error = response.json()["error"]
        return str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        return "", response.text[:200] or response.reason_phrase
