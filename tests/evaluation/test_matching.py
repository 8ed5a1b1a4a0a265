"""Agreement with the annotated continuation, and the scale of likeness, against enumeration."""

from collections.abc import Sequence
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

pytest.importorskip("scipy")
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.errors import ComputeError, InputError
from recipe.evaluation.matching import (
    FLOOR,
    CosineScale,
    Likeness,
    NearestStep,
    StepMatcher,
    calibrate,
    ordered_f1,
    ordered_likeness,
    step_f1,
)
from recipe.types import Example
from recipe.world.load import load_world

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


def angles(texts: Sequence[str]) -> np.ndarray:
    """Embeds a text by the angle that it names."""
    turned = np.radians([float(text) for text in texts])
    return np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float32)


def test_a_line_is_taken_for_the_nearest_annotated_step() -> None:
    asked: list[str] = []

    def embed(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return angles(texts)

    nearest = NearestStep(embed, ["90", "0", "180", "0"])
    assert nearest(["10", "100", "0", "10"]) == ("0", "90", "0", "0")
    nearest.learn(["10", "170"])
    assert nearest(["170"]) == ("180",)
    assert asked == ["0", "180", "90", "10", "100", "170"]


def test_a_vocabulary_without_steps_is_refused() -> None:
    with pytest.raises(InputError, match="no annotated steps"):
        NearestStep(angles, [])


LETTERS = "abcdef"
MATRICES = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
)


def letters(texts: Sequence[str]) -> np.ndarray:
    """Each letter at right angles to all others."""
    return np.eye(len(LETTERS), dtype=np.float32)[[LETTERS.index(text) for text in texts]]


def test_the_scale_runs_from_chance_to_the_same() -> None:
    likeness = Likeness(angles, CosineScale(0.5, 0.75), ["0", "60", "90", "51.3178", "30"])
    assert likeness.between(["0"], ["60", "90", "51.3178", "30"])[0].tolist() == pytest.approx([0, 0, 0.5, 1])


def test_chance_is_read_off_steps_of_different_goals() -> None:
    embed = open_encoder(EncoderConfig(name="hash:256")).encode
    found, world = calibrate(embed), load_world()
    goals = [set(graph.steps) for graph in world.goals.values() if not graph.held_out]
    steps = sorted(set().union(*goals))
    vectors = dict(zip(steps, embed([world.wordings[step][0] for step in steps]), strict=True))
    together = {frozenset(pair) for goal in goals for pair in combinations(sorted(goal), 2)}
    apart = [vectors[a] @ vectors[b] for a, b in combinations(steps, 2) if frozenset((a, b)) not in together]
    assert np.mean(np.array(apart) < found.chance) == pytest.approx(0.95, abs=0.01)
    assert found.chance < found.same < 1


def test_an_encoder_that_tells_nothing_apart_is_refused() -> None:
    with pytest.raises(ComputeError, match="no more alike"):
        calibrate(lambda texts: np.ones((len(texts), 1), dtype=np.float32))


@given(MATRICES)
def test_the_ordered_pairing_by_enumeration(likeness: np.ndarray) -> None:
    rows, columns = likeness.shape
    best = max(
        sum(likeness[i, j] for i, j in zip(first, second, strict=True))
        for size in range(min(rows, columns) + 1)
        for first in combinations(range(rows), size)
        for second in combinations(range(columns), size)
    )
    assert ordered_likeness(likeness) == pytest.approx(best)


ANGLES = st.lists(st.integers(0, 180).map(str), min_size=1, max_size=4)


@settings(max_examples=30)
@given(ANGLES, ANGLES)
def test_the_assignment_is_the_best_of_all(first: list[str], second: list[str]) -> None:
    likeness = Likeness(angles, CosineScale(0.2, 1.0), first + second)
    pairs = likeness.pairs(first, second)
    table = likeness.between(first, second)
    if len(first) > len(second):
        table = table.T
    every = (
        sum(table[i, j] for i, j in enumerate(chosen)) for chosen in permutations(range(table.shape[1]), len(table))
    )
    assert sum(pair.likeness for pair in pairs) == pytest.approx(max(every), abs=1e-3)
    assert len({pair.first for pair in pairs}) == len({pair.second for pair in pairs}) == len(pairs)


@given(st.lists(st.sampled_from(LETTERS), min_size=1, max_size=8))
def test_a_list_is_paired_with_itself_in_place_whatever_it_repeats(steps: list[str]) -> None:
    pairs = Likeness(letters, CosineScale(0.1, 0.9), steps).pairs(steps, steps)
    assert [(pair.first, pair.second) for pair in pairs] == [(i, i) for i in range(len(steps))]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [("bca", "ada", (2, 2)), ("abc", "ada", (0, 0)), ("ab", "cada", (0, 1)), ("ba", "cada", (1, 3))],
)
def test_of_equal_steps_the_one_nearest_in_place_is_taken(first: str, second: str, expected: tuple[int, int]) -> None:
    [pair] = Likeness(letters, CosineScale(0.1, 0.9), first + second).pairs(first, second)
    assert (pair.first, pair.second) == expected


def test_nothing_is_paired_with_nothing_and_by_chance() -> None:
    likeness = Likeness(letters, CosineScale(0.1, 0.9), "ab")
    assert likeness.pairs([], ["a"]) == likeness.pairs(["a"], []) == likeness.pairs(["a"], ["b"]) == []
    assert likeness.between([], ["a"]).shape == (0, 1)


def example(reference: Sequence[str], history: Sequence[str] = ("180",), goal: str = "270") -> Example:
    """An example whose steps are angles."""
    return Example("one", "", "", goal, tuple(history), tuple(reference), len(history))


DEGREES = st.lists(st.integers(0, 35).map(lambda place: str(10 * place)), max_size=5)
WANTED = st.lists(st.integers(0, 35).map(lambda place: str(10 * place)), min_size=1, max_size=5)
HALF_TURN = CosineScale(0.0, 0.75)
"""With the floor of two thirds a cosine of one half: within 60 degrees."""


def matcher(floor: float = FLOOR) -> StepMatcher:
    return StepMatcher(angles, HALF_TURN, floor)


def apart(first: str, second: str) -> float:
    """Degrees between two angles."""
    turned = abs(float(first) - float(second)) % 360
    return min(turned, 360 - turned)


def test_a_line_below_the_floor_is_no_step() -> None:
    wanted = example(["0", "90"], goal="225")
    assert matcher().names(wanted, ["50", "100", "300", "299"]) == ("90", "90", "0", None)
    assert matcher(floor=1.0).names(wanted, ["45", "41", "300"]) == (None, "0", None)
    assert matcher().agreement(wanted, ["10", "299"]).f1 == 0.5


def test_the_goal_and_what_is_done_are_no_step_of_the_reference() -> None:
    """Both are within the floor of the reference; only what is nearer to the reference counts."""
    near = example(["0"], history=["40"], goal="330")
    assert matcher().names(near, ["40", "330", "21", "344"]) == (None,) * 4
    assert matcher().names(near, ["20", "345", "0"]) == ("0",) * 3
    done_again = example(["40", "0"], history=["40"], goal="40")
    assert matcher().names(done_again, ["40"]) == ("40",)


@given(DEGREES, WANTED, DEGREES)
@settings(deadline=None)
def test_matched_steps_by_enumeration(plan: list[str], reference: list[str], history: list[str]) -> None:
    asked = example(reference, history)
    named = matcher().names(asked, plan)
    for line, step in zip(plan, named, strict=True):
        nearest = min(apart(line, one) for one in reference)
        others = min(apart(line, one) for one in (*history, "270"))
        assert (step is not None) == (nearest <= 60 and nearest <= others)
        assert step is None or apart(line, step) == nearest
    found, total = matcher().agreement(asked, plan), len(plan) + len(reference)
    shared = sum(min(named.count(step), reference.count(step)) for step in set(reference))
    assert found.f1 == 2 * shared / total
    assert found.ordered_f1 == 2 * longest_common([one or "none" for one in named], reference) / total
    assert 0 <= found.ordered_f1 <= found.f1 <= 1


@given(WANTED, DEGREES)
@settings(deadline=None)
def test_the_reference_gets_all(reference: list[str], history: list[str]) -> None:
    found = matcher().agreement(example(reference, history, goal=reference[0]), reference)
    assert found.f1 == found.ordered_f1 == 1


@given(DEGREES, DEGREES, WANTED)
@settings(deadline=None)
def test_other_plans_change_nothing(plan: list[str], other: list[str], reference: list[str]) -> None:
    fresh, used = matcher(), matcher()
    used.learn(other)
    used.agreement(example(list(reversed(reference))), other)
    assert used.agreement(example(reference), plan) == fresh.agreement(example(reference), plan)


def test_an_empty_plan_matches_nothing_and_a_text_without_direction_matches_itself() -> None:
    assert matcher().agreement(example(["0"]), ()).f1 == 0
    blank = StepMatcher(lambda texts: np.zeros((len(texts), 2), dtype=np.float32), HALF_TURN)
    assert blank.names(example(["0", "90"]), ["90", "10"]) == ("90", None)


def test_vectors_that_are_no_numbers_are_refused() -> None:
    broken = StepMatcher(lambda texts: np.full((len(texts), 2), np.nan, dtype=np.float32), HALF_TURN)
    with pytest.raises(ComputeError, match="no usable vectors"):
        broken.agreement(example(["0"]), ["10"])
