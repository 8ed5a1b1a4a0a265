"""From the sums of a scan to the few numbers that leave the device: the best narrations, and those that may be."""

from typing import NamedTuple

import torch

_ROWS = 1 << 18
"""Narrations widened to float64 at a time."""


class Known(NamedTuple):
    """What bounds the error of a narration's vectors: float64 [N, 1] each, on their device.

    With x a vector and c its copy on the device: ||x - scale c|| <= residual, ||scale c|| <= norm.
    """

    scale: torch.Tensor
    residual: torch.Tensor
    norm: torch.Tensor


class Asked(NamedTuple):
    """The same of each query, float64 [1, Q]: `weight` makes A_mono of a sum times a narration's scale."""

    weight: torch.Tensor
    norm: torch.Tensor
    residual: torch.Tensor


class Best(NamedTuple):
    """The highest estimates of each query and whose they are, best first: [k, Q] each."""

    estimates: torch.Tensor
    narrations: torch.Tensor


class Pairs(NamedTuple):
    """Narrations and queries, int64 [P] each."""

    narrations: torch.Tensor
    queries: torch.Tensor


def best(sums: torch.Tensor, known: Known, asked: Asked, k: int) -> Best:
    """The k highest estimates of A_mono, or all where there are fewer, from the sums [N, Q] of a scan."""
    found = []
    for start in range(0, len(sums), _ROWS):
        rows = slice(start, start + _ROWS)
        estimates = sums[rows] * (known.scale[rows] * asked.weight)
        top = estimates.topk(min(k, len(estimates)), dim=0)
        found.append(Best(top.values, top.indices + start))
    estimates, narrations = (torch.cat(parts) for parts in zip(*found, strict=True))
    top = estimates.topk(min(k, len(estimates)), dim=0)
    return Best(top.values, narrations.gather(0, top.indices))


def reaching(sums: torch.Tensor, known: Known, asked: Asked, thresholds: torch.Tensor) -> Pairs:
    """The pairs whose A_mono may be as high as the query's threshold, float64 [Q].

    The estimate is off by at most norm(q) residual(x) + residual(q) norm(x), means over the query's steps.
    """
    found = []
    for start in range(0, len(sums), _ROWS):
        rows = slice(start, start + _ROWS)
        upper = sums[rows] * (known.scale[rows] * asked.weight)
        upper += known.residual[rows] * asked.norm
        upper += known.norm[rows] * asked.residual
        narrations, queries = (upper >= thresholds).nonzero(as_tuple=True)
        found.append(Pairs(narrations + start, queries))
    return Pairs(*(torch.cat(parts) for parts in zip(*found, strict=True)))
