"""A small Qwen2.5-VL around a small language model, so that the Video configuration runs without a hub.

Unlike the published ones, it starts from a finished language model, whose weights, positions and tokens are taken over
as they are: its answer to a text prompt does not change.
"""

import copy
from dataclasses import dataclass

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from recipe.errors import ConfigError
from recipe.models.checkpoints import Checkpoint
from recipe.models.vision import VideoProcessor
from recipe.training.base import chat_template

_TOKENS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}


@dataclass(frozen=True, slots=True)
class VisionShape:
    """Sizes of a visual tower and of its frames; the defaults turn 56 x 56 pixels into 2 x 2 tokens."""

    depth: int = 3
    """Blocks, all of which attend over a whole frame."""
    hidden_size: int = 128
    heads: int = 4
    intermediate_size: int = 256
    patch_size: int = 14
    merge_size: int = 2
    min_pixels: int = 56 * 56
    max_pixels: int = 56 * 56
    tokens_per_second: int = 2
    """Positions of M-RoPE that pass in a second."""


def build_video_model(base: Checkpoint, shape: VisionShape, seed: int) -> Checkpoint:
    """A Qwen2.5-VL with the weights and tokenizer of a Qwen2 checkpoint and a new visual tower; float32 on the CPU.

    Raises ConfigError where the base is no Qwen2 or its tokenizer lacks the tokens that stand for a video.
    """
    text = base.model.config
    if text.model_type != "qwen2":
        raise ConfigError(f"A visual tower is built onto a Qwen2 model, not onto {text.model_type!r}; give another.")
    # A copy: the base keeps its own chat template.
    tokenizer = copy.deepcopy(base.tokenizer)
    known = tokenizer.get_vocab()
    if lacking := [token for token in _TOKENS.values() if token not in known]:
        raise ConfigError(f"The tokenizer has no {lacking[0]!r}; give a model that `recipe train base` made.")
    tokenizer.chat_template = chat_template("qwen2_5_vl")
    kept = (
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads hidden_act "
        "max_position_embeddings rms_norm_eps tie_word_embeddings bos_token_id eos_token_id pad_token_id"
    )
    # The decoder is the language model, with its angles shared out to time, height and width.
    # A quarter of the angles to time and the rest to both sides, as the 16, 24 and 24 of Qwen2.5-VL.
    angles = text.hidden_size // text.num_attention_heads // 2
    time = angles // 4
    height = (angles - time) // 2
    rope = {
        "rope_type": "default",
        "rope_theta": text.rope_parameters["rope_theta"],
        "mrope_section": [time, height, angles - time - height],
    }
    vision = {
        "depth": shape.depth,
        "hidden_size": shape.hidden_size,
        "num_heads": shape.heads,
        "intermediate_size": shape.intermediate_size,
        "out_hidden_size": text.hidden_size,
        "patch_size": shape.patch_size,
        "spatial_merge_size": shape.merge_size,
        "temporal_patch_size": 2,
        "fullatt_block_indexes": list(range(shape.depth)),
        "tokens_per_second": shape.tokens_per_second,
    }
    config = Qwen2_5_VLConfig(
        text_config={**{name: getattr(text, name) for name in kept.split()}, "rope_parameters": rope},
        vision_config=vision,
        tie_word_embeddings=text.tie_word_embeddings,
        eos_token_id=text.eos_token_id,
        pad_token_id=text.pad_token_id,
        dtype="float32",
        **{field: known[token] for field, token in _TOKENS.items()},
    )
    # The caller's draws must not depend on whether a tower was built.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2_5_VLForConditionalGeneration._from_config(config, attn_implementation="eager")
        # These weights keep the scale of activations: at these widths the usual 0.02 lets it fade.
        for weight in model.model.visual.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=min(0.05, weight[0].numel() ** -0.5))
    model.model.language_model.load_state_dict(base.model.model.state_dict())
    model.lm_head.load_state_dict(base.model.lm_head.state_dict())
    model.generation_config = copy.deepcopy(base.model.generation_config)
    video = VideoProcessor(
        patch_size=shape.patch_size,
        merge_size=shape.merge_size,
        min_pixels=shape.min_pixels,
        max_pixels=shape.max_pixels,
    )
    return Checkpoint(model.eval(), tokenizer, video)
