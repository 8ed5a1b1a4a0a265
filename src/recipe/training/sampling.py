"""Roll-outs of the policy: plain sampling from its own distribution, several completions of each prompt.

Differs from `generate` in what it leaves out (see `recipe.models.decoding`), and in that dropout is off, so that
completions come from the policy that is saved. That takes half the time for a small model on a CPU.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from recipe.models.decoding import complete
from recipe.models.vision import Patches


def sample(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    *,
    temperature: float,
    longest: int,
    ends: Sequence[int],
    clips: Sequence[Patches] | None = None,
    silenced: Sequence[int] = (),
) -> list[list[int]]:
    """One completion of each prompt, in order, as token ids; equal prompts with the same clip are read once.

    A completion holds at most `longest` tokens, includes the token of `ends` that ended it, and none that is
    `silenced`. Draws from torch's global generator. The model is left in the mode it was in.
    """

    def draw(logits: torch.Tensor, _rows: torch.Tensor, _step: int) -> torch.Tensor:
        if silenced:
            logits = logits.index_fill(-1, torch.tensor(silenced, device=logits.device), -torch.inf)
        return torch.multinomial(torch.softmax(logits.float() / temperature, dim=-1), 1).squeeze(-1)

    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return complete(model, prompts, draw, ends=ends, longest=longest, clips=clips)
    finally:
        model.train(training)


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
        )
        # No log-probabilities: the trainer's own, of the pass it differentiates, are the ones to compare with.
        return {"prompt_ids": asked, "completion_ids": completions, "logprobs": None}
