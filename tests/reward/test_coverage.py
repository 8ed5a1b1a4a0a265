"""How far a corpus knows a task: foreign tasks, covered ones, limits, what is kept."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import built_corpus
from tests.reward.test_coverage_law import TASKS, corpus_of

from recipe.artifacts import read_json, write_json
from recipe.corpus.near_copies import NearCopies, without_copies
from recipe.corpus.store import Corpus
from recipe.errors import InputError
from recipe.reward import coverage
from recipe.reward.coverage import FEWEST_NARRATIONS, CorpusCoverage, TaskPrompt, everyday_tasks
from recipe.types import Narration, Segment

ROOT = Path(__file__).parents[2]
OTHERS = (
    TaskPrompt("repair a pipe organ", ("take out the reed pipes", "clean the wind chest")),
    TaskPrompt("hgfd ssdd", ("qqw eer", "poiu trew")),
    TaskPrompt("iron a shirt", ("press the collar",)),
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


def states(corpus: Corpus, prompts: Sequence[TaskPrompt]) -> list[str]:
    return [own.state for own in CorpusCoverage(corpus, corpus.encoder.encode).of(prompts) if own]


def test_a_corpus_knows_what_it_tells_and_nothing_else(corpus: Corpus) -> None:
    found = states(corpus, [*covered(), *OTHERS])
    assert "unknown" not in found[:2]
    assert found[2:] == ["unknown"] * 3


@pytest.mark.parametrize("goal", list(TASKS))
def test_one_task_is_not_another(tmp_path: Path, goal: str) -> None:
    narrations = [
        Narration(f"{goal} {n}", tuple(map(Segment, [goal, *(f"{step} {n}" for step in TASKS[goal])])))
        for n in range(FEWEST_NARRATIONS)
    ]
    corpus = built_corpus(tmp_path / "c", narrations, "hash:256")
    for done in (0, 1, 3):
        found = states(corpus, [TaskPrompt(other, tuple(steps[:done])) for other, steps in TASKS.items()])
        assert {other: "known" for other, state in zip(TASKS, found, strict=True) if state == "known"} == {
            goal: "known"
        }


def test_a_goal_or_a_history_is_enough(corpus: Corpus) -> None:
    asked = [replace(covered()[0], goal=""), replace(OTHERS[0], history=())]
    assert states(corpus, asked) == ["known", "unknown"]
    with pytest.raises(InputError):
        states(corpus, [TaskPrompt(" ", ())])


def test_states_do_not_depend_on_other_prompts(corpus: Corpus) -> None:
    known, prompts = CorpusCoverage(corpus, corpus.encoder.encode), [*covered(), *OTHERS]
    assert [known.of([prompt])[0] for prompt in prompts] == known.of(prompts)
    assert known.of([]) == []


def test_a_prompts_own_video_does_not_make_it_known(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", {"brew tea": 1, "fix a tyre": 2})
    by_others, by_itself = states(corpus, [replace(covered(6)[0], video_id="brew tea 0"), covered(6)[0]])
    assert by_others == "unknown" != by_itself


def test_no_task_is_known_that_no_narration_is_about(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "LIMITS", {"partly": -1.0, "known": -0.5})
    knows, pool = CorpusCoverage(corpus, corpus.encoder.encode), range(len(corpus))
    prompts = [*covered(), *OTHERS, *(TaskPrompt(goal, ()) for goal in TASKS)]
    for prompt, own in zip(prompts, knows.of(prompts), strict=True):
        assert own is not None
        assert (own.state == "known") == bool(knows.narrations_about(prompt, pool))


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_a_corpus_that_knows_everyday_tasks_still_tells_others_apart(tmp_path: Path, share: float) -> None:
    """Everyday tasks that the corpus tells do not raise the floor to where they are."""
    tasks = everyday_tasks()[: int(share * len(everyday_tasks()))]
    told = [Narration(f"{n}", tuple(map(Segment, (own.goal, *own.history)))) for n, own in enumerate(tasks)]
    found = states(built_corpus(tmp_path / "c", told, "hash:256"), [*tasks, *OTHERS[:2]])
    assert set(found[:-2]) == {"known"}
    assert set(found[-2:]) == {"unknown"}


def test_the_floors_of_a_folder_are_kept_and_made_again(
    corpus: Corpus, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = CorpusCoverage(corpus, corpus.encoder.encode).of(covered())
    [file] = cache.iterdir()
    kept = read_json(file)
    for damaged in ("{", "[1, 2]", '{"mean": [0.1], "floors": [0, 0, 0]}', '{"mean": 3}', '{"floors": "x"}'):
        file.write_text(damaged, encoding="utf-8")
        assert CorpusCoverage(corpus, corpus.encoder.encode).of(covered()) == first
        assert read_json(file) == kept
    write_json(file, kept | {"floors": [9.0] * 3})  # they are not computed again
    assert CorpusCoverage(corpus, corpus.encoder.encode).of(covered()) != first
    everyday = everyday_tasks()
    monkeypatch.setattr(coverage, "everyday_tasks", lambda: everyday[1:])
    assert "unknown" not in states(corpus, covered())
    assert len(list(cache.iterdir())) == 2  # another list, other floors


def test_a_tiny_corpus_tells_nothing(tmp_path: Path) -> None:
    told = [Narration(str(n), tuple(map(Segment, TASKS["brew tea"]))) for n in range(FEWEST_NARRATIONS - 1)]
    corpus = built_corpus(tmp_path / "c", told, "hash:256")
    assert CorpusCoverage(corpus, corpus.encoder.encode).of(covered()) == [None, None]


def test_everyday_tasks_are_different_and_whole_and_none_tests_them() -> None:
    prompts = everyday_tasks()
    assert len({prompt.goal for prompt in prompts}) == len(prompts) >= 100
    assert all(prompt.goal and len(prompt.history) >= 2 for prompt in prompts)
    rows = [
        [[part.strip() for part in line.split("|")] for line in file.read_text(encoding="utf-8").splitlines()[2:]]
        for file in (
            Path(coverage.__file__).with_name("everyday_tasks.txt"),
            ROOT / "benchmarks" / "everyday_tasks.txt",
        )
    ]
    for column in (0, 1):
        ours, theirs = ({row[column] for row in part} for part in rows)
        assert not ours & theirs
        assert len(theirs) >= 10


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
    return built_corpus(folder, [*narrations, *copies], "hash:256"), request.param


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
