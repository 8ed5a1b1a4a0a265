"""A corpus that grows: after any changes it answers as one that was built from nothing of the same narrations."""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.corpus.conftest import digest, narrations, write_narrations

from recipe.artifacts import locked
from recipe.config import CorpusConfig, EncoderConfig, GroundedConfig, RewardConfig
from recipe.corpus import change
from recipe.corpus.build import build_corpus
from recipe.corpus.change import add_narrations, compact_corpus, ids_of, remove_narrations, source_for
from recipe.corpus.comparison import difference
from recipe.corpus.encoders import HashEncoder
from recipe.corpus.excluded import ExcludedVideo
from recipe.corpus.index import Index
from recipe.corpus.layout import open_manifest
from recipe.corpus.leaks import Exclusions
from recipe.corpus.store import Corpus
from recipe.corpus.verify import verify_corpus
from recipe.errors import CorpusError, EncoderMismatch, InputError, MissingExtra
from recipe.progress import SILENT, Progress
from recipe.reward.verifier import Verifier
from recipe.types import Narration, Segment

CONFIG = CorpusConfig(encoder=EncoderConfig(name="hash:12"), shard_size=8)
QUERY = ["chop onion pan", "fry water", "pour"]
PLANS = [["boil the water", "stir salt"], ["fry onion pan", "chop"]]


def reworded(narration: Narration, words: str = "stir the other pan") -> Narration:
    """The narration of the same video with one more segment."""
    return replace(narration, segments=(*narration.segments, replace(narration.segments[-1], text=words)))


def rewards(corpus: Corpus) -> list[Any]:
    config = RewardConfig(verifier="grounded", grounded=GroundedConfig(pool_size=3, background_size=4, candidates=6))
    return Verifier(corpus, config).score(goal="boil water", history=["chop onion"], continuations=PLANS)


def require_same(corpus: Corpus, wanted: Corpus) -> None:
    """Narrations, vectors, hits, scores, certificates' thresholds and grounded rewards, to the last bit."""
    assert [corpus.narration(n) for n in range(len(corpus))] == [wanted.narration(n) for n in range(len(wanted))]
    assert corpus.narrations(range(len(corpus))) == wanted.narrations(range(len(wanted)))
    assert list(corpus.video_ids) == list(wanted.video_ids)
    for key in ("narrations", "segments", "timed"):
        assert corpus.manifest[key] == wanted.manifest[key]  # type: ignore[literal-required]
    np.testing.assert_array_equal(corpus.offsets, wanted.offsets)
    for number in range(len(wanted)):
        np.testing.assert_array_equal(corpus.embeddings(number), wanted.embeddings(number))
    query = corpus.encoder.encode(QUERY)
    assert corpus.search(QUERY, 5) == wanted.search(QUERY, 5)
    np.testing.assert_array_equal(corpus.coverage(query), wanted.coverage(query))
    every = list(range(len(wanted)))
    for found, right in zip(corpus.similarities(every, query), wanted.similarities(every, query), strict=True):
        np.testing.assert_array_equal(found, right)
    assert rewards(corpus) == rewards(wanted)


POOL = narrations(40, seed=3)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, 39), min_size=1, max_size=12, unique=True)),
        st.tuples(st.just("reword"), st.lists(st.integers(0, 39), min_size=1, max_size=6, unique=True)),
        st.tuples(st.just("remove"), st.lists(st.integers(0, 60), min_size=1, max_size=6, unique=True)),
        st.tuples(st.just("compact"), st.just([])),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=12, deadline=None, phases=[Phase.generate])
@given(actions=ACTIONS, percent=st.sampled_from([5, 60, 100]), small=st.sampled_from([2, 16]))
def test_any_changes_leave_the_corpus_that_a_build_from_nothing_makes(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, list[int]]], percent: int, small: int
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(change, "REMOVED_PERCENT", percent)
        patched.setattr(change, "SMALL_SHARDS", small)
        corpus = build_corpus(POOL[:12], folder / "c", CONFIG)
        held = {narration.video_id: narration for narration in POOL[:12]}
        ids = [Corpus.open(corpus).manifest["id"]]
        for action, numbers in actions:
            if action == "compact":
                done = compact_corpus(corpus)
            elif action == "remove":
                chosen = [list(held)[number] for number in numbers if number < len(held) - 1]
                for video_id in chosen:
                    del held[video_id]
                done = remove_narrations(corpus, chosen)
                assert done.removed == len(chosen)
            else:
                chosen_narrations = [
                    reworded(held.get(POOL[n].video_id, POOL[n])) if action == "reword" else POOL[n] for n in numbers
                ]
                for narration in chosen_narrations:
                    if held.get(narration.video_id) != narration:
                        held.pop(narration.video_id, None)
                        held[narration.video_id] = narration
                done = add_narrations(corpus, chosen_narrations)
                assert done.added + done.replaced + done.equal == len(numbers)
            assert done.id == open_manifest(corpus)["id"]
            if done.id != ids[-1]:
                assert done.id not in ids
                ids.append(done.id)
        opened = Corpus.open(corpus)
        assert not (corpus / "earlier").exists()
        assert not (corpus / ".change").exists()
        assert {path.name for path in (corpus / "shards").iterdir()} == {s["name"] for s in opened.manifest["shards"]}
        wanted = Corpus.open(build_corpus(held.values(), folder / "w", CONFIG))
        require_same(opened, wanted)
        streamed = Corpus(Index.open(corpus, streamed=True), CONFIG.encoder)
        assert streamed.search(QUERY, 5) == wanted.search(QUERY, 5)
        assert verify_corpus(opened, sample=30).sampled == 30 or opened.manifest["segments"] < 30
        del opened, streamed
        compact_corpus(corpus)
        require_same(Corpus.open(corpus), wanted)
    shutil.rmtree(folder)
