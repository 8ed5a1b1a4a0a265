"""Building a corpus: what is encoded, kept, compared and refused."""

import json
import os
import resource
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.corpus.conftest import digest, narrations, write_narrations

from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus, narration_source
from recipe.corpus.encoders import HashEncoder
from recipe.corpus.store import Corpus
from recipe.data.narrations import ReadingOptions
from recipe.errors import ComputeError, CorpusError, InputError
from recipe.progress import SILENT, Progress
from recipe.types import Narration, Segment

CONFIG = CorpusConfig(encoder=EncoderConfig(name="hash:12"), shard_size=2)


class Counting(HashEncoder):
    """Records what it is asked to encode."""

    def __init__(self, dimension: int = 12) -> None:
        super().__init__(dimension)
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
        self.texts += texts
        return super().encode(texts, progress)


def test_a_build_is_deterministic_and_its_id_names_its_content(tmp_path: Path) -> None:
    first = build_corpus(narrations(5), tmp_path / "a", CONFIG)
    assert digest(first) == digest(build_corpus(iter(narrations(5)), tmp_path / "b", CONFIG))
    other = build_corpus(narrations(5, seed=1), tmp_path / "c", CONFIG)
    assert Corpus.open(first).manifest["id"] != Corpus.open(other).manifest["id"]


def test_equal_texts_are_encoded_once_in_a_shard(tmp_path: Path) -> None:
    once = Narration("a", (Segment("stir"), Segment("boil"), Segment("stir")))
    encoder = Counting()
    corpus = Corpus.open(
        build_corpus([once, Narration("b", (Segment("stir"),))], tmp_path / "c", CONFIG, encoder=encoder)
    )
    assert encoder.texts == ["stir", "boil"]
    np.testing.assert_array_equal(corpus.embeddings(0)[2], corpus.embeddings(1)[0])


def test_changed_input_or_settings_are_refused(tmp_path: Path) -> None:
    given = narrations(6)
    build_corpus(given, tmp_path / "c", CONFIG)
    before = digest(tmp_path / "c")
    swapped = [given[0], given[2], given[1], *given[3:]]
    with pytest.raises(CorpusError, match="shards/00000: "):
        build_corpus(swapped, tmp_path / "c", CONFIG)
    with pytest.raises(CorpusError, match="2 of its own are not given"):
        build_corpus(given[:4], tmp_path / "c", CONFIG)
    with pytest.raises(CorpusError, match=r"it lacks 1, and has 0 in other words; 0 .* `recipe corpus add "):
        build_corpus([*given, Narration("more", (Segment("a"),))], tmp_path / "c", CONFIG)
    with pytest.raises(CorpusError, match="name 'hash:12', not 'hash:8'"):
        build_corpus(given, tmp_path / "c", CorpusConfig(encoder=EncoderConfig(name="hash:8"), shard_size=2))
    with pytest.raises(CorpusError, match="shard_size 2, not 3"):
        build_corpus(given, tmp_path / "c", CorpusConfig(encoder=CONFIG.encoder, shard_size=3))
    assert digest(tmp_path / "c") == before


def test_narrations_that_make_no_corpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no narrations"):
        build_corpus([], tmp_path / "c", CONFIG)
    with pytest.raises(InputError, match="'x' has no segments"):
        build_corpus([*narrations(3), Narration("x", ())], tmp_path / "d", CONFIG)
    with pytest.raises(InputError, match=r"'x'.*Unicode"):
        build_corpus([Narration("x", (Segment("\ud800"),))], tmp_path / "d", CONFIG)
    assert not (tmp_path / "c").exists()
    assert not (tmp_path / "d").exists()
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "notes.txt").write_text("mine")
    with pytest.raises(CorpusError, match="not empty"):
        build_corpus(narrations(1), tmp_path / "e", CONFIG)


def test_an_encoder_that_fails_writes_no_shard(tmp_path: Path) -> None:
    class Broken(HashEncoder):
        def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
            return super().encode(texts, progress) * np.float32("nan")

    with pytest.raises(ComputeError, match="not finite"):
        build_corpus(narrations(2), tmp_path / "c", CONFIG, encoder=Broken(12))
    assert not list((tmp_path / "c" / "shards").glob("*"))


def test_a_second_build_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    def meanwhile() -> list[Narration]:
        with pytest.raises(InputError, match="another process"):
            build_corpus(narrations(1), tmp_path / "c", CONFIG)
        return narrations(1)

    build_corpus((narration for _ in range(1) for narration in meanwhile()), tmp_path / "c", CONFIG)
    assert len(Corpus.open(tmp_path / "c")) == 1


# Files that are known -------------------------------------------------------------------------------------------------


def from_file(file: Path, output: Path, config: CorpusConfig = CONFIG, **more: Any) -> Path:
    stream, origin = narration_source([file], ReadingOptions())
    return build_corpus(stream, output, config, origin=origin, **more)


def test_unchanged_files_are_not_read_again(tmp_path: Path, narration_file: Path) -> None:
    """One that only looks unchanged, by its size and its times, is not noticed."""
    output = from_file(narration_file, tmp_path / "c")
    before, status = digest(output), narration_file.stat()
    narration_file.write_bytes(b"?" * status.st_size)
    os.utime(narration_file, ns=(status.st_atime_ns, status.st_mtime_ns))
    from_file(narration_file, output)
    assert digest(output) == before


def test_files_that_have_moved_or_been_touched_are_compared_by_content(tmp_path: Path, narration_file: Path) -> None:
    output = from_file(narration_file, tmp_path / "c")
    (tmp_path / "elsewhere").mkdir()
    moved = narration_file.rename(tmp_path / "elsewhere" / narration_file.name)
    before = digest(output)
    from_file(moved, output, encoder=Counting())
    after = digest(output)
    assert json.loads(after.pop("inputs.json"))["files"][0]["path"] == str(moved)
    del before["inputs.json"]
    assert after == before


def test_changed_files_are_refused_and_others_that_say_the_same_are_not(tmp_path: Path, narration_file: Path) -> None:
    output = from_file(narration_file, tmp_path / "c")
    before = digest(output)
    narration_file.write_text(narration_file.read_text() + "\n")
    from_file(narration_file, output)
    assert digest(output).keys() == before.keys()
    assert digest(output)["manifest.json"] == before["manifest.json"]
    write_narrations(narration_file, narrations(13))
    with pytest.raises(CorpusError, match="it lacks 1, and has 0 in other words"):
        from_file(narration_file, output)


def test_a_setting_that_is_no_longer_given_makes_another_build(tmp_path: Path, narration_file: Path) -> None:
    (tmp_path / "titles.csv").write_text("video_id,title\nv0,make tea\n")
    stream, origin = narration_source([narration_file], ReadingOptions(), titles=tmp_path / "titles.csv")
    output = build_corpus(stream, tmp_path / "c", CONFIG, origin=origin)
    before = digest(output)
    with pytest.raises(CorpusError, match="titles '"):
        from_file(narration_file, output)
    assert digest(output) == before


def test_a_deleted_shard_is_made_again_and_only_it(tmp_path: Path, narration_file: Path) -> None:
    output = from_file(narration_file, tmp_path / "c")
    before = digest(output)
    shutil.rmtree(output / "shards" / "00002")
    encoder = Counting()
    from_file(narration_file, output, encoder=encoder)
    assert digest(output) == before
    assert set(encoder.texts) == {segment.text for made in narrations(12)[4:6] for segment in made.segments}


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, narration_file: Path) -> None:
    stream, origin = narration_source([narration_file], ReadingOptions())

    def changing() -> Iterator[Narration]:
        yield from stream
        narration_file.write_text(narration_file.read_text() + "\n")

    with pytest.raises(InputError, match="changed while it was read"):
        build_corpus(changing(), tmp_path / "c", CONFIG, origin=origin)
    assert not (tmp_path / "c").exists()
    from_file(narration_file, tmp_path / "c")


# Limits ---------------------------------------------------------------------------------------------------------------


def test_a_shard_is_closed_before_it_outgrows_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recipe.corpus.build.SHARD_SEGMENTS", 10)
    given = [Narration(f"v{n}", (Segment("chop"),) * n) for n in (4, 6, 1, 25, 3, 3)]
    config = CorpusConfig(encoder=CONFIG.encoder, shard_size=100)
    corpus = Corpus.open(build_corpus(given, tmp_path / "c", config))
    assert [shard["segments"] for shard in corpus.manifest["shards"]] == [10, 1, 25, 6]
    assert [corpus.narration(n) for n in range(6)] == given


def test_texts_are_encoded_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = build_corpus(narrations(12), tmp_path / "whole", CONFIG)
    monkeypatch.setattr("recipe.corpus.encode.TEXTS_AT_ONCE", 2)
    assert digest(build_corpus(narrations(12), tmp_path / "parts", CONFIG)) == digest(whole)


@pytest.mark.parametrize("room", [100, 5_000], ids=["while it is staged", "while it is encoded"])
def test_a_disk_that_fills_up(tmp_path: Path, narration_file: Path, room: int) -> None:
    """A limit on the size of a file stands for the end of the disk: tables of a shard take less, its vectors more."""
    config = CorpusConfig(encoder=EncoderConfig(name="hash:2048"), shard_size=4)
    whole = from_file(narration_file, tmp_path / "whole", config)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as raised:
            from_file(narration_file, tmp_path / "c", config)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ".partial" not in str(raised.value.filename)
    assert str(raised.value.filename).startswith(str(tmp_path / "c"))
    assert not list(tmp_path.rglob("*.partial"))
    assert digest(from_file(narration_file, tmp_path / "c", config)) == digest(whole)


# A corpus in place of files -------------------------------------------------------------------------------------------


def test_a_corpus_is_encoded_anew_with_all_that_it_records(tmp_path: Path, narration_file: Path) -> None:
    from recipe.corpus.excluded import read_exclusions

    (tmp_path / "ids.txt").write_text("v3\n")
    exclusions = read_exclusions([tmp_path / "ids.txt"])
    stream, origin = narration_source([narration_file], ReadingOptions(), exclusions=exclusions)
    first = Corpus.open(build_corpus(stream, tmp_path / "first", CONFIG, origin=origin))
    other = CorpusConfig(encoder=EncoderConfig(name="hash:16"), shard_size=5)
    again = Corpus.open(from_file(first.folder, tmp_path / "again", other))
    assert [again.narration(n) for n in range(len(again))] == [first.narration(n) for n in range(len(first))]
    for part in ("reading", "read", "exclusions", "segments", "timed"):
        assert again.manifest[part] == first.manifest[part]
    assert again.manifest["encoder"]["name"] == "hash:16"
    # With the encoder and shards of the first, it is the first again; and a second build reads nothing.
    same = Corpus.open(from_file(again.folder, tmp_path / "same"))
    assert same.manifest["id"] == first.manifest["id"]
    before = digest(same.folder)
    from_file(again.folder, same.folder)
    assert digest(same.folder) == before


def test_a_corpus_of_python_is_encoded_anew(tmp_path: Path) -> None:
    first = build_corpus(narrations(5), tmp_path / "first", CONFIG)
    again = from_file(first, tmp_path / "again", CorpusConfig(encoder=EncoderConfig(name="hash:16")))
    assert Corpus.open(again).manifest["reading"] is None


def test_a_corpus_stands_alone_as_a_source(tmp_path: Path, narration_file: Path) -> None:
    first = build_corpus(narrations(5), tmp_path / "first", CONFIG)
    for files, options in (([first, narration_file], ReadingOptions()), ([first], ReadingOptions(bad="skip"))):
        with pytest.raises(InputError, match="encoded anew as it is"):
            narration_source(files, options)
