"""The statistics of systematic errors: unbiased by enumeration, 1 for fixed errors, counts as the plans say."""

import importlib
from dataclasses import replace
from itertools import pairwise, product
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("scipy")
from scipy.stats import binom

from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.evaluation.matching import StepMatcher
from recipe.planning.predictions import Prediction
from recipe.types import Example
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe.world.validity import plan_key

WORLD = load_world()
GOAL = next(graph.goal for graph in WORLD.goals.values() if not graph.held_out)
HASH = open_encoder(EncoderConfig(name="hash:256")).encode


@pytest.fixture
def study() -> ModuleType:
    return importlib.import_module("systematic_errors")


def items(study: ModuleType, errors: Any, trials: int, goal: str = "g") -> Any:
    counts = np.asarray(errors, np.float64)
    return study.ItemErrors(goal, counts, np.full(len(counts), float(trials)), [None] * len(counts))


@pytest.mark.parametrize("rates", [(0.3, 0.3, 0.3), (0.1, 0.8), (0.0, 1.0), (0.9, 0.9)])
def test_the_parts_of_the_variance_are_unbiased(study: ModuleType, rates: tuple[float, ...]) -> None:
    """Over all outcomes of 4 samples: between items their sample variance, within them the mean of p(1 - p)."""
    n, between, within = 4, 0.0, 0.0
    for counts in product(range(n + 1), repeat=len(rates)):
        chance = float(np.prod(binom.pmf(counts, n, rates)))
        if chance:
            b, w = study.variances(items(study, counts, n))
            between, within = between + chance * b, within + chance * w
    scale = n * (len(rates) - 1)
    assert between == pytest.approx(scale * np.var(rates, ddof=1), abs=1e-12)
    assert within == pytest.approx(scale * np.mean([rate * (1 - rate) for rate in rates]), abs=1e-12)


@pytest.mark.parametrize("trials", [(6.0, 14.0, 20.0), (5.0, 5.0, 11.0)])
def test_items_of_different_size_have_no_variance_between_them_by_chance(study: ModuleType, trials: Any) -> None:
    mean = 0.0
    for counts in product(*(range(int(n) + 1) for n in trials)):
        own = study.ItemErrors("g", np.array(counts, float), np.array(trials), [])
        mean += float(np.prod(binom.pmf(counts, trials, 0.4))) * study.variances(own)[0]
    assert mean == pytest.approx(0, abs=1e-9)


def test_fixed_errors_have_an_icc_of_1_and_independent_ones_of_0(study: ModuleType) -> None:
    rng, goals = np.random.default_rng(0), [f"g{place % 30}" for place in range(300)]
    rates = rng.choice([0.1, 0.5, 0.9], 300)
    random = [items(study, rng.binomial(20, rate, 5), 20, goal) for rate, goal in zip(rates, goals, strict=True)]
    fixed = [items(study, 20 * (rng.permutation(5) < 2), 20, goal) for goal in goals]
    independent, same = study.item_figures(random), study.item_figures(fixed)
    assert independent["ICC"].low < 0 < independent["ICC"].high < 0.03
    assert independent["repeated"].mean == pytest.approx(independent["repeated, independent"].mean, abs=0.02)
    assert same["ICC"].mean == same["repeated"].mean == 1
    assert same["rate"].mean == pytest.approx(0.4)
    assert same["repeated, independent"].mean == pytest.approx(binom.sf(14, 19, 0.4))


@given(st.integers(1, 25), st.integers(0, 25), st.integers(0, 25))
def test_expected_repeated_errors_are_those_of_the_binomial(n: int, first: int, second: int) -> None:
    study = importlib.import_module("systematic_errors")
    counts = [min(first, n), min(second, n)]
    observed, expected = study.repeated(items(study, counts, n))
    rate = sum(counts) / (2 * n)
    often = [k for k in range(n + 1) if 5 * k >= 4 * n]
    assert observed == sum(count for count in counts if count in often)
    assert expected == pytest.approx(2 * sum(k * binom.pmf(k, n, rate) for k in often))


def test_nothing_that_cannot_be_computed_is_zero(study: ModuleType) -> None:
    assert study.item_figures([items(study, [3], 20), items(study, [], 0)])["ICC"] is None
    never = study.item_figures([items(study, [0, 0], 20)])
    assert (never["rate"].mean, never["ICC"], never["repeated"]) == (0, None, None)
    alone = study.SampledPrompt("g", ("a",), (), (), [study.ReadPlan(("a",), (), ("x",))] * 3, None)
    values, errors = study.foreign([alone], list)
    assert (values["most frequent"].mean, values["drawn"], errors) == (1, None, [])


def test_errors_are_counted_as_the_plans_say(study: ModuleType) -> None:
    plans = [("a", "b"), ("b", "a"), ("b", "a"), ("a",), ("b", "a"), ("a", "b"), ("c", "a", "b")]
    pairs = (("a", "b"), ("a", "c"), ("b", "c"))
    prompt = study.SampledPrompt("g", ("a", "b", "c"), ("d",), pairs, [study.ReadPlan(plan) for plan in plans], None)
    absent = study.missing(prompt)
    assert (absent.errors.tolist(), absent.trials.tolist(), absent.greedy) == ([0, 1, 6], [7] * 3, [None] * 3)
    turns = study.turned(prompt._replace(greedy=study.ReadPlan(("b", "a"))))  # a and c are together but once
    assert (turns.errors.tolist(), turns.trials.tolist(), turns.greedy) == ([3], [6], [True])
    absent = study.missing(prompt._replace(greedy=study.ReadPlan(("b",))))
    again = study.copied(prompt._replace(samples=[*prompt.samples, study.ReadPlan((), ("d",))]))
    assert (again.errors.tolist(), again.trials.tolist()) == ([1], [8])
    shares = study.greedy_figures([absent])
    assert (shares["majority errors"], shares["minority errors"]) == (1, 2)
    assert (shares["greedy, majority"].mean, shares["greedy, minority"].mean) == (1, 0.5)


def test_a_foreign_line_that_comes_back_is_told_from_one_of_many(study: ModuleType) -> None:
    def prompts(fixed: bool) -> list[Any]:
        lines = [[f"{goal} {'same' if fixed else place}" for place in range(10)] for goal in range(12)]
        own = [[study.ReadPlan((), (), (line, line)) for line in plans] for plans in lines]
        return [study.SampledPrompt(f"g{goal}", (), (), (), plans, plans[0]) for goal, plans in enumerate(own)]

    fixed, errors = study.foreign(prompts(fixed=True), list)
    assert (fixed["most frequent"].mean, fixed["a sample"]) == (1, 1)
    assert fixed["drawn"].mean < 0.5
    assert study.greedy_figures(errors)["greedy, majority"].mean == 1
    different, errors = study.foreign(prompts(fixed=False), list)
    assert different["most frequent"].mean == pytest.approx(0.1)
    assert study.greedy_figures(errors)["majority errors"] == 0


def test_lines_are_one_where_all_are_alike(study: ModuleType) -> None:
    """Of a chain whose ends differ, no group holds both ends."""
    angles = {"a": 0.0, "b": 0.5, "c": 1.0, "d": 3.0}
    vectors = {name: (np.cos(angle), np.sin(angle)) for name, angle in angles.items()}
    group = study.by_cosine(lambda texts: np.array([vectors[text] for text in texts]))
    assert all(np.cos(gap) >= study.SAME_LINE for gap in (b - a for a, b in pairwise([0.0, 0.5, 1.0])))
    a, b, c, d, again = group(["a", "b", "c", "d", "a"])
    assert a == again
    assert a != c
    assert b in (a, c)
    assert d not in (a, b, c)
    assert group(["a"]) == [0]


def prompt_of(study: ModuleType, reading: Any, example: Example, *plans: tuple[str, ...]) -> Any:
    written = [Prediction(example.example_id, plan) for plan in plans]
    empty = Prediction(example.example_id, (), malformed="no plan")
    [prompt] = study.read_prompts(
        reading, [example], {example.example_id: [*written, empty]}, {example.example_id: [empty]}
    )
    assert prompt.greedy is None
    assert len(prompt.samples) == len(plans)
    return prompt


def test_the_world_tells_steps_left_out_from_optional_ones_and_foreign_lines(study: ModuleType) -> None:
    graph = WORLD.graph(GOAL)
    other = next(own for own in WORLD.goals.values() if not {*own.steps} & {*graph.steps})
    line = WORLD.wordings[other.steps[0]][0]
    for example in draw_examples(WORLD, "test_cuts", 5, goals=[GOAL]):
        plan = example.continuation
        prompt = prompt_of(study, study.by_recogniser, example, plan, (line, *plan[::-1], "Xyzzy"), example.history)
        whole, reversed_, copied = prompt.samples
        assert {*prompt.remaining} == graph.required - {*plan_key(WORLD, GOAL, example.history)}
        assert {*whole.steps} == {*prompt.remaining} == {*reversed_.steps}
        assert (whole.copied, whole.foreign) == ((), ())
        assert (reversed_.copied, reversed_.foreign) == ((), (other.steps[0],))
        assert (copied.steps, {*copied.copied}, copied.foreign) == ((), {*prompt.done}, ())
        assert {*prompt.done} == {*plan_key(WORLD, GOAL, example.history)}
        assert all(whole.steps.index(a) < whole.steps.index(b) for a, b in prompt.pairs)
        assert all(reversed_.steps.index(a) > reversed_.steps.index(b) for a, b in prompt.pairs)


def test_annotated_steps_are_read_from_lines(study: ModuleType) -> None:
    history, steps = ("wash the rice",), ("boil the water", "add the salt", "serve in a bowl")
    example = Example("e", "s", "v", "cook rice", history, (*steps, steps[0]), 1, "val")
    matcher = StepMatcher(HASH)
    for own in (example, replace(example, history=(*history, steps[1]))):  # a step that is still to do is not copied
        plan = ("Serve in a bowl", *history, "add the salt", "paint it purple", "add the salt")
        prompt = prompt_of(study, lambda one: study.by_matcher(matcher, one), own, plan)
        assert prompt.remaining == steps
        assert len(prompt.pairs) == 3
        assert prompt.samples == [study.ReadPlan((steps[2], steps[1]), history, ("paint it purple",))]
