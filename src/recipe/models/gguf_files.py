"""GGUF files of Llama models, which llama.cpp reads, as model folders in the standard layout.

Quantised weights become float32, each exactly the number that the file stands for. Read are the architecture `llama`
and byte-level BPE tokenizers (`gpt2`) whose text is first cut as SmolLM's.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recipe.errors import InputError, MissingExtra, first_line
from recipe.models.checkpoints import quiet_loading

try:
    import torch
    import transformers
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
except ModuleNotFoundError as error:
    raise MissingExtra("a language model", "encoder") from error
try:
    from gguf import GGUFReader, dequantize
except ModuleNotFoundError as error:
    raise MissingExtra("a model in a GGUF file", "smollm2", "pip install --no-deps gguf") from error

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_CONTROL, _ADDED = 3, 4
"""Kinds of tokens that are no product of the merges: control tokens, and texts that are one token each."""


class _Reader(GGUFReader):  # type: ignore[misc]
    """Reads nothing beyond the end of the file, where the package goes on through counts of up to 2^64."""

    def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **further: Any) -> NDArray[Any]:
        if not 0 <= int(offset) + int(count) * np.dtype(dtype).itemsize <= len(self.data):
            raise ValueError("it ends early")
        read: NDArray[Any] = super()._get(offset, dtype, count, *order, **further)
        return read


def convert_gguf(file: Path, target: Path) -> None:
    """Write the model of a GGUF file, its tokenizer and chat template to the folder `target`.

    Raises InputError for a file that is damaged or of another kind.
    """
    try:
        reader = _Reader(file)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except Exception as error:  # NumPy and the reader raise much for a file that lies
        raise _damaged(file, first_line(error)) from error
    for name, known in (
        ("general.architecture", "llama"),
        ("tokenizer.ggml.model", "gpt2"),
        ("tokenizer.ggml.pre", "smollm"),
    ):
        if fields.get(name) != known:
            problem = f"its {name} is {fields.get(name)!r}; only {known!r} can be read"
            raise InputError.at(file, problem, "give a model folder or hub id")
    try:
        if not 0 < fields["llama.block_count"] <= len(reader.tensors):  # layers are made before they are filled
            raise ValueError(f"{fields['llama.block_count']} layers of {len(reader.tensors)} tensors")
        tokenizer = _tokenizer(fields)
        config = _config(fields, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
        with torch.device("meta"):
            model = transformers.LlamaForCausalLM(config)
        # Position tables are no weights, and are made again on loading.
        weights = {name: torch.from_numpy(array) for name, array in _weights(reader, config)}
        if config.tie_word_embeddings:
            weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        model.load_state_dict(weights, assign=True)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of tokenizers
            raise
        raise _damaged(file, first_line(error)) from error
    model.tie_weights()
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    with quiet_loading():
        model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _damaged(file: Path, reason: str) -> InputError:
    return InputError.at(file, f"no whole GGUF file of a Llama model ({reason})", "install or download it again")


def _config(fields: dict[str, Any], *, tied: bool) -> transformers.LlamaConfig:
    names = {
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "max_position_embeddings": "context_length",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    }
    return transformers.LlamaConfig(
        **{ours: fields[f"llama.{theirs}"] for ours, theirs in names.items()},
        rope_parameters={"rope_type": "default", "rope_theta": fields.get("llama.rope.freq_base", 10_000.0)},
        vocab_size=len(fields["tokenizer.ggml.tokens"]),
        tie_word_embeddings=tied,
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        pad_token_id=_padding(fields),
        dtype="float32",
    )


def _padding(fields: dict[str, Any]) -> int:
    return int(fields.get("tokenizer.ggml.padding_token_id", fields["tokenizer.ggml.eos_token_id"]))


def _weights(reader: GGUFReader, config: transformers.LlamaConfig) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Name in transformers and values of each weight."""
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for tensor in reader.tensors:
        values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)  # no view of the file
        kind = tensor.name.removesuffix(".weight")
        if not kind.startswith("blk."):
            yield f"{_OUTER[kind]}.weight", values
            continue
        _, layer, kind = kind.split(".")
        if kind in heads:
            # llama.cpp rotates neighbouring rows of a head together, transformers rows of its two halves.
            rows, columns = values.shape
            pairs = values.reshape(heads[kind], rows // heads[kind] // 2, 2, columns)
            values = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, columns)
        yield f"model.layers.{layer}.{_LAYER[kind]}.weight", values


def _tokenizer(fields: dict[str, Any]) -> transformers.PreTrainedTokenizerFast:
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    inner = Tokenizer(models.BPE(vocab={token: place for place, token in enumerate(tokens)}, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    inner.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in (_CONTROL, _ADDED):
            inner.add_tokens([AddedToken(token, special=kind == _CONTROL, normalized=False)])
    named = {"bos": "bos", "eos": "eos", "unk": "unknown"}
    roles = {
        f"{ours}_token": tokens[fields[key]]
        for ours, theirs in named.items()
        if (key := f"tokenizer.ggml.{theirs}_token_id") in fields
    }
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        **roles,
        pad_token=tokens[_padding(fields)],
        model_max_length=fields["llama.context_length"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = fields["tokenizer.chat_template"]
    return tokenizer
