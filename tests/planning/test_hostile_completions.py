"""A completion never stops a batch, whatever a model writes: what cannot be read is malformed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.plan_text import parse_plan
from recipe.types import Malformed, Plan

BOMB = "- step: 1\n  steps: &a [{text: boil}, {text: pour}]\n- step: 2\n  steps: [{steps: *a}, {steps: *a}]\n"


@pytest.mark.parametrize(
    "text",
    [
        "- step: !!bool tea",
        "{'steps': ['boil water', !!bool tea]}",
        "{'plan': &a {'plan': *a}}",
        BOMB,
    ],
)
def test_yaml_that_no_plan_needs_is_malformed(text: str) -> None:
    assert isinstance(parse_plan(text), Malformed)


def test_json_that_nests_as_deep_as_its_parser_reads_stops_nothing() -> None:
    outcomes = {repr(parse_plan('{"plan":' * deep + '["boil water"]' + "}" * deep))[:9] for deep in range(900, 1000)}
    assert outcomes <= {"Plan(step", "Malformed"}


@pytest.mark.parametrize("section", ["if !supportLists", "temp"])
def test_marked_sections_are_comments(section: str) -> None:
    plan = Plan(("Boil water", "Pour it"))
    assert parse_plan(f"<ul><![{section}]><li>Boil water</li><![endif]><li>Pour it</li></ul>") == plan


@given(st.text(st.sampled_from("<![]->li/a &#x;='\"\n:*b{},|?%@"), max_size=60))
def test_any_markup_and_any_yaml_is_read(text: str) -> None:
    parse_plan(f"<li>{text}")
    parse_plan(f"- step: {text}")
