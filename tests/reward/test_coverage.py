from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.config import GroundedConfig, RewardConfig
from recipe.errors import InputError
from recipe.reward.embeddings import NarrationIndex
from recipe.reward.grounded import corpus_share
from recipe.reward.scorer import plain_reward, prompt_outcomes
from recipe.reward.verifier import Verifier
from recipe.types import Reward

CONFIG = GroundedConfig(relevance=0.5, horizon=4)


def reward(gain: float, relevance: float, steps: int = 4, order: float = 0.0) -> Reward:
    return plain_reward(
        0.0, steps, gain=gain, background=0.0, relevance=relevance, goal_relevance=0.0, order=order, price=0.0
    )


def test_the_share_is_that_of_differences_within_a_prompt() -> None:
    tea, eggs = ("tea", ("boil",)), ("eggs", ("crack",))
    # The corpus term differs by 3, the weighted relevance by 1, both over 8 places; the second prompt adds a constant.
    rewards = [reward(3.0, 0.0), reward(0.0, 2.0), reward(9.0, 7.0), reward(9.0, 7.0)]
    assert corpus_share(rewards, [tea, tea, eggs, eggs], CONFIG) == pytest.approx(0.75)
    assert corpus_share(rewards[2:], [eggs, eggs], CONFIG) is None


def test_the_vote_on_order_counts_for_the_corpus() -> None:
    prompt = ("tea", ())
    rewards = [reward(0.0, 2.0, order=0.5), reward(0.0, 2.0, order=-0.5)]
    assert corpus_share(rewards, [prompt, prompt], CONFIG) == 1.0


def test_rewards_without_grounded_parts_have_no_share() -> None:
    assert corpus_share([plain_reward(1.0, 2), plain_reward(0.0, 2)], [("tea", ())] * 2, CONFIG) is None


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5), st.integers(1, 9)), min_size=2, max_size=6))
def test_shares_of_corpus_and_relevance_add_to_one(values: list[tuple[float, float, int]]) -> None:
    prompts = [("tea", ())] * len(values)
    one = GroundedConfig(relevance=1.0)
    share = corpus_share([reward(a, b, n) for a, b, n in values], prompts, one)
    other = corpus_share([reward(b, a, n) for a, b, n in values], prompts, one)
    if share is None or other is None:
        assert share is other is None
    else:
        assert share + other == pytest.approx(1.0)


def test_coverage_is_that_of_any_plan_and_failures_stay(corpus: NarrationIndex) -> None:
    verifier = Verifier(corpus, RewardConfig(verifier="grounded"))
    prompts: Sequence[tuple[str, tuple[str, ...]]] = [
        ("make tea", ("boil the water",)),
        ("make tea", (" ",)),
        ("make tea", ("boil the water",)),
    ]
    first, blank, again = prompt_outcomes(verifier, prompts)
    assert isinstance(blank, InputError)
    assert isinstance(first, Reward)
    assert first is again
    [scored] = verifier.score(history=("boil the water",), continuations=[("warm the pot",)], goal="make tea")
    assert first.coverage == pytest.approx(scored.coverage)
    assert np.isfinite(scored.total)
