"""The service's endpoints: each protocol's numbers are the scorer's, and each bad request is told in one sentence."""

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from prompt_scorer import PromptScorer
from pydantic import SecretStr

from recipe.errors import ComputeError
from recipe.types import Hit, Reward

pytest.importorskip("fastapi")
testclient = pytest.importorskip("starlette.testclient")
create_app = pytest.importorskip("recipe_apps.service.app").create_app

PROMPT = {"goal": "make tea", "history": ["boil water"]}


def number(goal: str, history: Sequence[str], plan: Sequence[str]) -> float:
    """Another one for every sample."""
    return zlib.crc32(json.dumps([goal, list(history), list(plan)]).encode()) / 2**32


class Oracle(PromptScorer):
    """Fails on one word, and gives no number on another."""

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        if any("unspeakable" in step for plan in continuations for step in plan):
            raise ComputeError("The encoder failed on 1 steps: down.")
        if any("bug" in step for plan in continuations for step in plan):
            raise ZeroDivisionError
        return [self._reward(number(goal, history, plan), plan) for plan in continuations]

    def _reward(self, total: float, plan: Sequence[str]) -> Reward:
        total = float("nan") if "nothing" in plan else total
        gated = not plan
        return Reward(total, 0.25, 0.5, 0.1, gated, len(plan), (Hit(7, 0.5),), 7, coverage=0.75, parts={"gain": 0.2})


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with testclient.TestClient(create_app(Oracle()), raise_server_exceptions=False) as client:
        yield client


def refused(answer: Any, status: int, code: str) -> str:
    assert answer.status_code == status, answer.text
    assert answer.json().keys() == {"error"}
    error = answer.json()["error"]
    assert error["code"] == code
    assert error["message"].endswith((".", "?"))
    return str(error["message"])


def test_one_plan_in_every_form(client: Any) -> None:
    expected = number("make tea", ["boil water"], ["pour", "wait"])
    for form in ({"continuation": ["pour", "wait"]}, {"completion": "Then:\n1. pour\n2) wait\n"}):
        reward = client.post("/score", json=PROMPT | form).json()["reward"]
        assert reward == {
            "total": expected,
            "aligned_history": 0.25,
            "aligned_full": 0.5,
            "rho": 0.1,
            "gated": False,
            "steps": 2,
            "coverage": 0.75,
            "parts": {"gain": 0.2},
            "best_narration": 7,
            "pool": [{"narration": 7, "score": 0.5}],
        }


@pytest.mark.parametrize("text", ["倒水 🫖", "\u202eabc", "a\x00b"])
def test_any_language_is_a_text(client: Any, text: str) -> None:
    body = {"goal": text, "history": [text], "continuation": [text]}
    assert client.post("/score", json=body).json()["reward"]["total"] == number(text, [text], [text])


@pytest.mark.parametrize(
    ("change", "status", "code", "told"),
    [
        ({"gaol": "x"}, 422, "unknown_field", "Unknown field 'gaol'; did you mean 'goal'?"),
        ({"goal": None}, 422, "invalid_field", "Field 'goal': input should be a valid string."),
        ({"history": "boil"}, 422, "invalid_field", "Field 'history': input should be a valid array."),
        ({"history": ["boil", 3]}, 422, "invalid_field", "Field 'history.1': input should be a valid string."),
        ({"history": ["boil", " \n"]}, 422, "invalid_field", "The history's step 2 is blank"),
        ({"goal": ""}, 422, "invalid_field", "The goal is blank"),
        ({"continuation": [""]}, 422, "invalid_field", "The plan's step 1 is blank"),
        ({"continuation": None}, 422, "invalid_field", "exactly one of"),
        ({"completion": "1. pour"}, 422, "invalid_field", "exactly one of"),
        ({"continuation": ["pour"] * 10_000}, 422, "too_many_steps", "The plan has 10000 steps"),
        ({"history": ["pour"] * 201}, 422, "too_many_steps", "The history has 201 steps"),
        ({"continuation": ["x" * 10_001]}, 422, "too_long", "The plan's step 1 has 10001 characters"),
        ({"continuation": None, "continuations": [["a"], ["b", ""]]}, 422, "invalid_field", "Plan 2's step 2"),
        ({"continuation": None, "continuations": [[]] * 4097}, 413, "too_many_plans", "holds 4097 plans"),
        ({"continuation": ["unspeakable"]}, 503, "compute_failed", "The encoder failed"),
        ({"continuation": ["nothing"]}, 503, "compute_failed", "not a finite number"),
        ({"continuation": ["bug"]}, 500, "internal", "see its log"),
    ],
)
def test_a_request_that_ends_without_a_reward(
    client: Any, change: dict[str, Any], status: int, code: str, told: str
) -> None:
    answer = client.post("/score", json=PROMPT | {"continuation": ["pour"]} | change)
    assert told in refused(answer, status, code)
    assert ("Retry-After" in answer.headers) == (status == 503)


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("/score", {"goal": "a\ud800", "history": [], "completion": "a"}, 400, "'goal'"),
        ("/score", PROMPT | {"continuations": [["a"], ["b", "\udc00"]]}, 400, "'continuations.1.1'"),
        ("/score", PROMPT | {"continuation": [], "x\udfff": 1}, 400, "'x\\udfff'"),
        ("/score", "\ud800", 400, "The body"),
        ("/get_reward", {"query": ["a", "b\udbff"], "prompts": ["a", "b"], "labels": ["{}", "{}"]}, 400, "'query.1'"),
        ("/get_reward", {"query": ["a"], "prompts": ["a"], "labels": ['{"goal": "\\ud800"}']}, 422, "'labels.0.goal'"),
        ("/verify", PROMPT | {"response": {"output": [{"content": "\ud800"}]}}, 400, "'response.output.0.content'"),
    ],
)
def test_half_a_character_is_told_with_its_field(client: Any, path: str, body: Any, status: int, field: str) -> None:
    code = "invalid_json" if status == 400 else "invalid_field"
    assert field in refused(client.post(path, content=json.dumps(body).encode()), status, code)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"goal": "\xff"}', 400, "not_utf8"),
        (json.dumps(PROMPT).encode("utf-16"), 400, "not_utf8"),
        (b"", 400, "invalid_json"),
        (b'{"goal": "\\ud800", "history": [], "completion": "a"}', 400, "invalid_json"),
        (b"[]", 422, "invalid_field"),
        (b"{}", 422, "missing_field"),
        (b'{"goal": "' + b"x" * (4 << 20) + b'"}', 413, "body_too_large"),
    ],
)
@pytest.mark.parametrize("path", ["/score", "/get_reward", "/verify"])
def test_a_body_that_cannot_be_read(client: Any, path: str, body: bytes, status: int, code: str) -> None:
    refused(client.post(path, content=body), status, code)


def test_a_large_body_without_a_stated_length_is_left_unread(client: Any) -> None:
    def chunks() -> Iterator[bytes]:
        yield from (b"x" * 100_000 for _ in range(50))

    refused(client.post("/score", content=chunks()), 413, "body_too_large")


def openrlhf(prompt: str, response: str, label: object) -> dict[str, list[str]]:
    written = label if isinstance(label, str) else json.dumps(label)
    return {"query": [prompt + response], "prompts": [prompt], "labels": [written]}


CHAT = "<|im_start|>user\nGoal: make tea<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("response", "plan"),
    [
        ("1. pour\n2. wait</s><pad><pad>", ["pour", "wait"]),
        ("1. 倒水<｜end▁of▁sentence｜>", ["倒水"]),
        ("<|im_end|><|endoftext|>", []),
        ("!!! ...", []),
    ],
)
def test_openrlhf_response_without_prompt_and_marks(client: Any, response: str, plan: list[str]) -> None:
    label = PROMPT | {"example_id": "a/1"}
    answer = client.post("/get_reward", json=openrlhf(CHAT, response, label))
    assert answer.status_code == 200, answer.text
    expected = number("make tea", ["boil water"], plan)
    logged = {"aligned_history": 0.25, "aligned_full": 0.5, "rho": 0.1, "coverage": 0.75, "gain": 0.2}
    logged |= {"gated": float(not plan), "steps": float(len(plan))}
    assert answer.json() == {
        "rewards": [expected],
        "scores": [expected],
        "extra_logs": {name: [value] for name, value in logged.items()},
    }


def test_openrlhf_empty_lists_and_several_samples(client: Any) -> None:
    empty = client.post("/get_reward", json={"query": [], "prompts": [], "labels": []})
    assert (empty.status_code, empty.json()) == (200, {"rewards": [], "scores": [], "extra_logs": {}})
    one, two = openrlhf("a:", "- pour", PROMPT), openrlhf("b:", "- wait", PROMPT | {"goal": "bake"})
    rewards = client.post("/get_reward", json={name: one[name] + two[name] for name in one}).json()["rewards"]
    assert rewards == [number("make tea", ["boil water"], ["pour"]), number("bake", ["boil water"], ["wait"])]


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        ({"labels": ["make tea"]}, "invalid_field", "Field 'labels.0' is not valid JSON"),
        ({"labels": ["[]"]}, "invalid_field", "Field 'labels.0': input should be an object"),
        ({"labels": ['{"goal": "tea"}']}, "missing_field", "Field 'labels.0.history' is missing"),
        ({"labels": ['{"goal": "tea", "history": "x"}']}, "invalid_field", "Field 'labels.0.history'"),
        ({"labels": []}, "invalid_field", "1 queries, 1 prompts and 0 labels"),
        ({"prompts": ["another"]}, "invalid_field", "does not begin with its prompt"),
        ({"query": ["user: " + "\n".join(f"{n}. a" for n in range(201))]}, "too_many_steps", "201 steps"),
        ({"query": ["user: - unspeakable"]}, "compute_failed", "The encoder failed"),
        (
            {
                "query": ["user: 1. a"] * 2,
                "prompts": ["user: "] * 2,
                "labels": [json.dumps(PROMPT), '{"goal": " ", "history": []}'],
            },
            "invalid_field",
            "Sample 1: ",
        ),
    ],
)
def test_openrlhf_request_that_cannot_be_used(client: Any, change: dict[str, Any], code: str, told: str) -> None:
    status = 503 if code == "compute_failed" else 422  # a failure is never a number
    assert told in refused(client.post("/get_reward", json=openrlhf("user: ", "1. a", PROMPT) | change), status, code)


def rollout(*texts: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}
    reasoning = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "1. think"}]}
    response = {"id": "x", "object": "response", "output": [reasoning, message], "model": "m", "tools": []}
    return {"responses_create_params": {"input": [{"role": "user", "content": "?"}]}, "response": response, **fields}


def test_nemo_gym_echoes_the_rollout_with_its_reward(client: Any) -> None:
    asked = rollout("1. pour\n", "2. wait", **PROMPT, task_id=3)
    answer = client.post("/verify", json=asked | {"reward": 9, "_ng_failure_class": "judge_failed"}).json()
    components = answer.pop("reward_components")
    assert answer == asked | {"reward": number("make tea", ["boil water"], ["pour", "wait"])}
    assert components["gain"] == 0.2
    assert all(isinstance(value, float) for value in components.values())


POURED = rollout("1. pour", **PROMPT)
USER, CALL = {"type": "message", "role": "user", "content": "1. wait"}, {"type": "function_call_output", "output": "1."}


@pytest.mark.parametrize(
    ("output", "plan"),
    [
        ([*POURED["response"]["output"], USER], ["pour"]),
        ([*POURED["response"]["output"], CALL], ["pour"]),
        ([], []),
        ([{"type": "function_call", "name": "f", "arguments": "{}"}], []),
    ],
)
def test_nemo_gym_reads_the_assistants_last_message(client: Any, output: list[Any], plan: list[str]) -> None:
    asked = POURED | {"response": POURED["response"] | {"output": output}}
    assert client.post("/verify", json=asked).json()["reward"] == number("make tea", ["boil water"], plan)


def test_nemo_gym_prompt_in_the_metadata(client: Any) -> None:
    asked = rollout("1. pour")
    asked["responses_create_params"]["metadata"] = PROMPT | {"other": "x"}
    assert client.post("/verify", json=asked).json()["reward"] == number("make tea", ["boil water"], ["pour"])


@pytest.mark.parametrize(("word", "code"), [("unspeakable", "compute_failed"), ("bug", "internal")])
def test_nemo_gym_failure_has_a_class(client: Any, word: str, code: str) -> None:
    answer = client.post("/verify", json=rollout(f"- {word}", **PROMPT))
    assert answer.status_code == 200
    body = answer.json()
    assert (body["_ng_failure_class"], body["mask_sample"]) == ("judge_failed", True)
    assert body["_ng_failure_judge_error"].startswith(f"{code}: ")
    again = rollout("- pour", **PROMPT)
    assert "_ng_failure_class" not in client.post("/verify", json=body | again).json()


def test_nemo_gym_rollout_without_its_prompt_is_told_of(client: Any) -> None:
    assert "'goal'" in refused(client.post("/verify", json=rollout("- pour")), 422, "missing_field")
    assert "'history'" in refused(client.post("/verify", json=rollout("- pour", goal="tea")), 422, "missing_field")
    assert client.post("/seed_session", json={"anything": 1}).json() == {}
    assert client.get("/reverify_mode").json() == "stateless"


def test_state(client: Any) -> None:
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 200
    info = client.get("/info").json()
    assert (info["limits"]["max_steps"], info["corpus"]) == (200, None)
    assert "/score" in client.get("/openapi.json").json()["paths"]
    refused(client.get("/nowhere"), 404, "not_found")
    refused(client.get("/score"), 405, "method_not_allowed")


def test_a_service_that_drains_is_not_ready_and_still_answers() -> None:
    app = create_app(Oracle())
    with testclient.TestClient(app) as client:
        app.state.service.draining = True
        assert "Draining" in refused(client.get("/readyz"), 503, "not_ready")
        assert client.post("/score", json=PROMPT | {"continuation": []}).status_code == 200
        assert client.get("/healthz").status_code == 200


def metrics(client: Any) -> dict[str, float]:
    lines = [line for line in client.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_metrics_count_what_happens() -> None:
    with testclient.TestClient(create_app(Oracle())) as client:
        for steps in (["pour"], [], ["unspeakable"]):
            client.post("/score", json=PROMPT | {"continuation": steps})
        client.post("/score", json=PROMPT)
        client.get("/no/such/path")
        found = metrics(client)
    name = "recipe_reward_"
    assert found[f'{name}requests_total{{endpoint="/score",status="200"}}'] == 2
    assert found[f'{name}requests_total{{endpoint="/score",status="503"}}'] == 1
    assert found[f'{name}requests_total{{endpoint="/score",status="422"}}'] == 1
    assert found[f'{name}requests_total{{endpoint="other",status="404"}}'] == 1
    assert found[f'{name}failures_total{{class="compute_failed"}}'] == 1
    assert found[f'{name}failures_total{{class="invalid_field"}}'] == 1
    assert (found[f"{name}plans_total"], found[f"{name}gated_total"], found[f"{name}empty_total"]) == (2, 1, 1)
    assert found[f"{name}coverage_count"] == 2
    assert found[f"{name}batch_plans_count"] == 3
    assert (found[f"{name}queue_plans"], found[f"{name}ready"]) == (0, 1)


BASIC = base64.b64encode(b"any:s3cret").decode()


def test_a_token_is_asked_for() -> None:
    body = PROMPT | {"continuation": ["pour"]}
    with testclient.TestClient(create_app(Oracle(), token=SecretStr("s3cret"))) as client:
        for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}, {"Authorization": "Basic ?"}):
            answer = client.post("/score", json=body, headers=wrong)
            refused(answer, 401, "unauthorized")
            assert "WWW-Authenticate" in answer.headers
        for right in ("Bearer s3cret", "bearer s3cret", f"Basic {BASIC}"):
            assert client.post("/score", json=body, headers={"Authorization": right}).status_code == 200
        assert client.get("/metrics").status_code == client.get("/info").status_code == 401
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200


LONG = {"lines": "1. a\n" * 20_001, "line ends of other kinds": "a\x85" * 20_001, "characters": "1. " + "a" * 200_000}


def completions(text: str) -> list[tuple[str, Any]]:
    """A completion as each protocol sends it."""
    label = json.dumps(PROMPT)
    message = {"output": [{"content": [{"type": "output_text", "text": text}]}]}
    return [
        ("/score", PROMPT | {"completion": text}),
        ("/get_reward", {"query": [f"prompt {text}"], "prompts": ["prompt"], "labels": [label]}),
        ("/verify", {"responses_create_params": {}, "response": message, **PROMPT}),
    ]


@pytest.fixture
def unparsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No completion may be parsed."""
    monkeypatch.setattr("recipe_apps.service.messages.plan_steps", lambda _: pytest.fail("it was parsed"))


@pytest.mark.usefixtures("unparsed")
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_completion_that_is_too_long_is_refused_before_it_is_parsed(client: Any, text: str) -> None:
    for path, body in completions(text):
        refused(client.post(path, json=body), 422, "too_long")


HEAVY = {
    "many texts": ("too_many_values", 413, {"history": ["a"] * 130_000, "more": ["b"] * 130_000}),
    "many lists": ("too_many_values", 413, {"more": [[]] * 260_000}),
    "many fields": ("unknown_field", 422, {f"f{n}": 0 for n in range(20_000)}),
    "many items of the wrong kind": ("invalid_field", 422, {"history": [0] * 200_000}),
}


@pytest.mark.parametrize("kind", HEAVY)
def test_bodies_that_are_slow_to_read_are_refused_first(kind: str) -> None:
    code, status, change = HEAVY[kind]
    body = json.dumps({"goal": "tea", "history": ["a"], "continuation": ["b"]} | change)
    with testclient.TestClient(create_app(Oracle())) as client:
        refused(client.post("/score", content=body), status, code)


@pytest.mark.usefixtures("unparsed")
def test_too_many_plans_are_refused_before_any_is_looked_at(client: Any) -> None:
    body = {"query": ["p a"] * 4097, "prompts": ["p"] * 4097, "labels": ["no label"] * 4097}
    refused(client.post("/get_reward", json=body), 413, "too_many_plans")


def test_a_prompt_of_thousands_of_words_is_found_in_another_spacing(client: Any) -> None:
    words = [f"word{n}" for n in range(10_000)]
    body = {"prompts": [" ".join(words)], "query": ["\n".join(words) + " 1. pour"], "labels": [json.dumps(PROMPT)]}
    expected = number("make tea", ["boil water"], ["pour"])
    assert client.post("/get_reward", json=body).json()["rewards"] == [expected]
    refused(client.post("/get_reward", json=body | {"query": ["word0 word2 1. pour"]}), 422, "invalid_field")
