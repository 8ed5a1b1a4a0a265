"""One stand-in for each kind of host: the fields that it refuses, the words in which it does, and how its answers end.

hosts.md names the sources.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer import Context
from typer.main import get_command

pytest.importorskip("openai")
from tests.models.asking import pieces_of
from tests.models.endpoint_server import Reply, completion, engine_asking

from recipe.cli import app
from recipe.config import JudgeConfig, SamplingConfig
from recipe.errors import RecipeError
from recipe.evaluation.judge.llm import LlmJudge
from recipe.evaluation.judge.plans import Case
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.models.protocol import Answer, ModelRequest, Refusal, unanswered
from recipe.planning.planner import read_plan
from recipe.types import Example, Plan, Verdict

CHATS = [[{"role": "user", "content": f"How do I pot plant {n}?"}] for n in range(3)]
SAMPLING = SamplingConfig(temperature=0.4, max_tokens=40)
SCHEMA = {"name": "plan", "schema": {"type": "object"}}
PLAN = "1. Fill the pot\n2. Plant the bulb\n3. Water it"
SENT = (
    "temperature", "max_tokens", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "seed", "response_format", "logprobs",
)  # fmt: skip
"""Every field of a request that a host might not know."""
PENALTIES = ("presence_penalty", "frequency_penalty")
OWN_OF_VLLM = ("top_k", "min_p", "repetition_penalty")

Refusing = Callable[[list[str]], tuple[int, Any]]
"""The refused fields of a request to the status and the body of the reply."""


pytestmark = pytest.mark.usefixtures("quick_retries")


def openai(names: list[str]) -> tuple[int, Any]:
    other = " Use 'max_completion_tokens' instead." if names[0] == "max_tokens" else ""
    said = f"Unsupported parameter: '{names[0]}' is not supported with this model.{other}"
    code = "unsupported_parameter"
    return 400, {"error": {"message": said, "type": "invalid_request_error", "param": names[0], "code": code}}


def gemini(names: list[str]) -> tuple[int, Any]:
    lines = [f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.' for name in names]
    violations = [{"description": line} for line in lines]
    details = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}]
    error = {"code": 400, "message": "\n".join(lines), "status": "INVALID_ARGUMENT", "details": details}
    return 400, [{"error": error}]


def fastapi(names: list[str]) -> list[Any]:
    """With what was sent beside each, which may name any field."""
    msg, sent = "Extra inputs are not permitted", {"top_p": 1, "messages": "seed the lawn"}
    return [{"type": "extra_forbidden", "loc": ["body", name], "msg": msg, "input": sent} for name in names]


def mistral(names: list[str]) -> tuple[int, Any]:
    body = {"object": "error", "message": {"detail": fastapi(names)}, "type": "invalid_request_error", "code": None}
    return 422, body


def groq(names: list[str]) -> tuple[int, Any]:
    said = f"property '{names[0]}' is unsupported, did you mean 'top_p'?"
    return 400, {"error": {"message": said, "type": "invalid_request_error"}}


def anthropic(names: list[str]) -> tuple[int, Any]:
    said = f"`temperature` and `{names[0]}` cannot both be specified for this model. Please use only one."
    return 400, {"type": "error", "error": {"type": "invalid_request_error", "message": said}}


def openrouter(names: list[str]) -> tuple[int, Any]:
    raw = json.dumps(openai(names)[1])
    metadata = {"raw": raw, "provider_name": "Some"}
    return 200, {"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}, "user_id": "u"}


def litellm(names: list[str]) -> tuple[int, Any]:
    said = f"litellm.UnsupportedParamsError: bedrock does not support parameters: {names}, for model=m. To drop these,"
    more = f" set `litellm.drop_params=True`, or send allowed_openai_params={names} in your request."
    return 400, {"error": {"message": said + more, "type": "None", "param": None, "code": "400"}}


def pydantic(names: list[str]) -> tuple[int, Any]:
    """Of vLLM's and SGLang's servers where a strict gateway or version forbids further fields."""
    found = [{"type": "extra_forbidden", "loc": ("body", name), "msg": "Extra inputs"} for name in names]
    last = {"type": "extra_forbidden", "loc": ("body", names[-1]), "input": {"temperature": 1, "top_p": 1}}
    return 400, {"object": "error", "message": str([*found, last]), "type": "BadRequestError", "code": 400}


def serde(names: list[str]) -> tuple[int, Any]:
    listed = ", ".join(f"`{name}`" for name in SENT)
    said = f"Failed to deserialize the JSON body: unknown field `{names[0]}`, expected one of {listed} at line 1"
    return 422, {"error": said, "error_type": "validation"}


def plain(names: list[str]) -> tuple[int, Any]:
    form = "'response_format.type' must be 'text'" if names[0] == "response_format" else f"unknown field {names[0]}"
    return 400, {"error": form}


def camel(names: list[str]) -> tuple[int, Any]:
    head, *tail = names[0].split("_")
    said = f"Argument not supported on this model: {head}{''.join(word.title() for word in tail)}"
    return 400, {"code": "Client specified an invalid argument", "error": said}


class Host(NamedTuple):
    """What one kind of host does."""

    refusing: Refusing
    refuses: tuple[str, ...]
    at_once: bool = False
    """Names all refused fields in one error."""
    whole: str = "stop"
    cut: str = "length"


HOSTS = {
    "OpenAI, a reasoning model": Host(openai, ("max_tokens", *OWN_OF_VLLM, *PENALTIES, "top_p", "logprobs")),
    "Azure OpenAI": Host(openai, ("max_tokens", *OWN_OF_VLLM)),
    "Gemini": Host(gemini, ("seed", *OWN_OF_VLLM, *PENALTIES), at_once=True),
    "Mistral": Host(mistral, ("seed", *OWN_OF_VLLM, "logprobs"), at_once=True, cut="model_length"),
    "FastAPI": Host(lambda names: (422, {"detail": fastapi(names)}), ("seed", *OWN_OF_VLLM), at_once=True),
    "Groq": Host(groq, (*OWN_OF_VLLM, "logprobs")),
    "Anthropic": Host(anthropic, ("top_p",)),
    "OpenRouter": Host(openrouter, ("min_p", "response_format")),
    "LiteLLM": Host(litellm, ("seed", *PENALTIES, "response_format"), at_once=True),
    "vLLM": Host(pydantic, ()),
    "SGLang": Host(pydantic, ("logprobs", "min_p"), at_once=True),
    "TGI": Host(serde, (*OWN_OF_VLLM, "response_format"), whole="eos_token"),
    "llama.cpp": Host(plain, ()),
    "Ollama": Host(plain, ("logprobs",)),
    "LM Studio": Host(plain, ("response_format",)),
    "xAI": Host(camel, (*PENALTIES, "logprobs")),
}


def standing_in(host: Host, said: str = PLAN) -> Callable[[dict[str, Any], int], Reply]:
    def answer(body: dict[str, Any], _: int) -> Reply:
        assert {*body} <= {*SENT, "model", "messages", "stream", "max_completion_tokens"}
        # As each host: a field that it does not know, whatever the value.
        if refused := [name for name in body if name in host.refuses]:
            status, wrong = host.refusing(refused)
            return Reply(status, json.dumps(wrong))
        return completion(said, finish=host.whole)

    return answer


@pytest.mark.parametrize("name", HOSTS)
def test_a_plan_is_read_and_each_refused_field_is_named_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    host = HOSTS[name]
    with engine_asking(standing_in(host), concurrency=1) as (server, model):
        found = model.outcomes(CHATS, 2, SAMPLING, schema=SCHEMA, logprobs=True)
        plans = [read_plan(one) for group in found for one in group if isinstance(one, Answer)]
        assert [len(plan.steps) for plan in plans if isinstance(plan, Plan)] == [3] * 6
        assert (model.ledger.to_json()["retries"], model.ledger.answers) == (0, 6)
        cards = [one.decoding for group in found for one in group if isinstance(one, Answer)]
        assert {card.max_tokens for card in cards if card} == {(40, "ours")}  # by whichever name it was sent
        recorded = model.ledger.to_json().get("refused_fields", {})
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert all(server.url in line for line in warned)
    forms = ("json_schema", "json_object") if "response_format" in host.refuses else ()
    expected = sorted({*host.refuses, *forms} - {"response_format"})
    assert sorted(recorded) == expected
    assert len(warned) == len(expected)
    for field in expected:
        assert sum(f" {field}:" in line for line in warned) == 1
    # The next request is without all that was named, and every later one is.
    refusals = len(server.requests) - 6
    if host.at_once and not forms:
        assert refusals == min(1, len(expected))
    assert refusals <= len(expected)
    for body in server.requests[refusals:]:
        assert not {*body} & {*host.refuses}
        kept = {*SENT} - {*host.refuses}
        assert {*body} >= kept
        assert body["temperature"] == 0.4
        assert body.get("max_completion_tokens", body.get("max_tokens")) == 40


def test_requests_at_once_warn_once(caplog: pytest.LogCaptureFixture) -> None:
    def slowly(body: dict[str, Any], before: int) -> Reply:
        return standing_in(HOSTS["Gemini"])(body, before)._replace(delay=0.2)

    with engine_asking(slowly, concurrency=6) as (server, model):
        model.outcomes(CHATS, 2, SAMPLING)
        assert len(server.requests) == 12
    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == len(HOSTS["Gemini"].refuses)


@pytest.mark.parametrize("name", HOSTS)
def test_a_stream_begins_without_what_the_host_refuses(name: str) -> None:
    host = HOSTS[name]

    def answer(body: dict[str, Any], before: int) -> Reply:
        reply = standing_in(host)(body, before)
        if "choices" not in json.loads(reply.body) or not body.get("stream"):
            return reply
        piece = {"choices": [{"index": 0, "delta": {"content": PLAN}, "finish_reason": host.cut}]}
        return Reply(body=f"data: {json.dumps(piece)}\n\ndata: [DONE]\n\n", kind="text/event-stream")

    with engine_asking(answer) as (server, model):
        assert "".join(pieces_of(model, CHATS[0], SAMPLING)) == PLAN
        assert all(body.get("stream") for body in server.requests) or name == "OpenRouter"
        before = len(server.requests)
        assert "".join(pieces_of(model, CHATS[1], SAMPLING)) == PLAN
        assert len(server.requests) == before + 1


@pytest.mark.parametrize(("whole", "cut"), sorted({(host.whole, host.cut) for host in HOSTS.values()}))
def test_ends_are_those_of_the_host(whole: str, cut: str) -> None:
    ends = ["error", cut, whole]  # broken off, and asked again: then cut; then whole
    with engine_asking(lambda _, before: completion(PLAN, finish=ends[before])) as (server, model):
        first, second = (model.outcomes(CHATS[:1], 1, SAMPLING)[0][0] for _ in range(2))
    assert len(server.requests) == 3
    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    assert (first.cut, second.cut) == (True, False)


FORMS = [openai, gemini, mistral, groq, openrouter, litellm, pydantic, serde, plain, camel]
DROPPED = [name for name in SENT if name not in ("temperature", "max_tokens", "response_format", "logprobs")]


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(FORMS), st.lists(st.sampled_from(DROPPED), unique=True))
def test_whatever_is_refused_is_left_out_and_nothing_else(form: Refusing, refuses: list[str]) -> None:
    host = Host(form, tuple(refuses))
    with engine_asking(standing_in(host), concurrency=1) as (server, model):
        [[answer]] = model.outcomes(CHATS[:1], 1, SAMPLING)
    assert isinstance(answer, Answer), answer
    assert {*SENT} - {*server.requests[-1]} == {*refuses, "response_format", "logprobs"}
    assert answer.decoding is not None
    unknown = {field for field, (value, by) in answer.decoding.settings().items() if (value, by) == (None, "host")}
    assert unknown == {*refuses} - {"seed"}


def test_a_field_that_was_taken_before_stays() -> None:
    def answer(body: dict[str, Any], before: int) -> Reply:
        status, wrong = openai(["seed"])
        return completion(PLAN) if before == 0 else Reply(status, json.dumps(wrong))

    with engine_asking(answer, concurrency=1) as (server, model):
        [[_], [refused]] = model.outcomes(CHATS[:2], 1, SAMPLING)
        assert isinstance(refused, Refusal)
        assert "model.extra_body" in refused.reason
        assert len(server.requests) == 2


def test_null_in_extra_body_sends_no_such_field() -> None:
    host = Host(openai, ("temperature", "response_format"))
    with engine_asking(standing_in(host), extra_body={"temperature": None, "response_format": None}) as (server, model):
        [[answer]] = model.outcomes(CHATS[:1], 1, SAMPLING, schema=SCHEMA)
    assert isinstance(answer, Answer)
    assert answer.decoding is not None
    assert answer.decoding.temperature == (None, "user")
    assert len(server.requests) == 1


def test_without_a_seed_another_sample_or_seed_is_another_request() -> None:
    with engine_asking(standing_in(HOSTS["Gemini"]), concurrency=1) as (server, model):
        for seed in (1, 2):
            model.outcomes(CHATS[:1], 2, SAMPLING.model_copy(update={"seed": seed}))
    assert len({json.dumps(body) for body in server.requests[1:]}) == 1
    assert len({headers["idempotency-key"] for headers in server.headers}) == 5


LONG = "the words before it " * 20 + "and the last word"
BODIES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "OpenAI": ({"error": {"message": LONG, "type": "a", "param": "messages", "code": None}}, ("messages: ", LONG)),
    "Gemini": ([{"error": {"code": 400, "message": LONG, "status": "INVALID_ARGUMENT"}}], (LONG,)),
    "Mistral": (
        {
            "object": "error",
            "message": {"detail": [{"loc": ["body", "messages", 0, "role"], "msg": LONG, "type": "a"}]},
        },
        (f"messages.0.role: {LONG}",),
    ),
    "FastAPI": ({"detail": [{"loc": ["body", "n"], "msg": LONG, "input": "secret"}]}, (f"n: {LONG}",)),
    "FastAPI, in words": ({"detail": LONG}, (LONG,)),
    "LM Studio": ({"error": LONG}, (LONG,)),
    "Anthropic": ({"type": "error", "error": {"type": "invalid_request_error", "message": LONG}}, (LONG,)),
    "OpenRouter": (
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": json.dumps({"error": LONG})},
            }
        },
        ("Provider returned error", LONG),
    ),
    "OpenRouter, words": ({"error": {"message": "P", "code": 400, "metadata": {"raw": LONG}}}, ("P; ", LONG)),
    "TGI": ({"error": f"Input validation error: {LONG}", "error_type": "validation"}, ("Input validation", LONG)),
    "llama.cpp": ({"error": {"code": 400, "message": LONG, "type": "invalid_request_error"}}, (LONG,)),
    "vLLM, older": (
        {"object": "error", "message": LONG, "type": "BadRequestError", "param": None, "code": 400},
        (LONG,),
    ),
    "NestJS": ({"statusCode": 400, "error": "Bad Request", "message": [LONG, "b"]}, ("Bad Request", LONG, "; b")),
    "errors": ({"errors": [{"message": LONG}, {"message": "b"}]}, (LONG, "; b")),
    "lines": ({"error": {"message": f"two\n lines, {LONG}"}}, (f"two lines, {LONG}",)),
    "text": (LONG, (LONG,)),
}


NAMING_400 = ("Gemini", "OpenRouter", "OpenRouter, words", "llama.cpp", "vLLM, older")
"""Of these bodies, those that name a status of their own."""


@pytest.mark.parametrize("form", BODIES)
@pytest.mark.parametrize("status", [400, 500, 200])
def test_the_body_of_an_error_is_read_in_full(form: str, status: int) -> None:
    body, words = BODIES[form]
    text = body if isinstance(body, str) else json.dumps(body)
    with engine_asking(lambda *_: Reply(status, text), tries=1) as (_, model), pytest.raises(RecipeError) as error:
        model.outcomes(CHATS, 1, SAMPLING)
    if status != 200 or form in NAMING_400:
        assert f"answers {400 if status == 200 else status}: " in str(error.value)
        assert all(word in str(error.value) for word in words)
    assert "secret" not in str(error.value)
    assert "{" not in str(error.value)


NAMES = st.sampled_from(["error", "message", "detail", "loc", "msg", "code", "param", "metadata", "raw", "status"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text()
BODY = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)).map(json.dumps)


def test_any_body_is_an_error_of_one_line() -> None:
    replies: list[Reply] = []
    with engine_asking(lambda *_: replies[-1], tries=1) as (_, model):

        @settings(max_examples=100, deadline=None)
        @given(BODY, st.sampled_from([400, 200]))
        @example("[" * 5000 + "]" * 5000, 400)
        @example("[" * 5000 + "]" * 5000, 200)
        @example('{"error":' * 900 + '"no"' + "}" * 900, 400)
        @example('{"error":' * 900 + '"no"' + "}" * 900, 200)
        def read(body: str, status: int) -> None:
            replies.append(Reply(status, body))
            with pytest.raises(RecipeError) as error:
                model.answers(CHATS[:1], 1, SAMPLING)
            assert "\n" not in str(error.value)

        read()


OVERFLOWS = [
    {"error": "The number of tokens to keep is greater than the context length (n_keep: 13055>= n_ctx: 4096)."},
    {"object": "error", "message": "max_tokens must be at least 1, got -186.", "type": "BadRequestError", "code": 400},
    {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}},
    {"error": {"code": 400, "type": "exceed_context_size_error", "message": "too many"}},
    {"error": {"code": "400", "message": "it exceeds the available context size"}},
    # It names fields, of which none is at fault.
    {"error": {"message": "max_tokens (max_completion_tokens) is too large: the maximum context length is 4, top_p 1"}},
]


@pytest.mark.parametrize("body", OVERFLOWS, ids=str)
@pytest.mark.parametrize("status", [400, 200, 500])
def test_a_chat_that_is_too_long_is_refused_alone(body: Any, status: int) -> None:
    overflow = Reply(status, json.dumps(body))
    replies = [overflow, *[completion(PLAN)] * 2, *[overflow] * 2]  # nothing was answered before that tells the fault
    with engine_asking(lambda _, before: replies[before], concurrency=1, tries=1) as (server, model):
        if status == 500 and not re.search("context.size", str(body), re.IGNORECASE):  # which may have any status
            with pytest.raises(RecipeError):
                model.outcomes(CHATS, 1, SAMPLING)
            return
        found = model.outcomes(CHATS, 1, SAMPLING)
        assert [type(one) for [one] in found] == [Refusal, Answer, Answer]
        assert len(server.requests) == 3
        [(_, last)] = model.stream_all([ModelRequest(CHATS[0], SAMPLING)])
        assert isinstance(last, Refusal)


HELP: dict[str, tuple[int, Any, str]] = {
    "limit of tokens": (400, {"error": {"message": "max_tokens is not taken here"}}, "max_completion_tokens"),
    "large limit": (
        400,
        {"error": {"message": "`max_tokens` must be less than or equal to `8192`"}},
        "sampling.max_tokens",
    ),
    "temperature": (400, openai(["temperature"])[1], "sampling.temperature"),
    "temperature, not at all": (400, openai(["temperature"])[1], "model.extra_body"),
    "clip": (400, {"error": "unknown variant `video_url`"}, "model.clips=images"),
    "context": (400, {"error": {"message": "maximum context length is 10 tokens"}}, "context"),
    "no model, 404": (404, {"error": {"message": "The model `m` does not exist"}}, "model's name"),
    "no model, 400": (400, {"error": {"message": "model 'm' not found", "type": "x"}}, "model's name"),
    "key": (401, [{"error": {"code": 401, "message": "no key"}}], "model.key_variable"),
    "limit": (429, {"error": "wait"}, "model.concurrency"),
    "credit": (402, {"error": {"message": "Insufficient credits", "code": 402}}, "balance"),
    "seed": (400, {"error": {"message": "the field seed is unknown"}}, "model.extra_body"),
    "form": (400, {"error": {"message": "response_format is unknown"}}, "model.structured"),
}


@pytest.mark.parametrize("kind", HELP)
def test_a_remedy_names_what_helps(kind: str) -> None:
    status, body, words = HELP[kind]
    answering = engine_asking(lambda *_: Reply(status, json.dumps(body)), tries=1)
    with answering as (_, model), pytest.raises(RecipeError) as error:
        model.answers(CHATS, 1, SAMPLING)
    remedy = str(error.value).rpartition("; ")[2]
    assert words in remedy
    assert set(re.findall(r"--[\w-]+", remedy)) <= {"--set"}  # options differ by command
    for key in re.findall(r"\b(?:model|sampling|phi|judge)\.\w+", remedy):
        having = {name for name in (("plan",), ("perceive",), ("evaluate", "judge")) if key in keys_of(*name)}
        assert having, key
        assert not key.startswith("model.") or having >= {("plan",), ("perceive",)}, key


def keys_of(*words: str) -> dict[str, str]:
    """The keys that `--set` of a command takes."""
    command: Any = get_command(app)
    for word in words:
        command = command.get_command(Context(command), word)
    keys: dict[str, str] = command.callback.setting_keys()
    return keys


@pytest.mark.parametrize("at_once", [1, 5])
@pytest.mark.parametrize("status", [429, 503])
def test_a_wait_is_told_with_its_reason_and_its_length(
    status: int, at_once: int, caplog: pytest.LogCaptureFixture
) -> None:
    def busy(body: dict[str, Any], before: int) -> Reply:
        return Reply(status, '{"error": "busy"}') if before < 2 else standing_in(HOSTS["vLLM"])(body, before)

    with engine_asking(busy, concurrency=at_once, tries=4) as (_, model):
        model.outcomes(CHATS, 1, SAMPLING)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    waits = [line for line in told if f"{status}" in line]
    assert len(waits) == 1  # for all requests that wait together
    assert re.search(r"\d s, then try 2 of 4", waits[0])


GOOD = json.dumps(dict.fromkeys(CRITERIA, 4))
CASE = Case(
    Example("e", "coin", "v", "pot a plant", ("open the bag",), ("fill the pot", "plant the bulb"), 1), ("water it",)
)


def no_json(generated: str | None, status: int = 400) -> Reply:
    error = {"message": "Failed to generate JSON.", "type": "invalid_request_error", "code": "json_validate_failed"}
    more = {} if generated is None else {"failed_generation": generated}
    body: dict[str, Any] = {"error": error | more}
    if status == 200:
        body = {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": json.dumps(body)}}}
    return Reply(status, json.dumps(body))


@pytest.mark.parametrize("status", [400, 200])
@pytest.mark.parametrize("generated", [GOOD[:-1], GOOD, "", None, "seed the lawn, response_format", "max_tokens"])
def test_what_the_host_finds_no_json_is_asked_for_again(generated: str | None, status: int) -> None:
    def answer(body: dict[str, Any], before: int) -> Reply:
        return no_json(generated, status) if before == 0 else completion(GOOD)

    with engine_asking(answer) as (server, model):
        [row] = LlmJudge(model, "m", JudgeConfig()).judge([CASE])
        assert isinstance(row.outcome, Verdict)
        first, second = server.requests
        assert first["seed"] != second["seed"]
        assert {**first, "seed": 0} == {**second, "seed": 0}
        assert model.ledger.retries == 0
    with engine_asking(lambda *_: no_json(generated, status)) as (server, model):
        [row] = LlmJudge(model, "m", JudgeConfig(reasks=2)).judge([CASE])
        assert not isinstance(row.outcome, Verdict)
        assert len(server.requests) == 3
        [[lasting]] = model.outcomes(CHATS[:1], 1, SAMPLING)
        assert isinstance(lasting, Answer)
        assert "Failed to generate JSON" in unanswered(lasting)
