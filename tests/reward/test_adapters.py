"""What a trainer sees: grouped scoring, parsed completions, None for what could not be computed, shared batches."""

import asyncio
import functools
import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

import pytest
from prompt_scorer import PromptScorer, trainer_reward

from recipe.config import RewardConfig
from recipe.errors import (
    BudgetSpent,
    ComputeError,
    ConfigError,
    InputError,
    MissingExtra,
    ServiceUnavailable,
)
from recipe.reward.batcher import ThreadBatcher
from recipe.reward.scorer import PromptGroup, outcomes_of
from recipe.reward.trainers import ms_swift
from recipe.reward.trainers.openrlhf import response_text
from recipe.reward.trainers.source import RewardSource, Row, text_of
from recipe.reward.trainers.trl import alignment_reward
from recipe.reward.verifier import Verifier
from recipe.text import plan_steps
from recipe.types import Reward


class StepCounter(PromptScorer):
    """Rewards the number of steps; a goal of its own making fails."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failure = failure

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        self.calls.append((goal, tuple(history), tuple(tuple(plan) for plan in continuations)))
        if self.failure and goal == "fail":
            raise self.failure
        return [Reward(len(plan), 0, 0, 0, False, len(plan), (), None) for plan in continuations]


def test_rows_of_one_prompt_are_scored_together_and_returned_in_place() -> None:
    scorer = StepCounter()
    rewards = trainer_reward(scorer)(
        ["tea", "toast", "tea", "tea"],
        [["boil"], ["slice"], ["boil"], []],
        ["1. pour\n2. wait", "- toast", "1. pour", "1. boil\n2. pour\n3. wait"],
    )
    assert [reward.total for reward in rewards if reward] == [2, 1, 1, 3]
    assert scorer.calls == [
        ("tea", ("boil",), (("pour", "wait"), ("pour",))),
        ("toast", ("slice",), (("toast",),)),
        ("tea", (), (("boil", "pour", "wait"),)),
    ]


@pytest.mark.parametrize(
    "error",
    [
        ServiceUnavailable("no answer"),
        BudgetSpent("spent"),
        MissingExtra("the encoder", "encoder"),
        ConfigError("another verifier answers"),
        BrokenProcessPool("a worker died"),
        KeyboardInterrupt(),
        ZeroDivisionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_the_run_ends_it_and_is_the_failure_of_no_plan(error: BaseException) -> None:
    scorer = StepCounter(error)
    with pytest.raises(type(error)):
        trainer_reward(scorer)(["tea", "fail"], [[]] * 2, ["- a"] * 2)
    source = RewardSource(scorer)
    rows = [Row("tea", (), "- a"), Row("fail", (), "- a")]
    with pytest.raises(type(error)):
        source.score_or_none(rows)
    if isinstance(error, Exception):  # Ctrl-C reaches the main thread only
        with pytest.raises(type(error)):
            source.score_each(rows)
    assert source.failures == 0


def test_rows_must_be_aligned() -> None:
    with pytest.raises(ValueError, match="argument 2 is longer"):
        trainer_reward(StepCounter())(["tea", "tea"], [[], []], ["- a"])


def test_all_steps_of_a_batch_are_encoded_in_one_call(corpus: Any) -> None:
    trainer_reward(Verifier(corpus))(
        ["tea", "eggs"],
        [["boil the water"], ["crack two eggs"]],
        ["- warm the pot", "- stir slowly\n- serve"],
    )
    assert len(corpus.encoder.calls) == 1


@pytest.mark.parametrize("pool", ["history", "full", "own"])
def test_all_pools_of_a_batch_are_found_in_one_search(corpus: Any, pool: Any) -> None:
    batch = (
        ["tea", "eggs"] * 2,
        [["boil the water"], []] * 2,
        ["- warm the pot", "- stir", "- pour\n- serve", "- fry"],
    )
    verifier = Verifier(corpus, RewardConfig(pool=pool))
    plans = [(goal, history, [plan_steps(text)]) for goal, history, text in zip(*batch, strict=True)]
    alone = [verifier.score(history=history, continuations=plan, goal=goal)[0] for goal, history, plan in plans]
    corpus.searches = 0
    together = trainer_reward(Verifier(corpus, RewardConfig(pool=pool)))(*batch)
    assert [one and one.total for one in together] == pytest.approx([one.total for one in alone], abs=1e-6)
    assert [one and one.pool for one in together] == [one.pool for one in alone]
    assert corpus.searches == 1


def test_an_empty_batch_has_no_rewards(corpus: Any) -> None:
    assert trainer_reward(StepCounter())([], [], []) == []
    assert Verifier(corpus).score_groups([]) == []


def test_a_scorer_that_forgets_a_plan_is_an_error() -> None:
    class Forgets(StepCounter):
        def score(self, *asked: Any) -> list[Reward]:
            return super().score(*asked)[:-1]

    with pytest.raises(ComputeError, match="2 plans got 1 rewards"):
        trainer_reward(Forgets())(["tea"] * 2, [[]] * 2, ["- a", "- b"])


def test_a_reward_that_is_not_finite_is_none() -> None:
    class NotANumber(StepCounter):
        def score(self, *asked: Any) -> list[Reward]:
            return [replace(one, total=math.nan) if one.total > 1 else one for one in super().score(*asked)]

    rewards = trainer_reward(NotANumber())(["tea"] * 2, [[]] * 2, ["- a", "- b\n- c"])
    assert [reward and reward.total for reward in rewards] == [1, None]


class Refuses(PromptScorer):
    """Takes no plan of more than two steps, and nothing towards the goal "none"."""

    def __init__(self) -> None:
        self.calls = 0

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        self.calls += 1
        if goal == "none" or any(len(plan) > 2 for plan in continuations):
            raise InputError("too many steps")
        return StepCounter().score(history, continuations, goal)


def test_a_plan_that_is_refused_costs_its_group_nothing() -> None:
    completions = ["- a", "- a\n- b\n- c", "- a\n- b"]
    rewards = trainer_reward(Refuses())(["tea"] * 3, [[]] * 3, completions)
    assert [reward and reward.total for reward in rewards] == [1, None, 2]


def test_a_batch_of_which_nothing_can_be_used_stops_the_training_until_something_could_be() -> None:
    refused = (["none"] * 2, [[]] * 2, ["- a"] * 2)
    reward = trainer_reward(Refuses())
    with pytest.raises(InputError, match="too many"):
        reward(*refused)
    assert reward(["tea"], [[]], ["- a"]) != [None]
    assert reward(*refused) == [None, None]


def test_a_failure_to_compute_never_stops_the_training() -> None:
    assert trainer_reward(StepCounter(ComputeError("encoder down")))(["fail"], [[]], ["- a"]) == [None]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"goal": None}, "goal"),
        ({"goal": "tea\ud83e"}, "goal"),
        ({"history": math.nan}, "history"),
        ({"history": ["boil\udc00"]}, "history"),
        ({"completion": 3}, "completion"),
        ({"completion": "- pour\udfff"}, "completion"),
    ],
)
def test_the_log_names_row_and_field_of_what_cannot_be_read(
    change: dict[str, Any], field: str, caplog: pytest.LogCaptureFixture
) -> None:
    scorer = StepCounter()
    rows = [{"goal": "tea", "history": ["boil"], "completion": "- a"}] * 3
    rows[1] = rows[1] | change
    columns = ([row[name] for row in rows] for name in ("goal", "history", "completion"))
    rewards = trainer_reward(scorer)(*columns)
    assert [reward and reward.total for reward in rewards] == [1, None, 1]
    assert scorer.calls == [("tea", ("boil",), (("a",), ("a",)))]
    [record] = caplog.records
    assert "row 1 " in record.getMessage()
    assert f"the {field} " in record.getMessage()
    record.getMessage().encode()


def test_a_failure_to_compute_is_not_asked_for_plan_by_plan() -> None:
    scorer = StepCounter(ComputeError("encoder down"))
    [failures] = outcomes_of(scorer, [PromptGroup("fail", (), [("a",), ("b",)])])
    assert [str(failure) for failure in failures] == ["encoder down"] * 2
    assert len(scorer.calls) == 1


def test_samples_that_are_awaited_together_are_scored_together() -> None:
    scorer = StepCounter()
    origin = RewardSource(scorer, window=0.2)
    rows = [Row("tea", (), "- a\n" * number) for number in range(20)]

    async def ask() -> list[Reward]:
        return list(await asyncio.gather(*map(origin.score_one, rows)))

    assert [reward.total for reward in asyncio.run(ask())] == list(range(20))
    assert len(scorer.calls) == 1
    with ThreadPoolExecutor(20) as pool:
        rewards = [one for few in pool.map(lambda row: origin.score_each([row]), rows) for one in few]
    assert [reward.total for reward in rewards] == list(range(20))
    assert len(scorer.calls) == 2


def test_a_failure_reaches_the_samples_of_its_own_group_and_is_counted() -> None:
    origin = RewardSource(StepCounter(ComputeError("encoder down")), window=0.2)

    async def ask() -> list[Any]:
        rows = [Row(goal, (), "- a") for goal in ("tea", "fail", "fail", "eggs")]
        return list(await asyncio.gather(*map(origin.score_one, rows), return_exceptions=True))

    tea, first, second, eggs = asyncio.run(ask())
    assert (tea.total, eggs.total) == (1, 1)
    assert isinstance(first, ComputeError)
    assert isinstance(second, ComputeError)
    assert origin.failures == 2


def test_a_fault_of_the_program_reaches_everyone_who_waits() -> None:
    origin = RewardSource(StepCounter(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        origin.score_each([Row("tea", (), "- a"), Row("fail", (), "- a")])
    assert origin.score_each([Row("tea", (), "- a")])[0].total == 1


def test_who_has_given_up_is_not_computed_for() -> None:
    computed: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def compute(items: Sequence[int]) -> Sequence[int]:
        computed.extend(items)
        begun.set()
        assert go_on.wait(300)
        return items

    batcher: ThreadBatcher[int, int] = ThreadBatcher(compute, window=0.0, largest=2)
    first = batcher.submit([1])
    assert begun.wait(300)
    late = [batcher.submit([number]) for number in (2, 3, 4, 5)]
    assert late[1].cancel()
    go_on.set()
    assert [first.result(), *(future.result() for future in (late[0], *late[2:]))] == [[1], [2], [4], [5]]
    assert computed == [1, 2, 4, 5]


def test_trl_logs_every_part_over_the_rows_that_have_it() -> None:
    metrics: dict[str, float] = {}
    columns: dict[str, list[Any]] = {}
    reward = functools.partial(alignment_reward, source=RewardSource(StepCounter(ComputeError("encoder down"))))
    totals = asyncio.run(
        reward(
            completions=["- a", "- a", [{"role": "assistant", "content": "- a\n- b"}]],
            goal=["tea", "fail", "tea"],
            history=[[], "[]", ()],
            log_extra=columns.__setitem__,
            log_metric=metrics.__setitem__,
        )
    )
    assert totals == [1, None, 2]
    assert columns["steps"] == [1, None, 2]
    assert (metrics["steps"], metrics["unscored"]) == (1.5, pytest.approx(1 / 3))
    assert {"rho", "gated", "aligned_history", "aligned_full"} <= set(metrics)


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("1. pour", "1. pour"),
        ([{"role": "assistant", "content": "1. pour"}], "1. pour"),
        ([{"role": "assistant", "content": "thinking"}, {"role": "assistant", "content": "1. pour"}], "1. pour"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], ""),
        ([{"role": "assistant", "content": [{"type": "image"}, {"type": "text", "text": "1. pour"}]}], "1. pour"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "1. p"}, {"text": "our"}]}], "1. pour"),
        ([{"role": "assistant", "content": [{"type": "output_text", "text": "1. pour"}]}], "1. pour"),
        (
            [
                {"role": "assistant", "content": [{"type": name, "text": "1. wait"}]}
                for name in ("thinking", "reasoning")
            ],
            "",
        ),
        ([{"role": "assistant", "content": "1. pour"}, {"role": "tool", "content": "1. wait"}], "1. pour"),
        (({"role": "assistant", "content": "1. pour"}, {"role": "user", "content": None}), "1. pour"),
        ([{"role": "assistant", "content": "1. pour"}, {"role": "assistant", "content": None}], ""),
        ([{"content": "1. pour"}], "1. pour"),
        ([{"role": "assistant", "content": []}], ""),
    ],
)
def test_a_completion_is_read_in_every_form(completion: Any, text: str) -> None:
    assert text_of(completion) == text


def test_ms_swift_finds_the_rewards_by_name() -> None:
    orms: dict[str, Any] = {}
    ms_swift.register(orms)
    assert orms == {"alignment": ms_swift.AlignmentReward, "alignment_async": ms_swift.AsyncAlignmentReward}


@pytest.mark.parametrize(
    ("opened", "closed"), [("<think>", "</think>"), ("<|START_THINKING|>", "<|END_THINKING|>"), ("[THINK]", "[/THINK]")]
)
def test_openrlhf_reads_the_plan_behind_a_thought(opened: str, closed: str) -> None:
    plan, thought = "1. rinse it\n2. dry it", "1. burn it\n"
    for begin, prompt in (("", f"<|user|>wash<|assistant|>\n{opened}\n"), (opened, "<|user|>wash<|assistant|>\n")):
        for query in (f"{prompt}{begin}{thought}{closed}{plan}<|end|>", f"<s> {prompt} {begin}{thought}{closed}{plan}"):
            assert plan_steps(response_text(query, prompt) or "") == ("rinse it", "dry it")
            assert plan_steps(response_text(query[: query.index(closed)], prompt) or "") == ()
