"""Connections that are too slow are closed; those that are not are served, and idle ones make room.

The server's clock stands still until a test moves it, so that no machine is too slow or too fast for a limit.
"""

import asyncio
import importlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

uvicorn = pytest.importorskip("uvicorn")

from recipe.errors import ConfigError  # noqa: E402
from recipe_apps.web import connections  # noqa: E402
from recipe_apps.web.connections import ConnectionLimits, limited_protocol, most_connections  # noqa: E402
from recipe_apps.web.process import require_guarded  # noqa: E402

QUICK = ConnectionLimits(
    per_address=12,
    head_seconds=0.6,
    head_bytes=4096,
    body_rate=1000,
    stalled_seconds=0.6,
    long_seconds=4.0,
    long_rate=3000,
    connections=12,
    every=0.05,
)
LARGE = 1 << 23
WAIT = 300
"""Seconds after which a socket is given up; nothing waits for so long."""


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body; answers its length, a large body, or slowly."""
    assert scope["type"] == "http"
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        length += len(message.get("body", b""))
        more = message.get("more_body", False)
    if scope["path"] == "/slow":
        await asyncio.sleep(1.5)
    if scope["path"] == "/wait":
        await receive()  # until the client has gone
        return
    body = bytes(LARGE) if scope["path"] == "/large" else str(length).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Stopped(asyncio.SelectorEventLoop):
    """An event loop whose clock the tests move."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Service:
    """The app on a real port, in a thread."""

    def __init__(self) -> None:
        self.received = self.accepted = 0
        service, limited = self, limited_protocol(QUICK)

        class Counting(limited):  # type: ignore[misc, valid-type]
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                service.accepted += 1

            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                service.received += len(data)

        config = uvicorn.Config(app, http=Counting, log_config=None, lifespan="off", timeout_keep_alive=WAIT)
        self.server, self.loop = uvicorn.Server(config), Stopped()
        bound = socket.create_server(("127.0.0.1", 0))
        # Small, so that the server notices each part of a large answer that is read.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        self.port = bound.getsockname()[1]
        self.thread = threading.Thread(target=lambda: self.loop.run_until_complete(self.server.serve([bound])))
        self.thread.start()
        until(lambda: self.server.started)

    def stop(self) -> None:
        self.server.should_exit = True
        while self.thread.is_alive():
            self.loop.now += 1
            self.thread.join(0.01)
        self.loop.close()

    def settle(self) -> None:
        """Return when the loop has done what was due."""
        for _ in range(3):
            done = threading.Event()
            self.loop.call_soon_threadsafe(done.set)
            assert done.wait(WAIT)

    def move(self, seconds: float) -> None:
        self.loop.now += seconds
        self.settle()

    @property
    def open(self) -> list[Any]:
        """The server's side of the connections."""
        self.settle()
        return list(self.server.server_state.connections)

    def client(self, address: str = "127.0.0.1") -> socket.socket:
        before = self.accepted
        client = socket.create_connection(("127.0.0.1", self.port), source_address=(address, 0))
        client.settimeout(WAIT)
        until(lambda: self.accepted > before)
        return client

    def send(self, client: socket.socket, data: bytes) -> None:
        """Send, and wait until the server has it."""
        before = self.received
        client.sendall(data)
        until(lambda: self.received >= before + len(data) or not self.open)

    def closed_after(self, send: Callable[[], object] | None = None) -> float:
        """Seconds of the server's clock until it closes its only connection, `send` being called before each look."""
        began = self.loop.now
        while self.open and self.loop.now < began + 5:
            if send is not None:
                send()
            self.move(QUICK.every)
        return self.loop.now - began


def until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    while not holds():
        pause.wait(0.001)


@pytest.fixture(scope="module", params=["h11_impl.H11Protocol", "httptools_impl.HttpToolsProtocol"])
def running(request: pytest.FixtureRequest) -> Iterator[Service]:
    module, name = request.param.split(".")
    pytest.importorskip("h11" if module == "h11_impl" else "httptools")
    protocol = getattr(importlib.import_module(f"uvicorn.protocols.http.{module}"), name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "AutoHTTPProtocol", protocol)
        service = Service()
    yield service
    service.stop()


@pytest.fixture
def service(running: Service) -> Service:
    """Without connections of an earlier test."""
    until(lambda: not running.open)
    return running


def ask(client: socket.socket, path: str = "/", body: bytes = b"") -> bytes:
    """The body of the answer."""
    client.sendall(f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    return answer(client)


def answer(client: socket.socket) -> bytes:
    read = client.makefile("rb")
    lengths = [int(line.split(b":")[1]) for line in iter(read.readline, b"\r\n") if line.startswith(b"content-length")]
    return read.read(lengths[0])


def hung_up(client: socket.socket) -> bool:
    try:
        return client.recv(1 << 16) == b""
    except OSError:
        return True


def in_time(seconds: float) -> bool:
    """Whether a limit of 0.6 s was kept by a server that looks every 0.05 s."""
    return 0.6 < seconds < 0.6 + 3 * QUICK.every


def test_a_connection_that_says_nothing_is_closed(service: Service) -> None:
    with service.client() as client:
        assert in_time(service.closed_after())
        assert hung_up(client)


def test_headers_that_arrive_letter_by_letter_are_not_waited_for(service: Service) -> None:
    with service.client() as client:
        service.send(client, b"GET / HTTP/1.1\r\n")
        assert in_time(service.closed_after(lambda: service.send(client, b"x")))


def test_headers_without_end_are_not_kept(service: Service) -> None:
    with service.client() as client:
        sent, line = b"GET / HTTP/1.1\r\n", b"a: " + b"b" * 500 + b"\r\n"
        service.send(client, sent)
        while service.open:
            sent += line
            service.send(client, line)
        assert QUICK.head_bytes < len(sent) <= QUICK.head_bytes + len(line)


def test_a_body_that_drips_is_not_waited_for(service: Service) -> None:
    with service.client() as client:
        service.send(client, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n")
        assert in_time(service.closed_after(lambda: service.send(client, b"x")))


def test_an_answer_that_nobody_reads_is_given_up(service: Service) -> None:
    with service.client() as client:
        client.sendall(b"POST /large HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        read = len(client.recv(1 << 16))
        assert 0.6 < service.closed_after() < 5
        with suppress(OSError):
            while some := client.recv(1 << 16):
                read += len(some)
        assert read < LARGE


def test_a_large_answer_is_read_slowly_to_its_end(service: Service) -> None:
    with service.client() as client:
        client.sendall(b"POST /large HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        [other] = service.open
        began, unsent, read = service.loop.now, LARGE, 0
        while read < LARGE:
            read += len(client.recv(1 << 16))
            # Time passes where the server can notice that something was read.
            if (left := other.transport.get_write_buffer_size()) < unsent:
                unsent = left
                service.move(0.1)
        assert service.loop.now - began > 2 * QUICK.stalled_seconds


def test_a_body_in_time_and_a_slow_answer_are_served(service: Service) -> None:
    with service.client() as client:
        service.send(client, b"POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 12000\r\n\r\n")
        for _ in range(12):
            service.send(client, b"x" * 1000)
            service.move(0.12)
        for _ in range(32):
            service.move(QUICK.every)
        assert answer(client) == b"12000"


@pytest.mark.parametrize("length", [3000, 50 * QUICK.head_bytes])
def test_a_connection_that_is_used_again_and_again_stays(service: Service, length: int) -> None:
    with service.client() as client:
        for _ in range(30):
            assert ask(client, body=b"x" * length) == str(length).encode()
            service.move(QUICK.every)


def test_headers_in_pieces_behind_a_large_body_are_waited_for(service: Service) -> None:
    with service.client() as client:
        for _ in range(5):
            service.send(client, b"POST / HTTP/1.1\r\nhost: x\r\n")
            service.move(0.02)
            client.sendall(b"content-length: 9000\r\n\r\n" + b"x" * 9000)
            assert answer(client) == b"9000"


def test_idle_connections_make_room_the_longest_idle_first(service: Service) -> None:
    idle = []
    for _ in range(QUICK.connections):
        idle.append(service.client())
        service.move(0.01)
    with service.client() as client:
        assert ask(client) == b"0"
        assert hung_up(idle[0])
        assert len(service.open) == QUICK.connections
        assert [ask(one) for one in idle[1:]] == [b"0"] * (QUICK.connections - 1)
    for one in idle:
        one.close()


def drip(service: Service, address: str, count: int) -> list[socket.socket]:
    """Connections whose bodies arrive at the least rate that is allowed, 0.6 s after they began."""
    dripping = [service.client(address) for _ in range(count)]
    for one in dripping:
        service.send(one, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n" + b"x" * 600)
    service.move(0.55)
    return dripping


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_dripping_bodies_make_room_for_requests_also_of_their_own_address(service: Service, address: str) -> None:
    dripping = drip(service, address, QUICK.connections)
    for _ in range(5):
        with service.client() as client:
            assert ask(client, body=b"y" * 100) == b"100"
        until(lambda: len(service.open) < QUICK.connections)
        dripping += drip(service, address, 1)
    assert sum(map(hung_up, dripping[:5])) == 5
    for one in dripping:
        one.close()


def test_a_body_above_the_least_rate_must_also_arrive_on_the_whole(service: Service) -> None:
    with service.client() as client:
        service.send(client, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n")
        seconds = service.closed_after(lambda: service.send(client, b"x" * 100))  # 2,000 bytes a second
        assert QUICK.long_seconds < seconds < QUICK.long_seconds + 3 * QUICK.every


def test_a_long_body_that_is_fast_enough_on_the_whole_is_served(service: Service) -> None:
    with service.client() as client:
        service.send(client, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 50000\r\n\r\n")
        for _ in range(100):
            service.send(client, b"x" * 500)
            service.move(QUICK.every)
        assert answer(client) == b"50000"


def test_one_address_has_its_share_and_is_refused_beyond_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.QUICK", QUICK._replace(per_address=3))
    service = Service()
    busy = [service.client("127.0.0.2") for _ in range(3)]
    for one in busy:
        service.send(one, b"POST /wait HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
    with service.client("127.0.0.2") as more:
        refused = more.makefile("rb").read()
        head, _, body = refused.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 429 ")
        assert b"\r\nretry-after: 1\r\n" in head
        assert json.loads(body)["error"]["code"] == "queue_full"
    with service.client() as other:
        assert ask(other) == b"0"
    for one in busy:
        one.close()
    service.stop()


def test_an_address_that_has_left_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.QUICK", QUICK._replace(per_address=1))
    service = Service()
    for _ in range(5):
        with service.client("127.0.0.2") as client:
            assert ask(client) == b"0"
        until(lambda: not service.open)
    service.stop()


def test_the_number_of_connections_leaves_files_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (200, 400))
    assert most_connections(ConnectionLimits()) == 100
    monkeypatch.setattr("resource.getrlimit", lambda _: (64, 64))
    assert most_connections(ConnectionLimits()) == 16
    assert most_connections(QUICK) == 12


def test_a_service_without_a_token_stays_on_its_machine() -> None:
    with pytest.raises(ConfigError, match=r"--host 0\.0\.0\.0: .*--insecure"):
        require_guarded("0.0.0.0", guarded=False, insecure=False)
    require_guarded("0.0.0.0", guarded=True, insecure=False)
    require_guarded("0.0.0.0", guarded=False, insecure=True)
    require_guarded("127.0.0.1", guarded=False, insecure=False)


def test_a_body_that_breaks_off_is_a_refusal_and_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    from fastapi import FastAPI, Request

    from recipe_apps.web.guard import Intake, WebMetrics, protect

    service, metrics = FastAPI(), WebMetrics("t")

    @service.post("/read")
    async def read(request: Request) -> int:
        async with Intake(100).body(request) as body:
            return len(body)

    protect(service, metrics, None, "docs")

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/read", "headers": [], "query_string": b"", "scheme": "http"}
    asyncio.run(service(scope | {"server": ("x", 1), "client": ("y", 2), "root_path": ""}, receive, send))
    assert sent[0]["status"] == 499
    assert not [one for one in caplog.records if one.levelname == "ERROR"]
