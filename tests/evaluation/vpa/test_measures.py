"""Measures of plans: by hand, against brute force, and what changes with a batch and what must not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from recipe.evaluation.vpa.measures import (
    NONE,
    Ids,
    batch_iou,
    bitwise_iou,
    cumulative_iou,
    edit_distance,
    per_sample_iou,
    positions,
)


@st.composite
def plans(draw: st.DrawFn, samples: int | None = None) -> tuple[Ids, Ids]:
    """Plans that may be shorter than T, and references."""
    count, width = samples or draw(st.integers(1, 9)), draw(st.integers(1, 4))
    plan = draw(arrays(np.int64, (count, width), elements=st.integers(0, 4)))
    for row in plan:
        row[draw(st.integers(0, width)) :] = NONE
    return plan, draw(arrays(np.int64, (count, width), elements=st.integers(0, 4)))


def sets(row: Ids) -> set[int]:
    return {int(action) for action in row if action != NONE}


def quotient(plan: set[int], reference: set[int]) -> float:
    return len(plan & reference) / len(plan | reference) if plan | reference else 0.0


def levenshtein(first: list[int], second: list[int]) -> int:
    row = list(range(len(second) + 1))
    for place, one in enumerate(first, start=1):
        diagonal, row[0] = row[0], place
        for column, other in enumerate(second, start=1):
            diagonal, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, diagonal + (one != other))
    return row[-1]


@settings(deadline=None)
@given(plans())
def test_measures_are_brute_force(pair: tuple[Ids, Ids]) -> None:
    plan, reference = pair
    found = positions(plan, reference)
    distance = edit_distance(plan, reference)
    for place, (own, theirs) in enumerate(zip(plan, reference, strict=True)):
        said = [int(action) for action in own if action != NONE]
        assert found.success[place] == (said == theirs.tolist())
        assert found.accuracy[place] == pytest.approx(np.mean([a == b for a, b in zip(own, theirs, strict=True)]))
        assert found.iou[place] == pytest.approx(quotient(sets(own), sets(theirs)))
        assert distance[place] == pytest.approx(levenshtein(said, theirs.tolist()) / len(theirs))


@settings(deadline=None)
@given(plans(), st.integers(1, 5))
def test_the_other_three_are_what_published_code_computes(pair: tuple[Ids, Ids], size: int) -> None:
    plan, reference = pair
    whole, running = [], []
    for start in range(0, len(plan), size):
        seen: set[int] = set()
        held: set[int] = set()
        for own, theirs in zip(plan[start : start + size], reference[start : start + size], strict=True):
            seen |= sets(own)
            held |= sets(theirs)
            running.append(quotient(seen, held))
        whole.append(running[-1])
    assert batch_iou(plan, reference, size) == pytest.approx(np.mean(whole))
    assert cumulative_iou(plan, reference, size) == pytest.approx(np.mean(running))
    bits = np.where(plan == NONE, 0, plan)
    joint = (bits | reference).sum(axis=1)
    shares = [(a & b).sum() / joint[n] if joint[n] else 0 for n, (a, b) in enumerate(zip(bits, reference, strict=True))]
    assert bitwise_iou(plan, reference) == pytest.approx(np.mean(shares))


@settings(deadline=None)
@given(plans(samples=8), st.permutations(range(8)), st.integers(1, 8))
def test_per_sample_changes_with_neither_order_nor_batch(pair: tuple[Ids, Ids], order: list[int], size: int) -> None:
    plan, reference = pair
    whole = per_sample_iou(plan, reference)
    np.testing.assert_array_equal(per_sample_iou(plan[order], reference[order]), whole[order])
    parts = [per_sample_iou(plan[n : n + size], reference[n : n + size]) for n in range(0, 8, size)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_cumulative_and_batch_do_change_with_the_batch() -> None:
    plan, reference = np.array([[0, 1], [2, 3]]), np.array([[2, 3], [0, 1]])
    assert per_sample_iou(plan, reference).mean() == 0
    assert [batch_iou(plan, reference, size) for size in (1, 2)] == [0, 1]
    assert [cumulative_iou(plan, reference, size) for size in (1, 2)] == [0, 0.5]


def test_a_missing_plan_is_wrong_at_every_position() -> None:
    plan, reference = np.full((1, 3), NONE), np.array([[1, 2, 2]])
    assert [float(value[0]) for value in positions(plan, reference)] == [0, 0, 0]
    assert edit_distance(plan, reference)[0] == 1


def test_positions_that_hold_no_action_are_never_right() -> None:
    nothing = np.array([[1, NONE]])
    assert positions(nothing, nothing).accuracy[0] == 0.5


EXPECTED = {
    (3, 0.00): (2.0, 81.7, 23.5, 27.4, 99.8),
    (3, 0.25): (17.3, 83.3, 34.4, 40.2, 100.0),
    (3, 0.50): (39.6, 86.9, 46.5, 58.7, 100.0),
    (4, 0.00): (2.3, 86.0, 29.7, 27.1, 100.0),
    (4, 0.25): (18.3, 88.6, 40.4, 40.7, 100.0),
    (4, 0.50): (37.9, 90.8, 52.7, 56.6, 99.8),
}
"""T and share of positions copied, to the four quantities on 1,024 plans, in percent: docs/results/vpa.md."""
SPREAD = (1.8, 3.0, 4.0, 3.5, 1.5)
"""Three standard deviations or more of a single set of 1,024 plans, which each of the figures above is from."""


@pytest.mark.parametrize(("width", "share"), EXPECTED)
def test_the_four_on_random_plans(width: int, share: float) -> None:
    rng = np.random.default_rng(width)
    found = []
    for _ in range(20):
        reference = rng.integers(105, size=(1024, width))
        plan = np.where(rng.random((1024, width)) < share, reference, rng.integers(105, size=(1024, width)))
        found.append(
            (
                per_sample_iou(plan, reference).mean(),
                cumulative_iou(plan, reference, 256),
                cumulative_iou(plan, reference, 32),
                bitwise_iou(plan, reference),
                batch_iou(plan, reference, 256),
            )
        )
    apart = np.abs(100 * np.mean(found, axis=0) - EXPECTED[width, share])
    assert (apart < SPREAD).all(), apart
