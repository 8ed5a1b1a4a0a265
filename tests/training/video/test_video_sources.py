"""Where histories come from: a folder of videos, or who is handed in."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Recipe

from recipe.config import FrameConfig, SFTConfig
from recipe.data.examples import write_examples
from recipe.errors import ConfigError, InputError
from recipe.models.checkpoints import load_checkpoint
from recipe.training.video import video_source
from recipe.types import Example


@pytest.fixture(scope="session")
def videos(examples: list[Example], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a video of four seconds for each of the first three examples, ten frames a second."""
    av = pytest.importorskip("av", reason="PyAV reads and writes the videos of this test")
    folder = tmp_path_factory.mktemp("videos")
    (folder / "toy").mkdir()
    for number, example in enumerate(examples[:3]):
        place = folder / "toy" if number == 0 else folder
        with av.open(str(place / f"{example.video_id}.mp4"), "w") as container:
            stream = container.add_stream("mpeg4", rate=10)
            stream.width = stream.height = 56
            for shade in np.linspace(0, 255, 40):
                image = np.full((56, 56, 3), shade, dtype=np.uint8)
                for packet in stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")):
                    container.mux(packet)
            for packet in stream.encode():
                container.mux(packet)
    return folder


@pytest.fixture
def config(video_model: Path, examples: list[Example], videos: Path, tmp_path: Path) -> SFTConfig:
    write_examples(tmp_path / "examples.jsonl", [replace(example, until=3.0) for example in examples[:3]])
    return SFTConfig(
        model=str(video_model),
        examples=tmp_path / "examples.jsonl",
        output=tmp_path / "sft",
        input="video",
        videos=videos,
        frames=FrameConfig(count=4, min_pixels=56 * 56, max_pixels=56 * 56),
        epochs=1,
        metrics=(),
    )


def test_videos_are_read_up_to_the_cut(config: SFTConfig) -> None:
    source = video_source(config, None)
    assert source is not None
    assert [example.example_id for example in source.examples] == ["e0", "e1", "e2"]
    clip = source.histories(source.examples[0])
    assert len(clip.images) == 4
    assert clip.times.max() < 3.0
    assert clip.images[-1].max() < 255 * 31 / 39


def test_what_the_videos_hold_is_part_of_the_run(config: SFTConfig, videos: Path, tmp_path: Path) -> None:
    held = video_source(config, None).held
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in (*videos.glob("*.mp4"), *videos.glob("toy/*.mp4")):
        (moved / file.name).write_bytes(file.read_bytes())
    (moved / "of-no-example.mp4").write_bytes(b"")
    assert video_source(config.model_copy(update={"videos": moved}), None).held == held
    with (moved / "v1.mp4").open("ab") as file:
        file.write(b"more")
    assert video_source(config.model_copy(update={"videos": moved}), None).held != held


def test_missing_videos_are_named_or_skipped_by_option(
    config: SFTConfig, examples: list[Example], caplog: pytest.LogCaptureFixture
) -> None:
    write_examples(config.examples, [replace(example, until=3.0) for example in examples])
    with pytest.raises(InputError, match=r"9 of .* videos are missing \(toy/v3, toy/v4.*skip_missing_videos"):
        video_source(config, None)
    skipping = config.model_copy(update={"skip_missing_videos": True})
    with caplog.at_level(logging.WARNING):
        assert [example.video_id for example in video_source(skipping, None).examples] == ["v0", "v1", "v2"]
    assert "9 of 12 examples are skipped" in caplog.text
    write_examples(config.examples, [replace(example, until=3.0) for example in examples[5:]])
    with pytest.raises(InputError, match="7 of the examples"):
        video_source(skipping, None)


def test_an_example_must_say_where_its_history_ends(config: SFTConfig, examples: list[Example]) -> None:
    write_examples(config.examples, [replace(examples[0], until=3.0), *examples[1:3]])
    with pytest.raises(InputError, match=r"'until': 2 of 3 examples do not say where the history ends \(e1, e2\)"):
        video_source(config, None)


def test_text_reads_no_video_and_takes_no_histories(config: SFTConfig, paintings: Any) -> None:
    text = config.model_copy(update={"input": "text"})
    assert video_source(text, None) is None
    with pytest.raises(ConfigError, match="input = 'video' only"):
        video_source(text, paintings)


@pytest.mark.thorough
def test_a_config_trains_from_a_folder_of_videos(config: SFTConfig, tmp_path: Path, recipe: Recipe) -> None:
    path = tmp_path / "sft.toml"
    path.write_text(
        f'model = "{config.model}"\nexamples = "{config.examples}"\noutput = "{config.output}"\n'
        f'input = "video"\nvideos = "{config.videos}"\nepochs = 1\nbatch_size = 3\nmetrics = []\n'
        "merger_learning_rate = 1e-5\n[frames]\ncount = 4\nmin_pixels = 3136\nmax_pixels = 12544\n"
    )
    printed = recipe.json("train", "sft", path)
    assert Path(printed["model"]).is_dir()
    assert (Path(printed["model"]) / "video_preprocessor_config.json").is_file()
    assert printed["last_step"]["step"] == 1
    # What is planned with later sees frames of the size that was trained on.
    assert load_checkpoint(printed["model"]).video.max_pixels == 4 * 3136
