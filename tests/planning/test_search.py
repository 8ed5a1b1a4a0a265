"""Search while planning, on a toy planner and a scorer whose rewards are known."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.config import SamplingConfig, SearchConfig
from recipe.errors import ComputeError, InputError
from recipe.models.protocol import Answer, Engine, ModelRequest, Refusal
from recipe.planning.planner import PlanDraft, Planner, Request
from recipe.planning.prediction_files import read_predictions, write_predictions
from recipe.planning.rerank import rerank
from recipe.planning.search import Composition, PlanSearch, SearchedPlan
from recipe.reward.scorer import PromptGroup, Steps, plain_reward
from recipe.text import format_plan
from recipe.types import Example, Plan, Reward

TEA, RICE = Request("make tea", ("boil the water",)), Request("boil rice")
EXAMPLE = Example("t1", "toy", "v", TEA.goal, TEA.history, ("a",), 1)
Grammar = Mapping[str, Sequence[str]]
"""The steps that may follow a step, the empty one being the end; the first follow the step before them."""
FREE: Grammar = {"": ["a", "b"], "a": ["b", "c", ""], "b": ["c", "d"], "c": ["d", ""], "d": [""]}


class ToyPlanner(Engine):
    """Writes a step a line, each drawn among those that its grammar allows, by the seed, the sample and the prompt."""

    def __init__(self, grammar: Grammar = FREE, remark: str = "") -> None:
        self.grammar, self.remark = grammar, remark
        self.asked: list[ModelRequest] = []

    def answer(self, requests: Sequence[ModelRequest], *_: Any, **__: Any) -> list[Answer | Refusal]:
        self.asked += requests
        return [self._one(request) for request in requests]

    def _one(self, request: ModelRequest) -> Answer | Refusal:
        if "too long" in request.chat[-1]["content"]:
            return Refusal("the prompt is too long; shorten the history.")
        draw = random.Random(f"{request.sampling.seed} {request.sample} {request.chat}")
        steps = list[str]()
        while step := draw.choice(self.grammar[steps[-1] if steps else ""]):
            steps.append(step)
        text = self.remark + format_plan(steps)
        return Answer(text, 10, len(text.split()))


class TableScorer:
    """Rewards a plan with the worth of its steps, each once, less a price; counts what it is asked."""

    def __init__(self, worth: Mapping[str, float], price: float = 0.0) -> None:
        self.worth, self.price = worth, price
        self.scored: list[tuple[str, Steps]] = []

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        self.scored += [(group.goal, plan) for group in groups for plan in group.plans]
        return [[plain_reward(self.value(plan), len(plan)) for plan in group.plans] for group in groups]

    def value(self, plan: Steps) -> float:
        return sum(self.worth.get(step, 0.0) for step in dict.fromkeys(plan)) - self.price * len(plan)


def composed(
    scorer: Any, requests: Sequence[Request] = (TEA,), engine: Engine | None = None, seed: int = 0, **config: Any
) -> list[Composition]:
    planner = Planner(engine or ToyPlanner(), SamplingConfig(max_tokens=200, seed=seed))
    search = PlanSearch(planner, scorer, SearchConfig(search="recombine", **config))
    outcomes = search.compose([PlanDraft(request) for request in requests])
    assert all(isinstance(outcome, Composition) for outcome in outcomes)
    return outcomes  # type: ignore[return-value]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(-1, 1), min_size=4, max_size=4), st.integers(1, 6), st.integers(1, 5), st.integers(0, 99))
def test_what_is_recombined_is_worth_the_best_sampled_plan_at_least(
    worths: list[float], samples: int, width: int, seed: int
) -> None:
    scorer, engine = TableScorer(dict(zip("abcd", worths, strict=True)), 0.1), ToyPlanner()
    [found] = composed(scorer, engine=engine, seed=seed, samples=samples, width=width)
    assert len(engine.asked) == samples, "it costs no further call"
    planner = Planner(ToyPlanner(), SamplingConfig(max_tokens=200, seed=seed))
    plans = planner.plan([TEA], samples)
    [ranked] = rerank(scorer, [TEA], plans)
    assert found.plans[0].reward is not None
    assert found.plans[0].reward.total >= max(reward.total for reward in ranked.rewards)
    steps = {step for plan in plans[0] for step in getattr(plan, "steps", ())}
    assert set(found.plans[0].steps) <= steps
    assert found.record.encodings <= len(steps), "no step is encoded that the plans do not hold"
    assert {plan.steps[-1] for plan in found.plans} <= {plan.steps[-1] for plan in plans[0] if isinstance(plan, Plan)}


def test_equal_plans_are_one() -> None:
    scorer = TableScorer({"a": 1.0, "d": 0.5})
    [found] = composed(scorer, width=4, samples=9)
    assert len(scorer.scored) == len(set(scorer.scored)) == found.record.rewards
    assert found.record.encodings == len({step for _, plan in scorer.scored for step in plan})
    assert len({plan.steps for plan in found.plans}) == len(found.plans)
    totals = [plan.reward.total for plan in found.plans if plan.reward is not None]
    assert totals == [scorer.value(plan.steps) for plan in found.plans] == sorted(totals, reverse=True)


def test_what_is_composed_does_not_depend_on_what_is_beside_it() -> None:
    requests = [replace(TEA, goal=f"goal {number}") for number in range(6)]
    config: dict[str, Any] = {"width": 2, "samples": 3, "budget": 4}
    together = composed(TableScorer({"a": 1.0, "c": -0.5}), requests, **config)
    assert together == [composed(TableScorer({"a": 1.0, "c": -0.5}), [one], **config)[0] for one in requests]
    assert len({one.plans[0].steps for one in together}) > 1
    other = composed(TableScorer({"a": 1.0, "c": -0.5}), requests, seed=1, **config)
    assert [one.plans for one in other] != [one.plans for one in together]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 5), st.integers(0, 20))
def test_no_more_steps_are_encoded_than_the_budget_allows(budget: int, seed: int) -> None:
    scorer = TableScorer({"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4})
    [free], [bound] = (composed(scorer, budget=most, width=3, seed=seed) for most in (None, budget))
    assert bound.record.encodings <= budget
    assert bound.record.spent == (free.record.encodings > budget) or bound.record.encodings < free.record.encodings
    if not bound.record.spent:
        assert bound.plans == free.plans
    scored = {plan for _, plan in scorer.scored}
    if any(plan.reward is not None for plan in bound.plans):
        assert all(plan.steps in scored for plan in bound.plans)
    else:
        assert len(bound.plans) == 1, "the first plan that the model wrote, without a reward"


def test_a_step_that_was_done_is_a_candidate_as_any_other() -> None:
    again: Grammar = {"": ["boil the water", "a"], "boil the water": [""], "a": ["a", ""]}
    done = TEA.history[0]
    [found] = composed(TableScorer({done: 1.0}, 0.1), engine=ToyPlanner(again))
    assert found.plans[0].steps == (done,)
    [found] = composed(TableScorer({done: -1.0, "a": 0.1}, -0.2), engine=ToyPlanner(again), width=1)
    assert set(found.plans[0].steps) == {"a"}


def test_a_remark_before_the_list_is_no_step() -> None:
    [found] = composed(TableScorer({}), engine=ToyPlanner(remark="Here is the rest:\n"))
    assert found.plans[0].answer.text.startswith("Here is the rest:\n1. ")
    assert {step for plan in found.plans for step in plan.steps} <= set(FREE)


class Told(Engine):
    """Answers every request with the same."""

    def __init__(self, outcome: Answer | Refusal) -> None:
        self.outcome = outcome

    def answer(self, requests: Sequence[ModelRequest], *_: Any, **__: Any) -> list[Answer | Refusal]:
        return [self.outcome] * len(requests)


@pytest.mark.parametrize(
    ("outcome", "steps", "cut"),
    [
        (Answer("", 5, 1), (), False),
        (Answer("I cannot help.", 5, 4), (), False),
        (Answer("1. stir\n2. po", 5, 200, finish="length"), ("stir",), True),
        (Answer("", 5, 9, refusal="I will not."), (), False),
    ],
)
def test_plans_end_where_the_model_ends_or_its_limit_is(outcome: Answer, steps: Steps, cut: bool) -> None:
    [found] = composed(TableScorer({}), engine=Told(outcome))
    best = found.plans[0]
    assert (best.steps, best.answer.cut) == (steps, cut)
    search = PlanSearch(Planner(Told(outcome)), TableScorer({}), SearchConfig(search="recombine"))
    [prediction] = search.predict([EXAMPLE])
    assert (prediction.steps, prediction.cut or False) == (steps, cut)
    assert (prediction.malformed is None) == bool(steps)


def test_a_refusal_is_that_of_its_prompt() -> None:
    planner = Planner(ToyPlanner(), SamplingConfig(max_tokens=200))
    searching = PlanSearch(planner, TableScorer({"a": 1.0}), SearchConfig(search="recombine", samples=2))
    drafts = [PlanDraft(TEA), PlanDraft(Request("too long")), PlanDraft(RICE)]
    outcomes = searching.compose(drafts)
    assert [type(one) for one in outcomes] == [Composition, Refusal, Composition]
    examples = [Example(f"t{n}", "toy", "v", one.request.goal, (), ("a",), 0) for n, one in enumerate(drafts)]
    unanswered: dict[str, str] = {}
    assert {one.example_id for one in searching.predict(examples, unanswered=unanswered)} == {"t0", "t2"}
    assert list(unanswered) == ["t1"]
    with pytest.raises(InputError, match="shorten the history"):
        searching.predict(examples)


def test_a_search_that_is_stopped_goes_no_further_than_its_level() -> None:
    scorer, seen, scored = TableScorer({"a": 1.0}), list[int](), -1
    searching = PlanSearch(Planner(ToyPlanner()), scorer, SearchConfig(search="recombine"))
    for place, begun, outcome in searching.stream([PlanDraft(TEA), PlanDraft(RICE)], stopped=seen.__contains__):
        assert (outcome is None) == bool(begun)
        assert place not in seen
        if place == 0:
            assert outcome is None
            seen.append(place)
            scored = sum(goal == TEA.goal for goal, _ in scorer.scored)
    assert sum(goal == TEA.goal for goal, _ in scorer.scored) == scored > 0


def test_what_the_scorer_cannot_reward_is_an_error_and_never_zero() -> None:
    class Broken(TableScorer):
        def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
            raise ComputeError("the encoder failed; check its model.")

    with pytest.raises(ComputeError, match="the encoder failed"):
        composed(Broken({}))


def test_predictions_hold_the_search_and_its_cost(tmp_path: Path) -> None:
    config = SearchConfig(search="recombine", width=3, samples=2, budget=50)
    [found] = composed(TableScorer({"a": 1.0}), width=3, samples=2, budget=50)
    search = PlanSearch(Planner(ToyPlanner(), SamplingConfig(max_tokens=200)), TableScorer({"a": 1.0}), config)
    predictions = search.predict([EXAMPLE], 3)
    assert [one.sample for one in predictions] == list(range(min(3, len(found.plans))))
    assert all(one.reward is not None and one.search == found.record for one in predictions)
    write_predictions(tmp_path / "p.jsonl", predictions)
    assert read_predictions(tmp_path / "p.jsonl") == predictions
    engine = ToyPlanner()
    [again] = composed(TableScorer({"a": 1.0}), engine=engine, width=3, samples=2, budget=50)
    answers = [one for one in ToyPlanner().answer(engine.asked) if isinstance(one, Answer)]
    assert again.record.tokens_out == sum(one.tokens_out for one in answers)
    assert again.record.tokens_in == sum(one.tokens_in for one in answers)
    assert SearchedPlan((), Answer("")).rank > SearchedPlan(("a",), Answer("1. a")).rank > found.plans[0].rank
