"""Plans from a corpus without a planner: what they hold, and the controls of `recipe evaluate match --corpus`."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("numba")
pytest.importorskip("scipy")
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.conftest import Recipe, built_corpus

from recipe.alignment.reference import monotone_coverage
from recipe.artifacts import write_jsonl
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, InputError
from recipe.evaluation.matching import step_f1
from recipe.evaluation.retrieval import CONSENSUS, COPY, GRID, ConsensusSettings, RetrievalPlanner
from recipe.evaluation.scores import Scores, read_scores
from recipe.types import Example, Hit, Narration, Segment

WORDS = ("boil water", "warm the pot", "add leaves", "steep for long", "pour a cup", "stir it", "serve", "wash up")
STEPS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8)
LISTS = st.lists(STEPS, min_size=1, max_size=8)
ENCODER = EncoderConfig(name="hash:512")


def told(lists: Sequence[Sequence[str]]) -> list[Narration]:
    return [Narration(f"v{number}", tuple(map(Segment, lines))) for number, lines in enumerate(lists)]


class InMemory(Corpus):
    """A corpus that no file holds, for tests that draw hundreds."""

    def __init__(self, lists: Sequence[Sequence[str]]) -> None:
        self.folder, self.encoder = Path("memory"), open_encoder(ENCODER)
        self._told = told(lists)
        self._stored = [self.encoder.encode(lines).astype(np.float16).astype(np.float32) for lines in lists]

    def __len__(self) -> int:
        return len(self._told)

    @property
    def video_ids(self) -> list[str]:
        return [narration.video_id for narration in self._told]

    def narration(self, index: int | str) -> Narration:
        return self._told[int(index)]

    def embeddings(self, index: int) -> NDArray[np.float32]:
        return self._stored[index]

    def search_batch(self, queries: Sequence[NDArray[np.float32]], k: int = 25) -> list[list[Hit]]:
        scores = [[monotone_coverage(query @ stored.T) for stored in self._stored] for query in queries]
        orders = [sorted(range(len(own)), key=lambda number: -own[number])[:k] for own in scores]
        return [[Hit(n, own[n]) for n in order] for own, order in zip(scores, orders, strict=True)]


def prompt(*history: str, goal: str = "make tea", video: str = "other", name: str = "e") -> Example:
    return Example(name, "set", video, goal, history, ("drink",), len(history))


@given(st.lists(st.text("ab .", min_size=1).filter(str.strip), min_size=1, max_size=8), st.data())
def test_a_list_and_its_beginning_give_its_rest(lines: list[str], data: st.DataObject) -> None:
    """Lines may recur, side by side too, and may be made of the same words."""
    done = data.draw(st.integers(0, len(lines)))
    [plan] = RetrievalPlanner(InMemory([lines])).copies([prompt(*lines[:done])])
    assert plan.steps == tuple(lines[done:])


@given(st.permutations(WORDS), st.lists(st.integers(0, 6), unique=True), st.integers(0, 6))
def test_a_history_that_skips_lines_or_has_others_ends_at_its_last_line(
    lines: list[str], said: list[int], place: int
) -> None:
    history = [lines[number] for number in sorted(said)]
    history.insert(min(place, len(history)), "sing loudly")
    [plan] = RetrievalPlanner(InMemory([lines])).copies([prompt(*history)])
    assert plan.steps == tuple(lines[max(said, default=-1) + 1 :])


@given(LISTS, st.lists(st.sampled_from(WORDS), max_size=3), st.sampled_from(GRID), st.data())
def test_consensus_has_what_enough_narrations_say_in_any_order(
    lists: list[list[str]], history: list[str], tried: ConsensusSettings, data: st.DataObject
) -> None:
    orders = [lists, data.draw(st.permutations(lists))]
    first, second = (
        RetrievalPlanner(InMemory(order), WORDS).consensus([prompt(*history)], tried)[0].steps for order in orders
    )
    assert first == second
    share = {word: sum(word in lines for lines in lists) / len(lists) for word in WORDS}
    assert sorted(first) == sorted({word for word in WORDS if share[word] >= tried.support} - {*history})


@given(LISTS, STEPS, st.data())
def test_copies_are_the_same_in_any_order_but_for_ties(
    lists: list[list[str]], history: list[str], data: st.DataObject
) -> None:
    corpora = [InMemory(lists), InMemory(data.draw(st.permutations(lists)))]
    queries = [corpora[0].encode(steps) for steps in (["make tea"], history)]
    by_goal, by_history = ({hit.narration: hit.score for hit in hits} for hits in corpora[0].search_batch(queries))
    assume(len({round(by_goal[number] + by_history[number], 5) for number in by_goal}) == len(lists))
    first, second = (RetrievalPlanner(corpus).copies([prompt(*history)])[0].steps for corpus in corpora)
    assert first == second


# Many of these are alike, so that one is left out for another.
NEAR = tuple(f"{verb} the {thing} in the big old pot" for verb in ("stir", "warm") for thing in ("tea", "milk", "soup"))


@given(st.lists(st.lists(st.sampled_from(NEAR), min_size=1, max_size=6), min_size=1, max_size=8))
def test_more_support_never_adds_a_step(lists: list[list[str]]) -> None:
    planner = RetrievalPlanner(InMemory(lists), NEAR)
    shares = (0.2, 0.4, 0.7, 1.0)
    sets = [{*planner.consensus([prompt()], ConsensusSettings(support=share))[0].steps} for share in shares]
    assert all(more <= less for less, more in pairwise(sets))


def test_a_wording_counts_once_a_narration_at_its_first_place() -> None:
    lists = [["serve", "boil water", "serve", "serve"], ["stir it", "boil water", "add leaves"]]
    lists.append(lists[1])
    planner = RetrievalPlanner(InMemory(lists), WORDS)
    [most] = planner.consensus([prompt()], ConsensusSettings(support=0.5))
    [every] = planner.consensus([prompt()], ConsensusSettings(support=0.1))
    assert most.steps == ("stir it", "boil water", "add leaves")
    assert sorted(every.steps[:2]) == ["serve", "stir it"]
    assert every.steps[2:] == ("boil water", "add leaves")


def test_where_nothing_is_left_the_next_narration_is_copied() -> None:
    planner = RetrievalPlanner(InMemory([["boil water", "serve"], ["boil water", "add leaves", "stir it"]]))
    first, second = planner.copies([prompt("boil water", "serve"), prompt("boil water")])
    assert first.steps == ("add leaves", "stir it")
    assert second.steps in {("serve",), ("add leaves", "stir it")}


@pytest.mark.parametrize("name", ["dQw4w9WgXcQ", "Tea [dQw4w9WgXcQ]", "dQw4w9WgXcQ.en", "cut of dQw4w9WgXcQ, part 1"])
def test_the_own_video_gives_nothing(tmp_path: Path, name: str) -> None:
    lists = {name: ["boil water", "serve"], "v1": ["boil water", "wash up"]}
    named = [Narration(video, tuple(map(Segment, lines))) for video, lines in lists.items()]
    corpus = built_corpus(tmp_path / "corpus", named, ENCODER.name)
    planner, loose = RetrievalPlanner(corpus, WORDS), ConsensusSettings(support=0.1)
    own, other = prompt("boil water", video="dQw4w9WgXcQ"), prompt("boil water", video="9bZkp7q19f0")
    assert planner.copies([own])[0].steps == planner.consensus([own], loose)[0].steps == ("wash up",)
    assert {*planner.consensus([other], loose)[0].steps} == {"serve", "wash up"}


def test_the_best_settings_are_chosen() -> None:
    lists = [
        ["boil water", "pour a cup", "now serve it"],
        ["boil water", "stir it"],
        ["add leaves", "stir it well"],
    ] * 4
    planner = RetrievalPlanner(InMemory(lists), WORDS)
    examples = [prompt("boil water", name="a"), prompt("add leaves", name="b"), prompt(name="c")]

    def measure(example: Example, steps: Sequence[str]) -> float:
        return step_f1(steps, ["stir it", "serve"])

    chosen, value = planner.choose(examples, measure)
    plans = [planner.consensus(examples, tried) for tried in GRID]
    means = [fmean(measure(row, plan.steps) for row, plan in zip(examples, own, strict=True)) for own in plans]
    assert len({*means}) > 1
    assert value == pytest.approx(max(means))
    assert chosen == GRID[means.index(max(means))]


def test_what_cannot_be_used() -> None:
    corpus = InMemory([["boil water"]])
    planner = RetrievalPlanner(corpus, WORDS)
    with pytest.raises(InputError, match="wordings"):
        RetrievalPlanner(corpus, [])
    with pytest.raises(InputError, match="wordings"):
        RetrievalPlanner(corpus).consensus([prompt()])
    with pytest.raises(InputError, match="'e'"):
        planner.copies([prompt(goal=" ")])
    with pytest.raises(InputError, match="examples"):
        planner.choose([], lambda _example, _steps: 0.0)
    with pytest.raises(ComputeError):
        planner.choose([prompt()], lambda _example, _steps: math.nan)
    with pytest.raises(InputError, match="no narration"):
        RetrievalPlanner(InMemory([]), WORDS)


Evaluate = Callable[..., Scores]


@pytest.fixture
def scores_of(tmp_path: Path, recipe: Recipe) -> Evaluate:
    """The scores of empty plans beside controls, with so many training examples, and with a corpus or not."""

    def rows_of(split: str, count: int) -> list[dict[str, object]]:
        cuts = [(f"{split}{number}", 1 + number % 3) for number in range(count)]
        return [
            {"example_id": name, "video_id": name, "goal": "make tea", "split": split}
            | {"history": WORDS[:cut], "continuation": WORDS[cut:5]}
            for name, cut in cuts
        ]

    def evaluate(training: int, *more: object) -> Scores:
        write_jsonl(tmp_path / "test.jsonl", rows_of("test", 6))
        write_jsonl(tmp_path / "train.jsonl", rows_of("train", training))
        write_jsonl(tmp_path / "plans.jsonl", [{"example_id": "test0", "steps": []}])
        named = ("--examples", tmp_path / "test.jsonl", "--encoder", ENCODER.name, "--output", tmp_path / "match.json")
        annotated = ("--annotated", tmp_path / "train.jsonl") if training else ()
        outcome = recipe("evaluate", "match", tmp_path / "plans.jsonl", *named, *annotated, *more)
        assert outcome.code == 0, outcome.err
        return read_scores(tmp_path / "match.json")

    return evaluate


@pytest.mark.parametrize(("training", "row"), [(0, None), (4, f"{CONSENSUS}, default settings"), (12, CONSENSUS)])
def test_controls_of_a_corpus(scores_of: Evaluate, tmp_path: Path, training: int, row: str | None) -> None:
    held = [*((f"other{n}", WORDS[:5]) for n in range(4)), ("test0", WORDS[:5]), ("test1", ("warm the pot", "serve"))]
    narrations = [Narration(video, tuple(map(Segment, lines))) for video, lines in held]
    built_corpus(tmp_path / "corpus", narrations, ENCODER.name)
    without, scores = scores_of(training), scores_of(training, "--corpus", tmp_path / "corpus")
    controls = {group.name: group for group in scores.of("control")}
    added = [name for name in controls if name not in {group.name for group in without.of("control")}]
    assert added == [COPY, *([row] if row else [])]
    for name in added:
        group = controls[name]
        assert group.values["matched_f1"].mean == 1
        assert group.difference is not None
        assert (group.difference.mean, group.difference.observations) == (-1, 6)
    assert {*scores.settings} - {*without.settings} == {"corpus", CONSENSUS}
    assert "2 of measured videos" in scores.settings["corpus"]
    assert [group for group in scores.groups if group.name not in added] == [*without.groups]
