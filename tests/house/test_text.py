"""Plans written as text come back as the same steps, whatever list style a model chooses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.text import format_plan, parse_plan, planner_messages
from recipe.types import Malformed, Plan

# A step that begins like a list marker is ambiguous by nature and is not generated.
steps = st.lists(
    st.text(st.characters(whitelist_categories=("Ll", "Lu")), min_size=1, max_size=12), min_size=1, max_size=12
)


@given(steps)
def test_a_formatted_plan_parses_to_itself(plan: list[str]) -> None:
    plan = [f"do {step}" for step in plan]
    assert parse_plan(format_plan(plan)) == Plan(tuple(plan))


@given(steps, steps, st.sampled_from(["", "Enjoy!\n", "Here is another plan:\n\n", "\n**Again**\n"]))
def test_a_plan_ends_where_its_list_does(plan: list[str], again: list[str], between: str) -> None:
    plan, again = ([f"do {step}" for step in one] for one in (plan, again))
    restarted = f"{format_plan(plan)}\n{between}{format_plan(again)}"
    # Numbers of a list that begins with 1 do not go back behind a single 1.
    whole = tuple(plan + again) if len(plan) == 1 and not between.strip() else tuple(plan)
    assert parse_plan(restarted) == Plan(whole)
    assert parse_plan(f"{format_plan(plan)}\n{between}") == Plan(tuple(plan))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. Boil water\n2. Add tea", ("Boil water", "Add tea")),
        ("Sure! Remaining steps:\n\n1) **Boil** water\n2) Add tea\n", ("Boil water", "Add tea")),
        ("- boil water\n* add tea\n• serve", ("boil water", "add tea", "serve")),
        ("Step 1: boil water\nStep 2: add tea", ("boil water", "add tea")),
        ("boil water\nadd tea", ("boil water", "add tea")),
        ("**1. Boil water**\n**2. Add tea**", ("Boil water", "Add tea")),
        ("2.5 cups of water are boiled\nadd tea", ("2.5 cups of water are boiled", "add tea")),
        ("1. boil 2 cups\n2.\n3. serve", ("boil 2 cups", "serve")),
        ("1. boil water\n1. add tea\n1. serve", ("boil water", "add tea", "serve")),
        ("Prepare\n1. boil water\nCook\n2. add tea\nServe\n3. pour", ("boil water", "add tea", "pour")),
        ("1. boil:\n   - fill the pot\n   - heat it\n2. add tea", ("boil:", "fill the pot", "heat it", "add tea")),
        ("1. boil water\n2. add tea\n\nEnjoy your tea!", ("boil water", "add tea")),
        ("1. boil water\n2. add tea\nNote:\n- be careful", ("boil water", "add tea")),
        ("1. boil water\nAnother way:\n1. use the sun", ("boil water",)),
        ("- boil water\n- add tea\n\nTips:\n- use a cup", ("boil water", "add tea")),
        ("3. add tea\n4. serve\n1. boil water", ("add tea", "serve")),
    ],
)
def test_list_styles(text: str, expected: tuple[str, ...]) -> None:
    assert parse_plan(text) == Plan(expected)


@pytest.mark.parametrize("text", ["", " \n ", "1.\n2.\n", "---"])
def test_a_completion_without_steps_is_malformed_and_says_why(text: str) -> None:
    plan = parse_plan(text)
    assert isinstance(plan, Malformed)
    assert plan.text == text
    assert plan.reason


def test_the_prompt_holds_goal_and_history_and_no_history_is_said_in_words() -> None:
    system, user = planner_messages("make tea", ["boil water"])
    assert (system["role"], user["role"]) == ("system", "user")
    assert user["content"] == "Goal: make tea\nDone:\n1. boil water"
    assert planner_messages("make tea", [])[1]["content"].endswith("nothing yet")
