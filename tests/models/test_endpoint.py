"""The endpoint engine against a real server on this machine, on its good and on its bad days."""

import base64
import io
import json
import math
import re
import threading
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("openai")
from tests.models.asking import pieces_of, texts_of
from tests.models.endpoint_server import Reply, completion, engine_asking, opened, serving, streamed

from recipe.config import ModelConfig, SamplingConfig
from recipe.errors import ComputeError, InputError, RecipeError
from recipe.models.protocol import ModelRequest
from recipe.types import Frames

CHATS = [[{"role": "user", "content": f"question {n}"}] for n in range(5)]
SAMPLING = SamplingConfig(temperature=0.0, max_tokens=20)
HTML = Reply(body="<html><body>Welcome to our proxy</body></html>", kind="text/html")
GOOD = completion("1. Boil water")
BROKEN_OFF = completion("1. Boil").body.replace('"index": 0', '"error": {"code": 502, "message": "gone"}, "index": 0')
"""A choice that ends with `stop`, beside what went wrong behind the host."""


pytestmark = pytest.mark.usefixtures("quick_retries")


def config(address: str = "", **changes: Any) -> ModelConfig:
    return ModelConfig.model_validate({"endpoint": address, "model": "m", "timeout": 5.0, **changes})


def clip(value: int = 0, rate: float = 2.0) -> Frames:
    rows = np.linspace(0, 255, 32, dtype=np.uint8)[None, :, None, None]
    images = np.broadcast_to(rows, (3, 32, 48, 3)).copy()
    images[:, :8, :8] = value
    return Frames(images, np.array([0.0, 0.5, 61.0]), rate)


def shown(video: Frames) -> list[list[dict[str, Any]]]:
    return [[{"role": "user", "content": [{"type": "video", "video": video}, {"type": "text", "text": "What?"}]}]]


def echo(body: dict[str, Any], before: int) -> Reply:
    return completion(f"{body['messages'][-1]['content']}, seed {body.get('seed')}")


def test_texts_come_in_order_and_each_sample_has_its_own_seed() -> None:
    with serving(echo) as server, opened(config(server.url)) as engine:
        found = texts_of(engine, CHATS, 3, SAMPLING)
        assert [[text.split(",")[0] for text in texts] for texts in found] == [[f"question {n}"] * 3 for n in range(5)]
        assert all(len(set(texts)) == 3 for texts in found)
        assert texts_of(engine, CHATS, 3, SAMPLING) == found
        assert texts_of(engine, [], 1, SAMPLING) == []
        assert texts_of(engine, CHATS[:2], 0, SAMPLING) == [[], []]
    assert server.requests[0]["max_tokens"] == 20
    assert server.requests[0]["temperature"] == 0.0


def test_a_completion_is_streamed_and_kept(tmp_path: Path) -> None:
    def answer(body: dict[str, Any], before: int) -> Reply:
        return streamed("1. Boil", " water\n", "2. Pour") if body.get("stream") else GOOD

    with engine_asking(answer, tmp_path) as (server, engine):
        assert list(pieces_of(engine, CHATS[0], SAMPLING)) == ["1. Boil", " water\n", "2. Pour"]
        assert engine.ledger.to_json() | {"cost": 0} == {
            "answers": 1, "cached": 0, "retries": 0, "tokens_in": 100, "tokens_out": 10, "cost": 0
        }  # fmt: skip
        assert list(pieces_of(engine, CHATS[0], SAMPLING)) == ["1. Boil water\n2. Pour"]
        assert texts_of(engine, CHATS[:1], 1, SAMPLING) == [["1. Boil water\n2. Pour"]]
        assert len(server.requests) == 1
        early = pieces_of(engine, CHATS[1], SAMPLING)
        assert next(early) == "1. Boil"
        early.close()
    assert len(server.requests) == 2


@pytest.mark.parametrize("bad", [Reply(500), Reply(400), HTML, GOOD, streamed(whole=False), Reply(drop=True)], ids=str)
def test_a_host_that_does_not_stream_is_asked_for_the_whole(tmp_path: Path, bad: Reply) -> None:
    with engine_asking(lambda body, before: bad if body.get("stream") else GOOD, tmp_path) as (server, engine):
        assert list(pieces_of(engine, CHATS[0], SAMPLING)) == ["1. Boil water"]
        assert len(server.requests) == 2


@pytest.mark.parametrize("drop", [True, False])
def test_an_answer_that_breaks_off_is_an_error_and_not_kept(tmp_path: Path, drop: bool) -> None:
    half = streamed("1. Boil", whole=False)._replace(drop=drop)
    with engine_asking(lambda body, before: half, tmp_path) as (_, engine):
        pieces = pieces_of(engine, CHATS[0], SAMPLING)
        assert next(pieces) == "1. Boil"
        with pytest.raises(ComputeError, match=r"/v1: the answer broke off \(.*ask again"):
            next(pieces)
    assert not list(tmp_path.rglob("*.json"))


def test_concurrency_is_bounded_and_used() -> None:
    with engine_asking(lambda body, before: GOOD, concurrency=3) as (server, engine):
        server.held_from = 0
        threads = [threading.Thread(target=engine.answers, args=(CHATS, 2, SAMPLING)) for _ in range(2)]
        for thread in threads:
            thread.start()
        server.until(lambda: server.under_way == 3)
        server.held_from = math.inf
        for thread in threads:
            thread.join()
    assert len(server.requests) == 20
    assert server.most == 3


def wrong(status: int, **error: str) -> Reply:
    return Reply(status, json.dumps({"error": error}))


FAILURES: list[tuple[str, Reply, type[RecipeError], int]] = [
    ("429: 'slow down'", wrong(429, message="slow down"), ComputeError, 4),
    ("500: 'oops'", Reply(500, "oops", "text/plain"), ComputeError, 4),
    ("503", Reply(503, "<html>bad gateway</html>", "text/html"), ComputeError, 4),
    ("connection failed", Reply(body="{", drop=True), ComputeError, 4),
    ("no chat completion: '<html>", HTML, ComputeError, 3),
    ('no chat completion: \'{"id"', Reply(body=GOOD.body[:40]), ComputeError, 3),
    ("no chat completion", Reply(body='{"choices": []}'), ComputeError, 3),
    ("no chat completion: 'overloaded'", wrong(200, message="overloaded"), ComputeError, 3),
    ("no chat completion: '[1]'", Reply(body="[1]"), ComputeError, 3),
    ("no chat completion", Reply(body=""), ComputeError, 3),
    ("no text", completion(None, finish=None), ComputeError, 3),
    ("off: 'gone'", Reply(body=BROKEN_OFF), ComputeError, 3),
    *(
        (f"'{end}'", completion("1. Boil", finish=end), ComputeError, 3)
        for end in ("error", "abort", "network_error", "load")
    ),
    ("401: 'bad key'; check the key", wrong(401, message="bad key"), InputError, 1),
    ("404: 'Not Found'; check", Reply(404, '{"detail": "Not Found"}'), InputError, 1),
    ("400: 'too long'; shorten", Reply(400, '{"message": "too long"}'), InputError, 1),
    ("429: 'no money'; check the account", wrong(429, message="no money", code="insufficient_quota"), InputError, 1),
]
"""What the error says, the reply, the kind of error where it lasts, and how many of four tries are taken then."""


@pytest.mark.parametrize(("said", "bad", "kind", "tries"), FAILURES, ids=str)
def test_what_passes_is_asked_again_and_what_lasts_is_one_error(
    tmp_path: Path, said: str, bad: Reply, kind: type[RecipeError], tries: int
) -> None:
    with engine_asking(lambda body, before: bad, tmp_path, tries=4) as (server, engine):
        with pytest.raises(kind, match=re.escape(said)) as raised:
            texts_of(engine, CHATS[:1], 1, SAMPLING)
        assert str(raised.value).startswith(server.url)
        assert str(raised.value).endswith(".")
        assert "\n" not in str(raised.value)
        assert len(server.requests) == tries
    assert not list(tmp_path.rglob("*.json"))
    if tries > 1:
        with engine_asking(lambda body, before: GOOD if before else bad, tmp_path) as (server, engine):
            for _ in range(2):
                assert texts_of(engine, CHATS[:1], 1, SAMPLING) == [["1. Boil water"]]
            assert len(server.requests) == 2
            assert engine.ledger.to_json()["retries"] == 1
        assert len(list(tmp_path.rglob("*.json"))) == 1
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("odd", [GOOD._replace(kind="text/plain"), completion(None, finish="content_filter")])
def test_an_odd_answer_is_an_answer(tmp_path: Path, odd: Reply) -> None:
    with engine_asking(lambda body, before: odd, tmp_path) as (server, engine):
        for _ in range(2):
            assert texts_of(engine, CHATS[:1], 1, SAMPLING) in ([["1. Boil water"]], [[""]])
        assert len(server.requests) == 1


def test_a_slow_endpoint_times_out() -> None:
    with engine_asking(lambda body, before: GOOD, timeout=0.2, tries=2) as (server, engine):
        server.held_from = 0
        with pytest.raises(ComputeError, match=r"no answer within 0.2 s \(2 tries in \d+ s\).*model.timeout"):
            texts_of(engine, CHATS[:1], 1, SAMPLING)
        server.held_from = math.inf


def test_an_endpoint_that_drips_times_out() -> None:
    dripping = engine_asking(lambda body, before: GOOD._replace(drip=0.05), timeout=0.2, tries=1)
    with dripping as (_, engine), pytest.raises(ComputeError, match=r"no answer within 0\.2 s"):
        texts_of(engine, CHATS[:1], 1, SAMPLING)


def test_the_wait_that_the_endpoint_asks_for_is_kept_by_all(tmp_path: Path) -> None:
    def answer(body: dict[str, Any], before: int) -> Reply:
        return Reply(429, headers=(("Retry-After", "0.6"),)) if before == 0 else GOOD

    with serving(answer) as server, opened(config(server.url, concurrency=1)) as engine:
        texts_of(engine, CHATS[:1], 1, SAMPLING)
        first, second = server.moments
    assert second - first >= 0.6

    def slow(body: dict[str, Any], before: int) -> Reply:
        return Reply(429, headers=(("Retry-After", "0.6"),)) if before == 0 else GOOD._replace(delay=0.1)

    with engine_asking(slow, concurrency=2) as (server, engine):
        texts_of(engine, CHATS, 1, SAMPLING)
        first, _, *rest = server.moments
    assert min(rest) - first >= 0.6

    def busy(body: dict[str, Any], before: int) -> Reply:
        return Reply(429, headers=(("Retry-After", "3600"),))

    with engine_asking(busy) as (_, engine), pytest.raises(ComputeError, match=r"asks to wait 3600 s \(1 try"):
        texts_of(engine, CHATS[:1], 1, SAMPLING)


def test_others_keep_their_answers_when_one_fails(tmp_path: Path) -> None:
    def answer(body: dict[str, Any], before: int) -> Reply:
        if body["messages"][-1]["content"] == "question 2":
            return Reply(400, '{"message": "no"}')
        return GOOD

    with serving(answer) as server, opened(config(server.url, concurrency=1), tmp_path) as engine:
        with pytest.raises(InputError, match="400: 'no'"):
            texts_of(engine, CHATS, 1, SAMPLING)
        assert len(server.requests) == 3  # nothing new is asked once it is clear that the whole fails
        assert len(list(tmp_path.rglob("*.json"))) == 2
        assert texts_of(engine, CHATS[:2], 1, SAMPLING) == [["1. Boil water"]] * 2
        assert len(server.requests) == 3


def test_an_answer_is_kept_under_all_that_makes_it_and_nothing_else() -> None:
    further: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
        (CHATS[0], {}, {}),
        (CHATS[1], {}, {}),
        (CHATS[0], {"temperature": 1.0}, {}),
        (CHATS[0], {"max_tokens": 21}, {}),
        (CHATS[0], {"seed": 1}, {}),
        (CHATS[0], {}, {"model": "n"}),
        (shown(clip())[0], {}, {}),
        (shown(clip(1))[0], {}, {}),
        (shown(clip(rate=1.0))[0], {}, {}),
        (shown(clip())[0], {}, {"max_pixels": 100}),
        (shown(clip())[0], {}, {"clips": "video"}),
    ]

    def key(chat: Any, sampling: dict[str, Any], changes: dict[str, Any], address: str = "http://host/v1") -> str:
        with opened(config(address, **changes)) as engine:
            return engine.key(ModelRequest(chat, SAMPLING.model_copy(update=sampling)))

    assert len({key(*one) for one in further}) == len(further)
    assert key(CHATS[0], {"batch_size": 1}, {"concurrency": 9}, "http://other/v1") == key(CHATS[0], {}, {})


def test_equal_questions_at_once_are_one(tmp_path: Path) -> None:
    def answer(body: dict[str, Any], before: int) -> Reply:
        return completion(f"answer {before}")._replace(delay=0.05)

    with serving(answer) as server, opened(config(server.url), tmp_path) as engine:
        assert texts_of(engine, CHATS[:1] * 4, 1, SAMPLING) == [["answer 0"]] * 4
        assert engine.ledger.to_json() | {"cost": 0} == {
            "answers": 1, "cached": 3, "retries": 0, "tokens_in": 100, "tokens_out": 10, "cost": 0
        }  # fmt: skip
    assert len(server.requests) == 1


@pytest.mark.parametrize("damage", [b"", b'{"text": "1', b"[]", b"\xff"])
def test_a_damaged_entry_is_asked_again(tmp_path: Path, damage: bytes) -> None:
    with serving(echo) as server, opened(config(server.url), tmp_path) as engine:
        whole = texts_of(engine, CHATS[:1], 1, SAMPLING)
        [entry] = tmp_path.rglob("*.json")
        entry.write_bytes(damage)
        assert texts_of(engine, CHATS[:1], 1, SAMPLING) == whole
        assert json.loads(entry.read_bytes())["text"] == whole[0][0]
    assert len(server.requests) == 2


def test_tokens_and_cost() -> None:
    prices = {"price_in": 0.5, "price_out": 2.0}
    with serving(echo) as server, opened(config(server.url, **prices)) as engine:
        answers = engine.answers(CHATS, 2, SAMPLING)
        assert [(one.tokens_in, one.tokens_out, one.cached) for group in answers for one in group] == [
            (100, 10, False)
        ] * 10
        assert engine.ledger.to_json()["cost"] == pytest.approx((1000 * 0.5 + 100 * 2.0) / 1e6)


def test_frames_are_sent_as_images_with_their_times() -> None:
    from PIL import Image

    with serving(lambda body, before: GOOD) as server, opened(config(server.url)) as engine:
        texts_of(engine, shown(clip(200)), 1, SAMPLING)
    parts = server.requests[0]["messages"][0]["content"]
    assert [part["text"] for part in parts if part["type"] == "text"] == ["[0:00]", "[0:00.5]", "[1:01]", "What?"]
    images = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert len(images) == 3
    head, data = images[0].split(",")
    assert head == "data:image/jpeg;base64"
    seen = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))), dtype=float)
    assert np.abs(seen - clip(200).images[0]).mean() < 4
    assert "mm_processor_kwargs" not in server.requests[0]


def test_large_frames_are_reduced_where_asked() -> None:
    from PIL import Image

    with engine_asking(lambda body, before: GOOD, max_pixels=32 * 48 // 4) as (server, engine):
        texts_of(engine, shown(clip()), 1, SAMPLING)
    _, image, *_ = server.requests[0]["messages"][0]["content"]
    assert Image.open(io.BytesIO(base64.b64decode(image["image_url"]["url"].split(",")[1]))).size == (24, 16)


def test_frames_are_sent_as_one_video_to_vllm() -> None:
    from PIL import Image

    with engine_asking(lambda body, before: GOOD, clips="video") as (server, engine):
        texts_of(engine, shown(clip(rate=1.5)), 1, SAMPLING)
    video, text = server.requests[0]["messages"][0]["content"]
    head, *frames = video["video_url"]["url"].split(",")
    assert (video["type"], head, len(frames)) == ("video_url", "data:video/jpeg;base64", 3)
    assert all(Image.open(io.BytesIO(base64.b64decode(frame))).size == (48, 32) for frame in frames)
    assert text == {"type": "text", "text": "What?"}
    assert server.requests[0]["mm_processor_kwargs"] == {"fps": 1.5}


def test_the_key_is_sent_and_never_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("SECRET", "sk-abcdef")
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "sk-other")
    caplog.set_level("DEBUG")

    def answer(body: dict[str, Any], before: int) -> Reply:
        return Reply(500 if before == 0 else 401, '{"error": {"message": "wrong key: sk-abcdef"}}')

    with serving(answer) as server:
        with_key = opened(config(server.url, key_variable="SECRET"))
        with with_key as engine, pytest.raises(InputError, match=r"wrong key: \[key\]"):
            texts_of(engine, CHATS[:1], 1, SAMPLING)
        with opened(config(server.url)) as engine, pytest.raises(InputError):
            texts_of(engine, CHATS[:1], 1, SAMPLING)
    assert [headers["authorization"] for headers in server.headers] == ["Bearer sk-abcdef"] * 2 + ["Bearer none"]
    assert "sk-abcdef" not in caplog.text
    assert "sk-other" not in str(server.headers)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"endpoint": "localhost:8000"}, "no address of HTTP"),
        ({"endpoint": "http://"}, "no address of HTTP"),
        ({"endpoint": "http://a:b"}, "no address of HTTP"),
        ({"endpoint": "https://me:secret@host/v1"}, "model.key_variable"),
        ({"endpoint": "http://host/v1/chat/completions"}, "give its root"),
        ({"endpoint": "http://host/v1", "key_variable": "NOT_SET_ANYWHERE"}, "variable NOT_SET_ANYWHERE .* not set"),
    ],
)
def test_settings_that_cannot_be_used(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        opened(config(**changes))
    assert "secret" not in str(raised.value)


def test_closing_ends_what_is_under_way() -> None:
    with serving(lambda body, before: GOOD) as server:
        server.held_from = 0
        engine = opened(config(server.url))
        ended: list[BaseException] = []

        def ask() -> None:
            try:
                texts_of(engine, CHATS[:1], 1, SAMPLING)
            except CancelledError as error:
                ended.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        server.until(lambda: bool(server.requests))
        for _ in range(2):
            engine.__exit__(None, None, None)
        thread.join()
        assert len(ended) == 1
        server.held_from = math.inf
