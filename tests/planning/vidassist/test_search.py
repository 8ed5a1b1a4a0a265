"""The search against plans worked out by hand, and against every sequence of candidates."""

import random
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planning.vidassist.toys import ACTIONS, GOAL, START, ToyProposer, actions_of, toy_value

from recipe.planning.vidassist.search import Proposal, Search, State, candidates_of

BOIL, ADD, POUR, STIR = ACTIONS
Plan = tuple[str, ...]


def search(table: dict[Plan, list[str]], scores: dict[Plan, float | None], horizon: int, beam: int) -> Search:
    return Search((ToyProposer(table),), 2, actions_of, {"toy": toy_value(scores.__getitem__)}, horizon, beam)


TABLE: dict[Plan, list[str]] = {(): ["Boil", "Add"], (BOIL,): ["Pour"], (ADD,): ["Stir", "pour it"]}
SCORES: dict[Plan, float | None] = {
    (BOIL,): 0.6, (ADD,): 0.5, (BOIL, POUR): 0.1, (ADD, STIR): 0.9, (ADD, POUR): 0.2,
}  # fmt: skip


def test_greedy_takes_the_best_step_and_breadth_first_the_best_plan() -> None:
    [greedy] = search(TABLE, SCORES, horizon=2, beam=1).run([START])
    assert greedy.state.planned == (BOIL, POUR)
    assert greedy.score == pytest.approx((0.6 + 0.1) / 2)
    [wide] = search(TABLE, SCORES, horizon=2, beam=2).run([START])
    assert wide.state.planned == (ADD, STIR)
    assert wide.score == pytest.approx((0.5 + 0.9) / 2)


def test_what_nobody_could_score_stands_behind_what_somebody_did_and_is_not_zero() -> None:
    [plan] = search(TABLE, SCORES | {(BOIL,): None, (ADD,): 0.0}, horizon=1, beam=1).run([START])
    assert plan.state.planned == (ADD,)
    nothing: dict[Plan, float | None] = dict.fromkeys(SCORES)
    [plan] = search(TABLE, nothing, horizon=2, beam=2).run([START])
    assert plan.state.planned == (BOIL, POUR)
    assert plan.score is None
    assert [choice.candidate.total for choice in plan.choices] == [None, None]


def test_proposals_of_one_action_are_one_candidate_with_all_its_sources() -> None:
    told = [Proposal("a", "Stir~", "1. Stir~", -2.0), Proposal("b", "", "(none)"), Proposal("b", "stir", "stir", -1.0)]
    [[candidate]] = candidates_of([START], [told], actions_of)
    assert candidate.action == STIR
    assert [proposal.source for proposal in candidate.proposals] == ["a", "b"]
    assert [round(mapped.similarity, 2) for mapped in candidate.matches] == [0.6, 1.0]


def test_options_keep_what_was_lost() -> None:
    found = search({(): ["Boil", ""]}, {(BOIL,): 1.0}, horizon=1, beam=1)
    [plan] = found.run([START])
    assert [one.text for one in plan.choices[0].lost] == [""]


def test_equal_states_are_asked_about_once_and_levels_at_once() -> None:
    proposer = ToyProposer(TABLE)
    found = replace(search(TABLE, SCORES, horizon=2, beam=1), proposers=(proposer,))
    other = State("make more tea", ())
    plans = found.run([START, other, START])
    assert [plan.state.planned for plan in plans] == [(BOIL, POUR)] * 3
    assert proposer.asked == [START, other, START.then(BOIL), other.then(BOIL)]


def world(seed: int) -> tuple[dict[Plan, list[str]], dict[Plan, float | None]]:
    """What is proposed after each plan of up to two actions, and the score of each plan of up to three; many tie."""
    drawn = random.Random(seed)
    plans = [plan for length in range(4) for plan in product(ACTIONS, repeat=length)]
    table = {plan: drawn.choices([*ACTIONS, "stir~", ""], k=drawn.randint(0, 4)) for plan in plans if len(plan) < 3}
    return table, {plan: drawn.choice([None, 0.0, 0.25, 0.5, 1.0]) for plan in plans if plan}


def every_plan(table: dict[Plan, list[str]], scores: dict[Plan, float | None], horizon: int) -> Plan:
    """The best of all plans by brute force: fewest steps without a score, highest mean, then order of proposal."""

    def rank(plan: Plan) -> tuple[int, float]:
        steps = [scores[plan[: end + 1]] for end in range(len(plan))]
        told = [score for score in steps if score is not None]
        return len(steps) - len(told), -(sum(told) / len(told)) if told else 0.0

    level: list[tuple[object, Plan]] = [((), ())]
    for _ in range(horizon):
        longer: list[tuple[object, Plan]] = []
        for key, plan in level:
            named = dict.fromkeys("stir" if text == "stir~" else text for text in table.get(plan, ()) if text)
            for place, action in enumerate(named):
                after = (*plan, action)
                longer.append(((rank(after), key, place), after))
        level = longer or level
    return min(level)[1]


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_with_all_plans_kept_the_search_finds_what_brute_force_finds(seed: int, horizon: int) -> None:
    table, scores = world(seed)
    [plan] = search(table, scores, horizon, beam=10_000).run([START])
    assert plan.state.planned == every_plan(table, scores, horizon)


@given(st.integers(0, 2**32), st.integers(1, 3), st.randoms(use_true_random=False))
def test_a_sample_does_not_depend_on_the_others(seed: int, beam: int, order: random.Random) -> None:
    starts = [START, State(GOAL, ("sit down",)), State(GOAL, (), (BOIL,)), State(GOAL, (), (ADD,)), START]
    table, scores = world(seed)
    found = Search((ToyProposer(table),), 2, actions_of, {"toy": toy_value(scores.get)}, horizon=2, beam=beam)
    alone = [found.run([start])[0] for start in starts]
    assert found.run(starts) == alone
    shuffled = order.sample(range(len(starts)), len(starts))
    assert found.run([starts[place] for place in shuffled]) == [alone[place] for place in shuffled]
