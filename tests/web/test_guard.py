"""Bodies of many clients: what is held of them, and what is done beside the event loop."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fastapi import Request

from recipe_apps.web.guard import Intake
from recipe_apps.web.refusals import Refusal

MOST = 100_000


def request(parts: Sequence[bytes], *, ends: bool = True) -> Request:
    """A request whose body comes in parts; without an end its client goes."""
    left = list(parts)

    async def receive() -> dict[str, Any]:
        if not left and not ends:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": left.pop(0) if left else b"", "more_body": bool(left) or not ends}

    return Request({"type": "http", "headers": []}, receive)


def test_large_bodies_are_refused_where_others_leave_no_room_and_small_ones_never() -> None:
    async def run() -> None:
        intake = Intake(MOST)
        async with AsyncExitStack() as held:
            with pytest.raises(Refusal) as refused:  # noqa: PT012 - as many as there is room for
                for _ in range(1_000):
                    await held.enter_async_context(intake.body(request([b"x" * MOST])))
            assert (refused.value.code, refused.value.headers) == ("queue_full", {"Retry-After": "1"})
            for size in (0, 1, 60_000):
                assert len(await held.enter_async_context(intake.body(request([b"x" * size])))) == size
        for parts in ([b"x" * MOST], [b"x" * 50_000] * 2, [b"y"] * 9):
            async with intake.body(request(parts)) as body:
                assert body == b"".join(parts)

    asyncio.run(run())


@pytest.mark.parametrize(("parts", "code"), [([b"x" * 60_000] * 2, "body_too_large"), ([b"x" * 90_000], "hung_up")])
def test_a_body_that_ends_in_a_refusal_leaves_its_room(parts: list[bytes], code: str) -> None:
    async def run() -> None:
        intake = Intake(MOST)
        for _ in range(500):
            with pytest.raises(Refusal) as refused:
                async with intake.body(request(parts, ends=code != "hung_up")):
                    pass
            assert refused.value.code == code
        async with intake.body(request([b"x" * MOST])) as body:
            assert len(body) == MOST

    asyncio.run(run())


def test_few_bodies_are_worked_on_at_once_and_further_ones_wait_or_are_refused() -> None:
    intake, begun, go, most = Intake(MOST), threading.Semaphore(0), threading.Event(), 0
    running, lock = 0, threading.Lock()

    def work() -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        begun.release()
        assert go.wait(300)
        with lock:
            running -= 1
        return 1

    async def run() -> None:
        tasks = [asyncio.ensure_future(intake.work(work)) for _ in range(6)]
        for _ in range(2):
            await asyncio.to_thread(begun.acquire)
        with pytest.raises(Refusal) as refused:
            await intake.work(work, wait=False)
        assert refused.value.code == "queue_full"
        assert await intake.work(int, 2, size=10) == 2, "what is small needs no thread"
        go.set()
        assert await asyncio.gather(*tasks) == [1] * 6
        assert await intake.work(work, wait=False) == 1

    asyncio.run(run())
    assert most == 2


def test_a_body_that_drips_is_refused_in_time_and_leaves_its_room() -> None:
    never = asyncio.Event()

    async def receive() -> Any:
        await never.wait()

    async def read() -> str:
        intake = Intake(100, seconds=0.01)
        with pytest.raises(Refusal) as raised:
            async with intake.body(Request({"type": "http", "method": "POST", "headers": []}, receive)):
                raise AssertionError
        async with intake.body(request([b"whole"])) as body:
            assert body == b"whole"
        return raised.value.code

    assert asyncio.run(read()) == "too_slow"
