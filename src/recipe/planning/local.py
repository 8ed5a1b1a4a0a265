"""An engine for a causal language model on this machine: a folder, or a model id of the hub.

It differs from the generation of `transformers` in this: sampling is the model's softmax at the given
temperature and nothing else, so that the top-k, top-p and penalties of a model's own settings do not apply.
Every completion has its own stream of random numbers, and does not depend on what else is in the batch, up to
rounding. The samples of a prompt share its prefill, and rows that have ended leave the batch.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recipe.config import SamplingConfig
from recipe.errors import ComputeError, InputError, MissingExtra
from recipe.planning.engines import Chat
from recipe.progress import SILENT, Advance, Progress

try:
    import torch
    import transformers
    from transformers.cache_utils import DynamicCache
except ModuleNotFoundError as error:
    raise MissingExtra("planning with a local model", "encoder") from error

_COMPACT = 0.2
"""Rows are taken out of the batch once this share of it has ended: taking out copies the cache."""


class _Prompt(NamedTuple):
    """A chat's place in the request, its token ids, and the samples to draw of it in one batch."""

    chat: int
    tokens: list[int]
    samples: range


@dataclass(slots=True)
class _Rows:
    """The completions of a batch that are being written; tensors are [rows] but for the mask."""

    index: torch.Tensor
    """Which completion of the batch a row is."""
    alive: torch.Tensor
    mask: torch.Tensor
    """Which positions hold tokens [rows, positions]."""
    position: torch.Tensor
    """Position of the last token."""
    cache: DynamicCache

    def compact(self, tokens: torch.Tensor) -> torch.Tensor:
        """Take ended rows out once they are many; returns the `tokens` [rows] of those that stay."""
        keep = self.alive.nonzero().squeeze(-1)
        if len(keep) > (1 - _COMPACT) * len(self.alive):
            return tokens
        self.cache.batch_select_indices(keep)
        self.index, self.alive = self.index[keep], self.alive[keep]
        self.mask, self.position = self.mask[keep], self.position[keep]
        return tokens[keep]

    def extend(self) -> None:
        """Make room for one more token in every row."""
        self.position = self.position + 1
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=1)


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
            self._tokenizer.apply_chat_template(chat, tokenize=True, add_generation_prompt=True, return_dict=False)
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
        uniforms = uniforms.to(self._device)
        ends = torch.tensor(self._ends, device=self._device)
        written = torch.full(uniforms.shape, -1, dtype=torch.long, device=self._device)
        rows, logits = self._prefill(batch)
        running = len(rows.index)
        for step in range(uniforms.shape[1]):
            chosen = _choose(logits, uniforms[rows.index, step], temperature)
            rows.alive &= ~torch.isin(chosen, ends)
            written[rows.index[rows.alive], step] = chosen[rows.alive]
            rows.alive &= rows.position + 2 < self._context
            left = int(rows.alive.sum())
            advance(running - left)
            running = left
            if left == 0 or step + 1 == uniforms.shape[1]:
                break
            chosen = rows.compact(chosen)
            rows.extend()
            logits = self._forward(chosen, rows)
        advance(running)
        return [[token for token in row if token >= 0] for row in written.tolist()]

    def _prefill(self, batch: list[_Prompt]) -> tuple[_Rows, torch.Tensor]:
        """A row for every sample, behind one pass over the prompts, and its logits [rows, vocabulary]."""
        tokens, mask = _left_pad([prompt.tokens for prompt in batch], self._device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        cache = DynamicCache(config=self._model.config)
        prompts = torch.arange(len(batch), device=self._device)
        logits = self._logits(tokens, mask, positions, cache)
        repeats = torch.tensor([len(prompt.samples) for prompt in batch], device=self._device)
        source = torch.repeat_interleave(prompts, repeats)
        cache.batch_select_indices(source)
        index = torch.arange(len(source), device=self._device)
        alive = torch.ones_like(index, dtype=torch.bool)
        return _Rows(index, alive, mask[source], positions[source, -1], cache), logits[source]

    def _forward(self, tokens: torch.Tensor, rows: _Rows) -> torch.Tensor:
        """Logits [rows, vocabulary] after `tokens` [rows]."""
        return self._logits(tokens[:, None], rows.mask, rows.position[:, None], rows.cache)

    def _logits(
        self, tokens: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: DynamicCache
    ) -> torch.Tensor:
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
        remedy = f"give {inner}" if (inner / "config.json").is_file() else "give a folder with config.json"
        raise InputError.at(name, "there is no model in this folder", remedy)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    shown = transformers.logging.is_progress_bar_enabled()
    transformers.logging.disable_progress_bar()
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(name, revision=revision, dtype=dtype)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, revision=revision)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"model {name!r} cannot be loaded ({reason}); give a folder or a hub id.") from error
    finally:
        if shown:
            transformers.logging.enable_progress_bar()
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
        raise ComputeError("the model's output is not a number; its weights are damaged or training diverged.")
    chosen = torch.searchsorted(mass, (uniform.to(mass.device) * total)[:, None], right=True).squeeze(-1)
    return chosen.clamp(max=mass.shape[-1] - 1)
