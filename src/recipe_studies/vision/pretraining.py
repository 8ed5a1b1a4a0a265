"""Vision pre-training of a small visual tower, in three stages, before SFT and GRPO.

attributes  the tower and its merger learn which symbols a pair of frames holds, without a language model
words       the tokens of a pair learn to lie at the embeddings of the step's words, with the decoder frozen
alignment   the decoder learns to plan from clips; the merger learns slowly and the tower is frozen
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy, normalize
from transformers import DynamicCache, PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

from recipe.errors import ConfigError
from recipe.models.checkpoints import Checkpoint, chat_text, end_of_turn
from recipe.models.devices import use_bf16
from recipe.models.vision import Patches, VideoProcessor, fast_vision, mrope_positions
from recipe.progress import Advance
from recipe.text import format_plan, planner_messages
from recipe.training.base import train_tokenizer
from recipe.training.loop import check_gradient
from recipe.types import Example
from recipe.world.clips import history_steps
from recipe.world.frames import PAIR, RATE, SIZE, SIZES, Painter, Style, generator, spread
from recipe.world.graph import World
from recipe_studies.vision.video_model import VisionShape, build_video_model

FLOOR = 0.03
"""The cosine ends at this share of the peak."""
WEIGHTS = "tower.safetensors"
STOP_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "by", "down", "for", "from", "in", "into", "is", "it", "its",
    "of", "off", "on", "onto", "out", "over", "that", "the", "to", "until", "up", "with",
))  # fmt: skip

# Width of an attention head.
_HEAD = 32
# Factor of the cosines in the softmax over the vocabulary.
_SHARPNESS = 16.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Length of a stage, its learning-rate schedule and precision."""

    steps: int
    warmup: int = 50
    """Steps in which the rates rise."""
    bf16: bool = True

    def share(self, step: int) -> float:
        """The share of the peak rate at a step, counted from 0."""
        # Linear warm-up, then half a cosine (arXiv 1608.03983) from 1 to FLOOR.
        cosine = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return min(1.0, (step + 1) / self.warmup) * (FLOOR + (1 - FLOOR) * cosine)


def optimise(
    groups: Sequence[tuple[Sequence[torch.nn.Parameter], float]],
    batch_losses: Callable[[], Iterator[torch.Tensor]],
    schedule: Schedule,
    advance: Advance,
    second_moment: float = 0.95,
) -> list[float]:
    """Minimise `batch_losses`, one a step, with AdamW, warm-up and cosine; returns the loss of each step.

    `groups` are weights and their peak rate. Gradients are clipped at norm 1. Raises ComputeError where a gradient
    is not finite.
    """
    every = [weight for weights, _ in groups for weight in weights]
    optimiser = torch.optim.AdamW(
        [{"params": list(weights), "lr": rate} for weights, rate in groups],
        betas=(0.9, second_moment),
        weight_decay=0.05,
        fused=True,
    )
    losses, seen, bf16 = batch_losses(), list[float](), use_bf16(schedule.bf16)
    for step in range(schedule.steps):
        for (_, rate), group in zip(groups, optimiser.param_groups, strict=True):
            group["lr"] = rate * schedule.share(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = next(losses)
        loss.backward()
        check_gradient(torch.nn.utils.clip_grad_norm_(every, 1.0), step + 1)
        optimiser.step()
        optimiser.zero_grad()
        seen.append(loss.item())
        advance(1)
    return seen


@dataclass(frozen=True, slots=True)
class VisualTower:
    """A visual tower with its merger, and what turns frames into its patches."""

    model: Any
    processor: VideoProcessor

    def save(self, folder: Path) -> None:
        """Write the weights into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.model.state_dict(), folder / WEIGHTS)

    def load(self, folder: Path) -> None:
        """Put saved weights, of a tower of the same shape, into this one."""
        self.model.load_state_dict(load_file(folder / WEIGHTS))

    def encode_pairs(self, pairs: torch.Tensor) -> torch.Tensor:
        """Tokens [pairs, tokens, width] of pairs uint8 [pairs, 2, H, W, 3]; each pair is encoded on its own."""
        pixels = self.processor.pixels(pairs).flatten(0, 1)
        high, wide = self.processor.grid(*pairs.shape[1:4])[1:]
        merged: torch.Tensor = self.model(pixels, grid_thw=torch.tensor([[len(pairs), high, wide]])).pooler_output
        return merged.view(len(pairs), -1, merged.shape[-1])


def new_tower(shape: VisionShape, width: int, seed: int) -> VisualTower:
    """A tower with fresh weights whose tokens are `width` wide, equal to one built onto a language model so wide."""
    heads = max(1, width // _HEAD)
    # What it is built onto is thrown away: one layer, and a tokenizer that knows the video's tokens and little else.
    vocabulary = 512
    stand_in = Qwen2ForCausalLM._from_config(
        Qwen2Config(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=width,
            num_hidden_layers=1,
            num_attention_heads=heads,
            num_key_value_heads=heads,
        )
    )
    return tower_of(build_video_model(Checkpoint(stand_in, train_tokenizer([], vocabulary, 1)), shape, seed))


def tower_of(checkpoint: Checkpoint) -> VisualTower:
    """The tower of a video model, whose vision it makes fast. Raises ConfigError where the model reads text only."""
    if checkpoint.video is None:
        raise ConfigError("The model has no visual tower; build one onto it.")
    fast_vision(checkpoint.model)
    return VisualTower(checkpoint.model.model.visual, checkpoint.video)


class Heads(torch.nn.Module):  # type: ignore[misc]
    """Logits of each part of a code from a pair's tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList([torch.nn.Linear(width, size) for size in SIZES])

    def forward(self, features: torch.Tensor) -> list[torch.Tensor]:
        return [head(features) for head in self.parts]


def train_attributes(
    tower: VisualTower, painter: Painter, schedule: Schedule, *, rate: float, batch: int, seed: int, advance: Advance
) -> tuple[Heads, list[float]]:
    """Train the tower, in place, to tell the parts of a step's code (shape, colour, border, tool, motion, tone).

    Pairs of steps are drawn evenly. Returns the linear heads, one a part, and the loss of each step.
    """
    steps = list(painter.codes)
    codes = torch.tensor([painter.codes[step] for step in steps])
    torch.manual_seed(seed)
    # One pair is encoded to see how wide its tokens are together.
    heads = Heads(tower.encode_pairs(painter.pairs(steps[:1], generator(seed))).flatten(1).shape[1])

    def losses() -> Iterator[torch.Tensor]:
        rng, draw = random.Random(f"attributes {seed}"), generator(("attributes", seed))
        while True:
            drawn = [rng.randrange(len(steps)) for _ in range(batch)]
            pairs = painter.pairs([steps[index] for index in drawn], draw)
            parts = heads(tower.encode_pairs(pairs).flatten(1))
            wanted = codes[drawn].T
            yield torch.stack([cross_entropy(p.float(), w) for p, w in zip(parts, wanted, strict=True)]).sum()

    tower.model.train()
    seen = optimise([([*tower.model.parameters(), *heads.parameters()], rate)], losses, schedule, advance, 0.98)
    tower.model.eval()
    return heads, seen


def pair_accuracy(tower: VisualTower, heads: Heads, painter: Painter, style: Style, count: int = 400) -> float:
    """The share of `count` pairs not trained on, of evenly many steps, whose parts the heads all recognise."""
    steps = list(painter.codes)
    shown = [steps[index % len(steps)] for index in range(count)]
    codes = torch.tensor([painter.codes[step] for step in shown])
    with torch.no_grad():
        parts = heads(tower.encode_pairs(painter.pairs(shown, generator(("seen", style)), style)).flatten(1))
    right = torch.stack([logits.argmax(-1) for logits in parts], 1) == codes
    return float(right.all(1).float().mean())


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words that the tokens of each step are trained to stand for."""

    steps: tuple[str, ...]
    tokens: torch.Tensor
    """Token ids [steps, slots]."""

    @classmethod
    def of(cls, wordings: Mapping[str, Sequence[str]], tokenizer: PreTrainedTokenizerBase, slots: int) -> "Vocabulary":
        """For each step the tokens of its usual wording's content words, the rarest `slots` in their order.

        Too few are filled up with line ends.
        """
        texts = [
            " " + " ".join(word for word in known[0].split() if word not in STOP_WORDS) for known in wordings.values()
        ]
        encoded: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
        used = Counter(token for tokens in encoded for token in set(tokens))
        filler: int = tokenizer("\n", add_special_tokens=False)["input_ids"][0]

        rows = []
        for tokens in encoded:
            rarest = sorted(sorted(range(len(tokens)), key=[used[token] for token in tokens].__getitem__)[:slots])
            rows.append([*(tokens[index] for index in rarest), *[filler] * (slots - len(rarest))])
        return cls(tuple(wordings), torch.tensor(rows))


def train_words(
    checkpoint: Checkpoint,
    painter: Painter,
    vocabulary: Vocabulary,
    schedule: Schedule,
    *,
    rate: float,
    batch: int,
    seed: int,
    advance: Advance,
) -> list[float]:
    """Train the tower and the merger of a video model in place, not its decoder. Returns the loss of each step.

    The tokens of a pair regress the frozen embeddings of the step's words, and must each be nearer to their word than
    to any other of the vocabulary. Without this stage a decoder never learns to read the tokens: the first stage leaves
    them far from any embedding. Raises ConfigError where the model reads text only.
    """
    tower = tower_of(checkpoint)
    embeddings = checkpoint.model.get_input_embeddings().weight.detach()
    scale = embeddings.pow(2).mean()
    # The first stage's tokens are large and point anywhere: the last layer starts anew, at the words' scale.
    last = tower.model.merger.mlp[2]
    torch.manual_seed(seed)
    torch.nn.init.normal_(last.weight, std=float(scale.sqrt()) / last.in_features**0.5)
    torch.nn.init.zeros_(last.bias)

    def losses() -> Iterator[torch.Tensor]:
        rng, draw = random.Random(f"words {seed}"), generator(("words", seed))
        while True:
            drawn = [rng.randrange(len(vocabulary.steps)) for _ in range(batch)]
            pairs = painter.pairs([vocabulary.steps[index] for index in drawn], draw)
            tokens, wanted = tower.encode_pairs(pairs).float(), vocabulary.tokens[drawn]
            distance = (tokens - embeddings[wanted]).pow(2).mean() / scale
            yield distance + cross_entropy(_SHARPNESS * cosines(tokens, embeddings).flatten(0, 1), wanted.flatten())

    tower.model.train()
    seen = optimise([([*tower.model.parameters()], rate)], losses, schedule, advance, 0.98)
    tower.model.eval()
    return seen


def cosines(tokens: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
    """Cosine of every token [..., width] with every word of the vocabulary: [..., words]."""
    return normalize(tokens, dim=-1) @ normalize(embeddings, dim=-1).T


def word_accuracy(
    checkpoint: Checkpoint, painter: Painter, vocabulary: Vocabulary, style: Style, count: int = 400
) -> float:
    """The share of the tokens of pairs not trained on whose nearest word is the right one."""
    chosen = [index % len(vocabulary.steps) for index in range(count)]
    shown = [vocabulary.steps[index] for index in chosen]
    with torch.no_grad():
        tokens = tower_of(checkpoint).encode_pairs(painter.pairs(shown, generator(("said", style)), style))
        nearest = cosines(tokens, checkpoint.model.get_input_embeddings().weight).argmax(-1)
    return float((nearest == vocabulary.tokens[chosen]).float().mean())


@dataclass(frozen=True, slots=True)
class TokenisedExample:
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


def _freeze_tower(checkpoint: Checkpoint) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """Freeze the tower of a video model but for its merger; returns the weights of the decoder and of the merger."""
    visual = tower_of(checkpoint).model
    for weight in visual.parameters():
        weight.requires_grad_(False)
    merger = list(visual.merger.parameters())
    for weight in merger:
        weight.requires_grad_(True)
    return [weight for name, weight in checkpoint.model.named_parameters() if ".visual." not in name], merger


def align_decoder(
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
) -> list[float]:
    """Train the decoder and the merger of a video model in place to plan from histories; returns the loss of each step.

    A history is shown as a clip, drawn anew each time, or written in a batch of every `text_share`. The merger has its
    own, lower rate, since it forgets what it has learnt at the decoder's; the tower is frozen. The decoder meets
    M-RoPE's positions here for the first time. Raises ConfigError without a tower, and InputError for a history that
    cannot be drawn.
    """
    model = checkpoint.model
    head, shown = tokenise_examples(checkpoint, world, examples, shown=True)
    few = examples[: max(batch, round(text_share * len(examples)))]
    _, written = tokenise_examples(checkpoint, world, few, shown=False)
    tower = tower_of(checkpoint)
    decoder, merger = _freeze_tower(checkpoint)

    def losses() -> Iterator[torch.Tensor]:
        rng, draw = random.Random(f"align {seed}"), generator(("align", seed))
        starts: list[int] = []
        while True:
            kind = written if rng.random() < text_share else shown
            last = max(0, len(kind) - batch)
            if kind is shown and not starts:
                starts = list(range(0, last + 1, batch))
                rng.shuffle(starts)
            start = starts.pop() if kind is shown else rng.randint(0, last)
            yield batch_loss(model, tower, painter, head, kind[start : start + batch], rng, draw)

    model.train()
    seen = optimise([(decoder, rate), (merger, merger_rate)], losses, schedule, advance)
    model.eval()
    for weight in tower.model.parameters():
        weight.requires_grad_(True)
    return seen


def tokenise_examples(
    checkpoint: Checkpoint, world: World, examples: Sequence[Example], *, shown: bool
) -> tuple[list[int], list[TokenisedExample]]:
    """What all chats begin with, and each example as a chat whose history is shown or written, shortest first."""
    tokenizer, end = checkpoint.tokenizer, end_of_turn(checkpoint.tokenizer).token
    rows, opening = [], ""
    for example in examples:
        chat = planner_messages(example.goal, example.history)
        opening = opening or chat_text(tokenizer, chat[:1]) + "<|im_start|>user\n"
        history = format_plan(example.history)
        before, after = chat_text(tokenizer, chat, ask=True).removeprefix(opening).split(history)
        answer = format_plan(example.continuation) + end
        if shown:
            before, after = f"{before}<|vision_start|>", f"<|vision_end|>{after}"
        parts = tokenizer([before, history, after, answer], add_special_tokens=False)["input_ids"]
        steps = history_steps(world, example) if shown else ()
        rows.append(TokenisedExample(parts[0], [] if shown else parts[1], steps, parts[2], parts[3]))
    head = tokenizer(opening, add_special_tokens=False)["input_ids"]
    return head, sorted(rows, key=lambda row: len(row.answer) + len(row.written) + len(row.shown))


def batch_loss(
    model: Any,
    tower: VisualTower,
    painter: Painter,
    head: Sequence[int],
    examples: Sequence[TokenisedExample],
    rng: random.Random,
    draw: torch.Generator,
) -> torch.Tensor:
    """Mean cross-entropy of the answers' tokens; the head is read once and carries no loss (`recipe.training.base`)."""
    video: int = model.config.video_token_id
    pairs = [spread(example.shown, rng) for example in examples]
    shown = [step for own in pairs for step in own]
    features = tower.encode_pairs(painter.pairs(shown, draw)) if shown else None
    slots = features.shape[1] if features is not None else 0
    rows = [
        [*example.before, *example.written, *[video] * (slots * len(own)), *example.after, *example.answer]
        for example, own in zip(examples, pairs, strict=True)
    ]
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    # The value that marks tokens without a loss, in transformers as here.
    labels = torch.full_like(ids, -100)
    for index, (row, example) in enumerate(zip(rows, examples, strict=True)):
        labels[index, len(row) - len(example.answer) : len(row)] = torch.tensor(example.answer)
    # What positions need to know of a drawn clip; its pixels are encoded already.
    seconds = tower.processor.temporal_patch_size / RATE
    clips = [
        Patches(torch.empty(0), tower.processor.grid(len(own) * PAIR, SIZE, SIZE), seconds) if own else None
        for own in pairs
    ]
    # The head is read once; positions are M-RoPE's, as generation computes them.
    decoder, count = model.model.language_model, len(ids)
    whole = torch.cat([torch.tensor([list(head)]).expand(count, -1), ids], 1)
    real = torch.cat([torch.ones(count, len(head), dtype=mask.dtype), mask], 1)
    positions = mrope_positions(model, whole, real, clips)
    embedded = decoder.embed_tokens(ids)
    if features is not None:
        is_video = (ids == video)[..., None].expand_as(embedded)
        embedded = embedded.masked_scatter(is_video, features.to(embedded.dtype))
    cache = DynamicCache()
    first = positions[:, :1, : len(head)]
    # One row: the head is the same in all chats, and is read once for all of them.
    decoder(input_ids=torch.tensor([list(head)]), position_ids=first, past_key_values=cache, use_cache=True)
    cache.batch_repeat_interleave(count)
    # Padding needs no mask: it stands on the right, where causal attention never looks back from a real token.
    hidden = decoder(
        inputs_embeds=embedded, position_ids=positions[:, :, len(head) :], past_key_values=cache, use_cache=True
    ).last_hidden_state
    wanted = labels[:, 1:]
    scored = wanted != -100
    return cross_entropy(model.lm_head(hidden[:, :-1][scored]).float(), wanted[scored])
