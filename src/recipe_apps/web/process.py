"""A service as a process: it listens, and ends once what it accepted is answered."""

import gc
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

from fastapi import FastAPI

from recipe.errors import ConfigError, MissingExtra

try:
    import uvicorn
except ModuleNotFoundError as error:
    raise MissingExtra("an HTTP service", "serve") from error

_LOG = logging.getLogger(__name__)
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
# Files that are left for the corpus, the model, the database and the log; and connections that are allowed anyway.
_RESERVED, _FEWEST = 100, 16
# Thresholds of garbage collection: a request makes hundreds of objects, none of them in a cycle.
# CPython 3.11's own are (700, 10, 10).
_GC_THRESHOLDS = (20_000, 50, 50)
# Seconds that the event loop may keep the interpreter while a thread that computes waits for it.
# CPython's own is 0.005.
_SWITCH_INTERVAL = 0.0002


class _Server(uvicorn.Server):
    """Calls `drain` at the first signal, and ends where `broken` says so."""

    drain: Callable[[], None]
    broken: Callable[[], bool]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.drain()
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self.broken()


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, so that a port in use is an error before anything is loaded. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # A trainer sends hundreds of requests together: they wait in the backlog until they are accepted.
    return socket.create_server((host, port), family=family, backlog=2048, reuse_port=False)


def require_guarded(host: str, guarded: bool, insecure: bool) -> None:
    """Raises ConfigError where a service without a token would answer to whoever reaches this machine."""
    if host not in LOOPBACK and not guarded and not insecure:
        raise ConfigError(
            f"--host {host}: whoever reaches this machine could use the service; give a token (RECIPE_TOKEN or "
            "--token-file), or --insecure where a proxy in front asks for one."
        )


def address_of(host: str, bound: socket.socket) -> str:
    """Where a browser finds the service."""
    return f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"


def run_service(
    app: FastAPI,
    bound: socket.socket,
    drain: Callable[[], None],
    longest_drain: float,
    broken: Callable[[], bool] = lambda: False,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then for `longest_drain` seconds at most finish what was accepted.

    `drain` is called at the signal; once `broken` is true the service ends too. Slow clients are for a proxy in front
    to close (docs/production.md).
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = None if files == resource.RLIM_INFINITY else max(_FEWEST, files - _RESERVED)
    config = uvicorn.Config(
        app,
        # Without files left, the service could not open what it serves; uvicorn answers 503 beyond.
        limit_concurrency=connections,
        access_log=False,
        log_config=None,
        # A client could name any address in them, and limits are by address.
        proxy_headers=False,
        timeout_graceful_shutdown=max(int(longest_drain), 1),
        server_header=False,
        date_header=False,
    )
    server = _Server(config)
    server.drain, server.broken = drain, broken
    # A server that has ended raises the signals again that ended it, for handlers like these.
    before = {number: signal.signal(number, _ended) for number in (signal.SIGTERM, signal.SIGINT)}
    collected, switched = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        server.run([bound])
    finally:
        gc.set_threshold(*collected)
        sys.setswitchinterval(switched)
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended(number: int, frame: FrameType | None) -> None:
    _LOG.info("the service has ended")
