"""Explanations: contributions against brute force, alignments and evidence against their definitions."""

import json
from typing import Any

import numpy as np
import pytest
from prompt_scorer import rewards_of_rows

from recipe.alignment.reference import needleman_wunsch
from recipe.config import RewardConfig
from recipe.corpus.encoders import HashEncoder
from recipe.errors import InputError
from recipe.explain.explain import as_row, explain, in_words, parts, step_grounds, whole_sentence
from recipe.explain.records import Explanation, Links
from recipe.reward.coverage import CorpusCoverage
from recipe.reward.verifier import Verifier
from recipe.types import Hit, Narration, PooledAlignment, Reward, Segment

HISTORY = ["boil some water", "warm up the pot"]
PLAN = ["put tea leaves in the pot", "juggle", "pour the water", "pour the water"]
GOAL = "put tea leaves in a warm pot"
"""In the words of one narration: the encoder here knows no others."""


class Told:
    """A verifier that is told its rewards, by the length of the plan, and its alignments."""

    def __init__(
        self, corpus: Any, reward: Reward, alignments: tuple[PooledAlignment, ...] = (), **config: Any
    ) -> None:
        self.corpus, self.config, self.frames = corpus, RewardConfig.model_validate(config), None
        self.coverage = CorpusCoverage(corpus, corpus.encoder.encode)
        self._reward, self._alignments = reward, alignments

    def score(self, history: Any, continuations: Any, goal: str) -> list[Reward]:
        return [self._reward for _ in continuations]

    def align(self, history: Any, continuation: Any, goal: str) -> list[PooledAlignment]:
        return list(self._alignments)


def reward(total: float, **more: Any) -> Reward:
    values = {"aligned_history": 0.0, "aligned_full": total, "rho": 0.0, "gated": False, "steps": 1, "pool": ()}
    return Reward(total, **values | {"best_narration": None} | more)


@pytest.fixture
def explanation(corpus: Any) -> Explanation:
    return explain(Verifier(corpus, RewardConfig(pool_size=4)), goal=GOAL, history=HISTORY, continuation=PLAN)


class Recorded(Verifier):
    """A verifier that keeps the plans that it is asked for."""

    asked: list[list[tuple[str, ...]]]

    def score(self, *, goal: str, history: Any, continuations: Any) -> list[Reward]:
        self.asked = [*getattr(self, "asked", []), [tuple(plan) for plan in continuations]]
        return super().score(goal=goal, history=history, continuations=continuations)


@pytest.mark.parametrize("verifier", ["paper", "grounded"])
def test_other_plans_earn_what_the_verifier_says_and_are_what_they_are_called(corpus: Any, verifier: str) -> None:
    grounded = {"pool_size": 3, "background_size": 3}
    config = RewardConfig.model_validate({"verifier": verifier, "pool_size": 3, "grounded": grounded})
    recorded = Recorded(corpus, config)
    explained = explain(recorded, goal="make tea", history=HISTORY, continuation=PLAN, others=4)
    drawn = iter(recorded.asked[-1])
    by_kind = {own.name: [next(drawn) for _ in range(own.plans)] for own in explained.others}
    assert not list(drawn)
    for own in explained.others:
        alone = [recorded.score(goal="make tea", history=HISTORY, continuations=[p])[0] for p in by_kind[own.name]]
        totals = sorted(reward.total for reward in alone)
        assert (own.low, own.high) == pytest.approx((totals[0], totals[-1]))
        assert own.low <= own.median <= own.high
        assert own.below == sum(total < explained.reward.total for total in totals)
    orders, *told = by_kind.values()
    assert 1 <= len(orders) == len(set(orders)) <= 4
    assert all(sorted(plan) == sorted(PLAN) and plan != tuple(PLAN) for plan in orders)
    pooled = {segment.text for aligned in explained.narrations for segment in aligned.narration.segments}
    assert any(pooled.issuperset(plan) for plans in told for plan in plans)
    assert all(len(plan) == len(PLAN) for plans in told for plan in plans)
    assert as_row(explained, Links())["others"] == [own._asdict() for own in explained.others]
    assert any(own.name in sentence for own in explained.others for sentence in in_words(explained))


def test_a_control_and_an_empty_plan_are_compared_with_nothing(corpus: Any) -> None:
    length, asked = RewardConfig(verifier="length"), {"goal": "tea", "history": HISTORY, "others": 4}
    assert explain(Verifier(corpus, length), continuation=PLAN, **asked).others == ()
    assert explain(Verifier(corpus), continuation=[], **asked).others == ()
    alone = explain(Verifier(corpus), continuation=PLAN[:1], **asked)
    assert all("orders" not in own.name for own in alone.others)


@pytest.mark.parametrize("pool", ["history", "full", "own"])
@pytest.mark.parametrize("history", [HISTORY, []], ids=["history", "no history"])
def test_a_contribution_is_the_reward_less_that_of_the_plan_without_the_step(
    corpus: Any, pool: str, history: list[str]
) -> None:
    config = RewardConfig.model_validate({"pool": pool, "pool_size": 3})
    explained = explain(Verifier(corpus, config), goal="make tea", history=history, continuation=PLAN)
    [whole] = Verifier(corpus, config).score(history=history, continuations=[PLAN], goal="make tea")
    assert explained.reward.total == pytest.approx(whole.total, abs=1e-6)
    assert [step.contribution for step in explained.evidence[: len(history)]] == [None] * len(history)
    for i, step in enumerate(explained.plan_evidence):
        [without] = Verifier(corpus, config).score(
            history=history, continuations=[PLAN[:i] + PLAN[i + 1 :]], goal="make tea"
        )
        assert step.text == PLAN[i]
        assert step.without == pytest.approx(without.total, abs=1e-6)
        assert step.contribution == pytest.approx(whole.total - without.total, abs=1e-6)
        assert step.gated_without == without.gated


def test_every_narration_of_the_pool_is_aligned_best_first(corpus: Any, explanation: Explanation) -> None:
    steps = HashEncoder(128).encode(HISTORY + PLAN)
    assert {aligned.index for aligned in explanation.narrations} == {hit.narration for hit in explanation.reward.pool}
    assert [aligned.score for aligned in explanation.narrations] == sorted(
        (aligned.score for aligned in explanation.narrations), reverse=True
    )
    for aligned in explanation.narrations:
        W = steps @ corpus.embeddings(aligned.index).T
        path = needleman_wunsch(W).path
        assert [match[:2] for match in aligned.matches] == [move for move in path if None not in move]
        assert aligned.narration == corpus.narration(aligned.index)
        np.testing.assert_allclose(aligned.similarities, W, atol=6e-5)
        assert all(match.similarity == aligned.similarities[match.step][match.segment] for match in aligned.matches)
        steps_and_segments = zip(*[match[:2] for match in aligned.matches], strict=True)
        rest = (aligned.unmatched_steps, aligned.unmatched_segments)
        for matched, unmatched, count in zip(steps_and_segments, rest, W.shape, strict=True):
            assert sorted([*matched, *unmatched]) == list(range(count))


def test_evidence_asks_every_narration_about_the_task(explanation: Explanation) -> None:
    told = [one for one in explanation.narrations if one.index in explanation.about]
    assert 0 < len(told) < len(explanation.narrations)
    for i, step in enumerate(explanation.evidence):
        found = [(one.index, match) for one in told for match in one.matches if match.step == i]
        assert step.matched_in == len(found)
        assert {(g.narration, g.segment, g.similarity) for g in step.grounds} == {
            (index, match.segment, match.similarity) for index, match in found
        }
        mean = np.mean([match.similarity for _, match in found]) if found else None
        assert step.mean_similarity == (None if mean is None else pytest.approx(mean))
    assert explanation.evidence[2].grounds[0].similarity == pytest.approx(1, abs=1e-4)


def test_the_first_quote_fits_the_step_and_its_narration_the_task(corpus: Any) -> None:
    W = np.array([[0.8]], np.float32)
    pool = [PooledAlignment(Hit(i, 0.5), 0.5, ((0, 0),), W * scale) for i, scale in enumerate((1.0, 0.9, 0.5))]
    grounds = step_grounds(0, "stir", pool, {0: 0.8, 1: 1.0, 2: 1.0}, corpus)
    assert [ground.narration for ground in grounds] == [1, 0, 2]
    assert [ground.narration for ground in step_grounds(0, "stir", pool, {2: 1.0}, corpus)] == [2]
    assert step_grounds(0, "stir", pool, {}, corpus) == ()


def test_without_a_narration_of_the_task_nothing_supports_a_step(corpus: Any) -> None:
    explained = explain(Verifier(corpus), goal="launch a satellite", history=[], continuation=PLAN)
    assert explained.narrations
    assert not explained.about
    assert not any(step.matched_in or step.grounds for step in explained.evidence)
    assert any("about this task" in sentence for sentence in in_words(explained))
    assert {row["fit"] for row in as_row(explained, Links())["narrations"]} == {None}


@pytest.mark.parametrize(
    ("texts", "index", "quote"),
    [
        (["we add the", "tea leaves to the", "pot and wait"], 1, "we add the tea leaves to the pot and wait"),
        (["add the tea leaves", "pour the water"], 0, "add the tea leaves"),
        (["Add the leaves.", "Pour the"], 0, "Add the leaves."),
        (["We take some water", "and boil it.", "Then wait."], 0, "We take some water and boil it."),
        (["We take some water", "and boil it.", "Then wait."], 1, "We take some water and boil it."),
        (["take it,", "please"], 1, "take it, please"),
        (["the", "the", "the", "the", "the", "the", "end"], 3, "the the the the the"),
    ],
)  # fmt: skip
def test_cut_sentences_are_quoted_whole(texts: list[str], index: int, quote: str) -> None:
    timed = [Segment(text, 2.0 * k, 2.0 * k + 2.0) for k, text in enumerate(texts)]
    whole = whole_sentence(timed, index)
    assert whole.text == quote
    said = [own for own in timed if whole.start <= own.start and own.end <= whole.end]
    assert " ".join(own.text for own in said) == quote
    assert whole_sentence([Segment(text) for text in texts], index) == Segment(quote)
    apart = [Segment(text, 9.0 * k, 9.0 * k + 2.0) for k, text in enumerate(texts)]
    assert whole_sentence(apart, index) == apart[index]


def test_the_best_narration_is_the_rewards(corpus: Any, explanation: Explanation) -> None:
    assert explanation.best is not None
    assert explanation.best.index == explanation.reward.best_narration
    assert explanation.best.narration == corpus.narration(0)
    assert [step.text for step in explanation.steps] == HISTORY + PLAN
    first = explanation.steps[2]
    assert (first.index, first.segment, first.in_history) == (2, corpus.narration(0).segments[2], False)
    skipped = [step for step in explanation.steps if step.index is None]
    assert skipped
    assert all(step.segment is None and step.similarity is None for step in skipped)


def test_a_step_on_several_segments_counts_once_with_the_most_similar(corpus: Any) -> None:
    W = np.array([[0.2, 0.9, 0.9, 0.1, 0.0]], np.float32)
    pooled = PooledAlignment(Hit(1, 0.5), 0.4, ((0, 0), (0, 1), (0, 2)), W)
    explained = explain(
        Told(corpus, reward(0.3, best_narration=7), (pooled,)), goal="eggs", history=[], continuation=["whisk"]
    )
    [evidence], [ground] = explained.evidence, explained.steps
    assert (evidence.matched_in, evidence.grounds[0].segment, ground.index) == (1, 1, 1)
    assert explained.narrations[0].unmatched_segments == (3, 4)
    assert explained.best == explained.narrations[0]


def test_json_holds_everything(explanation: Explanation) -> None:
    row = json.loads(json.dumps(as_row(explanation, Links())))
    assert rewards_of_rows([row["reward"]]) == [explanation.reward]
    assert RewardConfig.model_validate(row["settings"]) == explanation.config
    assert row["summary"] == in_words(explanation)
    assert row["reward"]["best_video_id"] == "tea"
    for narration, aligned in zip(row["narrations"], explanation.narrations, strict=True):
        assert [tuple(match.values()) for match in narration["matches"]] == list(aligned.matches)
        assert narration["history_end"] == aligned.history_end(len(HISTORY))
        assert narration["unmatched_segments"] == list(aligned.unmatched_segments)
    step = row["steps"][2]
    assert step["contribution"] == explanation.evidence[2].contribution
    ground = step["grounds"][0]
    assert (ground["video_id"], ground["text"], ground["start"]) == ("tea", "put tea leaves in the pot", 20.0)


def test_an_explanation_of_nothing_is_empty(corpus: Any) -> None:
    explained = explain(Verifier(corpus), goal="make tea", history=[], continuation=[])
    assert (explained.best, explained.steps, explained.evidence, explained.narrations) == (None, (), (), ())
    assert "the plan holds no steps" in in_words(explained)[0]
    assert as_row(explained, Links())["narrations"] == []


def test_words_for_the_grounded_reward(corpus: Any) -> None:
    found = {"gain": 0.5, "background": 0.125, "relevance": 0.1, "order": 0.0, "price": 0.01, "goal_relevance": 0.04}
    told = Told(corpus, reward(0.3, coverage=0.42, parts=found), verifier="grounded")
    explained = explain(told, goal="g", history=[], continuation=["a"])
    said = in_words(explained)
    assert "the plan adds 0.500 to what narrations of this activity say, and 0.125 to random ones" in said[0]
    assert said[1].startswith("It is the sum of +")
    assert any("Nothing was aligned" in sentence for sentence in said)
    named = {name.replace(" ", "_"): value for name, value, _ in parts(explained)}
    assert named.items() >= (found | {"reward": 0.3, "coverage": 0.42}).items()
    terms = as_row(explained, Links())["terms"]
    assert sum(terms.values()) == pytest.approx((0.375 + 0.25 * 0.1 - 0.01) / (1 + 8))
    nothing = Told(corpus, reward(0.0, parts=dict.fromkeys(found, 0.0)), verifier="grounded")
    assert not any("the sum of" in own for own in in_words(explain(nothing, goal="g", history=[], continuation=["a"])))


@pytest.mark.parametrize("narrations", [1, 100, 101, 149, 150])
def test_pool_and_background_need_as_many_narrations(narrations: int) -> None:
    problem = RewardConfig(verifier="grounded").contrast_problem(narrations)
    assert (problem is not None) == (narrations < 100 + 50)
    if problem is not None:
        assert f"the corpus has {narrations}:" in problem
        assert ("none is left" in problem) == (narrations <= 100)
    assert RewardConfig(verifier="r0").contrast_problem(narrations) is None


@pytest.mark.parametrize(
    ("template", "narration", "start", "link"),
    [
        ("youtube", Narration("a-Z_0123456", (), source="x"), None, "https://www.youtube.com/watch?v=a-Z_0123456"),
        ("youtube", Narration("world-000001", ()), 1.0, None),
        ("", Narration("a-Z_0123456", ()), 61.9, None),
        ("", Narration("a-Z_0123456", (), source="world"), 1.0, None),
        (
            "",
            Narration("a-Z_0123456", (), source="My YouTube channel"),
            None,
            "https://www.youtube.com/watch?v=a-Z_0123456",
        ),
        ("", Narration("a-Z_0123456", (), source="how2"), 1.0, "https://www.youtube.com/watch?v=a-Z_0123456&t=1s"),
        ("https://h/{video_id}?t={start}", Narration("a/b?c", ()), 2.0, "https://h/a%2Fb%3Fc?t=2"),
        ("https://h/{video_id}?t={start}&x=1", Narration("v", ()), None, "https://h/v?x=1"),
        ("https://h/{video_id}#t={start}", Narration("v", ()), None, "https://h/v"),
        ("https://h/{start}/{video_id}", Narration("v", ()), None, "https://h/0/v"),
        ("https://h/?v={video_id}", Narration('"><script>', ()), 3.0, "https://h/?v=%22%3E%3Cscript%3E"),
        ("https://h/?v={video_id}&t={start}", Narration("{start}", ()), 3.0, "https://h/?v=%7Bstart%7D&t=3"),
    ],
)
def test_links(template: str, narration: Narration, start: float | None, link: str | None) -> None:
    end = None if start is None else start + 1
    assert Links(template).of(narration, Segment("x", start, end)) == link


@pytest.mark.parametrize(
    "template",
    ["javascript:alert('{video_id}')", "https://h/", "https://h/{video_id}{", "https://h/{video_id!r}", "YouTube",
     "https://h/{video_id}/{title}"],
)  # fmt: skip
def test_templates_that_cannot_be_used_are_refused(template: str) -> None:
    with pytest.raises(InputError, match="--link"):
        Links(template)
