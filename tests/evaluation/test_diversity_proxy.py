"""The proxy judge of diversity: its formula, its cap, and the four controls on the embedded world."""

import random
from collections.abc import Sequence
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("scipy")
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.evaluation.diversity.judges import CAP, ProxyDiversityJudge, Question, difference, nearest_level
from recipe.evaluation.diversity.plans import PromptSamples, distinct_steps
from recipe.evaluation.diversity.scores import compare_plans, prompt_diversity
from recipe.evaluation.matching import CosineScale, Likeness
from recipe.types import Example
from recipe.world.examples import draw_examples
from recipe.world.load import load_world

LETTERS = "abcdef"
PLANS = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=5, unique=True)


def letters(texts: Sequence[str]) -> np.ndarray:
    return np.eye(len(LETTERS), dtype=np.float32)[[LETTERS.index(text) for text in texts]]


def apart(first: Sequence[str], second: Sequence[str]) -> float:
    return difference(first, second, Likeness(letters, CosineScale(0.1, 0.9), LETTERS))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("abc", "abc", 0),
        ("ab", "ba", 0.25),
        ("abcd", "dcba", 0.375),
        ("ab", "cd", 1),
        ("ab", "ac", 0.5),
        ("a", "abc", 0.5),
    ],
)
def test_by_hand(first: str, second: str, expected: float) -> None:
    assert apart(first, second) == pytest.approx(expected)


@given(PLANS, PLANS)
def test_it_is_symmetric_and_nought_for_equal_plans_only(first: list[str], second: list[str]) -> None:
    assert apart(first, second) == pytest.approx(apart(second, first))
    assert 0 <= apart(first, second) <= 1
    assert (apart(first, second) < 1e-9) == (first == second)


@given(st.floats(0, 1))
def test_the_nearest_level_is_at_most_an_eighth_away(value: float) -> None:
    assert abs(nearest_level(value) - value) <= 0.125 + 1e-9


@pytest.fixture(scope="module")
def judge() -> ProxyDiversityJudge:
    return ProxyDiversityJudge(open_encoder(EncoderConfig(name="hash:512")).encode, "hash:512")


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return draw_examples(load_world(), "train", 12, seed=5)


def measured(judge: ProxyDiversityJudge, prompts: Sequence[PromptSamples]) -> dict[str, float]:
    return prompt_diversity(compare_plans(judge, prompts, order_check=0))


def sampled(example: Example, plans: Sequence[Sequence[str]]) -> PromptSamples:
    return PromptSamples(
        example, tuple(range(len(plans))), tuple(tuple(distinct_steps(plan).values()) for plan in plans)
    )


def test_plans_for_other_goals_are_capped(judge: ProxyDiversityJudge, examples: list[Example]) -> None:
    foreign = {one.example_id: [other.continuation for other in examples if other.goal != one.goal] for one in examples}
    found = measured(judge, [sampled(one, foreign[one.example_id][:6]) for one in examples])
    assert fmean(found.values()) <= CAP + 0.05  # the threshold lets 5% of other goals pass
    copies = measured(judge, [sampled(one, [one.history, (*one.history, one.continuation[0])]) for one in examples])
    assert all(value <= CAP for value in copies.values())


def test_other_orders_differ_less_than_other_steps(judge: ProxyDiversityJudge, examples: list[Example]) -> None:
    rng = random.Random(0)
    shuffled = [
        sampled(one, [rng.sample(one.continuation, len(one.continuation)) for _ in range(6)]) for one in examples
    ]
    assert 0 < fmean(measured(judge, shuffled).values()) < 0.5


def test_a_question_gets_the_same_answer_in_any_company(judge: ProxyDiversityJudge, examples: list[Example]) -> None:
    questions = [Question(one, one.continuation, one.continuation[::-1]) for one in examples]
    together = judge.compare(questions)
    assert together == [found for one in questions for found in judge.compare([one])]
    backwards = [one._replace(first=one.second, second=one.first) for one in questions]
    assert judge.compare(backwards) == together
