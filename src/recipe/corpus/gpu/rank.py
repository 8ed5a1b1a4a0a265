"""From the sums of a scan to the few numbers that leave the device: the best narrations, and those that may be.

The sums are read once, for the highest estimate of every block of narrations; what follows looks into the few blocks
that can matter.
"""

from typing import NamedTuple

import torch

BLOCK = 256
"""Narrations of a block."""
_CHUNK = 1 << 18
"""Narrations widened to float64 at a time, a multiple of a block."""
_PAIRS = 1 << 14
"""Blocks that are looked into at a time."""


class Known(NamedTuple):
    """What bounds the error of a narration's vectors: float64 [N, 1] each, on their device.

    With x a vector and c its copy on the device: ||x - scale c|| <= residual, ||scale c|| <= norm.
    """

    scale: torch.Tensor
    residual: torch.Tensor
    norm: torch.Tensor


class Asked(NamedTuple):
    """The same of each query, float64 [1, Q], means over its steps; weight, too, makes A_mono of a narration's sum."""

    weight: torch.Tensor
    residual: torch.Tensor
    norm: torch.Tensor


class Estimates(NamedTuple):
    """A_mono of Q queries with N narrations as the scan has it, and what bounds its error."""

    sums: torch.Tensor
    """[N, Q], of a scan."""
    maxima: torch.Tensor
    """float64 [blocks, Q]: the highest estimate of each block of narrations."""
    known: Known
    asked: Asked


class Best(NamedTuple):
    """The highest estimates of each query and whose they are, best first: [k, Q] each."""

    estimates: torch.Tensor
    narrations: torch.Tensor


class Pairs(NamedTuple):
    """Narrations and queries, int64 [P] each."""

    narrations: torch.Tensor
    queries: torch.Tensor


def estimate(sums: torch.Tensor, known: Known, asked: Asked) -> Estimates:
    """The sums [N, Q] of a scan with their bounds, read once for the highest estimate of each block."""
    maxima = []
    for start in range(0, len(sums), _CHUNK):
        rows = slice(start, start + _CHUNK)
        maxima.append(_blockwise(sums[rows] * (known.scale[rows] * asked.weight)))
    return Estimates(sums, torch.cat(maxima), known, asked)


def best(these: Estimates, k: int) -> Best:
    """The k highest estimates of each query, or all where there are fewer.

    k blocks of the highest maxima hold them: a narration outside of these has k others at least as high.
    """
    blocks = these.maxima.topk(min(k, len(these.maxima)), dim=0).indices
    queries = torch.arange(blocks.shape[1], device=blocks.device).expand_as(blocks)
    estimates, rows = (
        values.movedim(2, 1).flatten(0, 1) for values in _look_into(these, blocks, queries, bounds=False)
    )
    top = estimates.topk(min(k, len(these.sums)), dim=0)
    return Best(top.values, rows.gather(0, top.indices))


def reaching(these: Estimates, thresholds: torch.Tensor) -> Pairs:
    """The pairs whose A_mono may be as high as the query's threshold, float64 [Q].

    The estimate is off by at most norm(q) residual(x) + residual(q) norm(x), means over the query's steps.
    """
    upper = these.maxima + _blockwise(these.known.residual) * these.asked.norm
    upper += _blockwise(these.known.norm) * these.asked.residual
    blocks, queries = (upper >= thresholds).nonzero(as_tuple=True)
    found = []
    for part, of in zip(blocks.split(_PAIRS), queries.split(_PAIRS), strict=True):
        bounds, rows = _look_into(these, part, of, bounds=True)
        pairs, places = (bounds >= thresholds[of, None]).nonzero(as_tuple=True)
        found.append(Pairs(rows[pairs, places], of[pairs]))
    return Pairs(*(torch.cat(parts) for parts in zip(*found, strict=True))) if found else Pairs(blocks, queries)


def _look_into(
    these: Estimates, blocks: torch.Tensor, queries: torch.Tensor, bounds: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Estimates of the narrations of blocks with their queries, or upper bounds, and the narrations: [..., BLOCK]."""
    rows = blocks[..., None] * BLOCK + torch.arange(BLOCK, device=blocks.device)
    there = rows < len(these.sums)
    rows = rows.clamp_max(len(these.sums) - 1)
    asked = Asked(*(values[0, queries][..., None] for values in these.asked))
    known = Known(*(values[rows, 0] for values in these.known))
    values = these.sums[rows, queries[..., None]] * (known.scale * asked.weight)
    if bounds:
        values += known.residual * asked.norm + known.norm * asked.residual
    return values.where(there, -torch.inf), rows


def _blockwise(values: torch.Tensor) -> torch.Tensor:
    """The maxima [blocks, ...] of values [n, ...] over blocks of rows."""
    missing = -len(values) % BLOCK
    padded = torch.nn.functional.pad(values, (0, 0, 0, missing), value=-torch.inf)
    return padded.unflatten(0, (-1, BLOCK)).amax(dim=1)
