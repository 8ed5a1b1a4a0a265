"""Roll-outs of the policy: plain sampling from its own distribution, several completions of each prompt.

Differs from `generate` in what it leaves out: a prompt is read once for its whole group, a completion that has
ended leaves the batch, and dropout is off, so that completions come from the policy that is saved. That takes
half the time for a small model on a CPU.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel


def sample(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    *,
    temperature: float,
    longest: int,
    ends: Sequence[int],
    padding: int,
) -> list[list[int]]:
    """One completion of each prompt, in order, as token ids; equal prompts are read once.

    A completion holds at most `longest` tokens and includes the token of `ends` that ended it. Draws from torch's
    global generator. The model is left in the mode it was in.
    """
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return _sample(model, prompts, temperature, longest, ends, padding)
    finally:
        model.train(training)


def _sample(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    temperature: float,
    longest: int,
    ends: Sequence[int],
    padding: int,
) -> list[list[int]]:
    device = model.device
    distinct = list(dict.fromkeys(tuple(prompt) for prompt in prompts))
    row_of = {prompt: row for row, prompt in enumerate(distinct)}
    rows = torch.tensor([row_of[tuple(prompt)] for prompt in prompts], device=device)
    ids, mask = _padded_left(distinct, padding)
    mask = mask.to(device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = DynamicCache()
    logits = _forward(model, ids.to(device), mask, positions, cache)[rows]
    mask, positions = mask[rows], positions[rows, -1:]
    cache.batch_select_indices(rows)
    stops = torch.tensor(ends, device=device)
    completions: list[list[int]] = [[] for _ in prompts]
    live = torch.arange(len(prompts), device=device)
    for _ in range(longest):
        drawn = torch.multinomial(torch.softmax(logits.float() / temperature, dim=-1), 1)
        for index, token in zip(live.tolist(), drawn[:, 0].tolist(), strict=True):
            completions[index].append(token)
        goes_on = ~torch.isin(drawn[:, 0], stops)
        if not goes_on.any():
            break
        if not goes_on.all():
            kept = goes_on.nonzero()[:, 0]
            live, drawn, mask, positions = live[kept], drawn[kept], mask[kept], positions[kept]
            cache.batch_select_indices(kept)
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        positions = positions + 1
        logits = _forward(model, drawn, mask, positions, cache)
    return completions


def _forward(
    model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: DynamicCache
) -> torch.Tensor:
    """Logits [B, V] after the last token; the cache grows by `ids` [B, T]."""
    output = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return output.logits[:, -1]


def _padded_left(prompts: Sequence[Sequence[int]], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask, both [B, L], of prompts that all end in the last column."""
    width = max(map(len, prompts))
    ids = [[padding] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids), torch.tensor(mask)


class RollOuts:
    """The trainer's hook: samples for the prompts of a step, each repeated once for every completion."""

    def __init__(self, temperature: float, longest: int) -> None:
        self._temperature, self._longest = temperature, longest

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        tokenizer = trainer.processing_class
        asked = tokenizer.apply_chat_template(list(prompts), add_generation_prompt=True, return_dict=True)["input_ids"]
        completions = sample(
            # The model inside the adapter's shell: the shell would cast all weights anew at every token.
            trainer.accelerator.unwrap_model(trainer.model).get_base_model(),
            asked,
            temperature=self._temperature,
            longest=self._longest,
            ends=[*trainer.eos_token_ids, tokenizer.pad_token_id],
            padding=tokenizer.pad_token_id,
        )
        # No log-probabilities: the trainer's own, of the pass it differentiates, are the ones to compare with.
        return {"prompt_ids": asked, "completion_ids": completions, "logprobs": None}
