"""Plans composed of sampled ones: what they are made of, which one is chosen, and a round that trains on them."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.artifacts import read_jsonl
from recipe.config import BestOfNConfig
from recipe.errors import ComputeError, ConfigError
from recipe.models.checkpoints import load_reader
from recipe.plan_text import parse_plan
from recipe.reward.composition import compose, crossings
from recipe.reward.scorer import Outcome, PromptGroup, plain_reward
from recipe.text import format_plan
from recipe.training import best_of_n
from recipe.training.best_of_n import completion_loss, train_best_of_n

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


@pytest.fixture
def config(base_model: Path, examples_file: Path, tmp_path: Path) -> BestOfNConfig:
    return BestOfNConfig(
        model=str(base_model), examples=examples_file, output=tmp_path / "run", corpus=tmp_path / "no-corpus",
        learning_rate=1e-2, metrics=(), n=6, rounds=1, epochs=1, batch_size=6, completions_at_once=48,
        max_completion_tokens=40, choose="composed",
    )  # fmt: skip


def test_a_round_learns_the_composed_plan(config: BestOfNConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[list[int]] = []

    def recording(model: Any, prompts: Any, written: Any, *rest: Any) -> Any:
        learned.extend(written)
        return completion_loss(model, prompts, written, *rest)

    monkeypatch.setattr(best_of_n, "completion_loss", recording)
    train_best_of_n(config, PlaceScorer())
    rows = [row for _, row in read_jsonl(config.output / "completions" / "round-01.jsonl")]
    chosen = [row for row in rows if row["chosen"]]
    composed = [row for row in chosen if "composed" in row]
    assert composed
    assert len(composed) < len(chosen) or len(chosen) == len(learned)
    assert not any("composed" in row for row in rows if not row["chosen"])
    tokenizer = load_reader(config.model).tokenizer
    texts = sorted(tokenizer.decode(tokens, skip_special_tokens=True) for tokens in learned)
    assert texts == sorted(format_plan(row["composed"]) if "composed" in row else row["completion"] for row in chosen)
    for row in composed:
        assert parse_plan(format_plan(row["composed"])).steps == tuple(row["composed"])  # type: ignore[union-attr]
        others = [other["reward"]["total"] for other in rows if other["example_id"] == row["example_id"]]
        assert row["composed_total"] > max(others)
    ends = {tokens[-1] for tokens in learned if tokenizer.decode(tokens, skip_special_tokens=True).startswith("1.")}
    assert tokenizer.eos_token_id in ends
    first, *_ = (row for _, row in read_jsonl(config.output / "metrics.jsonl") if "loss" not in row)
    assert first["composed"] == len(composed) / len(chosen)
    assert "kl_bound" not in first, "no bound holds"
    assert first["chosen_reward"] > first["reward"]


def test_a_model_that_thinks_first_has_no_composed_plans(
    config: BestOfNConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(best_of_n, "thought_opening", lambda _: "<think>")
    with pytest.raises(ConfigError, match="choose = 'composed'"):
        train_best_of_n(config, PlaceScorer())
