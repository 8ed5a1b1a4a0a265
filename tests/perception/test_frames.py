"""Frames are exact: films whose frames show their own numbers, in every format, read up to every kind of cut."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("av")

from recipe.config import FrameConfig
from recipe.errors import InputError
from recipe.perception.frames import probe, read_frames, sampling_grid

EVEN = [20 * n for n in range(60)]
THIRTIETHS = Fraction(1, 30)
FILMS: dict[str, dict[str, Any]] = {
    "constant rate": {"stamps": EVEN},
    "variable rate": {"stamps": [20 * n + (0, 3, 11, -4)[n % 4] for n in range(40)] + [900, 905, 1100], "bframes": 2},
    "open groups with B-frames as references": {
        "stamps": EVEN,
        "bframes": 3,
        "options": {"preset": "fast", "x264-params": "open-gop=1:b-pyramid=2"},
    },
    "HEVC with open groups": {
        "stamps": EVEN,
        "codec": "libx265",
        "options": {"preset": "ultrafast", "x265-params": "log-level=none:open-gop=1:bframes=3:keyint=12"},
    },
    "one keyframe": {"stamps": EVEN, "keyframes": 1000, "bframes": 2},
    "all keyframes": {"stamps": EVEN, "name": "film.mov", "codec": "mjpeg"},
    "Matroska": {"stamps": EVEN, "name": "film.mkv", "bframes": 2},
    "WebM": {
        "stamps": EVEN,
        "name": "film.webm",
        "codec": "libvpx-vp9",
        "options": {"deadline": "realtime", "cpu-used": "8"},
    },
    "MPEG-TS, clock from 67 ms": {"stamps": range(60), "base": THIRTIETHS, "name": "film.ts", "bframes": 2},
    "MPEG-PS, clock from 0.5 s": {
        "stamps": range(60),
        "base": THIRTIETHS,
        "name": "film.mpg",
        "codec": "mpeg2video",
        "bframes": 2,
    },
    "fragments": {"stamps": EVEN, "muxer": {"movflags": "frag_keyframe+empty_moov"}, "bframes": 2},
    "picture later than sound": {"stamps": [300 + stamp for stamp in EVEN], "sound": 3.0, "bframes": 2},
}
TICK = 0.0006
"""Seconds; Matroska rounds times to a thousandth."""


@pytest.fixture(params=FILMS, ids=lambda name: name)
def made(request: pytest.FixtureRequest, film: Callable[..., Path]) -> tuple[Path, list[float]]:
    """A film, and the seconds at which each of its frames appears."""
    kind = FILMS[request.param]
    return film(**kind), [float(stamp * kind.get("base", Fraction(1, 600))) for stamp in kind["stamps"]]


def shown(times: list[float], asked: float) -> int:
    return max(n for n, time in enumerate(times) if time <= asked)


def test_each_time_asked_for_gives_the_frame_being_shown(
    made: tuple[Path, list[float]], numbers: Callable[[Any], list[int]]
) -> None:
    path, times = made
    for config in (FrameConfig(fps=7.0), FrameConfig(count=5), FrameConfig(fps=240.0, max_frames=1000)):
        frames = read_frames(path, config)
        asked = sampling_grid(config, times[0], probe(path).duration)[0]
        seen = numbers(frames.images)
        # Where a frame appears within a rounding of the time, either it or the one before is right.
        for time, number in zip(asked, seen, strict=True):
            assert shown(times, time - TICK) <= number <= shown(times, time + TICK)
        np.testing.assert_allclose(frames.times, [times[n] for n in seen], atol=TICK)
    assert set(seen) == set(range(len(times)))


def test_no_frame_at_or_after_the_cut_is_seen_and_the_last_before_it_is(
    made: tuple[Path, list[float]], numbers: Callable[[Any], list[int]]
) -> None:
    path, _ = made
    # To the bit, as the file has them.
    times = np.unique(read_frames(path, FrameConfig(fps=240.0, max_frames=1000)).times)
    for last in (0, 12, 23, len(times) - 2):
        start, following = float(max(0, times[last] - 0.1)), times[last + 1]
        for cut in (following, np.nextafter(following, 0), (times[last] + following) / 2):
            frames = read_frames(path, FrameConfig(fps=400.0), float(cut), start)
            assert numbers(frames.images)[-1] == max(numbers(frames.images)) == last
            assert frames.times.max() == times[last] < cut
        barely = read_frames(path, FrameConfig(fps=400.0), float(np.nextafter(times[last], 9)), start)
        assert max(numbers(barely.images)) in (last - 1, last)


@pytest.mark.thorough
def test_jumping_to_keyframes_gives_the_frame_being_shown(
    made: tuple[Path, list[float]], numbers: Callable[[Any], list[int]]
) -> None:
    """One frame is asked for, in the middle of a stretch that ends with the film: what lies between is jumped over."""
    path, times = made
    end = probe(path).duration
    # Just before a keyframe, an index of decoding times already points at it.
    for asked in (*(np.array(times[12::12]) - 0.003).tolist(), *times[:: len(times) // 3], times[-1] - 0.01):
        if (start := max(times[0], 2 * asked - end)) < asked:
            [seen] = numbers(read_frames(path, FrameConfig(count=1), 2 * asked - start, start).images)
            assert shown(times, asked - TICK) <= seen <= shown(times, asked + TICK)


@pytest.mark.parametrize("decimals", [0.1, 0.2, 0.3, 0.7, 1.1])
def test_a_cut_written_in_decimals_is_the_frames_time_in_decimals(
    film: Callable[..., Path], numbers: Callable[[Any], list[int]], decimals: float
) -> None:
    path = film(range(20), base=Fraction(1, 10))
    seen = numbers(read_frames(path, FrameConfig(fps=1000.0, max_frames=10_000), decimals).images)
    assert seen[-1] == round(decimals * 10) - 1


def test_a_file_cut_within_a_group_of_frames_begins_where_its_edit_list_says(
    film: Callable[..., Path], numbers: Callable[[Any], list[int]], tmp_path: Path
) -> None:
    import av

    whole, part = film(EVEN, bframes=2, keyframes=30), tmp_path / "part.mp4"
    # Frames 7 to 59: the first seven are kept in the file, since others are predicted from them, but are not shown.
    with av.open(str(whole)) as source, av.open(str(part), "w", options={"avoid_negative_ts": "disabled"}) as output:
        stream = output.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                offset = int(7 / 30 / packet.time_base)
                packet.pts, packet.dts, packet.stream = packet.pts - offset, packet.dts - offset, stream
                output.mux(packet)
    with av.open(str(part)) as container:
        assert sum(packet.is_discard for packet in container.demux(video=0)) > 0
    frames = read_frames(part, FrameConfig(fps=30.0, max_frames=100))
    assert numbers(frames.images) == list(range(7, 60))
    np.testing.assert_allclose(frames.times, np.arange(53) / 30, atol=1e-6)
    assert numbers(read_frames(part, FrameConfig(fps=30.0, max_frames=100), until=1.0).images) == list(range(7, 37))


def test_times_are_evenly_spread_and_the_rate_is_that_of_the_grid(film: Callable[..., Path]) -> None:
    path = film(EVEN)
    uniform = read_frames(path, FrameConfig(count=4), until=1.0)
    np.testing.assert_allclose(uniform.times, [3 / 30, 11 / 30, 18 / 30, 26 / 30])
    assert uniform.rate == 4.0
    bounded = read_frames(path, FrameConfig(fps=30.0, max_frames=6))
    assert bounded.images.shape[0] == 6
    assert bounded.rate == 3.0
    late = read_frames(path, FrameConfig(fps=2.0), until=2.0, start=1.0)
    np.testing.assert_allclose(late.times, [37 / 30, 52 / 30])


def test_frames_repeat_only_where_the_film_shows_fewer(
    film: Callable[..., Path], numbers: Callable[[Any], list[int]]
) -> None:
    path = film(EVEN)
    assert numbers(read_frames(path, FrameConfig(count=60)).images) == list(range(60))
    assert numbers(read_frames(path, FrameConfig(count=8), until=0.1).images) == [0, 0, 0, 1, 1, 2, 2, 2]
    still = read_frames(film([0, 590], "still.mp4"), FrameConfig(count=5), until=0.9)
    np.testing.assert_array_equal(still.images[0], still.images[3])
    assert still.times.tolist() == [0, 0, 0, 0, 0]


@given(
    begin=st.floats(0, 1e5),
    length=st.floats(1e-6, 1e4),
    fps=st.floats(0.01, 240),
    count=st.none() | st.integers(1, 300),
)
def test_times_asked_for_lie_in_the_stretch_in_order(
    begin: float, length: float, fps: float, count: int | None
) -> None:
    end = begin + length
    if end <= begin:
        return
    asked, rate = sampling_grid(FrameConfig(fps=fps, count=count), begin, end)
    assert begin <= asked[0]
    assert asked[-1] < end
    assert all(first <= second for first, second in pairwise(asked))
    assert len(asked) == (count or min(len(asked), FrameConfig().max_frames))
    if len(asked) > 1:
        assert np.diff(asked).mean() == pytest.approx(1 / rate, rel=1e-3, abs=1e-9)


def test_a_start_after_the_cut_or_no_time_is_refused(film: Callable[..., Path]) -> None:
    path = film(EVEN)
    for start, until in ((1.0, 1.0), (1.5, 1.0), (2.5, None), (-1.0, 1.0), (math.nan, 1.0), (math.inf, None)):
        with pytest.raises(InputError, match="field 'start'"):
            read_frames(path, FrameConfig(), until, start)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "count", "size", "last"),
    [
        ("cooking.mp4", 13, (360, 640), 6.24),
        ("making_cake.mp4", 20, (426, 320), 9 + 22 / 30),
        ("wood_board.mp4", 30, (316, 600), 442 * 1001 / 30000),
    ],
)
def test_real_clips(shared_data: Path, name: str, count: int, size: tuple[int, int], last: float) -> None:
    path = shared_data / "videos" / name
    frames = read_frames(path, FrameConfig())
    assert frames.images.shape == (count, *size, 3)
    assert frames.times[-1] == pytest.approx(last)
    assert probe(path)[2:6] == (size[1], size[0], 0, "h264")
    until = read_frames(path, FrameConfig(), until=4.0)
    np.testing.assert_array_equal(until.images, frames.images[:8])


@pytest.mark.real_data
def test_a_real_clip_whose_edit_list_leaves_a_frame_out(shared_data: Path) -> None:
    path = shared_data / "videos" / "cooking.mp4"
    assert probe(path).duration == pytest.approx(159 / 25)
    np.testing.assert_allclose(read_frames(path, FrameConfig(count=159)).times, np.arange(159) / 25)
