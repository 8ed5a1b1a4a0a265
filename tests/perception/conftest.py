"""Made videos whose every frame shows its own number, and how it is read back."""

import itertools
import json
import shutil
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.conftest import Recipe

COLUMNS, ROWS, BLOCK = 4, 3, 32
"""Bits of a number, as black and white blocks so large that compression cannot hide them."""
WIDTH, HEIGHT = COLUMNS * BLOCK, ROWS * BLOCK

Film = Callable[..., Path]


def burnt(number: int) -> NDArray[np.uint8]:
    """RGB [96, 128, 3]: the number in binary, the highest bit at the upper left."""
    bits = [255 * (number >> bit & 1) for bit in reversed(range(COLUMNS * ROWS))]
    blocks = np.array(bits, dtype=np.uint8).reshape(ROWS, COLUMNS)
    return np.repeat(blocks.repeat(BLOCK, 0).repeat(BLOCK, 1)[..., None], 3, axis=2)


def number(image: NDArray[np.uint8]) -> int:
    """The number that an image of any size shows."""
    height, width = image.shape[0] / ROWS, image.shape[1] / COLUMNS
    middles = itertools.product((np.arange(ROWS) + 0.5) * height, (np.arange(COLUMNS) + 0.5) * width)
    down, across = int(height / 4), int(width / 4)
    blocks = [image[int(y) - down : int(y) + down, int(x) - across : int(x) + across] for y, x in middles]
    return sum(int(block.mean() > 127) << bit for bit, block in enumerate(reversed(blocks)))


@pytest.fixture
def numbers() -> Callable[[Any], list[int]]:
    """The numbers that frames show."""
    return lambda images: [number(image) for image in images]


@pytest.fixture
def film(tmp_path: Path) -> Film:
    """Makes a video: frame n shows n at `stamps[n]`, in units of `base` seconds; returns its path."""

    av = pytest.importorskip("av")

    def make(
        stamps: Sequence[int],
        name: str = "film.mp4",
        base: Fraction = Fraction(1, 600),
        codec: str = "libx264",
        options: dict[str, str] | None = None,
        bframes: int = 0,
        keyframes: int = 12,
        muxer: dict[str, str] | None = None,
        rotation: tuple[float, bool] | None = None,
        aspect: Fraction | None = None,
        sound: float = 0.0,
        size: tuple[int, int] = (WIDTH, HEIGHT),
    ) -> Path:
        path = tmp_path / name
        quick = {"preset": "ultrafast", "tune": "fastdecode"} if codec == "libx264" else {}
        with av.open(str(path), "w", options=muxer or {}) as output:
            rate = round(1 / (base * (stamps[1] - stamps[0])))
            stream = output.add_stream(codec, rate=rate, options={**quick, **(options or {})})
            stream.width, stream.height = size
            stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
            stream.codec_context.time_base = base
            stream.gop_size = keyframes
            stream.max_b_frames = bframes
            if aspect:
                stream.codec_context.sample_aspect_ratio = aspect
            if rotation:
                stream.set_display_rotation(rotation[0], hflip=rotation[1])
            voice = output.add_stream("aac", rate=16000) if sound else None
            for shown, stamp in enumerate(stamps):
                frame = av.VideoFrame.from_ndarray(burnt(shown), format="rgb24").reformat(*size, format=stream.pix_fmt)
                frame.pts, frame.time_base = stamp, base
                output.mux(stream.encode(frame))
            output.mux(stream.encode(None))
            if voice:
                for begin in range(0, int(sound * 16000), 1024):
                    silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
                    silence.sample_rate, silence.pts, silence.time_base = 16000, begin, Fraction(1, 16000)
                    output.mux(voice.encode(silence))
                output.mux(voice.encode(None))
        return path

    return make


@pytest.fixture
def seeing(tiny_video_model: Path, tmp_path: Path) -> Path:
    """The small model with room for the prompt, which its tokenizer of bytes makes long."""
    folder = Path(shutil.copytree(tiny_video_model, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = 4096
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def perceive(seeing: Path, recipe: Recipe) -> Callable[..., dict[str, Any]]:
    """Runs `recipe perceive` with the small model on a folder of videos; returns what it prints."""

    def run(videos: Path, *words: object) -> dict[str, Any]:
        printed: dict[str, Any] = recipe.json("perceive", "--videos", videos, "--model", seeing, *words)
        return printed

    return run
