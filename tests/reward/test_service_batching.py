"""The batcher: every request gets its own reward or its own failure, in time, whatever is scored beside it."""

import asyncio
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_scorer import PromptScorer

from recipe.errors import ComputeError, CorpusError, InputError
from recipe.reward.scorer import Outcome, PromptGroup
from recipe.types import Reward
from recipe_apps.web.refusals import Refusal

batching = pytest.importorskip("recipe_apps.service.batching")
metrics = pytest.importorskip("recipe_apps.service.metrics")


def value(goal: str, history: Sequence[str], plan: Sequence[str]) -> float:
    return zlib.crc32(repr((goal, tuple(history), tuple(plan))).encode()) / 2**32


class Scorer(PromptScorer):
    """Remembers what it was given, fails on goals named for it, and waits on `gate` for slow ones."""

    def __init__(self) -> None:
        self.batches: list[list[PromptGroup]] = []
        self.scored: list[tuple[str, ...]] = []
        self.gate, self.entered = threading.Event(), threading.Event()

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        self.batches.append(list(groups))
        if any("slow" in group.goal for group in groups):
            self.entered.set()
            assert self.gate.wait(300)
        return super().score_groups(groups)

    def score(self, history: Sequence[str], plans: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        for plan in plans:
            for name, error in (("lost", ComputeError("down.")), ("blank", InputError("no.")), ("fault", IndexError())):
                if name in (goal, *plan):
                    raise error
        self.scored += map(tuple, plans)
        rewards = [value(goal, history, plan) for plan in plans]
        return [Reward(total, 0, 0, 0, False, 1, (), None) for total in rewards]


async def _here() -> bool:
    return False


async def _gone() -> bool:
    return True


class Clock:
    """The batcher's clock, which a test moves."""

    now, sleep = 0.0, staticmethod(time.sleep)

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(batching, "time", made := Clock())
    return made


@asynccontextmanager
async def serving(scorer: Scorer, warm: Callable[[], object] | None = None, timeout: float = 60.0) -> Any:
    batcher = batching.Batcher(scorer, timeout, metrics.ServiceMetrics(), warm)
    batcher.start()
    try:
        yield batcher
    finally:
        scorer.gate.set()
        await batcher.stop()


async def ask(
    batcher: Any, goal: str, *plan: str, history: tuple[str, ...] = ("h",), gone: Any = _here, client: str = ""
) -> float:
    [[reward]] = await batcher.rewards([PromptGroup(goal, history, [plan])], gone, client)
    return float(reward.total)


async def outcome(request: Awaitable[Any]) -> Any:
    try:
        return await request
    except Refusal as refusal:
        return refusal.code


@asynccontextmanager
async def held_up(scorer: Scorer) -> Any:
    """A batcher whose first batch waits, so that all that is asked meanwhile gathers behind it."""
    async with serving(scorer) as batcher:
        first = asyncio.ensure_future(ask(batcher, "slow", client="first"))
        await asyncio.to_thread(scorer.entered.wait)
        yield batcher
        scorer.gate.set()
        await first


@settings(max_examples=30)
@given(data=st.data())
def test_whatever_is_asked_each_request_gets_its_own_rewards_within_the_limits_of_a_batch(data: st.DataObject) -> None:
    words = st.text("ab", max_size=30)
    plans = st.lists(st.tuples(words | words.map(lambda word: word * 4000)), max_size=9)
    groups = st.lists(st.builds(PromptGroup, words, st.just(("h",)), plans), min_size=1, max_size=3)
    requests = data.draw(st.lists(st.tuples(st.sampled_from("xyz"), groups), max_size=8))
    scorer = Scorer()

    async def run() -> Any:
        async with held_up(scorer) as batcher:
            asked = [asyncio.ensure_future(batcher.rewards(own, _here, client)) for client, own in requests]
            await asyncio.sleep(0)
            scorer.gate.set()
            return await asyncio.gather(*asked)

    for (_, own), rewards in zip(requests, asyncio.run(run()), strict=True):
        expected = [[value(group.goal, group.history, plan) for plan in group.plans] for group in own]
        assert [[reward.total for reward in part] for part in rewards] == expected
    for batch in scorer.batches:
        sizes = [max(40, sum(map(len, plan))) for group in batch for plan in group.plans]
        assert len(sizes) <= 64
        # Each plan counts for 40 characters at least, and one that is too long by itself is a batch of its own.
        assert sum(sizes) <= 100_000 or len(sizes) == 1
        assert len(batch) == len({(group.goal, group.history) for group in batch})


def test_a_client_that_fills_its_part_of_the_queue_leaves_room_for_others() -> None:
    """4,096 plans and 16 Mi characters of one client may wait, and four times as many in all."""

    async def run() -> Any:
        scorer = Scorer()
        async with held_up(scorer) as batcher:

            async def asked(client: str, count: int = 1, plan: str = "a") -> Any:
                group = PromptGroup("tea", (), [(plan,)] * count)
                request = asyncio.ensure_future(outcome(batcher.rewards([group], _here, client)))
                await asyncio.sleep(0)
                return request

            long = "x" * (9 << 20)
            requests = [
                await asked(*given)
                for given in (
                    ("a", 4097), ("a", 4096), ("a",), ("b", 1, long), ("b", 1, long), ("c", 1, "x" * (16 << 20)),
                    ("d", 4096), ("e", 4096), ("f", 4096), ("f", 4095), ("g",),
                )
            ]  # fmt: skip
            assert batcher.waiting == 4 * 4096
            scorer.gate.set()
            return await asyncio.gather(*requests)

    answers = asyncio.run(run())
    refused = [one if isinstance(one, str) else None for one in answers]
    full = "queue_full"
    assert refused == ["too_many_plans", None, full, None, full, "too_long", None, None, full, None, full]


def test_clients_take_turns_by_weight() -> None:
    scorer = Scorer()

    async def run() -> None:
        async with held_up(scorer) as batcher:
            plans = {"many": [(str(n),) for n in range(320)], "few": [("320",), ("321",)]}
            asked = [
                asyncio.ensure_future(batcher.rewards([PromptGroup(client, (), own)], _here, client))
                for client, own in plans.items()
            ]
            await asyncio.sleep(0)
            scorer.gate.set()
            await asyncio.gather(*asked)

    asyncio.run(run())
    assert "few" in {group.goal for batch in scorer.batches[1:3] for group in batch}


def test_a_request_whose_time_is_up_in_the_middle_is_scored_no_further(clock: Clock) -> None:
    scorer = Scorer()

    async def run() -> Any:
        async with serving(scorer, timeout=0.3) as batcher:
            plans = [("slow", str(n)) for n in range(130)]
            late = asyncio.ensure_future(outcome(batcher.rewards([PromptGroup("slow", (), plans)], _here)))
            await asyncio.to_thread(scorer.entered.wait)
            clock.now = 1.0
            told = await late
            scorer.gate.set()
            return told, await ask(batcher, "tea", "a"), batcher.waiting

    assert asyncio.run(run()) == ("timed_out", value("tea", ("h",), ("a",)), 0)
    assert len(scorer.scored) == 64 + 1, "one batch of it, and the request behind"


@pytest.mark.parametrize(
    ("word", "code"), [("lost", "compute_failed"), ("fault", "internal"), ("blank", "invalid_field")]
)
def test_a_bad_sample_fails_alone(word: str, code: str) -> None:
    async def run() -> list[float | str]:
        async with serving(Scorer()) as batcher:
            asked = [ask(batcher, "tea", "a"), ask(batcher, "tea", word), ask(batcher, "tea", "b"), ask(batcher, word)]
            return list(await asyncio.gather(*map(outcome, [*asked, ask(batcher, "eggs", "c")])))

    good = [value("tea", ("h",), ("a",)), value("tea", ("h",), ("b",)), value("eggs", ("h",), ("c",))]
    assert asyncio.run(run()) == [good[0], code, good[1], code, good[2]]


def test_what_a_slow_encoder_holds_up_times_out_and_the_rest_is_answered(clock: Clock) -> None:
    async def run() -> Any:
        scorer = Scorer()
        async with serving(scorer, timeout=0.3) as batcher:
            first = asyncio.ensure_future(outcome(ask(batcher, "slow")))
            await asyncio.to_thread(scorer.entered.wait)
            late = asyncio.ensure_future(outcome(ask(batcher, "tea", "a")))
            await asyncio.sleep(0)
            clock.now = 1.0
            behind = await late
            stuck = batcher.unready
            scorer.gate.set()
            while batcher.waiting:  # a batch of nothing but what is settled by now
                await asyncio.sleep(0.01)
            after = [await outcome(ask(batcher, "tea", "b")) for _ in range(3)]
            return await first, behind, stuck, after, batcher.unready, scorer.scored

    first, behind, stuck, after, ready, scored = asyncio.run(run())
    assert first == behind == "timed_out"
    assert stuck.startswith("Stuck: the batch under way has taken")
    assert after == [value("tea", ("h",), ("b",))] * 3
    assert ready is None
    assert scored == [(), ("b",), ("b",), ("b",)], "a plan whose time is up while it waits is not scored"


def test_clients_that_hang_up_are_dropped_from_the_batch() -> None:
    async def run() -> Any:
        scorer = Scorer()
        async with serving(scorer) as batcher:
            first = asyncio.ensure_future(outcome(ask(batcher, "slow")))
            await asyncio.to_thread(scorer.entered.wait)
            left = asyncio.ensure_future(outcome(ask(batcher, "tea", "left", gone=_gone)))
            stays = asyncio.ensure_future(outcome(ask(batcher, "tea", "stays")))
            dropped = await left
            scorer.gate.set()
            return dropped, await first, await stays, scorer.scored

    dropped, first, stays, scored = asyncio.run(run())
    assert (dropped, stays) == ("hung_up", value("tea", ("h",), ("stays",)))
    assert isinstance(first, float)
    assert ("left",) not in scored


def test_stopping_finishes_what_is_accepted_and_refuses_the_rest() -> None:
    async def run() -> Any:
        scorer = Scorer()
        async with serving(scorer) as batcher:
            accepted = [asyncio.ensure_future(outcome(ask(batcher, "slow", str(n)))) for n in range(70)]
            await asyncio.to_thread(scorer.entered.wait)
            stopping = asyncio.ensure_future(batcher.stop())
            await asyncio.sleep(0.05)
            refused = await outcome(ask(batcher, "tea", "late"))
            scorer.gate.set()
            await stopping
            return refused, await asyncio.gather(*accepted)

    refused, answered = asyncio.run(run())
    assert refused == "stopped"
    assert answered == [value("slow", ("h",), (str(n),)) for n in range(70)]


def test_requests_wait_while_the_service_warms_up() -> None:
    async def run() -> Any:
        go = threading.Event()
        async with serving(Scorer(), warm=go.wait) as batcher:
            before = batcher.unready
            request = asyncio.ensure_future(ask(batcher, "tea", "a"))
            await asyncio.sleep(0.05)
            go.set()
            return before, await request, batcher.unready

    assert asyncio.run(run()) == (
        "Warming up: the encoder and the corpus are being loaded.",
        value("tea", ("h",), ("a",)),
        None,
    )


def test_a_service_that_cannot_warm_up_says_why() -> None:
    def warm() -> None:
        raise CorpusError("the encoder is another.")

    async def run() -> tuple[str, str]:
        async with serving(Scorer(), warm=warm) as batcher:
            while not batcher.failure:
                await asyncio.sleep(0.01)
            return batcher.failure, batcher.unready

    assert asyncio.run(run()) == ("the encoder is another.", "Warming up failed: the encoder is another.")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    while _ours() - before:
        time.sleep(0.01)


def _ours() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("recipe-")}
