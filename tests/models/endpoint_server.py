"""A local endpoint that answers as it is told to, misbehaviour included."""

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from recipe.artifacts import JsonObject
from recipe.config import ModelConfig, SamplingConfig
from recipe.models.model import Model, open_model
from recipe.models.protocol import Chat, ModelRequest


class Reply(NamedTuple):
    """What is sent back."""

    status: int = 200
    body: str = ""
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    delay: float = 0.0
    drop: bool = False
    """Close the connection in the middle of the body."""
    drip: float = 0.0
    """Seconds between the bytes of the body."""


def completion(text: str | None, finish: str | None = "stop", tokens: tuple[int, int] = (100, 10)) -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return Reply(body=json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}))


def streamed(*pieces: str, whole: bool = True) -> Reply:
    """A completion as server-sent events; without an end where it is not `whole`."""
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    if whole:
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        chunks.append({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}})
    events = [*(json.dumps({"id": "x", "object": "chat.completion.chunk"} | chunk) for chunk in chunks), "[DONE]"]
    return Reply(
        body="".join(f"data: {event}\n\n" for event in events if whole or event != "[DONE]"), kind="text/event-stream"
    )


def opened(config: ModelConfig, cache: Path | None = None) -> Model:
    """The model at an endpoint, with answers kept in a folder."""
    return open_model(config.model_copy(update={"cache": cache}))


def kept(
    model: Model, chats: list[Chat], count: int, sampling: SamplingConfig, schema: JsonObject | None = None
) -> list[int]:
    """How many of the `count` answers to each chat are in the cache."""
    if model.store is None:
        return [0] * len(chats)
    return [
        sum(model.store.answer(model.key(ModelRequest(chat, sampling, at, schema))) is not None for at in range(count))
        for chat in chats
    ]


Answering = Callable[[dict[str, Any], int], Reply]
"""A request's body and how many came before it, to the reply."""


class Server:
    """Where it listens, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.moments: list[float] = []
        self.under_way = self.most = 0
        self.held_from = math.inf
        """Requests from this one on, counted from 0, get no answer before the number rises."""

    def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            time.sleep(0.002)


class _Listening(ThreadingHTTPServer):
    request_queue_size = 128  # many clients may knock at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing of clients that hang up or are killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving(answer: Answering) -> Iterator[Server]:
    """A server on a free port, with `/v1` as the root of its API."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else every reply waits 40 ms for its body

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                before = len(server.requests)
                server.requests.append(body)
                server.headers.append({name.lower(): value for name, value in self.headers.items()})
                server.moments.append(time.monotonic())
                server.under_way += 1
                server.most = max(server.most, server.under_way)
            try:
                server.until(lambda: before < server.held_from)
                self._reply(answer(body, before))
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True
            finally:
                with lock:
                    server.under_way -= 1

        def _reply(self, reply: Reply) -> None:
            time.sleep(reply.delay)
            data = reply.body.encode()
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(data) + 100 * reply.drop))
            for name, value in reply.headers:
                self.send_header(name, value)
            self.end_headers()
            for byte in data if reply.drip else b"":
                self.wfile.write(bytes([byte]))
                time.sleep(reply.drip)
            self.wfile.write(b"" if reply.drip else data)
            self.wfile.flush()
            self.close_connection = self.close_connection or reply.drop

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the tests look at what was asked."""

    listening = _Listening(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    server = Server(f"http://127.0.0.1:{listening.server_address[1]}/v1")
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


@contextmanager
def engine_asking(answer: Answering, cache: Path | None = None, **changes: Any) -> Iterator[tuple[Server, Model]]:
    """A server, and a model at it with these settings."""
    with serving(answer) as server:
        settings = {"endpoint": server.url, "model": "m", "timeout": 5.0, **changes}
        with opened(ModelConfig.model_validate(settings), cache) as engine:
            yield server, engine
