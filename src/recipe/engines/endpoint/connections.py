"""Connections to an endpoint: as many HTTP clients as requests may be under way, each with one connection.

One client with many connections would look through all of them at every request, which with 64 takes longer than all
else. The SDK of OpenAI, which would send the same, takes most of its time for building and reading what is built and
read here; see docs/endpoints.md for both measured.
"""

import functools
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from recipe.config import EndpointConfig
from recipe.errors import MissingExtra

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
