"""What a trainer sees: grouped scoring, parsed completions, None for what could not be computed."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from recipe.config import RewardConfig
from recipe.errors import ComputeError, CorpusError
from recipe.reward.adapters import trainer_reward
from recipe.reward.verifier import Verifier
from recipe.types import Reward


class StepCounter:
    """Rewards the number of steps; a goal of its own making fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failure = failure

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        self.calls.append((goal, tuple(history), tuple(tuple(plan) for plan in continuations)))
        if self.failure and goal == "fail":
            raise self.failure
        return [Reward(len(plan), 0, 0, 0, False, len(plan), (), None) for plan in continuations]


def test_rows_of_one_prompt_are_scored_together_and_returned_in_place() -> None:
    scorer = StepCounter()
    rewards = trainer_reward(scorer)(
        ["tea", "toast", "tea", "tea"],
        [["boil"], ["slice"], ["boil"], []],
        ["1. pour\n2. wait", "- toast", "1. pour", "1. boil\n2. pour\n3. wait"],
    )
    assert [reward.total for reward in rewards if reward] == [2, 1, 1, 3]
    assert scorer.calls == [
        ("tea", ("boil",), (("pour", "wait"), ("pour",))),
        ("toast", ("slice",), (("toast",),)),
        ("tea", (), (("boil", "pour", "wait"),)),
    ]


def test_a_malformed_completion_is_an_empty_plan_by_the_formula(corpus: Any) -> None:
    reward, good = trainer_reward(Verifier(corpus))(
        ["tea"] * 2, [["boil the water"]] * 2, [" \n", "1. warm the pot\n2. put tea leaves in the pot"]
    )
    assert reward is not None
    assert good is not None
    assert (reward.steps, reward.total) == (0, pytest.approx(-0.2))
    assert good.total > 0


@pytest.mark.parametrize("failure", [ComputeError("encoder down"), CorpusError("shard lost")])
def test_a_failure_is_none_for_its_own_group_only(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        rewards = trainer_reward(StepCounter(failure))(["fail", "tea", "fail"], [[]] * 3, ["- a"] * 3)
    assert [reward and reward.total for reward in rewards] == [None, 1, None]
    assert str(failure) in caplog.text


def test_other_errors_stop_the_training() -> None:
    with pytest.raises(ZeroDivisionError):
        trainer_reward(StepCounter(ZeroDivisionError()))(["fail"], [[]], ["- a"])


def test_rows_must_be_aligned() -> None:
    with pytest.raises(ValueError, match="argument 3 is shorter"):
        trainer_reward(StepCounter())(["tea", "tea"], [[], []], ["- a"])


def test_all_steps_of_a_batch_are_encoded_in_one_call(corpus: Any) -> None:
    verifier = Verifier(corpus)
    trainer_reward(verifier, prefetch=verifier.prepare)(
        ["tea", "eggs"],
        [["boil the water"], ["crack two eggs"]],
        ["- warm the pot", "- stir slowly\n- serve"],
    )
    assert len(corpus.encoder.calls) == 1


@pytest.mark.parametrize("pool", ["history", "full", "own"])
def test_all_pools_of_a_batch_are_found_in_one_search(corpus: Any, pool: Any) -> None:
    batch = (
        ["tea", "eggs"] * 2,
        [["boil the water"], []] * 2,
        ["- warm the pot", "- stir", "- pour\n- serve", "- fry"],
    )
    alone = trainer_reward(Verifier(corpus, RewardConfig(pool=pool)))(*batch)
    corpus.searches = 0
    verifier = Verifier(corpus, RewardConfig(pool=pool))
    assert trainer_reward(verifier, prefetch=verifier.prepare)(*batch) == alone
    assert corpus.searches == 1


def test_a_failed_prefetch_leaves_the_verdict_to_each_group() -> None:
    def prefetch(groups: Sequence[object]) -> None:
        raise ComputeError("encoder down")

    assert trainer_reward(StepCounter(), prefetch)(["tea"], [[]], ["- a"])[0] is not None
    assert trainer_reward(StepCounter(), prefetch)([], [], []) == []
