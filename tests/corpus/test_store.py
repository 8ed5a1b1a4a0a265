"""A corpus on disk: what is written is read back, a killed build ends byte-identical, damage is named."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.encoders import HashEncoder
from recipe.corpus.store import Corpus
from recipe.data.narrations import read_narrations
from recipe.errors import ComputeError, CorpusError, EncoderMismatch, InputError
from recipe.progress import SILENT, Progress
from recipe.types import Narration, Segment

CONFIG = CorpusConfig(encoder=EncoderConfig(name="hash:12"), shard_size=2)
WORDS = ["chop", "fry", "pour", "boil", "stir", "salt", "onion", "pan", "water", "kettle"]


def narrations(count: int, seed: int = 0) -> list[Narration]:
    """Narrations of 1 to 5 segments, every other one with times."""
    generator = np.random.default_rng(seed)
    made = []
    for number in range(count):
        texts = [" ".join(generator.choice(WORDS, size=3)) for _ in range(generator.integers(1, 6))]
        times = [(2.0 * k, 2.0 * k + 1.5) if number % 2 else (None, None) for k in range(len(texts))]
        segments = tuple(Segment(text, *span) for text, span in zip(texts, times, strict=True))
        made.append(Narration(f"v{number}", segments, title=f"t{number}" if number % 3 else None, source="made"))
    return made


def digest(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


class Counting(HashEncoder):
    """Records what it is asked to encode."""

    def __init__(self, dimension: int = 12) -> None:
        super().__init__(dimension)
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
        self.texts += texts
        return super().encode(texts, progress)


def test_round_trip(tmp_path: Path) -> None:
    given = narrations(7)
    corpus = Corpus.open(build_corpus(given, tmp_path / "c", CONFIG))
    assert len(corpus) == 7
    assert [corpus.narration(i) for i in range(7)] == given
    encoder = HashEncoder(12)
    for i, narration in enumerate(given):
        expected = encoder.encode([segment.text for segment in narration.segments])
        assert corpus.embeddings(i).dtype == np.float32
        np.testing.assert_array_equal(corpus.embeddings(i), expected.astype(np.float16).astype(np.float32))
        assert corpus.offsets[i + 1] - corpus.offsets[i] == len(narration.segments)
    np.testing.assert_array_equal(corpus.encoder.encode(["boil"]), encoder.encode(["boil"]))
    with pytest.raises(IndexError):
        corpus.narration(7)
    with pytest.raises(IndexError):
        corpus.embeddings(-1)
    corpus.verify()


def test_the_folder_opens_with_numpy_and_pyarrow_alone(tmp_path: Path) -> None:
    build_corpus(narrations(3), tmp_path / "c", CONFIG)
    shard = tmp_path / "c" / "shards" / "00001"
    vectors = np.load(shard / "embeddings.npy")
    (row,) = pq.read_table(shard / "narrations.parquet").to_pylist()
    segments = pq.read_table(shard / "segments.parquet")
    assert vectors.dtype == np.float16
    assert row == {
        "video_id": "v2",
        "title": "t2",
        "source": "made",
        "first_segment": 0,
        "segments": len(vectors),
    }
    assert segments.column_names == ["narration", "start", "end", "text"]
    assert segments["start"].null_count == len(vectors) == len(segments)
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    assert (manifest["narrations"], manifest["timed"], len(manifest["shards"])) == (3, 1, 2)


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


def test_a_build_again_keeps_every_shard(tmp_path: Path) -> None:
    build_corpus(narrations(5), tmp_path / "c", CONFIG)
    before, encoder = digest(tmp_path / "c"), Counting()
    build_corpus(narrations(5), tmp_path / "c", CONFIG, encoder=encoder)
    assert encoder.texts == []
    assert digest(tmp_path / "c") == before


def test_progress_reaches_its_total_with_repeated_texts_and_kept_shards(tmp_path: Path) -> None:
    given = [*narrations(4), Narration("twice", (Segment("stir"), Segment("stir")))]
    total = sum(len(narration.segments) for narration in given)
    counts = Counts()
    build_corpus(given, tmp_path / "c", CONFIG, counts)
    assert (counts.total, counts.done) == (total, total)


class Counts:
    """A progress that adds up."""

    def __init__(self) -> None:
        self.total: int | None = None
        self.done = 0

    def task(self, description: str, total: int | None = None) -> "Counts":
        self.total = total
        return self

    def __enter__(self) -> "Counts":
        return self

    def __exit__(self, *exc: object) -> None: ...

    def __call__(self, n: int) -> None:
        self.done += n


KILLED = """
import sys, time
from pathlib import Path
import test_store as t
class Slow(t.HashEncoder):
    def encode(self, texts, progress=t.SILENT):
        time.sleep(0.1)
        return super().encode(texts, progress)
t.build_corpus(t.narrations(40), Path(sys.argv[1]), t.CONFIG, encoder=Slow(12))
"""


def test_a_killed_build_goes_on_and_ends_byte_identical(tmp_path: Path) -> None:
    whole = build_corpus(narrations(40), tmp_path / "whole", CONFIG)
    output = tmp_path / "killed"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(output)], env=environment)
    shards = output / "shards"
    while len(list(shards.glob("0*"))) < 3:
        assert process.poll() is None, "the build ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = len(list(shards.glob("0*")))
    # What a kill while a shard or the manifest is written leaves.
    (shards / f".{finished:05d}.partial").mkdir(exist_ok=True)
    (output / ".manifest.json.partial").touch()
    assert 3 <= finished < 20
    with pytest.raises(CorpusError, match="not finished; run the same"):
        Corpus.open(output)
    encoder = Counting()
    build_corpus(narrations(40), output, CONFIG, encoder=encoder)
    assert digest(output) == digest(whole)
    left = narrations(40)[2 * finished :]
    assert set(encoder.texts) == {segment.text for narration in left for segment in narration.segments}
    assert not list(shards.glob(".*"))


def test_changed_input_or_settings_are_refused(tmp_path: Path) -> None:
    given = narrations(6)
    build_corpus(given, tmp_path / "c", CONFIG)
    before = digest(tmp_path / "c")
    swapped = [given[0], given[2], given[1], *given[3:]]
    with pytest.raises(CorpusError, match=r"shards/00000: the shard holds other narrations"):
        build_corpus(swapped, tmp_path / "c", CONFIG)
    with pytest.raises(CorpusError, match=r"shards/00002: the input ends before this shard"):
        build_corpus(given[:4], tmp_path / "c", CONFIG)
    with pytest.raises(CorpusError, match="name 'hash:12', not 'hash:8'"):
        build_corpus(given, tmp_path / "c", CorpusConfig(encoder=EncoderConfig(name="hash:8"), shard_size=2))
    with pytest.raises(CorpusError, match="shard_size 2, not 3"):
        build_corpus(given, tmp_path / "c", CorpusConfig(encoder=CONFIG.encoder, shard_size=3))
    assert digest(tmp_path / "c") == before


def test_narrations_that_make_no_corpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are no narrations"):
        build_corpus([], tmp_path / "c", CONFIG)
    with pytest.raises(InputError, match="narration 'x' has no segments"):
        build_corpus([Narration("x", ())], tmp_path / "d", CONFIG)
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "notes.txt").write_text("mine")
    with pytest.raises(CorpusError, match="not empty and holds no corpus"):
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
        with pytest.raises(InputError, match="another process is at work in this folder"):
            build_corpus(narrations(1), tmp_path / "c", CONFIG)
        return narrations(1)

    build_corpus((narration for _ in range(1) for narration in meanwhile()), tmp_path / "c", CONFIG)
    assert len(Corpus.open(tmp_path / "c")) == 1


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (EncoderConfig(name="hash:13"), "name 'hash:12', not 'hash:13'"),
        (EncoderConfig(name="hash:12", dtype="bfloat16"), "dtype 'float32', not 'bfloat16'"),
        (EncoderConfig(name="hash:12", revision="main"), "revision None, not 'main'"),
        (EncoderConfig(name="hash:12", task="query"), "task None, not 'query'"),
        (EncoderConfig(name="hash:12", dimension=6), "dimension 12, not 6"),
    ],
)
def test_another_encoder_is_refused_in_one_sentence(tmp_path: Path, asked: EncoderConfig, message: str) -> None:
    build_corpus(narrations(2), tmp_path / "c", CONFIG)
    with pytest.raises(EncoderMismatch, match=message):
        Corpus.open(tmp_path / "c", asked)
    Corpus.open(tmp_path / "c", EncoderConfig(name="hash:12", batch_size=3))


def test_an_encoder_whose_weights_changed_is_refused(tmp_path: Path) -> None:
    build_corpus(narrations(2), tmp_path / "c", CONFIG)
    path = tmp_path / "c" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["encoder"]["weights"] = "0" * 64
    path.write_text(json.dumps(manifest))
    corpus = Corpus.open(tmp_path / "c")
    with pytest.raises(EncoderMismatch, match="not the one the corpus was built with: weights"):
        _ = corpus.encoder


@pytest.mark.parametrize("name", ["embeddings.npy", "narrations.parquet", "segments.parquet"])
def test_a_truncated_file_is_named_and_its_shard_can_be_made_again(tmp_path: Path, name: str) -> None:
    build_corpus(narrations(5), tmp_path / "c", CONFIG)
    before = digest(tmp_path / "c")
    damaged = tmp_path / "c" / "shards" / "00001" / name
    damaged.write_bytes(damaged.read_bytes()[:-3])
    with pytest.raises(CorpusError, match=rf"shards/00001: the shard is damaged \({name} has .* delete this shard"):
        Corpus.open(tmp_path / "c")
    shutil.rmtree(damaged.parent)
    with pytest.raises(CorpusError, match="is missing"):
        Corpus.open(tmp_path / "c")
    build_corpus(narrations(5), tmp_path / "c", CONFIG)
    assert digest(tmp_path / "c") == before


def test_damage_that_keeps_the_size_is_found_by_verify(tmp_path: Path) -> None:
    build_corpus(narrations(3), tmp_path / "c", CONFIG)
    path = tmp_path / "c" / "shards" / "00000" / "embeddings.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    corpus = Corpus.open(tmp_path / "c")
    with pytest.raises(CorpusError, match=r"embeddings\.npy differs from its checksum"):
        corpus.verify()


def test_folders_without_a_corpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no corpus here \(manifest\.json is missing\)"):
        Corpus.open(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(CorpusError, match="of format 99 where this version of recipe reads 2; install"):
        Corpus.open(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(CorpusError, match="the file is damaged \\(not a JSON object\\)"):
        Corpus.open(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 2}')
    with pytest.raises(CorpusError, match="'encoder' is missing"):
        Corpus.open(tmp_path)


@pytest.mark.real_data
def test_a_corpus_of_real_narrations(tmp_path: Path, shared_data: Path) -> None:
    folder = shared_data / "narrations"
    files = [folder / "narrations_timed.jsonl", folder / "youcook2_asr_untimed.jsonl"]
    given = list(read_narrations(files, "keep-first"))[600:700]
    config = CorpusConfig(encoder=EncoderConfig(name="hash:128"), shard_size=32)
    corpus = Corpus.open(build_corpus(given, tmp_path / "c", config))
    assert (len(corpus), corpus.manifest["timed"]) == (100, 43)
    assert [corpus.narration(i) for i in range(100)] == given
    for i in (0, 50, 99):
        steps = [segment.text for segment in given[i].segments[:8]]
        assert corpus.search(steps, 1)[0].narration == i
