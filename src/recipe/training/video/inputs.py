"""What the decoder reads in place of token ids where a prompt holds a video.

A model of transformers does this itself when it is handed pixels, and says nothing when it is not: it then reads
video tokens as words, at positions of text. Here embeddings and positions are made on purpose, or an error is raised.
"""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from recipe.training.video.tower import FrozenTower
from recipe.vision import Patches


def decoder_inputs(
    model: PreTrainedModel,
    tower: FrozenTower,
    ids: torch.Tensor,
    mask: torch.Tensor,
    clips: Sequence[Patches],
) -> dict[str, torch.Tensor]:
    """Embeddings [B, L, width], positions [3, B, L] and the mask [B, L] for the forward pass of a Qwen2.5-VL.

    `ids` and `mask` are [B, L], padded on either side; `clips` has one for each row. Raises ValueError where a
    row has other video tokens than its clip.
    """
    core = model.model
    shown = ids == model.config.video_token_id
    seen = tower.tokens(clips)
    if shown.sum(-1).tolist() != [len(tokens) for tokens in seen]:
        raise ValueError("a prompt does not hold as many video tokens as its clip has")
    words = core.get_input_embeddings()(ids)
    embeddings = words.masked_scatter(shown[..., None], torch.cat(seen).to(words.dtype))
    positions, _ = core.get_rope_index(
        ids,
        mm_token_type_ids=2 * shown.int(),
        video_grid_thw=torch.tensor([clip.grid for clip in clips]),
        second_per_grid_ts=torch.tensor([clip.seconds_per_grid for clip in clips]),
        attention_mask=mask,
    )
    return {"inputs_embeds": embeddings, "position_ids": positions, "attention_mask": mask}
