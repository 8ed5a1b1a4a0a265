"""The client of a board: checks, sends and follows submissions over HTTP.

A request that gets no answer, or one of a server that is down for a moment, is sent again, later each time. Sending
predictions twice is harmless: the board knows a submission by its content.
"""

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from recipe.artifacts import JsonObject
from recipe.errors import ComputeError, InputError, MissingExtra

try:
    import httpx2
    import tenacity
except ModuleNotFoundError as error:
    raise MissingExtra("a board's client", "client") from error

_LOG = logging.getLogger(__name__)
_PASSING = frozenset({500, 502, 503, 504})
"""Statuses of a server that cannot answer now."""
_ENDED = frozenset({"scored", "failed", "cancelled"})
_POLL = 1.0
"""Seconds between two looks at a submission."""
_TOLD = 20
"""Problems that an error repeats; `recipe board check` tells all."""


class _Away(Exception):
    """The board cannot answer now."""


class BoardClient:
    """Asks a board as one account, or as nobody; a context manager."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience: float = 120.0,
        timeout: float = 60.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """`patience`: seconds for which a board that does not answer is asked again. Raises InputError for `url`."""
        address = httpx2.URL(url if "://" in url else f"http://{url}")
        if address.scheme not in ("http", "https") or not address.host:
            raise InputError(f"{url!r} is no address of a board; give one such as http://host:8002.")
        self.url, self.has_token = str(address).rstrip("/"), token is not None
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        limit = httpx2.Timeout(timeout, connect=min(timeout, 10.0))
        self._http = httpx2.Client(base_url=self.url, headers=headers, timeout=limit, transport=transport)
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((_Away, httpx2.TransportError)),
            wait=tenacity.wait_random_exponential(0.2, 5.0),
            stop=tenacity.stop_after_delay(patience),
            reraise=True,
        )

    def check(self, track: str, data: bytes) -> JsonObject:
        """What the board's validator says of predictions; nothing is stored."""
        return self._send("POST", "/api/check", params={"track": track}, **_lines(data))

    def submit(
        self, track: str, system: str, data: bytes, link: str = "", note: str = "", private: bool = False
    ) -> JsonObject:
        """Send predictions; returns `id`, `state` and `new`. Raises InputError with the board's problems."""
        about = {"track": track, "system": system, "link": link, "note": note, "private": "1" if private else "0"}
        return self._send("POST", "/api/submissions", params=about, **_lines(data))

    def submission(self, identity: str) -> JsonObject:
        """A submission with its states and figures."""
        return self._send("GET", f"/api/submissions/{identity}")

    def mine(self) -> list[JsonObject]:
        """The account's submissions, newest first."""
        return list(self._send("GET", "/api/me/submissions")["submissions"])

    def boards(self) -> JsonObject:
        """All tracks with their boards, and the queue."""
        return self._send("GET", "/api/boards")

    def wait(
        self, identity: str, progress: Callable[[], object] = lambda: None, timeout: float = 86_400.0
    ) -> JsonObject:
        """A submission once all its jobs have ended. Raises ComputeError where that takes longer than `timeout`."""
        until = time.monotonic() + timeout
        while True:
            found = self.submission(identity)
            if all(job["state"] in _ENDED for job in found["submission"]["jobs"]):
                return found
            if time.monotonic() > until:
                raise ComputeError(f"submission {identity} is not scored after {timeout:g} s; look again later.")
            progress()
            time.sleep(_POLL)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _send(self, method: str, path: str, **given: Any) -> JsonObject:
        """The answer's body. Raises InputError for what the board refuses, ComputeError where it does not answer."""

        def once() -> httpx2.Response:
            answer = self._http.request(method, path, **given)
            if answer.status_code in _PASSING:
                raise _Away(_message(answer))
            return answer

        try:
            answer = self._retrying(once)
        except (_Away, httpx2.TransportError) as error:
            raise ComputeError(f"{self.url}: the board does not answer ({error}); try again later.") from None
        if answer.is_success:
            try:
                return dict(answer.json())
            except ValueError:
                raise ComputeError(f"{self.url}: the answer is not JSON; check that this is a board.") from None
        raise InputError(f"{self.url}: {_message(answer)}")


def _lines(data: bytes) -> dict[str, Any]:
    return {"content": data, "headers": {"Content-Type": "application/x-ndjson"}}


def _message(answer: httpx2.Response) -> str:
    """What a board says of a request that it refuses, with the problems of a submission."""
    try:
        body = answer.json()
        message = str(body["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}, and no answer of a board"
    problems = body.get("problems", [])
    told = []
    for one in problems[:_TOLD]:
        place = f"line {one['line']}, " if one["line"] else ""
        told.append(f"\n  {place}{one['field'] or 'the file'}: {one['problem']}; {one['remedy']}")
    return message + "".join(told)
