"""How far a corpus knows a task: foreign tasks, covered ones, limits, what is kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reward.test_coverage_law import LAW, TASKS, corpus_of

from recipe.artifacts import read_json
from recipe.audit.coverage import advice, task_coverage
from recipe.corpus.store import Corpus
from recipe.errors import InputError
from recipe.reward import coverage
from recipe.reward.coverage import CorpusCoverage, TaskPrompt, foreign_prompts

OTHERS = (
    TaskPrompt("repair a pipe organ", ("take out the reed pipes", "clean the wind chest")),
    TaskPrompt("hgfd ssdd", ("qqw eer", "poiu trew")),
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return corpus_of(tmp_path_factory.mktemp("corpus") / "c", {"brew tea": 6, "fix a tyre": 2})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECIPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "coverage"


def covered(history: int = 3) -> list[TaskPrompt]:
    return [TaskPrompt(goal, tuple(TASKS[goal][:history])) for goal in ("brew tea", "fix a tyre")]


def test_a_corpus_knows_what_it_tells_and_nothing_else(corpus: Corpus) -> None:
    states = [own.state for own in CorpusCoverage(corpus, corpus.encoder.encode).of([*covered(), *OTHERS]) if own]
    assert states == ["known", "known", "unknown", "unknown"]


def test_a_goal_or_a_history_is_enough(corpus: Corpus) -> None:
    known = CorpusCoverage(corpus, corpus.encoder.encode)
    [by_history, unknown] = known.of([replace(covered()[0], goal=""), replace(OTHERS[0], history=())])
    assert [own.state for own in (by_history, unknown) if own] == ["known", "unknown"]
    with pytest.raises(InputError):
        known.of([TaskPrompt(" ", ())])


def test_states_do_not_depend_on_other_prompts(corpus: Corpus) -> None:
    known, prompts = CorpusCoverage(corpus, corpus.encoder.encode), [*covered(), *OTHERS]
    assert [known.of([prompt])[0] for prompt in prompts] == known.of(prompts)
    assert known.of([]) == []


def test_the_limits_of_a_folder_are_kept_and_made_again(
    corpus: Corpus, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = CorpusCoverage(corpus, corpus.encoder.encode).of(covered())
    [file] = cache.iterdir()
    kept = read_json(file)
    assert all(limits["partly"] <= limits["known"] for limits in kept.values())
    for damaged in ("{", "[1, 2]", '{"both": {"partly": 0.1}}', '{"both": 3, "one": {}}'):
        file.write_text(damaged, encoding="utf-8")
        assert CorpusCoverage(corpus, corpus.encoder.encode).of(covered()) == first
        assert read_json(file) == kept
    monkeypatch.setattr(coverage, "_limits", None)  # not computed again
    assert CorpusCoverage(corpus, corpus.encoder.encode).of(covered()) == first


def test_a_tiny_corpus_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = corpus_of(tmp_path / "c", {"brew tea": 6})
    monkeypatch.setattr(coverage, "FEWEST", len(corpus) + 1)
    assert CorpusCoverage(corpus, corpus.encoder.encode).of(covered()) == [None, None]


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=200), st.floats(5, 100))
def test_limits_are_quantiles_that_a_few_known_prompts_cannot_move(values: list[float], high: float) -> None:
    limits = coverage._limits(values)
    assert limits["partly"] <= limits["known"] <= max(values) + 1e-9
    some = [*values, *[high] * (len(values) // 8)]
    median = float(np.median(some))
    spread = 1.4826 * float(np.median(np.abs(np.array(some) - median)))
    assert coverage._limits(some)["known"] <= median + 4 * spread + 1e-9


def test_foreign_prompts_are_different_and_whole() -> None:
    prompts = foreign_prompts()
    assert len({prompt.goal for prompt in prompts}) == len(prompts) >= 100
    assert all(prompt.goal and len(prompt.history) >= 2 for prompt in prompts)


def test_no_law_speaks_of_an_unknown_task() -> None:
    [unknown, known] = task_coverage([OTHERS[0], covered()[0]], [0.3, 0.4], ["unknown", "known"], [0.1, 0.2], LAW, 0.8)
    assert (unknown.mean, unknown.gain, unknown.videos) == (None, None, None)
    assert unknown.covered is False
    assert known.mean is not None
    assert advice(unknown, 0.8) != advice(known, 0.8) != ""
