"""BERT-like encoders by torch and tokenizers alone: sentence-transformers takes ten seconds to import."""

import json
import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional

# Tokens in a block: of steps and of a corpus on a processor, and on a GPU.
_STEP_TOKENS, _CORPUS_TOKENS, _GPU_TOKENS = 128, 256, 4096
# Keys of tokenizer_config.json, and the keys of tokenizer.json that have to say the same.
_NORMALIZER = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# What a layer computes behind its attention, in order.
_AFTER_ATTENTION = (
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)


class Bert:
    """The model of a sentence-transformers folder: word pieces, the layers of BERT, and the mean or the first vector.

    Texts are computed one behind the other in blocks of a fixed number of tokens. Every matrix product has one shape,
    so that a row of it is the same wherever it stands, and attention sees one text. So a text's vector does not depend
    on the other texts, to the last bit. A text that is longer than a block has a block of its own.
    """

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype, *, small_blocks: bool = False) -> None:
        """`small_blocks` are for a few texts at a time, such as steps.

        Raises ValueError for a model of another kind, and what reading raises for a damaged one.
        """
        config, modules, limits, texts = (
            json.loads((folder / name).read_text(encoding="utf-8"))
            for name in ("config.json", "modules.json", "sentence_bert_config.json", "tokenizer_config.json")
        )
        settings = folder / "config_sentence_transformers.json"
        further = json.loads(settings.read_text(encoding="utf-8")) if settings.exists() else {}
        kinds = [module["type"].rpartition(".")[2] for module in modules]
        pooling = json.loads((folder / modules[1]["path"] / "config.json").read_text(encoding="utf-8"))
        modes = [name for name, value in pooling.items() if name.startswith("pooling_mode_") and value]
        normalizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["normalizer"]
        # All that is computed below: a model that differs in one of these would get wrong vectors without an error.
        expected = (
            config["model_type"] == "bert"
            and config["hidden_act"] == "gelu"
            and config.get("position_embedding_type", "absolute") == "absolute"
            and not (config.get("is_decoder") or (folder / "adapter_config.json").exists())
            and kinds[:2] == ["Transformer", "Pooling"]
            and set(kinds[2:]) <= {"Normalize"}
            and modules[0]["path"] == ""
            and modes in (["pooling_mode_mean_tokens"], ["pooling_mode_cls_token"])
            and not limits.get("do_lower_case")
            and not any((further.get("prompts") or {}).values())
            and normalizer["type"] == "BertNormalizer"
            and all(normalizer[there] == texts[here] for here, there in _NORMALIZER.items() if here in texts)
        )
        if not expected:
            raise ValueError("another kind of model")
        self._mean = modes == ["pooling_mode_mean_tokens"]
        self._heads = config["num_attention_heads"]
        self._epsilon = config["layer_norm_eps"]
        self._tokens = _STEP_TOKENS if small_blocks else _CORPUS_TOKENS
        if device.type != "cpu":
            self._tokens = _GPU_TOKENS
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(min(limits["max_seq_length"], config["max_position_embeddings"]))

        weights = {
            name.removeprefix("bert."): value.to(device, dtype) if value.is_floating_point() else value
            for name, value in load_file(folder / "model.safetensors").items()
        }
        self._word, self._kind, self._position = (
            weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "token_type", "position")
        )
        self._first_norm = _pair(weights, "embeddings.LayerNorm")
        self._layers = []
        for index in range(config["num_hidden_layers"]):
            layer = f"encoder.layer.{index}"
            read = [_pair(weights, f"{layer}.attention.self.{name}") for name in ("query", "key", "value")]
            # Query, key and value come from one product.
            joined = tuple(torch.cat(parts) for parts in zip(*read, strict=True))
            self._layers.append((joined, *(_pair(weights, f"{layer}.{name}") for name in _AFTER_ATTENTION)))

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The word pieces of texts, cut to the model's length."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def blocks(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Indices of the texts of each block, by their numbers of tokens, the longest first."""
        block: list[int] = []
        free = 0
        for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
            # Next fit, longest first: a block is closed at the first text that does not fit.
            if lengths[index] > free and block:
                yield block
                block = []
            if not block:
                free = math.ceil(lengths[index] / self._tokens) * self._tokens
            block.append(index)
            free -= lengths[index]
        if block:
            yield block

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def embed(self, texts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Float32 [n, d] of the texts of one block, which are word pieces, in the order of their numbers of tokens."""
        device = self._word.device
        lengths = [len(ids) for ids in texts]
        taken = sum(lengths)
        size = math.ceil(taken / self._tokens) * self._tokens
        # What fills a block up is one token again and again, which no text attends to.
        rest = [0] * (size - taken)
        ids = torch.tensor([token for text in texts for token in text] + rest, device=device)
        positions = torch.tensor([position for length in lengths for position in range(length)] + rest, device=device)
        states = self._norm(self._word[ids] + self._kind[0] + self._position[positions], self._first_norm)

        # Texts of one length attend in one call.
        groups = []
        first = 0
        for length, alike in groupby(lengths):
            count = len(list(alike))
            groups.append((first, first + count * length, count))
            first += count * length

        width = states.shape[1]
        for joined, attention, attention_norm, wider, narrower, last_norm in self._layers:
            read = functional.linear(states, *joined)
            attended = states.new_zeros(states.shape)
            for start, stop, count in groups:
                # [count, L, 3, heads, d] as three of [count, heads, L, d].
                parts = read[start:stop].view(count, -1, 3, self._heads, width // self._heads).permute(2, 0, 3, 1, 4)
                heads = functional.scaled_dot_product_attention(*parts)
                attended[start:stop] = heads.transpose(1, 2).reshape(stop - start, width)
            states = self._norm(functional.linear(attended, *attention) + states, attention_norm)
            inner = functional.gelu(functional.linear(states, *wider))
            states = self._norm(functional.linear(inner, *narrower) + states, last_norm)

        # The mean in float32, whatever the layers were computed in.
        states = states.float()
        vectors = []
        for start, stop, count in groups:
            group = states[start:stop].view(count, -1, width)
            vectors.append(group.mean(dim=1) if self._mean else group[:, 0])
        return torch.cat(vectors)

    def _norm(self, states: torch.Tensor, pair: tuple[Any, Any]) -> torch.Tensor:
        return functional.layer_norm(states, states.shape[1:], *pair, self._epsilon)


def _pair(weights: dict[str, torch.Tensor], name: str) -> tuple[torch.Tensor, torch.Tensor]:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]
