"""Engines around engines: what was answered is not asked again, and what may be spent is not exceeded."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.artifacts import JsonObject
from recipe.config import SamplingConfig
from recipe.errors import BudgetSpent, InputError
from recipe.models.protocol import Answer, Chat, Refusal
from recipe.models.wrappers import Budget, BudgetEngine, Keeps, KeptEngine
from recipe.progress import SILENT, Progress

SAMPLING = SamplingConfig(temperature=1.0, max_tokens=8, batch_size=2)


def chats(*names: str) -> list[Chat]:
    return [[{"role": "user", "content": name}] for name in names]


class Teller:
    """Says what it is asked and the sample, 3 tokens for 2; refuses what begins with `long`."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def generate(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[str]]:
        raise NotImplementedError

    def outcomes(
        self,
        chats: Sequence[Chat],
        count: int,
        sampling: SamplingConfig,
        progress: Progress = SILENT,
        *,
        schema: JsonObject | None = None,
        logprobs: bool = False,
    ) -> list[list[Answer | Refusal]]:
        names = [chat[-1]["content"] for chat in chats]
        if "fail" in names:
            raise InputError("it fails.")
        self.asked += [name for name in names for _ in range(count)]
        mean = -0.5 if logprobs else None
        return [
            [
                Refusal("too long.") if name.startswith("long") else Answer(f"{name} {at}", 2, 3, 0.5, logprob=mean)
                for at in range(count)
            ]
            for name in names
        ]

    def stream(self, chat: Chat, sampling: SamplingConfig) -> Iterator[str]:
        self.asked.append(chat[-1]["content"])
        yield from ("one ", "two")


def test_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    teller = Teller()
    first = KeptEngine(teller, {"model": "m"}, tmp_path).outcomes(chats("a", "b", "a"), 2, SAMPLING)
    assert [[one.text for one in group] for group in first] == [["a 0", "a 1"], ["b 0", "b 1"], ["a 0", "a 1"]]
    assert teller.asked == ["a", "a", "b", "b"]
    engine = KeptEngine(teller, {"model": "m"}, tmp_path)
    again = engine.outcomes(chats("b", "a", "c"), 2, SAMPLING)
    assert again[0] == [one._replace(cached=True) for one in first[1]]
    assert [[one.cached for one in group] for group in again] == [[True] * 2, [True] * 2, [False] * 2]
    assert teller.asked[4:] == ["c", "c"]
    assert engine.generate(chats("c"), 1, SAMPLING) == [["c 0"]]
    assert engine.known(chats("a", "d"), 2, SAMPLING) == [2, 0]
    assert len(teller.asked) == 6


def test_a_missing_sample_is_asked_for_with_those_before_it(tmp_path: Path) -> None:
    teller = Teller()
    engine = KeptEngine(teller, {}, tmp_path)
    engine.outcomes(chats("a"), 1, SAMPLING)
    [answers] = engine.outcomes(chats("a"), 3, SAMPLING)
    assert [(one.text, one.cached) for one in answers] == [("a 0", True), ("a 1", False), ("a 2", False)]
    assert teller.asked == ["a"] * 4


@pytest.mark.parametrize(
    "change",
    [
        {"identity": {"model": "n"}},
        {"sampling": SAMPLING.model_copy(update={"seed": 1})},
        {"sampling": SAMPLING.model_copy(update={"temperature": 0.5})},
        {"schema": {"name": "plan", "schema": {}}},
        {"logprobs": True},
    ],
    ids=str,
)
def test_answers_are_kept_under_all_that_makes_them(tmp_path: Path, change: dict[str, object]) -> None:
    teller = Teller()
    for number in range(2):
        asked = {"identity": {"model": "m"}, "sampling": SAMPLING} | (change if number else {})
        engine = KeptEngine(teller, asked.pop("identity"), tmp_path)  # type: ignore[arg-type]
        for _ in range(2):
            [[answer]] = engine.outcomes(chats("a"), 1, **asked)  # type: ignore[arg-type]
    assert teller.asked == ["a", "a"]
    assert answer.logprob == (-0.5 if "logprobs" in change else None)


def test_a_failure_keeps_the_groups_before_and_a_refusal_is_not_kept(tmp_path: Path) -> None:
    teller = Teller()
    engine = KeptEngine(teller, {}, tmp_path)
    with pytest.raises(InputError, match="it fails"):
        engine.outcomes(chats("a", "b", "c", "fail"), 1, SAMPLING)
    assert teller.asked == ["a", "b"]
    for _ in range(2):
        assert engine.outcomes(chats("long", "a"), 1, SAMPLING)[0] == [Refusal("too long.")]
    assert teller.asked == ["a", "b", "long", "long"]
    with pytest.raises(InputError, match="too long"):
        engine.generate(chats("long"), 1, SAMPLING)


def test_a_stream_that_came_whole_is_kept(tmp_path: Path) -> None:
    teller = Teller()
    engine = KeptEngine(teller, {}, tmp_path)
    [chat] = chats("a")
    pieces = engine.stream(chat, SAMPLING)
    assert next(pieces) == "one "
    pieces.close()  # type: ignore[attr-defined]
    assert list(engine.stream(chat, SAMPLING)) == ["one ", "two"]
    assert list(engine.stream(chat, SAMPLING)) == ["one two"]
    assert engine.generate([chat], 1, SAMPLING) == [["one two"]]
    assert len(teller.asked) == 2


def test_no_call_exceeds_the_budget(tmp_path: Path) -> None:
    teller, budget = Teller(), Budget(calls=4)
    engine = BudgetEngine(teller, budget)
    engine.outcomes(chats("a"), 3, SAMPLING)
    with pytest.raises(BudgetSpent, match="2 more answers would exceed the budget, of which 3 of 4 calls are spent; "):
        engine.outcomes(chats("b", "c"), 1, SAMPLING)
    assert teller.asked == ["a"] * 3
    assert engine.generate(chats("b"), 1, SAMPLING) == [["b 0"]]
    with pytest.raises(BudgetSpent, match=r"1 more answer would exceed .* 4 of 4 calls"):
        list(engine.stream(chats("c")[0], SAMPLING))
    assert budget.to_json() == {"calls": 4, "tokens": None, "calls_spent": 4, "tokens_spent": 20}
    with pytest.raises(InputError, match="below 0"):
        Budget(calls=-1)


def test_what_is_kept_is_free_and_the_next_run_goes_on(tmp_path: Path) -> None:
    names = [f"q{n}" for n in range(10)]
    teller = Teller()
    for run in range(1, 4):
        engine = BudgetEngine(KeptEngine(teller, {}, tmp_path), Budget(calls=4))
        if run < 3:
            with pytest.raises(BudgetSpent):
                engine.outcomes(chats(*names), 1, SAMPLING)
            assert len(teller.asked) == 4 * run
        else:
            assert len(engine.outcomes(chats(*names), 1, SAMPLING)) == 10
            assert engine.budget.calls_spent == 2
    assert teller.asked == names
    spent = BudgetEngine(KeptEngine(teller, {}, tmp_path), Budget(calls=0))
    assert spent.generate(chats(*names), 1, SAMPLING) == [[f"{name} 0"] for name in names]


def test_a_failure_and_a_refusal_give_their_calls_back() -> None:
    engine = BudgetEngine(Teller(), Budget(calls=2))
    with pytest.raises(InputError, match="it fails"):
        engine.outcomes(chats("a", "fail"), 1, SAMPLING)
    engine.outcomes(chats("long", "a"), 1, SAMPLING)
    assert engine.budget.calls_spent == 1


def test_what_was_kept_before_a_failure_was_paid_for(tmp_path: Path) -> None:
    engine = BudgetEngine(KeptEngine(Teller(), {}, tmp_path), Budget(calls=9))
    engine.outcomes(chats("a"), 1, SAMPLING)
    with pytest.raises(InputError, match="it fails"):
        engine.outcomes(chats("a", "b", "c", "d", "fail"), 1, SAMPLING)
    assert engine.budget.calls_spent == 3


def test_tokens_are_bounded_up_to_a_group(tmp_path: Path) -> None:
    teller, budget = Teller(), Budget(tokens=6)
    engine = BudgetEngine(teller, budget)
    engine.outcomes(chats("a", "b"), 1, SAMPLING)
    with pytest.raises(BudgetSpent, match="10 of 6 tokens are spent"):
        engine.outcomes(chats("c"), 1, SAMPLING)
    names = [f"q{n}" for n in range(100)]
    kept = BudgetEngine(KeptEngine(Teller(), {}, tmp_path), Budget(tokens=6))
    with pytest.raises(BudgetSpent, match="160 of 6 tokens"):
        kept.outcomes(chats(*names), 1, SAMPLING)


@given(st.lists(st.integers(0, 3), max_size=8), st.integers(0, 12))
def test_as_many_as_possible_are_reserved(wanted: list[int], calls: int) -> None:
    budget = Budget(calls=calls)
    fits = max(n for n in range(len(wanted) + 1) if sum(wanted[:n]) <= calls)
    if wanted and fits == 0:
        with pytest.raises(BudgetSpent):
            budget.reserve(wanted)
        assert budget.calls_spent == 0
    else:
        assert budget.reserve(wanted) == fits
        assert budget.calls_spent == sum(wanted[:fits])


def test_who_keeps_is_told_from_who_does_not(tmp_path: Path) -> None:
    assert isinstance(KeptEngine(Teller(), {}, tmp_path), Keeps)
    assert not isinstance(Teller(), Keeps)
