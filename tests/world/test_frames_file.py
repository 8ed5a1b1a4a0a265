"""Clips as files: what is written is what is read back, and the command says what it drew."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch", reason="drawing needs torch")
pytest.importorskip("av", reason="writing videos needs PyAV")

from recipe.cli import app
from recipe.config import FrameConfig
from recipe.errors import InputError
from recipe.models.vision import VideoProcessor
from recipe.perception.frames import read_frames
from recipe.world.clips import ENLARGED, write_clip
from recipe.world.frames import RATE, Painter
from recipe.world.graph import World
from recipe_studies.vision.video_model import VisionShape


def test_a_clip_is_read_back_as_it_was_drawn(world: World, tmp_path: Path) -> None:
    frames = Painter(world).clip(list(world.wordings)[:3], 1)
    write_clip(tmp_path / "clip.mp4", frames)
    read = read_frames(tmp_path / "clip.mp4", FrameConfig(fps=RATE))
    assert len(read.images) == len(frames.images)
    assert np.allclose(read.times, frames.times, atol=1e-3)
    assert read.images.shape[1:3] == tuple(ENLARGED * size for size in frames.images.shape[1:3])
    centres = read.images[:, ENLARGED // 2 :: ENLARGED, ENLARGED // 2 :: ENLARGED]
    assert np.abs(centres.astype(int) - frames.images.astype(int)).mean() < 4


def test_a_model_sees_nearly_the_same_patches_in_the_file(world: World, tmp_path: Path) -> None:
    shape = VisionShape()
    processor = VideoProcessor(
        patch_size=shape.patch_size,
        merge_size=shape.merge_size,
        min_pixels=shape.min_pixels,
        max_pixels=shape.max_pixels,
    )
    frames = Painter(world).clip(list(world.wordings)[:2], 2)
    write_clip(tmp_path / "clip.mp4", frames)
    drawn, read = processor(frames), processor(read_frames(tmp_path / "clip.mp4", FrameConfig(fps=RATE)))
    assert drawn.grid == read.grid
    # In standard deviations of a pixel; two drawings of one step are an order of magnitude further apart.
    assert float((drawn.pixels - read.pixels).abs().mean()) < 0.12


def test_only_names_of_videos_are_written_to(world: World, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"clip\.txt.*no name of a video"):
        write_clip(tmp_path / "clip.txt", Painter(world).clip(list(world.wordings)[:1], 1))


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["world", "clip", *arguments])
    return result.output if result.exit_code == 0 else f"{result.exit_code} {result.exception or ''} {result.output}"


def test_the_command_draws_given_steps_and_first_steps(tmp_path: Path) -> None:
    target = str(tmp_path / "clip.mp4")
    said = run("--goal", "brew a pot of tea", "--history", "boil the water", "--output", target)
    assert "- boil the water" in said
    assert Path(target).stat().st_size > 1000
    said = run("--goal", "brew a pot of tea", "--first", "3", "--output", target)
    assert said.count("\n- ") == 3
