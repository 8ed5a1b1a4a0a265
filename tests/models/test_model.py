"""Cache, ledger and budget around any engine: no answer is paid for twice, and no more is spent than allowed."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.asking import pieces_of, texts_of

from recipe.artifacts import JsonObject
from recipe.config import ModelConfig, SamplingConfig
from recipe.errors import BudgetSpent, InputError
from recipe.models.model import Model, open_model
from recipe.models.protocol import (
    Answer,
    Chat,
    Engine,
    ModelRequest,
    OnAnswer,
    Refusal,
    Refusals,
    Stopped,
    WrittenPieces,
)
from recipe.progress import SILENT, Progress
from recipe.types import Frames

SAMPLING = SamplingConfig(temperature=1.0, max_tokens=8, batch_size=2)


def chats(*names: str) -> list[Chat]:
    return [[{"role": "user", "content": name}] for name in names]


class Echo(Engine):
    """Answers with its chat and the sample, 3 tokens for 2, one request after the other; refuses what begins with
    `long`, and breaks down at `fail`."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def answer(
        self,
        requests: Sequence[ModelRequest],
        progress: Progress = SILENT,
        *,
        on_answer: OnAnswer | None = None,
        refusals: Refusals = "return",
    ) -> list[Answer | Refusal]:
        found: list[Answer | Refusal] = []
        for place, request in enumerate(requests):
            name = request.chat[-1]["content"]
            if name == "fail":
                raise InputError("it fails.")
            self.asked.append(name)
            if name.startswith("long"):
                found.append(Refusal("too long."))
                continue
            answer = Answer(f"{name} {request.sample}", 2, 3, 0.5, logprob=-0.5 if request.logprobs else None)
            found.append(answer)
            if on_answer:
                on_answer(place, answer)
        return found

    def stream_all(self, requests: Sequence[ModelRequest], stopped: Stopped = lambda _: False) -> WrittenPieces:
        for place, request in enumerate(requests):
            self.asked.append(request.chat[-1]["content"])
            yield from ((place, "one "), (place, "two"), (place, Answer("one two", 2, 3)))


def keeping(engine: Engine, folder: Path, **identity: object) -> Model:
    return Model(engine, cache=folder, identity=identity)


def bounded(engine: Engine, cache: Path | None, **bounds: Any) -> Model:
    """The engine with the budget and the ledger that settings give a model."""
    settings = ModelConfig(model="m", cache=Path("none"), replay=True, **bounds)
    with open_model(settings) as opened:
        return Model(engine, cache=cache, budget=opened.budget, ledger=opened.ledger)


def test_an_answer_in_the_cache_is_not_asked_for(tmp_path: Path) -> None:
    echo = Echo()
    first = keeping(echo, tmp_path, model="m").outcomes(chats("a", "b", "a"), 2, SAMPLING)
    assert [[one.text for one in group] for group in first] == [["a 0", "a 1"], ["b 0", "b 1"], ["a 0", "a 1"]]
    assert echo.asked == ["a", "a", "b", "b"]
    model = keeping(echo, tmp_path, model="m")
    again = model.outcomes(chats("b", "a", "c"), 2, SAMPLING)
    assert again[0] == [one._replace(cached=True) for one in first[1]]
    assert [[one.cached for one in group] for group in again] == [[True] * 2, [True] * 2, [False] * 2]
    assert echo.asked[4:] == ["c", "c"]
    assert texts_of(model, chats("c"), 1, SAMPLING) == [["c 0"]]
    assert (model.ledger.answers, model.ledger.cached, model.ledger.tokens_in) == (2, 5, 4)
    assert len(echo.asked) == 6


def test_a_missing_sample_alone_is_asked_for(tmp_path: Path) -> None:
    echo = Echo()
    model = keeping(echo, tmp_path)
    model.outcomes(chats("a"), 1, SAMPLING)
    [answers] = model.outcomes(chats("a"), 3, SAMPLING)
    assert [(one.text, one.cached) for one in answers] == [("a 0", True), ("a 1", False), ("a 2", False)]
    assert echo.asked == ["a"] * 3


def test_answers_are_kept_under_all_that_makes_them(tmp_path: Path) -> None:
    echo = Echo()
    changes: list[dict[str, Any]] = [
        {},
        {"identity": {"model": "n"}},
        {"sampling": SAMPLING.model_copy(update={"seed": 1})},
        {"sampling": SAMPLING.model_copy(update={"temperature": 0.5})},
        {"schema": {"name": "plan", "schema": {}}},
        {"logprobs": True},
    ]
    for number, change in enumerate(changes, start=1):
        asked = {"identity": {"model": "m"}, "sampling": SAMPLING} | change
        model = Model(echo, cache=tmp_path, identity=asked.pop("identity"))
        for _ in range(2):
            [[answer]] = model.outcomes(chats("a"), 1, **asked)
            assert len(echo.asked) == number, change
        assert answer.logprob == (-0.5 if "logprobs" in change else None)


def test_keys_in_the_cache_change_with_intent_only(tmp_path: Path) -> None:
    """For an endpoint, with a clip, and for a local model: another key makes all that was paid for worthless."""
    pytest.importorskip("openai")
    clip = Frames(np.zeros((2, 4, 6, 3), np.uint8), np.array([0.0, 0.5]), 2.0)
    sampling, schema = SamplingConfig(temperature=0.5, max_tokens=7, seed=3), {"name": "plan", "schema": {}}
    [chat] = chats("How do I make tea?")
    shown = [{"role": "user", "content": [{"type": "video", "video": clip}, {"type": "text", "text": "What?"}]}]
    settings = ModelConfig(model="m", endpoint="http://h/v1", max_pixels=100, cache=tmp_path, replay=True)
    with open_model(settings) as model:
        keys = [model.key(ModelRequest(chat, sampling, 2, schema, True)), model.key(ModelRequest(shown, sampling))]
    assert keys == [
        "f1f57488ba91d45c69480a24c6867624f2972630691325c2e30cacdeccb525c4",
        "1b203b9d1d4a397a69951ed8892b9f3608b7fd9c74b2533483248d11464dc1c8",
    ]
    with open_model(ModelConfig(model="m", cache=tmp_path, replay=True)) as model:
        keys = [model.key(ModelRequest(chat, sampling, 2, schema, True)), model.key(ModelRequest(chat, sampling))]
    assert keys == [
        "3ce261939eff3b8abc855a93c3232dc1de032c4d56a3ce046c8f4fc5ac3cfdf3",
        "7307528c090a9668cb71517a6212e3f76c24d0c15e2f311ba6a4fb1cec30029e",
    ]


def test_a_replay_answers_from_the_cache_alone(tmp_path: Path) -> None:
    settings = ModelConfig(model="m", cache=tmp_path, replay=True)
    identity: JsonObject = {"model": "m", "revision": None}
    [[answer]] = Model(Echo(), cache=tmp_path, identity=identity).outcomes(chats("a"), 1, SAMPLING)
    with open_model(settings) as model:
        assert model.outcomes(chats("a"), 1, SAMPLING) == [[answer._replace(cached=True)]]
        with pytest.raises(InputError, match="0 of 1 completions"):
            model.outcomes(chats("b"), 1, SAMPLING)
    with pytest.raises(InputError, match="--cache"):
        open_model(settings.model_copy(update={"cache": None}))


def test_a_failure_keeps_what_came_before_and_a_refusal_is_not_kept(tmp_path: Path) -> None:
    echo = Echo()
    model = keeping(echo, tmp_path)
    with pytest.raises(InputError, match="it fails"):
        model.outcomes(chats("a", "b", "fail", "c"), 1, SAMPLING)
    assert echo.asked == ["a", "b"]
    for _ in range(2):
        assert model.outcomes(chats("long", "a"), 1, SAMPLING)[0] == [Refusal("too long.")]
    assert echo.asked == ["a", "b", "long", "long"]
    with pytest.raises(InputError, match="too long"):
        texts_of(model, chats("long"), 1, SAMPLING)


class Slow(Echo):
    """Waits before it answers, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()

    def answer(self, requests: Sequence[ModelRequest], *more: object, **options: object) -> list[Answer | Refusal]:
        self.begun.set()
        assert self.go.wait(300)
        return super().answer(requests, *more, **options)  # type: ignore[arg-type]


def test_threads_that_ask_the_same_pay_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    model = keeping(slow, tmp_path)
    found: dict[str, list[list[str]]] = {}
    assert model.store is not None
    look_up = model.store.answer

    def after_the_first(key: str) -> Answer | None:
        known = look_up(key)
        if threading.current_thread() is threads[1]:  # the first answers between this look-up and what follows it
            slow.go.set()
            threads[0].join(300)
        return known

    def ask(*names: str) -> None:
        found[names[-1]] = texts_of(model, chats(*names), 1, SAMPLING)

    threads = [threading.Thread(target=ask, args=names) for names in (("a", "b"), ("b", "a", "c"))]
    monkeypatch.setattr(model.store, "answer", after_the_first)
    threads[0].start()
    assert slow.begun.wait(300)
    threads[1].start()
    for thread in threads:
        thread.join(300)
    assert found == {"b": [["a 0"], ["b 0"]], "c": [["b 0"], ["a 0"], ["c 0"]]}
    assert sorted(slow.asked) == ["a", "b", "c"]


def test_no_call_exceeds_the_budget() -> None:
    echo = Echo()
    model = bounded(echo, None, max_calls=4)
    model.outcomes(chats("a"), 3, SAMPLING)
    with pytest.raises(BudgetSpent, match="2 more answers would exceed the budget, of which 3 of 4 calls are spent; "):
        model.outcomes(chats("b", "c"), 1, SAMPLING)
    assert echo.asked == ["a"] * 3
    assert texts_of(model, chats("b"), 1, SAMPLING) == [["b 0"]]
    with pytest.raises(BudgetSpent, match=r"1 more answer would exceed .* 4 of 4 calls"):
        list(pieces_of(model, chats("c")[0], SAMPLING))
    streamed = bounded(echo, None, max_calls=1)
    with pytest.raises(BudgetSpent, match=r"2 more answers would exceed .* 0 of 1 calls"):
        list(streamed.stream_all([ModelRequest(chat, SAMPLING) for chat in chats("d", "e")]))
    assert echo.asked == [*"aaab"]
    assert model.budget.to_json() == {"calls": 4, "tokens": None, "calls_spent": 4, "tokens_spent": 20}


def test_kept_answers_are_free_and_the_next_run_goes_on(tmp_path: Path) -> None:
    names = [f"q{n}" for n in range(10)]
    echo = Echo()
    for run in range(1, 4):
        model = bounded(echo, tmp_path, max_calls=4)
        if run < 3:
            with pytest.raises(BudgetSpent):
                model.outcomes(chats(*names), 1, SAMPLING)
            assert len(echo.asked) == 4 * run
        else:
            assert len(model.outcomes(chats(*names), 1, SAMPLING)) == 10
            assert model.budget.calls_spent == 2
    assert echo.asked == names
    spent = bounded(echo, tmp_path, max_calls=0)
    assert texts_of(spent, chats(*names), 1, SAMPLING) == [[f"{name} 0"] for name in names]


def test_a_refusal_gives_its_call_back_and_what_came_before_a_failure_was_paid_for() -> None:
    model = bounded(Echo(), None, max_calls=9)
    model.outcomes(chats("long", "a"), 1, SAMPLING)
    assert model.budget.calls_spent == 1
    with pytest.raises(InputError, match="it fails"):
        model.outcomes(chats("a", "b", "fail", "c"), 1, SAMPLING)
    assert model.budget.calls_spent == 3


def test_tokens_are_bounded_up_to_a_group(tmp_path: Path) -> None:
    model = bounded(Echo(), None, max_tokens_total=6)
    model.outcomes(chats("a", "b"), 1, SAMPLING)
    with pytest.raises(BudgetSpent, match="10 of 6 tokens are spent"):
        model.outcomes(chats("c"), 1, SAMPLING)
    names = [f"q{n}" for n in range(100)]
    with pytest.raises(BudgetSpent, match="160 of 6 tokens"):
        bounded(Echo(), tmp_path, max_tokens_total=6).outcomes(chats(*names), 1, SAMPLING)


def test_a_flush_waits_for_the_one_under_way(tmp_path: Path) -> None:
    store = keeping(Echo(), tmp_path).store
    assert store is not None
    reached, held = threading.Event(), threading.Event()
    with patch("os.fsync", lambda _: (reached.set(), held.wait(60))):
        store.keep("00", {})  # the first entry is brought to the disk at once, by a thread
        assert reached.wait(60)
        waiting = threading.Thread(target=store.flush)
        waiting.start()
        waiting.join(0.2)
        still = waiting.is_alive()
        held.set()
        waiting.join(60)
    assert (still, waiting.is_alive()) == (True, False)


@given(st.integers(0, 20), st.integers(0, 12), st.booleans())
def test_as_many_as_possible_are_reserved(wanted: int, calls: int, whole: bool) -> None:
    budget = bounded(Echo(), None, max_calls=calls).budget
    if wanted and calls < (wanted if whole else 1):
        with pytest.raises(BudgetSpent):
            budget.reserve(wanted, whole)
        assert budget.calls_spent == 0
    else:
        assert budget.reserve(wanted, whole) == budget.calls_spent == min(wanted, calls)


def test_a_ledger_claims_no_sum_of_tokens_that_were_not_reported() -> None:
    ledger = bounded(Echo(), None, price_in=1.0, price_out=1.0).ledger
    ledger.add(Answer("a", 10, 5))
    assert ledger.to_json()["cost"] == 15e-6
    ledger.add(Answer("b", cached=True))  # it was paid for earlier
    assert ledger.to_json()["tokens_in"] == 10
    ledger.add(Answer("c"))
    told = ledger.to_json()
    assert (told["answers"], told["cached"]) == (2, 1)
    assert [told[name] for name in ("tokens_in", "tokens_out", "cost")] == [None] * 3
