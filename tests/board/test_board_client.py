"""The client of a board: when it asks again, and what it says of a refusal (see also tests/reward/test_client.py)."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from recipe.errors import InputError, RecipeError

httpx2 = pytest.importorskip("httpx2")
from recipe_apps.board.client import BoardClient  # noqa: E402

BOARDS = httpx2.Response(200, json={"tracks": []})


def refused(status: int, code: str, problems: list[dict[str, Any]] | None = None, **headers: str) -> Any:
    body = {"error": {"code": code, "message": f"about {code}"}, "problems": problems or []}
    return httpx2.Response(status, json=body, headers={name.replace("_", "-"): text for name, text in headers.items()})


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that would have been waited for; no time passes."""
    seconds: list[float] = []
    clock = SimpleNamespace(sleep=seconds.append, monotonic=time.monotonic, time=time.time)
    monkeypatch.setattr("recipe.http.time", clock)
    return seconds


def boards(*answers: Any) -> tuple[Any, list[Any]]:
    """What a client says of prepared answers, the last of them again and again, and the requests that it sent."""
    requests: list[Any] = []

    def answer(request: Any) -> Any:
        requests.append(request)
        return answers[min(len(requests), len(answers)) - 1]

    with BoardClient("host:8002/", "secret", transport=httpx2.MockTransport(answer)) as client:
        try:
            return client.boards(), requests
        except RecipeError as error:
            return error, requests


def test_a_board_that_cannot_answer_now_is_asked_again_and_a_used_quota_is_final(waits: list[float]) -> None:
    failing = [httpx2.Response(status, text="<html>") for status in (500, 502, 503, 504)]
    answer, requests = boards(*failing, refused(429, "queue_full", Retry_After="1"), BOARDS)
    assert answer == {"tracks": []}
    assert len(waits) == 5
    assert {str(request.url) for request in requests} == {"http://host:8002/api/boards"}
    assert {request.headers["Authorization"] for request in requests} == {"Bearer secret"}
    error, requests = boards(refused(429, "quota_used"))
    assert isinstance(error, InputError)
    assert "about quota_used" in str(error)
    assert (len(requests), len(waits)) == (1, 5)


def test_the_problems_of_a_submission_are_listed_with_line_and_field() -> None:
    problems = [
        {"line": 3, "field": "plan", "problem": "it is no list", "remedy": "give a list"},
        {"line": 0, "field": "", "problem": "it is empty", "remedy": "send predictions"},
    ]
    error, _ = boards(refused(422, "invalid", problems))
    assert isinstance(error, InputError)
    assert str(error).splitlines()[1:] == [
        "  line 3, plan: it is no list; give a list",
        "  the file: it is empty; send predictions",
    ]
