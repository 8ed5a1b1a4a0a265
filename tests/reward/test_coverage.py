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
from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.near_copies import NearCopies, without_copies
from recipe.corpus.store import Corpus
from recipe.errors import InputError
from recipe.reward import coverage
from recipe.reward.coverage import CorpusCoverage, TaskPrompt, foreign_prompts
from recipe.types import Narration, Segment

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


@pytest.fixture(scope="module", params=[0, 1, 4, 20])
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, int]:
    """So many narrations that brew tea, with a copy of the first, behind four of each of two other tasks."""
    wanted = {"fix a tyre": 4, "bake bread": 4, "brew tea": request.param}
    narrations = [
        Narration(f"{goal} {n}", tuple(map(Segment, [goal, *TASKS[goal], *(f"{word}{n}" for word in "abcdefgh")])))
        for goal, count in wanted.items()
        for n in range(count)
    ]
    copies = [replace(one, video_id="copy") for one in narrations[8:9]]
    folder = tmp_path_factory.mktemp("counted") / "c"
    build_corpus([*narrations, *copies], folder, CorpusConfig(encoder=EncoderConfig(name="hash:256")))
    return Corpus.open(folder), request.param


@pytest.mark.parametrize("prompt", [TaskPrompt("brew tea", ()), *covered()[:1], TaskPrompt("", covered()[0].history)])
def test_narrations_about_a_task_are_counted_however_many_there_are(
    counted: tuple[Corpus, int], prompt: TaskPrompt
) -> None:
    corpus, count = counted
    knows, pool = CorpusCoverage(corpus, corpus.encoder.encode), list(range(len(corpus)))
    about = knows.narrations_about(prompt, pool)
    # Of the first one and its copy one counts.
    assert sorted(8 if number == 8 + count else number for number in about) == list(range(8, 8 + count))
    assert all(0.75 <= fit <= 1.0 for fit in about.values())
    assert CorpusCoverage(corpus, corpus.encoder.encode).narrations_about(prompt, pool[::-1]) == about
    assert knows.narrations_about(prompt, pool[:8]) == {}


def test_without_a_task_or_a_pool_no_narration_is_about_it(corpus: Corpus) -> None:
    knows = CorpusCoverage(corpus, corpus.encoder.encode)
    assert knows.narrations_about(TaskPrompt(" ", ()), range(len(corpus))) == {}
    assert knows.narrations_about(TaskPrompt("brew tea", ()), []) == {}


@given(st.lists(st.lists(st.sampled_from([f"w{n}" for n in range(12)]), max_size=14).map(" ".join), max_size=8))
def test_of_near_copies_the_first_is_kept(texts: list[str]) -> None:
    kept = without_copies(texts)
    assert kept == sorted(set(kept))
    index = NearCopies([texts[place] for place in kept])
    for place, (text, copy) in enumerate(zip(texts, index.find(texts), strict=True)):
        if place not in kept:
            assert copy is not None
            assert any(NearCopies([texts[own]]).find([text])[0] for own in kept if own < place)
    for own in kept:
        others = [texts[other] for other in kept if other != own]
        assert NearCopies(others).find([texts[own]]) == [None]
