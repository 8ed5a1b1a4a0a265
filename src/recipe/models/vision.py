"""Frames to patches and their grid for Qwen2.5-VL, in plain torch.

The video processor of transformers needs torchvision; this one computes the same numbers without it, from the same
files. It takes frames that are chosen before (`recipe.config.FrameConfig`), and no single images.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recipe.artifacts import read_json, write_json
from recipe.config.models import FrameConfig
from recipe.errors import InputError, MissingExtra
from recipe.types import Frames

try:
    import torch
    from transformers import PreTrainedModel
    from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen
    from transformers.utils import cached_file
except ModuleNotFoundError as error:
    raise MissingExtra("a model that sees", "video") from error

# In the order in which transformers asks them: all processors in one file, the video processor's own, and the
# older layout, in which it shares the image processor's.
_FILES = ("processor_config.json", "video_preprocessor_config.json", "preprocessor_config.json")
# Windows of more patches are left to the kernel of transformers, which does not hold the weights of all at once.
_SHORT = 256
_IMAGE_BOUNDS = ("min_pixels", "max_pixels", "size")
# A frame may be this many times as long as it is wide.
_RATIO = 200


@dataclass(frozen=True, slots=True, eq=False)
class Patches:
    """A clip as the visual tower reads it; two are the same clip only where they are the same object."""

    pixels: torch.Tensor
    """Normalised values, float32 [t * h * w, channels * temporal patch * patch * patch]; patches that are merged into
    a token stand together."""
    grid: tuple[int, int, int]
    """Patches in time, height and width: t, h, w."""
    seconds_per_grid: float
    """Seconds between two patches in time."""


@dataclass(frozen=True, slots=True)
class VideoProcessor:
    """Frames to patches as Qwen2.5-VL was trained on them; the defaults are the published ones."""

    patch_size: int = 14
    """Pixels on a side of a patch."""
    temporal_patch_size: int = 2
    """Frames in a patch."""
    merge_size: int = 2
    """Patches on a side of what becomes one token."""
    min_pixels: int = 128 * 28 * 28
    """Smaller frames are enlarged to this area."""
    max_pixels: int = 768 * 28 * 28
    """Larger frames are reduced to this area."""
    max_tokens: int | None = 128_000
    """A clip's frames share 90% of this many tokens, as in qwen-vl-utils; None where only `max_pixels` holds."""
    # Of the training images of CLIP, as for Qwen2-VL.
    mean: tuple[float, ...] = (0.48145466, 0.4578275, 0.40821073)
    std: tuple[float, ...] = (0.26862954, 0.26130258, 0.27577711)

    @classmethod
    def load(cls, name: str | Path, revision: str | None = None) -> "VideoProcessor":
        """The processor of a model folder or hub id, from `video_preprocessor_config.json` or a neighbour of it.

        In the older layout of `preprocessor_config.json` the bounds are those of images, and frames keep the default
        ones, as qwen-vl-utils has it. Raises InputError where there is none, and for one that does something else to
        frames than this class.
        """
        for file in _FILES:
            path = cached_file(str(name), file, revision=revision, _raise_exceptions_for_missing_entries=False)
            if path is None:
                continue
            origin = Path(name) / file
            settings = _object(read_json(Path(path)), origin)
            if file == "processor_config.json":
                settings = _object(settings.get("video_processor", {}), origin)
            if "image_processor_type" in settings:
                settings = {name: value for name, value in settings.items() if name not in _IMAGE_BOUNDS}
            if settings:
                break
        else:
            problem = "there are no settings of a video processor"
            raise InputError.at(f"model {str(name)!r}", problem, f"add the {_FILES[1]} of the model it was made from")
        for step in ("do_resize", "do_rescale", "do_normalize"):
            if settings.get(step) is False:
                raise _unusable(origin, step, "frames are always resized, rescaled and normalised here")
        if settings.get("resample", 3) != 3:
            raise _unusable(origin, "resample", "frames are resized by bicubic interpolation here, which is 3")
        default = cls()
        size = settings.get("size") or {}
        bounds = {}
        for field, edge in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
            named = (settings.get(field), size.get(edge), getattr(default, field))
            bounds[field] = next(value for value in named if value is not None)
        numbers = bounds | {
            "patch_size": settings.get("patch_size", default.patch_size),
            "temporal_patch_size": settings.get("temporal_patch_size", default.temporal_patch_size),
            "merge_size": settings.get("merge_size", default.merge_size),
            "max_video_tokens": settings.get("max_video_tokens", default.max_tokens),
        }
        for field, value in numbers.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise _unusable(origin, field, "it must be a whole number above 0")
        tokens = numbers.pop("max_video_tokens")
        capped = settings.get("cap_pixels_per_frame") is not False
        colours: dict[str, Any] = {}
        for name, field in (("mean", "image_mean"), ("std", "image_std")):
            values = settings.get(field) or getattr(default, name)
            if len(values) != 3 or not all(isinstance(value, int | float) for value in values):
                raise _unusable(origin, field, "it must hold a number for red, green and blue")
            colours[name] = tuple(map(float, values))
        return cls(max_tokens=tokens if capped else None, **colours, **numbers)

    def save(self, folder: Path) -> None:
        """Write the files from which `load`, and AutoProcessor where torchvision is installed, make the same again."""
        common = {
            "do_convert_rgb": True,
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
            "merge_size": self.merge_size,
            "patch_size": self.patch_size,
            "processor_class": "Qwen2_5_VLProcessor",
            "resample": 3,
            "rescale_factor": 1 / 255,
            "size": {"longest_edge": self.max_pixels, "shortest_edge": self.min_pixels},
            "temporal_patch_size": self.temporal_patch_size,
        }
        video = {
            **common,
            "cap_pixels_per_frame": self.max_tokens is not None,
            "do_sample_frames": False,
            "video_processor_type": "Qwen2VLVideoProcessor",
        }
        if self.max_tokens is not None:
            video["max_video_tokens"] = self.max_tokens
        write_json(folder / "video_preprocessor_config.json", video)
        write_json(folder / "preprocessor_config.json", {**common, "image_processor_type": "Qwen2VLImageProcessor"})

    def within(self, config: FrameConfig) -> "VideoProcessor":
        """The same with the bounds of a frame's area that `config` was given; those left out stay the model's own."""
        longest = config.max_pixels if "max_pixels" in config.model_fields_set else self.max_pixels
        shortest = config.min_pixels if "min_pixels" in config.model_fields_set else min(self.min_pixels, longest)
        return replace(self, min_pixels=shortest, max_pixels=max(shortest, longest))

    def __call__(self, frames: Frames) -> Patches:
        """A clip's patches: frames resized, normalised, and the last repeated to fill a patch in time.

        Raises InputError for a clip without frames and for frames too narrow to be resized.
        """
        images = self.resize(frames)
        pixels = self._pixels(images[None])[0]
        count, _, height, width = images.shape
        return Patches(pixels, self.grid(count, height, width), self.temporal_patch_size / frames.rate)

    def resize(self, frames: Frames) -> torch.Tensor:
        """The frames in the size that the model reads, uint8 [T, 3, H, W]; raises InputError as a call does."""
        # torch.from_numpy warns of an array that is read-only.
        images = frames.images if frames.images.flags.writeable else frames.images.copy()
        channels_first = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
        size = self.resized(*images.shape[:3])
        if size == images.shape[1:3]:
            return channels_first
        return torch.nn.functional.interpolate(channels_first, size=size, mode="bicubic", antialias=True)

    def pixels(self, images: torch.Tensor) -> torch.Tensor:
        """Patches [N, t * h * w, values] of clips of one size that needs no resizing, `images` uint8 [N, T, H, W, 3].

        A view of each row makes a `Patches` with `grid(T, H, W)`. Raises InputError for a size that is no multiple of
        a token's.
        """
        side = self.patch_size * self.merge_size
        height, width = images.shape[2:4]
        if height % side or width % side:
            raise InputError(f"Frames of {width} x {height} pixels are no multiple of {side}; resize them.")
        return self._pixels(images.permute(0, 1, 4, 2, 3))

    def grid(self, count: int, height: int, width: int) -> tuple[int, int, int]:
        """Patches in time, height and width of `count` frames of such a size, in pixels after resizing."""
        return -(-count // self.temporal_patch_size), height // self.patch_size, width // self.patch_size

    def tokens(self, clip: Patches | Frames) -> int:
        """Tokens that a clip takes in a prompt; of frames, without making their patches."""
        if isinstance(clip, Frames):
            count, height, width, _ = clip.images.shape
            return math.prod(self.grid(count, *self.resized(count, height, width))) // self.merge_size**2
        return math.prod(clip.grid) // self.merge_size**2

    def resized(self, count: int, height: int, width: int) -> tuple[int, int]:
        """Height and width that each of `count` frames is resized to: near its own shape, in multiples of a token.

        Raises InputError where there are none, and for a frame that is 200 times as long as wide.
        """
        if count == 0:
            raise InputError("A clip has no frames; take more of the video.")
        longest = self.max_pixels
        side = self.patch_size * self.merge_size
        if self.max_tokens is not None:
            shared = int(self.max_tokens * side * side * 0.9) * self.temporal_patch_size // count
            # Both factors as in qwen-vl-utils.
            longest = max(min(longest, shared), int(self.min_pixels * 1.05))
        if max(height, width) > _RATIO * min(height, width):
            raise InputError(f"A frame of {width} x {height} pixels is too narrow; crop the video.")
        return smart_resize(height, width, side, self.min_pixels, longest)

    def _pixels(self, images: torch.Tensor) -> torch.Tensor:
        """Of `images` uint8 [N, T, 3, H, W], patches in the order in which the tower's windows and merger read."""
        short = -images.shape[1] % self.temporal_patch_size
        if short:
            images = torch.cat([images, images[:, -1:].expand(-1, short, -1, -1, -1)], dim=1)
        clips, count, channels, height, width = images.shape
        patch, merge, frames = self.patch_size, self.merge_size, self.temporal_patch_size
        time, high, wide = self.grid(count, height, width)
        blocks = images.reshape(
            clips, time, frames, channels, high // merge, merge, patch, wide // merge, merge, patch
        ).permute(0, 1, 4, 7, 5, 8, 3, 2, 6, 9)
        # Ordered as bytes, before they are widened. The scale of 255 is in the mean and deviation, as in the stock
        # processor: the same rounding.
        values = blocks.reshape(clips, time * high * wide, channels, -1).to(torch.float32)
        values -= torch.tensor(self.mean).view(-1, 1) * 255.0
        values /= torch.tensor(self.std).view(-1, 1) * 255.0
        return values.flatten(2)


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """Height and width in multiples of `factor`, close to the given shape and with an area within the bounds.

    Qwen2-VL's rule, with Python's rounding to even.

    >>> smart_resize(480, 640, 28, 128 * 28 * 28, 768 * 28 * 28)
    (476, 644)
    >>> smart_resize(1080, 1920, 28, 128 * 28 * 28, 768 * 28 * 28)
    (560, 1008)
    >>> smart_resize(28, 56, 28, 128 * 28 * 28, 768 * 28 * 28)
    (224, 448)
    """
    high, wide = round(height / factor) * factor, round(width / factor) * factor
    if high * wide > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        high = max(factor, math.floor(height / shrink / factor) * factor)
        wide = max(factor, math.floor(width / shrink / factor) * factor)
    elif high * wide < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        high, wide = math.ceil(height * grow / factor) * factor, math.ceil(width * grow / factor) * factor
    return high, wide


def mrope_positions(
    model: PreTrainedModel, tokens: torch.Tensor, mask: torch.Tensor, clips: Sequence[Patches | None]
) -> torch.Tensor:
    """Positions in time, height and width [3, rows, length] of `tokens` [rows, length], each row with its clip.

    As Qwen2.5-VL was trained (arXiv 2409.12191, section 2.1; 2502.13923, section 2.1): the tokens of a clip stand at
    their time in units of 1 / `tokens_per_second`, their row and their column; text goes on behind the largest of
    all. The `get_rope_index` of transformers 5 forgets the time there, so that the text after a long clip stands
    within it, and what its `generate` does is then not what its forward pass does.
    `mask` [rows, length] is 0 at padding, on either side. Raises InputError where a row holds other video tokens
    than its clip has.
    """
    merge = model.config.vision_config.spatial_merge_size
    rate = model.config.vision_config.tokens_per_second
    positions = torch.zeros(3, *tokens.shape, dtype=torch.long)
    video = (tokens == model.config.video_token_id).cpu()
    for row, (clip, kept) in enumerate(zip(clips, mask.bool().cpu(), strict=True)):
        shown = video[row, kept]
        where = torch.zeros(3, 0, dtype=torch.long)
        if clip is not None:
            time, high, wide = clip.grid
            moments = (torch.arange(time) * clip.seconds_per_grid * rate).long()
            axes = (moments, torch.arange(high // merge), torch.arange(wide // merge))
            where = torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1)
        if int(shown.sum()) != where.shape[1]:
            problem = f"A prompt holds {int(shown.sum())} video tokens and its clip {where.shape[1]}"
            raise InputError(f"{problem}; write one video token for each of the clip's.")
        # Text counts on from the clip's largest position, whichever axis it lies on.
        behind = int(where.max()) + 1 if where.shape[1] else 0
        own = ((~shown).cumsum(0) - 1 + (shown.cumsum(0) > 0) * behind).expand(3, -1).clone()
        own[:, shown] = where + int(shown.int().argmax())
        positions[:, row, kept] = own
    return positions.to(tokens.device)


def fast_vision(model: PreTrainedModel) -> None:
    """Let this model's visual tower embed patches by a matrix and attend within equal windows in one batch.

    The same results to 5e-6, and several times faster on a CPU, where the convolution and a loop over windows cost
    more than their arithmetic. Only these modules of this model change their forward pass; weights and what is saved
    stay as they are. Does nothing where there is no visual tower.
    """
    swaps = {qwen.Qwen2_5_VisionPatchEmbed: _MatrixEmbed, qwen.Qwen2_5_VLVisionAttention: _BatchedAttention}
    for module in model.modules():
        if faster := swaps.get(type(module)):
            module.__class__ = faster


class _MatrixEmbed(qwen.Qwen2_5_VisionPatchEmbed):  # type: ignore[misc]
    """The convolution over patches that do not overlap is a matrix product."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        weight = self.proj.weight.flatten(1)
        return torch.nn.functional.linear(hidden_states.view(-1, weight.shape[1]).to(weight.dtype), weight)


class _BatchedAttention(qwen.Qwen2_5_VLVisionAttention):  # type: ignore[misc]
    """One softmax over all windows where they are short and equally long; else window by window."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        cu_seqlens: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        **options: Any,
    ) -> torch.Tensor:
        lengths = cu_seqlens.diff()
        windows, length = len(lengths), int(lengths[0])
        if length > _SHORT or bool((lengths != length).any()):
            return super().forward(hidden_states, cu_seqlens, position_embeddings=position_embeddings, **options)
        patches = windows * length
        queries, keys, values = self.qkv(hidden_states).view(patches, 3, self.num_heads, -1).unbind(1)
        queries, keys = qwen.apply_rotary_pos_emb_vision(queries, keys, *position_embeddings)
        queries, keys, values = (
            part.view(windows, length, self.num_heads, -1).transpose(1, 2) for part in (queries, keys, values)
        )
        weights = torch.softmax(queries @ keys.transpose(-1, -2) * self.scaling, dim=-1)
        return self.proj((weights @ values).transpose(1, 2).reshape(patches, -1))


def _object(value: Any, origin: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError.at(origin, "these are no settings of a processor", "restore the file of the model")
    return value


def _unusable(origin: Path, field: str, problem: str) -> InputError:
    return InputError.at(origin, problem, "restore the file of the model", field=field)
