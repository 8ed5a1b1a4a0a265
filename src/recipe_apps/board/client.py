"""The client of a board: checks, sends and follows submissions over HTTP.

Sending predictions twice is harmless: the board knows a submission by its content.
"""

import time
from collections.abc import Callable

from recipe.artifacts import JsonObject
from recipe.errors import ComputeError, MissingExtra

try:
    import httpx2

    from recipe.http import HttpClient, error_envelope, server_address
except ModuleNotFoundError as error:
    raise MissingExtra("a board's client", "client") from error

_ENDED = frozenset({"scored", "failed", "cancelled"})
_LINES = {"Content-Type": "application/x-ndjson"}
# Seconds for which an answer is waited for.
_TIMEOUT = 60.0
# Seconds for which a submission is waited for.
_LONGEST_WAIT = 86_400.0
# Seconds between two looks at a submission.
_POLL = 1.0
# Problems that an error repeats; `recipe board check` lists all.
_LISTED = 20


class BoardClient(HttpClient):
    """Asks a board as one account, or as nobody; a context manager."""

    server = "board"
    retried = frozenset({500, 502, 503, 504})

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience: float = 120.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """`patience`: seconds for which a board that does not answer is asked again. Raises InputError for `url`."""
        address = server_address(url if "://" in url else f"http://{url}", "http://host:8002")
        super().__init__(address, token, timeout=_TIMEOUT, patience=patience, transport=transport)
        self.has_token = token is not None

    def submit(
        self, track: str, system: str, data: bytes, link: str = "", note: str = "", private: bool = False
    ) -> JsonObject:
        """Send predictions; returns `id`, `state` and `new`. Raises InputError with the board's problems."""
        about = {"track": track, "system": system, "link": link, "note": note, "private": "1" if private else "0"}
        return self.send("POST", "/api/submissions", params=about, content=data, headers=_LINES)

    def submission(self, identity: str) -> JsonObject:
        """A submission with its states and figures."""
        return self.send("GET", f"/api/submissions/{identity}")

    def mine(self) -> list[JsonObject]:
        """The account's submissions, newest first."""
        return list(self.send("GET", "/api/me/submissions")["submissions"])

    def boards(self) -> JsonObject:
        """All tracks with their boards, and the queue."""
        return self.send("GET", "/api/boards")

    def wait(self, identity: str, progress: Callable[[], object]) -> JsonObject:
        """A submission once all its jobs have ended, looked at with `progress`. Raises ComputeError after a day."""
        until = time.monotonic() + _LONGEST_WAIT
        while True:
            value = self.submission(identity)
            if all(job["state"] in _ENDED for job in value["submission"]["jobs"]):
                return value
            if time.monotonic() > until:
                raise ComputeError(f"submission {identity} is not scored after a day; look again later.")
            progress()
            time.sleep(_POLL)

    def refusal(self, response: httpx2.Response) -> str:
        """What the board says, with the problems of a submission."""
        problems = response.json().get("problems", []) if error_envelope(response)[0] else []
        text = super().refusal(response)
        for row in problems[:_LISTED]:
            line = f"line {row['line']}, " if row["line"] else ""
            text += f"\n  {line}{row['field'] or 'the file'}: {row['problem']}; {row['remedy']}"
        return text
