"""What a trainer sees: grouped scoring, parsed completions, None for what could not be computed, shared batches."""

import asyncio
import functools
import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest
from prompt_scorer import PromptScorer, trainer_reward

from recipe.errors import BudgetSpent, ComputeError, ConfigError, MissingExtra, ServiceUnavailable
from recipe.plan_text import plan_steps
from recipe.reward.trainers.openrlhf import response_text
from recipe.reward.trainers.source import RewardSource, Row, text_of
from recipe.reward.trainers.trl import alignment_reward
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
        assert source.score_each(rows[:1])[0].total == 1, "of its batch and of no later one"
    assert source.failures == 0


def test_a_scorer_that_forgets_a_plan_is_an_error() -> None:
    class Forgets(StepCounter):
        def score(self, *asked: Any) -> list[Reward]:
            return super().score(*asked)[:-1]

    with pytest.raises(ComputeError, match="2 plans got 1 rewards"):
        trainer_reward(Forgets())(["tea"] * 2, [[]] * 2, ["- a", "- b"])


def test_a_failure_to_compute_never_stops_the_training() -> None:
    assert trainer_reward(StepCounter(ComputeError("encoder down")))(["fail"], [[]], ["- a"]) == [None]


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


def _scored(origin: RewardSource) -> None:
    signal.alarm(120)  # without a thread it would wait for ever
    try:
        rewards = [origin.score_each([Row("tea", (), "- a\n" * number)])[0].total for number in (5, 6, 7)]
        os._exit(0 if rewards == [5, 6, 7] else 1)
    finally:
        os._exit(2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_computes_with_a_thread_of_its_own() -> None:
    origin = RewardSource(StepCounter(), window=0.0)
    assert origin.score_each([Row("tea", (), "- a")])[0].total == 1
    child = multiprocessing.get_context("fork").Process(target=_scored, args=(origin,))
    child.start()
    child.join()
    assert child.exitcode == 0


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


def said(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("1. pour", "1. pour"),
        ([said("thinking"), said("1. pour")], "1. pour"),
        ([said(None, tool_calls=[])], ""),
        ([said([{"type": "image"}, {"type": "text", "text": "1. pour"}])], "1. pour"),
        ([said([{"type": "text", "text": "1. p"}, {"text": "our"}])], "1. pour"),
        ([said([{"type": "output_text", "text": "1. pour"}])], "1. pour"),
        ([said([{"type": name, "text": "1. wait"}]) for name in ("thinking", "reasoning")], ""),
        ([said("1. pour"), {"role": "tool", "content": "1. wait"}], "1. pour"),
        ((said("1. pour"), {"role": "user", "content": None}), "1. pour"),
        ([said("1. pour"), said(None)], ""),
        ([{"content": "1. pour"}], "1. pour"),
        ([said([])], ""),
    ],
)
def test_a_completion_is_read_in_every_form(completion: Any, text: str) -> None:
    assert text_of(completion) == text


@pytest.mark.parametrize(
    ("opened", "closed"), [("<think>", "</think>"), ("<|START_THINKING|>", "<|END_THINKING|>"), ("[THINK]", "[/THINK]")]
)
def test_openrlhf_reads_the_plan_behind_a_thought(opened: str, closed: str) -> None:
    plan, thought = "1. rinse it\n2. dry it", "1. burn it\n"
    for begin, prompt in (("", f"<|user|>wash<|assistant|>\n{opened}\n"), (opened, "<|user|>wash<|assistant|>\n")):
        for query in (f"{prompt}{begin}{thought}{closed}{plan}<|end|>", f"<s> {prompt} {begin}{thought}{closed}{plan}"):
            assert plan_steps(response_text(query, prompt) or "") == ("rinse it", "dry it")
            assert plan_steps(response_text(query[: query.index(closed)], prompt) or "") == ()
