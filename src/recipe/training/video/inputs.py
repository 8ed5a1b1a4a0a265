"""What the decoder reads in place of token ids where a prompt holds a video.

A model of transformers does this itself when it is handed pixels, and says nothing when it is not: it then reads
video tokens as words, at positions of text. Here embeddings and positions are made on purpose, or an error is raised.
"""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from recipe.training.video.tower import FrozenTower
from recipe.vision import Patches, mrope_positions


def decoder_inputs(
    model: PreTrainedModel,
    tower: FrozenTower,
    ids: torch.Tensor,
    mask: torch.Tensor,
    clips: Sequence[Patches],
) -> dict[str, torch.Tensor]:
    """Embeddings [B, L, width], positions [3, B, L] and the mask [B, L] for the forward pass of a Qwen2.5-VL.

    `ids` and `mask` are [B, L], padded on either side; `clips` has one for each row. Raises InputError where a row
    holds other video tokens than its clip.
    """
    positions = mrope_positions(model, ids, mask, clips)
    words = model.get_input_embeddings()(ids)
    seen = torch.cat(tower.tokens(clips))
    shown = (ids == model.config.video_token_id)[..., None]
    embeddings = words.masked_scatter(shown, seen.to(words.dtype))
    return {"inputs_embeds": embeddings, "position_ids": positions, "attention_mask": mask}
