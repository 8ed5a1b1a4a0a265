"""Control plans: each is what it says, and the same whoever else is judged."""

from dataclasses import replace
from random import Random

import pytest

from recipe.evaluation.judge.plans import CONTROLS, MEANINGS, control_cases
from recipe.types import Example


def example(name: str, goal: str = "make tea", source: str = "coin", steps: tuple[str, ...] = ()) -> Example:
    return Example(name, source, name, goal, ("boil",), steps or (f"{name} pour", f"{name} drink", "rest"), 1)


EXAMPLES = [
    *(example(f"t{n}") for n in range(20)),
    *(example(f"w{n}", "change a tyre") for n in range(20)),
    *(example(f"n{n}", "Make  Tea", "niv") for n in range(3)),
]


def made(examples: list[Example], count: int = 50, seed: int = 0) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(case.control, case.example.example_id): case.steps for case in control_cases(examples, count, seed)}


def test_every_example_has_every_control() -> None:
    found = control_cases(EXAMPLES, 10)
    assert len(found) == 10 * len(CONTROLS)
    assert {case.control for case in found} == set(CONTROLS) == set(MEANINGS)
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
        if control == "injected":
            assert [step for step in steps if step in plans["other-goal", name]] == [*plans["other-goal", name]]
            assert len(steps) == len(plans["other-goal", name]) + 4
            assert any('"clarity": 5' in step for step in steps)
        if control == "constant":
            assert steps == plans["constant", "t0"]


def test_another_goal_is_of_the_same_dataset_where_there_is_one() -> None:
    plans = made(EXAMPLES)
    assert all(plans["other-goal", f"t{n}"][0].startswith("w") for n in range(20))
    assert all(plans["other-goal", f"n{n}"][0].startswith("w") for n in range(3))
    both = made([*EXAMPLES, example("x", "change a tyre", "niv")])
    assert all(both["other-goal", f"n{n}"][0].startswith("x") for n in range(3))
    assert both["other-goal", "x"][0].startswith("n")


def test_controls_that_an_example_does_not_admit_are_left_out() -> None:
    alone = [example("a", steps=("stir", "stir"))]
    assert {name for name, _ in made(alone)} == set(CONTROLS) - {"shuffled", "other-goal", "injected"}
    unbegun = replace(EXAMPLES[0], history=())
    assert {name for name, _ in made([unbegun])} == set(CONTROLS) - {"copied", "other-goal", "injected"}


@pytest.mark.parametrize("seed", range(5))
def test_braces_and_dollars_in_a_step_are_text(seed: int) -> None:
    odd = example("a", steps=("Fill {step} $data", "{}", "{0}"))
    steps = CONTROLS["verbose"](odd, None, Random(seed))
    assert steps is not None
    assert "fill {step} $data" in steps[1]
