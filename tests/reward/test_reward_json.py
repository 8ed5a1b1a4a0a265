"""The one JSON form of a reward: written and read back."""

import json
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_scorer import rewards_of_rows
from pydantic import ValidationError

from recipe.artifacts import to_json
from recipe.types import Hit, Reward

numbers = st.floats(-10, 10)
rewards = st.builds(
    Reward,
    total=numbers,
    aligned_history=numbers,
    aligned_full=numbers,
    rho=numbers,
    gated=st.booleans(),
    steps=st.integers(0, 99),
    pool=st.lists(st.builds(Hit, st.integers(0, 10**6), numbers), max_size=3).map(tuple),
    best_narration=st.none() | st.integers(0, 10**6),
    coverage=st.none() | numbers,
    parts=st.dictionaries(st.text(max_size=5), numbers, max_size=3),
)


@settings(max_examples=30)
@given(st.lists(rewards, max_size=3))
def test_rewards_come_back_from_json(given_rewards: list[Reward]) -> None:
    rows = json.loads(json.dumps(to_json(given_rewards)))
    assert rewards_of_rows(rows) == given_rewards
    assert all(row.keys() == {field.name for field in fields(Reward)} for row in rows)
    assert all(isinstance(hit, Hit) for reward in rewards_of_rows(rows) for hit in reward.pool)
    # For logs, a coverage that is not reported is left out.
    assert all(("coverage" in one.numbers) == (one.coverage is not None) for one in given_rewards)
    assert all(one.numbers.items() >= {"steps": one.steps, "gated": float(one.gated)}.items() for one in given_rewards)


@pytest.mark.parametrize(("field", "value"), [("total", None), ("pool", [{"narration": 1}]), ("gated", "perhaps")])
def test_a_row_that_cannot_be_read_names_its_field(field: str, value: object) -> None:
    row = to_json(Reward(0.5, 0.1, 0.2, 0.3, False, 2, (), None))
    with pytest.raises(ValidationError, match=rf"0\.{field}"):
        rewards_of_rows([row | {field: value}])
