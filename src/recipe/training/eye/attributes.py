"""The first lesson of the eye: which symbols a pair of frames holds.

The tower and its merger are trained with a linear head for each part of a step's code (shape, colour, border, tool,
motion, tone); the heads are thrown away. It needs no language model, and runs beside the training of one.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from recipe.progress import Advance
from recipe.training.eye.optimiser import Group, Row, Schedule, optimise
from recipe.training.eye.tower import Eye
from recipe.world.frames import Painter, Style, generator
from recipe.world.frames_symbols import SIZES


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
