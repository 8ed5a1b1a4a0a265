"""Clips: read up to the cut, refused in one sentence where they are none, and never left on disk."""

import http.client
import socket
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.perception.test_uploads import LISTS, wide_jpeg
from tests.serving.conftest import SlowEngine

from recipe.config import FrameConfig, PhiConfig, SamplingConfig
from recipe.models.local import LocalEngine
from recipe.models.protocol import ModelRequest, Stopped, WrittenPieces, videos
from recipe.perception.phi import Phi
from recipe.planning.planner import Planner

av = pytest.importorskip("av")


def film(path: Path, frames: int, rate: Fraction) -> bytes:
    """A clip of 56 x 56."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=rate)
        stream.width = stream.height = 56
        stream.pix_fmt = "yuv420p"
        for shade in range(frames):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((56, 56, 3), 20 * shade, np.uint8))))
        file.mux(stream.encode())
    return path.read_bytes()


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Three seconds at 4 frames a second."""
    return film(tmp_path_factory.mktemp("clip") / "clip.mp4", 12, Fraction(4))


class Watching(SlowEngine):
    """Notes the last moment of each clip that it is shown."""

    def stream_all(self, requests: Any, stopped: Stopped = lambda _: False) -> WrittenPieces:
        shown: list[ModelRequest] = requests
        self.seen = [float(videos(one.chat)[0].times[-1]) for one in shown if videos(one.chat)]
        plain = [ModelRequest([{"role": "user", "content": "x"}], one.sampling, one.sample) for one in shown]
        yield from super().stream_all(plain, stopped)


def send(page: Any, body: bytes, **headers: str) -> Any:
    headers = {"Content-Type": "application/octet-stream"} | headers
    return page.client.post("/api/clips", content=body, headers=headers)


def left(page: Any) -> list[Path]:
    return list(page.app.state.page.clips.folder.iterdir())


def test_a_clip_is_read_up_to_the_cut(serve: Any, clip: bytes) -> None:
    engine = Watching(["1. boil the water\n2. warm the pot"])
    with serve(phi=Phi(engine), phi_name="small") as page:
        assert page.client.get("/api/info").json()["phi"] == {"name": "small"}
        sent = send(page, clip)
        assert sent.status_code == 201
        about = sent.json()
        assert (about["seconds"], about["width"], about["complete"]) == (3.0, 56, True)
        run = page.begin(kind="reading", clip=about["id"], until=1.5)
        events = page.events(run)
        assert [event.kind for event in events][-2:] == ["reading", "done"]
        assert events[-2].data == {"steps": ["boil the water", "warm the pot"], "seconds": 1.5}
        assert all(moment < 1.5 for moment in engine.seen)
        assert page.client.delete(f"/api/clips/{about['id']}").status_code == 204
        assert left(page) == []
        folder = page.app.state.page.clips.folder
    assert not folder.exists()


@pytest.mark.thorough
def test_a_planner_that_sees_plans_from_the_clip(serve: Any, clip: bytes) -> None:
    engine = Watching(["1. add the leaves"])
    with serve(engine=engine, sees_video=True, evidence=None) as page:
        about = send(page, clip).json()
        events = page.events(page.begin(clip=about["id"], until=2.0, plans=1))
        assert [event.data["text"] for event in events if event.kind == "step"] == ["add the leaves"]
        assert engine.seen[0] < 2.0
        late = page.client.post("/api/runs", json={"goal": "tea", "clip": about["id"], "until": 9.0})
        assert (late.status_code, late.json()["error"]["code"]) == (422, "bad_clip")


@pytest.mark.thorough
def test_a_vision_language_model_reads_and_plans(serve: Any, clip: bytes, tiny_video_model: Path) -> None:
    frames = FrameConfig(min_pixels=28 * 28, max_frames=4)
    engine = LocalEngine(tiny_video_model, device="cpu", frames=frames)
    assert engine.reads_video
    phi = Phi(engine, PhiConfig(frames=frames, max_tokens=12))
    planner = Planner(engine, SamplingConfig(max_tokens=12))
    with serve(planner=planner, phi=phi, frames=frames, sees_video=True, evidence=None) as page:
        about = send(page, clip).json()
        read = page.events(page.begin(kind="reading", clip=about["id"], until=2.0))
        assert [event.kind for event in read][-2:] == ["reading", "done"]
        planned = page.events(page.begin(clip=about["id"], until=2.0, plans=2))
        assert planned[-1].kind == "done"
        assert planned[-1].data["tokens"] > 0


@pytest.mark.thorough
def test_what_is_no_clip_is_refused_and_not_kept(serve: Any, clip: bytes, tmp_path: Path) -> None:
    phi = Phi(SlowEngine(["none"]))
    # tests/perception/test_uploads.py has all hostile files, against the process that reads.
    hostile = [wide_jpeg(tmp_path / "wide.avi").read_bytes(), next(iter(LISTS.values()))]
    with serve(phi=phi) as page:
        header = b"\x00\x00\x00\x20ftypisom" + bytes(20) + b"\x00\x00\x00\x01mdat" + (4 << 30).to_bytes(8, "big")
        assert send(page, b"").json()["error"]["code"] in ("bad_clip", "missing_field")
        for body in (b"no video", header, film(tmp_path / "long.mp4", 2, Fraction(1, 1801)), *hostile):
            answer = send(page, body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_clip"), body[:20]
            message = answer.json()["error"]["message"]
            assert message.endswith(".")
            assert ". " not in message
            assert "recipe-clips" not in message
        connection = http.client.HTTPConnection(page.url.removeprefix("http://"))
        connection.putrequest("POST", "/api/clips")
        for name, value in (("Content-Type", "application/octet-stream"), ("Content-Length", str((512 << 20) + 1))):
            connection.putheader(name, value)
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()
        assert send(page, clip, **{"Content-Type": "video/mp4"}).status_code == 422
        assert left(page) == []
        unknown = page.client.post("/api/runs", json={"goal": "tea", "kind": "reading", "clip": "a", "until": 1.0})
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_clip")


def until_left(page: Any, count: int) -> None:
    """Wait until so many clips lie in the server's folder."""
    end = time.monotonic() + 300
    while len(left(page)) != count:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_upload_that_breaks_off_leaves_nothing(serve: Any, clip: bytes) -> None:
    with serve() as page:
        host, port = page.url.removeprefix("http://").split(":")
        for _ in range(17):  # one more than there is room for
            with socket.create_connection((host, int(port))) as connection:
                head = f"POST /api/clips HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\n"
                connection.sendall(f"{head}Content-Length: {len(clip)}\r\n\r\n".encode() + clip[: len(clip) // 2])
                until_left(page, 1)
            until_left(page, 0)
        assert send(page, clip).status_code == 201
        until = time.monotonic() + 60
        while 'recipe_page_failures_total{class="hung_up"} 17.0' not in (said := page.client.get("/metrics").text):
            assert time.monotonic() < until, said  # a client that goes is no fault of the program


def test_clips_are_deleted_some_time_after_their_last_use(serve: Any, clip: bytes) -> None:
    with serve() as page:
        kept = page.app.state.page.clips.require(send(page, clip).json()["id"], 1.0)
        assert len(left(page)) == 1
        kept.last_used -= 901
        until_left(page, 0)
