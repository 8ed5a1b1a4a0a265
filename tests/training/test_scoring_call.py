"""The way of a batch of completions to its rewards: how often a text is parsed, and how many functions lie between."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import recipe
from recipe.artifacts import read_jsonl, write_jsonl
from recipe.config import CorpusConfig, EncoderConfig, RewardConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, CorpusError, InputError, ServiceUnavailable
from recipe.reward.scorer import PromptGroup, outcomes_of
from recipe.reward.verifier import Verifier
from recipe.reward.watchdog import CompletionRecord, Watchdog
from recipe.text import Completion
from recipe.training.rewards import reward_metrics, score_completions
from recipe.types import Narration, Reward, Segment

OURS = str(Path(recipe.__file__).parent)
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
    folder = tmp_path_factory.mktemp("scoring") / "corpus"
    talks = [Narration(name, tuple(map(Segment, steps))) for name, steps in TALKS.items()]
    build_corpus(talks, folder, CorpusConfig(encoder=EncoderConfig(name="hash:64")))
    return Verifier(Corpus.open(folder), RewardConfig(pool_size=2))


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


def traced(work: Callable[[], Any], mathematics: str) -> tuple[Counter[str], list[str]]:
    """How often each of our functions is called, and those on the stack when the one named is."""
    calls, stack = Counter[str](), list[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(OURS):
            return
        calls[frame.f_code.co_name] += 1
        if frame.f_code.co_name == mathematics and not stack:
            at: FrameType | None = frame
            while at is not None:
                name = at.f_code.co_name
                if at.f_code.co_filename.startswith(OURS) and not name.startswith("<"):
                    stack.insert(0, name)
                at = at.f_back

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls, stack


def test_eight_functions_lead_from_the_completions_to_the_dynamic_programme(verifier: Verifier) -> None:
    score_completions(verifier, batch(), earlier=False)  # what is imported and compiled on first use is none of it
    records = batch()
    for end in ("grouped_needleman_wunsch", "search"):
        for record in records:
            record.history = ("boil the water", f"{end} the pot")  # whose pool is not kept
        _, stack = traced(lambda: score_completions(verifier, records, earlier=False), end)
        assert (stack[0], stack[-1]) == ("score_completions", end)
        assert len(stack) <= 8, stack


def test_a_completion_is_parsed_once_from_the_trainer_to_its_record_and_the_watchdog(
    verifier: Verifier, tmp_path: Path
) -> None:
    def step() -> None:
        records = batch()
        score_completions(verifier, records, earlier=False)
        write_jsonl(tmp_path / "step-00001.jsonl", (record.row for record in records))
        Watchdog().observe(1, records)
        reward_metrics(records, verifier.config.grounded)

    calls, _ = traced(step, "parse_plan")
    assert calls["parse_plan"] == len(TEXTS)


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
@pytest.mark.parametrize("lost", range(8))
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
