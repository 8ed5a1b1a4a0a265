"""One optimiser for all that the eye learns: AdamW in groups of their own learning rates, warm-up and cosine."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from recipe.errors import ComputeError
from recipe.progress import Advance

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
