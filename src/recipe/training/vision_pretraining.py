"""Vision pre-training of a small visual tower: parts of pictures, then words, then whole clips."""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy, normalize
from transformers import DynamicCache, PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

from recipe.errors import ComputeError, ConfigError
from recipe.models.checkpoints import Checkpoint
from recipe.models.vision import Patches, VideoProcessor, fast_vision, mrope_positions
from recipe.progress import Advance
from recipe.text import format_plan, planner_messages
from recipe.training.base import chat_text, train_tokenizer
from recipe.training.video_model import VisionShape, build_video_model
from recipe.types import Example
from recipe.world.clips import history_steps
from recipe.world.frames import PAIR, RATE, SIZE, SIZES, Painter, Style, generator, spread
from recipe.world.graph import World

# One optimiser for all that the eye learns: AdamW in groups of their own learning rates, warm-up and cosine.


FLOOR = 0.03
"""The cosine ends at this share of the peak."""

Row = dict[str, float]


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and in what strides something is learnt."""

    steps: int
    warmup: int = 50
    """Steps in which the rates rise."""
    bf16: bool = True

    def share(self, step: int) -> float:
        """The share of the peak rate at a step, counted from 0."""
        cosine = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return min(1.0, (step + 1) / self.warmup) * (FLOOR + (1 - FLOOR) * cosine)


@dataclass(frozen=True, slots=True)
class Group:
    """Weights that learn at one peak rate."""

    weights: Sequence[torch.nn.Parameter]
    rate: float


def optimise(
    groups: Iterable[Group],
    batch_losses: Callable[[], Iterator[torch.Tensor]],
    schedule: Schedule,
    advance: Advance,
    second_moment: float = 0.95,
) -> list[Row]:
    """Take `schedule.steps` losses from `batch_losses`, one a step, and descend; returns a row a step.

    Gradients are clipped at norm 1. Raises ComputeError where a loss is no longer finite.
    """
    groups = list(groups)
    weights = [weight for group in groups for weight in group.weights]
    optimiser = torch.optim.AdamW(
        [{"params": list(group.weights), "lr": group.rate} for group in groups],
        betas=(0.9, second_moment),
        weight_decay=0.05,
        fused=True,
    )
    losses, rows = batch_losses(), []
    for step in range(schedule.steps):
        for group, target in zip(groups, optimiser.param_groups, strict=True):
            target["lr"] = group.rate * schedule.share(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=schedule.bf16):
            loss = next(losses)
        if not torch.isfinite(loss):
            raise ComputeError("Training diverged: the loss is no longer finite; lower the learning rate.")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        rows.append({"step": step + 1, "loss": round(loss.item(), 5)})
        advance(1)
    return rows


# A visual tower by itself, so that it can learn to see while there is no language model yet.


WEIGHTS = "tower.safetensors"
_HEAD = 32
_WORDS = 512


@dataclass(frozen=True, slots=True)
class Eye:
    """A visual tower with its merger, and what turns frames into its patches."""

    tower: Any
    processor: VideoProcessor


def new_eye(shape: VisionShape, width: int, seed: int) -> Eye:
    """An eye with fresh weights whose tokens are `width` wide, just as one built onto a language model so wide."""
    heads = max(1, width // _HEAD)
    # What it is built onto is thrown away: one layer, and a tokenizer that knows the video's tokens and little else.
    stand_in = Qwen2ForCausalLM._from_config(
        Qwen2Config(
            vocab_size=_WORDS,
            hidden_size=width,
            intermediate_size=width,
            num_hidden_layers=1,
            num_attention_heads=heads,
            num_key_value_heads=heads,
        )
    )
    return eye_of(build_video_model(Checkpoint(stand_in, train_tokenizer([], _WORDS, 1)), shape, seed))


def eye_of(checkpoint: Checkpoint) -> Eye:
    """The eye of a video model, which from here on sees fast. Raises ConfigError where the model reads text only."""
    if checkpoint.video is None:
        raise ConfigError("The model has no visual tower; build one onto it.")
    fast_vision(checkpoint.model)
    return Eye(checkpoint.model.model.visual, checkpoint.video)


def save_eye(eye: Eye, folder: Path) -> None:
    """Write the weights into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(eye.tower.state_dict(), folder / WEIGHTS)


def load_eye(eye: Eye, folder: Path) -> None:
    """Put saved weights into an eye of the same shape."""
    eye.tower.load_state_dict(load_file(folder / WEIGHTS))


# The first lesson of the eye: which symbols a pair of frames holds.
#
# The tower and its merger are trained with a linear head for each part of a step's code (shape, colour, border, tool,
# motion, tone); the heads are thrown away. It needs no language model, and runs beside the training of one.


@dataclass(frozen=True, slots=True)
class Seen:
    """Shares of single pairs whose parts were told right."""

    parts: tuple[float, ...]
    """In the order of a Code."""
    whole: float
    """All parts of the pair."""


class Heads(torch.nn.Module):  # type: ignore[misc]
    """Logits of each part of a code from a pair's tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList([torch.nn.Linear(width, size) for size in SIZES])

    def forward(self, features: torch.Tensor) -> list[torch.Tensor]:
        return [head(features) for head in self.parts]


def look(eye: Eye, pairs: torch.Tensor) -> torch.Tensor:
    """The eye's tokens [pairs, tokens, width] of pairs uint8 [pairs, 2, H, W, 3]; each is seen on its own."""
    pixels = eye.processor.pixels(pairs).flatten(0, 1)
    high, wide = eye.processor.grid(*pairs.shape[1:4])[1:]
    merged: torch.Tensor = eye.tower(pixels, grid_thw=torch.tensor([[len(pairs), high, wide]])).pooler_output
    return merged.view(len(pairs), -1, merged.shape[-1])


def learn_attributes(
    eye: Eye,
    painter: Painter,
    schedule: Schedule,
    *,
    rate: float,
    batch: int,
    seed: int,
    advance: Advance,
) -> tuple[Heads, list[Row]]:
    """Train the eye, in place, on pairs of steps drawn evenly; returns the heads and a row a step."""
    steps = list(painter.codes)
    codes = torch.tensor([painter.codes[step] for step in steps])
    torch.manual_seed(seed)
    heads = Heads(look(eye, painter.pairs(steps[:1], generator(seed))).flatten(1).shape[1])

    def losses() -> Iterator[torch.Tensor]:
        rng, draw = random.Random(f"attributes {seed}"), generator(("attributes", seed))
        while True:
            drawn = [rng.randrange(len(steps)) for _ in range(batch)]
            pairs = painter.pairs([steps[index] for index in drawn], draw)
            told = heads(look(eye, pairs).flatten(1))
            yield sum_losses(told, codes[drawn])

    eye.tower.train()
    rows = optimise([Group([*eye.tower.parameters(), *heads.parameters()], rate)], losses, schedule, advance, 0.98)
    eye.tower.eval()
    return heads, rows


def sum_losses(told: Sequence[torch.Tensor], codes: torch.Tensor) -> torch.Tensor:
    """Cross-entropies of all parts, added; `told` [parts][N, size], `codes` [N, parts]."""
    return torch.stack([cross_entropy(logits.float(), codes[:, part]) for part, logits in enumerate(told)]).sum()


def seen(eye: Eye, heads: Heads, painter: Painter, style: Style, count: int = 400) -> Seen:
    """How often the parts of pairs that were not trained on are told right, over `count` pairs of evenly many steps."""
    steps = list(painter.codes)
    shown = [steps[index % len(steps)] for index in range(count)]
    codes = torch.tensor([painter.codes[step] for step in shown])
    with torch.no_grad():
        told = heads(look(eye, painter.pairs(shown, generator(("seen", style)), style)).flatten(1))
    right = torch.stack([logits.argmax(-1) for logits in told], 1) == codes
    return Seen(tuple(right.float().mean(0).tolist()), float(right.all(1).float().mean()))


# The second lesson of the eye: to say what it sees in the language model's own words.
#
# The tokens of a pair of frames regress the frozen embeddings of the step's content words, and must each be nearer to
# their word than to any other of the vocabulary. Without this lesson a decoder never learns to read the tokens: what
# the first lesson leaves in them lies far from anything that it has met.


STOP_WORDS = frozenset(
    (
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "down",
        "for",
        "from",
        "in",
        "into",
        "is",
        "it",
        "its",
        "of",
        "off",
        "on",
        "onto",
        "out",
        "over",
        "that",
        "the",
        "to",
        "until",
        "up",
        "with",
    )
)
_SHARPNESS = 16.0
"""Factor of the cosines in the softmax over the vocabulary."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words that each step is to be seen as."""

    steps: tuple[str, ...]
    tokens: torch.Tensor
    """Token ids [steps, slots]."""


def words_of_steps(wordings: Mapping[str, Sequence[str]], tokenizer: PreTrainedTokenizerBase, slots: int) -> Vocabulary:
    """For each step the tokens of its usual wording's content words, the rarest `slots` in their order.

    Too few are filled up with line ends.
    """
    texts = [" " + " ".join(word for word in known[0].split() if word not in STOP_WORDS) for known in wordings.values()]
    encoded: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
    used = Counter(token for tokens in encoded for token in set(tokens))
    filler: int = tokenizer("\n", add_special_tokens=False)["input_ids"][0]

    def rarest(tokens: Sequence[int]) -> list[int]:
        kept = sorted(sorted(range(len(tokens)), key=lambda place: used[tokens[place]])[:slots])
        return [*(tokens[place] for place in kept), *[filler] * (slots - len(kept))]

    return Vocabulary(tuple(wordings), torch.tensor([rarest(tokens) for tokens in encoded]))


def learn_words(
    checkpoint: Checkpoint,
    painter: Painter,
    vocabulary: Vocabulary,
    schedule: Schedule,
    *,
    rate: float,
    batch: int,
    seed: int,
    advance: Advance,
) -> list[Row]:
    """Train the tower and the merger of a video model in place; its decoder is not touched. Returns a row a step.

    Raises ConfigError where the model reads text only.
    """
    eye = eye_of(checkpoint)
    embeddings = checkpoint.model.get_input_embeddings().weight.detach()
    scale = embeddings.pow(2).mean()
    # The first lesson's tokens are large and point anywhere: the last layer starts from nothing, at the words' scale.
    last = eye.tower.merger.mlp[2]
    torch.manual_seed(seed)
    torch.nn.init.normal_(last.weight, std=float(scale.sqrt()) / last.in_features**0.5)
    torch.nn.init.zeros_(last.bias)

    def losses() -> Iterator[torch.Tensor]:
        rng, draw = random.Random(f"words {seed}"), generator(("words", seed))
        while True:
            drawn = [rng.randrange(len(vocabulary.steps)) for _ in range(batch)]
            pairs = painter.pairs([vocabulary.steps[index] for index in drawn], draw)
            said, wanted = look(eye, pairs).float(), vocabulary.tokens[drawn]
            distance = (said - embeddings[wanted]).pow(2).mean() / scale
            yield distance + cross_entropy(_SHARPNESS * cosines(said, embeddings).flatten(0, 1), wanted.flatten())

    eye.tower.train()
    rows = optimise([Group([*eye.tower.parameters()], rate)], losses, schedule, advance, 0.98)
    eye.tower.eval()
    return rows


def cosines(said: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
    """Cosine of every token [..., width] with every word of the vocabulary: [..., words]."""
    return normalize(said, dim=-1) @ normalize(embeddings, dim=-1).T


def word_accuracy(
    checkpoint: Checkpoint, painter: Painter, vocabulary: Vocabulary, style: Style, count: int = 400
) -> float:
    """The share of the tokens of pairs not trained on whose nearest word is the right one."""
    chosen = [index % len(vocabulary.steps) for index in range(count)]
    shown = [vocabulary.steps[index] for index in chosen]
    with torch.no_grad():
        said = look(eye_of(checkpoint), painter.pairs(shown, generator(("said", style)), style))
        nearest = cosines(said, checkpoint.model.get_input_embeddings().weight).argmax(-1)
    return float((nearest == vocabulary.tokens[chosen]).float().mean())


# The last lesson before planning: the decoder learns to go on from a history that is shown instead of written.
#
# The base model's careless texts are taught once more, nine batches of ten with the history as a clip, each time drawn
# anew. The decoder learns at full pace, the merger slowly, since it forgets what it has learnt at the decoder's, and
# the tower rests. The decoder meets M-RoPE's positions here for the first time.
#
# The system turn is read once a batch and carries no loss, as in `recipe.training.base`.


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
