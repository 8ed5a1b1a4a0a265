"""`recipe perceive` as a user meets it: an endpoint on its good and bad days, videos that are there and not."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import MAIN, Recipe, write_lines
from tests.models.endpoint_server import Reply, Server, completion, serving

from recipe.data.examples import read_examples
from recipe.data.histories import read_histories, with_histories
from recipe.data.procedures import read_procedures
from recipe.types import Step

av = pytest.importorskip("av")
pytest.importorskip("openai")

TELL = ("perceive", "--videos", "videos", "--model", "m", "--set", "phi.frames.count=2")
LINES = {
    "early": {"example_id": "e1", "video_id": "tea", "until": 0.5},
    "late": {"example_id": "e2", "video_id": "tea", "until": 1.5},
    "other": {"example_id": "e3", "video_id": "kite", "until": 1.0},
}
COMMON = {"source": "s", "goal": "g", "history": ["a"], "continuation": ["b"], "split": "test"}
PROCEDURES = [
    {"source": "s", "video_id": name, "goal": f"make {name}", "split": "train", "steps": [{"text": "x"}]}
    for name in ("tea", "kite")
]


def film(path: Path, shade: int) -> None:
    """Two seconds in eight frames."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("mpeg4", rate=4)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(8):
            image = np.full((48, 64, 3), shade + number, np.uint8)
            output.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        output.mux(stream.encode(None))


@pytest.fixture
def told(recipe: Recipe) -> Recipe:
    film(recipe.folder / "videos" / "s" / "tea.mp4", 20)
    film(recipe.folder / "videos" / "kite.mkv", 200)
    write_lines(recipe.folder / "cut.jsonl", *(COMMON | line for line in LINES.values()))
    write_lines(recipe.folder / "whole.jsonl", *PROCEDURES)
    return recipe


def tells(body: dict[str, Any], before: int = 0) -> Reply:
    """An answer that depends on what was shown and asked, and on nothing else."""
    parts = body["messages"][0]["content"]
    times = [part["text"] for part in parts if part["type"] == "text"][:-1]
    if "beginning to end" in parts[-1]["text"]:
        return completion(f"1. 00:00 - 00:01 Begin\n2. 00:01 - 00:09 End {parts[-1]['text'].split('make ')[1][:4]}")
    return completion("none" if times[-1] == "[0:00.2]" else "1. Begin\n2. Seen " + " ".join(times))


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def histories(recipe: Recipe, server: Server, *more: object) -> Any:
    return recipe(*TELL, "--examples", "cut.jsonl", "--output", "h.jsonl", "--endpoint", server.url, *more)


def test_histories_are_told_written_and_usable(told: Recipe) -> None:
    priced = ("--json", "--set", "model.price_in=1", "--set", "model.price_out=2")
    with serving(tells) as server:
        outcome = histories(told, server, *priced)
        assert outcome.code == 0, outcome.err
        found = json.loads(outcome.out)
        assert (found["rows"], found["asked"], found["empty"]) == (3, 3, ["e1"])
        assert (found["tokens_in"], found["tokens_out"]) == (300, 30)
        assert found["cost"] == pytest.approx(360e-6)
        before = (told.folder / "h.jsonl").read_bytes(), Path(found["manifest"]).read_bytes()
        assert json.loads(histories(told, server, *priced).out)["asked"] == 0
        assert len(server.requests) == 3
    assert before == ((told.folder / "h.jsonl").read_bytes(), Path(found["manifest"]).read_bytes())
    known = read_histories(told.folder / "h.jsonl")
    assert [(one.history, one.until, one.model, one.tokens_in) for one in known.values()] == [
        ((), 0.5, "m", 100),
        (("Begin", "Seen [0:00.2] [0:01]"), 1.5, "m", 100),
        (("Begin", "Seen [0:00.2] [0:00.8]"), 1.0, "m", 100),
    ]
    assert len(with_histories(read_examples(told.folder / "cut.jsonl"), known)) == 3
    manifest = json.loads(before[1])
    assert manifest["prompt"]["sha256"] == known["e1"].prompt
    assert manifest["frames"]["count"] == 2
    assert manifest["versions"]["recipe-planner"]
    assert "The task is: $goal" in manifest["prompt"]["text"]


def test_tokens_that_an_endpoint_does_not_count_are_no_number(told: Recipe) -> None:
    with serving(lambda body, _: completion("1. Begin", tokens=(0, 0))) as server:
        found = json.loads(histories(told, server, "--json", "--set", "model.price_in=1").out)
    assert (found["tokens_in"], found["tokens_out"], found["cost"]) == (None, None, None)
    manifest = json.loads(Path(found["manifest"]).read_text())
    assert (manifest["tokens_in"], manifest["cost"]) == (None, None)


def test_traces_are_procedures(told: Recipe) -> None:
    with serving(tells) as server:
        words = ("--procedures", "whole.jsonl", "--traces", "t.jsonl", "--endpoint", server.url)
        outcome = told(*TELL, *words)
        assert outcome.code == 0, outcome.err
        assert "2 pseudo-traces in t.jsonl" in outcome.out
    [tea, kite] = read_procedures(told.folder / "t.jsonl").procedures
    assert (tea.source, tea.video_id, tea.goal, tea.split) == ("s", "tea", "make tea", "train")
    assert tea.steps[0] == Step("Begin", 0.0, 1.0)
    assert tea.steps[1].end == pytest.approx(2.0, abs=0.01)
    assert kite.steps[1].text == "End kite"


def test_a_video_without_a_step_gives_no_trace(told: Recipe) -> None:
    with serving(lambda body, before: completion("none") if before == 0 else tells(body)) as server:
        words = ("--procedures", "whole.jsonl", "--traces", "t.jsonl", "--endpoint", server.url)
        outcome = told(*TELL, *words, "--concurrency", 1, "--json")
    found = json.loads(outcome.out)
    assert (found["rows"], found["empty"]) == (1, ["s/tea"])
    assert len(read_procedures(told.folder / "t.jsonl").procedures) == 1
    with serving(lambda body, before: completion("none")) as server:
        words = ("--procedures", "whole.jsonl", "--traces", "nothing.jsonl", "--endpoint", server.url)
        told.refuses(*TELL, *words, because="nothing.jsonl: no step in 2 answers", leaves="nothing.jsonl.cache")


def test_what_is_missing_is_listed_and_left_out_by_option_only(told: Recipe) -> None:
    late = [{"example_id": "e4", "video_id": "gone", "until": 1.0}, {"example_id": "e5", "video_id": "tea"}]
    beyond = {"example_id": "e6", "video_id": "tea", "until": 99.0}
    write_lines(told.folder / "cut.jsonl", *(COMMON | line for line in (*LINES.values(), late[0])))
    with serving(tells) as server:
        words = (*TELL, "--examples", "cut.jsonl", "--output", "h.jsonl", "--endpoint", server.url)
        told.refuses(*words, because="videos: 1 video is missing: s/gone")
        write_lines(told.folder / "cut.jsonl", *(COMMON | line for line in (*LINES.values(), late[1])))
        told.refuses(*words, because="1 of 4 examples do not say where their history ends in the video: e5")
        write_lines(told.folder / "cut.jsonl", *(COMMON | line for line in (*LINES.values(), beyond)))
        told.refuses(*words, because="tea.mp4.*cut point 99.0 s lies beyond the end", leaves="h.jsonl.cache")
        write_lines(told.folder / "cut.jsonl", *(COMMON | line for line in (*LINES.values(), *late, beyond)))
        found = json.loads(told(*words, "--skip-missing", "--skip-bad", "--json").out)
        assert (found["rows"], found["missing"], found["without_time"]) == (3, ["s/gone"], ["e5"])
        assert list(found["unreadable"]) == ["e6"]
        write_lines(told.folder / "cut.jsonl", COMMON | late[0])
        told.refuses(*words, "--skip-missing", because="1 video is missing")
        write_lines(told.folder / "cut.jsonl", COMMON | late[1])
        told.refuses(*words, "--skip-missing", because="no video to show")
        write_lines(told.folder / "cut.jsonl", COMMON | beyond)
        told.refuses(*words, "--skip-bad", because="none of 1 videos can be read", leaves="h.jsonl.cache")


@pytest.mark.parametrize(
    ("reply", "because"),
    [
        (Reply(401, '{"error": {"message": "who are you"}}'), "/v1: the endpoint answers 401: 'who are you'; check"),
        (Reply(500, "oops"), r"/v1: the endpoint answers 500: 'oops' \(2 tries in .* the same command resumes"),
        (Reply(body="<html>sign in</html>", kind="text/html"), "no chat completion: '<html>sign in</html>'"),
    ],
)
def test_an_endpoint_that_fails_is_one_sentence(told: Recipe, reply: Reply, because: str) -> None:
    with serving(lambda body, before: reply) as server:
        words = ("--examples", "cut.jsonl", "--output", "h.jsonl", "--endpoint", server.url, "--set", "model.tries=2")
        told.refuses(*TELL, *words, because=because, leaves="h.jsonl.cache")
    assert not (told.folder / "h.jsonl").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "because"),
    [
        ((), "give either --examples"),
        (("--examples", "cut.jsonl", "--procedures", "whole.jsonl"), "give either --examples"),
        (("--examples", "cut.jsonl"), "--examples goes with --output"),
        (("--examples", "cut.jsonl", "--output", "h", "--traces", "t"), "without --traces"),
        (("--procedures", "whole.jsonl", "--output", "t"), "go with --traces"),
        (("--procedures", "whole.jsonl", "--root", "folder", "--traces", "t"), "exclude each other"),
        (("--procedures", "whole.jsonl", "--split", "val", "--traces", "t"), "no video is in split 'val'"),
        (("--procedures", "empty", "--traces", "t"), "the file is empty"),
        (("--examples", "cut.jsonl", "--output", "folder"), "this is a folder"),
        (("--examples", "cut.jsonl", "--output", "h", "--endpoint", "nowhere"), "no address of HTTP"),
        (("--examples", "cut.jsonl", "--output", "h", "--devices", "cuda:99"), "'cuda:99', and this machine has"),
        (("--examples", "cut.jsonl", "--output", "h", "--device", "cuda:99"), "--device names 'cuda:99', and this"),
        (("--examples", "cut.jsonl", "--output", "h", "--devices", "cpu,nowhere"), "'nowhere', which is no device"),
        (("--examples", "cut.jsonl", "--output", "h", "--devices", "99"), "99 GPUs, and this machine has"),
        (("--examples", "cut.jsonl", "--output", "h", "--devices", "0"), "0 GPUs, and this machine has"),
        (("--examples", "cut.jsonl", "--output", "h", "--devices", ","), "names no device"),
        (("--examples", "cut.jsonl", "--output", "h", "--devices", "cpu", "--endpoint", "http://h"), "exclude each"),
        (("--examples", "cut.jsonl", "--output", "h", "--devices", "cpu", "--max-calls", 3), "exclude each other"),
        (("--examples", "cut.jsonl", "--output", "h", "--endpoint", "http://h", "--key-variable", "NO"), "variable NO"),
    ],
)
def test_wrong_usage(told: Recipe, words: tuple[str, ...], because: str) -> None:
    told.refuses(*TELL, *words, because=because)
    assert not (told.folder / "t").exists()


def test_no_folder_of_videos(told: Recipe) -> None:
    words = ("perceive", "--model", "m", "--examples", "cut.jsonl", "--output", "h", "--videos")
    told.refuses(*words, "nowhere", because="nowhere: the folder does not exist")
    told.refuses(*words, "empty", because="empty: this is a file, not a folder")


@pytest.mark.thorough
def test_killed_at_any_moment_it_goes_on_and_writes_the_same(told: Recipe) -> None:
    many = [COMMON | {"example_id": f"e{n}", "video_id": "tea", "until": 0.5 + 0.1 * n} for n in range(12)]
    write_lines(told.folder / "cut.jsonl", *many)
    with serving(lambda body, before: tells(body)) as server:
        words = [*TELL, "--examples", "cut.jsonl", "--endpoint", server.url, "--concurrency", 2]
        assert told(*words, "--output", "whole.out").code == 0
        before = len(server.requests)
        command = [sys.executable, "-c", MAIN, *map(str, words), "--output", "h.jsonl"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=told.folder)
        server.held_from = before + 5
        server.until(lambda: len(server.requests) >= before + 5)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert not (told.folder / "h.jsonl").exists()
        server.held_from = math.inf
        server.until(lambda: not server.under_way)
        killed = len(server.requests) - before
        assert 5 <= killed < 12
        assert told(*words, "--output", "h.jsonl").code == 0
        assert 12 <= len(server.requests) - before <= 12 + 2  # at most what was under way is asked again
    first, second = rows(told.folder / "whole.out"), rows(told.folder / "h.jsonl")
    assert [row | {"seconds": 0} for row in second] == [row | {"seconds": 0} for row in first]
