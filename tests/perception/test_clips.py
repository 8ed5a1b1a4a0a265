"""A clip shows an example's history and nothing after it, and is decoded once for all that share it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")

from recipe.config import FrameConfig
from recipe.errors import InputError
from recipe.perception.frames import Clips, VideoClips
from recipe.types import Example

EVEN = [20 * n for n in range(60)]


def example(video: str, until: float | None, cut: int = 1) -> Example:
    return Example(f"coin/{video}/{cut}", "coin", video, "make tea", ("boil",), ("pour",), cut, until=until)


def test_a_clip_ends_before_the_first_step_to_be_planned(
    film: Callable[..., Path], numbers: Callable[[Any], list[int]], tmp_path: Path
) -> None:
    film(EVEN, "-abc.mp4")
    clips: Clips = VideoClips(tmp_path, FrameConfig(fps=10.0))
    assert numbers(clips(example("-abc", 0.5)).images) == [1, 4, 7, 10, 13]
    assert numbers(clips(example("-abc", 1.0)).images) == [1, 4, 7, 10, 13, 16, 19, 22, 25, 28]


def test_a_clip_is_decoded_once_while_it_is_kept(film: Callable[..., Path], tmp_path: Path) -> None:
    file = film(EVEN, "abc.mp4")
    clips = VideoClips(tmp_path, FrameConfig(), keep=2)
    first = clips(example("abc", 0.5))
    assert clips(example("abc", 0.5, cut=2)) is first
    for until in (1.0, 0.5, 1.5):
        clips(example("abc", until))
    file.write_bytes(b"no film any more")
    assert clips(example("abc", 0.5)) is first
    clips(example("abc", 1.5))
    with pytest.raises(InputError):
        clips(example("abc", 1.0))  # the one that was asked for longest ago has left


def test_an_example_that_does_not_say_where_its_history_ends_is_refused(
    film: Callable[..., Path], tmp_path: Path
) -> None:
    film(EVEN, "abc.mp4")
    with pytest.raises(InputError, match="example coin/abc/1, field 'until'"):
        VideoClips(tmp_path, FrameConfig())(example("abc", None))


def test_a_missing_video_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no video 'abc' of coin; download it"):
        VideoClips(tmp_path, FrameConfig())(example("abc", 1.0))
