"""Uploads that are made to hold the server: ended within limits, while others are served, and at SIGTERM."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.perception.test_uploads import made
from tests.serving.conftest import SlowEngine

from recipe.perception.phi import Phi

httpx2 = pytest.importorskip("httpx2")
HANGS = b"hangs"

STAND_IN = """
import json, os, sys, time
from pathlib import Path
from recipe.perception import uploads
asked = json.loads(sys.argv[1])
if Path(asked["path"]).read_bytes().startswith(b"hangs") or "config" in asked and {decoding}:
    Path({begun!r}, str(os.getpid())).touch()
    while not Path({begun!r}).with_name("go").exists():
        time.sleep(0.01)
uploads.main()
"""
SERVER = """
import sys
from pathlib import Path
from recipe.children import isolated
from recipe.models.protocol import ReplayEngine
from recipe.perception import uploads
from recipe.planning.planner import Planner
from recipe_apps.serving.app import Served, create_app
from recipe_apps.web.process import listen, run_service

uploads.isolated = lambda _: isolated(Path(sys.argv[1]).read_text())
app = create_app(Served(Planner(ReplayEngine({})), "none", sees_video=True))
page = app.state.page
with listen("127.0.0.1", 0) as bound:
    Path(sys.argv[2]).write_text(f"{bound.getsockname()[1]} {page.clips.folder}")
    run_service(app, bound, page.runs.close, 1)
"""


def send(client: Any, body: bytes) -> Any:
    return client.post("/api/clips", content=body, headers={"Content-Type": "application/octet-stream"})


def wait_for(found: Any) -> None:
    until = time.monotonic() + 300
    while not found():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.thorough
def test_a_list_cannot_reach_the_clips_of_others(serve: Any, tmp_path: Path) -> None:
    with serve(phi=Phi(SlowEngine(["none"]))) as page:
        folder = page.app.state.page.clips.folder
        identity = send(page.client, made(tmp_path / "good.mp4").read_bytes()).json()["id"]
        [kept] = folder.iterdir()
        assert identity not in kept.name
        for name in (identity, kept.name, f"{folder}/{kept.name}"):
            answer = send(page.client, f"ffconcat version 1.0\n{f'file {name}' * 9}\n".encode())
            assert answer.json()["error"]["code"] == "bad_clip"
        # The id that is told is the one that is accepted, and no other.
        for name in (kept.name, "..", f"%2e%2e%2f{folder.name}%2f{kept.name}"):
            page.client.delete(f"/api/clips/{name}")
            run = page.client.post("/api/runs", json={"goal": "tea", "kind": "reading", "clip": name, "until": 0.5})
            assert (run.status_code, run.json()["error"]["code"]) == (404, "unknown_clip")
        assert page.events(page.begin(kind="reading", clip=identity, until=0.5))[-1].kind in ("done", "failed")
        assert page.client.delete(f"/api/clips/{identity}").status_code == 204
        assert list(folder.iterdir()) == []


@pytest.mark.thorough
def test_uploads_that_hang_hold_nobody(serve: Any, tmp_path: Path, decoder_runs: Callable[[str], None]) -> None:
    (begun := tmp_path / "begun").mkdir()
    decoder_runs(STAND_IN.format(begun=str(begun), decoding=False))
    codes: list[str] = []
    with serve(phi=Phi(SlowEngine(["none"]))) as page:

        def attack() -> None:
            codes.append(send(page.client, HANGS).json()["error"]["code"])

        threads = [threading.Thread(target=attack) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(list(begun.iterdir())) >= 2)
        assert page.client.get("/healthz").status_code == 200
        assert page.events(page.begin(plans=1))[-1].kind == "done"
        (tmp_path / "go").touch()
        assert send(page.client, made(tmp_path / "good.mp4").read_bytes()).status_code == 201
        for thread in threads:
            thread.join()
        assert codes == 4 * ["bad_clip"]
        assert len(list(begun.iterdir())) == 4
        assert len(list(page.app.state.page.clips.folder.iterdir())) == 1


@pytest.mark.thorough
def test_a_server_ends_while_clips_are_read(tmp_path: Path) -> None:
    """One clip is being decoded for a run, two are looked at, and others wait for that."""
    (begun := tmp_path / "begun").mkdir()
    stand_in, started, script = tmp_path / "stand_in.py", tmp_path / "started", tmp_path / "server.py"
    stand_in.write_text(STAND_IN.format(begun=str(begun), decoding=True))
    script.write_text(SERVER)
    with subprocess.Popen([sys.executable, script, stand_in, started]) as server:
        wait_for(lambda: server.poll() is not None or (started.exists() and " " in started.read_text()))
        port, folder = started.read_text().split(" ", 1)
        client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=300)

        def attack() -> None:
            with suppress(httpx2.TransportError):  # the server has gone
                send(client, HANGS)

        clip = send(client, made(tmp_path / "good.mp4").read_bytes()).json()["id"]
        body = {"goal": "tea", "clip": clip, "until": 0.5}
        assert client.post("/api/runs", json=body).status_code == 202
        attacks = [threading.Thread(target=attack) for _ in range(4)]
        for thread in attacks:
            thread.start()
        wait_for(lambda: len(list(begun.iterdir())) >= 3)
        server.send_signal(signal.SIGTERM)
        assert server.wait(300) == 0
        for thread in attacks:
            thread.join()
        client.close()
    assert not any(Path(f"/proc/{path.name}").exists() for path in begun.iterdir())
    assert not Path(folder).exists()
