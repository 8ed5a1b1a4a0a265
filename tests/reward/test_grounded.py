"""The grounded reward: its equations against enumeration, its pools, and what it pays on small corpora."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.alignment import reference
from recipe.config import GroundedConfig, RewardConfig
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, InputError
from recipe.reward.grounded import NarrationLengths, choose_pools, corpus_share, grounded_reward, grounded_terms
from recipe.reward.scorer import plain_reward, prompt_outcomes
from recipe.reward.verifier import Verifier
from recipe.types import Hit, Reward

GROUNDED = RewardConfig(verifier="grounded", grounded=GroundedConfig(pool_size=3, background_size=2))
GOAL, HISTORY = "make tea", ["boil the water", "warm the pot"]
TEA = ["put tea leaves in the pot", "pour the water", "wait five minutes"]
TYRE = ["remove the bolts", "take off the wheel", "mount the spare wheel"]
TOTALS = [0.383206798, 0.037929669, -0.005970784, -0.002790216, 0.234415493]


@pytest.fixture
def verifier(corpus: Any) -> Verifier:
    return Verifier(corpus, GROUNDED)


def total(verifier: Verifier, plan: list[str], history: list[str] = HISTORY) -> float:
    return verifier.score(history=history, continuations=[plan], goal=GOAL)[0].total


def spelt_out(
    corpus: Any, config: GroundedConfig, goal: str, history: list[str], plan: list[str], pool: set[int]
) -> Any:
    """The equations of docs/reward.md for one plan, without any sharing; the background is all that is not in the pool.

    Reward, parts and coverage.
    """
    segments = np.concatenate(corpus.vectors).astype(np.float64)
    mean = segments.mean(axis=0)

    def centre(vectors: Any) -> Any:
        return (vectors - mean) / np.maximum(np.linalg.norm(vectors - mean, axis=1, keepdims=True), 1e-12)

    h = [*([goal] if goal.strip() else []), *history]
    x, m, n = centre(corpus.encoder.encode([*h, *plan])), len(h), len(plan)
    cosines, done = x @ x.T, m - len(history)  # where the history begins
    floors = np.quantile(centre(segments) @ x.T, 0.95, axis=0)
    W = [np.clip((centre(vectors) @ x.T - floors) / (1 - floors), 0, 1).T for vectors in corpus.vectors]
    near, far = ([W[k] for k in range(len(W)) if (k in pool) == chosen] for chosen in (True, False))

    def sums(part: Any) -> Any:
        part = part.astype(np.float32)
        return np.array([reference.free_matching(part).score, reference.free_coverage(part)])

    def averages(narrations: list[Any], weights: Any, rows: slice, scale: Any) -> Any:
        return weights @ np.array([sums((own * scale[:, None])[rows]) for own in narrations])

    def ramp(value: float, low: float, high: float) -> float:
        return 1 - float(np.clip((value - low) / (high - low), 0, 1))

    even, plain = np.full(len(far), 1 / len(far)), np.ones(m + n)
    told = np.array([sums(own[:m])[0] for own in near]) + 1e-3
    weights, of_h = told / told.sum(), slice(0, m)
    for_h = averages(near, weights, of_h, plain), averages(far, even, of_h, plain)
    coverage = float(for_h[0][0] - for_h[1][0]) / m
    theta = 0.0 if config.trust is None else 1 - ramp(coverage, *config.trust)
    scale, relevance = plain.copy(), 0.0
    for i in range(m, m + n):
        new = ramp(max(cosines[i, done:i], default=-1.0), 0.6, 0.85)
        scale[i] = 1 - 0.1 * (1 - theta) * (1 - new)
        topic = [cosines[i, done:m].mean()] if history else []
        if done:
            scale[i] *= 1 - (1 - theta) * (1 - ramp(cosines[i, 0], 0.75, 0.999))
            new = min(new, ramp(cosines[i, 0], 0.5, 0.8))
            topic.append(cosines[i, 0])
        relevance += new * max(np.mean(topic), 0.0) * (1 - theta)
    whole = averages(near, weights, slice(None), scale), averages(far, even, slice(None), scale)
    gain, background = (
        float(np.sqrt(np.prod(np.maximum(all_ - own, 0)))) for all_, own in zip(whole, for_h, strict=True)
    )
    price = config.price * max(np.sqrt(np.prod(for_h[0])) - np.sqrt(np.prod(for_h[1])), 0.0) / m
    votes = []
    for i, j in combinations(range(m, m + n), 2):
        before, after = (
            sum(own[a, :k].sum() * own[b, k] for own in near for k in range(own.shape[1])) for a, b in ((i, j), (j, i))
        )
        votes.append((before - after) / (before + after + 1))
    order = float(np.mean(votes)) if votes else 0.0
    worth = (gain - background + config.relevance * relevance) * (1 + order) - price * n
    parts = {"gain": gain, "background": background, "relevance": relevance, "order": order, "price": price}
    return worth / (n + config.horizon) if n else 0.0, parts, coverage


@pytest.mark.parametrize("trust", [None, (0.1, 0.9), (0.01, 0.02), (0.98, 0.99)])
@pytest.mark.parametrize(("goal", "history"), [(GOAL, HISTORY), ("", HISTORY), ("mount the spare wheel", [])])
def test_rewards_are_the_equations(corpus: Any, goal: str, history: list[str], trust: Any) -> None:
    config = GroundedConfig(pool_size=3, background_size=2, trust=trust)
    verifier = Verifier(corpus, RewardConfig(verifier="grounded", grounded=config))
    plans = [
        TEA,
        TEA[::-1],
        TYRE,
        [*TEA, *TEA[:1]],
        [GOAL],
        ["whisk the eggs", "make some tea", f"{GOAL} now"],
        HISTORY,
        [],
    ]
    rewards = verifier.score(goal=goal, history=history, continuations=plans)
    pool = {hit.narration for hit in rewards[0].pool}
    assert len(pool) == 3
    for plan, reward in zip(plans, rewards, strict=True):
        assert reward.pool == rewards[0].pool  # a plan does not choose its judges
        total, parts, coverage = spelt_out(corpus, config, goal, history, plan, pool)
        assert {name: reward.parts[name] for name in parts} == pytest.approx(parts, abs=2e-5)
        assert (reward.total, reward.coverage) == pytest.approx((total, coverage), abs=2e-5)
        assert not reward.gated
        terms = grounded_terms(reward.parts, len(plan), config)
        assert sum(terms.values()) == pytest.approx(reward.total, abs=1e-12)
        if plan:
            assert set(terms) == {"goal", "history", "corpus", "price"}
            shared = config.relevance * reward.parts["relevance"] / (len(plan) + config.horizon)
            assert terms["goal"] + terms["history"] == pytest.approx(shared)
            assert (terms["goal"] == 0) >= (not goal)
            assert (terms["history"] == 0) >= (not history)


def test_a_reward_stays_within_its_bounds() -> None:
    far = {"gain": 90.0, "background": 0.0, "relevance": 0.0, "goal_relevance": 0.0, "order": 1.0, "price": 0.0}
    assert grounded_reward(far, 1, GroundedConfig()) == 1.0
    assert grounded_reward(far | {"gain": -90.0}, 1, GroundedConfig()) == -1.0


def test_background_narrations_are_as_long_as_those_of_the_pool() -> None:
    lengths = np.repeat([5, 50, 500], 100)
    hits = [Hit(number, 1.0) for number in range(150, 160)]
    pools = choose_pools([hits], NarrationLengths.of(lengths), GroundedConfig(pool_size=10, background_size=10), 0)
    assert {int(lengths[number]) for number in pools.background} == {50}


def test_the_right_steps_are_worth_more_than_spoiled_ones(verifier: Verifier) -> None:
    true = total(verifier, TEA)
    assert true > 0
    for spoiled in ([], TYRE, TEA[::-1], HISTORY, [*TEA, *TYRE], [step for step in TEA for _ in range(2)], TEA[:1]):
        assert total(verifier, spoiled) < true


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_pools_are_distinct_and_apart(narrations: int, pool: int, background: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = NarrationLengths.of(rng.integers(1, 100, narrations))
    found = [[Hit(int(n), 1.0 - i / 100) for i, n in enumerate(rng.permutation(narrations))] for _ in range(2)]
    config = GroundedConfig(pool_size=pool, background_size=background)
    pools = choose_pools(found, lengths, config, seed)
    numbers = [hit.narration for hit in pools.relevant]
    # In turns between the two rankings.
    assert numbers == list(dict.fromkeys(hit.narration for turn in zip(*found, strict=True) for hit in turn))[:pool]
    assert not set(numbers) & set(pools.background)
    assert len(set(pools.background)) == len(pools.background) <= background
    assert pools == choose_pools(found, lengths, config, seed)


def test_a_known_prompt_earns_what_a_new_one_does(folder: Path) -> None:
    """To the last digit, after other prompts, whose texts and pools are kept too."""
    plans = [TEA, TYRE, [], TEA[:2], [*HISTORY, *TEA]]
    verifier = Verifier(Corpus.open(folder), GROUNDED)
    new = verifier.score(history=HISTORY, continuations=plans, goal=GOAL)
    verifier.score(history=["lift the car"], continuations=[TYRE], goal="change a tyre")
    assert verifier.score(history=HISTORY, continuations=plans, goal=GOAL) == new
    for plan, reward in zip(plans, new, strict=True):
        assert verifier.score(history=HISTORY, continuations=[plan], goal=GOAL) == [reward]


def test_restating_the_goal_earns_nothing(corpus: Any) -> None:
    goal = "put tea leaves in the pot"  # a narration says it
    verifier = Verifier(corpus, GROUNDED)
    told, restated = (
        verifier.score(history=HISTORY, continuations=[[goal]], goal=asked)[0].total for asked in (GOAL, goal)
    )
    assert told > 0.05
    assert restated <= 0.0
    aligned = verifier.align(history=HISTORY, continuation=[goal], goal=goal)
    matched = {step for one in aligned for step, _ in one.matches}
    assert len(HISTORY) not in matched  # what earns nothing is not shown as matched
    assert {one.similarities.shape[0] for one in aligned} == {len(HISTORY) + 1}  # the goal takes part, and is not shown


def test_rewards_are_what_they_were(verifier: Verifier) -> None:
    """Totals that version 0.2 gave."""
    rewards = verifier.score(history=HISTORY, continuations=[TEA, TEA[::-1], TYRE, [GOAL], TEA * 2], goal=GOAL)
    assert [reward.total for reward in rewards] == pytest.approx(TOTALS, abs=1e-7)


def test_with_neither_there_is_nothing_to_judge_by(verifier: Verifier) -> None:
    [reward] = verifier.score(history=[], continuations=[TEA], goal=" ")
    assert (reward.total, reward.pool, reward.best_narration) == (0.0, (), None)


def test_where_the_corpus_is_trusted_repeats_are_shown_as_matched(corpus: Any) -> None:
    said = []
    for trust in ((0.98, 0.99), (0.01, 0.02)):
        grounded = GroundedConfig(pool_size=3, background_size=2, trust=trust)
        repeated = Verifier(corpus, RewardConfig(verifier="grounded", grounded=grounded)).align(
            history=HISTORY, continuation=HISTORY[:1], goal=GOAL
        )
        said.append(np.concatenate([hit.similarities[len(HISTORY)] for hit in repeated]))
    assert said[1].any()
    np.testing.assert_allclose(said[0], 0.9 * said[1], rtol=1e-6)


@pytest.mark.parametrize("trust", [(0.3, 0.3), (0.4, 0.2)])
def test_thresholds_of_trust_must_rise(trust: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="trust"):
        GroundedConfig(trust=trust)


def test_alignments_are_matchings_of_the_pool(corpus: Any) -> None:
    verifier = Verifier(corpus, GROUNDED)  # without a goal, which takes part and is not shown
    [reward] = verifier.score(history=HISTORY, continuations=[TEA], goal="")
    found = verifier.align(history=HISTORY, continuation=TEA, goal="")
    assert {aligned.hit for aligned in found} == set(reward.pool)
    assert [aligned.score for aligned in found] == sorted((aligned.score for aligned in found), reverse=True)
    for aligned in found:
        assert aligned.score * 5 == pytest.approx(reference.free_matching(aligned.similarities).score)
        assert aligned.score * 5 == pytest.approx(sum(aligned.similarities[i, k] for i, k in aligned.matches))
    assert reward.best_narration == found[0].hit.narration


def test_a_corpus_of_nan_is_an_error_and_no_number(corpus: Any, verifier: Verifier) -> None:
    verifier.score(history=[], continuations=[[]], goal=" ")  # reads the corpus's mean, and no narration
    corpus.search_batch = lambda queries, k: [[Hit(0, 0.5)] for _ in queries]
    corpus.vectors = [vectors * np.nan for vectors in corpus.vectors]
    with pytest.raises(ComputeError, match="corpus verify"):
        verifier.score(history=HISTORY, continuations=[TEA], goal=GOAL)


def test_a_corpus_of_one_narration_still_gives_rewards(corpus: Any) -> None:
    corpus.narrations, corpus.vectors = corpus.narrations[:1], corpus.vectors[:1]
    rewards = Verifier(corpus, GROUNDED).score(history=HISTORY, continuations=[TEA, TYRE], goal=GOAL)
    assert all(isinstance(reward, Reward) and np.isfinite(reward.total) for reward in rewards)


# The share of the corpus in what tells the plans of a prompt apart.

SHARES = GroundedConfig(relevance=0.5, horizon=4)


def grounded(gain: float, relevance: float, steps: int = 4, order: float = 0.0) -> Reward:
    return plain_reward(
        0.0, steps, gain=gain, background=0.0, relevance=relevance, goal_relevance=0.0, order=order, price=0.0
    )


def test_the_share_is_that_of_differences_within_a_prompt() -> None:
    tea, eggs = ("tea", ("boil",)), ("eggs", ("crack",))
    # The corpus term differs by 3, the weighted relevance by 1, both over 8 places; the second prompt adds a constant.
    rewards = [grounded(3.0, 0.0), grounded(0.0, 2.0), grounded(9.0, 7.0), grounded(9.0, 7.0)]
    assert corpus_share(rewards, [tea, tea, eggs, eggs], SHARES) == pytest.approx(0.75)
    assert corpus_share(rewards[2:], [eggs, eggs], SHARES) is None
    assert corpus_share([plain_reward(1.0, 2), plain_reward(0.0, 2)], [tea, tea], SHARES) is None  # of another reward
    voted = [grounded(0.0, 2.0, order=order) for order in (0.5, -0.5)]  # the vote on order is the corpus's
    assert corpus_share(voted, [tea, tea], SHARES) == 1.0


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5), st.integers(1, 9)), min_size=2, max_size=6))
def test_shares_of_corpus_and_relevance_add_to_one(values: list[tuple[float, float, int]]) -> None:
    prompts = [("tea", ())] * len(values)
    one = GroundedConfig(relevance=1.0)
    share = corpus_share([grounded(a, b, n) for a, b, n in values], prompts, one)
    other = corpus_share([grounded(b, a, n) for a, b, n in values], prompts, one)
    if share is None or other is None:
        assert share is other is None
    else:
        assert share + other == pytest.approx(1.0)


def test_coverage_is_that_of_any_plan_and_failures_stay(corpus: Any) -> None:
    verifier = Verifier(corpus, RewardConfig(verifier="grounded"))
    history = ("boil the water",)
    first, blank, again = prompt_outcomes(verifier, [(GOAL, history), (GOAL, (" ",)), (GOAL, history)])
    assert isinstance(blank, InputError)
    assert isinstance(first, Reward)
    assert first is again
    [scored] = verifier.score(history=history, continuations=[("warm the pot",)], goal=GOAL)
    assert first.coverage == pytest.approx(scored.coverage)
    assert np.isfinite(scored.total)
