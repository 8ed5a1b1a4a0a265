"""Videos of strangers: read as any other, in a process that ends with its limits; headers that claim too much."""

import struct
import threading
import zlib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")

import av

from recipe.config import FrameConfig
from recipe.errors import ComputeError, InputError
from recipe.perception.frames import probe, read_frames
from recipe.perception.uploads import UploadReader

TEN_HOURS = 36_000


def made(path: Path, codec: str = "mpeg4", pix_fmt: str = "yuv420p", count: int = 4, **more: Any) -> Path:
    """A video of 56 x 56 at 4 frames a second."""
    with av.open(str(path), "w", format=more.get("format")) as file:
        file.metadata.update(more.get("metadata", {}))
        stream = file.add_stream(codec, rate=4)
        stream.width = stream.height = 56
        stream.pix_fmt = pix_fmt
        if "aspect" in more:
            stream.codec_context.sample_aspect_ratio = more["aspect"]
        for shade in range(count):
            frame = av.VideoFrame.from_ndarray(np.full((56, 56, 3), 20 * shade, np.uint8))
            file.mux(stream.encode(frame.reformat(format=pix_fmt)))
        file.mux(stream.encode())
    return path


def patched(path: Path, box: bytes, offset: int, value: bytes) -> None:
    """Write over what stands `offset` bytes behind the name of a box, wherever the box occurs."""
    body, found = bytearray(path.read_bytes()), 0
    place = body.find(box)
    while place >= 0:
        begin = place + len(box) + offset
        body[begin : begin + len(value)] = value
        found, place = found + 1, body.find(box, begin)
    assert found
    path.write_bytes(body)


def wide_mp4(path: Path) -> Path:
    """The header of the container claims 65,535 x 65,535, and the pictures hold nothing that says otherwise."""
    made(path, "rawvideo", "yuv420p", format="mov")
    for name in (b"raw ", b"yuv2", b"I420", b"2vuy"):
        if name in path.read_bytes():
            patched(path, name, 24, struct.pack(">HH", 65_535, 65_535))
    return path


def wide_jpeg(path: Path) -> Path:
    """Each picture's own header claims 65,535 x 65,535."""
    made(path, "mjpeg", "yuvj420p")
    patched(path, b"\xff\xc0\x00\x11\x08", 0, struct.pack(">HH", 65_535, 65_535))
    return path


def large_png(path: Path) -> Path:
    """A megabyte that unpacks to pictures of 121 million pixels: within FFmpeg's own bound, beyond ours."""
    side = 11_000
    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + 3 * side)) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b"")):
        png += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    with av.open(str(path), "w", format="mov") as file:
        stream = file.add_stream("png", rate=4)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "rgb24"
        packet = av.Packet(png)
        packet.stream, packet.time_base, packet.pts, packet.dts, packet.duration = stream, Fraction(1, 4), 0, 0, 1
        packet.is_keyframe = True
        file.mux(packet)
    return path


def ten_hours(path: Path) -> Path:
    """One frame, which by the header is shown for ten hours."""
    made(path, count=1, format="mp4")
    body = path.read_bytes()
    movie, media = (struct.unpack_from(">I", body, body.find(box) + 16)[0] for box in (b"mvhd", b"mdhd"))
    for box, offset, scale in (
        (b"mvhd", 16, movie), (b"tkhd", 20, movie), (b"elst", 8, movie), (b"mdhd", 16, media), (b"stts", 12, media),
    ):  # fmt: skip
        patched(path, box, offset, struct.pack(">I", TEN_HOURS * scale))
    return path


def test_an_upload_is_read_as_any_other_video(tmp_path: Path) -> None:
    path, config, reader = made(tmp_path / "a.mp4"), FrameConfig(fps=4.0), UploadReader(1)
    assert reader.probe(path, 60) == probe(path)
    there, here = reader.frames(path, config, 0.9, 60), read_frames(path, config, 0.9)
    assert np.array_equal(there.images, here.images)
    assert np.array_equal(there.times, here.times)
    assert there.rate == here.rate
    with pytest.raises(InputError) as caught:
        reader.frames(path, config, 9.0, 60)
    with pytest.raises(InputError) as expected:
        read_frames(path, config, 9.0)
    assert str(caught.value) == str(expected.value)


SPIN = "exec('def spin(_):\\n while True: pass') or spin"
TAKE = "lambda _: bytearray(64 << 30)"
OPEN = "lambda path: [path.open() for _ in range(100)]"
WRITE = "lambda path: path.with_name('written').write_text('x')"
CRASH = "lambda _: __import__('os').abort()"


@pytest.mark.thorough
@pytest.mark.parametrize("does", [SPIN, TAKE, OPEN, WRITE, CRASH], ids=["spin", "memory", "files", "write", "crash"])
def test_a_decoder_that_takes_too_much_is_ended(
    tmp_path: Path, decoder_runs: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    decoder_runs(f"import recipe.perception.uploads as one; one.probe = {does}; one.main()")
    path, reader = made(tmp_path / "a.mp4"), UploadReader(1)
    with pytest.raises(InputError, match=r"a\.mp4"):
        reader.probe(path, 5)
    assert not any(one.stat().st_size for one in tmp_path.iterdir() if one != path)
    monkeypatch.undo()
    assert reader.probe(path, 60).complete


def test_closing_ends_what_hangs_and_begins_nothing(tmp_path: Path, decoder_runs: Callable[[str], None]) -> None:
    (begun := tmp_path / "begun").mkdir()
    hang = f"import os, time; os.mkdir({str(begun)!r} + f'/{{os.getpid()}}'); time.sleep(1e6)"
    decoder_runs(hang)
    path, reader, ended = made(tmp_path / "a.mp4"), UploadReader(1), list[object]()

    def read(call: Callable[[], object]) -> None:
        try:
            ended.append(call())
        except Exception as error:  # noqa: BLE001 - what it was is looked at
            ended.append(error)

    calls = [lambda: reader.probe(path, 10_000)] + 3 * [lambda: reader.frames(path, FrameConfig(), 1.0, 10_000)]
    threads = [threading.Thread(target=read, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    while len(list(begun.iterdir())) < 2:  # the probe, and one of three decodings
        pass
    reader.close()
    for thread in threads:
        thread.join()
    assert [type(one) for one in ended] == 4 * [ComputeError]
    assert len(list(begun.iterdir())) == 2
    assert not any(Path(f"/proc/{one.name}").exists() for one in begun.iterdir())


@pytest.mark.thorough
@pytest.mark.parametrize("craft", [wide_mp4, wide_jpeg, large_png])
def test_frames_that_claim_too_many_pixels(tmp_path: Path, craft: Callable[[Path], Path]) -> None:
    path = craft(tmp_path / "wide.avi")
    for read in (probe, lambda one: UploadReader(1).probe(one, 60)):
        with pytest.raises(InputError) as caught:
            read(path)  # type: ignore[operator]
        assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("aspect", [(1 << 30, 1), (100_000, 1), (3_000, 1), (1, 3_000), (1, 1 << 30)])
def test_pixels_that_claim_an_impossible_shape(tmp_path: Path, aspect: tuple[int, int]) -> None:
    path = made(tmp_path / "a.mp4", aspect=Fraction(4, 3))
    patched(path, b"pasp", 0, struct.pack(">II", *aspect))
    for read in (probe, lambda one: read_frames(one, FrameConfig())):
        with pytest.raises(InputError):
            read(path)


def test_one_frame_of_ten_hours(tmp_path: Path) -> None:
    path, config = ten_hours(tmp_path / "long.mp4"), FrameConfig(max_frames=16)
    assert probe(path).duration == pytest.approx(TEN_HOURS, abs=1)
    for frames in (read_frames(path, config), UploadReader(1).frames(path, config, TEN_HOURS - 1, 60)):
        assert frames.images.shape == (16, 56, 56, 3)
        assert set(frames.times.tolist()) == {0.0}


def test_a_title_that_is_no_utf8_is_no_reason(tmp_path: Path) -> None:
    path = made(tmp_path / "a.mp4", metadata={"title": "abcdefgh"})
    path.write_bytes(path.read_bytes().replace(b"abcdefgh", b"Caf\xe9\xff\xfe\x80."))
    assert probe(path).complete


@pytest.mark.parametrize("ending", ["mp4", "mov", "mkv", "webm", "avi", "ts", "mpg", "asf", "3gp", "flv", "ogv"])
def test_containers_that_are_read(tmp_path: Path, ending: str) -> None:
    codec = {"webm": "libvpx", "flv": "flv", "ogv": "libtheora"}.get(ending, "mpeg4")
    if codec not in av.codecs_available:
        pytest.skip(f"this FFmpeg writes no {codec}")
    path = made(tmp_path / f"a.{ending}", codec)
    assert len(read_frames(path, FrameConfig(count=2)).images) == 2


LISTS = {
    "ffconcat": b"ffconcat version 1.0\nfile a.mp4\nfile a.mp4\n",
    "ffconcat behind a tag": b"ID3\x04\x00\x00\x00\x00\x00\x00ffconcat version 1.0\nfile a.mp4\n",
    "HLS": b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:1,\na.ts\n#EXT-X-ENDLIST\n",
    "DASH": b'<?xml version="1.0"?>\n<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period/></MPD>\n',
    "SDP": b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n",
    "RTSP": b"rtsptext\nrtsp://127.0.0.1:1/x\n",
    "redirect": b"[Reference]\nRef1=http://127.0.0.1:1/x?MSWMExt=.asf\n",
    "text": b"1\n00:00:01,000 --> 00:00:02,000\nhi\n\n2\n00:00:03,000 --> 00:00:04,000\nyou\n",
    "settings": b";FFMETADATA1\ntitle=x\n",
}


@pytest.mark.parametrize("name", ["list", "list.mp4", "%d.mp4", "concat:a.mp4", "list.m3u8", "0001.png"])
@pytest.mark.parametrize("kind", LISTS)
def test_a_list_of_other_files_is_no_video(tmp_path: Path, kind: str, name: str) -> None:
    for beside in ("a.mp4", "a.ts", "1.mp4", "2.mp4"):
        made(tmp_path / beside)
    path = tmp_path / name
    path.write_bytes(LISTS[kind])
    with pytest.raises(InputError, match="not a video"):
        probe(path)


def test_a_series_of_pictures_is_no_video(tmp_path: Path) -> None:
    for number in range(3):
        picture = av.CodecContext.create("png", "w")
        picture.width = picture.height = 8
        picture.pix_fmt, picture.time_base = "rgb24", Fraction(1)
        packet = picture.encode(av.VideoFrame(8, 8, "rgb24"))[0]
        (tmp_path / f"{number}.png").write_bytes(bytes(packet))
    for name in ("0.png", "%d.png"):
        with pytest.raises(InputError):
            probe(tmp_path / name)
