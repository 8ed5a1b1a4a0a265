"""Mining: planted continuations are found, and what holds of every mined example whatever the corpus."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import built_corpus

from recipe.alignment.reference import needleman_wunsch
from recipe.config import MiningConfig
from recipe.corpus.encoders import HashEncoder
from recipe.corpus.leaks import Exclusions
from recipe.corpus.store import Corpus
from recipe.data.examples import read_training_examples, write_examples
from recipe.errors import InputError
from recipe.mining import mine as module
from recipe.mining.mine import mine
from recipe.types import Example, Narration, Segment
from recipe.world.load import load_world

TALK = load_world().talk.small_talk
STEPS = {
    "tea": ["boil the water", "warm the teapot", "put the tea leaves in the pot", "pour the hot water over the leaves"],
    "tyre": ["loosen the nuts", "jack up the car", "pull off the wheel", "mount the spare", "lower the car"],
    "soup": ["peel the potatoes", "slice the leek", "melt the butter", "fry the leek", "blend the soup"],
}
WORDS = ["chop", "fry", "pour", "boil", "stir", "salt", "onion", "pan", "water", "kettle"]


def corpus_of(folder: Path, *narrations: Narration) -> Corpus:
    return built_corpus(folder, narrations, "hash:256")


def narration(video_id: str, texts: Sequence[str], title: str | None = None) -> Narration:
    segments = tuple(Segment(text, 10.0 * place, 10.0 * place + 8) for place, text in enumerate(texts))
    return Narration(video_id, segments, title)


def example(history: Sequence[str], steps: int = 9, video_id: str = "own", name: str = "e") -> Example:
    return Example(name, "s", video_id, "a goal", tuple(history), ("x",) * steps, len(history), "train")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Each procedure once, a line of talk before every step."""
    spoken = [
        narration(name, [text for step, talk in zip(steps, TALK, strict=False) for text in (talk, step)], f"do {name}")
        for name, steps in STEPS.items()
    ]
    return corpus_of(tmp_path_factory.mktemp("planted") / "c", *spoken)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("done", [1, 2, 3])
def test_the_planted_continuation_is_mined(planted: Corpus, name: str, done: int) -> None:
    steps = STEPS[name]
    mined = mine(planted, MiningConfig(segments="step-like"), [example(steps[:done])])
    [found], [origin] = mined.examples, mined.origins
    assert found.continuation == tuple(steps[done:])
    assert origin.video_id == name
    assert origin.segments == tuple(2 * place + 1 for place in range(done, len(steps)))
    assert origin.similarity == pytest.approx(1.0, abs=1e-3)


def test_all_segments_after_the_history_are_the_continuation_at_most_as_many_as_the_reference(planted: Corpus) -> None:
    [found] = mine(planted, examples=[example(STEPS["tyre"][:2], steps=3)]).examples
    assert found.continuation == (TALK[2], "pull off the wheel", TALK[3])
    [found] = mine(planted, MiningConfig(steps=1), [example(STEPS["tyre"][:2], steps=3)]).examples
    assert found.continuation == (TALK[2],)
    assert (found.source, found.supervision, found.example_id) == ("pseudo", "weak", "pseudo/e")


def test_a_titled_narration_is_a_procedure_of_its_step_like_segments(planted: Corpus) -> None:
    mined = mine(planted)
    assert (mined.considered, mined.segments, mined.step_like) == (3, 28, 14)
    assert [one.example_id for one in mined.examples[:3]] == [f"pseudo/tea/{cut}" for cut in (1, 2, 3)]
    for one in mined.examples:
        assert one.history + one.continuation == tuple(STEPS[one.video_id])
        assert (one.goal, one.cut) == (f"do {one.video_id}", len(one.history))
        assert one.until == 20.0 * one.cut + 10


def test_the_own_video_and_excluded_ones_are_never_mined(planted: Corpus) -> None:
    own = mine(planted, examples=[example(STEPS["tea"][:2], video_id="tea")])
    assert own.origins[0].video_id != "tea"
    without = Exclusions(["tyre", "soup"], [])
    left = mine(planted, examples=[example(STEPS["tea"][:2], video_id="tea")], exclusions=without)
    assert (left.examples, left.dropped) == ([], {"no_narration": 1})
    assert {one.video_id for one in mine(planted, exclusions=without).examples} == {"tea"}


@pytest.mark.parametrize("name", ["Tea-a1B2c3D4e5F", "a1B2c3D4e5F.en.sdh", "v_a1B2c3D4e5F"])
def test_a_video_is_known_by_the_name_of_its_file(tmp_path: Path, name: str) -> None:
    corpus = corpus_of(tmp_path, narration(name, STEPS["tea"], "make tea"), narration("soup", STEPS["soup"], "cook"))
    asked = [example(STEPS["tea"][:2], video_id="a1B2c3D4e5F")]
    assert [origin.video_id for origin in mine(corpus, examples=asked).origins] in ([], ["soup"])
    without = Exclusions(["a1B2c3D4e5F"], [])
    assert {one.video_id for one in mine(corpus, exclusions=without).examples} == {"soup"}


def test_near_copies_of_excluded_texts_are_no_steps(tmp_path: Path) -> None:
    copied = "pour the hot water slowly over all of the green tea leaves"
    corpus = corpus_of(tmp_path / "c", narration("a", ["boil the water", copied, "strain the tea into cups"], "tea"))
    asked = [example(["boil the water"])]
    assert mine(corpus, examples=asked).examples[0].continuation == (copied, "strain the tea into cups")
    exclusions = Exclusions([], [copied])
    assert mine(corpus, examples=asked, exclusions=exclusions).examples[0].continuation == ("strain the tea into cups",)
    assert mine(corpus, exclusions=exclusions).examples[0].continuation == ("strain the tea into cups",)


def test_equal_examples_are_mined_once(planted: Corpus) -> None:
    asked = [example(STEPS["tea"][:2], name=name) for name in ("a", "b")]
    mined = mine(planted, examples=asked)
    assert [one.example_id for one in mined.examples] == ["pseudo/a"]
    assert mined.dropped == {"duplicate": 1}


def test_what_gives_nothing_is_counted(tmp_path: Path) -> None:
    spoken = [narration("a", ["boil the water"], "tea"), narration("b", ["slice the leek", "fry the leek"])]
    corpus = corpus_of(tmp_path / "c", *spoken)
    assert mine(corpus).dropped == {"too_few_steps": 1, "no_title": 1}
    left = mine(corpus, examples=[example(["fry the leek"])], exclusions=Exclusions(["a"], []))
    assert left.dropped == {"at_end": 1}


def test_a_corpus_without_titles_and_an_example_without_a_history_are_refused(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", narration("a", ["boil the water", "pour the water"]))
    with pytest.raises(InputError, match="none of its 1 narrations has a title"):
        mine(corpus)
    with pytest.raises(InputError, match="have no history"):
        mine(corpus, examples=[example([])])


texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
steps = st.lists(texts, min_size=1, max_size=4)
spoken = st.lists(st.lists(texts, min_size=1, max_size=6), min_size=1, max_size=6)


@settings(max_examples=12)
@given(spoken, st.lists(steps, min_size=1, max_size=5), st.integers(1, 3), st.integers(0, 5))
def test_what_holds_of_every_mined_continuation(
    tmp_path_factory: pytest.TempPathFactory, said: list[list[str]], asked: list[list[str]], most: int, own: int
) -> None:
    narrations = [narration(f"v{place}", texts) for place, texts in enumerate(said)]
    corpus = corpus_of(tmp_path_factory.mktemp("any") / "c", *narrations)
    wanted = [example(done, most, f"v{own}", f"e{place}") for place, done in enumerate(asked)]
    mined = mine(corpus, examples=wanted)
    assert mined.considered == len(wanted) == len(mined.examples) + mined.dropped.total()
    encode = HashEncoder(256).encode
    for found, origin in zip(mined.examples, mined.origins, strict=True):
        source = said[origin.narration]
        assert origin.video_id == f"v{origin.narration}" != f"v{own}"
        assert found.continuation == tuple(source[place] for place in origin.segments)
        assert 1 <= len(found.continuation) <= most
        scores = []
        for number in set(range(len(said))) - {own}:
            aligned = needleman_wunsch(encode(found.history) @ corpus.embeddings(number).T)
            matches = [move for move in aligned.path if None not in move]
            end = (matches[-1][1] or 0) + 1 if matches else 0
            if end < len(said[number]):
                scores.append(aligned.score)
            if number == origin.narration:
                assert origin.segments == tuple(range(end, len(source)))[:most]
        assert origin.score == pytest.approx(max(scores), abs=1e-5)


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Corpus, list[Example]]:
    """Twelve narrations and twelve examples, mined three at a time."""
    monkeypatch.setattr(module, "_AT_ONCE", 3)
    draw = np.random.default_rng(0)
    steps = [step for own in STEPS.values() for step in own]
    said = [narration(f"v{n}", list(draw.permutation(steps)), f"title {n}") for n in range(12)]
    asked = [example(list(draw.permutation(steps)[:2]), 3, f"v{n}", f"e{n}") for n in range(12)]
    return corpus_of(tmp_path / "c", *said), asked


@pytest.mark.parametrize("titles", [True, False])
@pytest.mark.parametrize("limit", [None, 5])
def test_interrupted_work_goes_on_with_the_same_result(
    several: tuple[Corpus, list[Example]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    titles: bool,
    limit: int | None,
) -> None:
    corpus, examples = several
    asked = None if titles else examples
    kind = module._Titles if titles else module._Histories
    whole, original, calls = mine(corpus, examples=asked, limit=limit), kind.outcomes, list[list[int]]()

    def interrupted(self: Any, places: Sequence[int]) -> Any:
        if len(calls) == 1:
            calls.append([])
            raise KeyboardInterrupt
        calls.append(list(places))
        return original(self, places)

    monkeypatch.setattr(kind, "outcomes", interrupted)
    work = tmp_path / "work"
    if limit is None or not titles:
        with pytest.raises(KeyboardInterrupt):
            mine(corpus, examples=asked, limit=limit, work=work)
    assert mine(corpus, examples=asked, limit=limit, work=work) == whole
    places = [place for own in calls for place in own]
    assert len(places) == len(set(places))


@pytest.mark.parametrize("titles", [True, False])
def test_a_limit_draws_by_the_seed_and_a_smaller_one_draws_among_the_same(
    several: tuple[Corpus, list[Example]], titles: bool
) -> None:
    corpus, examples = several
    asked = None if titles else examples
    everything = [one.example_id for one in mine(corpus, examples=asked, seed=1).examples]
    drawn = [[one.example_id for one in mine(corpus, examples=asked, limit=n, seed=1).examples] for n in (3, 6)]
    assert [len(own) for own in drawn] == [3, 6]
    assert set(drawn[0]) < set(drawn[1]) < set(everything)
    assert drawn[1] == [name for name in everything if name in drawn[1]]
    assert [one.example_id for one in mine(corpus, examples=asked, limit=6, seed=2).examples] != drawn[1]


def test_mined_examples_are_training_examples(planted: Corpus, tmp_path: Path) -> None:
    for asked in (None, [example(STEPS["tea"][:2])]):
        mined = mine(planted, examples=asked)
        write_examples(tmp_path / "pseudo.jsonl", mined.examples)
        assert read_training_examples(tmp_path / "pseudo.jsonl", "train") == mined.examples


def test_steps_and_talk_of_the_world_are_told_apart(tmp_path: Path) -> None:
    world = load_world()
    said = {"steps": [wordings[-1] for wordings in world.wordings.values()], "talk": list(world.talk.openings)}
    share = {}
    for name, texts in said.items():
        mined = mine(corpus_of(tmp_path / name, narration(name, texts, "title")))
        assert mined.segments == len(texts)
        share[name] = mined.step_like / mined.segments
    assert share["talk"] <= 0.35 < 0.6 <= share["steps"]


def test_a_step_names_an_action_whatever_its_score(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", narration("a", ["and now we POUR the milk", "I make it all the time"], "tea"))
    mined = mine(corpus, MiningConfig(threshold=-99.0))
    assert (mined.segments, mined.step_like) == (2, 1)
