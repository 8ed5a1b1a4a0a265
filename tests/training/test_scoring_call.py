"""The way of a batch of completions to its rewards: how often a text is parsed, and how many functions lie between."""

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import built_corpus

from recipe.artifacts import read_jsonl, write_jsonl
from recipe.config import RewardConfig
from recipe.errors import ComputeError, CorpusError, InputError, ServiceUnavailable
from recipe.plan_text import Completion
from recipe.reward.scorer import PromptGroup, outcomes_of
from recipe.reward.verifier import Verifier
from recipe.reward.watchdog import CompletionRecord
from recipe.training.rewards import score_completions
from recipe.types import Narration, Reward, Segment

TALKS = {"tea": ("boil the water", "warm the pot", "pour the water"), "eggs": ("crack two eggs", "whisk them", "fry")}
TEXTS = (
    "1. warm the pot\n2. pour the water",
    "1. warm the pot",
    "",
    "Then:\n- pour the water",
    "1. wait\n2. pour the w",
)


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Verifier:
    talks = [Narration(name, tuple(map(Segment, steps))) for name, steps in TALKS.items()]
    return Verifier(built_corpus(tmp_path_factory.mktemp("scoring") / "corpus", talks), RewardConfig(pool_size=2))


def batch() -> list[CompletionRecord]:
    return [
        CompletionRecord(
            step=1,
            goal="make tea",
            history=("boil the water",),
            completion=Completion.of(text, cut=text.endswith("w")),
            clipped=text.endswith("w"),
        )
        for text in TEXTS
    ]


def test_a_record_comes_back_from_its_line(verifier: Verifier, tmp_path: Path) -> None:
    records = batch()
    score_completions(verifier, records, earlier=False)
    records.append(batch()[0])  # one without a reward
    file = tmp_path / "step-00001.jsonl"
    write_jsonl(file, (record.row for record in records))
    assert [CompletionRecord.of_row(file, line, row) for line, row in read_jsonl(file)] == records
    rows = [row for _, row in read_jsonl(file)]
    assert [row["completion"] for row in rows] == [*TEXTS, TEXTS[0]]
    assert [row["malformed"] for row in rows] == [False, False, True, False, False, False]
    assert [row["clipped"] for row in rows] == [False, False, False, False, True, False]
    assert rows[0]["reward"]["pool"][0].keys() == {"narration", "score"}
    assert rows[-1]["reward"] is None


class Raises:
    """Scores a plan by its steps, and raises for all groups where one of the plans is `lost`."""

    def __init__(self, error: Exception) -> None:
        self.error, self.calls = error, 0

    def score_groups(self, groups: Any) -> Any:
        self.calls += 1
        if any("lost" in plan for group in groups for plan in group.plans):
            raise self.error
        return [[Reward(len(plan), 0, 0, 0, False, len(plan), (), None) for plan in group.plans] for group in groups]


@pytest.mark.parametrize("kind", [ComputeError, CorpusError, InputError])
@pytest.mark.parametrize("lost", [0, 5])
def test_a_failure_that_is_raised_reaches_the_plans_that_it_concerns(kind: type[Exception], lost: int) -> None:
    """A CorpusError and a ComputeError concern the group, an InputError the plan."""
    groups = [PromptGroup(f"goal {n}", (), [("a",), ("lost",) if n == lost else ("b", "c")]) for n in range(8)]
    scorer = Raises(kind("no"))
    outcomes = outcomes_of(scorer, groups)
    for n, own in enumerate(outcomes):
        kinds = [type(outcome) for outcome in own]
        bad = [Reward, kind] if kind is InputError else [kind, kind]
        assert kinds == (bad if n == lost else [Reward, Reward])
    assert scorer.calls <= 1 + 2 * 3 + 3  # halves of 8 groups, and two plans


def test_an_error_of_the_run_is_raised_at_once() -> None:
    scorer = Raises(ServiceUnavailable("no answer"))
    with pytest.raises(ServiceUnavailable):
        outcomes_of(scorer, [PromptGroup("tea", (), [("lost",)]), PromptGroup("eggs", (), [("a",)])])
    assert scorer.calls == 1
