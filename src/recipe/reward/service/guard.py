"""What stands before every endpoint: the token, and the count of requests and their times."""

import base64
import binascii
import hmac
import time
from collections.abc import Collection

from pydantic import SecretStr
from pydantic_core import to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recipe.reward.service.metrics import ServiceMetrics
from recipe.reward.service.refusals import Refusal

_OPEN = ("/healthz", "/readyz")
"""Asked by what starts and stops services, which holds no token."""


class Guard:
    """Refuses requests without the token, and counts all by endpoint and status."""

    def __init__(
        self, app: ASGIApp, metrics: ServiceMetrics, endpoints: Collection[str], token: SecretStr | None
    ) -> None:
        self._app, self._metrics, self._endpoints = app, metrics, endpoints
        self._token = None if token is None else token.get_secret_value().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if self._token is None or scope["path"] in _OPEN or self._shown(scope):
                await self._app(scope, receive, counted)
            else:
                self._metrics.failed("unauthorized")
                await _send(Refusal("unauthorized", "The token is absent or wrong; send it as a bearer."), counted)
        finally:
            endpoint = scope["path"] if scope["path"] in self._endpoints else "other"
            self._metrics.request(endpoint, status, time.perf_counter() - began)

    def _shown(self, scope: Scope) -> bool:
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(_token(header), self._token or b"")


def _token(header: bytes) -> bytes:
    """The token of a header: a bearer, or the password where it stands in the address (http://any:token@host)."""
    scheme, _, value = header.partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip()
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


async def _send(refusal: Refusal, send: Send) -> None:
    body = to_json(refusal.envelope)
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
