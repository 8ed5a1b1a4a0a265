"""What guards the endpoints of a service: token, counters, bounded bodies, answers to errors."""

import asyncio
import base64
import binascii
import hmac
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address, ip_network
from typing import Any, TypeVar
from urllib.parse import quote_from_bytes

from pydantic import BaseModel, SecretStr
from pydantic_core import to_json

from recipe.errors import MissingExtra
from recipe_apps.web.refusals import Refusal

try:
    from anyio import CapacityLimiter, to_thread
    from fastapi import FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ModuleNotFoundError as error:
    raise MissingExtra("an HTTP service", "serve") from error

OPEN = ("/healthz", "/readyz")
"""Health probes; no token needed."""
# Bytes of a body that is read in the event loop, and of each body that may be held whatever the others are.
_INLINE, _FREE = 8 << 10, 64 << 10
# Bodies read at once outside the event loop; more would only take turns at one interpreter.
_THREADS = 2
# Bodies of the largest size whose bytes may be held at once.
# 64 MiB of the reward service, 320 MB of the board.
_HELD = 16
# A slow line sends 128 kbit/s.
BODY_SECONDS, BODY_RATE = 60.0, 16_000
"""A body arrives in so many seconds and one more for each so many bytes that it may have: a client that drips it holds
its room no longer."""
Value = TypeVar("Value")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Bounds of the classes in which times are counted."""


PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; media-src blob:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Of every answer of a service that has pages."""


class WebMetrics:
    """Counters of one service in Prometheus's format; another service in the same process has its own."""

    def __init__(self, prefix: str) -> None:
        """`prefix` begins the name of each counter."""
        self._prefix, self.registry = prefix, CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = self.counter("requests", "Requests by endpoint and status.", "endpoint", "status")
        self.seconds = self.histogram("request_seconds", "Time from request to answer.", SECONDS, "endpoint")
        self._failures = self.counter("failures", "Requests that ended without what was asked, by class.", "class")

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        """A further counter."""
        return Counter(f"{self._prefix}_{name}", meaning, labels, registry=self.registry)

    def histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
        """A further histogram."""
        return Histogram(f"{self._prefix}_{name}", meaning, labels, buckets=buckets, registry=self.registry)

    def gauge(self, name: str, meaning: str, *labels: str, follow: Callable[[], float] | None = None) -> Gauge:
        """A further gauge; with `follow` it is read whenever metrics are asked for."""
        gauge = Gauge(f"{self._prefix}_{name}", meaning, labels, registry=self.registry)
        if follow is not None:
            gauge.set_function(follow)
        return gauge

    def failed(self, code: str) -> None:
        """A request ended without what was asked."""
        self._failures.labels(code).inc()

    def response(self) -> Response:
        """The page that Prometheus reads."""
        text = generate_latest(self.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def protect(app: FastAPI, metrics: WebMetrics, token: SecretStr | None, pages: str) -> None:
    """Put the guard in front of the application's endpoints, and answer errors as refusals; add endpoints before.

    `pages` is the page of the documentation that lists the endpoints.
    """

    async def refused(request: Request, error: Exception) -> Response:
        match error:
            case Refusal():
                refusal = error
            case HTTPException():  # of the router: counted among the requests, and no failure of a request for work
                code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http")
                problem = f"{error.detail}: {request.method} {request.scope['path']}; {pages} lists the endpoints."
                body = Refusal(code, problem).envelope
                return json_response(body, error.status_code, dict(error.headers or {}))
            case RequestValidationError():
                first = error.errors()[0]
                source, name, reason = first["loc"][0], first["loc"][-1], first["msg"]
                if first["type"] == "missing":
                    refusal = Refusal("missing_field", f"The {source} parameter {name!r} is missing; add it.")
                else:
                    problem = f"cannot be used ({reason[0].lower()}{reason[1:]})"
                    refusal = Refusal("invalid_field", f"The {source} parameter {name!r} {problem}.")
            case _:
                refusal = Refusal("internal", "The service failed; see its log.")
        if refusal.code != "not_ready":  # the answer to a question, and no request for work
            metrics.failed(refusal.code)
        return json_response(refusal.envelope, refusal.status, refusal.headers)

    for kind in (Refusal, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, refused)
    endpoints = {getattr(route, "path", "") for route in app.routes}
    app.add_middleware(Guard, metrics=metrics, endpoints=endpoints, token=token)


class Guard:
    """Refuses requests without the token, and counts all by endpoint and status."""

    def __init__(self, app: ASGIApp, metrics: WebMetrics, endpoints: Collection[str], token: SecretStr | None) -> None:
        self._app, self._metrics, self._endpoints = app, metrics, endpoints
        self._token = None if token is None else token.get_secret_value().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500
        # Starlette decodes a query string as UTF-8 and fails where it is not; a URL's other bytes are escaped
        scope["query_string"] = quote_from_bytes(scope["query_string"], safe=bytes(range(128))).encode()

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # A bearer token, or the password of an address such as http://any:token@host.
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, value = header.partition(b" ")
        token = value.strip() if scheme.lower() == b"bearer" else b""
        if scheme.lower() == b"basic":
            with suppress(binascii.Error):
                token = base64.b64decode(value, validate=True).partition(b":")[2]
        try:
            # In constant time: a time that depends on the texts would tell how far a guess is right.
            if self._token is None or scope["path"] in OPEN or hmac.compare_digest(bytes(token), self._token):
                await self._app(scope, receive, counted)
            else:
                refusal = Refusal("unauthorized", "The token is absent or wrong; send it as a bearer.")
                self._metrics.failed(refusal.code)
                await json_response(refusal.envelope, refusal.status, refusal.headers)(scope, receive, counted)
        finally:
            path: str = getattr(scope.get("route"), "path", None) or scope["path"]
            endpoint = path if path in self._endpoints else "other"
            self._metrics.requests.labels(endpoint, str(status)).inc()
            self._metrics.seconds.labels(endpoint).observe(time.perf_counter() - began)


class Intake:
    """Request bodies of one service: limits the bytes held, and runs work on large ones outside the event loop."""

    def __init__(self, most: int, seconds: float = BODY_SECONDS) -> None:
        """A body may have `most` bytes, and take `seconds` and what these bytes take at `BODY_RATE`."""
        self._most, self._room, self._seconds = most, _HELD * most, seconds
        self._limiter = CapacityLimiter(_THREADS)

    @asynccontextmanager
    async def body(self, request: Request, most: int | None = None) -> AsyncIterator[bytes]:
        """The whole body, whose bytes count as held until the end of the block; `most` in place of the service's limit.

        Raises Refusal where it is larger, as soon as that is known, where it breaks off or takes too long, and where
        the bodies of others leave no room. Small bodies always have room.
        """
        most, stated = most or self._most, request.headers.get("content-length", "")
        body, held = bytearray(), 0
        try:
            # int() refuses thousands of digits
            if not (stated.isdecimal() and (len(stated) > 20 or int(stated) > most)):
                async with arriving(most, self._seconds):
                    async for chunk in request.stream():
                        body += chunk
                        if len(body) > most:
                            break
                        more = max(len(body) - _FREE - held, 0)
                        if more > self._room:
                            raise Refusal("queue_full", "Too many large bodies arrive at once; ask again in a second.")
                        held, self._room = held + more, self._room - more
                if len(body) <= most:
                    yield bytes(body)
                    return
            raise Refusal("body_too_large", f"The body is larger than {most} bytes; send less at once.")
        finally:
            self._room += held

    async def work(
        self, call: Callable[..., Value], *arguments: Any, size: int = _INLINE + 1, wait: bool = True
    ) -> Value:
        """What `call` makes of a body of `size` bytes, in the event loop where it is small, else in one of few threads.

        Raises Refusal where all are busy and it is not to wait.
        """
        if size <= _INLINE:
            return call(*arguments)
        if not wait and not self._limiter.available_tokens:
            raise Refusal("queue_full", f"{_THREADS} such requests are under way already; ask again in a second.")
        return await to_thread.run_sync(call, *arguments, limiter=self._limiter)


@asynccontextmanager
async def arriving(most: int, seconds: float = BODY_SECONDS) -> AsyncIterator[None]:
    """Within it, a body of `most` bytes arrives. Raises Refusal where it takes too long or breaks off."""
    longest = seconds + most / BODY_RATE
    try:
        async with asyncio.timeout(longest):
            yield
    except TimeoutError:
        raise Refusal("too_slow", f"The body did not arrive in {longest:.0f} seconds.") from None
    except ClientDisconnect:
        raise Refusal("hung_up", "The client went before its request had arrived.") from None


def client_of(peer: Sequence[Any] | None) -> str:
    """What counts as one client: the address of (address, port), and in IPv6 its network of 64 bits.

    A customer usually owns a /64.

    >>> [client_of((address, 80)) for address in ("192.0.2.7", "2001:db8::7", "::ffff:192.0.2.7")]
    ['192.0.2.7', '2001:db8::/64', '192.0.2.7']
    """
    if not peer:
        return ""
    with suppress(ValueError):
        address = ip_address(peer[0])
        if address.version == 6:
            return str(address.ipv4_mapped or ip_network((int(address) >> 64 << 64, 64)))
    return str(peer[0])


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(to_json(value), status, headers, media_type="application/json")


def body_schema(body: type[BaseModel] | str, required: bool = True) -> dict[str, Any]:
    """What OpenAPI says of an endpoint that reads its body itself: a message, or bytes of a content type."""
    if isinstance(body, str):
        return {"requestBody": {"required": required, "content": {body: {"schema": {"format": "binary"}}}}}
    schema = body.model_json_schema()
    # References in it are relative to the message; in OpenAPI they are relative to the document.
    parts: dict[str, Any] = schema.pop("$defs", {})

    def whole(value: Any) -> Any:
        if isinstance(value, dict) and "$ref" in value:
            return whole(parts[value["$ref"].rpartition("/")[2]])
        if isinstance(value, dict):
            return {key: whole(own) for key, own in value.items()}
        return [whole(own) for own in value] if isinstance(value, list) else value

    return {"requestBody": {"required": required, "content": {"application/json": {"schema": whole(schema)}}}}


class PageHeaders:
    """Adds the security policy to every answer, and refuses names that are not this machine's."""

    def __init__(self, app: ASGIApp, local_only: bool) -> None:
        self._app, self._local_only = app, local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                # What an endpoint says itself stays, such as that events are not kept.
                known = {name for name, _ in message["headers"]}
                more = [(name.lower().encode(), value.encode()) for name, value in PAGE_HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in more if pair[0] not in known)]
            await send(message)

        # A name that is not of this machine may point to it: a page of that name would read what is served here.
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        name, _, port = host.rpartition(":")
        name = (name if port.isdigit() else host).strip("[]")
        loopback = name == "localhost"
        with suppress(ValueError):
            loopback = loopback or ip_address(name).is_loopback
        if self._local_only and scope["path"] not in OPEN and not loopback:
            refusal = Refusal("foreign_host", f"This server answers at 127.0.0.1 only, not as {host[:80]!r}.")
            await json_response(refusal.envelope, refusal.status)(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)
