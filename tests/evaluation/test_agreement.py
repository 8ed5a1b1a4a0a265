"""Agreement with the annotated continuation, against enumeration."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.errors import InputError
from recipe.evaluation.matching import NearestStep, ordered_f1, step_f1

STEPS = st.lists(st.sampled_from("abcd"), max_size=6)


def longest_common(plan: Sequence[str], reference: Sequence[str]) -> int:
    """By trying every subsequence of the plan, the longest first."""
    for size in range(len(plan), 0, -1):
        for chosen in combinations(plan, size):
            rest = iter(reference)
            if all(step in rest for step in chosen):
                return size
    return 0


@given(STEPS, STEPS)
def test_both_measures_by_enumeration(plan: list[str], reference: list[str]) -> None:
    total = len(plan) + len(reference)
    if not total:
        assert step_f1(plan, reference) == ordered_f1(plan, reference) == 1.0
        return
    shared = sum(min(plan.count(step), reference.count(step)) for step in "abcd")
    assert step_f1(plan, reference) == 2 * shared / total
    assert ordered_f1(plan, reference) == 2 * longest_common(plan, reference) / total


@given(STEPS, STEPS)
def test_order_can_only_cost(plan: list[str], reference: list[str]) -> None:
    assert 0 <= ordered_f1(plan, reference) <= step_f1(plan, reference) <= 1
    assert ordered_f1(plan, reference) == ordered_f1(reference, plan)
    assert ordered_f1(reference, reference) == 1


class Angles:
    """Embeds a text by the angle that it names."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        angles = np.radians([float(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_a_line_is_taken_for_the_nearest_annotated_step() -> None:
    embed = Angles()
    nearest = NearestStep(embed, ["90", "0", "180", "0"])
    assert nearest(["10", "100", "0", "10"]) == ("0", "90", "0", "0")
    nearest.learn(["10", "170"])
    assert nearest(["170"]) == ("180",)
    assert embed.asked == ["0", "180", "90", "10", "100", "170"]


def test_a_vocabulary_without_steps_is_refused() -> None:
    with pytest.raises(InputError, match="no annotated steps"):
        NearestStep(Angles(), [])
