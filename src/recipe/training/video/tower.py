"""What the visual encoder makes of clips. It is frozen, so each clip passes through it once, without a gradient.

The merger behind it is trained and its reference differs from it: it runs at each pass, on what the encoder left.
"""

from collections.abc import Iterator, Sequence

import torch
from transformers import PreTrainedModel
from transformers.vision_utils import get_vision_window_index

from recipe.vision import Patches

_PATCHES = 1 << 14
"""Clips are encoded together up to so many patches."""


class FrozenTower:
    """The visual encoder of a Qwen2.5-VL and what it saw; forgets when told to."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._visual = model.model.visual
        self._seen: dict[Patches, torch.Tensor] = {}

    def forget(self) -> None:
        """Drop what was seen; the next clips are others."""
        self._seen.clear()

    def tokens(self, clips: Sequence[Patches]) -> list[torch.Tensor]:
        """The tokens [n, width] of each clip as the merger makes them, with its gradient; equal clips share theirs."""
        distinct = list(dict.fromkeys(clips))
        self._look(distinct)
        visual = self._visual
        grids = torch.tensor([clip.grid for clip in distinct])
        # The encoder leaves patches in the order of its windows.
        order, _ = get_vision_window_index(grids, visual.spatial_merge_size, visual.window_size, visual.patch_size)
        merged = visual.merger(torch.cat([self._seen[clip] for clip in distinct]))
        merged = merged[torch.argsort(order).to(merged.device)]
        parts = merged.split((grids.prod(-1) // visual.spatial_merge_unit).tolist())
        of = dict(zip(distinct, parts, strict=True))
        return [of[clip] for clip in clips]

    def _look(self, clips: Sequence[Patches]) -> None:
        """Encode the clips not seen yet: [patches, hidden] each."""
        device, dtype = self._visual.device, self._visual.dtype
        for batch in _batches([clip for clip in clips if clip not in self._seen]):
            pixels = torch.cat([clip.pixels for clip in batch]).to(device, dtype)
            grids = torch.tensor([clip.grid for clip in batch], device=device)
            with torch.no_grad():
                hidden = self._visual(pixels, grid_thw=grids).last_hidden_state
            self._seen.update(zip(batch, hidden.split(grids.prod(-1).tolist()), strict=True))


def _batches(clips: Sequence[Patches]) -> Iterator[list[Patches]]:
    batch: list[Patches] = []
    for clip in clips:
        if batch and sum(len(one.pixels) for one in [*batch, clip]) > _PATCHES:
            yield batch
            batch = []
        batch.append(clip)
    if batch:
        yield batch
