"""Plans composed of sampled ones: what they are made of, and which one is chosen."""

import itertools
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.errors import ComputeError
from recipe.reward.composition import compose, crossings
from recipe.reward.scorer import Outcome, PromptGroup, plain_reward

plans_of_a_prompt = st.lists(st.lists(st.sampled_from("abcdef"), max_size=5).map(tuple), min_size=1, max_size=5)


class PlaceScorer:
    """Each step is worth what its letters and its place say; fails for plans that end with `broken`."""

    def __init__(self, broken: str = "?") -> None:
        self.broken, self.plans = broken, list[tuple[str, ...]]()

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        self.plans += [plan for group in groups for plan in group.plans]
        return [[self.outcome(plan) for plan in group.plans] for group in groups]

    def outcome(self, plan: Sequence[str]) -> Outcome:
        if plan and plan[-1].startswith(self.broken):
            return ComputeError("The encoder is down.")
        return plain_reward(sum(self.worth(step, place) for place, step in enumerate(plan)), len(plan))

    def worth(self, step: str, place: int) -> float:
        return (sum(map(ord, step)) * (place + 3)) % 7 - 2.5


@settings(max_examples=200, deadline=None)
@given(plans_of_a_prompt)
def test_a_crossing_is_the_beginning_of_one_plan_and_the_rest_of_another(plans: list[tuple[str, ...]]) -> None:
    found = crossings(plans)
    assert len(set(found)) == len(found)
    assert not {*found} & {*plans}
    expected = {
        one[:cut] + other[cut:]
        for one, other in itertools.product(plans, repeat=2)
        for cut in range(1, 6)
        if cut <= len(one) and cut <= len(other)
    }
    assert {*found} == {plan for plan in expected if len(set(plan)) == len(plan)} - {*plans}
    assert all(len(plan) <= max(map(len, plans)) for plan in found)


@settings(max_examples=100, deadline=None)
@given(st.lists(plans_of_a_prompt, min_size=1, max_size=3))
def test_the_best_of_all_is_composed_and_nothing_is_scored_twice(drawn: list[list[tuple[str, ...]]]) -> None:
    scorer = PlaceScorer(broken="f")
    known = [
        {plan: outcome.total for plan in plans if not isinstance(outcome := scorer.outcome(plan), ComputeError)}
        for plans in drawn
    ]
    known = [own for own in known if own]
    prompts = [(f"goal {number}", ()) for number in range(len(known))]
    for own, (plan, total) in zip(known, compose(scorer, prompts, known), strict=True):
        outcomes = {one: scorer.outcome(one) for one in (*own, *crossings([*own]))}
        totals = {one: reward.total for one, reward in outcomes.items() if not isinstance(reward, ComputeError)}
        assert total == totals[plan] == max(totals.values())
        assert plan in own or max(own.values()) < total, "of equals a sampled plan"
    assert len(scorer.plans) == sum(len(crossings([*own])) for own in known)
