"""An engine for a causal language model on this machine: a folder, or a model id of the hub.

It differs from the generation of `transformers` in this: sampling is the model's softmax at the given
temperature and nothing else, so that the top-k, top-p and penalties of a model's own settings do not apply.
Every completion has its own stream of random numbers, and does not depend on what else is in the batch, up to
rounding. The samples of a prompt share its prefill, and rows that have ended leave the batch.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import DynamicCache

from recipe.config import SamplingConfig
from recipe.errors import ComputeError, InputError
from recipe.planning.engines import Chat
from recipe.progress import SILENT, Advance, Progress

_COMPACT = 0.2
"""Rows are taken out of the batch once this share of it has ended: taking out copies the cache."""


class _Prompt(NamedTuple):
    """A chat's place in the request, its token ids, and the samples to draw of it in one batch."""

    chat: int
    tokens: list[int]
    samples: range


class LocalEngine:
    """Completes chats with a causal language model; bfloat16 on a GPU, float32 on the CPU."""

    def __init__(self, model: str | Path, revision: str | None = None, device: str | None = None) -> None:
        """Load a model folder or hub id; raises InputError when there is none or it has no chat template."""
        self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._model, self._tokenizer = _load(str(model), revision, self._device)
        ends = self._model.generation_config.eos_token_id
        listed = ends if isinstance(ends, list) else [ends]
        self._ends = sorted({end for end in (*listed, self._tokenizer.eos_token_id) if end is not None})
        self._context: int = self._model.config.get_text_config().max_position_embeddings

    def generate(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[str]]:
        """`count` completions of each chat; raises InputError for a chat that fills the model's context."""
        answers = [[""] * count for _ in chats]
        prompts = self._encode(chats)
        with progress.task("writing plans", total=len(chats) * count) as advance, torch.inference_mode():
            for batch in _batches(prompts, count, sampling.batch_size):
                uniforms = _uniforms(batch, chats, sampling)
                texts = iter(self._decode(self._complete(batch, uniforms, sampling.temperature, advance)))
                for prompt in batch:
                    for sample in prompt.samples:
                        answers[prompt.chat][sample] = next(texts)
        return answers

    def _encode(self, chats: Sequence[Chat]) -> list[list[int]]:
        prompts = [
            self._tokenizer.apply_chat_template(
                chat, tokenize=True, add_generation_prompt=True, return_dict=False
            )
            for chat in chats
        ]
        longest = max(map(len, prompts), default=0)
        if longest >= self._context:
            raise InputError(
                f"a prompt of {longest} tokens leaves no room in the model's context of {self._context}; "
                "shorten the history."
            )
        return prompts

    def _decode(self, rows: list[list[int]]) -> list[str]:
        return list(self._tokenizer.batch_decode(rows, skip_special_tokens=True))

    def _complete(
        self, batch: list[_Prompt], uniforms: torch.Tensor, temperature: float, advance: Advance
    ) -> list[list[int]]:
        """Token ids of every row of the batch; `uniforms` [rows, tokens] picks each token."""
        repeats = torch.tensor([len(prompt.samples) for prompt in batch], device=self._device)
        tokens, mask = _left_pad([prompt.tokens for prompt in batch], self._device)
        cache = DynamicCache(config=self._model.config)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = self._forward(tokens, mask, positions, cache)
        source = torch.repeat_interleave(torch.arange(len(batch), device=self._device), repeats)
        cache.batch_select_indices(source)
        logits, mask, position = logits[source], mask[source], positions[source, -1:]
        ends = torch.tensor(self._ends, device=self._device)
        uniforms = uniforms.to(self._device)
        written = torch.full(uniforms.shape, -1, dtype=torch.long, device=self._device)
        rows = torch.arange(len(source), device=self._device)
        alive = torch.ones(len(source), dtype=torch.bool, device=self._device)
        room = self._context - 1 - position.squeeze(-1)
        running = len(source)
        for step in range(uniforms.shape[1]):
            chosen = _choose(logits, uniforms[rows, step], temperature)
            alive &= ~torch.isin(chosen, ends)
            written[rows[alive], step] = chosen[alive]
            alive &= room > step + 1
            left = int(alive.sum())
            advance(running - left)
            running = left
            if not left:
                break
            if left < (1 - _COMPACT) * len(rows):
                keep = alive.nonzero().squeeze(-1)
                cache.batch_select_indices(keep)
                rows, chosen, mask, position, room = (
                    part[keep] for part in (rows, chosen, mask, position, room)
                )
                alive = alive[keep]
            position = position + 1
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            if step + 1 < uniforms.shape[1]:
                logits = self._forward(chosen[:, None], mask, position, cache)
        advance(running)
        return [[token for token in row if token >= 0] for row in written.tolist()]

    def _forward(
        self, tokens: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: DynamicCache
    ) -> torch.Tensor:
        """Logits [rows, vocabulary] of the token after the last one."""
        output = self._model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1]


def _load(name: str, revision: str | None, device: torch.device) -> tuple[Any, Any]:
    folder = Path(name)
    looks_local = folder.is_dir() or folder.is_absolute() or name.startswith(".") or name.count("/") > 1
    if looks_local and not (folder / "config.json").is_file():
        inner = folder / "model"
        remedy = (
            f"did you mean {inner}?"
            if (inner / "config.json").is_file()
            else "give a folder with config.json"
        )
        raise InputError.at(name, "there is no model in this folder", remedy)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    try:
        model = AutoModelForCausalLM.from_pretrained(name, revision=revision, dtype=dtype)
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"model {name!r} cannot be loaded ({reason}); give a folder or a hub id.") from error
    if not tokenizer.chat_template:
        raise InputError.at(name, "the tokenizer has no chat template", "give an instruction-tuned model")
    return model.to(device).eval(), tokenizer


def _batches(prompts: list[list[int]], count: int, size: int) -> Iterator[list[_Prompt]]:
    """Batches of at most `size` rows, shortest prompts first so that little is padding."""
    batch: list[_Prompt] = []
    rows = 0
    for chat in sorted(range(len(prompts)), key=lambda index: len(prompts[index])):
        for start in range(0, count, size):
            samples = range(start, min(start + size, count))
            if batch and rows + len(samples) > size:
                yield batch
                batch, rows = [], 0
            batch.append(_Prompt(chat, prompts[chat], samples))
            rows += len(samples)
    if batch:
        yield batch


def _uniforms(batch: list[_Prompt], chats: Sequence[Chat], sampling: SamplingConfig) -> torch.Tensor:
    """Random numbers in [0, 1) [rows, max_tokens], a stream of its own for each (seed, chat, sample)."""
    streams = []
    for prompt in batch:
        chat = json.dumps(chats[prompt.chat], sort_keys=True)
        for sample in prompt.samples:
            key = hashlib.sha256(f"{sampling.seed} {sample} {chat}".encode()).digest()
            generator = np.random.default_rng(int.from_bytes(key[:16]))
            streams.append(generator.random(sampling.max_tokens, dtype=np.float32))
    return torch.from_numpy(np.stack(streams))


def _left_pad(rows: list[list[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask [rows, longest], padded on the left."""
    longest = max(map(len, rows))
    tokens = torch.tensor([[0] * (longest - len(row)) + row for row in rows], device=device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device)
    return tokens, mask


def _choose(logits: torch.Tensor, uniform: torch.Tensor, temperature: float) -> torch.Tensor:
    """One token a row [rows]: the inverse of the cumulative softmax at `uniform`; the likeliest at 0."""
    if temperature == 0:
        return logits.argmax(-1)
    mass = torch.softmax(logits.float() / temperature, dim=-1).cumsum(-1)
    total = mass[:, -1]
    if not bool(torch.isfinite(total).all()):
        raise ComputeError(
            "the model's output is not a number; its weights are damaged or training diverged."
        )
    chosen = torch.searchsorted(mass, (uniform.to(mass.device) * total)[:, None], right=True).squeeze(-1)
    return chosen.clamp(max=mass.shape[-1] - 1)
