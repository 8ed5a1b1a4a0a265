"""One endpoint, asked patiently: connections, failures, and waiting as long as the host says."""

import asyncio
import contextlib
import functools
import json
import logging
import math
import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from recipe.artifacts import JsonObject
from recipe.config import EndpointConfig
from recipe.errors import ComputeError, InputError, MissingExtra, quoted
from recipe.models.endpoint.wire import (
    Fields,
    Question,
    Unreadable,
    body_of,
    fields_of,
    form_of,
    idempotency_key,
    read_answer,
    read_chunks,
)
from recipe.models.protocol import Answer, videos
from recipe.models.wrappers import Ledger

# How long a busy service asks its callers to wait.


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that a response asks to wait: of `retry-after-ms`, or `retry-after` in seconds or as a date.

    None without a header that can be read.

    >>> retry_after({"retry-after": "2.5"}), retry_after({"retry-after": "soon"})
    (2.5, None)
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        seconds = None if value is None else _seconds(value, unit, time.time() if now is None else now)
        if seconds is not None and math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _seconds(value: str, unit: float, now: float) -> float | None:
    try:
        return unit * float(value)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(value).timestamp() - now
    except ValueError:
        return None


# What can go wrong between here and an endpoint: what passes and is tried again, and what never will.
#
# Passing: time-outs, dropped and refused connections, 408, 409, 425, 429 and 5xx, and answers that are no chat
# completion (a proxy's page, half a JSON), the last a few times only, because a wrong address answers like that for
# ever. Final: every other status, and 429 for an empty account. Of those, 400, 413 and 422 may be about one chat alone.


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


# Connections to an endpoint: as many HTTP clients as requests may be under way, each with one connection.
#
# One client with many connections would look through all of them at every request, which with 64 takes longer than all
# else. The SDK of OpenAI, which would send the same, takes most of its time for building and reading what is built and
# read here; see docs/endpoints.md for both measured.


try:
    import httpx2
except ModuleNotFoundError as error:
    raise MissingExtra("asking an endpoint", "llm") from error

_CONNECT = 10.0
"""Seconds to reach the endpoint."""
_ONE = httpx2.Limits(max_connections=1, max_keepalive_connections=1)


@functools.cache
def _trusted() -> ssl.SSLContext:
    """The certificates of this machine, which take longer to read than a request takes."""
    return httpx2.create_ssl_context()


class Connections:
    """Sends requests from one event loop; a connection is opened when it is needed, and used again."""

    def __init__(self, url: str, key: str | None, config: EndpointConfig) -> None:
        self._target = httpx2.URL(f"{url}/chat/completions")
        timeout = httpx2.Timeout(config.timeout, connect=min(config.timeout, _CONNECT))
        self._extensions = {"timeout": timeout.as_dict()}
        self._headers = [
            ("Accept", "application/json"),
            ("Authorization", f"Bearer {key or 'none'}"),
            ("Content-Type", "application/json"),
            ("User-Agent", "recipe-planner"),
        ]
        self._idle: list[httpx2.AsyncClient] = []
        self._clients: list[httpx2.AsyncClient] = []

    async def post(self, body: bytes, idempotency_key: str) -> httpx2.Response:
        """Send a request and read all of the response. Raises httpx2.RequestError."""
        client = self._taken()
        try:
            return await client.send(self._request(body, idempotency_key))
        finally:
            self._idle.append(client)

    @asynccontextmanager
    async def streamed(self, body: bytes, idempotency_key: str) -> AsyncIterator[httpx2.Response]:
        """Send a request; what comes is read in the body of the statement. Raises httpx2.RequestError."""
        client = self._taken()
        try:
            response = await client.send(self._request(body, idempotency_key), stream=True)
            try:
                yield response
            finally:
                await response.aclose()
        finally:
            self._idle.append(client)

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.aclose()

    def _taken(self) -> httpx2.AsyncClient:
        """A client without a request under way: the one that was used last, whose connection is open."""
        if self._idle:
            return self._idle.pop()
        client = httpx2.AsyncClient(verify=_trusted(), limits=_ONE, follow_redirects=True)
        self._clients.append(client)
        return client

    def _request(self, body: bytes, idempotency_key: str) -> httpx2.Request:
        headers = [*self._headers, ("Idempotency-Key", idempotency_key)]
        # Built here, because the client would put together address and headers anew for each.
        return httpx2.Request("POST", self._target, headers=headers, content=body, extensions=self._extensions)


# One endpoint, asked patiently: later each time, or when it says; by all who ask it together.


_LOG = logging.getLogger(__name__)
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
"""Seconds."""
# Of its own, so that waiting leaves other draws alone; unseeded, so that clients do not wait alike.
_JITTER = random.Random()


class Host:
    """Asks one endpoint, from one event loop."""

    def __init__(self, config: EndpointConfig, ledger: Ledger) -> None:
        """Prepare to ask; nothing is sent. Raises InputError for an address or a key that cannot be used."""
        self.url, self._key = _address(config.url), _key(config.key_variable)
        self.fields = Fields(config.structured)
        self._config, self._ledger = config, ledger
        self._connections = Connections(self.url, self._key, config)
        self._quiet_until = 0.0

    async def answer(self, question: Question, ended: asyncio.Event) -> Answer:
        """The answer to a question, tried again until `ended`.

        Raises Unfit for a question that is not taken, InputError for what no try will change, and ComputeError for
        what did not pass in time.
        """
        fields = await self._fields(question)
        began, tries, unread, replied = time.monotonic(), 0, 0, 0
        while True:
            optional = self.fields.of(question)
            try:
                answer = await self._try(fields | optional, idempotency=(question.sample, replied), ended=ended)
            except Unfit as unfit:
                replied += 1
                self._ask_for_less(optional, unfit)
            except Passing as failure:
                tries, unread = tries + 1, unread + failure.unread
                replied += failure.replied
                last = tries >= self._config.tries or unread >= UNREAD_TRIES
                await self._pause(failure, tries, time.monotonic() - began, ended, last=last)
            else:
                self.fields.answered(optional)
                if question.schema is None:
                    return answer
                self._ledger.structured = self.fields.structured
                return answer._replace(structured=form_of(optional))

    async def stream(self, question: Question, hand_on: Callable[[str], None]) -> Answer:
        """Hand on the pieces of an answer as they come, and return it whole; raises what `FAILURES` lists."""
        body = body_of(await self._fields(question) | {"stream": True})
        began, told, finished, tokens = time.monotonic(), "", False, (0, 0)
        async with self._connections.streamed(body, idempotency_key(body, question.sample, 0)) as response:
            if not response.is_success:
                raise Unreadable(f"the endpoint answers {response.status_code}")
            async for chunk in read_chunks(response.aiter_lines()):
                finished, tokens = finished or chunk.last, chunk.tokens or tokens
                if chunk.text:
                    told += chunk.text
                    hand_on(chunk.text)
        if not finished:
            raise Unreadable("it has no end")
        return Answer(told, *tokens, round(time.monotonic() - began, 3))

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    def without_key(self, text: str) -> str:
        """A text with the key struck out, because endpoints repeat what they were sent."""
        return text.replace(self._key, "[key]") if self._key else text

    async def _fields(self, question: Question) -> JsonObject:
        if videos(question.chat):  # JPEG takes long
            return await asyncio.to_thread(fields_of, question, self._config)
        return fields_of(question, self._config)

    async def _try(self, fields: JsonObject, *, idempotency: tuple[int, int], ended: asyncio.Event) -> Answer:
        """One request. Raises Passing, InputError."""
        await _sleep(self._quiet_until - time.monotonic(), ended)
        body = body_of(fields)
        began = time.monotonic()
        failure: Passing | InputError
        try:
            # The client's own limit is for each read, and lets an endpoint that drips go on for ever.
            async with asyncio.timeout(self._config.timeout):
                response = await self._connections.post(body, idempotency_key(body, *idempotency))
            if response.is_success:
                return read_answer(response.content, round(time.monotonic() - began, 3))
            failure = answered(response, self.url)
        except FAILURES as error:
            failure = understood(error, self._config.timeout)
        failure.args = tuple(self.without_key(str(text)) for text in failure.args)
        raise failure

    def _ask_for_less(self, sent: JsonObject, unfit: Unfit) -> None:
        """Leave out a field that the host refuses. Raises `unfit` where it is none of these."""
        name = self.fields.refused(sent, unfit.said)
        if name is None:
            raise unfit
        if not self.fields.fall(name, sent):
            problem = str(unfit).removeprefix(f"{self.url}: ").partition("; ")[0]
            raise InputError.at(self.url, problem, "give what the endpoint takes with --structured") from None
        _LOG.info("%s: it does not take %s as sent; asking without", self.url, name)

    async def _pause(self, failure: Passing, tries: int, taken: float, ended: asyncio.Event, *, last: bool) -> None:
        """Wait before the next try. Raises ComputeError where there is none."""
        wait = _wait(failure, tries)
        if not last and taken + wait < self._config.patience and not ended.is_set():
            self._ledger.retry()
            if failure.wait is not None:  # it speaks to all who ask
                self._quiet_until = max(self._quiet_until, time.monotonic() + failure.wait)
            _LOG.info("%s: %s; asking again in %.1f s", self.url, failure, wait)
            await _sleep(wait, ended)
            if not ended.is_set():
                return
        asked = "" if failure.wait is None else f" and asks to wait {failure.wait:.0f} s"
        tried = f"{tries} {'try' if tries == 1 else 'tries'} in {taken:.0f} s"
        raise ComputeError(f"{self.url}: {failure}{asked} ({tried}); {failure.remedy}.")


def _wait(failure: Passing, tries: int) -> float:
    """Seconds until the next try: what the endpoint asked for and a little more, else twice as long as before."""
    if failure.wait is not None:
        return failure.wait + _JITTER.uniform(0.0, 0.5)
    doubled: float = _FIRST_WAIT * 2 ** min(tries - 1, 16)
    return min(doubled, _LONGEST_WAIT) * _JITTER.uniform(0.5, 1.0)


async def _sleep(seconds: float, ended: asyncio.Event) -> None:
    """Wait, but not on once all is over."""
    if seconds > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), seconds)


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InputError.at(url, "this is no address of HTTP", "give one such as http://localhost:8000/v1")
    if parts.username or parts.password:
        raise InputError("the endpoint's address holds a password; give it as a key by --key-variable.")
    if parts.path.rstrip("/").endswith("/chat/completions"):
        raise InputError.at(url, "this is one method of the API", "give its root, without /chat/completions")
    return url.rstrip("/")


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise InputError(f"the environment variable {variable} is to hold the endpoint's key, and is not set; set it.")
    return key
