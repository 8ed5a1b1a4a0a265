"""Images are upright, have square pixels and no more of them than wanted, and memory holds no more than the images."""

import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")

from recipe.config import FrameConfig
from recipe.perception.frames import probe, read_frames

EVEN = [20 * n for n in range(60)]


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_frames_are_turned_as_the_display_matrix_says(film: Callable[..., Path], degrees: int, mirrored: bool) -> None:
    stored = read_frames(film(EVEN[:12], "plain.mp4"), FrameConfig(count=12)).images
    path = film(EVEN[:12], "turned.mp4", rotation=(degrees, mirrored))
    turned = read_frames(path, FrameConfig(count=12)).images
    # The muxer's degrees are counter-clockwise, as those of np.rot90; it mirrors what is then shown.
    rotated = np.rot90(stored, degrees // 90, axes=(1, 2))
    np.testing.assert_array_equal(turned, rotated[:, :, ::-1] if mirrored else rotated)
    info = probe(path)
    assert (info.height, info.width) == turned.shape[1:3]
    assert info.rotation == -degrees % 360


@pytest.mark.parametrize(
    ("aspect", "size"), [(Fraction(4, 3), (96, 171)), (Fraction(1, 2), (96, 64)), (Fraction(639, 640), (96, 128))]
)
def test_pixels_are_made_square(
    film: Callable[..., Path], numbers: Callable[[Any], list[int]], aspect: Fraction, size: tuple[int, int]
) -> None:
    frames = read_frames(film(EVEN, aspect=aspect), FrameConfig(count=60))
    assert frames.images.shape[1:3] == size
    assert numbers(frames.images) == list(range(60))


def test_pixels_are_made_square_before_they_are_turned(film: Callable[..., Path]) -> None:
    path = film(EVEN[:2], aspect=Fraction(4, 3), rotation=(90, False))
    assert read_frames(path, FrameConfig(count=2)).images.shape[1:3] == (171, 96)


@pytest.mark.parametrize(
    ("bound", "size"),
    [(96 * 128, (96, 128)), (96 * 128 // 2, (96, 128)), (96 * 128 // 8, (48, 64)), (96 * 128 // 2 - 1, (95, 127))],
)
def test_large_frames_are_reduced_to_twice_the_pixels_wanted(
    film: Callable[..., Path], numbers: Callable[[Any], list[int]], bound: int, size: tuple[int, int]
) -> None:
    frames = read_frames(film(EVEN), FrameConfig(count=60, min_pixels=1, max_pixels=bound))
    assert frames.images.shape[1:3] == size
    assert numbers(frames.images) == list(range(60))


@pytest.mark.parametrize(("space", "matrix"), [(1, (0.2126, 0.0722)), (6, (0.299, 0.114))])
def test_colours_are_those_of_the_files_own_matrix(tmp_path: Path, space: int, matrix: tuple[float, float]) -> None:
    import av

    luma, blue, red = 120, 90, 170
    path = tmp_path / "colour.mp4"
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=25, options={"crf": "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        stream.codec_context.colorspace, stream.codec_context.color_range = space, 1
        for _ in range(3):
            planes = [np.full((64, 64), luma), np.full((16, 64), blue), np.full((16, 64), red)]
            frame = av.VideoFrame.from_ndarray(np.concatenate(planes).astype(np.uint8), format="yuv420p")
            frame.colorspace, frame.color_range = space, 1
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    # ITU-R BT.709 and BT.601: Y in 16 to 235, Cb and Cr in 16 to 240.
    kr, kb = matrix
    y, cb, cr = (luma - 16) / 219, (blue - 128) / 224, (red - 128) / 224
    r, b = y + 2 * (1 - kr) * cr, y + 2 * (1 - kb) * cb
    g = (y - kr * r - kb * b) / (1 - kr - kb)
    seen = read_frames(path, FrameConfig(count=1)).images[0].reshape(-1, 3).mean(axis=0)
    np.testing.assert_allclose(seen, [255 * r, 255 * g, 255 * b], atol=2)


PEAK = """
import resource, sys
from pathlib import Path
from recipe.config import FrameConfig
from recipe.perception.frames import read_frames
kib = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
read_frames(Path(sys.argv[1]), FrameConfig(count=1), 0.5)
before = kib()
images = read_frames(Path(sys.argv[1]), FrameConfig(count=int(sys.argv[2])), start=1.0).images
print(kib() - before, images.nbytes // 1024)
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="the system does not tell a process's peak memory")
def test_memory_holds_the_frames_chosen_and_not_those_passed_over(film: Callable[..., Path]) -> None:
    # 600 frames of 0.9 MB are 553 MB as images, or 276 MB as the decoder gives them.
    path = film(range(600), base=Fraction(1, 30), size=(640, 480), keyframes=1000)
    report = subprocess.run([sys.executable, "-c", PEAK, str(path), "10"], capture_output=True, text=True, check=True)
    grown, chosen = map(int, report.stdout.split())
    assert chosen == 10 * 640 * 480 * 3 // 1024
    assert grown < chosen + 30 * 1024
