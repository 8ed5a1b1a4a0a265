"""Completing prompts and weighing completions, for planning and training, with a model of transformers.

Differs from `generate` in what it leaves out: equal prompts are read once and their completions share the
prefill, and a completion that has ended leaves the batch. How a token is chosen is the caller's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recipe.errors import MissingExtra
from recipe.progress import Advance

try:
    import torch
    from transformers import DynamicCache, PreTrainedModel
except ModuleNotFoundError as error:
    raise MissingExtra("a language model", "encoder") from error

Choose = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""`choose(logits, rows, step)`: a token for each completion that is still being written [live], from its logits
[live, vocabulary]; `rows` [live] says which completions these are, in order, and `step` counts from 0."""

_COMPACT = 0.2
"""Rows are taken out of the batch once this share of it has ended: taking out copies the cache."""

_NONE = -100
"""In the place of a token where there is none."""


def complete(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    choose: Choose,
    *,
    ends: Sequence[int],
    longest: int,
    context: int | None = None,
    advance: Advance = lambda _: None,
) -> list[list[int]]:
    """One completion of each prompt, in order, as token ids.

    A completion holds at most `longest` tokens, includes the token of `ends` that ended it, and stops where it
    and its prompt fill the `context`. `advance` is told at every token how many completions have ended.
    """
    rows, logits = _prefill(model, prompts)
    stops = torch.tensor(ends, device=model.device)
    written: list[list[int]] = [[] for _ in prompts]
    for step in range(longest):
        chosen = choose(logits, rows.completions, step)
        for row, token in zip(rows.completions.tolist(), chosen.tolist(), strict=True):
            written[row].append(token)
        goes_on = ~torch.isin(chosen, stops)
        if context is not None:
            goes_on &= rows.position[rows.live] + 2 < context
        left = int(goes_on.sum()) if step + 1 < longest else 0
        advance(len(chosen) - left)
        if left == 0:
            break
        logits = rows.read(model, chosen, goes_on)
    return written


def log_likelihood(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    temperature: float = 1.0,
) -> list[float]:
    """Log-probability in nats of each completion after its prompt; equal prompts are read once.

    The sum over a completion's tokens of log softmax(logits / temperature); 0 for one without tokens.
    """
    rows, first = _prefill(model, prompts)
    longest = max(1, *map(len, completions))
    targets = torch.tensor(
        [[*tokens, *[_NONE] * (longest - len(tokens))] for tokens in completions], device=model.device
    )
    total = _log_probability(first[:, None], targets[:, :1], temperature)
    if longest > 1:
        known = targets[:, :-1] != _NONE
        positions = rows.position[:, None] + torch.arange(1, longest, device=model.device)
        mask = torch.cat([rows.mask, known.long()], dim=1)
        logits = _logits(model, targets[:, :-1].where(known, 0), mask, positions, rows.cache, keep=longest - 1)
        total = total + _log_probability(logits, targets[:, 1:], temperature)
    return list(total.tolist())


def _log_probability(logits: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
    """Sum over positions [rows] of the targets' log-probabilities; of `logits` [rows, positions, vocabulary]."""
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float() / temperature, targets.flatten(), ignore_index=_NONE, reduction="none"
    )
    return -losses.view(targets.shape).double().sum(-1)


@dataclass(slots=True)
class _Rows:
    """A batch of completions that are being written, and some that have ended and are still in the cache."""

    live: torch.Tensor
    """Rows of the cache that are being written [live]."""
    completions: torch.Tensor
    """Which completion each of those is [live]."""
    mask: torch.Tensor
    """Which positions hold tokens [rows, positions]."""
    position: torch.Tensor
    """Position of the last token [rows]."""
    cache: DynamicCache

    def read(self, model: PreTrainedModel, chosen: torch.Tensor, goes_on: torch.Tensor) -> torch.Tensor:
        """Logits [live, vocabulary] after the tokens `chosen` [live] of the completions that go on."""
        tokens = chosen.new_zeros(len(self.mask))
        tokens[self.live] = chosen
        self.live, self.completions = self.live[goes_on], self.completions[goes_on]
        if len(self.live) <= (1 - _COMPACT) * len(self.mask):
            tokens = tokens[self.live]
            self._compact()
        self.position = self.position + 1
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=1)
        logits = _logits(model, tokens[:, None], self.mask, self.position[:, None], self.cache)[:, -1]
        return logits if len(self.live) == len(logits) else logits[self.live]

    def _compact(self) -> None:
        """Take the rows that have ended out of the cache."""
        self.cache.batch_select_indices(self.live)
        self.mask, self.position = self.mask[self.live], self.position[self.live]
        self.live = torch.arange(len(self.live), device=self.live.device)


def _prefill(model: PreTrainedModel, prompts: Sequence[Sequence[int]]) -> tuple[_Rows, torch.Tensor]:
    """A row for every prompt, behind one pass over the distinct ones, and its logits [prompts, vocabulary]."""
    distinct = {tuple(prompt): None for prompt in prompts}
    row_of = {prompt: row for row, prompt in enumerate(distinct)}
    source = torch.tensor([row_of[tuple(prompt)] for prompt in prompts], device=model.device)
    tokens, mask = _padded_left(list(distinct), model.device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    logits = _logits(model, tokens, mask, positions, cache)[:, -1]
    cache.batch_select_indices(source)
    every = torch.arange(len(source), device=model.device)
    return _Rows(every, every, mask[source], positions[source, -1], cache), logits[source]


def _logits(
    model: PreTrainedModel,
    tokens: torch.Tensor,
    mask: torch.Tensor,
    positions: torch.Tensor,
    cache: DynamicCache,
    keep: int = 1,
) -> torch.Tensor:
    """Logits [rows, keep, vocabulary] after the last tokens; the cache grows by `tokens` [rows, new]."""
    return model(
        input_ids=tokens,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=keep,
    ).logits


def _padded_left(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask, both [prompts, longest], of prompts that all end in the last column."""
    width = max(map(len, prompts))
    tokens = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(tokens, device=device), torch.tensor(mask, device=device)
