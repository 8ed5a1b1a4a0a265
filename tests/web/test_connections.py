"""Connections that are too slow are closed; those that are not are served, and idle ones make room."""

import asyncio
import importlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

uvicorn = pytest.importorskip("uvicorn")

from recipe.errors import ConfigError  # noqa: E402
from recipe.web import connections  # noqa: E402
from recipe.web.connections import ConnectionLimits, limited_protocol, most_connections  # noqa: E402
from recipe.web.process import require_guarded  # noqa: E402

QUICK = ConnectionLimits(
    head_seconds=0.6, head_bytes=4096, body_rate=1000, stalled_seconds=0.6, connections=12, every=0.05
)
LARGE = 1 << 23


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
    body = bytes(LARGE) if scope["path"] == "/large" else str(length).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module", params=["h11_impl.H11Protocol", "httptools_impl.HttpToolsProtocol"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    module, name = request.param.split(".")
    pytest.importorskip("h11" if module == "h11_impl" else "httptools")
    with pytest.MonkeyPatch.context() as patch:
        protocol = getattr(importlib.import_module(f"uvicorn.protocols.http.{module}"), name)
        patch.setattr(connections, "AutoHTTPProtocol", protocol)
        config = uvicorn.Config(
            app, http=limited_protocol(QUICK), log_config=None, lifespan="off", timeout_keep_alive=5
        )
    server = uvicorn.Server(config)
    bound = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield bound.getsockname()[1]
    server.should_exit = True
    thread.join()


def opened(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.settimeout(5)
    return client


def ask(client: socket.socket, path: str = "/", body: bytes = b"") -> bytes:
    client.sendall(f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    return client.recv(1 << 16)


def closed_after(client: socket.socket, send: Callable[[], object] | None = None) -> float:
    """Seconds until the other side closes, `send` being called meanwhile."""
    began = time.monotonic()
    client.settimeout(0.05)
    while time.monotonic() - began < 5:
        try:
            if send is not None:
                send()
            if client.recv(1 << 16) == b"":
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - began


def test_a_connection_that_says_nothing_is_closed(port: int) -> None:
    with opened(port) as client:
        assert 0.5 < closed_after(client) < 2


def test_headers_that_arrive_letter_by_letter_are_not_waited_for(port: int) -> None:
    with opened(port) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        assert 0.5 < closed_after(client, lambda: client.sendall(b"x")) < 2


def test_headers_without_end_are_not_kept(port: int) -> None:
    with opened(port) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        assert closed_after(client, lambda: client.sendall(b"a: " + b"b" * 500 + b"\r\n")) < 0.6


def test_a_body_that_drips_is_not_waited_for(port: int) -> None:
    with opened(port) as client:
        client.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n")
        assert 0.5 < closed_after(client, lambda: client.sendall(b"x")) < 2


def test_an_answer_that_nobody_reads_is_given_up(port: int) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.settimeout(5)
        read = len(ask(client, "/large"))
        time.sleep(2)
        while some := client.recv(1 << 16):
            read += len(some)
        assert read < LARGE / 2


def test_a_large_answer_is_read_slowly_to_its_end(port: int) -> None:
    with opened(port) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        began, read = time.monotonic(), len(ask(client, "/large"))
        while read < LARGE:
            time.sleep(0.01)
            read += len(client.recv(1 << 16))
        assert time.monotonic() - began > 2 * QUICK.head_seconds


def test_a_body_in_time_and_a_slow_answer_are_served(port: int) -> None:
    with opened(port) as client:
        client.sendall(b"POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 12000\r\n\r\n")
        for _ in range(12):
            client.sendall(b"x" * 1000)
            time.sleep(0.12)
        assert client.recv(1 << 16).endswith(b"12000")


@pytest.mark.parametrize("length", [3000, 50 * QUICK.head_bytes])
def test_a_connection_that_is_used_again_and_again_stays(port: int, length: int) -> None:
    with opened(port) as client:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            assert ask(client, body=b"x" * length).endswith(str(length).encode())
            time.sleep(0.002)


def test_headers_in_pieces_behind_a_large_body_are_waited_for(port: int) -> None:
    with opened(port) as client:
        for _ in range(5):
            client.sendall(b"POST / HTTP/1.1\r\nhost: x\r\n")
            time.sleep(0.02)
            client.sendall(b"content-length: 9000\r\n\r\n" + b"x" * 9000)
            assert client.recv(1 << 16).endswith(b"9000")


def test_idle_connections_make_room_the_longest_idle_first(port: int) -> None:
    idle = []
    for _ in range(QUICK.connections):
        idle.append(opened(port))
        time.sleep(0.01)
    with opened(port) as client:
        assert ask(client).endswith(b"0")
        assert closed_after(idle[0]) < 0.2
        assert ask(idle[-1]).endswith(b"0")
    for one in idle:
        one.close()


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

    from recipe.web.guard import WebMetrics, bounded_body, protect

    service, metrics = FastAPI(), WebMetrics("t")

    @service.post("/read")
    async def read(request: Request) -> int:
        return len(await bounded_body(request, 100))

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
