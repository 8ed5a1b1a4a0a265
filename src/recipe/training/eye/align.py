"""The last lesson before planning: the decoder learns to go on from a history that is shown instead of written.

The base model's careless texts are taught once more, nine batches of ten with the history as a clip, each time drawn
anew. The decoder learns at full pace, the merger slowly, since it forgets what it has learnt at the decoder's, and the
tower rests. The decoder meets M-RoPE's positions here for the first time.

The system turn is read once a batch and carries no loss, as in `recipe.training.base`.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import DynamicCache

from recipe.checkpoints import Checkpoint
from recipe.progress import Advance
from recipe.text import format_plan, planner_messages
from recipe.training.eye.attributes import look
from recipe.training.eye.optimiser import Group, Row, Schedule, optimise
from recipe.training.eye.tower import Eye, eye_of
from recipe.training.tokenizer import chat_text
from recipe.types import Example
from recipe.vision import Patches, mrope_positions
from recipe.world.frames import PAIR, RATE, SIZE, Painter, generator, spread
from recipe.world.frames_clips import history_steps
from recipe.world.graph import World


@dataclass(frozen=True, slots=True)
class Told:
    """An example in tokens, without the common head."""

    before: list[int]
    """From after the head to where the history goes."""
    written: list[int]
    """The history as text, or nothing for one that is shown."""
    shown: tuple[str, ...]
    """Step ids of the history, to be drawn."""
    after: list[int]
    """From the end of the history to where the answer begins."""
    answer: list[int]


@dataclass(frozen=True, slots=True)
class Lessons:
    """All examples of one kind, shortest first, and what all of them begin with."""

    head: list[int]
    told: list[Told]


def align(
    checkpoint: Checkpoint,
    world: World,
    painter: Painter,
    examples: Sequence[Example],
    schedule: Schedule,
    *,
    rate: float,
    merger_rate: float,
    text_share: float,
    batch: int,
    seed: int,
    advance: Advance,
) -> list[Row]:
    """Train decoder and merger of a video model in place; returns a row a step. Raises ConfigError without a tower,
    and InputError for a history that cannot be drawn."""
    model = checkpoint.model
    shown = lessons(checkpoint, world, examples, shown=True)
    few = examples[: max(batch, round(text_share * len(examples)))]
    written = lessons(checkpoint, world, few, shown=False)
    eye = eye_of(checkpoint)
    tower = eye.tower
    for weight in tower.parameters():
        weight.requires_grad_(False)
    merger = list(tower.merger.parameters())
    for weight in merger:
        weight.requires_grad_(True)
    decoder = [weight for name, weight in model.named_parameters() if ".visual." not in name]

    def losses() -> Iterator[torch.Tensor]:
        rng, draw = random.Random(f"align {seed}"), generator(("align", seed))
        starts: list[int] = []
        while True:
            kind = written if rng.random() < text_share else shown
            last = max(0, len(kind.told) - batch)
            if kind is shown and not starts:
                starts = list(range(0, last + 1, batch))
                rng.shuffle(starts)
            start = starts.pop() if kind is shown else rng.randint(0, last)
            yield batch_loss(model, eye, painter, kind.head, kind.told[start : start + batch], rng, draw)

    model.train()
    rows = optimise([Group(decoder, rate), Group(merger, merger_rate)], losses, schedule, advance)
    model.eval()
    for weight in tower.parameters():
        weight.requires_grad_(True)
    return rows


def lessons(checkpoint: Checkpoint, world: World, examples: Sequence[Example], *, shown: bool) -> Lessons:
    """The examples as chats whose history is shown, or written."""
    tokenizer = checkpoint.tokenizer
    told, opening = [], ""
    for example in examples:
        chat = planner_messages(example.goal, example.history)
        opening = opening or chat_text(tokenizer, chat[:1]) + "<|im_start|>user\n"
        history = format_plan(example.history)
        before, after = chat_text(tokenizer, chat, ask=True).removeprefix(opening).split(history)
        answer = format_plan(example.continuation) + tokenizer.eos_token
        if shown:
            before, after = f"{before}<|vision_start|>", f"<|vision_end|>{after}"
        parts = tokenizer([before, history, after, answer], add_special_tokens=False)["input_ids"]
        steps = history_steps(world, example) if shown else ()
        told.append(Told(parts[0], [] if shown else parts[1], steps, parts[2], parts[3]))
    head = tokenizer(opening, add_special_tokens=False)["input_ids"]
    return Lessons(head, sorted(told, key=lambda one: len(one.answer) + len(one.written) + len(one.shown)))


def batch_loss(
    model: Any,
    eye: Eye,
    painter: Painter,
    head: Sequence[int],
    told: Sequence[Told],
    rng: random.Random,
    draw: torch.Generator,
) -> torch.Tensor:
    """Mean cross-entropy of the answers' tokens."""
    video: int = model.config.video_token_id
    pairs = [spread(one.shown, rng) for one in told]
    shown = [step for own in pairs for step in own]
    features = look(eye, painter.pairs(shown, draw)) if shown else None
    slots = features.shape[1] if features is not None else 0
    rows = [
        [*one.before, *one.written, *[video] * (slots * len(own)), *one.after, *one.answer]
        for one, own in zip(told, pairs, strict=True)
    ]
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    labels = torch.full_like(ids, -100)
    for index, (row, one) in enumerate(zip(rows, told, strict=True)):
        labels[index, len(row) - len(one.answer) : len(row)] = torch.tensor(one.answer)
    clips = [_clip(eye, len(own)) if own else None for own in pairs]
    hidden = _read(model, list(head), ids, mask, features, clips)
    wanted = labels[:, 1:]
    scored = wanted != -100
    return cross_entropy(model.lm_head(hidden[:, :-1][scored]).float(), wanted[scored])


def _clip(eye: Eye, pairs: int) -> Patches:
    """What positions need to know of a drawn clip; its pixels have been seen already."""
    grid = eye.processor.grid(pairs * PAIR, SIZE, SIZE)
    return Patches(torch.empty(0), grid, eye.processor.temporal_patch_size / RATE)


def _read(
    model: Any,
    head: list[int],
    ids: torch.Tensor,
    mask: torch.Tensor,
    features: torch.Tensor | None,
    clips: Sequence[Patches | None],
) -> torch.Tensor:
    """Hidden states [B, L, width] of `ids` after the head, with M-RoPE's positions as generation computes them."""
    decoder, count = model.model.language_model, len(ids)
    whole = torch.cat([torch.tensor([head]).expand(count, -1), ids], 1)
    real = torch.cat([torch.ones(count, len(head), dtype=mask.dtype), mask], 1)
    positions = mrope_positions(model, whole, real, clips)
    embedded = decoder.embed_tokens(ids)
    if features is not None:
        place = (ids == model.config.video_token_id)[..., None].expand_as(embedded)
        embedded = embedded.masked_scatter(place, features.to(embedded.dtype))
    cache = DynamicCache()
    first = positions[:, :1, : len(head)]
    decoder(input_ids=torch.tensor([head]), position_ids=first, past_key_values=cache, use_cache=True)
    cache.batch_repeat_interleave(count)
    # Padding needs no mask: it stands on the right, where causal attention never looks back from a real token.
    rest = decoder(
        inputs_embeds=embedded, position_ids=positions[:, :, len(head) :], past_key_values=cache, use_cache=True
    )
    states: torch.Tensor = rest.last_hidden_state
    return states
