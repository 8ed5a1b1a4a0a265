"""Phi on several devices: the work is shared, every process ends with the first one, and nothing is asked for twice.

An endpoint stands in for the models, since it sees who asks; the command's own test loads a model in each process.
"""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
from tests.models.endpoint_server import Reply, Server, completion, serving

pytest.importorskip("av")
pytest.importorskip("openai")
from recipe.artifacts import write_jsonl
from recipe.config import FrameConfig, ModelConfig, PhiConfig
from recipe.data.histories import read_histories
from recipe.errors import ComputeError, InputError
from recipe.models.model import open_model
from recipe.perception.devices import PhiOnDevices
from recipe.perception.phi import Clip, PhiResult, PhiRun

CONFIG = PhiConfig(frames=FrameConfig(count=2), max_tokens=16)
RUN = """
import sys
from pathlib import Path
from recipe.perception.phi import Clip
from tests.perception.test_phi_devices import shared
if __name__ == "__main__":
    shared(sys.argv[1], Path(sys.argv[2]), [Clip(str(n), Path(sys.argv[3]), "make tea", 0.5 * n) for n in range(1, 5)])
"""


def tells(body: dict[str, Any], before: int = 0) -> Reply:
    """The time of the last frame."""
    times = [part["text"] for part in body["messages"][0]["content"] if part["type"] == "text"][:-1]
    return completion(f"1. Seen {times[-1]}")


@pytest.fixture
def clips(film: Any) -> list[Clip]:
    path = film(range(0, 24 * 75, 75))  # three seconds, eight frames in each
    return [Clip(str(n), path, "make tea", 0.5 * n) for n in range(1, 5)]


def shared(url: str, cache: Path, clips: Sequence[Clip], skip: bool = False) -> PhiResult:
    settings = ModelConfig(model="m", endpoint=url, cache=cache, tries=1)
    model = open_model(settings.model_copy(update={"replay": True}))
    run = PhiOnDevices(model, settings, ["cpu", "cpu"], CONFIG, "history", skip_unreadable=skip)
    return run.describe(clips)


def texts(result: PhiResult) -> dict[str, str]:
    return {name: told.answer.text for name, told in result.descriptions.items()}


def once_two_ask(body: dict[str, Any], server: Server) -> Reply:
    """Until two requests are under way, none is answered."""
    server.until(lambda: server.most == 2)
    return tells(body)


@pytest.mark.thorough
def test_devices_share_the_clips(tmp_path: Path, clips: list[Clip]) -> None:
    bad = Clip("bad", tmp_path / "bad.mp4", "g", 1.0)
    bad.path.write_bytes(b"")
    with serving(lambda body, before: once_two_ask(body, server)) as server:
        found = shared(server.url, tmp_path / "c", [*clips, bad], skip=True)
        assert (len(server.requests), found.asked, list(found.unreadable)) == (4, 4, ["bad"])
        assert texts(shared(server.url, tmp_path / "c", clips)) == texts(found)
        assert len(server.requests) == 4
        with pytest.raises(InputError, match=r"bad.mp4.*empty"):
            shared(server.url, tmp_path / "c", [bad])
        with open_model(ModelConfig(model="m", endpoint=server.url, cache=tmp_path / "d")) as model:
            assert texts(PhiRun(model, CONFIG, "history").describe(clips)) == texts(found)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("cause", "raised", "said"),
    [(signal.SIGKILL, ComputeError, "by signal 9"), (signal.SIGINT, KeyboardInterrupt, None)],
)
def test_the_end_of_one_ends_all(
    tmp_path: Path, clips: list[Clip], cause: signal.Signals, raised: type[BaseException], said: str | None
) -> None:
    others = set(active_children())

    def stop(body: dict[str, Any], before: int) -> Reply:
        if before == 0:  # a worker dies, or Ctrl-C is pressed
            ended = next(iter(set(active_children()) - others)).pid if cause == signal.SIGKILL else os.getpid()
            os.kill(ended or 0, cause)
        return tells(body)

    with serving(stop) as server, pytest.raises(raised, match=said):
        shared(server.url, tmp_path / "c", clips)
    assert set(active_children()) <= others


def alive(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the children of a process are read in /proc")
def test_killed_it_leaves_no_process_and_the_next_run_goes_on(tmp_path: Path, clips: list[Clip]) -> None:
    with serving(tells) as server:
        server.held_from = 1
        command = [sys.executable, "-c", RUN, server.url, str(tmp_path / "c"), str(clips[0].path)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
        server.until(lambda: len(server.requests) >= 3)
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        process.wait()
        assert len(workers) >= 2
        server.until(lambda: not any(alive(int(worker)) for worker in workers))
        server.held_from = math.inf
        server.until(lambda: not server.under_way)
        asked = len(server.requests)
        with open_model(ModelConfig(model="m", endpoint=server.url, cache=tmp_path / "c")) as model:
            found = PhiRun(model, CONFIG, "history").describe(clips)
        assert len(found.descriptions) == 4
        assert len(server.requests) - asked == found.asked <= 3


@pytest.mark.thorough
def test_the_command_on_two_devices_tells_what_it_tells_on_one(
    perceive: Callable[..., dict[str, Any]], film: Any, tmp_path: Path
) -> None:
    film(range(0, 24 * 75, 75), name="tea.mp4")
    row = {"video_id": "tea", "goal": "tea", "history": ["a"], "continuation": ["b"]}
    rows = [row | {"example_id": f"e{n}", "until": 0.5 * n} for n in range(1, 3)]
    write_jsonl(tmp_path / "e", rows)
    frames = ("--set", f"phi.frames.max_pixels={56 * 56}", "--max-tokens", 4)

    def told(output: str, *more: object) -> dict[str, Any]:
        words = ("--examples", tmp_path / "e", "--output", tmp_path / output)
        return perceive(tmp_path, *words, *frames, *more) | {"output": "", "manifest": ""}

    alone = told("alone", "--device", "cpu", "--batch-size", 1)
    assert alone["asked"] == 2
    assert told("shared", "--devices", "cpu,cpu") == alone
    read = [read_histories(tmp_path / name) for name in ("alone", "shared")]
    steps = [{key: history.history for key, history in own.items()} for own in read]
    assert steps[0] == steps[1]
    manifests = [json.loads((tmp_path / f"{name}.manifest.json").read_text()) for name in ("alone", "shared")]
    assert manifests[0] | {"output": ""} == manifests[1] | {"output": ""}
