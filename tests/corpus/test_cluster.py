"""A Ray cluster builds the same bytes and finds the same narrations as one process, also where workers are killed."""

import itertools
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.corpus.conftest import digest, narrations

from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.encoders import HashEncoder
from recipe.corpus.index import Index, SearchResult
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, CorpusError, EncoderMismatch, InputError
from recipe.progress import SILENT, Progress
from recipe.reward.verifier import Verifier
from recipe.types import Narration, Segment

ray = pytest.importorskip("ray", reason="work on a cluster needs ray")

from recipe.corpus.cluster.build import encode_shards  # noqa: E402
from recipe.corpus.cluster.search import (  # noqa: E402
    ClusterCorpus,
    Opener,
    Placement,
    ShardedIndex,
    balanced,
    cluster,
)

# Ray Data warns of the old names of its own settings as it sets their defaults.
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings(r"ignore:`\w+` is deprecated:DeprecationWarning:ray\.data\.context"),
]
CONFIG = CorpusConfig(encoder=EncoderConfig(name="hash:64"), shard_size=4)
STEPS = ["chop onion", "fry pan", "pour water"]


@pytest.fixture(scope="module", autouse=True)
def _four_cpus() -> Iterator[None]:
    """One cluster for all tests; its workers get what this module defines by value, for they cannot import it."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with cluster(cpus=4):
        yield


class Stopped(HashEncoder):
    """Fails before the first shard, so that a build is left staged."""

    def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
        raise ComputeError("stopped")


def staged(output: Path, given: list[Narration]) -> range:
    """Stage a build and stop before its first shard; the numbers of its shards."""
    with pytest.raises(ComputeError, match="stopped"):
        build_corpus(given, output, CONFIG, encoder=Stopped(64))
    return range(len(list((output / "staging").glob("0*"))))


class Killed(HashEncoder):
    """Kills its process at the third shard, once, or at every shard where there is no mark to leave."""

    def __init__(self, mark: Path | None) -> None:
        super().__init__(64)
        self.mark = mark

    def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
        if self.mark is None:
            os.kill(os.getpid(), signal.SIGKILL)
        elif any("third shard" in text for text in texts) and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(texts, progress)


class Broken(HashEncoder):
    """Gives no finite vector for the third shard."""

    def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
        scale = np.nan if any("third shard" in text for text in texts) else 1
        return super().encode(texts, progress) * np.float32(scale)


def marked() -> list[Narration]:
    """Six shards, of which the third is told by its texts."""
    given = narrations(22)
    return [*given[:9], Narration("x", (Segment("the third shard"), Segment("goes on"))), *given[10:]]


def test_a_cluster_builds_the_same_bytes_and_outlives_a_killed_worker(tmp_path: Path) -> None:
    whole = build_corpus(marked(), tmp_path / "whole", CONFIG)
    output, advanced = tmp_path / "ray", list[int]()
    shards = staged(output, marked())
    mark = tmp_path / "mark"
    encode_shards(output, shards, CONFIG.encoder, advanced.append, workers=2, opener=lambda _: Killed(mark))
    assert mark.exists()
    assert sum(advanced) == sum(len(narration.segments) for narration in marked())
    build_corpus(marked(), output, CONFIG, encoder=Stopped(64))
    assert digest(output) == digest(whole)


def test_a_shard_that_fails_is_told_in_a_sentence_and_finished_shards_stay(tmp_path: Path) -> None:
    output, advanced = tmp_path / "ray", list[int]()
    shards = staged(output, marked())
    with pytest.raises(
        ComputeError, match=r"^the encoder gave a vector that is not finite; the shard was not written\.$"
    ):
        encode_shards(output, shards, CONFIG.encoder, advanced.append, workers=1, opener=lambda _: Broken(64))
    finished = sorted(path.name for path in (output / "shards").iterdir() if not path.name.startswith("."))
    assert finished[:2] == ["00000", "00001"]
    assert "00002" not in finished
    build_corpus(marked(), output, CONFIG, engine="ray")
    assert digest(output) == digest(build_corpus(marked(), tmp_path / "whole", CONFIG))


@pytest.mark.slow
def test_another_model_on_a_machine_and_a_shard_that_kills_are_refused(tmp_path: Path) -> None:
    output = tmp_path / "ray"
    shards = staged(output, narrations(4))
    with pytest.raises(EncoderMismatch, match="name 'hash:64', not 'hash:12'"):
        encode_shards(output, shards, CONFIG.encoder, [].append, opener=lambda _: HashEncoder(12))
    with pytest.raises(ComputeError, match="shards/00000: all 2 processes"):
        encode_shards(output, shards, CONFIG.encoder, [].append, workers=1, retries=1, opener=lambda _: Killed(None))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.integers(1, 8))
def test_shards_are_shared_out_as_evenly_as_consecutive_runs_can_be(sizes: list[int], parts: int) -> None:
    runs = balanced(sizes, parts)
    assert [shard for run in runs for shard in run] == list(range(len(sizes)))
    assert len(runs) <= parts
    cuts = (
        [0, *inner, len(sizes)]
        for count in range(parts)
        for inner in itertools.combinations(range(1, len(sizes)), count)
    )
    best = min(max(sum(sizes[a:b]) for a, b in itertools.pairwise(cut)) for cut in cuts)
    assert max(sum(sizes[shard] for shard in run) for run in runs) == best


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven shards of uneven length; every narration is there twice or more, so that scores tie across shards."""
    once = narrations(13)
    long = [Narration("long", tuple(segment for narration in once for segment in narration.segments))]
    return build_corpus([*once, *long, *once], tmp_path_factory.mktemp("corpora") / "c", CONFIG)


def queries(count: int) -> list[NDArray[np.float32]]:
    """Queries of 1 to 4 steps: some are what narrations say, some are random vectors."""
    generator = np.random.default_rng(1)
    said = [[segment.text for segment in narration.segments[:4]] for narration in narrations(count)]
    made = generator.standard_normal((count, 3, 64)).astype(np.float32)
    made /= np.linalg.norm(made, axis=2, keepdims=True)
    return [HashEncoder(64).encode(steps) if i % 2 else made[i] for i, steps in enumerate(said)]


@pytest.mark.parametrize("actors", [1, 4])
def test_actors_find_what_one_index_finds(folder: Path, actors: int) -> None:
    alone = Index.open(folder)
    with ShardedIndex.open(folder, actors, Placement(cpus=0.25)) as index:
        assert [shard for share in index.shares for shard in share] == list(range(7))
        assert len(index.shares) == min(actors, 3)  # no more help: one shard holds half of the segments
        for k in (1, 5, 99):
            together, expected = index.search(queries(12), k), alone.search(queries(12), k)
            assert [found.hits for found in together] == [found.hits for found in expected]
            for found, whole in zip(together, expected, strict=True):
                assert found.certificate.threshold == whole.certificate.threshold
                assert found.certificate.survivors >= len(found.hits)
        assert index.search([], 5) == []
        with pytest.raises(InputError, match="k = 0"):
            index.search(queries(1), 0)


class Killing:
    """An index whose first search kills its process; every search where there is no mark to leave."""

    def __init__(self, index: Index, mark: Path | None) -> None:
        self.index, self.mark = index, mark

    def __len__(self) -> int:
        return len(self.index)

    def search(self, asked: Sequence[NDArray[np.float32]], k: int = 25) -> list[SearchResult]:
        if self.mark is None or not self.mark.exists():
            if self.mark is not None:
                self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.index.search(asked, k)


def killing(mark: Path | None) -> Opener:
    """Opens the last shards so that their search kills."""
    return lambda folder, shards: Killing(Index.open(folder, shards), mark if 6 in shards else folder)


def test_an_actor_that_is_killed_is_started_again_and_asked_again(folder: Path, tmp_path: Path) -> None:
    with ShardedIndex.open(folder, 2, Placement(cpus=0.25), opener=killing(tmp_path / "mark")) as index:
        found = index.search(queries(4), 5)
        assert (tmp_path / "mark").exists()
        assert [one.hits for one in found] == [one.hits for one in Index.open(folder).search(queries(4), 5)]


@pytest.mark.slow
def test_an_actor_that_finds_another_corpus_when_it_is_started_again_is_an_error(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "c")
    with ShardedIndex.open(copy, 2, Placement(cpus=0.25), opener=killing(tmp_path / "mark")) as index:
        shutil.rmtree(copy)
        build_corpus(narrations(27, seed=5), copy, CONFIG)
        with pytest.raises(CorpusError, match="an actor found the corpus"):
            index.search(queries(2), 5)


def test_an_actor_that_keeps_dying_is_an_error_that_names_its_shards(folder: Path) -> None:
    asked = Placement(cpus=0.25, retries=1)
    unsearched = pytest.raises(ComputeError, match=r"shards 0000\d to 00006 .* no result")
    with ShardedIndex.open(folder, 2, asked, opener=killing(None)) as index, unsearched:
        index.search(queries(2), 5)


class Sleeping(Killing):
    """An index that does not answer."""

    def search(self, asked: Sequence[NDArray[np.float32]], k: int = 25) -> list[SearchResult]:
        time.sleep(30)
        return []


@pytest.mark.slow
def test_an_actor_that_does_not_answer_is_an_error(folder: Path) -> None:
    asked = Placement(cpus=0.25, timeout=5)
    unsearched = pytest.raises(ComputeError, match=r"shards 00000 to 00006 .* 5 s")
    with ShardedIndex.open(folder, 1, asked, opener=lambda *_: Sleeping(Index.open(folder), None)) as index, unsearched:
        index.search(queries(1), 5)


def test_corpora_that_cannot_be_searched_whole_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 actors"):
        ShardedIndex.open(folder, 0)
    with pytest.raises(CorpusError, match="opened 54 narrations of 27"):
        ShardedIndex.open(folder, 2, Placement(cpus=0.25), opener=lambda folder, _: Index.open(folder))
    broken = shutil.copytree(folder, tmp_path / "c")
    shutil.rmtree(broken / "shards" / "00002")
    with pytest.raises(CorpusError, match=r"shards/00002: .*damaged"):
        ShardedIndex.open(broken, 2, Placement(cpus=0.25))


def test_a_verifier_takes_a_corpus_on_a_cluster(folder: Path) -> None:
    with ClusterCorpus.open(folder, 2, Placement(cpus=0.25)) as corpus:
        assert len(corpus) == 27
        alone = Corpus.open(folder)
        assert corpus.search(STEPS, 5) == alone.search(STEPS, 5)
        batch = [alone.encoder.encode(steps) for steps in (STEPS, STEPS[:1])]
        assert corpus.search_batch(batch, 3) == [alone.search(STEPS, 3), alone.search(STEPS[:1], 3)]
        scored = [
            Verifier(one).score(history=STEPS[:2], continuations=[STEPS[2:]], goal="goal") for one in (corpus, alone)
        ]
        assert scored[0] == scored[1]
        assert corpus.narration(3) == alone.narration(3)
        np.testing.assert_array_equal(corpus.embeddings(3), alone.embeddings(3))
