"""Whole requests to the three services, and corpora with a changed manifest.

A request's input is its bytes: a first line with method and address, headers, an empty line, and the body. It goes to
the application without a socket. An answer of 500, an answer without an envelope, and an exception are failures.
"""

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from recipe.config import CorpusConfig, EncoderConfig, RewardConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.layout import MANIFEST, corpus_id
from recipe.corpus.store import Corpus
from recipe.models.protocol import Answer, Engine, ModelRequest, Refusal, Stopped, WrittenPieces
from recipe.planning.planner import Planner
from recipe.reward.verifier import Verifier
from recipe.types import Example, Narration, Segment
from recipe_apps.board.app import create_app as board_app
from recipe_apps.board.models import Track
from recipe_apps.board.settings import ScorerSettings
from recipe_apps.board.setup import add_track
from recipe_apps.board.store import Board, References
from recipe_apps.service.app import create_app as reward_app
from recipe_apps.serving.app import Served
from recipe_apps.serving.app import create_app as page_app
from recipe_apps.serving.evidence import CorpusEvidence
from recipe_apps.serving.feedback import FeedbackStore

ENCODER = os.environ.get("FUZZ_ENCODER", "hash:64")
"""Of the services' corpus: `minilm` refuses what hashing takes, and takes a thousand times as long."""
OWNER = b"OWNER-TOKEN"
"""Stands in an input for the token of the board's owner, which is another one in every process."""
_WAITED = 2.0
"""Seconds after which a client goes whose answer has no end."""
TEA = ("boil the water", "warm the pot", "pour the water", "wait a while", "serve")
# As few as a board takes (`recipe_apps.board.scoring.LEAST`).
QUESTIONS = tuple(
    Example(f"q{n}", "world", f"v{n}", f"make tea {n}", TEA[:2], TEA[2:], 2, "test_cuts") for n in range(20)
)


class Written(Engine):
    """A model that says the same to everybody."""

    def answer(self, requests: Sequence[ModelRequest], *_: Any, **__: Any) -> list[Answer | Refusal]:
        """Its plan, once for each request."""
        return [Answer("1. pour the water\n2. serve", 3, 4) for _ in requests]

    def stream_all(self, requests: Sequence[ModelRequest], stopped: Stopped = lambda _: False) -> WrittenPieces:
        """Its plan in two pieces."""
        for place in range(len(requests)):
            yield place, "1. pour the water\n"
            if not stopped(place):
                yield place, "2. serve"
                yield place, Answer("1. pour the water\n2. serve", 3, 4)


@cache
def _folder() -> Path:
    """Where the services of this process keep what they keep; goes with the process."""
    holder = tempfile.TemporaryDirectory()
    _folder.holder = holder  # type: ignore[attr-defined]  # deleted at the end of the process
    return Path(holder.name)


@cache
def corpus() -> Path:
    """A corpus of twelve narrations in two shards."""
    narrations = [
        Narration(
            f"v{n}",
            tuple(Segment(f"{step} {n % 3}", 4.0 * at, 4.0 * at + 3) for at, step in enumerate(TEA)),
            title=f"tea {n}",
        )
        for n in range(12)
    ]
    settings = CorpusConfig(encoder=EncoderConfig(name=ENCODER), shard_size=8)
    build_corpus(narrations, _folder() / "corpus", settings)
    return _folder() / "corpus"


class Answered(str):
    """What a service said: a status, with the code of its error."""


class Service:
    """An application on a loop of its own, with threads that go on until it is closed."""

    opened: ClassVar[list["Service"]] = []

    def __init__(self, app: Any, secrets: dict[bytes, bytes] | None = None) -> None:
        self._app, self._secrets, self._loop = app, secrets or {}, asyncio.new_event_loop()
        self._life = app.router.lifespan_context(app)
        self._loop.run_until_complete(self._life.__aenter__())
        self.opened.append(self)
        for _ in range(600):
            if self._loop.run_until_complete(self._answer("GET", "/readyz", b"", [], b""))[0] != 503:
                break
            time.sleep(0.05)

    def send(self, path: Path) -> Answered:
        """Send the request in a file. Raises AssertionError (see above)."""
        raw = path.read_bytes()
        for name, value in self._secrets.items():
            raw = raw.replace(name, value)
        head, _, body = raw.partition(b"\n\n")
        first, *lines = head.split(b"\n")
        method, _, address = first.partition(b" ")
        where, _, query = address.partition(b"?")
        headers = [(b"host", b"127.0.0.1")]
        for line in lines:
            name, _, value = line.partition(b":")
            headers.append((name.strip().lower(), value.strip()))
        status, kind, answer = self._loop.run_until_complete(
            self._answer(method.decode("latin-1"), where.decode("utf-8", "replace"), query, headers, body)
        )
        if status < 400:
            return Answered(status)
        told = json.loads(answer) if kind.startswith("application/json") else {}
        code = told.get("error", {}).get("code", "")
        assert code or kind.startswith(("text/html", "text/plain")), f"{status} without an envelope: {answer[:200]!r}"
        assert status != 500, f"{status} {answer[:300]!r}"
        return Answered(f"{status} {code}")

    def close(self) -> None:
        """End its threads."""
        self._loop.run_until_complete(self._life.__aexit__(None, None, None))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _answer(
        self, method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, str, bytes]:
        asked, status, kind, answer = False, 0, "", b""

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": body, "more_body": False}
            await asyncio.sleep(_WAITED)
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status, kind, answer
            if message["type"] == "http.response.start":
                status = message["status"]
                kind = dict(message["headers"]).get(b"content-type", b"").decode("latin-1")
            else:
                answer += message.get("body", b"")

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode("utf-8", "replace"),
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        await self._app(scope, receive, send)
        return status, kind, answer


@cache
def reward() -> Service:
    """The reward service on the grounded verifier."""
    config = RewardConfig(verifier="grounded")
    opened = Corpus.open(corpus())
    return Service(reward_app(Verifier(opened, config), corpus=opened, config=config))


@cache
def page() -> Service:
    """The planner page with evidence and feedback."""
    evidence = CorpusEvidence(Verifier(Corpus.open(corpus()), RewardConfig(verifier="grounded")))
    served = Served(planner=Planner(Written()), model="m", evidence=evidence)
    return Service(page_app(served, feedback=FeedbackStore(_folder() / "kept")))


@cache
def board() -> Service:
    """A board with one track, whose owner asks."""
    made = Board.create(f"sqlite:///{_folder() / 'board.db'}", "A board")
    given = References.of(QUESTIONS)
    scorer = ScorerSettings(measure="proxy", encoder="hash:64")
    track = Track(name="world", title="The world", day_quota=10**9, total_quota=10**9)
    add_track(made, track, given, [scorer])
    return Service(board_app(made), {OWNER: made.add_account("owner", "owner").encode()})


def close() -> None:
    """Close all services that this process opened."""
    while Service.opened:
        Service.opened.pop().close()
    for made in (reward, page, board):
        made.cache_clear()


def changed_manifest(path: Path) -> None:
    """Open a corpus whose manifest is the file's, with an id that fits where it can be made, and search it."""
    whole, folder = corpus(), path.parent / "changed"
    folder.mkdir(exist_ok=True)
    for one in whole.iterdir():
        with suppress(FileExistsError):
            (folder / one.name).symlink_to(one)
    data = path.read_bytes()
    with suppress(ValueError, RecursionError, TypeError, KeyError, AttributeError, OverflowError):
        values = json.loads(data)
        values["id"] = corpus_id(values)
        data = json.dumps(values).encode()
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).write_bytes(data)
    opened = Corpus.open(folder)
    if opened.manifest["encoder"]["name"] == ENCODER:  # another is looked for in a hub
        opened.search(TEA, 3)


def request(first: str, body: object = None, *headers: str) -> bytes:
    """An input: a request with a JSON body or with bytes."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [first, *(["content-type: application/json", f"content-length: {len(content)}"] if content else [])]
    return "\n".join([*lines, *headers]).encode() + b"\n\n" + content


PROMPT = {"goal": "make tea", "history": ["boil the water"]}
SCORES = (
    request("POST /score", PROMPT | {"continuation": ["pour the water", "serve"]}),
    request("POST /score", PROMPT | {"completion": "1. pour the water\n2. serve"}),
    request("POST /score", {"prompts": [PROMPT | {"continuations": [["serve"], ["wait"]]}]}),
    request("POST /get_reward", {"query": ["make tea 1. serve"], "prompts": ["make tea"], "labels": ["{}"]}),
    request("POST /verify", {"responses_create_params": {}, "response": {"output": [{"content": "1. a"}]}, **PROMPT}),
    request("POST /score", PROMPT | {"completion": '{"steps": ["pour \\ud83e\\uded6 it", "serve"]}'}),
    request("POST /score", PROMPT | {"continuations": [["serve"], ["wait", "pour"]]}),
    request(
        "POST /get_reward",
        {"query": ["make tea 1. serve"], "prompts": ["make tea"], "labels": [json.dumps(PROMPT)]},
    ),
    request("GET /info"),
    request("GET /metrics"),
    request("POST /seed_session", {}),
)
PAGES = (
    request("POST /api/runs", PROMPT | {"plans": 2, "seed": 1}),
    request("POST /api/runs/x/deviation", {"history": ["boil the water"], "plan": 0}),
    request("POST /api/runs/x/feedback", {"plan": 0, "step": 1, "verdict": "correct", "text": "a", "comment": "c"}),
    request("GET /api/runs/x/events", None, "last-event-id: 3"),
    request("GET /api/runs/x"),
    request("DELETE /api/runs/x"),
    request("POST /api/clips", b"\x00\x00\x00\x18ftypmp42", "content-type: video/mp4"),
    request("GET /api/ratings"),
    request("GET /"),
    request("GET /api/info"),
)
_PLANS = b"".join(json.dumps({"example_id": one.example_id, "steps": ["serve"]}).encode() + b"\n" for one in QUESTIONS)
_AS_OWNER = f"authorization: Bearer {OWNER.decode()}"
BOARDS = (
    request("POST /api/submissions?track=world&system=mine&link=https://a.org&note=n&private=false", _PLANS, _AS_OWNER),
    request("POST /api/check?track=world", _PLANS),
    request("GET /api/boards"),
    request("GET /api/boards/x?q=a&all=1&sort=value&order=desc&page=1"),
    request("GET /api/tracks/world/questions.jsonl"),
    request("GET /", None, _AS_OWNER),
    request("GET /owner", None, _AS_OWNER),
    request("GET /api/owner", None, _AS_OWNER),
    request("GET /api/owner/log?page=1", None, _AS_OWNER),
    request("GET /api/me/submissions", None, _AS_OWNER),
    request("PATCH /api/me", {"display": "The owner"}, _AS_OWNER),
    request("PATCH /api/submissions/x", {"private": True, "link": "", "note": "a"}, _AS_OWNER),
    request("POST /api/owner/accounts", {"name": "ann", "role": "submitter"}, _AS_OWNER),
    request("POST /api/owner/tracks/world", {"published": True, "closed": False}, _AS_OWNER),
    request("POST /api/owner/boards/x/rescore", {"changes": ["lines=3"], "keep": True}, _AS_OWNER),
    request("POST /api/owner/jobs/1/cancel", None, _AS_OWNER),
)
SERVICES: dict[str, tuple[Callable[[], Service], tuple[bytes, ...]]] = {
    "reward requests": (reward, SCORES),
    "page requests": (page, PAGES),
    "board requests": (board, BOARDS),
}
"""Targets of requests, with requests to begin from."""
