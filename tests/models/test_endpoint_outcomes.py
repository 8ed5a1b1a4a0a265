"""What becomes of each chat at an endpoint: answers, refusals, structure, log-probabilities, keys of requests."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai")
from tests.models import endpoint_server
from tests.models.asking import texts_of
from tests.models.endpoint_server import Reply, completion, opened, serving

from recipe.config import ModelConfig, SamplingConfig, parse_config
from recipe.errors import ComputeError, ConfigError, InputError
from recipe.models.model import open_model
from recipe.models.protocol import Answer, ModelRequest, Refusal

CHATS = [[{"role": "user", "content": f"question {n}"}] for n in range(12)]
SAMPLING = SamplingConfig(temperature=0.0, max_tokens=20)
GOOD = completion("1. Boil water")
SCHEMA = {"name": "verdict", "schema": {"type": "object", "properties": {"score": {"type": "integer"}}}}
TOO_LONG = Reply(400, '{"error": {"message": "maximum context length is 8192 tokens"}}')


pytestmark = pytest.mark.usefixtures("quick_retries")


engine_asking = partial(endpoint_server.engine_asking, concurrency=4, timeout=300.0)


def number(body: dict[str, Any]) -> int:
    return int(body["messages"][-1]["content"].split()[-1])


def error(status: int, message: str) -> Reply:
    return Reply(status, json.dumps({"error": {"message": message}}))


@pytest.mark.parametrize(
    "bad", [TOO_LONG, Reply(413, "{}"), error(422, "no"), error(400, "content_filter: violence")], ids=str
)
def test_a_chat_that_is_not_taken_is_refused_alone_and_not_kept(tmp_path: Path, bad: Reply) -> None:
    def answer(body: dict[str, Any], before: int) -> Reply:
        return bad if number(body) in (2, 5) else GOOD

    with engine_asking(answer, tmp_path) as (server, engine):
        for round_ in (1, 2):
            found = engine.outcomes(CHATS, 2, SAMPLING)
            assert [[type(one) for one in group] for group in found] == [
                [Refusal if n in (2, 5) else Answer] * 2 for n in range(12)
            ]
            assert len(server.requests) == 20 + 4 * round_
        refused = found[2][0]
        assert isinstance(refused, Refusal)
        assert refused.reason.startswith(f"{server.url}: the endpoint answers {bad.status}: ")
    assert len(list(tmp_path.rglob("*.json"))) == 20


@pytest.mark.parametrize("status", [401, 403, 404, 405])
def test_what_concerns_all_stops_all(tmp_path: Path, status: int) -> None:
    def answer(body: dict[str, Any], before: int) -> Reply:
        if number(body) == 3:
            return error(status, "no")
        server.until(lambda: any(ended.is_set() for ended in asking._ends))
        return GOOD

    with engine_asking(answer, tmp_path) as (server, engine):
        asking: Any = engine.engine
        with pytest.raises(InputError, match=f"answers {status}"):
            engine.outcomes(CHATS, 1, SAMPLING)
        assert len(server.requests) == 4
        assert len(list(tmp_path.rglob("*.json"))) == 3  # what was under way is kept


def test_what_was_given_up_ends_the_waits_of_others() -> None:
    def answer(body: dict[str, Any], before: int) -> Reply:
        if number(body) == 0:
            return Reply(429, headers=(("Retry-After", "9999"),))._replace(delay=0.3)
        return Reply(500, headers=(("Retry-After", "600"),))

    with (
        engine_asking(answer, tries=50, patience=3600.0) as (_, engine),
        pytest.raises(ComputeError, match="asks to wait 9999 s"),
    ):
        engine.outcomes(CHATS, 1, SAMPLING)


def test_where_nothing_is_taken_the_request_is_wrong() -> None:
    with engine_asking(lambda body, before: error(400, "unknown field 'model'")) as (server, engine):
        with pytest.raises(InputError, match="400: \"unknown field 'model'\"; change the request"):
            engine.outcomes(CHATS, 1, SAMPLING)
        assert 4 <= len(server.requests) <= 8
        with pytest.raises(InputError, match="unknown field"):
            engine.outcomes(CHATS[:1], 1, SAMPLING)


def test_chats_that_are_all_too_long_are_all_refused() -> None:
    with engine_asking(lambda body, before: TOO_LONG) as (server, engine):
        found = engine.outcomes(CHATS, 1, SAMPLING)
        assert all(isinstance(one, Refusal) for [one] in found)
        assert len(server.requests) == 12
        with pytest.raises(InputError, match="maximum context length"):
            texts_of(engine, CHATS[:1], 1, SAMPLING)


def test_an_answer_before_shows_that_the_request_is_right() -> None:
    def answer(body: dict[str, Any], before: int) -> Reply:
        return GOOD if number(body) == 0 else error(400, "no")

    with engine_asking(answer, concurrency=1) as (_, engine):
        found = engine.outcomes(CHATS, 1, SAMPLING)
    assert [isinstance(one, Answer) for [one] in found] == [True] + [False] * 11


class Picky:
    """A host that takes some fields only, and says of the others what `refuse` does."""

    def __init__(self, *takes: str, refuse: str = "{} is not supported", status: int = 400) -> None:
        self.takes, self.refuse, self.status = takes, refuse, status

    def __call__(self, body: dict[str, Any], before: int) -> Reply:
        if "logprobs" in body and "logprobs" not in self.takes:
            return error(self.status, self.refuse.format("logprobs"))
        form = body.get("response_format", {}).get("type")
        if form is not None and form not in self.takes:
            return error(self.status, self.refuse.format(f"response_format.type {form}"))
        reply = completion(json.dumps({"score": 1}))
        if "logprobs" not in body:
            return reply
        told = json.loads(reply.body)
        told["choices"][0]["logprobs"] = {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.0}]}
        return Reply(body=json.dumps(told))


FORMS = {"json_schema": ("json_schema",), "json_object": ("json_object",), "off": ()}


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("form", FORMS)
def test_a_host_is_asked_for_as_much_structure_as_it_takes(tmp_path: Path, form: str, status: int) -> None:
    with engine_asking(Picky(*FORMS[form], status=status), tmp_path) as (server, engine):
        assert engine.engine.structured == "json_schema"
        found = engine.outcomes(CHATS, 1, SAMPLING, schema=SCHEMA)
        assert {one.text for [one] in found if isinstance(one, Answer)} == {'{"score": 1}'}
        assert engine.engine.structured == engine.ledger.to_json()["structured"] == form
        assert engine.ledger.retries == 0
        steps = list(FORMS).index(form)
        assert len(server.requests) <= 12 + 4 * steps
        sent = server.requests[-1].get("response_format")
        assert (sent or {"type": "off"})["type"] == form
        if form == "json_schema":
            assert sent["json_schema"] == {"strict": True, **SCHEMA}
        before = len(server.requests)
        engine.outcomes(CHATS[:2], 1, SAMPLING.model_copy(update={"seed": 1}), schema=SCHEMA)
        assert len(server.requests) == before + 2
    # A host that takes more finds the answers of one that took less.
    with engine_asking(Picky("json_schema"), tmp_path) as (server, engine):
        engine.outcomes(CHATS, 1, SAMPLING, schema=SCHEMA)
        assert server.requests == []
        engine.outcomes(CHATS[:1], 1, SAMPLING)
        assert len(server.requests) == 1


def test_a_form_that_was_answered_is_not_given_up() -> None:
    def answer(body: dict[str, Any], before: int) -> Reply:
        return error(400, "response_format: bad text") if number(body) == 5 else Picky("json_schema")(body, before)

    with engine_asking(answer) as (_, engine):
        found = engine.outcomes(CHATS, 1, SAMPLING, schema=SCHEMA)
        assert [n for n, [one] in enumerate(found) if isinstance(one, Refusal)] == [5]
        assert engine.engine.structured == "json_schema"


@pytest.mark.parametrize("form", ["json_schema", "json_object", "off"])
def test_the_form_that_is_set_is_sent_or_an_error(form: str) -> None:
    with engine_asking(Picky(), structured=form) as (server, engine):
        if form == "off":
            engine.outcomes(CHATS, 1, SAMPLING, schema=SCHEMA)
            assert all("response_format" not in body for body in server.requests)
        else:
            with pytest.raises(InputError, match=rf"response_format.type {form} .*model.structured"):
                engine.outcomes(CHATS, 1, SAMPLING, schema=SCHEMA)
            assert len(server.requests) <= 8


def test_log_probabilities_are_asked_for_and_told(tmp_path: Path) -> None:
    with engine_asking(Picky("logprobs", "json_schema"), tmp_path) as (server, engine):
        for cached in (False, True):
            [[answer]] = engine.outcomes(CHATS[:1], 1, SAMPLING, logprobs=True, schema=SCHEMA)
            assert isinstance(answer, Answer)
            assert (answer.logprob, answer.cached) == (-0.75, cached)
        [[plain]] = engine.outcomes(CHATS[:1], 1, SAMPLING, schema=SCHEMA)
        assert isinstance(plain, Answer)
        assert plain.logprob is None
        assert [body.get("logprobs") for body in server.requests] == [True, None]


def test_what_cannot_be_read_has_tries_of_its_own() -> None:
    page = Reply(body="<html>")
    replies = [Reply(503), Reply(503), page, page, GOOD]
    with engine_asking(lambda body, before: replies[before], tries=9) as (server, engine):
        assert engine.outcomes(CHATS[:1], 1, SAMPLING)
        assert len(server.requests) == 5
    with engine_asking(lambda body, before: page, tries=9) as (server, engine):
        with pytest.raises(ComputeError, match="3 tries"):
            engine.outcomes(CHATS[:1], 1, SAMPLING)
        assert len(server.requests) == 3


def test_a_request_keeps_its_key_until_it_was_answered() -> None:
    replies = [Reply(504), Reply(drop=True, body="{"), Reply(500), Reply(429), error(400, "response_format"), GOOD]
    with engine_asking(lambda body, before: replies[before], tries=9) as (server, engine):
        engine.outcomes(CHATS[:1], 1, SAMPLING, schema=SCHEMA)
        keys = [headers["idempotency-key"] for headers in server.headers]
    assert keys[0] == keys[1] == keys[2]
    assert len({*keys[2:]}) == 4


@pytest.mark.parametrize(
    "text", ["\x00\x07\x1b[31m", "茶を入れる", "\ud83d half", "😀" * 3, "x" * 300_000], ids=range(5)
)
def test_any_text_goes_there_and_comes_back(tmp_path: Path, text: str) -> None:
    chat = [{"role": "user", "content": text}]
    whole = text.encode("utf-8", "replace").decode()
    with engine_asking(lambda body, before: completion(body["messages"][0]["content"]), tmp_path) as (server, engine):
        for _ in range(2):
            assert texts_of(engine, [chat], 1, SAMPLING) == [[whole]]
        assert server.requests[0]["messages"][0]["content"] == text
        assert len(server.requests) == 1


def test_an_answer_that_cannot_be_kept_is_told_and_stops_all(tmp_path: Path) -> None:
    with engine_asking(lambda body, before: GOOD._replace(delay=0.02), tmp_path) as (server, engine):
        # A file where the folder of the first answer would be.
        (tmp_path / engine.key(ModelRequest(CHATS[0], SAMPLING))[:2]).write_text("")
        with pytest.raises(NotADirectoryError):
            engine.outcomes(CHATS, 1, SAMPLING)
        assert len(server.requests) <= 8


@pytest.mark.parametrize(("code", "tries"), [(502, 3), (429, 3), ("429", 3), (401, 1)])
def test_an_error_with_status_200_is_the_error_that_it_names(code: int | str, tries: int) -> None:
    wrong = Reply(body=json.dumps({"error": {"message": "no", "code": code}}))
    with engine_asking(lambda *_: wrong, tries=3) as (server, engine):
        with pytest.raises((ComputeError, InputError), match=f"answers {code}"):
            engine.outcomes(CHATS[:1], 1, SAMPLING)
        assert len(server.requests) == tries
    if tries > 1:
        with engine_asking(lambda _, before: GOOD if before == 2 else wrong, tries=3) as (_, engine):
            [[answer]] = engine.outcomes(CHATS[:1], 1, SAMPLING)
            assert isinstance(answer, Answer)
            assert engine.ledger.retries == 2


def test_further_fields_are_sent_and_make_another_request(tmp_path: Path) -> None:
    further = {"chat_template_kwargs": {"enable_thinking": False}}
    with serving(lambda *_: GOOD) as server:
        for extra_body in ({}, further, json.dumps(further), {"top_k": 3}):
            config = ModelConfig.model_validate({"endpoint": server.url, "model": "m", "extra_body": extra_body})
            with opened(config, tmp_path) as engine:
                engine.outcomes(CHATS[:1], 1, SAMPLING)
                assert engine.identity.get("extra_body", {}) == config.extra_body
    assert [{name: body.get(name) for name in ("chat_template_kwargs", "top_k")} for body in server.requests] == [
        {"chat_template_kwargs": None, "top_k": -1},
        {"chat_template_kwargs": {"enable_thinking": False}, "top_k": -1},
        {"chat_template_kwargs": None, "top_k": 3},
    ]


@pytest.mark.parametrize("extra_body", ["[1]", "{", '{"messages": []}', '{"n": 2}'])
def test_further_fields_are_checked(extra_body: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config({"model": "m", "extra_body": extra_body}, ModelConfig, "options")
    assert "extra_body" in str(refused.value)
    with pytest.raises(InputError) as needed, open_model(ModelConfig(model="m", extra_body={"top_k": 1})):
        pass
    assert "top_k" in str(needed.value)


def test_the_end_of_a_stream_is_kept() -> None:
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"reasoning_content": "1. no\n"}, None),
        ({"content": [{"type": "text", "text": "1. rinse"}]}, None),
        ({"content": " it\n2. sim"}, None),
        ({}, "length"),
    ]
    chunks = [{"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in deltas]
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    with engine_asking(lambda *_: Reply(body=body, kind="text/event-stream")) as (_, engine):
        *pieces, (_, last) = engine.stream_all([ModelRequest(CHATS[0], SAMPLING)])
    assert "".join(str(piece) for _, piece in pieces) == "1. rinse it\n2. sim"
    assert isinstance(last, Answer)
    assert (last.cut, last.reasoning) == (True, "1. no\n")


@pytest.mark.parametrize("end", ["abort", "error"])
def test_a_stream_that_was_broken_off_is_no_answer(end: str) -> None:
    choices = [{"index": 0, "delta": {"content": "1. rinse"}}, {"index": 0, "delta": {}, "finish_reason": end}]
    body = "".join(f"data: {json.dumps({'id': 'x', 'choices': [choice]})}\n\n" for choice in choices)
    with (
        engine_asking(lambda *_: Reply(body=body + "data: [DONE]\\n\\n", kind="text/event-stream")) as (_, engine),
        pytest.raises(ComputeError, match=f"'{end}'"),
    ):
        list(engine.stream_all([ModelRequest(CHATS[0], SAMPLING)]))


def test_the_cache_keeps_how_an_answer_ended_and_was_sampled(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": None, "refusal": "no", "reasoning": "hm"}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    def answer(asked: dict[str, Any], before: int) -> Reply:
        return error(400, "top_k is unknown") if "top_k" in asked else Reply(body=body)

    with engine_asking(answer, tmp_path) as (server, engine):
        [[first]], [[again]] = (engine.outcomes(CHATS[:1], 1, SAMPLING) for _ in range(2))
        assert isinstance(first, Answer)
        assert again == first._replace(cached=True)
        assert (first.refusal, first.reasoning) == ("no", "hm")
        assert first.decoding is not None
        assert first.decoding.top_k == (None, "host")
        assert len(server.requests) == 2
