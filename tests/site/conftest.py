"""Stand-ins of the published checkpoints, in a local cache of the hub, with all that a person has beside them.

Names, ids, settings and layout are the published ones, and the chat templates write the same text. Only layers, widths
and merges are few, and the weights are random. The models resolve by their ids with HF_HUB_OFFLINE=1, as on a machine
that has downloaded them once.
"""

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MERGES = [
    "t h", "th e", "Ġ the", "i n", "a n", "o n", "Ġ a", "Ġ s", "e r", "Ġ c", "Ġ p", "in g", "Ġ w", "o u", "Ġ t", "Ġ b"
]  # fmt: skip
QWEN = {
    151643: "<|endoftext|>", 151644: "<|im_start|>", 151645: "<|im_end|>", 151646: "<|object_ref_start|>",
    151647: "<|object_ref_end|>", 151648: "<|box_start|>", 151649: "<|box_end|>", 151650: "<|quad_start|>",
    151651: "<|quad_end|>", 151652: "<|vision_start|>", 151653: "<|vision_end|>", 151654: "<|vision_pad|>",
    151655: "<|image_pad|>", 151656: "<|video_pad|>", 151657: "<tool_call>", 151658: "</tool_call>",
    151659: "<|fim_prefix|>", 151660: "<|fim_middle|>", 151661: "<|fim_suffix|>", 151662: "<|fim_pad|>",
    151663: "<|repo_name|>", 151664: "<|file_sep|>",
}  # fmt: skip
"""The added tokens of Qwen2.5 by their ids; from 151657 on they are not special."""
SIZES = {  # vocabulary, tied embeddings, window, layers without a window, repetition penalty
    "0.5B": (151936, True, 32768, 21, 1.1),
    "3B": (151936, True, 32768, 70, 1.05),
    "7B": (152064, False, 131072, 28, 1.05),
}
LLAMA = {
    128000: "<|begin_of_text|>", 128001: "<|end_of_text|>", 128004: "<|finetune_right_pad_id|>",
    128006: "<|start_header_id|>", 128007: "<|end_header_id|>", 128008: "<|eom_id|>", 128009: "<|eot_id|>",
    128010: "<|python_tag|>",
}  # fmt: skip
NARROW = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1}
TURNS = """{%- if messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- else %}{{ '<|im_start|>system\\nDEFAULT<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}{%- if not (loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""
INSTRUCT = TURNS.replace("DEFAULT", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")
BASE = TURNS.replace("DEFAULT", "You are a helpful assistant.")
SEEING = """{%- for message in messages %}{%- if loop.first and message.role != 'system' %}
{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content is string %}{{ message.content }}{%- else %}{%- for part in message.content %}
{%- if part.type == 'image' or 'image' in part %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif part.type == 'video' or 'video' in part %}{{ '<|vision_start|><|video_pad|><|vision_end|>' }}
{%- elif 'text' in part %}{{ part.text }}{%- endif %}{%- endfor %}{%- endif %}{{ '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""
LLAMA_TURNS = """{{- bos_token }}{%- if strftime_now is defined %}{%- set today = strftime_now('%d %b %Y') %}
{%- else %}{%- set today = '26 Jul 2024' %}{%- endif %}
{%- if messages[0].role == 'system' %}{%- set system = messages[0].content | trim %}{%- set turns = messages[1:] %}
{%- else %}{%- set system = '' %}{%- set turns = messages %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\nToday Date: ' + today }}
{{- '\\n\\n' + system + '<|eot_id|>' }}{%- for message in turns %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor %}{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""
VISION = {
    "depth": 2, "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "in_chans": 3,
    "out_hidden_size": 32, "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14, "window_size": 112,
    "fullatt_block_indexes": [1], "tokens_per_second": 2, "temporal_patch_size": 2,
}  # fmt: skip


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=2), encoding="utf-8")


def write_tokenizer(folder: Path, added: dict[int, str], first_plain: int, settings: dict[str, Any]) -> None:
    """Byte-level BPE of few merges, filled up with entries that no text gives, so that added tokens keep their ids."""
    tokenizers = pytest.importorskip("tokenizers")
    entries = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]
    entries += [f"unused{n}" for n in range(min(added) - len(entries))]
    words = tokenizers.Tokenizer(
        tokenizers.models.BPE({entry: n for n, entry in enumerate(entries)}, [tuple(m.split(" ")) for m in MERGES])
    )
    words.normalizer = tokenizers.normalizers.NFC()
    words.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = tokenizers.decoders.ByteLevel()
    for id in range(min(added), max(added) + 1):
        token = added.get(id, f"<|reserved_special_token_{id}|>")
        words.add_tokens([tokenizers.AddedToken(token, special=id < first_plain, normalized=False)])
    if settings["tokenizer_class"] == "PreTrainedTokenizerFast":  # Llama's own puts the first token before any text
        words.post_processor = tokenizers.processors.TemplateProcessing(
            single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 128000)]
        )
    folder.mkdir(parents=True, exist_ok=True)
    words.save(str(folder / "tokenizer.json"))
    listed = {
        str(id): {
            "content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": id < first_plain,
        }
        for id, token in added.items()
    }  # fmt: skip
    common = {"added_tokens_decoder": listed, "clean_up_tokenization_spaces": False, "model_max_length": 131072}
    write(folder / "tokenizer_config.json", common | settings)


def write_weights(folder: Path, kind: str, end: int | None = None) -> None:
    """Random weights of the model that config.json describes, in bfloat16, under the published names of tensors.

    The token `end` has a probability of about a fifth everywhere, so that turns end: all embeddings share a vector,
    which the last hidden state follows, and so does this token's row of the output.
    """
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.AutoConfig.from_pretrained(folder)
    torch.manual_seed(0)
    model = getattr(transformers, kind).from_config(config)
    if end is not None:
        entries, outputs = model.get_input_embeddings().weight.data, model.get_output_embeddings().weight.data
        shared = torch.nn.functional.normalize(torch.randn(entries.shape[1]), dim=0)
        entries += shared
        outputs[end] += 10.5 / entries.shape[1] ** 0.5 * shared
    model.to(torch.bfloat16)
    model.save_pretrained(folder / "saved")
    for file in (folder / "saved").glob("*.safetensors"):
        file.rename(folder / file.name)
    shutil.rmtree(folder / "saved")


def qwen(folder: Path, size: str, *, instruct: bool = True) -> None:
    vocabulary, tied, window, layers, penalty = SIZES[size]
    end = 151645 if instruct else 151643
    config = {
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": end,
        "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 32768, "max_window_layers": layers,
        "model_type": "qwen2", "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": window,
        "tie_word_embeddings": tied, "torch_dtype": "bfloat16", "transformers_version": "4.43.1", "use_cache": True,
        "use_sliding_window": False, "vocab_size": vocabulary,
    }  # fmt: skip
    sampling = {
        "bos_token_id": 151643, "pad_token_id": 151643, "do_sample": True, "eos_token_id": [151645, 151643],
        "repetition_penalty": penalty, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "transformers_version": "4.37.0",
    }  # fmt: skip
    plain = {"bos_token_id": 151643, "do_sample": False, "eos_token_id": 151643, "max_new_tokens": 2048}
    write(folder / "config.json", config | NARROW | HEADS)
    write(folder / "generation_config.json", sampling if instruct else plain)
    qwen_tokenizer(folder, "<|im_end|>" if instruct else "<|endoftext|>", INSTRUCT if instruct else BASE)
    write_weights(folder, "AutoModelForCausalLM", 151645)


def qwen_tokenizer(folder: Path, end: str, template: str) -> None:
    settings = {
        "add_bos_token": False, "add_prefix_space": False, "additional_special_tokens": list(QWEN.values())[1:14],
        "bos_token": None, "chat_template": template, "eos_token": end, "errors": "replace",
        "pad_token": "<|endoftext|>", "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }  # fmt: skip
    write_tokenizer(folder, QWEN, 151657, settings)


def qwen_vl(folder: Path) -> None:
    config = {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151645, "vision_start_token_id": 151652, "vision_end_token_id": 151653,
        "vision_token_id": 151654, "image_token_id": 151655, "video_token_id": 151656, "hidden_act": "silu",
        "initializer_range": 0.02, "max_position_embeddings": 128000, "max_window_layers": 70,
        "model_type": "qwen2_5_vl", "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "transformers_version": "4.41.2", "use_cache": True,
        "use_sliding_window": False, "vision_config": VISION, "vocab_size": 151936,
        # As published, [16, 24, 24] of 64 angles; here 8.
        "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
    }  # fmt: skip
    sampling = {
        "bos_token_id": 151643, "pad_token_id": 151643, "do_sample": True, "eos_token_id": [151645, 151643],
        "repetition_penalty": 1.05, "temperature": 0.000001, "transformers_version": "4.49.0",
    }  # fmt: skip
    frames = {
        "min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
        "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
        "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor",
    }  # fmt: skip
    write(folder / "config.json", config | NARROW | HEADS)
    write(folder / "generation_config.json", sampling)
    write(folder / "preprocessor_config.json", frames)
    write(folder / "chat_template.json", {"chat_template": SEEING})
    qwen_tokenizer(folder, "<|im_end|>", SEEING)
    write_weights(folder, "AutoModelForImageTextToText", 151645)


def llama(folder: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 16, "hidden_act": "silu",
        "initializer_range": 0.02, "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "llama",
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "transformers_version": "4.47.0.dev0", "use_cache": True, "vocab_size": 128256,
        "rope_scaling": {
            "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    }  # fmt: skip
    sampling = {
        "bos_token_id": 128000, "do_sample": True, "eos_token_id": [128001, 128008, 128009], "temperature": 0.6,
        "top_p": 0.9, "transformers_version": "4.47.0.dev0",
    }  # fmt: skip
    settings = {
        "bos_token": "<|begin_of_text|>", "chat_template": LLAMA_TURNS, "eos_token": "<|eot_id|>",
        "model_input_names": ["input_ids", "attention_mask"], "tokenizer_class": "PreTrainedTokenizerFast",
    }  # fmt: skip
    write(folder / "config.json", config | NARROW | HEADS)
    write(folder / "generation_config.json", sampling)
    write_tokenizer(folder, LLAMA | {128255: "<|reserved_special_token_247|>"}, 128256, settings)
    write_weights(folder, "AutoModelForCausalLM", 128009)


def jina(folder: Path) -> None:
    """Model, SentencePiece-like tokenizer and the adapters of two of the five tasks."""
    peft, tokenizers = pytest.importorskip("peft"), pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = [(piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces += [(piece, -3.0) for piece in ("▁", *letters, *(f"▁{letter}" for letter in letters), "▁the", "▁and")]
    pieces += [(f"unused{n}", -20.0) for n in range(250001 - len(pieces))]
    words = tokenizers.Tokenizer(tokenizers.models.Unigram([*pieces, ("<mask>", 0.0)], unk_id=3))
    words.normalizer = tokenizers.normalizers.NFKC()
    words.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    words.decoder = tokenizers.decoders.Metaspace()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, model_max_length=8194, cls_token="<s>", sep_token="</s>", mask_token="<mask>", **names
    )
    tokenizer.save_pretrained(folder)
    config = {
        "architectures": ["JinaEmbeddingsV3Model"], "model_type": "jina_embeddings_v3", "bos_token_id": 0,
        "pad_token_id": 1, "eos_token_id": 2, "hidden_act": "gelu", "initializer_range": 0.02,
        "layer_norm_eps": 1e-05, "max_position_embeddings": 8194, "type_vocab_size": 1, "vocab_size": 250002,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    write(folder / "config.json", config | NARROW | {"num_attention_heads": 2})
    write_weights(folder, "AutoModel")
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2"]
    for task in ("text_matching", "retrieval_query"):
        base = transformers.AutoModel.from_pretrained(folder)
        lora = peft.LoraConfig(r=4, lora_alpha=4, target_modules=targets, init_lora_weights=False)
        peft.get_peft_model(base, lora).save_pretrained(folder / task)


STAND_INS: dict[str, Callable[[Path], None]] = {
    "Qwen/Qwen2.5-0.5B-Instruct": lambda folder: qwen(folder, "0.5B"),
    "Qwen/Qwen2.5-3B-Instruct": lambda folder: qwen(folder, "3B"),
    "Qwen/Qwen2.5-7B-Instruct": lambda folder: qwen(folder, "7B"),
    "Qwen/Qwen2.5-0.5B": lambda folder: qwen(folder, "0.5B", instruct=False),
    "Qwen/Qwen2.5-VL-3B-Instruct": qwen_vl,
    "meta-llama/Llama-3.3-70B-Instruct": llama,
    "jinaai/jina-embeddings-v3-hf": jina,
}


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the hub, as `hf download` leaves it; a model is made when a test first asks for it."""
    return tmp_path_factory.mktemp("hub")


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes ids of the hub resolve in the cache; called with an id, the folder of its stand-in."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))  # for processes that a command starts

    def made(name: str) -> Path:
        kept = cache / f"models--{name.replace('/', '--')}"
        folder = kept / "snapshots" / COMMIT
        if not (kept / "refs" / "main").is_file():
            STAND_INS[name](folder)
            write(kept / "refs" / "main", COMMIT)
        return folder

    return made


@pytest.fixture(scope="session")
def generator() -> ModuleType:
    """benchmarks/howtocaption.py, which makes the layout of the paper's corpus."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
        return importlib.import_module("howtocaption")
