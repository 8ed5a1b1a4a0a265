"""Jina v3 on a small checkpoint in its published layout: adapters, pooling, number formats, devices, the hub."""

import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.encoders import Encoder, open_encoder
from recipe.corpus.store import Corpus, summarise
from recipe.errors import ComputeError, ConfigError, MissingExtra, RecipeError
from recipe.types import Narration, Segment

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("sentence_transformers", "transformers", "peft")),
    reason="needs the extras encoder and train",
)
WORDS = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{n}" for n in range(40))]
TEXTS = [f"w{n} w{n + 1}" + f" w{n % 5}" * (n % 7) for n in range(30)]
SPOKEN = [Narration(f"v{n}", (Segment(f"w{n} w3"), Segment(f"w{n} w4 w5"))) for n in range(6)]
ADAPTED = ["word_embeddings", "q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout of jina-embeddings-v3-hf: model and tokenizer, and a folder for each task's adapter."""
    import peft
    import tokenizers
    import torch
    import transformers

    path = tmp_path_factory.mktemp("jina")
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=64, **names)
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    config = transformers.JinaEmbeddingsV3Config(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    transformers.JinaEmbeddingsV3Model(config).save_pretrained(path)
    for task in ("text_matching", "retrieval_query"):
        base = transformers.JinaEmbeddingsV3Model.from_pretrained(path)
        lora = peft.LoraConfig(r=4, lora_alpha=4, target_modules=ADAPTED, init_lora_weights=False)
        peft.get_peft_model(base, lora).save_pretrained(path / task)
    return path


@pytest.fixture(scope="module")
def encoder(checkpoint: Path) -> Encoder:
    return open_encoder(EncoderConfig(name=str(checkpoint), batch_size=4))


def independent_vectors(checkpoint: Path, task: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """By PEFT's own loader, one text at a time: the mean of the last layer, with unit norm."""
    import peft
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    base = transformers.AutoModel.from_pretrained(checkpoint)
    model = peft.PeftModel.from_pretrained(base, checkpoint / task).eval()
    with torch.no_grad():
        rows = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in TEXTS]
    vectors = torch.stack(rows).numpy()
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize(("task", "folder"), [(None, "text_matching"), ("retrieval.query", "retrieval_query")])
def test_vectors_are_the_normalised_means_under_the_adapter_of_the_task(
    checkpoint: Path, task: str | None, folder: str
) -> None:
    encoder = open_encoder(EncoderConfig(name=str(checkpoint), task=task))
    np.testing.assert_allclose(encoder.encode(TEXTS), independent_vectors(checkpoint, folder), atol=2e-6)
    assert encoder.identity["task"] == (task or "text-matching")


def test_a_folder_of_any_name_can_be_the_adapter(checkpoint: Path, tmp_path: Path, encoder: Encoder) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(checkpoint, moved)
    (moved / "text_matching").rename(moved / "mine")
    (moved / "mine").rename(moved / "retrieval_query" / "mine")
    found = open_encoder(EncoderConfig(name=str(moved), task="retrieval_query/mine"))
    np.testing.assert_allclose(found.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)
    with pytest.raises(ConfigError, match="'text-matching'"):
        open_encoder(EncoderConfig(name=str(moved)))
    with pytest.raises(ConfigError, match="'query'"):
        open_encoder(EncoderConfig(name=str(moved), task="query"))  # a prompt that sentence-transformers adds
    (moved / "retrieval_query" / "adapter_model.safetensors").write_bytes(b"damaged")
    with pytest.raises(RecipeError, match="cannot be loaded"):
        open_encoder(EncoderConfig(name=str(moved), task="retrieval.query"))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=24))
def test_rows_follow_their_texts_in_any_order(encoder: Encoder, texts: list[str]) -> None:
    rows = dict(zip(texts, encoder.encode(texts), strict=True))
    for order in (sorted(texts), texts[::-1], list(set(texts))):
        np.testing.assert_array_equal(encoder.encode(order), np.stack([rows[text] for text in order]))


@pytest.mark.usefixtures("native_bfloat16")
@pytest.mark.parametrize(("dtype", "rounding"), [("float32", 2e-6), ("bfloat16", 2e-2)])
def test_neighbours_and_the_number_format_change_a_vector_by_rounding_only(
    checkpoint: Path, encoder: Encoder, dtype: str, rounding: float
) -> None:
    found = open_encoder(EncoderConfig.model_validate({"name": str(checkpoint), "dtype": dtype}))
    together, alone = found.encode(TEXTS), np.concatenate([found.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=rounding)
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, rtol=1e-6)
    assert (encoder.encode(TEXTS) * together).sum(axis=1).min() > 0.999


def test_cut_vectors_are_normalised(checkpoint: Path, encoder: Encoder) -> None:
    exact = encoder.encode(TEXTS)[:, :8]
    cut = open_encoder(EncoderConfig(name=str(checkpoint), dimension=8)).encode(TEXTS)
    np.testing.assert_allclose(cut, exact / np.linalg.norm(exact, axis=1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize(
    ("native_bfloat16", "dtype"), [(True, "bfloat16"), (False, "float32")], indirect=["native_bfloat16"]
)
@pytest.mark.usefixtures("native_bfloat16")
def test_auto_is_bfloat16_where_the_processor_has_it(
    checkpoint: Path, tmp_path: Path, encoder: Encoder, dtype: str
) -> None:
    auto = EncoderConfig(name=str(checkpoint), dtype="auto", device="cpu")
    corpus = Corpus.open(build_corpus(SPOKEN, tmp_path / "corpus", CorpusConfig(encoder=auto)), auto)
    assert corpus.manifest["encoder"]["dtype"] == corpus.encoder_config.dtype == dtype
    assert corpus.encoder.identity == corpus.manifest["encoder"]
    assert "non-commercial" in summarise(corpus)["licence"]
    rounded = np.abs(corpus.encode(TEXTS) - encoder.encode(TEXTS)).max() > 1e-4
    assert rounded == (dtype == "bfloat16")


@pytest.mark.parametrize("native_bfloat16", [False], indirect=True)
@pytest.mark.usefixtures("native_bfloat16")
def test_no_corpus_is_built_in_bfloat16_that_the_processor_emulates(checkpoint: Path, tmp_path: Path) -> None:
    rough = EncoderConfig(name=str(checkpoint), dtype="bfloat16", device="cpu")
    with pytest.raises(ConfigError, match=r"bfloat16.*--dtype float32"):
        build_corpus(SPOKEN, tmp_path / "corpus", CorpusConfig(encoder=rough))
    assert not (tmp_path / "corpus").exists()


def test_a_corpus_in_bfloat16_is_asked_in_it_anywhere_and_a_warning_says_what_it_costs(
    checkpoint: Path,
    tmp_path: Path,
    native_bfloat16: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import torch

    rough = EncoderConfig(name=str(checkpoint), dtype="bfloat16", device="cpu")
    folder = build_corpus(SPOKEN, tmp_path / "corpus", CorpusConfig(encoder=rough))
    before = Corpus.open(folder).encoder.encode(TEXTS)
    assert native_bfloat16
    assert not caplog.records
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    corpus = Corpus.open(folder)
    np.testing.assert_array_equal(corpus.encoder.encode(TEXTS), before)
    assert corpus.encoder.identity == corpus.manifest["encoder"]
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert {"bfloat16", "--dtype"} <= set(record.getMessage().replace(";", " ").split())


def test_a_device_is_no_part_of_the_identity_and_must_be_there(checkpoint: Path, encoder: Encoder) -> None:
    assert open_encoder(EncoderConfig(name=str(checkpoint), device="cpu")).identity == encoder.identity
    with pytest.raises(ConfigError, match=r"'cuda:97'.* cpu"):
        open_encoder(EncoderConfig(name=str(checkpoint), device="cuda:97"))


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "cosine"), [("float32", 0.99999), ("auto", 0.999)])
def test_a_gpu_gives_the_vectors_of_the_processor(
    checkpoint: Path, encoder: Encoder, dtype: str, cosine: float
) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    there = open_encoder(EncoderConfig.model_validate({"name": str(checkpoint), "dtype": dtype, "device": "cuda"}))
    assert there.identity["dtype"] in (("float32",) if dtype == "float32" else ("float32", "bfloat16"))
    assert (there.encode(TEXTS) * encoder.encode(TEXTS)).sum(axis=1).min() > cosine


def test_adapters_without_their_package_name_the_extra(checkpoint: Path, without: Callable[[str], None]) -> None:
    without("peft")
    with pytest.raises(MissingExtra, match=r"the adapter of encoder .*\[encoder\]"):
        open_encoder(EncoderConfig(name=str(checkpoint)))


@pytest.fixture
def hub(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a model that is in the local cache of the hub, which is switched off."""
    import huggingface_hub

    kept = tmp_path / "models--some--jina-embeddings-v3"
    shutil.copytree(checkpoint, kept / "snapshots" / COMMIT)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return "some/jina-embeddings-v3"


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_a_model_of_the_hub_is_recorded_with_its_commit(
    hub: str, encoder: Encoder, tmp_path: Path, revision: str | None
) -> None:
    config = CorpusConfig(encoder=EncoderConfig(name=hub, revision=revision, task="text-matching"))
    corpus = Corpus.open(build_corpus(SPOKEN, tmp_path / "corpus", config), EncoderConfig(name=hub))
    assert corpus.manifest["encoder"]["revision"] == corpus.encoder_config.revision == COMMIT
    assert corpus.manifest["encoder"]["weights"] is None
    np.testing.assert_allclose(corpus.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"revision": "f" * 40}, r"HF_HUB_OFFLINE and its revision 'f{40}' is not in the local cache"),
        ({"name": "some/other"}, r"HF_HUB_OFFLINE and it is not in the local cache"),
        ({"task": "separation"}, r"'separation' in the local cache, and the hub is switched off"),
        ({"name": "./absent"}, "there is no such folder"),
        ({"name": "not a name"}, "Repo id must use"),
        ({"trust_remote_code": True}, "give its revision as a commit"),
        ({"trust_remote_code": True, "revision": "main"}, "give its revision as a commit"),
    ],
)
def test_what_cannot_be_loaded_is_told_in_one_sentence(hub: str, given_: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        open_encoder(EncoderConfig.model_validate({"name": hub} | given_))
    assert "\n" not in str(caught.value)


OWN_CODE = """
from sentence_transformers.base.modules import Transformer


class Tasked(Transformer):
    def forward(self, features, task=None):
        features = super().forward(features)
        features["token_embeddings"] = features["token_embeddings"] * features["token_embeddings"].new_tensor(
            [1.0 if task == "text-matching" and column < 8 else 0.0 for column in range(32)]
        )
        return features
"""


@pytest.fixture
def remote(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The layout of jina-embeddings-v3: a module of its own, which takes the task, and a prompt for each."""
    import transformers

    folder = tmp_path / "remote"
    shutil.copytree(checkpoint, folder, ignore=shutil.ignore_patterns("text_matching", "retrieval_query"))
    config = json.loads((folder / "config.json").read_text()) | {"lora_adaptations": ["text-matching"]}
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "own.Tasked", "kwargs": ["task"]},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    written = {
        "config.json": config,
        "modules.json": modules,
        "config_sentence_transformers.json": {"prompts": {"text-matching": "w1 "}},
        "1_Pooling/config.json": {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True},
    }
    (folder / "1_Pooling").mkdir()
    for name, content in written.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "own.py").write_text(OWN_CODE)
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path / "cache")
    return folder


def test_code_of_a_model_runs_on_request_and_is_told_task_and_prompt(remote: Path) -> None:
    with pytest.raises(RecipeError, match="`trust_remote_code`"):
        open_encoder(EncoderConfig(name=str(remote)))
    found = open_encoder(EncoderConfig(name=str(remote), trust_remote_code=True))
    vectors = found.encode(["w5 w6"])
    assert found.identity["task"] == "text-matching"
    assert np.flatnonzero(vectors[0]).tolist() == list(range(8))
    assert found.encode(["w5 w7"])[0] @ vectors[0] < 0.9999
    (remote / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"text-matching": ""}}))
    bare = open_encoder(EncoderConfig(name=str(remote), trust_remote_code=True))
    np.testing.assert_allclose(bare.encode(["w1 w5 w6"]), vectors, atol=1e-6)
    (remote / "own.py").write_text(OWN_CODE + "\n")
    assert (
        found.identity["weights"]
        != open_encoder(EncoderConfig(name=str(remote), trust_remote_code=True)).identity["weights"]
    )


@pytest.mark.parametrize("scale", ["0.0", "float('nan')", "float('inf')"])
def test_a_vector_that_cannot_be_normalised_is_no_vector(remote: Path, scale: str) -> None:
    (remote / "own.py").write_text(OWN_CODE.replace("else 0.0", f"else {scale}").replace("column < 8", "False"))
    found = open_encoder(EncoderConfig(name=str(remote), trust_remote_code=True))
    with pytest.raises(ComputeError, match="zero or not finite"):
        found.encode(["w1"])


def test_too_little_memory_is_one_sentence(remote: Path) -> None:
    full = "        if len(features['input_ids']) > 1:\n            raise torch.OutOfMemoryError('Tried 20\\nGiB')\n"
    (remote / "own.py").write_text(
        "import torch\n" + OWN_CODE.replace("        features =", f"{full}        features =")
    )
    found = open_encoder(EncoderConfig(name=str(remote), trust_remote_code=True, batch_size=4))
    with pytest.raises(ComputeError, match=r"with 4 texts.*batch_size"):
        found.encode(TEXTS)
