"""A corpus that grows: after any changes it answers as one that was built from nothing of the same narrations."""

import errno
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.corpus.conftest import digest, narrations, rewrite_manifest
from tests.corpus.test_build import Counting

from recipe.artifacts import locked
from recipe.config import CorpusConfig, EncoderConfig, GroundedConfig, RewardConfig
from recipe.corpus import change
from recipe.corpus.build import build_corpus, narration_source
from recipe.corpus.change import (
    add_narrations,
    add_to,
    compact_corpus,
    ids_of,
    remove_from,
    remove_narrations,
    source_for,
)
from recipe.corpus.encoders import HashEncoder
from recipe.corpus.excluded import ExcludedVideo
from recipe.corpus.index import Index, SearchResult
from recipe.corpus.layout import open_manifest
from recipe.corpus.leaks import Exclusions, leakage
from recipe.corpus.store import Corpus
from recipe.corpus.verify import verify_corpus
from recipe.data.narrations import ReadingOptions
from recipe.errors import CorpusError, EncoderMismatch, InputError, MissingExtra
from recipe.progress import SILENT, Progress
from recipe.reward.verifier import Verifier
from recipe.types import Narration

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


@pytest.mark.thorough
@settings(max_examples=25, deadline=None, phases=[Phase.generate])  # a case takes too long to be made smaller
@given(actions=ACTIONS, percent=st.sampled_from([1, 60, 100]), small=st.sampled_from([2, 16]))
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
        # What actors of a cluster do, each with some of the shards: narrations keep their numbers in the corpus.
        shards = range(len(opened.manifest["shards"]))
        parts = [Index.open(corpus, numbers) for numbers in (shards[::2], shards[1::2]) if numbers]
        query = opened.encode(QUERY)
        merged = SearchResult.merged([part.search([query], 5)[0] for part in parts], 5)
        assert merged.hits == wanted.search(QUERY, 5)
        assert verify_corpus(opened, sample=30).sampled == 30 or opened.manifest["segments"] < 30
        del opened, streamed
        compact_corpus(corpus)
        require_same(Corpus.open(corpus), wanted)
    shutil.rmtree(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus of twelve narrations in two shards."""
    return build_corpus(POOL[:12], tmp_path / "c", CONFIG)


@pytest.fixture
def encodes(monkeypatch: pytest.MonkeyPatch) -> Callable[[HashEncoder | None], None]:
    """Says what encodes the texts that come; None where nothing may."""

    def with_encoder(encoder: HashEncoder | None) -> None:
        def opened(*_: object) -> HashEncoder:
            assert encoder is not None, "an encoder was loaded"
            return encoder

        monkeypatch.setattr(change, "open_recorded_encoder", opened)

    return with_encoder


def test_only_new_texts_are_encoded(folder: Path, encodes: Callable[[HashEncoder | None], None]) -> None:
    encodes(None)
    before = digest(folder)
    assert add_narrations(folder, POOL[3:9]).equal == 6
    assert add_narrations(folder, [replace(POOL[3], source="another")]).equal == 1
    assert digest(folder) == before
    assert add_narrations(folder, [replace(POOL[3], title="retitled")]).encoded == 0
    assert Corpus.open(folder).narration(11).title == "retitled"
    longest = max(POOL[:12], key=lambda narration: len(narration.segments))
    shorter = replace(longest, segments=longest.segments[:1])
    assert add_narrations(folder, [shorter]).replaced == 1

    encoder = Counting()
    encodes(encoder)
    done = add_narrations(folder, [reworded(longest, "a text of its own")])
    first, *others = dict.fromkeys(segment.text for segment in longest.segments)
    assert encoder.texts == [text for text in others if text != first] + ["a text of its own"]
    assert (done.replaced, done.encoded) == (1, len(encoder.texts))


def test_shards_are_not_rewritten(folder: Path) -> None:
    before = digest(folder / "shards")
    assert add_narrations(folder, POOL[12:15]).added == 3
    after = digest(folder / "shards")
    assert {name: after[name] for name in before} == before
    assert open_manifest(folder)["format"] == 3  # what came is readable by versions that know no changes
    assert [shard["name"] for shard in open_manifest(folder)["shards"]] == ["00000", "00001", "00002"]


def test_a_removed_narration_leaves_the_disk_when_its_shard_is_compacted(
    tmp_path: Path, compacted_above: Callable[[int], None]
) -> None:
    compacted_above(5)
    many = narrations(60)
    corpus = build_corpus(many, tmp_path / "c", CorpusConfig(encoder=CONFIG.encoder, shard_size=30))
    before = digest(corpus / "shards")
    assert remove_narrations(corpus, ["v3"]).compacted == 0
    assert digest(corpus / "shards") == before
    manifest = open_manifest(corpus)
    assert (manifest["format"], manifest["shards"][0]["removed"]["rows"], manifest["narrations"]) == (4, [3], 59)
    assert remove_narrations(corpus, ["v3"]).id == manifest["id"]  # the command may be run again
    assert remove_narrations(corpus, ["v4", "v40"]).compacted == 1  # over 5 % of the first shard
    assert [shard["name"] for shard in open_manifest(corpus)["shards"]] == ["00002", "00001"]
    assert compact_corpus(corpus).compacted == 1
    assert compact_corpus(corpus).compacted == 0
    opened = Corpus.open(corpus)
    assert list(opened.video_ids) == [f"v{n}" for n in range(60) if n not in (3, 4, 40)]
    with pytest.raises(InputError, match="no narration is of video 'v40'"):
        opened.narration("v40")
    assert [entry["removed"] for entry in (opened.manifest["read"] or {})["changes"]] == [["v3"], ["v4", "v40"]]


@pytest.fixture
def over_nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """There an exclusive lock of a file needs one that is open for writing: flock(2)."""
    lock = fcntl.flock

    def strict(descriptor: int, operation: int) -> None:
        read_only = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        if operation & fcntl.LOCK_EX and read_only and not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", strict)


@pytest.mark.usefixtures("over_nfs")
@pytest.mark.parametrize("streamed", [False, True])
def test_a_corpus_that_is_open_stays_what_it_was(folder: Path, streamed: bool) -> None:
    held = Corpus(Index.open(folder, streamed=streamed), CONFIG.encoder)
    hits = held.search(QUERY, 12)
    remove_narrations(folder, ["v1", "v2", "v9"])
    assert (folder / "earlier" / f"{held.manifest['id']}.json").is_file()
    add_narrations(folder, POOL[20:22])
    assert held.search(QUERY, 12) == hits
    assert [held.narration(n) for n in range(12)] == POOL[:12]
    np.testing.assert_array_equal(
        held.embeddings(1), Corpus.open(folder).encoder.encode([s.text for s in POOL[1].segments]).astype(np.float16)
    )
    assert len(Corpus.open(folder)) == 11
    del held, hits
    compact_corpus(folder)
    assert not (folder / "earlier").exists()
    assert {path.name for path in (folder / "shards").iterdir()} == {s["name"] for s in open_manifest(folder)["shards"]}


def test_a_corpus_that_is_compared_with_excluded_videos_stays_what_it_was(folder: Path) -> None:
    class Meanwhile:
        @contextmanager
        def task(self, *_: object) -> Iterator[Callable[[int], None]]:
            remove_narrations(folder, [narration.video_id for narration in POOL[8:12]])  # a shard that is not read yet
            yield lambda _: None

    exclusions = Exclusions(["v9"], [])
    assert leakage(folder, exclusions, Meanwhile()).videos == ("v9",)
    assert leakage(folder, exclusions).videos == ()


def test_files_beside_one_with_the_name_of_a_manifest_are_read_as_the_corpus_was(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nboil (laughs) it\n")
        (tmp_path / name / "manifest.json").write_text("{}")
    stream, origin = narration_source([tmp_path / "a"], ReadingOptions(marks="keep"))
    corpus = build_corpus(stream, tmp_path / "c", CONFIG, origin=origin)
    stream, origin = source_for(corpus, [tmp_path / "b"])
    add_narrations(corpus, stream, origin=origin)
    assert {narration.segments[0].text for narration in Corpus.open(corpus).narrations([0, 1])} == {"boil (laughs) it"}


def test_what_cannot_be_changed_is_refused_and_nothing_is_lost(folder: Path, tmp_path: Path) -> None:
    before = digest(folder)
    with pytest.raises(InputError, match="'v12' is given twice"):
        add_narrations(folder, [POOL[12], POOL[13], POOL[12]])
    with pytest.raises(InputError, match="'x' has no segments"):
        add_narrations(folder, [POOL[12], Narration("x", ())])
    with pytest.raises(EncoderMismatch, match="name 'hash:12', not 'hash:13'"):
        add_narrations(folder, POOL[12:13], encoder=EncoderConfig(name="hash:13"))
    with pytest.raises(InputError, match=r"'v1x'; did you mean 'v1'"):
        remove_narrations(folder, ["v1x", "v2"])
    with pytest.raises(InputError, match=r"of the videos a, b; nothing was removed"):
        remove_narrations(folder, ["a", "b", "v2"])
    with pytest.raises(InputError, match="no narration would be left"):
        remove_narrations(folder, [narration.video_id for narration in POOL[:12]])
    with locked(folder), pytest.raises(InputError, match="another process is at work"):
        compact_corpus(folder)
    for act in (lambda at: add_narrations(at, POOL[:1]), lambda at: remove_narrations(at, ["v1"]), compact_corpus):
        with pytest.raises(CorpusError, match="no corpus here"):
            act(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    assert digest(folder) == before
    (folder / "manifest.json").write_text(json.dumps({"format": 2}))
    with pytest.raises(CorpusError, match=r"format 2 .* 3 and 4; build the corpus again"):
        add_narrations(folder, POOL[12:13])


@pytest.mark.skipif(os.geteuid() == 0, reason="for root no folder is read-only")
def test_a_read_only_folder_is_told_before_anything_is_encoded(folder: Path) -> None:
    folder.chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            add_narrations(folder, POOL[12:13])
    finally:
        folder.chmod(0o700)


def test_damaged_records_of_removed_narrations_are_refused(
    tmp_path: Path, compacted_above: Callable[[int], None]
) -> None:
    compacted_above(5)
    corpus = build_corpus(narrations(60), tmp_path / "c", CorpusConfig(encoder=CONFIG.encoder, shard_size=60))
    remove_narrations(corpus, ["v3"])
    manifest = json.loads((corpus / "manifest.json").read_text())
    for rows in ([60], [-1], [3, 3], [4, 3], list(range(60))):
        manifest["shards"][0]["removed"]["rows"] = rows
        rewrite_manifest(corpus, **manifest)
        with pytest.raises(CorpusError, match="does not hold the narrations that were removed"):
            Corpus.open(corpus)


def test_what_is_added_passes_the_exclusions_of_the_build(tmp_path: Path) -> None:
    text = "one two three four five six seven eight nine"
    exclusions = Exclusions(["v14"], [text], [ExcludedVideo("test", "v14", (text,))])
    stream, origin = change.exclude(POOL[:12], exclusions)
    corpus = build_corpus(stream, tmp_path / "c", CONFIG, origin=origin)
    with pytest.raises(CorpusError, match=r"1 videos and near-copies of 1 texts were kept out .* --exclude"):
        add_narrations(corpus, POOL[12:16])
    stream, origin = change.exclude(POOL[12:16], Exclusions(["v15"], []))
    with pytest.raises(CorpusError, match="other videos or texts were kept out"):
        add_narrations(corpus, stream, origin=origin)
    opened = add_to(Corpus.open(corpus), [*POOL[12:16], reworded(POOL[3], text)], exclusions=exclusions)
    assert list(opened.video_ids)[12:] == ["v12", "v13", "v15"]
    assert opened.narration("v3") == POOL[3]  # the near-copy is not in it, and the rest is what was there
    [entry] = (opened.manifest["read"] or {})["changes"]
    assert (entry["added"], entry["read"]["narrations_by_id"], entry["read"]["captions_by_text"]) == (3, 1, 1)
    stream, origin = change.exclude(POOL[20:22], exclusions)
    other_corpus = build_corpus(stream, tmp_path / "other", CONFIG, origin=origin)
    both, of_both = source_for(corpus, [other_corpus])  # of which the same was kept out
    assert add_narrations(corpus, both, origin=of_both).added == 2
    plain = build_corpus(POOL[:3], tmp_path / "plain", CONFIG)
    with pytest.raises(CorpusError, match="nothing was kept out when this corpus was built"):
        add_to(Corpus.open(plain), POOL[12:16], exclusions=exclusions)


def test_a_build_into_a_corpus_of_others_names_what_it_lacks_before_an_encoder_is_loaded(folder: Path) -> None:
    absent = CorpusConfig(encoder=EncoderConfig(name="./absent"), shard_size=CONFIG.shard_size)
    with pytest.raises(CorpusError, match=r"it lacks 3, and has 1 in other words; 1 of its own .*`recipe corpus add "):
        build_corpus([*POOL[:8], *POOL[9:11], reworded(POOL[11]), *POOL[12:15]], folder, absent)
    add_narrations(folder, POOL[12:15])
    after = digest(folder)
    assert build_corpus(POOL[:15], folder, CONFIG) == folder  # it holds them all
    assert digest(folder) == after
    with pytest.raises(CorpusError, match="it lacks 1, "):
        build_corpus(POOL[:16], folder, CONFIG)
    with pytest.raises(EncoderMismatch):
        build_corpus(POOL[:15], folder, CorpusConfig(encoder=EncoderConfig(name="hash:13"), shard_size=8))
    shutil.rmtree(folder / "shards" / "00002")
    with pytest.raises(CorpusError, match="no build makes it again"):
        build_corpus(POOL[:15], folder, CONFIG)


def test_an_interrupted_change_goes_on_with_what_it_has_encoded(
    folder: Path, encodes: Callable[[HashEncoder | None], None]
) -> None:
    class Failing(Counting):
        def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
            if self.texts:
                raise OSError("gone")
            return super().encode(texts, progress)

    before = digest(folder)
    encodes(Failing())
    with pytest.raises(OSError, match="gone"):
        add_narrations(folder, POOL[12:30])
    assert {name: content for name, content in digest(folder).items() if not name.startswith(".change")} == before
    encoder = Counting()
    encodes(encoder)
    add_narrations(folder, POOL[12:30])
    assert set(encoder.texts) == {segment.text for narration in POOL[20:30] for segment in narration.segments}
    require_same(Corpus.open(folder), Corpus.open(build_corpus(POOL[:30], folder.parent / "w", CONFIG)))


def test_lists_of_ids_and_another_corpus(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("v1\nv2\n")
    assert ids_of(["v5", str(tmp_path / "ids.txt"), "no.txt"]) == ["v5", "v1", "v2", "no.txt"]
    other = build_corpus(POOL[10:14], tmp_path / "other", CONFIG)
    narrations_of, origin = source_for(folder, [other])
    assert add_narrations(folder, narrations_of, origin=origin)[3:6] == (2, 0, 2)


def test_from_python(folder: Path) -> None:
    pandas = pytest.importorskip("pandas")
    corpus = Corpus.open(folder)
    _ = corpus.encoder
    grown = add_to(corpus, [*POOL[12:14], reworded(POOL[0])])
    assert (len(corpus), len(grown)) == (12, 14)
    assert grown.encoder is corpus.encoder
    smaller = remove_from(grown, ["v2"])
    np.testing.assert_array_equal(smaller.encode(QUERY), corpus.encoder.encode(QUERY))
    table = smaller.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    rows = [
        (n, narration.video_id, narration.title, narration.source, k, segment.start, segment.text)
        for n, narration in enumerate(smaller.narrations(range(13)))
        for k, segment in enumerate(narration.segments)
    ]
    columns = ["narration", "video_id", "title", "source", "segment", "start", "text"]
    found = table[columns].astype(object).where(table[columns].notna(), None)
    assert list(found.itertuples(index=False, name=None)) == rows
    hits = smaller.search(QUERY, 3)
    assert [narration.video_id for narration in hits.narrations] == [row["video_id"] for row in hits.rows()]
    assert [match["step"] for match in hits.rows()[0]["matches"]] == QUERY
    assert hits.rows()[0]["score"] == hits[0].score
    with pytest.raises(InputError, match="a list of texts, not one text"):
        smaller.encode("boil")


def test_tables_need_pandas(folder: Path, without: Callable[[str], None]) -> None:
    without("pandas")
    with pytest.raises(MissingExtra, match="pip install pandas"):
        Corpus.open(folder).to_pandas()


@pytest.mark.usefixtures("as_large")
def test_what_was_verified_before_a_change_still_is_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    """As of a large corpus, whose vectors are not hashed at every opening."""
    Corpus.open(folder).verify()
    add_narrations(folder, POOL[12:14])
    assert Index.open(folder).verified
    path = folder / "shards" / "00000" / "embeddings.npy"
    path.write_bytes(path.read_bytes())  # by somebody else, maybe with other content
    add_narrations(folder, POOL[14:16])
    assert [shard.verified for shard in Index.open(folder).shards] == [False, True, True, True]
    Corpus.open(folder).verify()
    assert Index.open(folder).verified
