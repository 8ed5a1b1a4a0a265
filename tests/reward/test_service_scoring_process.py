"""A verifier in a process of its own: the same rewards and failures as in this one, and a death that is survived."""

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recipe.config import CorpusConfig, EncoderConfig, RewardConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, InputError
from recipe.reward.scorer import PromptGroup, outcomes_of, score_or_raise
from recipe.reward.verifier import Verifier
from recipe.types import Narration, Reward, Segment
from recipe_apps.service.process import ScoringProcess
from recipe_apps.service.server import open_verifier
from recipe_apps.web.refusals import Refusal

pytestmark = pytest.mark.thorough

TALK = ("boil the water", "warm the pot", "put tea leaves in the pot", "pour the water")
GROUPS = [
    PromptGroup("tea", TALK[:n], [TALK[n : n + k] for k in range(3)] + [(f"wait {n} minutes",)]) for n in range(1, 4)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    narrations = [Narration(str(n), tuple(map(Segment, (*TALK[n:], "hello")))) for n in range(3)]
    config = CorpusConfig(encoder=EncoderConfig(name="hash:128"))
    return build_corpus(narrations, tmp_path_factory.mktemp("service") / "corpus", config)


class FaultyVerifier(Verifier):
    """Meets a fault of the program at the goal "fault"."""

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        if any(group.goal == "fault" for group in groups):
            raise IndexError("a fault of the program")
        return super().score_groups(groups)


def open_faulty(*arguments: Any) -> FaultyVerifier:
    return FaultyVerifier(open_verifier(*arguments).corpus)


def opening(folder: Path, identity: str | None = None) -> Any:
    identity = identity or Corpus.open(folder).manifest["id"]
    return partial(open_faulty, folder, identity, RewardConfig(), (), GROUPS[:1])


@pytest.fixture(scope="module")
def scorer(folder: Path) -> Iterator[ScoringProcess]:
    process = ScoringProcess(opening(folder))
    process.start()
    yield process
    process.close()
    assert multiprocessing.active_children() == []


def test_a_batch_earns_what_it_earns_here(scorer: ScoringProcess, folder: Path) -> None:
    here = Verifier(Corpus.open(folder))
    for group, rewards in zip(GROUPS, score_or_raise(scorer, GROUPS), strict=True):
        expected = here.score(history=group.history, continuations=group.plans, goal=group.goal)
        assert [reward.total for reward in rewards] == pytest.approx([reward.total for reward in expected], abs=1e-6)
        assert [reward.best_narration for reward in rewards] == [reward.best_narration for reward in expected]
        assert [hit.narration for hit in rewards[0].pool] == [hit.narration for hit in expected[0].pool]


def test_a_failure_comes_back_for_its_own_prompt(scorer: ScoringProcess) -> None:
    bad = PromptGroup("tea", ("boil the water",), [(" ",)])
    first, [failure], second = scorer.score_groups([GROUPS[0], bad, GROUPS[1]])
    assert isinstance(failure, InputError)
    assert "step is empty" in str(failure)
    assert [isinstance(reward, Reward) for reward in (*first, *second)] == [True] * 8


def test_a_fault_of_the_scorer_is_a_refusal_and_the_process_goes_on(scorer: ScoringProcess) -> None:
    for _ in range(2):
        with pytest.raises(Refusal) as refused:
            scorer.score_groups([PromptGroup("fault", (), [("wait",)])])
        assert refused.value.code == "internal"
    assert [len(own) for own in scorer.score_groups(GROUPS)] == [4, 4, 4]


def test_a_process_that_dies_fails_its_batch_and_is_started_again(scorer: ScoringProcess) -> None:
    [child] = multiprocessing.active_children()
    scorer.score_groups(GROUPS)
    child.kill()
    child.join()
    # Of the run and of no plan: the batch is not tried again in parts.
    with pytest.raises(Refusal, match=rf"exit code -{signal.SIGKILL.value}") as refused:
        outcomes_of(scorer, GROUPS)
    assert refused.value.code == "compute_failed"
    assert [len(own) for own in scorer.score_groups(GROUPS)] == [4, 4, 4]


def test_why_it_cannot_be_opened_is_told(folder: Path) -> None:
    with pytest.raises(ComputeError, match="the corpus was replaced while the service started"):
        ScoringProcess(opening(folder, "another")).start()
