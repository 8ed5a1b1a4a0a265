"""Exact validity as a reward."""

from recipe.errors import InputError
from recipe.types import Reward
from recipe.world.examples import draw_examples
from recipe.world.graph import World
from recipe.world.validity import ValidityScorer, score_plan


def test_a_plan_is_paid_its_validity(world: World) -> None:
    for example in draw_examples(world, "test_cuts", 5):
        plans = [example.continuation, example.continuation[::-1], example.history, ()]
        [outcomes] = ValidityScorer(world).score_groups([(example.goal, example.history, plans)])
        rewards = [outcome for outcome in outcomes if isinstance(outcome, Reward)]
        assert len(rewards) == len(plans)
        known = [score_plan(world, example.goal, example.history, plan) for plan in plans]
        assert [reward.total for reward in rewards] == [one.score for one in known]
        assert [reward.parts["clean"] for reward in rewards] == [one.clean for one in known]
        assert rewards[0].total == 1.0
        assert rewards[-1].total == 0.0
        assert [reward.steps for reward in rewards] == [len(plan) for plan in plans]


def test_an_unknown_goal_is_an_error_for_its_own_plans(world: World) -> None:
    example = draw_examples(world, "test_cuts", 1)[0]
    unknown, known = ValidityScorer(world).score_groups(
        [("brew a pot of toe", (), [("stir",)] * 2), (example.goal, example.history, [example.continuation])]
    )
    assert [type(one) for one in (*unknown, *known)] == [InputError, InputError, Reward]
    assert "no goal 'brew a pot of toe'" in str(unknown[0])
