"""Cases and controls: no plan is lost or too long, and a control depends on the examples alone."""

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.config import JudgeConfig
from recipe.errors import InputError
from recipe.evaluation.judge.plans import CONTROLS, Case, actionable, cases_of, control_cases
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
    assert (found.other_splits, found.unused) == (1, 1)
    every = cases_of(TESTED, predictions, EVERYONE, samples="all")
    assert [(case.example.example_id, case.sample) for case in every.cases] == [("a", 0), ("b", 0), ("b", 1)]
    assert every.unused == 0


def test_a_judge_is_shown_the_history_that_is_named() -> None:
    config, told = JudgeConfig(history="perceived"), replace(TESTED[0], told_history=("warm the pot",))
    for predictions in ([Prediction("a", ("y",))], []):
        [case] = cases_of([told], predictions, config=config).cases
        assert case.example == replace(told, history=("warm the pot",))
        assert case.bounded(config) == case
        assert cases_of([told], predictions).cases[0].example == told
    assert cases_of([replace(told, told_history=())], [], config=config).cases[0].example.history == ()
    with pytest.raises(InputError, match=r"'b'.*told_history"):
        cases_of([told, TESTED[1]], [], config=config)


def test_a_plan_of_10_mb_costs_no_memory() -> None:
    predictions = [Prediction("a", ("word " * 2_000_000,)), Prediction("b", ("tea",) * 2_000_000)]
    tracemalloc.start()
    found = cases_of(TESTED, predictions)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert [sum(map(len, case.steps)) for case in found.cases] == [500, 300]
    assert all(case.flags == ("shortened",) for case in found.cases)


steps = st.lists(st.tuples(st.text(max_size=30), st.integers(1, 40)).map(lambda one: one[0] * one[1]), max_size=12)


@given(steps, st.integers(1, 20))
def test_a_bounded_plan_is_within_the_limits_and_stays_as_it_is(drawn: list[str], times: int) -> None:
    plan, config = tuple(drawn * times), JudgeConfig()
    case = Case(TESTED[0], plan).bounded(config)
    assert len(case.steps) + case.left_out == len(plan)
    assert len(case.steps) <= 100
    assert all(len(step) <= 500 for step in case.steps)
    assert sum(map(len, case.steps)) <= 12_000
    assert ("shortened" in case.flags) == bool(case.left_out or case.cut)
    assert case.bounded(config) == case
    "".join(case.steps).encode()


@pytest.mark.parametrize(
    ("plan", "says_something"),
    [((), False), (("...", "-", "🍵"), False), (("…", "注ぐ"), True), (("1",), True), (("\u202e", "ok"), True)],
)
def test_a_plan_without_letters_and_digits_is_no_plan(plan: tuple[str, ...], says_something: bool) -> None:
    assert actionable(plan) == says_something


def told(name: str, goal: str = "make tea", source: str = "coin", steps: tuple[str, ...] = ()) -> Example:
    return Example(name, source, name, goal, ("boil",), steps or (f"{name} pour", f"{name} drink", "rest"), 1)


EXAMPLES = [
    *(told(f"t{n}") for n in range(20)),
    *(told(f"w{n}", "change a tyre") for n in range(20)),
    *(told(f"n{n}", "Make  Tea", "niv") for n in range(3)),
]


def made(examples: list[Example], count: int = 50, seed: int = 0) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(case.control, case.example.example_id): case.steps for case in control_cases(examples, count, seed)}


def test_every_example_has_every_control() -> None:
    found = control_cases(EXAMPLES, 10)
    assert len(found) == 10 * len(CONTROLS)
    assert {case.control for case in found} == set(CONTROLS)
    assert len(control_cases(EXAMPLES, 100)) == len(EXAMPLES) * len(CONTROLS)
    assert control_cases(EXAMPLES, 0) == []


def test_examples_are_spread_over_datasets_and_seeded() -> None:
    sources = [case.example.source for case in control_cases(EXAMPLES, 6) if case.control == "empty"]
    assert (sources.count("coin"), sources.count("niv")) == (3, 3)
    assert made(EXAMPLES) == made(EXAMPLES)
    assert made(EXAMPLES, 10) != made(EXAMPLES, 10, seed=1)
    assert made(EXAMPLES, 5).items() <= made(EXAMPLES, 12).items()
    assert made(EXAMPLES, 10) == made([*reversed(EXAMPLES)], 10)


def test_plans_are_what_their_names_say() -> None:
    plans = made(EXAMPLES)
    by_id = {one.example_id: one for one in EXAMPLES}
    references = {one.continuation: one for one in EXAMPLES}
    for (control, name), steps in plans.items():
        one = by_id[name]
        if control == "reference":
            assert steps == one.continuation
        if control == "copied":
            assert steps == one.history
        if control == "empty":
            assert steps == ()
        if control == "shuffled":
            assert sorted(steps) == sorted(one.continuation)
            assert steps != one.continuation
        if control == "verbose":
            assert len(steps) == len(one.continuation) + 2
            assert all(step in said for step, said in zip(one.continuation, steps[1:-1], strict=True))
        if control == "other-goal":
            assert references[steps].goal.split()[0].lower() != one.goal.split()[0].lower()
        if control in ("injected", "refusal"):
            assert [step for step in steps if step in plans["other-goal", name]] == [*plans["other-goal", name]]
            assert len(steps) == len(plans["other-goal", name]) + 4
            assert any('"clarity": 5' in step for step in steps) == (control == "injected")
        if control == "constant":
            assert steps == plans["constant", "t0"]


def test_another_goal_is_of_the_same_dataset_where_there_is_one() -> None:
    plans = made(EXAMPLES)
    assert all(plans["other-goal", f"t{n}"][0].startswith("w") for n in range(20))
    assert all(plans["other-goal", f"n{n}"][0].startswith("w") for n in range(3))
    both = made([*EXAMPLES, told("x", "change a tyre", "niv")])
    assert all(both["other-goal", f"n{n}"][0].startswith("x") for n in range(3))
    assert both["other-goal", "x"][0].startswith("n")


def test_controls_that_an_example_does_not_admit_are_left_out() -> None:
    alone = [told("a", steps=("stir", "stir"))]
    assert {name for name, _ in made(alone)} == set(CONTROLS) - {"shuffled", "other-goal", "injected", "refusal"}
    unbegun = replace(EXAMPLES[0], history=())
    assert {name for name, _ in made([unbegun])} == set(CONTROLS) - {"copied", "other-goal", "injected", "refusal"}


@pytest.mark.parametrize("seed", range(5))
def test_braces_and_dollars_in_a_step_are_text(seed: int) -> None:
    odd = told("a", steps=("Fill {step} $data", "{}", "{0}"))
    [steps] = [case.steps for case in control_cases([odd], 1, seed) if case.control == "verbose"]
    assert steps is not None
    assert "fill {step} $data" in steps[1]
