"""What is wrong with a file or a cut point is one sentence; damage is met only where what lies behind is asked for."""

import math
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")

from recipe.config import FrameConfig
from recipe.errors import InputError
from recipe.perception.frames import probe, read_frames

SIXTIETHS = Fraction(1, 60)


def refusal(path: Path, until: float | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read_frames(path, FrameConfig(), until)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.endswith(".")
    assert message.count("; ") == 1
    return message


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("zero.mp4", b"", "the file is empty"),
        ("page.mp4", b"<!DOCTYPE html><html>Not found</html>" * 30, "not a video"),
        ("noise.mp4", np.random.default_rng(0).bytes(20_000), "not a video"),
    ],
)
def test_what_is_no_video(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert told in refusal(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "none.mp4")
    assert "does not exist" in refusal(tmp_path / "http://127.0.0.1:1/none.mp4")
    assert "a folder" in refusal(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every file")
def test_a_file_that_may_not_be_read(film: Callable[..., Path]) -> None:
    path = film(range(3))
    path.chmod(0)
    assert "check its permissions" in refusal(path)


@pytest.mark.parametrize("cover", [False, True])
def test_sound_alone(tmp_path: Path, cover: bool) -> None:
    import av

    path = tmp_path / "song.m4a"
    with av.open(str(path), "w", format="mp4") as output:
        voice = output.add_stream("aac", rate=16000)
        picture = output.add_stream("mjpeg", rate=1) if cover else None
        if picture:
            picture.width, picture.height, picture.pix_fmt = 64, 64, "yuvj420p"
            picture.disposition = av.stream.Disposition.attached_pic
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), format="fltp", layout="mono")
        silence.sample_rate = 16000
        packets = [*voice.encode(silence), *voice.encode(None)]
        if picture:
            output.mux(picture.encode(av.VideoFrame(64, 64, "yuvj420p")))
        output.mux(packets)
    assert "sound but no pictures" in refusal(path)


@pytest.mark.parametrize("until", [0.0, -1.0, math.nan, 0.5])
def test_a_cut_point_before_the_first_frame(film: Callable[..., Path], until: float) -> None:
    path = film([300 + 20 * n for n in range(30)], sound=1.0)
    message = refusal(path, until)
    assert "field 'until'" in message
    assert "the first frame appears at 0.5 s" in message


@pytest.mark.parametrize("until", [1.0 + 1e-6, 41.0, math.inf])
def test_a_cut_point_beyond_the_end(film: Callable[..., Path], until: float) -> None:
    path = film(range(60), base=SIXTIETHS, sound=3.0)
    assert "beyond the end of the video, 1.000 s" in refusal(path, until)
    assert len(read_frames(path, FrameConfig(), 1.0).images) == 2


@pytest.mark.parametrize(
    ("name", "kept"),
    [("film.mp4", 0.4), ("film.mp4", 0.8), ("film.mkv", 0.4), ("film.mkv", 0.8), ("fragments.mp4", 0.6)],
)
def test_a_file_that_breaks_off_shows_what_lies_before(
    film: Callable[..., Path], numbers: Callable[[Any], list[int]], tmp_path: Path, name: str, kept: float
) -> None:
    flags = {"fragments.mp4": "frag_keyframe+empty_moov", "film.mp4": "faststart"}.get(name)
    muxer = {"movflags": flags} if flags else None
    # Fragments know no edit lists: B-frames, or the priming of sound, would shift what is shown.
    kind = {} if name == "fragments.mp4" else {"bframes": 2, "sound": 10.0}
    path = film(range(600), name, SIXTIETHS, muxer=muxer, **kind)
    assert probe(path).complete
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    end, config = probe(path).duration, FrameConfig(fps=20.0, max_frames=1000)
    # The last frames may be held back: a decoder at a break cannot tell whether one in between is missing.
    for until in np.arange(0.2, end - 0.5, 1.9).tolist():
        assert numbers(read_frames(path, config, until).images) == [int(3 * n + 1.5) for n in range(round(20 * until))]
    for until in (end + 0.1, end + 1.0):
        assert "no frames can be read after" in refusal(path, until) or "beyond the end" in refusal(path, until)
    if name != "fragments.mp4":
        assert not probe(path).complete
        assert "breaks off: no frames can be read after" in refusal(path)


def test_an_index_that_is_missing(film: Callable[..., Path]) -> None:
    path = film(range(60), base=SIXTIETHS)
    path.write_bytes(path.read_bytes()[:2000])
    assert "moov" in refusal(path)
    head = film(range(60), "head.mp4", SIXTIETHS, muxer={"movflags": "faststart"})
    head.write_bytes(head.read_bytes()[:200])
    assert "breaks off" in refusal(head)


@pytest.mark.thorough
@pytest.mark.parametrize("kept", range(3000, 3600, 150))
def test_frames_missing_at_a_break_are_not_stood_in_for_by_others(
    film: Callable[..., Path], numbers: Callable[[Any], list[int]], kept: int
) -> None:
    path = film(range(60), base=SIXTIETHS, bframes=3, options={"preset": "fast"}, muxer={"movflags": "faststart"})
    path.write_bytes(path.read_bytes()[:kept])
    end, config, shown = probe(path).duration, FrameConfig(fps=120.0, max_frames=1000), 0
    for until in (np.arange(max(1, round(60 * end) - 12), round(60 * end) + 1) / 60).tolist():
        try:
            seen = numbers(read_frames(path, config, until).images)
        except InputError:
            continue
        assert seen == [number // 2 for number in range(round(120 * until))]
        shown += 1
    assert shown > 0


def test_damage_in_the_middle(film: Callable[..., Path], numbers: Callable[[Any], list[int]]) -> None:
    path = film(range(600), base=SIXTIETHS, bframes=2, keyframes=30, muxer={"movflags": "faststart"})
    content = bytearray(path.read_bytes())
    begin = len(content) * 6 // 10
    content[begin : begin + 1500] = bytes(1500)
    path.write_bytes(content)
    assert probe(path).complete
    assert numbers(read_frames(path, FrameConfig(), 2.0).images) == [15, 45, 75, 105]
    assert "the video is damaged after" in refusal(path)


@pytest.mark.real_data
def test_a_wrong_byte_that_the_decoder_covers_up(shared_data: Path, tmp_path: Path) -> None:
    content = bytearray((shared_data / "videos" / "making_cake.mp4").read_bytes())
    content[100_000] ^= 0xFF
    path = tmp_path / "scratched.mp4"
    path.write_bytes(content)
    assert len(read_frames(path, FrameConfig(), 2.0).images) == 4
    assert "the video is damaged after 2.33 s" in refusal(path)


def test_a_stream_without_a_container(film: Callable[..., Path]) -> None:
    path = film(range(10), "film.h264", Fraction(1, 30))
    assert "not a video" in refusal(path)  # its frames have no times


def test_a_file_that_does_not_say_how_long_it_is(
    film: Callable[..., Path], numbers: Callable[[Any], list[int]]
) -> None:
    options = {"deadline": "realtime", "cpu-used": "8"}
    path = film(range(90), "live.webm", Fraction(1, 30), "libvpx", options, muxer={"live": "1"})
    assert probe(path).duration == pytest.approx(3.0, abs=0.002)
    assert numbers(read_frames(path, FrameConfig()).images) == [7, 22, 37, 52, 67, 82]
    assert "beyond the end" in refusal(path, 3.2)
