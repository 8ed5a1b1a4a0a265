"""A planner page that listens, before a model that writes as slowly as a test wants, on the narrations of the world."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conftest import built_corpus

from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError
from recipe.models.protocol import Answer, Engine, ModelRequest, Refusal, Stopped, WrittenPieces
from recipe.planning.planner import Planner
from recipe.reward.verifier import Verifier
from recipe.types import Narration, Segment
from recipe.world.load import load_world

httpx2 = pytest.importorskip("httpx2")
uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("fastapi")

from recipe_apps.serving.app import Served, create_app  # noqa: E402
from recipe_apps.serving.evidence import CorpusEvidence  # noqa: E402
from recipe_apps.serving.feedback import FeedbackStore  # noqa: E402

TEA = ("warm the pot", "add the leaves", "pour the water", "steep for four minutes", "pour the tea")
SALAD = ("wash the lettuce", "slice the tomato", "chop the onion", "mix oil and vinegar", "toss the salad")


class SlowEngine(Engine):
    """Writes texts a word at a time; a goal that says how fails so."""

    def __init__(self, texts: Sequence[str], pause: float = 0.0) -> None:
        self.texts, self.pause = tuple(texts), pause
        self.words: dict[int, int] = {}
        """Words written for each request that was asked, in order."""
        self.batches: list[int] = []

    def answer(self, requests: Sequence[ModelRequest], *_: Any, **__: Any) -> list[Answer | Refusal]:
        return [Answer(self.texts[request.sample % len(self.texts)], 3, 4) for request in requests]

    def stream_all(self, requests: Sequence[ModelRequest], stopped: Stopped = lambda _: False) -> WrittenPieces:
        self.batches.append(len(requests))
        first = len(self.words)
        said = [json.dumps(request.chat) for request in requests]
        if any("explode" in one for one in said):
            raise ComputeError("the model failed; ask again.")
        if any("crash" in one for one in said):
            raise ZeroDivisionError
        left: dict[int, list[str]] = {}
        for place, request in enumerate(requests):
            self.words[first + place] = 0
            if "too long" in said[place]:
                yield place, Refusal("the prompt is too long; shorten the history.")
                continue
            text = self.texts[request.sample % len(self.texts)]
            left[place] = [f"{word} " if word[-1] != "\n" else word for word in text.replace("\n", "\n ").split(" ")]
        while left:
            time.sleep(self.pause)
            for place in list(left):
                if stopped(place):
                    del left[place]
                elif left[place]:
                    self.words[first + place] += 1
                    yield place, left[place].pop(0)
                else:
                    del left[place]
                    text = self.texts[requests[place].sample % len(self.texts)]
                    yield place, Answer(text, 3, len(text.split()))


class HeldEngine(SlowEngine):
    """Writes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__([plan_text(TEA)])
        self.go = threading.Event()

    def stream_all(self, *asked: Any, **more: Any) -> WrittenPieces:
        assert self.go.wait(300)
        return super().stream_all(*asked, **more)


class SteppedEngine(Engine):
    """Writes one of these plans, which it chooses by the sample."""

    def __init__(self, plans: Sequence[Sequence[str]]) -> None:
        self.plans = plans

    def answer(self, requests: Sequence[ModelRequest], *_: Any, **__: Any) -> list[Answer | Refusal]:
        answers = list[Answer | Refusal]()
        for request in requests:
            plan = self.plans[request.sample % len(self.plans)]
            if "too long" in json.dumps(request.chat):
                answers.append(Refusal("the prompt is too long; shorten the history."))
                continue
            answers.append(Answer(plan_text(plan), 3, 4 * len(plan)))
        return answers


def plan_text(steps: Sequence[str]) -> str:
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))


@pytest.fixture(scope="session")
def tea_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Six narrations of tea, six of salad, and three of each task of the world that has neither."""
    world = load_world()
    tasks = [("How to make tea", ("boil the water", *TEA, "make tea"), 6), ("A simple salad", SALAD, 6)]
    for goal, graph in world.goals.items():
        if "tea" not in goal and "salad" not in goal:
            tasks.append((goal, tuple(world.wordings[step][0] for step in graph.steps), 3))
    narrations = []
    for title, steps, copies in tasks:
        for copy in range(copies):
            begins = 10.0 * copy
            segments = tuple(
                Segment(f"now {step}", begins + 10 * at, begins + 10 * at + 8) for at, step in enumerate(steps)
            )
            narrations.append(Narration(f"video{len(narrations):05d}_", segments, title=title, source="youtube"))
    return built_corpus(tmp_path_factory.mktemp("page") / "corpus", narrations, "hash:256")


@pytest.fixture(scope="session")
def evidence(tea_corpus: Corpus) -> CorpusEvidence:
    return CorpusEvidence(Verifier(tea_corpus, RewardConfig(verifier="grounded")))


class Event(NamedTuple):
    """One event as a client gets it."""

    number: int
    kind: str
    data: Any


class Page:
    """A page that listens, and a client for it."""

    def __init__(self, url: str, app: Any) -> None:
        self.url, self.app = url, app
        self.client = httpx2.Client(base_url=url, timeout=300)

    def begin(self, goal: str = "make tea", **more: Any) -> str:
        answer = self.client.post("/api/runs", json={"goal": goal} | more)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def events(self, run: str, after: int = 0, most: int | None = None) -> list[Event]:
        """The events behind one, up to the end of the stream or `most` of them."""
        found: list[Event] = []
        fields: dict[str, str] = {}
        with self.client.stream("GET", f"/api/runs/{run}/events", headers={"Last-Event-ID": str(after)}) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if line:
                    fields[name] = value
                elif "id" in fields:
                    found.append(Event(int(fields["id"]), fields["event"], json.loads(fields["data"])))
                    fields = {}
                    if len(found) == most:
                        return found
        return found


@contextmanager
def listening(served: Served, keep: Path | None, **settings: Any) -> Iterator[Page]:
    feedback = None if keep is None else FeedbackStore(keep)
    app = create_app(served, feedback=feedback, local_only=True, **settings)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 300
    while not server.started:
        assert time.monotonic() < until
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    page = Page(f"http://127.0.0.1:{port}", app)
    try:
        yield page
    finally:
        page.client.close()
        server.should_exit = True
        thread.join(300)
        assert not thread.is_alive()


Serve = Callable[..., Any]


@pytest.fixture
def serve(evidence: CorpusEvidence) -> Serve:
    """Opens a page whose model writes these texts."""

    def open_page(texts: Sequence[str] = (plan_text(TEA),), pause: float = 0.0, **more: Any) -> Any:
        settings = {name: more.pop(name) for name in ("token", "per_address") if name in more}
        keep = more.pop("keep", None)
        engine = more.pop("engine", None) or SlowEngine(texts, pause)
        fields = {"evidence": evidence, "model": "slow", "planner": Planner(engine)} | more
        return listening(Served(**fields), keep, **settings)

    return open_page
