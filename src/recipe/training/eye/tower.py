"""A visual tower by itself, so that it can learn to see while there is no language model yet."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from recipe.checkpoints import Checkpoint
from recipe.errors import ConfigError
from recipe.training.tokenizer import train_tokenizer
from recipe.training.video_model import VisionShape, build_video_model
from recipe.vision import VideoProcessor, fast_vision

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
