"""From predictions to cases: nothing is dropped in silence, and no plan is too long."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.config import JudgeConfig
from recipe.errors import InputError
from recipe.evaluation.judge.plans import Case, actionable, bounded, cases_of
from recipe.planning.predictions import Prediction
from recipe.types import Example


def example(name: str, split: str = "test") -> Example:
    return Example(name, "coin", name, "make tea", ("boil",), ("pour", "drink"), 1, split)


EVERYONE = [example("a"), example("b"), example("c", "val")]
TESTED = EVERYONE[:2]


def test_the_first_sample_of_each_example_in_the_order_of_the_examples() -> None:
    predictions = [Prediction("b", ("x",), 1), Prediction("b", ("y",)), Prediction("a", ("z",)), Prediction("c", ())]
    found = cases_of(TESTED, predictions, EVERYONE)
    assert found.cases == [Case(TESTED[0], ("z",)), Case(TESTED[1], ("y",))]
    assert (found.elsewhere, found.unused) == (1, 1)
    every = cases_of(TESTED, predictions, EVERYONE, samples="all")
    assert [(case.example.example_id, case.sample) for case in every.cases] == [("a", 0), ("b", 0), ("b", 1)]
    assert every.unused == 0


def test_a_missing_prediction_is_an_empty_plan_or_refused() -> None:
    found = cases_of(TESTED, [Prediction("b", ("y",))])
    assert found.cases[0] == Case(TESTED[0], (), flags=("missing",))
    with pytest.raises(InputError, match=r"1 of 2 examples .*: a;"):
        cases_of(TESTED, [Prediction("b", ("y",))], missing="refuse")


def test_predictions_for_unknown_examples_are_named() -> None:
    with pytest.raises(InputError, match=r"2 of 3 .*: nobody, x;"):
        cases_of(TESTED, [Prediction("a", ()), Prediction("nobody", ()), Prediction("x", ())], EVERYONE)


def test_a_plan_of_500_steps_is_cut_and_says_so() -> None:
    config = JudgeConfig()
    case = bounded(Case(TESTED[0], tuple(f"step {n}" for n in range(500))), config)
    assert case.steps == tuple(f"step {n}" for n in range(100))
    assert (case.left_out, case.cut, case.flags) == (400, 0, ("shortened",))
    long = bounded(Case(TESTED[0], ("a" * 501, "b" * 500)), config)
    assert long.steps == ("a" * 499 + "…", "b" * 500)
    assert (long.left_out, long.cut) == (0, 1)
    assert bounded(Case(TESTED[0], ("a" * 500,) * 30), config).left_out == 6


def test_a_plan_of_10_mb_costs_no_memory() -> None:
    predictions = [Prediction("a", ("word " * 2_000_000,)), Prediction("b", ("tea",) * 2_000_000)]
    tracemalloc.start()
    found = cases_of(TESTED, predictions)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert [sum(map(len, case.steps)) for case in found.cases] == [500, 300]
    assert all(case.flags == ("shortened",) for case in found.cases)


steps = st.lists(st.text(max_size=30), max_size=12).map(tuple)


@given(steps, st.integers(1, 8), st.integers(1, 12), st.integers(1, 60))
def test_a_bounded_plan_is_within_the_limits_and_stays_as_it_is(
    plan: tuple[str, ...], most: int, longest: int, together: int
) -> None:
    config = JudgeConfig(max_steps=most, max_step_characters=longest, max_characters=together)
    case = bounded(Case(TESTED[0], plan), config)
    assert len(case.steps) + case.left_out == len(plan)
    assert len(case.steps) <= most
    assert all(len(step) <= longest for step in case.steps)
    assert sum(map(len, case.steps)) <= max(together, longest)
    assert ("shortened" in case.flags) == bool(case.left_out or case.cut)
    assert bounded(case, config) == case
    "".join(case.steps).encode()


@pytest.mark.parametrize(
    ("plan", "says_something"),
    [((), False), (("...", "-", "🍵"), False), (("…", "注ぐ"), True), (("1",), True), (("\u202e", "ok"), True)],
)
def test_a_plan_without_letters_and_digits_is_no_plan(plan: tuple[str, ...], says_something: bool) -> None:
    assert actionable(plan) == says_something
