"""Procedural diversity: its arithmetic by hand, what is asked, that no order changes it, and its proxy judge."""

import random
from collections.abc import Callable, Sequence
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy")
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.errors import ComputeError, InputError
from recipe.evaluation.diversity.judges import (
    CAP,
    DiversityRating,
    ProxyDiversityJudge,
    Question,
    difference,
    nearest_level,
)
from recipe.evaluation.diversity.plans import LEVELS, PromptSamples, chosen_prompts, distinct_steps, sampled_plans
from recipe.evaluation.diversity.scores import DiversityMeasure, PlanPair, compare_plans, prompt_diversity
from recipe.evaluation.matching import CosineScale, Likeness
from recipe.evaluation.measures import summarise
from recipe.evaluation.scores import JudgeIdentity, Scores
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.types import Example
from recipe.world.examples import draw_examples
from recipe.world.load import load_world

IDENTITY = JudgeIdentity("fake", "proxy")


class FakeJudge:
    """Answers by a function of the two plans as shown, and remembers what it was asked."""

    identity = IDENTITY

    def __init__(self, level: Callable[[tuple[str, ...], tuple[str, ...]], float | None]) -> None:
        self._level, self.asked = level, list[Question]()

    def compare(self, questions: Sequence[Question], progress: Progress = SILENT) -> list[DiversityRating]:
        self.asked += questions
        levels = [self._level(one.first, one.second) for one in questions]
        return [
            DiversityRating(level, "json" if level is not None else "", "" if level is not None else "mute")
            for level in levels
        ]


def example(number: int = 0) -> Example:
    return Example(f"e{number}", "s", f"v{number}", "tea", ("boil",), ("pour",), 1)


def sampled(plans: Sequence[Sequence[str]], of: int | Example = 0) -> PromptSamples:
    """The samples of an example, or of the one with a number."""
    shown = tuple(tuple(distinct_steps(plan).values()) for plan in plans)
    return PromptSamples(example(of) if isinstance(of, int) else of, tuple(range(len(plans))), shown)


def by_size(first: tuple[str, ...], second: tuple[str, ...]) -> float:
    """A level from the numbers of steps: symmetric."""
    return LEVELS[abs(len(first) - len(second)) % 5]


def diversity(pairs: Sequence[PlanPair], examples: Sequence[Example] = (example(),)) -> Scores:
    return summarise(DiversityMeasure(IDENTITY, 10), "me", [pair.row() for pair in pairs], examples)


def mean(scores: Scores) -> float:
    return scores.overall.values["diversity"].mean


def steps(count: int) -> list[str]:
    return [f"step {letter}" for letter in "abcdefghijkl"[:count]]


def test_ten_samples_are_forty_five_pairs_and_their_mean_is_by_hand() -> None:
    judge = FakeJudge(by_size)
    pairs = compare_plans(judge, [sampled([steps(size) for size in range(1, 11)])], order_check=0)
    assert [(pair.first, pair.second) for pair in pairs] == list(combinations(range(10), 2))
    found = diversity(pairs)
    # 9 pairs of samples differ by 1 in size, 8 by 2, ... 1 by 9; the level is the difference modulo 5, over 4.
    assert mean(found) == pytest.approx((9 * 0.25 + 8 * 0.5 + 7 * 0.75 + 6 + 4 * 0.25 + 3 * 0.5 + 2 * 0.75 + 1) / 45)
    assert found.extras["levels"] == {"0": 5, "0.25": 13, "0.5": 11, "0.75": 9, "1": 7}
    assert (len(judge.asked), found.extras["pairs"], found.overall.counts.plans) == (45, 45, 1)


PLANS = st.lists(
    st.lists(st.sampled_from(["Stir.", "stir", "pour", "wait", "..."]), max_size=4).map(tuple), min_size=2, max_size=6
)


@settings(max_examples=25)
@given(PLANS, st.randoms(use_true_random=False), st.sampled_from([0, 0.5, 1]))
def test_the_order_of_samples_and_prompts_changes_nothing(
    plans: list[tuple[str, ...]], shuffling: random.Random, share: float
) -> None:
    def uneven(first: tuple[str, ...], second: tuple[str, ...]) -> float:
        return LEVELS[(2 * len(first[0]) + len(second)) % 5]

    mixed = shuffling.sample(plans, len(plans))
    straight = compare_plans(FakeJudge(uneven), [sampled(plans), sampled(plans, 1)], share)
    turned = compare_plans(FakeJudge(uneven), [sampled(plans, 1), sampled(mixed)], share)
    assert prompt_diversity(straight) == pytest.approx(prompt_diversity(turned))


@given(PLANS)
def test_equal_plans_are_nought_and_asked_about_by_nobody(plans: list[tuple[str, ...]]) -> None:
    judge = FakeJudge(lambda first, second: 1.0)
    pairs = compare_plans(judge, [sampled(plans)], order_check=0)
    keys = [tuple(distinct_steps(plan)) for plan in plans]
    for pair in pairs:
        one, other = keys[pair.first], keys[pair.second]
        assert pair.score == (1.0 if one and other and one != other else 0.0)
        assert (pair.how == "rule") == (pair.score == 0)
    said = {key for key in keys if key}
    assert len(judge.asked) == len(said) * (len(said) - 1) // 2
    assert all(tuple(distinct_steps(one.first)) != tuple(distinct_steps(one.second)) for one in judge.asked)


def test_wording_marks_and_repetition_make_no_plan_different() -> None:
    same = [["1. Pour water!", "2) stir"], ["pour  WATER", "Stir", "stir", "- pour water"], ["１. pour water", "stir…"]]
    pairs = compare_plans(FakeJudge(lambda first, second: 1.0), [sampled(same)])
    assert [pair.score for pair in pairs] == [0, 0, 0]
    judge = FakeJudge(lambda first, second: 1.0)
    compare_plans(judge, [sampled([["a", "b", "a", "b"], ["c", "c"]])], order_check=0)
    [question] = judge.asked
    assert {question.first, question.second} == {("a", "b"), ("c",)}


def test_a_judge_that_favours_the_place_is_found_out() -> None:
    def places(first: tuple[str, ...], second: tuple[str, ...]) -> float:
        return 1.0 if first < second else 0.0

    plans = [[f"plan {number}"] for number in range(10)]
    prompts = [sampled(plans, number) for number in range(20)]
    some = compare_plans(FakeJudge(places), prompts, order_check=0.1)
    every = compare_plans(FakeJudge(places), prompts, order_check=1)
    fair = compare_plans(FakeJudge(by_size), prompts, order_check=0.1)
    scores = [diversity(pairs, [example(number) for number in range(20)]) for pairs in (some, every, fair)]
    found, averaged, sound = (one.extras for one in scores)
    assert 0.06 * 900 < found["order_pairs"] < 0.14 * 900
    assert found["order_disagreements"] == found["order_pairs"]
    assert found["levels"]["0.5"] == 0  # a pair counts the same whether it was checked or not
    assert 0.45 < mean(scores[0]) < 0.55  # places are drawn evenly, so that the bias cancels
    assert (mean(scores[1]), averaged["levels"]["0.5"], averaged["order_pairs"]) == (0.5, 900, 900)
    assert sound["order_pairs"] == found["order_pairs"]
    assert sound["order_disagreements"] == 0


def test_a_larger_check_holds_a_smaller_one_and_changes_no_score() -> None:
    prompts = [sampled([steps(size) for size in range(1, 8)], number) for number in range(5)]
    runs = [compare_plans(FakeJudge(by_size), prompts, share) for share in (0.1, 0.5)]
    checked = [{(one.example_id, one.first, one.second) for one in run if one.other_way is not None} for run in runs]
    assert checked[0] < checked[1]
    assert [one.score for one in runs[0]] == [one.score for one in runs[1]]
    assert [one.swapped for one in runs[0]] == [one.swapped for one in runs[1]]


def test_what_is_not_answered_is_in_no_mean() -> None:
    def mute(first: tuple[str, ...], second: tuple[str, ...]) -> float | None:
        return None if len(first) + len(second) == 3 else 0.5

    pairs = compare_plans(FakeJudge(mute), [sampled([steps(1), steps(2), steps(3)])], order_check=0)
    found = diversity(pairs)
    assert (mean(found), found.extras["unscored_pairs"], found.extras["pairs"]) == (0.5, 1, 3)
    read = {name: one.mean for name, one in found.overall.readings.items()}
    assert read == {
        "missing_as_0": pytest.approx(1 / 3),
        "missing_left_out": 0.5,
        "missing_as_best": pytest.approx(2 / 3),
    }
    assert diversity(pairs[1:]).overall.readings == {}
    assert [pair.unscored for pair in pairs] == ["mute", "", ""]
    nothing = compare_plans(FakeJudge(lambda first, second: None), [sampled([steps(1), steps(1), steps(2)])])
    with pytest.raises(ComputeError, match="mute"):
        diversity(nothing)


def test_pairs_decided_in_code_do_not_stand_for_those_without_an_answer() -> None:
    def mute(first: tuple[str, ...], second: tuple[str, ...]) -> float | None:
        return 1.0 if len(first) + len(second) == 3 else None

    plans = [steps(1), steps(2), steps(3), []]  # of six pairs three are 0 by rule, one is answered, two are not
    assert prompt_diversity(compare_plans(FakeJudge(mute), [sampled(plans)], order_check=0)) == {"e0": 0.5}


def test_with_both_orders_the_one_that_is_read_counts() -> None:
    def half(first: tuple[str, ...], second: tuple[str, ...]) -> float | None:
        return None if len(first) < len(second) else 0.75

    [pair] = compare_plans(FakeJudge(half), [sampled([steps(1), steps(2)])], order_check=1)
    assert (pair.score, pair.unscored, pair.how) == (0.75, "", "json")
    assert (pair.level is None) != (pair.other_way is None)
    assert diversity([pair]).extras["order_pairs"] == 0


def test_prompts_are_chosen_by_their_own_hash() -> None:
    examples = [example(number) for number in range(60)]
    chosen = chosen_prompts(examples, 20)
    assert len(chosen) == 20
    assert chosen == sorted(chosen, key=examples.index)
    ids = {one.example_id for one in chosen}
    assert {one.example_id for one in chosen_prompts(examples[::-1], 20)} == ids
    without = [one for one in examples if one.example_id in ids or int(one.example_id[1:]) % 2]
    assert {one.example_id for one in chosen_prompts(without, 20)} == ids
    assert len(ids & {one.example_id for one in chosen_prompts(examples, 10)}) == 10
    assert {one.example_id for one in chosen_prompts(examples, 20, seed=1)} != ids
    assert chosen_prompts(examples[:3], 20) == examples[:3]


def test_too_few_samples_are_an_error_or_left_out() -> None:
    examples = [example(number) for number in range(3)]
    predictions = [Prediction("e0", ("a",), n) for n in range(4)] + [Prediction("e1", ("a",), n) for n in range(2)]
    with pytest.raises(InputError, match=r"2 of 3 prompts .*'e1' with 2"):
        sampled_plans(examples, predictions, samples=4)
    [first, _] = sampled_plans(examples, predictions[::-1], samples=3, fewer=True)
    assert first.samples == (0, 1, 2)
    found = sampled_plans(examples, predictions, samples=4, fewer=True)
    assert [len(one.plans) for one in found] == [4, 2]
    with pytest.raises(InputError, match="no prompt has 2 samples"):
        sampled_plans(examples[2:], predictions, examples, fewer=True)
    with pytest.raises(InputError, match="nobody"):
        sampled_plans(examples, [Prediction("nobody", ("a",))])


def test_long_and_odd_plans_are_cut_to_what_is_shown() -> None:
    plans = [("x" * 10_000_000,), tuple(f"step {n}" for n in range(500)), ("\x00\u202e",), ("يقلب", "将水煮沸")]
    predictions = [Prediction("e0", plan, number) for number, plan in enumerate(plans)]
    [prompt] = sampled_plans([example()], predictions, samples=4)
    assert [len(plan) for plan in prompt.plans] == [1, 100, 0, 2]
    assert max(len(step) for plan in prompt.plans for step in plan) <= 500


LETTERS = "abcdef"
SPELT = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=5, unique=True)


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
def test_the_proxy_by_hand(first: str, second: str, expected: float) -> None:
    assert apart(first, second) == pytest.approx(expected)


@given(SPELT, SPELT)
def test_the_proxy_is_symmetric_and_nought_for_equal_plans_only(first: list[str], second: list[str]) -> None:
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


def test_plans_for_other_goals_are_capped(judge: ProxyDiversityJudge, examples: list[Example]) -> None:
    foreign = {one.example_id: [other.continuation for other in examples if other.goal != one.goal] for one in examples}
    found = measured(judge, [sampled(foreign[one.example_id][:6], one) for one in examples])
    assert fmean(found.values()) <= CAP + 0.05  # the threshold lets 5% of other goals pass
    copies = measured(judge, [sampled([one.history, (*one.history, one.continuation[0])], one) for one in examples])
    assert all(value <= CAP for value in copies.values())


def test_other_orders_differ_less_than_other_steps(judge: ProxyDiversityJudge, examples: list[Example]) -> None:
    rng = random.Random(0)
    shuffled = [
        sampled([rng.sample(one.continuation, len(one.continuation)) for _ in range(6)], one) for one in examples
    ]
    assert 0 < fmean(measured(judge, shuffled).values()) < 0.5


def test_a_question_gets_the_same_answer_in_any_company(judge: ProxyDiversityJudge, examples: list[Example]) -> None:
    questions = [Question(one, one.continuation, one.continuation[::-1]) for one in examples]
    together = judge.compare(questions)
    assert together == [found for one in questions for found in judge.compare([one])]
    backwards = [one.turned() for one in questions]
    assert judge.compare(backwards) == together
