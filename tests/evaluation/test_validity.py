"""Evaluation of predictions against the embedded world."""

import random
from dataclasses import replace
from functools import cache

import pytest

from recipe.errors import InputError
from recipe.evaluation.validity.measure import (
    PromptMeans,
    RegimeScores,
    Reranking,
    ScoredPlan,
    best_of,
    differences,
    score_predictions,
)
from recipe.planning.predictions import Prediction
from recipe.types import Example
from recipe.world.graph import World
from recipe.world.load import load_world

world = cache(load_world)


def cases(loaded: World, count: int = 6) -> list[Example]:
    """Examples of the first goals, cut after two steps of a random valid order."""
    rng = random.Random(0)
    built = []
    for number, goal in enumerate(list(loaded.goals)[:count]):
        texts = [loaded.label(step, rng) for step in loaded.graph(goal).draw(rng)]
        built.append(Example(f"e{number}", "world", "v", goal, tuple(texts[:2]), tuple(texts[2:]), 2))
    return built


def gold(examples: list[Example], **kept: float) -> list[Prediction]:
    return [Prediction(example.example_id, example.continuation, **kept) for example in examples]  # type: ignore[arg-type]


def test_steps_said_again_are_repeats_wherever_they_were_said() -> None:
    [example] = cases(world(), 1)
    steps = (example.history[0], example.continuation[0], example.continuation[0], "hum a tune quietly")
    [plan] = score_predictions(world(), [example], [Prediction(example.example_id, steps)])
    metrics = plan.metrics()
    assert (metrics["repeats"], metrics["alien"], metrics["clean"]) == (0.5, 0.25, 0.25)


def test_samples_are_averaged_within_prompts_first() -> None:
    first, second = cases(world(), 2)
    predictions = [
        Prediction(first.example_id, first.continuation),
        Prediction(second.example_id, second.continuation, 0),
        Prediction(second.example_id, (), 1),
        Prediction(second.example_id, (), 2),
    ]
    scores = RegimeScores.of("test", "base", PromptMeans.of(score_predictions(world(), [first, second], predictions)))
    assert scores.metrics["score"].mean == pytest.approx((1 + 1 / 3) / 2)
    assert (scores.prompts, scores.samples, scores.metrics["score"].clusters) == (2, 1, 2)


def test_distinct_plans_ignore_wording() -> None:
    [example] = cases(world(), 1)
    shouted = tuple(step.upper() for step in example.continuation)
    plans = [Prediction(example.example_id, shouted if n % 2 else example.continuation, n) for n in range(9)]
    plans.append(Prediction(example.example_id, example.continuation[:1], 9))
    assert PromptMeans.of(score_predictions(world(), [example], plans)).values["distinct"].tolist() == [2]


def test_paired_differences_need_equal_prompts_in_any_order() -> None:
    examples = cases(world())
    best = PromptMeans.of(score_predictions(world(), examples, gold(examples)))
    worst = PromptMeans.of(score_predictions(world(), examples, [Prediction(e.example_id, ()) for e in examples[::-1]]))
    found = {one.metric: one for one in differences("test", "gold", best, "empty", worst)}
    assert found["score"].value.mean == 1
    assert found["score"].value.sign == 1
    assert found["repeats"].value.mean == 0
    fewer = PromptMeans.of(score_predictions(world(), examples[1:], gold(examples[1:])))
    with pytest.raises(InputError, match="different prompts"):
        differences("test", "gold", best, "fewer", fewer)


def scored(rewards: list[float]) -> list[ScoredPlan]:
    [example] = cases(world(), 1)
    steps = [example.continuation[: n + 1] for n in range(len(rewards))]
    pairs = enumerate(zip(steps, rewards, strict=True))
    predictions = [Prediction(example.example_id, plan, n, reward=reward) for n, (plan, reward) in pairs]
    return score_predictions(world(), [example], predictions)


def test_best_of_n_lies_between_mean_and_oracle_and_takes_the_first_of_equals() -> None:
    plans = scored([0.1, 0.5, 0.5, 0.9])
    assert [plan.sample for plan in best_of(plans, 3)] == [1]
    found = Reranking.of("test", "base", plans, 3)
    quality = [plan.metrics()["score"] for plan in plans[:3]]
    assert found.mean.mean == pytest.approx(sum(quality) / 3)
    assert found.best.mean == quality[1]
    assert found.oracle.mean == max(quality)
    with pytest.raises(InputError, match="fewer than 5 samples"):
        best_of(plans, 5)
    with pytest.raises(InputError, match="has no reward"):
        best_of([replace(plan, reward=None) for plan in plans], 1)


def test_without_a_world_there_is_no_validity_and_no_substitute() -> None:
    [example] = cases(world(), 1)
    predictions = [Prediction(example.example_id, ("Do a",), n, reward=0.1 * n) for n in range(2)]
    predictions.append(Prediction(example.example_id, ("do A",), 2, reward=0.0))
    plans = score_predictions(None, [example], predictions)
    assert len({plan.key for plan in plans}) == 1
    means = PromptMeans.of(plans)
    assert set(means.values) == {"steps", "malformed", "reward"}
    assert Reranking.of("test", "base", plans, 2, "reward").best.mean == pytest.approx(0.1)
