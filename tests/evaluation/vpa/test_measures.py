"""Measures of plans: by hand, against brute force, and the same for every order and batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from recipe.evaluation.vpa.measures import NONE, Ids, per_sample_iou, positions


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


@settings(deadline=None)
@given(plans())
def test_measures_are_brute_force(pair: tuple[Ids, Ids]) -> None:
    plan, reference = pair
    found = positions(plan, reference)
    for place, (own, theirs) in enumerate(zip(plan, reference, strict=True)):
        said = [int(action) for action in own if action != NONE]
        assert found.success[place] == (said == theirs.tolist())
        assert found.accuracy[place] == pytest.approx(np.mean([a == b for a, b in zip(own, theirs, strict=True)]))
        assert found.iou[place] == pytest.approx(quotient(sets(own), sets(theirs)))


@settings(deadline=None)
@given(plans(samples=8), st.permutations(range(8)), st.integers(1, 8))
def test_per_sample_changes_with_neither_order_nor_batch(pair: tuple[Ids, Ids], order: list[int], size: int) -> None:
    plan, reference = pair
    whole = per_sample_iou(plan, reference)
    np.testing.assert_array_equal(per_sample_iou(plan[order], reference[order]), whole[order])
    parts = [per_sample_iou(plan[n : n + size], reference[n : n + size]) for n in range(0, 8, size)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_a_missing_plan_is_wrong_at_every_position() -> None:
    plan, reference = np.full((1, 3), NONE), np.array([[1, 2, 2]])
    assert [float(value[0]) for value in positions(plan, reference)] == [0, 0, 0]


def test_positions_that_hold_no_action_are_never_right() -> None:
    nothing = np.array([[1, NONE]])
    assert positions(nothing, nothing).accuracy[0] == 0.5


@pytest.mark.parametrize(
    ("width", "share", "percent"),
    [(3, 0.00, 2.0), (3, 0.25, 17.3), (3, 0.50, 39.6), (4, 0.00, 2.3), (4, 0.25, 18.3), (4, 0.50, 37.9)],
)
def test_miou_of_random_plans(width: int, share: float, percent: float) -> None:
    """Within three standard deviations of an earlier measurement of 1,024 plans, in benchmarks/results/vpa-iou.json."""
    rng = np.random.default_rng(width)
    found = []
    for _ in range(20):
        reference = rng.integers(105, size=(1024, width))
        plan = np.where(rng.random((1024, width)) < share, reference, rng.integers(105, size=(1024, width)))
        found.append(100 * per_sample_iou(plan, reference).mean())
    assert np.mean(found) == pytest.approx(percent, abs=1.8)
