"""The batcher of threads: each call gets its own results or its own failure, within the limits of a batch."""

import multiprocessing
import os
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.reward.batcher import ThreadBatcher


class Squares:
    """Computes squares, fails at negative numbers and at 13, and holds the first batch until `go_on`."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, items: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(items))
        self.begun.set()
        assert self.go_on.wait(300)
        if 13 in items:
            raise ZeroDivisionError
        return [ValueError(item) if item < 0 else item * item for item in items]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.lists(st.integers(-2, 12), max_size=6)), max_size=12),
    st.integers(1, 5),
    st.integers(1, 30),
)
def test_each_call_gets_its_own_results_or_its_own_failure(
    calls: list[tuple[str, list[int]]], largest: int, heaviest: int
) -> None:
    compute = Squares()
    batcher: ThreadBatcher[int, int] = ThreadBatcher(compute, window=0.0, largest=largest, heaviest=heaviest)
    first = batcher.submit([0])
    assert compute.begun.wait(300)
    futures = [batcher.submit(items, [abs(item) for item in items], client) for client, items in calls]
    assert batcher.waiting()[0] == sum(len(items) for _, items in calls)
    compute.go_on.set()
    assert first.result(300) == [0]
    for (_, items), future in zip(calls, futures, strict=True):
        failing = [item for item in items if item < 0]
        if failing:
            error = future.exception(300)
            assert isinstance(error, ValueError)
            assert error.args[0] in failing
        else:
            assert future.result(300) == [item * item for item in items]
    batcher.stop(300)
    assert batcher.waiting() == (0, 0)
    for batch in compute.batches:
        assert len(batch) <= largest
        assert sum(map(abs, batch)) <= heaviest or len(batch) == 1


def test_what_compute_raises_ends_its_batch_and_no_other() -> None:
    compute = Squares()
    compute.go_on.set()
    batcher: ThreadBatcher[int, int] = ThreadBatcher(compute, window=0.0)
    with pytest.raises(ZeroDivisionError):
        batcher.submit([2, 13]).result(300)
    assert batcher.submit([3]).result(300) == [9]
    batcher.stop(300)


def test_clients_take_turns_by_weight() -> None:
    compute = Squares()
    batcher: ThreadBatcher[int, int] = ThreadBatcher(compute, window=0.0, largest=2)
    batcher.submit([0], client="first")
    assert compute.begun.wait(300)
    many = batcher.submit(list(range(10)), client="many")
    few = batcher.submit([20, 21], client="few")
    compute.go_on.set()
    assert (many.result(300), few.result(300)) == ([n * n for n in range(10)], [400, 441])
    assert [20, 21] in compute.batches[1:3]
    batcher.stop(300)


def _squared(batcher: "ThreadBatcher[int, int]") -> None:
    try:
        results = [batcher.submit([number]).result(60) for number in (5, 6, 7)]
        os._exit(0 if results == [[25], [36], [49]] else 1)
    finally:
        os._exit(2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_computes_with_a_thread_of_its_own() -> None:
    compute = Squares()
    compute.go_on.set()
    batcher: ThreadBatcher[int, int] = ThreadBatcher(compute, window=0.0)
    assert batcher.submit([2]).result(300) == [4]
    child = multiprocessing.get_context("fork").Process(target=_squared, args=(batcher,))
    child.start()
    child.join()
    assert child.exitcode == 0
    batcher.stop(300)
