"""A corpus on disk: what is written is read back, and what is no corpus is named."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.corpus.conftest import narrations, rewrite_manifest

from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.encoders import HashEncoder
from recipe.corpus.index import Index
from recipe.corpus.store import Corpus
from recipe.errors import CorpusError, EncoderMismatch

CONFIG = CorpusConfig(encoder=EncoderConfig(name="hash:12"), shard_size=2)


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


@pytest.mark.parametrize("streamed", [False, True])
def test_similarities_are_products_that_depend_on_nothing_beside_them(tmp_path: Path, streamed: bool) -> None:
    """Over shards of two narrations and 12 dimensions, which no tile of the kernel divides, mapped and read."""
    folder = build_corpus(narrations(7), tmp_path / "c", CONFIG)
    corpus = Corpus(Index.open(folder, streamed=streamed), CONFIG.encoder)
    steps = np.random.default_rng(0).normal(size=(6, 12)).astype(np.float32)
    chosen = [6, 0, 3, 2, 0]
    products, offsets = corpus.similarities(chosen, steps)
    vectors = [corpus.embeddings(number) for number in chosen]
    assert offsets.tolist() == np.cumsum([0, *map(len, vectors)]).tolist()
    np.testing.assert_allclose(products, np.concatenate(vectors) @ steps.T, atol=1e-5)
    for place, number in enumerate(chosen):
        for step in range(6):
            alone, _ = corpus.similarities([number], steps[step : step + 1])
            np.testing.assert_array_equal(alone[:, 0], products[offsets[place] : offsets[place + 1], step])
    assert corpus.similarities([], steps)[0].shape == (0, 6)
    for number in (-1, 7):
        with pytest.raises(IndexError):
            corpus.similarities([0, number], steps)


def test_the_folder_opens_with_numpy_and_pyarrow_alone(tmp_path: Path) -> None:
    build_corpus(narrations(3), tmp_path / "c", CONFIG)
    shard = tmp_path / "c" / "shards" / "00001"
    vectors = np.load(shard / "embeddings.npy")
    (row,) = pq.read_table(shard / "narrations.parquet").to_pylist()
    segments = pq.read_table(shard / "segments.parquet")
    assert vectors.dtype == np.float16
    assert row == {"video_id": "v2", "title": "t2", "source": "made", "first_segment": 0, "segments": len(vectors)}
    assert segments.column_names == ["narration", "start", "end", "text"]
    assert segments["start"].null_count == len(vectors) == len(segments)
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    assert (manifest["narrations"], manifest["timed"], len(manifest["shards"])) == (3, 1, 2)


def test_another_encoder_is_refused_in_one_sentence(tmp_path: Path) -> None:
    build_corpus(narrations(2), tmp_path / "c", CONFIG)
    for config, message in (
        (EncoderConfig(name="hash:13"), "name 'hash:12', not 'hash:13'"),
        (EncoderConfig(name="hash:12", dtype="bfloat16"), "dtype 'float32', not 'bfloat16'"),
        (EncoderConfig(name="hash:12", revision="main"), "revision None, not 'main'"),
        (EncoderConfig(name="hash:12", task="query"), "task None, not 'query'"),
        (EncoderConfig(name="hash:12", dimension=6), "dimension 12, not 6"),
    ):
        with pytest.raises(EncoderMismatch, match=message):
            Corpus.open(tmp_path / "c", config)
    Corpus.open(tmp_path / "c", EncoderConfig(name="hash:12", batch_size=3))


def test_an_encoder_whose_weights_changed_is_refused(tmp_path: Path) -> None:
    build_corpus(narrations(2), tmp_path / "c", CONFIG)
    rewrite_manifest(tmp_path / "c", encoder={**HashEncoder(12).identity, "weights": "0" * 64})
    corpus = Corpus.open(tmp_path / "c")
    with pytest.raises(EncoderMismatch, match="weights"):
        _ = corpus.encoder


def test_folders_without_a_corpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"manifest\.json"):
        Corpus.open(tmp_path)
    for version in (2, 99, None):
        (tmp_path / "manifest.json").write_text(json.dumps({"format": version}))
        with pytest.raises(CorpusError, match=rf"manifest\.json: .*format {version} .* 3 and 4;"):
            Corpus.open(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(CorpusError, match="JSON object"):
        Corpus.open(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 3}')
    with pytest.raises(CorpusError, match="'encoder' is missing"):
        Corpus.open(tmp_path)
