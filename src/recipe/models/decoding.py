"""Completions of prompts and their log-likelihoods, for planning and training, with a model of transformers.

It differs from `generate` in this: equal prompts are read once and their completions share the
prefill, and a completion that has ended leaves the batch. The caller chooses the tokens. A prompt may hold a
clip, for a Qwen2.5-VL: a clip is encoded once, whichever prompts show it.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from recipe.errors import ComputeError, InputError, MissingExtra
from recipe.models.sampling import Decoding
from recipe.progress import Advance

try:
    import torch
    from transformers import DynamicCache, PreTrainedModel
    from transformers.cache_utils import DynamicLayer
    from transformers.generation.logits_process import (
        LogitsProcessor,
        MinPLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    from recipe.models.vision import Patches, mrope_positions
except ModuleNotFoundError as error:
    raise MissingExtra("a language model", "encoder") from error

Choose = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""`choose(logits, rows, step)`: a token for each completion that is still being written [live], from its logits
[live, vocabulary]; `rows` [live] says which completions these are, in order, and `step` counts from 0."""

# Rows are taken out of the batch once this share of it has ended: taking out copies the cache.
_COMPACT = 0.2

CACHE_ROOM = 32
"""Positions of free memory behind those that a cache holds."""

SHARED_HEAD = 64
"""The same first tokens of all prompts are read once where they are at least so many, as with a worked example."""
# Label of tokens that the loss ignores.
_NONE = -100

# Patches that are encoded together at most: activations of the visual tower would fill the memory.
_PATCHES = 1 << 14

LOGITS_AT_ONCE = 1 << 26
"""Logits of a likelihood that are held at once on a processor: 256 MB in float32, and three times as much in copies."""
# Free bytes of a GPU for each logit held at once: 14 with its copies, the rest is for training.
_BYTES = 64

Clips = Sequence[Patches | None]
"""The clip that each prompt shows, if any; prompts share one where it is the same object."""


def complete(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    choose: Choose,
    *,
    ends: Sequence[int],
    longest: int,
    context: int | None = None,
    clips: Clips | None = None,
    advance: Advance = lambda _: None,
) -> list[list[int]]:
    """One completion of each prompt, in order, as token ids.

    A completion holds at most `longest` tokens, includes the token of `ends` that ended it, and stops where it
    and its prompt fill the `context`. `advance` receives at every token the number of completions that ended. Raises
    InputError where a prompt holds other video tokens than its clip has.
    """
    written: list[list[int]] = [[] for _ in prompts]
    for rows, tokens, ended in steps(model, prompts, choose, ends=ends, longest=longest, context=context, clips=clips):
        for row, token in zip(rows, tokens, strict=True):
            written[row].append(token)
        advance(sum(ended))
    return written


def steps(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    choose: Choose,
    *,
    ends: Sequence[int],
    longest: int,
    context: int | None = None,
    clips: Clips | None = None,
) -> Iterator[tuple[list[int], list[int], list[bool]]]:
    """What `complete` writes, a token of each completion at a time, as soon as it is chosen.

    Each time: which completions are being written, in order, the token of each, and whether it ended with that.
    """
    rows, logits = _prefill(model, prompts, clips)
    stops = torch.tensor(ends, device=model.device)
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=model.device)
    for step in range(longest):
        chosen = choose(logits, rows.completions, step)
        goes_on = ~torch.isin(chosen, stops)
        if context is not None:
            goes_on &= lengths[rows.completions] + step + 1 < context
        if step + 1 == longest:
            goes_on = torch.zeros_like(goes_on)
        yield rows.completions.tolist(), chosen.tolist(), (~goes_on).tolist()
        if not bool(goes_on.any()):
            break
        logits = rows.read(model, chosen, goes_on)


def uniforms(keys: Sequence[str], longest: int) -> torch.Tensor:
    """Random numbers in [0, 1), float32 [keys, longest]: a stream for each key, the same on every machine."""
    streams = []
    for key in keys:
        # A stream of its own: what is drawn depends on no other completion of the batch, nor on their number.
        generator = np.random.default_rng(int.from_bytes(hashlib.sha256(key.encode()).digest()[:16]))
        streams.append(generator.random(longest, dtype=np.float32))
    return torch.from_numpy(np.stack(streams))


def draws(
    numbers: torch.Tensor,
    temperature: float,
    banned: Sequence[int] = (),
    *,
    card: Decoding | None = None,
    prompts: Sequence[Sequence[int]] = (),
) -> Choose:
    """Each completion's tokens by its own `numbers` [completions, longest] of `uniforms`, and none that is `banned`.

    What is drawn for a completion depends on its numbers and logits only, not on its place in the batch. At
    temperature 0 it is the likeliest token. With a `card`, its top_k, top_p, min_p and repetition_penalty apply as
    transformers applies them: the penalty to the tokens of the completion and of its prompt in `prompts`, then the
    temperature, then the others in this order. The function serves one batch. It raises ComputeError for logits that
    are not numbers.
    """
    penalty = 1.0 if card is None else card.repetition_penalty.value or 1.0
    warpers: list[LogitsProcessor] = []
    if card is not None:
        top_k, top_p, min_p = card.top_k.value or 0, card.top_p.value or 1.0, card.min_p.value or 0.0
        warpers += [TopKLogitsWarper(int(top_k))] if top_k > 0 else []
        warpers += [TopPLogitsWarper(float(top_p))] if top_p < 1 else []
        warpers += [MinPLogitsWarper(float(min_p))] if min_p > 0 else []
    # Tokens that the penalty applies to [completions, vocabulary].
    penalised_tokens: torch.Tensor | None = None

    def choose(logits: torch.Tensor, rows: torch.Tensor, step: int) -> torch.Tensor:
        nonlocal penalised_tokens
        # The maximum of a row is NaN where any of its logits is.
        if not bool(torch.isfinite(logits.amax(-1)).all()):
            raise ComputeError("the model's output is not a number; its weights are damaged or training diverged.")
        if banned:
            logits = logits.index_fill(-1, torch.tensor(banned, device=logits.device), -torch.inf)
        logits = logits.float()
        if penalty != 1:
            if penalised_tokens is None:
                size = (len(numbers), logits.shape[-1])
                penalised_tokens = torch.zeros(size, dtype=torch.bool, device=logits.device)
                for row, prompt in enumerate(prompts):
                    penalised_tokens[row, torch.tensor(prompt, device=logits.device)] = True
            penalised = torch.where(logits > 0, logits / penalty, logits * penalty)
            logits = torch.where(penalised_tokens[rows], penalised, logits)
        if temperature == 0:
            chosen = logits.argmax(-1)
        else:
            logits = logits / temperature
            for warper in warpers:
                logits = warper(None, logits)
            # The inverse of the cumulative softmax, at a uniform number u of the completion's own: the first token t
            # with p_1 + ... + p_t > u is t with probability p_t.
            mass = torch.softmax(logits, dim=-1).cumsum(-1)
            # Times the whole mass, which rounding leaves a little off 1.
            uniform = numbers[rows, step].to(mass.device) * mass[:, -1]
            # `right`, so that a token without probability is not drawn at u = 0. Rounding may take the product to the
            # whole mass, behind the last token.
            chosen = torch.searchsorted(mass, uniform[:, None], right=True).squeeze(-1).clamp(max=mass.shape[-1] - 1)
        if penalised_tokens is not None:
            penalised_tokens[rows, chosen] = True
        return chosen

    return choose


def token_log_likelihood(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    temperature: float = 1.0,
) -> torch.Tensor:
    """Log-probability in nats of each token, float64 [completions, longest]; equal prompts are read once.

    It is log softmax(logits / temperature), and 0 after a completion's end. Logits are computed for as many rows, and
    of those for as many positions, as fit the free memory.
    """
    longest = max(1, *map(len, completions))
    targets = torch.tensor(
        [[*tokens, *[_NONE] * (longest - len(tokens))] for tokens in completions], device=model.device
    )
    places = max(1, _most_logits(model.device) // model.config.get_text_config().vocab_size)
    parts = []
    for first in range(0, len(prompts), places):
        batch = targets[first : first + places]
        rows, logits = _prefill(model, prompts[first : first + places], None)
        columns = [_log_probability(logits[:, None], batch[:, :1], temperature)]
        known = batch[:, :-1] != _NONE
        # Any token may be read behind an end: no target there counts.
        read = batch[:, :-1].where(known, 0)
        mask = torch.cat([rows.mask, known.long()], dim=1)
        width, step = rows.mask.shape[1], places // len(batch)
        for start in range(0, read.shape[1], step):
            stop = min(start + step, read.shape[1])
            positions = rows.position[:, None] + torch.arange(start + 1, stop + 1, device=model.device)
            logits = _logits(model, read[:, start:stop], mask[:, : width + stop], positions, rows.cache, stop - start)
            columns.append(_log_probability(logits, batch[:, start + 1 : stop + 1], temperature))
        parts.append(torch.cat(columns, dim=1))
    return torch.cat(parts)


def _most_logits(device: torch.device) -> int:
    """Logits that may be held at once; a power of 2, so that equal runs seldom differ in the rounding of their sums."""
    if device.type != "cuda":
        return LOGITS_AT_ONCE
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free: int = torch.cuda.mem_get_info(device)[0] + kept
    return 1 << max(0, (free // _BYTES).bit_length() - 1)


def _log_probability(logits: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
    """The targets' log-probabilities [rows, positions]; of `logits` [rows, positions, vocabulary]."""
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float() / temperature, targets.flatten(), ignore_index=_NONE, reduction="none"
    )
    # Doubles from here: sums over a plan and differences of two policies come next.
    return -losses.view(targets.shape).double()


class _RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values with free memory behind them.

    A token is written behind the ones before it, where transformers copies all of them at every token: a third of the
    time of sampling from a small model on a processor.
    """

    keys: torch.Tensor
    values: torch.Tensor
    _memory: tuple[torch.Tensor, ...] = ()
    """Of keys and values, which are views of it."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        held, added = self.get_seq_length(), (key_states, value_states)
        whole = held + key_states.shape[-2]
        # Room for some tokens more than are needed now, so that a copy is made once in CACHE_ROOM tokens.
        if not self._memory or self._memory[0].shape[-2] < whole:
            self._memory = tuple(new.new_empty(*new.shape[:-2], whole + CACHE_ROOM, new.shape[-1]) for new in added)
            if held:
                for memory, old in zip(self._memory, (self.keys, self.values), strict=True):
                    memory[..., :held, :] = old
        for memory, new in zip(self._memory, added, strict=True):
            memory[..., held:whole, :] = new
        self.keys, self.values = (memory[..., :whole, :] for memory in self._memory)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        super().batch_select_indices(indices)
        # The selected rows are copies, and no views of the memory any more.
        self._memory = ()


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
    """Position of the last token [rows], or of the last patch of a clip before it."""
    cache: DynamicCache

    def read(self, model: PreTrainedModel, chosen: torch.Tensor, goes_on: torch.Tensor) -> torch.Tensor:
        """Logits [live, vocabulary] after the tokens `chosen` [live] of the completions that go on."""
        tokens = chosen.new_zeros(len(self.mask))
        tokens[self.live] = chosen
        self.live, self.completions = self.live[goes_on], self.completions[goes_on]
        # Rows that have ended cost a pass each, taking them out costs a copy of the cache.
        if len(self.live) <= (1 - _COMPACT) * len(self.mask):
            tokens = tokens[self.live]
            self.cache.batch_select_indices(self.live)
            self.mask, self.position = self.mask[self.live], self.position[self.live]
            self.live = torch.arange(len(self.live), device=self.live.device)
        self.position = self.position + 1
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=1)
        logits = _logits(model, tokens[:, None], self.mask, self.position[:, None], self.cache)[:, -1]
        return logits if len(self.live) == len(logits) else logits[self.live]


def _prefill(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], clips: Clips | None
) -> tuple[_Rows, torch.Tensor]:
    """A row for every prompt, behind one pass over the distinct ones, and its logits [prompts, vocabulary]."""
    pairs = [(tuple(prompt), clip) for prompt, clip in zip(prompts, clips or [None] * len(prompts), strict=True)]
    row_of = {pair: row for row, pair in enumerate(dict.fromkeys(pairs))}
    source = torch.tensor([row_of[pair] for pair in pairs], device=model.device)
    distinct, shown = [prompt for prompt, _ in row_of], [clip for _, clip in row_of]
    cache = DynamicCache(config=model.config)
    # A layer of another kind, such as one with a sliding window, stays as it is.
    cache.layers = [_RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    sees = hasattr(model.config, "vision_config")
    # With a clip the state of a head depends on the clip, and a sliding window forgets the head's beginning.
    whole = not sees and all(type(layer) is _RoomyLayer for layer in cache.layers)
    head = common_head(distinct) if whole and len(distinct) > 1 else 0
    if head < SHARED_HEAD:
        head = 0
    else:  # read once, by one row that all go on from
        tokens = torch.tensor([distinct[0][:head]], device=model.device)
        _logits(model, tokens, torch.ones_like(tokens), torch.arange(head, device=model.device)[None], cache)
        cache.batch_select_indices(torch.zeros(len(distinct), dtype=torch.long, device=model.device))
    # Padded on the left, so that all prompts end in the last column; the first ones hold the head, which is read.
    width = max(map(len, distinct))
    gaps = torch.tensor([width - len(prompt) for prompt in distinct], device=model.device)
    # Any token serves as padding: the mask hides it.
    padded = [[0] * (width - len(prompt)) + list(prompt) for prompt in distinct]
    tokens = torch.tensor(padded, device=model.device)
    columns = torch.arange(width, device=model.device)
    mask = ((columns < head) | (columns >= head + gaps[:, None])).long()
    if sees:
        positions = mrope_positions(model, tokens, mask, shown)
        last = positions.amax((0, 2))
    elif any(shown):
        raise InputError("The model reads no video; give one with a visual tower, such as a Qwen2.5-VL.")
    else:
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        last = positions[:, -1]
    embedded = _embedded(model, tokens, shown) if any(shown) else None
    if head:
        tokens, positions = tokens[:, head:], positions[:, head:]
    logits = _logits(model, tokens, mask, positions, cache, embedded=embedded)[:, -1]
    cache.batch_select_indices(source)
    every = torch.arange(len(source), device=model.device)
    return _Rows(every, every, mask[source], last[source], cache), logits[source]


def common_head(prompts: Sequence[Sequence[int]]) -> int:
    """How many tokens all prompts begin with, fewer than the shortest has: its last token has logits of its own.

    >>> common_head([[1, 2, 3], [1, 2, 4, 5]]), common_head([[1, 2], [1, 2]]), common_head([[1], [2]])
    (2, 1, 0)
    """
    # What the first and the last prompt in order begin with, all begin with.
    least, most, longest = min(map(list, prompts)), max(map(list, prompts)), min(map(len, prompts)) - 1
    return next((at for at in range(longest) if least[at] != most[at]), longest)


def clip_batches(clips: Iterable[Patches]) -> list[list[Patches]]:
    """The different clips in batches that are encoded together, each with at least one."""
    batches: list[list[Patches]] = []
    held = 0
    for clip in dict.fromkeys(clips):
        if not batches or held + len(clip.pixels) > _PATCHES:
            batches.append([])
            held = 0
        batches[-1].append(clip)
        held += len(clip.pixels)
    return batches


def _embedded(model: PreTrainedModel, tokens: torch.Tensor, clips: Clips) -> torch.Tensor:
    """Inputs of the decoder [rows, positions, width]: words, and in place of video tokens the rows' clips."""
    words = model.get_input_embeddings()(tokens)
    encoded: dict[Patches, torch.Tensor] = {}
    for batch in clip_batches(clip for clip in clips if clip is not None):
        pixels = torch.cat([clip.pixels for clip in batch]).to(model.device)
        grids = torch.tensor([clip.grid for clip in batch], device=model.device)
        encoded.update(zip(batch, model.get_video_features(pixels, grids).pooler_output, strict=True))
    patches = torch.cat([encoded[clip] for clip in clips if clip is not None])
    places = (tokens == model.config.video_token_id)[..., None]
    return words.masked_scatter(places, patches.to(words.dtype))


def _logits(
    model: PreTrainedModel,
    tokens: torch.Tensor,
    mask: torch.Tensor,
    positions: torch.Tensor,
    cache: DynamicCache,
    keep: int = 1,
    embedded: torch.Tensor | None = None,
) -> torch.Tensor:
    """Logits [rows, keep, vocabulary] after the last tokens; the cache grows by `tokens` [rows, new].

    The kept positions are given one by one: what a range cuts out is strided, and on a CPU a strided input makes
    torch copy the output matrix for every row (half a second for 32 rows at 49,152 words of 576 numbers).
    `positions` are [rows, new] or, with a clip, [3, rows, new]; `embedded` takes the place of the tokens' embeddings.
    """
    read = {"input_ids": tokens} if embedded is None else {"inputs_embeds": embedded}
    width = tokens.shape[1]
    return model(
        **read,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=torch.arange(width - keep, width, device=tokens.device),
    ).logits
