"""Frames to patches: the numbers of the stock processors, their files, and what cannot be read."""

import importlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from recipe.config import FrameConfig  # noqa: E402
from recipe.errors import InputError  # noqa: E402
from recipe.models.vision import VideoProcessor, smart_resize  # noqa: E402
from recipe.types import Frames  # noqa: E402

SMALL = VideoProcessor(min_pixels=56 * 56, max_pixels=84 * 84)


def noise(count: int, height: int, width: int, seed: int = 0, rate: float = 2.0) -> Frames:
    images = np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)
    return Frames(images, np.arange(count) / rate, rate)


@pytest.mark.parametrize("size", [(56, 84), (112, 56), (28, 28)])
def test_a_standing_image_has_the_patches_of_the_stock_image_processor(size: tuple[int, int]) -> None:
    image = noise(1, *size)
    stock = transformers.Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=112 * 112)
    expected = stock(image.images, return_tensors="pt")
    found = VideoProcessor(min_pixels=28 * 28, max_pixels=112 * 112)(image)  # its one frame is taken twice
    assert list(found.grid) == expected["image_grid_thw"][0].tolist()
    torch.testing.assert_close(found.pixels, expected["pixel_values"], atol=1e-6, rtol=0)


def test_resized_frames_have_the_values_of_the_stock_video_processor() -> None:
    # Qwen2VLVideoProcessor of transformers 5.23 with torchvision 0.28 on the same noise.
    found = SMALL(noise(3, 90, 120, seed=7))
    assert found.grid == (2, 4, 6)
    expected = [
        [0.19312341511249542, 0.44129666686058044, -0.43141353130340576, 0.09820755571126938],
        [-0.37621521949768066, -0.23023094236850739, 0.4390369653701782, 0.46792927384376526],
        [-0.6243884563446045, 0.14932814240455627, 0.0038117109797894955, -0.08665331453084946],
        [0.791658878326416, -0.025852976366877556, 0.18390491604804993, 0.02710721828043461],
    ]
    chosen = found.pixels[[0, 5, 11, 23]][:, [0, 200, 700, 1175]]
    # One step of 256 more or less, which kernels of other processors may round otherwise, is 0.015.
    torch.testing.assert_close(chosen, torch.tensor(expected), atol=0.016, rtol=0)


def test_frames_go_in_pairs_and_the_last_fills_its_own() -> None:
    odd = noise(3, 56, 84)
    images = np.concatenate([odd.images, odd.images[-1:]])
    even = Frames(images, np.arange(4) / 2, 2.0)
    assert torch.equal(SMALL(odd).pixels, SMALL(even).pixels)
    first, second = (SMALL(Frames(images[at : at + 2], np.arange(2) / 2, 2.0)).pixels for at in (0, 2))
    assert torch.equal(SMALL(even).pixels, torch.cat([first, second]))


@pytest.mark.parametrize(("rate", "seconds"), [(2.0, 1.0), (0.5, 4.0), (8.0, 0.25)])
def test_a_grid_lasts_as_long_as_its_frames(rate: float, seconds: float) -> None:
    assert SMALL(noise(4, 56, 56, rate=rate)).seconds_per_grid == seconds


def test_clips_of_one_size_are_made_together() -> None:
    images = np.stack([noise(4, 56, 84, seed).images for seed in range(5)])
    together = SMALL.pixels(torch.from_numpy(images))
    for clip, row in zip(images, together, strict=True):
        alone = SMALL(Frames(clip, np.arange(4) / 2, 2.0))
        assert torch.equal(alone.pixels, row)
        assert alone.grid == SMALL.grid(4, 56, 84)
        assert len(row) == 4 * SMALL.tokens(alone) == 4 * 2 * 2 * 3
    with pytest.raises(InputError, match="60 x 56 pixels are no multiple of 28"):
        SMALL.pixels(torch.zeros(1, 2, 56, 60, 3, dtype=torch.uint8))


sides = st.integers(20, 3000)


@given(sides, sides, st.integers(1, 40))
@example(88, 1141, 1)  # 84 x 1148 lies under the least area, so that 88 becomes 112 and 1141 becomes 1148
def test_tokens_are_known_before_patches(height: int, width: int, count: int) -> None:
    processor = VideoProcessor(max_tokens=2000)
    high, wide = processor.resized(count, height, width)
    images = np.broadcast_to(np.uint8(0), (count, height, width, 3))
    frames = Frames(images, np.arange(count) / 2, 2.0)
    assert high % 28 == wide % 28 == 0
    assert processor.tokens(frames) == math.ceil(count / 2) * high * wide // 28**2
    assert high * wide <= 768 * 28 * 28 or min(high, wide) == 28
    # Both sides are multiplied by one s and then rounded in one direction by less than 28, or to the nearest by up to
    # 14: high = s height + a, wide = s width + b. So high / height - wide / width = a / height - b / width, which is
    # below 28 / min(height, width): the rounding is of the given sides, and `smart_resize` may round a side of 28 up
    # to twice its length. A side that is rounded down to none becomes 28, which no side from 20 to 3,000 does here.
    assert abs(high / height - wide / width) <= 28 / min(height, width)


@given(sides, sides, st.sampled_from([14, 28, 32]), st.integers(800, 200_000), st.floats(1, 50))
def test_smart_resize_is_that_of_transformers(high: int, wide: int, factor: int, least: int, times: float) -> None:
    stock = importlib.import_module("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl").smart_resize
    most = int(least * times)
    assert smart_resize(high, wide, factor, least, most) == stock(high, wide, factor, least, most)


def test_long_clips_share_what_the_model_can_hold() -> None:
    free, shared = VideoProcessor(max_tokens=None), VideoProcessor()
    assert free.resized(768, 480, 640) == (476, 644)
    assert shared.resized(300, 480, 640) == (476, 644)
    assert shared.resized(768, 480, 640) == (420, 560)
    tokens = 768 // 2 * 420 * 560 // 28**2
    assert 0.8 * 128_000 < tokens <= 0.9 * 128_000
    assert shared.resized(100_000, 480, 640) == (280, 364)  # no less than the least of a frame


IMAGES = {  # as published beside Qwen2.5-VL-3B-Instruct
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
}
VIDEO = {
    **{name: IMAGES[name] for name in ("patch_size", "temporal_patch_size", "merge_size", "image_mean", "image_std")},
    "do_resize": True,
    "resample": 3,
    "size": {"shortest_edge": 3136, "longest_edge": 9216},
    "min_pixels": None,
    "cap_pixels_per_frame": None,
    "video_processor_type": "Qwen2VLVideoProcessor",
}


def written(folder: Path, **files: Any) -> Path:
    for name, value in files.items():
        (folder / f"{name}.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


def test_published_layouts_are_read(tmp_path: Path) -> None:
    assert VideoProcessor.load(written(tmp_path, preprocessor_config=IMAGES)) == VideoProcessor()
    own = VideoProcessor(min_pixels=3136, max_pixels=9216)
    assert VideoProcessor.load(written(tmp_path, video_preprocessor_config=VIDEO)) == own
    chat = {"processor_class": "Qwen2_5_VLProcessor"}
    assert VideoProcessor.load(written(tmp_path, processor_config=chat)) == own
    nested = {**chat, "image_processor": IMAGES, "video_processor": {**VIDEO, "cap_pixels_per_frame": False}}
    free = VideoProcessor(min_pixels=3136, max_pixels=9216, max_tokens=None)
    assert VideoProcessor.load(written(tmp_path, processor_config=nested)) == free


@pytest.mark.parametrize(
    "processor", [VideoProcessor(), SMALL, VideoProcessor(7, 4, 3, 100, 200, None, (0.5, 0.4, 0.3), (0.1, 0.2, 0.3))]
)
def test_what_is_saved_is_loaded(processor: VideoProcessor, tmp_path: Path) -> None:
    processor.save(tmp_path)
    assert VideoProcessor.load(tmp_path) == processor
    images = transformers.Qwen2VLImageProcessorPil.from_pretrained(tmp_path)
    assert images.size["longest_edge"] == processor.max_pixels
    assert images.patch_size == processor.patch_size


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "there are no settings of a video processor; add the video_preprocessor_config.json"),
        ({"video_preprocessor_config": "{"}, "not valid JSON"),
        ({"video_preprocessor_config": "[]"}, "no settings of a processor; restore the file of the model"),
        ({"processor_config": {"video_processor": 3}}, "processor_config.json: these are no settings"),
        ({"video_preprocessor_config": {**VIDEO, "patch_size": 0}}, "field 'patch_size': it must be a whole number"),
        ({"video_preprocessor_config": {**VIDEO, "merge_size": "2"}}, "field 'merge_size': it must be a whole number"),
        ({"video_preprocessor_config": {**VIDEO, "image_std": [1, 2]}}, "field 'image_std': it must hold a number for"),
        ({"video_preprocessor_config": {**VIDEO, "do_resize": False}}, "field 'do_resize': frames are always resized"),
        ({"video_preprocessor_config": {**VIDEO, "resample": 2}}, "field 'resample': frames are resized by bicubic"),
    ],
)
def test_settings_that_cannot_be_used_are_named(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        VideoProcessor.load(written(tmp_path, **files))


def test_clips_that_cannot_be_used_are_named() -> None:
    with pytest.raises(InputError, match="has no frames"):
        SMALL(noise(0, 56, 56))
    with pytest.raises(InputError, match="1 x 300 pixels is too narrow"):
        SMALL(noise(2, 300, 1))


def test_only_bounds_that_were_given_replace_the_models() -> None:
    assert SMALL.within(FrameConfig(fps=1)) == SMALL
    assert SMALL.within(FrameConfig(max_pixels=1000)) == VideoProcessor(min_pixels=1000, max_pixels=1000)
    assert SMALL.within(FrameConfig(min_pixels=9000)) == VideoProcessor(min_pixels=9000, max_pixels=9000)
    bounds = FrameConfig(min_pixels=1000, max_pixels=2000)
    assert SMALL.within(bounds) == VideoProcessor(min_pixels=1000, max_pixels=2000)
