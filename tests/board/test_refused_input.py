"""Texts and numbers that a database cannot keep, at every entrance: refused with code and field, alike on both."""

import itertools
import json
from typing import Any

import pytest
from board_helpers import lines, score_all, submit
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from recipe.errors import InputError
from recipe.types import Example
from recipe_apps.board.models import Base, Job
from recipe_apps.board.store import Board
from recipe_apps.board.work import Queue

TEXTS = ["\x00", "a\x00b", "a\x1b[31mb", "\u2028", "\x85", "\ud800", "x" * 5_000, "\x00" * 3_000]
NUMBERS = ["0", "-1", str(2**31), str(2**63), str(2**64), "9" * 400, "9" * 5_000, "1.5", "NaN", "\x00"]


@pytest.fixture(autouse=True)
def owner(board: Board, client: TestClient) -> None:
    """Whoever asks is an owner of the board."""
    client.headers["Authorization"] = f"Bearer {board.add_account('olga', 'owner')}"


def scorer_of(board: Board) -> str:
    return board.scorers()[0].id


def refused(answer: Any, field: str = "") -> None:
    assert 400 <= answer.status_code < 500, (answer.request.method, str(answer.request.url)[:200], answer.text[:300])
    if answer.headers["content-type"].startswith("application/json"):
        error = answer.json()["error"]
        assert error["code"] in {"invalid_field", "not_found", "invalid_json", "missing_field", "wrong_token"}
        assert field in error["message"] or error["code"] in ("not_found", "invalid_json")
        assert len(error["message"]) < 2_200


def quoted(text: str) -> str:
    """In an address: halves of characters as the three bytes that no UTF-8 has."""
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def test_every_path_refuses_every_text(board: Board, client: TestClient) -> None:
    paths = [
        ("GET", "/boards/{}"), ("GET", "/systems/{}"), ("GET", "/api/boards/{}"), ("GET", "/api/boards/{}.csv"),
        ("GET", "/api/tracks/{}/questions.jsonl"), ("GET", "/api/submissions/{}"), ("PATCH", "/api/submissions/{}"),
        ("POST", "/api/submissions/{}/withdraw"), ("POST", "/api/owner/accounts/{}/token"),
        ("POST", "/api/owner/accounts/{}/revoke"), ("POST", "/api/owner/tracks/{}"),
        ("POST", "/api/owner/boards/{}/rescore"), ("POST", "/api/owner/boards/{}/retire"),
        ("POST", "/api/owner/jobs/{}/again"), ("POST", "/api/owner/jobs/{}/cancel"), 
        ("GET", "/api/owner/log?before={}"),
    ]  # fmt: skip
    for (method, path), text in itertools.product(paths, TEXTS):
        given: dict[str, Any] = {"json": {}} if method in ("PATCH", "POST") else {}
        refused(client.request(method, path.format(quoted(text)), **given))


def test_every_number_is_one_that_both_databases_know(board: Board, client: TestClient) -> None:
    for path, text in itertools.product(("again", "cancel"), NUMBERS):
        answer = client.post(f"/api/owner/jobs/{quoted(text)}/{path}")
        if answer.status_code != 200:  # a number of no job cancels nothing
            refused(answer)
    for text in NUMBERS:
        answer = client.get(f"/api/owner/log?before={quoted(text)}")
        if answer.status_code != 200:
            refused(answer, "before")


def test_every_field_of_a_message_refuses_every_text(board: Board, client: TestClient, examples: list[Example]) -> None:
    board.add_account("ann")
    sent, _ = submit(board, "ann", lines(examples))
    scorer = scorer_of(board)
    messages = [
        ("POST", "/api/owner/accounts", "name"), ("POST", "/api/owner/accounts", "display"),
        ("POST", "/api/owner/accounts", "role"), ("PATCH", "/api/me", "display"),
        ("PATCH", f"/api/submissions/{sent}", "link"), ("PATCH", f"/api/submissions/{sent}", "note"),
        ("POST", f"/api/owner/boards/{scorer}/rescore", "changes"),
    ]  # fmt: skip
    names = [("POST", "/api/owner/accounts", "name", text) for text in ("", "Ann", "a b", "x" * 65, "ann\n", "<b>")]
    link = ("PATCH", f"/api/submissions/{sent}", "link")
    links = [(*link, text) for text in ("javascript:alert(1)", "ftp://example.org", "https://a b")]
    every = [(*message, text) for message, text in itertools.product(messages, TEXTS)]
    for method, path, field, text in (*every, *names, *links):
        whole: dict[str, Any] = {field: [text] if field == "changes" else text}
        if path.endswith("accounts") and field != "name":
            whole["name"] = "carl"
        body = json.dumps(whole)
        answer = client.request(method, path, content=body, headers={"content-type": "application/json"})
        if answer.status_code == 200:  # a line's end, which is a blank in a name and a new line in a note
            assert text in ("\x85", "\u2028")
            continue
        refused(answer, field if field != "changes" else "")


NO_SETTINGS = [
    "none=1", "", "=", "judge.repeats=99999999999999999999", "judge.temperature=inf", "judge.temperature=nan",
    "threshold=nan", "label=\x00", "label=" + "x" * 300, "model=\x00", "encoder=none/such", "encoder=\x00",
    "measure=vpa", "measure=judge", "measure=beauty", "measure=diversity", "measure=proxy&encoder=hash:64&graphs=/none",
    "graphs=/none", "root=/none", "judge=" + "[" * 5_000, "judge=" + "9" * 5_000,
    "a.b.c.d.e.f.g=1", "judge.settings.x=1", "weights=" + "\\u0000",
]  # fmt: skip


def test_settings_that_no_scorer_has(board: Board, client: TestClient) -> None:
    for change in NO_SETTINGS:
        answer = client.post(f"/api/owner/boards/{scorer_of(board)}/rescore", json={"changes": change.split("&")})
        refused(answer)
        assert answer.json()["error"]["code"] == "invalid_field"


def test_what_is_sent_beside_the_plans(board: Board, client: TestClient, examples: list[Example]) -> None:
    for field, text in itertools.product(("system", "link", "note", "track", "private"), TEXTS):
        about = {"track": "world", "system": "mine"} | {field: "@"}
        query = "&".join(f"{name}={quoted(text) if value == '@' else value}" for name, value in about.items())
        answer = client.post(f"/api/submissions?{query}", content=lines(examples))
        if answer.status_code in (200, 201):
            assert text in ("\x85", "\u2028", "\ud800")  # a blank, a line's end, and what the address cannot say
        else:
            refused(answer, field if field != "track" else "")


def test_no_token_is_an_error_of_the_server(board: Board, client: TestClient) -> None:
    known = board.add_account("ann")
    assert client.get("/api/me", headers={"Authorization": f"Bearer {known}"}).json()["name"] == "ann"
    near = ("rb_", known[:-1], known + "x", known.replace("rb_", ""), known * 5)
    for token in (*near, "rb_\x00_x", "rb_aaaaaaaaaaaa_\x00", "rb_\xff\xff_x", "rb_" + "x" * 5_000):
        answer = client.get("/api/me", headers={"Authorization": b"Bearer " + token.encode("latin-1")})
        assert answer.status_code == 401


def test_queries_that_begin_alike_are_pages_of_their_own(board: Board, client: TestClient) -> None:
    score_all(board)
    scorer = scorer_of(board)
    pages = {client.get(f"/boards/{scorer}", params={"all": "", "q": "x" * 190 + end}).text for end in ("a", "b")}
    assert len(pages) == 2
    refused(client.get(f"/api/boards/{scorer}", params={"q": "x" * 10_000}), "q")
    first = client.get(f"/boards/{scorer}", params={"more": "x" * 600, "q": "reference"}).text
    second = client.get(f"/boards/{scorer}", params={"more": "x" * 600, "q": "shuffled"}).text
    assert first != second


def test_machine_texts_are_mended_not_refused(board: Board) -> None:
    queue = Queue(board, "w", 30.0)
    queue.register(["validity"])
    job = queue.claim([scorer_of(board)])
    assert job is not None
    queue.later(job, "the endpoint said \x00 and \ud800", 0, 1)
    [reason] = board.database.scalars(select(Job.reason).where(Job.id == job.id))
    assert "\x00" not in reason
    assert reason.startswith("the endpoint said")
    with pytest.raises(InputError):
        Queue(board, "w\x00", 30.0).register(["validity"])
    with pytest.raises(InputError):
        Queue(board, "w" * 81, 30.0).register(["validity"])


COLUMNS = [(table, column) for table in Base.metadata.sorted_tables for column in table.columns if column.name != "id"]
VALUES = st.one_of(st.text(), st.sampled_from(TEXTS), st.integers(), st.floats(), st.none(), st.booleans())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, len(COLUMNS) - 1), value=VALUES)
def test_no_column_takes_what_the_database_refuses_itself(board: Board, place: int, value: Any) -> None:
    table, column = COLUMNS[place]
    if column.type.python_type in (bytes, bool, object):  # PostgreSQL does not compare JSON
        return
    told = ""
    try:
        board.database.query(lambda connection: connection.execute(select(table).where(column == value).limit(1)).all())
    except InputError as error:
        told = str(error)
    assert not told or "field '" in told
