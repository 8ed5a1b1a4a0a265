"""The controls as verifiers: what they reward, and that no corpus matters to them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_scorer import r0_of, rewards_of_rows

from recipe.artifacts import to_json
from recipe.config import RewardConfig
from recipe.corpus.encoders import HashEncoder
from recipe.errors import InputError
from recipe.explain.explain import as_row, explain, in_words, parts
from recipe.explain.page import render_page
from recipe.explain.records import Links
from recipe.reward.scorer import PromptGroup, outcomes_of
from recipe.reward.verifier import Verifier
from recipe.world.load import load_world

GOAL, HISTORY = "make tea", ("boil some water",)
PLANS = (("put tea leaves in the pot", "pour the water"), ("lift the car",), ("boil some water",), ())
R0, LENGTH = RewardConfig(verifier="r0"), RewardConfig(verifier="length")


class Nothing:
    """A corpus without narrations, whose narrations nobody may ask for."""

    encoder = HashEncoder(128)
    offsets = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return 0

    def refuse(self, *_: Any) -> Any:
        raise AssertionError("a control reads no narration and searches for none")

    narration = embeddings = similarities = search_batch = refuse


@pytest.mark.parametrize("config", [R0, LENGTH])
def test_a_control_reads_no_narrations(config: RewardConfig) -> None:
    assert not config.aligns
    rewards = Verifier(Nothing(), config).score(history=HISTORY, continuations=PLANS, goal=GOAL)
    assert [one.steps for one in rewards] == [2, 1, 1, 0]
    assert all(one.pool == () and one.coverage is None and one.best_narration is None for one in rewards)
    assert rewards_of_rows(to_json(rewards)) == rewards


def test_r0_is_its_formula_on_embeddings_centred_by_the_instructions_of_the_world(corpus: Any) -> None:
    encode = HashEncoder(128).encode
    mean = encode([wordings[0] for wordings in load_world().wordings.values()]).mean(axis=0)
    rewards = Verifier(corpus, R0).score(history=HISTORY, continuations=PLANS, goal=GOAL)
    for plan, found in zip(PLANS, rewards, strict=True):
        assert found.total == pytest.approx(r0_of(encode, mean, GOAL, HISTORY, plan), abs=1e-6)
    own, other, copied, empty = (one.total for one in rewards)
    assert own > other
    assert copied == pytest.approx(0.0, abs=1e-6)
    assert empty == 0.0
    assert rewards == Verifier(Nothing(), R0).score(history=HISTORY, continuations=PLANS, goal=GOAL)


@pytest.mark.parametrize(("goal", "history"), [("", ("pour the water",)), (GOAL, ()), ("", ())])
def test_without_a_goal_or_a_history_r0_is_likeness_to_the_other(goal: str, history: Any, corpus: Any) -> None:
    encode = HashEncoder(128).encode
    mean = encode([wordings[0] for wordings in load_world().wordings.values()]).mean(axis=0)
    plans = [("pour the cold water", "make some tea"), ("lift the car",), ()]
    for plan, found in zip(
        plans, Verifier(corpus, R0).score(history=history, continuations=plans, goal=goal), strict=True
    ):
        assert found.total == pytest.approx(r0_of(encode, mean, goal, history, plan), abs=1e-6)


@given(st.lists(st.integers(0, 64), min_size=1, max_size=8))
def test_length_pays_every_step_alike_up_to_its_bound(counts: list[int]) -> None:
    rewards = Verifier(Nothing(), LENGTH).score(
        history=HISTORY, continuations=[("stir",) * count for count in counts], goal=GOAL
    )
    assert [one.total for one in rewards] == pytest.approx([min(count, 32) / 32 for count in counts])


@pytest.mark.parametrize("config", [R0, LENGTH])
def test_a_blank_step_is_the_error_of_its_plan(config: RewardConfig, corpus: Any) -> None:
    [[good, bad]] = outcomes_of(Verifier(corpus, config), [PromptGroup(GOAL, HISTORY, [("stir",), (" ",)])])
    assert good.steps == 1
    assert isinstance(bad, InputError)


@pytest.mark.parametrize(("config", "words"), [(R0, "likeness"), (LENGTH, "number of steps")])
def test_an_explanation_says_that_it_is_a_control(
    config: RewardConfig, words: str, corpus: Any, tmp_path: Path
) -> None:
    explanation = explain(Verifier(corpus, config), goal=GOAL, history=HISTORY, continuation=PLANS[0])
    assert words in in_words(explanation)[0]
    assert "control" in in_words(explanation)[0]
    assert [name for name, *_ in parts(explanation)] == ["reward"]
    row = as_row(explanation, Links("none"))
    assert (row["narrations"], row["terms"]) == ([], {})
    total = sum(step["contribution"] for step in row["steps"] if not step["in_history"])
    if config is LENGTH:
        assert total == pytest.approx(row["reward"]["total"])
    assert "verifier" in render_page(explanation, Links("none"), 3)
