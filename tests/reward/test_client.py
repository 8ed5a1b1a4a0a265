"""The client of the service: what it sends, what it takes for a reward, when it asks again and when it does not."""

import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from recipe.artifacts import to_json
from recipe.errors import ComputeError, ConfigError, InputError, ServiceUnavailable
from recipe.reward.scorer import PromptGroup
from recipe.types import Hit, Reward

httpx2 = pytest.importorskip("httpx2")
client = pytest.importorskip("recipe.reward.client")

REWARD = Reward(
    total=-0.125,
    aligned_history=0.25,
    aligned_full=0.375,
    rho=0.1,
    gated=True,
    steps=1,
    pool=(Hit(7, 0.5), Hit(2, 0.25)),
    best_narration=7,
    coverage=0.75,
    parts={"gain": 0.1},
)
ROW = to_json(REWARD)


def told(status: int, code: str, **headers: str) -> Any:
    body = {"error": {"code": code, "message": f"about {code}"}}
    return httpx2.Response(status, json=body, headers={name.replace("_", "-"): text for name, text in headers.items()})


def rewarded(request: Any) -> Any:
    count = len(json.loads(request.content)["continuations"])
    return httpx2.Response(200, json={"rewards": [ROW] * count})


class Script:
    """A server that gives prepared answers in turn, and rewards when they are used up."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.requests = list(answers), list[Any]()

    def __call__(self, request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else rewarded(request)
        if isinstance(answer, Exception):
            raise answer
        return answer


def asked(script: Callable[[Any], Any], token: str | None = None, **limits: Any) -> Any:
    return client.ServiceClient("http://service:1/", token, transport=httpx2.MockTransport(script), **limits)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that would have been waited for; no time passes."""
    seconds: list[float] = []
    monkeypatch.setattr(
        "recipe.http.time", SimpleNamespace(sleep=seconds.append, monotonic=time.monotonic, time=time.time)
    )
    return seconds


def test_a_reward_comes_back_with_all_its_parts() -> None:
    script = Script()
    rewards = asked(script, "secret").score(history=("boil",), continuations=[["pour", "wait"], []], goal="tea")
    assert rewards == [REWARD, REWARD]
    assert isinstance(rewards[0].pool[0], Hit)
    [request] = script.requests
    assert (request.method, str(request.url)) == ("POST", "http://service:1/score")
    assert request.headers["Authorization"] == "Bearer secret"
    assert json.loads(request.content) == {"goal": "tea", "history": ["boil"], "continuations": [["pour", "wait"], []]}


def test_one_text_is_not_steps() -> None:
    with pytest.raises(InputError, match="list of texts"):
        asked(Script()).score(history="boil", continuations=[["pour"]], goal="tea")


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_not_now_is_asked_again(status: int, waits: list[float], caplog: pytest.LogCaptureFixture) -> None:
    script = Script(told(status, "queue_full"), httpx2.ConnectError("refused"), httpx2.ReadTimeout("late"))
    with caplog.at_level(logging.WARNING):
        assert asked(script).score(history=[], continuations=[["a"]], goal="tea") == [REWARD]
    assert len(script.requests) == 4
    assert [low <= wait <= 2 * low for low, wait in zip((0.2, 0.4, 0.8), waits, strict=True)] == [True] * 3
    assert f"{status} (queue_full) about queue_full" in caplog.text
    assert "ConnectError: refused" in caplog.text


def test_the_wait_is_what_the_service_says(waits: list[float]) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=40), usegmt=True)
    answers = [told(429, "queue_full", Retry_After=value) for value in ("7", date, "soon", "0")]
    asked(Script(*answers)).score(history=[], continuations=[["a"]], goal="tea")
    assert 7 <= waits[0] <= 7.5
    assert 38 <= waits[1] <= 40.5
    assert 0.4 <= waits[2] <= 1.6
    assert 0 <= waits[3] <= 0.5


def test_a_wait_beyond_patience_is_not_begun(waits: list[float]) -> None:
    script = Script(told(503, "not_ready", Retry_After="3600"))
    with pytest.raises(ServiceUnavailable, match=r"no answer in 1 try and 0 s \(503 \(not_ready\) about not_ready\)"):
        asked(script, patience=60).score(history=[], continuations=[["a"]], goal="tea")
    assert not waits


def test_what_cannot_be_computed_is_asked_for_a_few_times_only(waits: list[float]) -> None:
    script = Script(*[told(503, "compute_failed", Retry_After="1")] * 100)
    with pytest.raises(ComputeError, match="compute_failed"):
        asked(script).score(history=[], continuations=[["a"]], goal="tea")
    assert len(script.requests) == 4


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_a_refusal_is_the_callers_fault_and_final(status: int) -> None:
    script = Script(told(status, "invalid_field"))
    with pytest.raises(InputError, match=rf"http://service:1: .* refuses .* {status} \(invalid_field\) about invalid"):
        asked(script).score(history=[], continuations=[["a"]], goal="tea")
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (told(500, "internal"), "500 .*about internal"),
        (httpx2.Response(500, text="<html>"), "500 <html>"),
        (httpx2.Response(302, headers={"Location": "/login"}), "302 Found"),
        (httpx2.Response(200, text="hello"), "JSON object"),
        (httpx2.Response(200, json={}), "cannot be read"),
        (httpx2.Response(200, json=[1.0]), "JSON object"),
        (httpx2.Response(200, json={"rewards": [{"total": 1.0}]}), "cannot be read .*0.aligned_history"),
        (httpx2.Response(200, json={"rewards": [{**ROW, "total": None}]}), "cannot be read .*0.total"),
        (httpx2.Response(200, json={"rewards": []}), "0 rewards came for 1"),
        (httpx2.Response(200, text=json.dumps({"rewards": [{**ROW, "total": float("nan")}]})), "finite"),
    ],
)
def test_any_other_answer_is_no_reward(answer: Any, reason: str) -> None:
    script = Script(answer)
    with pytest.raises(ComputeError, match=reason):
        asked(script).score(history=[], continuations=[["a"]], goal="tea")
    assert len(script.requests) == 1


@pytest.mark.parametrize("url", ["service:8000", "", "http://[::"])
def test_an_address_is_checked_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        client.ServiceClient(url)


def test_retrying_leaves_the_draws_of_a_training_run_alone(waits: list[float]) -> None:
    import random

    before = random.getstate()
    asked(Script(told(503, "not_ready"), told(429, "queue_full", Retry_After="1"))).score(
        history=[], continuations=[["a"]], goal="tea"
    )
    assert waits
    assert random.getstate() == before


def test_groups_are_asked_about_at_once_and_keep_their_order(waits: list[float]) -> None:
    together = threading.Barrier(3, timeout=300)

    def answer(request: Any) -> Any:
        together.wait()
        plans = json.loads(request.content)["continuations"]
        return httpx2.Response(200, json={"rewards": [{**ROW, "steps": len(plan)} for plan in plans]})

    groups = [PromptGroup(goal, (), [("a",) * n, ()]) for n, goal in enumerate(("tea", "toast", "eggs"))]
    rewards = asked(answer, concurrency=3).score_groups(groups)
    assert [[one.steps for one in own] for own in rewards] == [[0, 0], [1, 0], [2, 0]]


def test_a_group_without_a_reward_costs_no_other_group_its_own(waits: list[float]) -> None:
    """A plan that is refused costs no plan beside it its reward; where the service fails, it fails for the group."""

    def answer(request: Any) -> Any:
        body = json.loads(request.content)
        if body["goal"] == "lost":
            return told(500, "internal")
        return told(422, "too_long") if ["long"] in body["continuations"] else rewarded(request)

    groups = [PromptGroup(goal, (), [("a",), ("long",), ("b",)]) for goal in ("tea", "lost")]
    tea, lost = asked(answer).score_groups(groups)
    assert [type(one) for one in (*tea, *lost)] == [Reward, InputError, Reward, *[ComputeError] * 3]


def test_requests_under_way_are_bounded_and_the_others_wait() -> None:
    """At a real server: the bound is that of connections, which no prepared transport has."""
    lock, together, busy, most = threading.Lock(), threading.Event(), 0, 0

    class Counting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal busy, most
            self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                busy += 1
                most = max(most, busy)
                if most == 3:
                    together.set()
            assert together.wait(300)
            time.sleep(0.02)  # others could come in here
            with lock:
                busy -= 1
            answer = json.dumps({"rewards": [ROW]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Counting) as server:
        threading.Thread(target=server.serve_forever).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with client.ServiceClient(address, concurrency=3) as service, ThreadPoolExecutor(12) as pool:
            goals = [f"goal {number}" for number in range(24)]
            asks = [pool.submit(service.score, goal=goal, history=[], continuations=[["a"]]) for goal in goals]
            assert all(ask.result() == [REWARD] for ask in asks)
        server.shutdown()
    assert most == 3
