"""Order by a language model: against closed forms, with likelihoods that are known."""

from collections.abc import Sequence
from itertools import pairwise, permutations
from math import tanh

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.config import GroundedConfig, RewardConfig
from recipe.errors import ComputeError, ConfigError
from recipe.reward.grounded import grounded_reward
from recipe.reward.language_model import PlanOrder, other_orders
from recipe.reward.scorer import Prompt, PromptGroup, Steps
from recipe.reward.verifier import Verifier

TEA = ("put tea leaves in the pot", "pour the water", "wait five minutes")


class Bigrams:
    """Log-probability: the number of lines that follow the line before them in TEA, and a constant for each line."""

    def __init__(self, style: float = -3.0) -> None:
        self.style, self.calls = style, list[int]()

    def __call__(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[float]:
        self.calls.append(len(texts))
        return [self.one(text) for text in texts]

    def one(self, text: str) -> float:
        lines = [line.partition(". ")[2] for line in text.splitlines()]
        pairs = set(pairwise(TEA))
        return self.style * len(lines) + sum(pair in pairs for pair in pairwise(lines))


def order_of(plan: Steps, likelihood: Bigrams | None = None, count: int = 5) -> float:
    [[value]] = PlanOrder(likelihood or Bigrams(), count)([PromptGroup("make tea", ("boil",), [plan])])
    return value


def test_mean_over_other_orders() -> None:
    words = sum(len(step.split()) for step in TEA)
    others = [order for order in permutations(TEA) if order != TEA]
    said = [2 - sum(pair in pairwise(TEA) for pair in pairwise(o)) for o in others]
    assert order_of(TEA) == pytest.approx(sum(tanh(2 * gain / words) for gain in said) / 5)
    assert order_of(TEA[::-1]) < 0 < order_of(TEA)


def test_how_likely_the_lines_are_does_not_matter() -> None:
    assert order_of(TEA, Bigrams(-30.0)) == pytest.approx(order_of(TEA, Bigrams(0.0)))


@pytest.mark.parametrize("plan", [(), ("stir",), ("stir", "stir", "stir")])
def test_a_plan_with_one_order_is_neutral(plan: Steps) -> None:
    likelihood = Bigrams()
    assert order_of(plan, likelihood) == 0.0
    assert likelihood.calls == []


@given(st.lists(st.sampled_from("abcd"), max_size=6).map(tuple), st.integers(1, 4))
def test_other_orders_hold_the_same_steps(plan: Steps, count: int) -> None:
    found = other_orders(plan, count)
    assert len(set(found)) == len(found) <= count
    assert all(sorted(order) == sorted(plan) and order != plan for order in found)
    assert found == other_orders(plan, count)
    assert bool(found) == (len(set(plan)) > 1)


def test_all_plans_in_one_call_and_kept() -> None:
    likelihood = Bigrams()
    judge = PlanOrder(likelihood, 2)
    groups = [PromptGroup("make tea", (), [TEA, TEA, TEA[::-1]]), PromptGroup("tea", (), [TEA])]
    first = judge(groups)
    assert likelihood.calls == [9]
    assert judge(groups) == first
    assert likelihood.calls == [9]


def test_nan_is_an_error() -> None:
    with pytest.raises(ComputeError):
        PlanOrder(lambda _, texts: [float("nan")] * len(texts), 2)([PromptGroup("tea", (), [TEA])])


def test_as_a_factor_of_the_reward(corpus) -> None:  # type: ignore[no-untyped-def]
    grounded = GroundedConfig(pool_size=3, background_size=2, language_model="policy", model_order=0.4, permutations=5)
    verifier = Verifier(corpus, RewardConfig(verifier="grounded", grounded=grounded))
    with pytest.raises(ConfigError, match="language_model"):
        verifier.score(history=["boil the water"], continuations=[TEA], goal="make tea")
    verifier.use_likelihood(Bigrams())
    plain = Verifier(
        corpus, RewardConfig(verifier="grounded", grounded=grounded.model_copy(update={"language_model": ""}))
    )
    history = ["boil the water"]
    ours, reverse = verifier.score(history=history, continuations=[TEA, TEA[::-1]], goal="make tea")
    without, _ = plain.score(history=history, continuations=[TEA, TEA[::-1]], goal="make tea")
    assert ours.parts["language_model"] == pytest.approx(0.4 * order_of(TEA))
    assert reverse.parts["language_model"] < 0
    assert ours.total == grounded_reward(ours.parts, 3, grounded)
    price = without.parts["price"] * 3 / (3 + grounded.horizon)
    factor = 1 + ours.parts["language_model"]
    assert ours.total + price == pytest.approx((without.total + price) * factor)
