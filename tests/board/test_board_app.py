"""The API and the pages over HTTP, on SQLite and PostgreSQL: what is told, to whom, and what never leaves."""

import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from board_helpers import lines, score_all, set_quotas, show
from fastapi.testclient import TestClient
from sqlalchemy import case, update

from recipe.errors import InputError
from recipe.types import Example
from recipe_apps.board.app import create_app
from recipe_apps.board.backup import backup, restore
from recipe_apps.board.models import Scorer
from recipe_apps.board.settings import ScorerSettings
from recipe_apps.board.setup import add_track, rescore
from recipe_apps.board.standings import stale_boards
from recipe_apps.board.store import Board, References, touch


class Visitor:
    """Somebody with a token, or nobody; every byte that comes back is kept."""

    def __init__(self, client: TestClient, seen: list[str], token: str = "") -> None:
        self._client, self._seen = client, seen
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(self, method: str, path: str, status: int = 200, **given: Any) -> Any:
        answer = self._client.request(method, path, headers=self._headers | given.pop("headers", {}), **given)
        self._seen.append(f"{answer.headers}{answer.text}")
        assert answer.status_code == status, answer.text
        return answer.json() if answer.headers["content-type"].startswith("application/json") else answer.text

    def send(self, data: bytes, status: int = 201, **about: str) -> Any:
        params = {"track": "world", "system": "mine"} | about
        return self.ask("POST", "/api/submissions", status, params=params, content=data)


@pytest.fixture
def seen() -> list[str]:
    """What left the server."""
    return []


@pytest.fixture
def nobody(client: TestClient, seen: list[str]) -> Visitor:
    return Visitor(client, seen)


@pytest.fixture
def ann(client: TestClient, board: Board, seen: list[str]) -> Visitor:
    return Visitor(client, seen, board.add_account("ann", display="Ann"))


@pytest.fixture
def owner(client: TestClient, board: Board, seen: list[str]) -> Visitor:
    return Visitor(client, seen, board.add_account("olga", "owner"))


def rows(visitor: Visitor, **query: str) -> list[dict[str, Any]]:
    [track] = visitor.ask("GET", "/api/boards")["tracks"]
    return list(visitor.ask("GET", f"/api/boards/{track['boards'][0]['id']}", params=query)["rows"])


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_checks_without_a_token_are_small_and_few_at_once(
    board: Board, client: TestClient, nobody: Visitor, ann: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, about = b" " * 3_000_000, {"track": "world"}
    assert nobody.ask("POST", "/api/check", 413, params=about, content=large)["error"]["code"] == "body_too_large"
    assert not ann.ask("POST", "/api/check", params=about, content=large)["ok"]
    begun, go, service = threading.Semaphore(0), threading.Event(), client.app.state.board  # type: ignore[attr-defined]

    def slow(data: bytes, track: str) -> Any:
        if data == b"slow":
            begun.release()
            assert go.wait(300)
        return check(data, track)

    check = service.check
    monkeypatch.setattr(service, "check", slow)
    with ThreadPoolExecutor(2) as pool:
        under_way = [pool.submit(nobody.ask, "POST", "/api/check", params=about, content=b"slow") for _ in range(2)]
        for _ in under_way:
            begun.acquire()
        busy = client.post("/api/check", params=about, content=b"{}")
        known = ann.ask("POST", "/api/check", params=about, content=b"{}")
        go.set()
        assert not any(one.result()["ok"] for one in under_way)
    assert (busy.status_code, busy.json()["error"]["code"], busy.headers["retry-after"]) == (429, "queue_full", "1")
    assert not known["ok"]
    assert not nobody.ask("POST", "/api/check", params=about, content=b"{}")["ok"]
    assert client.post("/api/check", params=about, headers={"Authorization": "Bearer no"}).status_code == 401


def test_from_the_questions_to_the_board(
    board: Board, ann: Visitor, owner: Visitor, nobody: Visitor, examples: list[Example]
) -> None:
    questions = [json.loads(line) for line in nobody.ask("GET", "/api/tracks/world/questions.jsonl").splitlines()]
    assert [one["example_id"] for one in questions] == [one.example_id for one in examples]
    assert set(questions[0]) == {"example_id", "source", "goal", "history"}
    data = lines(examples)
    assert nobody.ask("POST", "/api/check", params={"track": "world"}, content=data)["ok"]
    sent = ann.send(data, link="https://example.org", note="a note")
    assert sent["new"]
    assert ann.send(data, 200) == ann.send(data, 200, system="another name") == sent | {"new": False}
    other = owner.send(data, private="1")  # the same plans of another account
    assert other["new"]
    assert other["id"] != sent["id"]
    waiting = ann.ask("GET", f"/api/submissions/{sent['id']}")["submission"]
    assert waiting["state"] == "queued"
    assert waiting["jobs"][0]["position"] == 10  # behind the control rows
    show(board)
    found = nobody.ask("GET", f"/api/submissions/{sent['id']}")
    assert found["submission"]["state"] == "scored"
    assert found["boards"][0]["value"]["mean"] == 1.0
    assert found["boards"][0]["place"] == "1"
    assert {one["control"] for one in found["boards"][0]["against"] if one["beaten"]} >= {"empty", "copied", "injected"}
    assert [one["state"] for one in found["history"]] == ["submitted", "queued", "running", "scored"]
    assert found["submission"]["sha"] == ""  # its owner alone sees it
    [mine] = [one for one in rows(nobody) if not one["control"]]
    assert (mine["system"], mine["by"], mine["place"], mine["link"]) == ("mine", "Ann", "1", "https://example.org")
    assert ann.ask("GET", "/api/me")["quotas"][0]["day"] == {"used": 1, "limit": 5}


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_every_page_opens(board: Board, ann: Visitor, nobody: Visitor, examples: list[Example]) -> None:
    sent = ann.send(lines(examples), system="<b>bold</b>", note="</main><script>alert(1)</script>")
    show(board)
    [track] = nobody.ask("GET", "/api/boards")["tracks"]
    table = f"/boards/{track['boards'][0]['id']}"
    board_pages = [table, f"{table}?all=1&q=bold&sort=date&order=up", f"{table}?sort=known goals&page=99"]
    plain = ["/", "/submit", "/mine", "/owner", "/static/board.css", "/static/board.js"]
    for path in [*board_pages, *plain, f"/systems/{sent['id']}"]:
        text = nobody.ask("GET", path)
        assert "<b>bold" not in text
        assert "<script>alert" not in text
    for path in ("/boards/none", "/systems/none"):
        assert "<html" in nobody.ask("GET", path, 404)


@pytest.mark.thorough
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_no_reference_leaves_the_server(
    board: Board, ann: Visitor, nobody: Visitor, owner: Visitor, examples: list[Example], seen: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    secret = "zebra crossing"
    # A track whose references hold words that nothing else holds.
    hidden = References.of(
        [replace(one, continuation=tuple(f"{step} {secret}" for step in one.continuation)) for one in examples]
    )
    scorer = ScorerSettings(measure="validity")
    add_track(board, replace(board.track("world"), name="hidden"), hidden, [scorer])
    about = {"track": "hidden", "system": "mine"}
    sent = ann.ask("POST", "/api/submissions", 201, params=about, content=lines(examples, 0.5))
    ann.ask("POST", "/api/submissions", 422, params=about, content=lines(examples)[:-40])
    ann.ask("POST", "/api/check", params={"track": "hidden"}, content=b"{}\n")
    show(board)
    index = owner.ask("GET", "/api/boards")
    for track in index["tracks"]:
        for one in track["boards"]:
            for visitor in (nobody, ann, owner):
                everything = visitor.ask("GET", f"/api/boards/{one['id']}", params={"all": "1"})
                visitor.ask("GET", f"/boards/{one['id']}?all=1")
                visitor.ask("GET", f"/api/boards/{one['id']}.csv")
                for row in everything["rows"]:  # the control rows, too, among them the reference itself
                    visitor.ask("GET", f"/api/submissions/{row['submission']}")
                    visitor.ask("GET", f"/systems/{row['submission']}")
        nobody.ask("GET", f"/api/tracks/{track['name']}/questions.jsonl")
    for visitor in (ann, owner):
        visitor.ask("GET", "/api/me/submissions")
        visitor.ask("PATCH", f"/api/submissions/{sent['id']}", json={"note": "x"})
    owner.ask("GET", "/api/owner")
    for path in ("/", "/metrics", "/healthz", "/openapi.json", "/api/boards/none"):
        nobody.ask("GET", path, 404 if path.endswith("none") else 200)
    left = "".join(seen) + caplog.text
    assert len(seen) > 40
    assert secret not in left


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_hidden_results_are_the_owners_alone(
    board: Board, ann: Visitor, nobody: Visitor, owner: Visitor, examples: list[Example]
) -> None:
    sent = ann.send(lines(examples))["id"]
    owner.ask("POST", "/api/owner/tracks/world", json={"published": False})
    show(board)
    for visitor in (nobody, ann):
        assert rows(visitor) == []
        found = visitor.ask("GET", f"/api/submissions/{sent}")
        assert found["boards"] == []
        assert found["submission"]["jobs"][0]["state"] == "scored"
        assert found["submission"]["jobs"][0]["value"] is None
    assert len(rows(owner)) == 10
    owner.ask("POST", "/api/owner/tracks/world", json={"published": True})
    assert len(rows(nobody)) == 10


def test_a_private_row_is_seen_by_its_account_and_the_owner(
    board: Board, client: TestClient, ann: Visitor, nobody: Visitor, owner: Visitor, examples: list[Example],
    seen: list[str],
) -> None:  # fmt: skip
    bob = Visitor(client, seen, board.add_account("bob"))
    sent = ann.send(lines(examples), private="1")["id"]
    show(board)
    for visitor, status in ((nobody, 404), (bob, 404), (ann, 200), (owner, 200)):
        visitor.ask("GET", f"/api/submissions/{sent}", status)
    nobody.ask("GET", f"/systems/{sent}", 404)
    assert all(one["control"] for one in rows(nobody))
    bob.ask("PATCH", f"/api/submissions/{sent}", 404, json={"private": False})
    bob.ask("POST", f"/api/submissions/{sent}/withdraw", 404)
    ann.ask("PATCH", f"/api/submissions/{sent}", json={"private": False})
    show(board)
    assert any(one["submission"] == sent for one in rows(nobody))
    ann.ask("POST", f"/api/submissions/{sent}/withdraw")
    show(board)
    assert all(one["control"] for one in rows(nobody))
    nobody.ask("GET", f"/api/submissions/{sent}", 404)


def test_the_newest_submission_of_a_system_has_the_place(
    board: Board, ann: Visitor, nobody: Visitor, examples: list[Example]
) -> None:
    ann.send(lines(examples, 1.0))
    time.sleep(0.01)
    second = ann.send(lines(examples, 0.5))["id"]
    show(board)
    assert [one["submission"] for one in rows(nobody) if not one["control"]] == [second]
    found = [one for one in rows(nobody, all="1") if not one["control"]]
    assert [one["place"] for one in found] == ["", "1"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_what_a_submitter_may_not(ann: Visitor, nobody: Visitor, examples: list[Example]) -> None:
    data = lines(examples)
    nobody.send(data, 401)
    nobody.ask("GET", "/api/me", 401)
    nobody.ask("GET", "/api/me", 401, headers={"Authorization": "Bearer rb_x_y"})
    nobody.ask("GET", "/api/boards", 401, headers={"Authorization": "Basic abc"})
    for path in ("accounts", "tracks/world", "boards/x/rescore", "boards/x/retire", "jobs/1/again", "jobs/1/cancel"):
        ann.ask("POST", f"/api/owner/{path}", 403, json={"name": "x"} if path == "accounts" else {})
    for path in ("", "/log"):
        ann.ask("GET", f"/api/owner{path}", 403)


def test_what_the_owner_may(board: Board, client: TestClient, owner: Visitor, seen: list[str]) -> None:
    token = owner.ask("POST", "/api/owner/accounts", 201, json={"name": "carl", "display": "Carl"})["token"]
    carl = Visitor(client, seen, token)
    assert carl.ask("GET", "/api/me")["display"] == "Carl"
    carl.ask("PATCH", "/api/me", json={"display": "Carl B."})
    owner.ask("POST", "/api/owner/accounts", 422, json={"name": "carl"})
    second = owner.ask("POST", "/api/owner/accounts/carl/token", 201)["token"]
    owner.ask("POST", "/api/owner/accounts/carl/revoke")
    for one in (token, second):
        Visitor(client, seen, one).ask("GET", "/api/me", 401)
    owner.ask("POST", "/api/owner/accounts/carl/token", 404)
    score_all(board)
    value = owner.ask("GET", "/api/owner")
    assert value["boards"][0]["jobs"]["scored"] == 9
    [before] = [one["id"] for one in value["boards"]]
    owner.ask("POST", f"/api/owner/boards/{before}/rescore", 422)  # nothing has changed
    owner.ask("POST", "/api/owner/boards/none/rescore", 404)
    owner.ask("PATCH", "/api/submissions/none", 404, json={"note": "of nothing"})
    actions = [one["action"] for one in owner.ask("GET", "/api/owner/log")["log"]]
    assert {"account added", "account revoked", "token added", "display name", "job"} <= set(actions)
    assert "submission changed" not in actions
    last = owner.ask("GET", "/api/owner/log", params={"before": 3})["log"]
    assert [one["id"] for one in last] == [2, 1]
    owner.ask("POST", f"/api/owner/boards/{before}/retire")
    assert owner.ask("GET", "/api/boards")["tracks"][0]["boards"] == []
    assert owner.ask("GET", f"/api/boards/{before}")["board"]["retired"] is not None


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_board_whose_measure_is_not_installed_holds_no_other_up(
    board: Board, another_version: Callable[[str], None]
) -> None:
    [old] = stale_boards(board)
    another_version("9.9")
    new, _ = rescore(board, old, keep=True)
    for gone, other in ((old, new), (new, old)):
        board.database.write(lambda session: touch(session, [old, new]))
        of_others = case((Scorer.id == gone, "not installed"), else_="validity")
        board.database.write(lambda session, kinds=of_others: session.execute(update(Scorer).values(measure=kinds)))  # type: ignore[misc]
        assert {*stale_boards(board)} == {gone, other}
        create_app(board).state.board.remake_standings()
        assert stale_boards(board) == [gone]


BAD_SUBMISSIONS: list[tuple[dict[str, Any], int, str]] = [
    ({"content": b"{}\n"}, 422, "invalid_submission"),
    ({"content": b"x" * 100, "headers": {"content-encoding": "gzip"}}, 415, "not_json"),
    ({"content": b"x", "headers": {"content-length": "10000000000"}}, 413, "body_too_large"),
    ({"content": b"PK\x03\x04zip"}, 422, "invalid_submission"),
    ({"params": {"track": "none", "system": "a"}, "content": b"{}\n"}, 404, "not_found"),
    ({"params": {"track": "world"}, "content": b"{}\n"}, 422, "missing_field"),
    ({"params": {"track": "world", "system": "a" * 99}, "content": b"{}\n"}, 422, "invalid_field"),
]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_bad_submissions_store_nothing(board: Board, ann: Visitor) -> None:
    for given, status, code in BAD_SUBMISSIONS:
        about = {"params": {"track": "world", "system": "mine"}} | given
        answer = ann.ask("POST", "/api/submissions", status, **about)
        assert answer["error"]["code"] == code
        if code == "invalid_submission":
            assert answer["problems"]
        assert ann.ask("GET", "/api/me/submissions")["submissions"] == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_quota_is_told(board: Board, ann: Visitor, examples: list[Example]) -> None:
    set_quotas(board, day_quota=1)
    ann.send(lines(examples))
    assert ann.send(lines(examples, 0.5), 429)["error"]["code"] == "quota_used"


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_bad_messages_are_refused(owner: Visitor) -> None:
    for body in (b"", b"x", b"[]", b'{"name": 1}', b'{"name": "a", "more": 1}', b'{"a":' * 2_000):
        status = 422 if b"name" in body or body == b"[]" else 400
        answer = owner.ask(
            "POST", "/api/owner/accounts", status, content=body, headers={"content-type": "application/json"}
        )  # fmt: skip
        assert answer["error"]["message"]


@pytest.mark.thorough
def test_a_backup_is_the_same_board_elsewhere(
    board: Board, database: str, ann: Visitor, nobody: Visitor, examples: list[Example], tmp_path: Any
) -> None:
    ann.send(lines(examples))
    show(board)
    ann.send(lines(examples, 0.5), system="another")  # still waits
    file = tmp_path / "backup.db"
    assert backup(database, file) > 50
    with pytest.raises(InputError, match="exists"):
        backup(database, file)
    elsewhere = f"sqlite:///{tmp_path / 'restored.db'}"
    restore(file, elsewhere)
    with pytest.raises(InputError, match="already"):
        restore(file, elsewhere)
    copy = Board.open(elsewhere)
    with TestClient(create_app(copy), base_url="http://127.0.0.1") as client:
        other = Visitor(client, [])
        assert rows(other) == rows(nobody)
        show(copy)
        show(board)
        assert rows(other) == rows(nobody)
        assert len(rows(other)) == 11
    copy.close()
