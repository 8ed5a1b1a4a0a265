"""`recipe plan` from videos, in both configurations, on a model of random weights."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Recipe

from recipe.data.examples import write_examples
from recipe.data.histories import History, write_histories
from recipe.errors import printable
from recipe.planning.prediction_files import read_predictions
from recipe.types import Example

av = pytest.importorskip("av")
HOLE = ("--goal", "dig a hole")


def planning(model: Path, tokens: int, *words: object) -> tuple[object, ...]:
    """`recipe plan` with a model whose plans end after so many tokens."""
    return ("plan", "--model", model, "--set", f"sampling.max_tokens={tokens}", *words)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four seconds that begin black and brighten."""
    path = tmp_path_factory.mktemp("clips") / "v1.mp4"
    with av.open(path, "w") as file:
        stream = file.add_stream("mpeg4", rate=4)
        stream.width = stream.height = 56
        stream.pix_fmt = "yuv420p"
        for index in range(16):
            picture = np.full((56, 56, 3), 16 * index, np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture)))
        file.mux(stream.encode())
    return path


@pytest.fixture
def examples(tmp_path: Path) -> list[Example]:
    one = Example("e1", "toy", "v1", "dig a hole", ("boil",), ("dig",), 1, until=2.0)
    rows = [one, replace(one, example_id="e2", video_id="v2")]
    write_examples(tmp_path / "examples.jsonl", rows)
    return rows


def test_a_video_is_planned_from_as_far_as_it_may_be_seen(recipe: Recipe, tiny_video_model: Path, clip: Path) -> None:
    asked = planning(tiny_video_model, 12, "--video", clip, *HOLE)
    plans = {}
    for until in ("00:01", "1", "3.5", ""):
        plans[until] = recipe.json(*asked, *(("--until", until) if until else ()))["plans"]
    assert plans["00:01"] == plans["1"]
    assert plans["1"] != plans["3.5"]


@pytest.mark.thorough
def test_a_single_plan_is_streamed_as_it_would_be_sampled(recipe: Recipe, tiny_video_model: Path, clip: Path) -> None:
    asked = planning(tiny_video_model, 12, "--video", clip, *HOLE)
    streamed = recipe(*asked).out
    sampled = recipe.json(*asked)["plans"][0]["steps"]
    written = " ".join(f"{number}. {printable(step)}" for number, step in enumerate(sampled, start=1))
    assert streamed.split() == written.split() or not sampled


def test_a_planner_that_reads_is_told_the_video_by_phi(recipe: Recipe, tiny_video_model: Path, clip: Path) -> None:
    asked = planning(tiny_video_model, 8, "--video", clip, *HOLE)
    pytest.importorskip("openai")
    from tests.models.endpoint_server import completion, serving

    with serving(lambda *_: completion("<think>1. run</think>1. boil\n2. dig")) as server:
        found = recipe.json(*asked, "--set", "plan.phi=m", "--set", f"plan.phi_endpoint={server.url}")
    assert found["history"] == ["boil", "dig"]
    told = [word for step in found["history"] for word in ("--history", step)]
    again = recipe.json(*planning(tiny_video_model, 8, *HOLE, *told))
    assert again["plans"] == found["plans"]


def test_a_file_is_planned_from_its_videos_and_what_is_missing_is_listed(
    recipe: Recipe, tiny_video_model: Path, clip: Path, examples: list[Example], tmp_path: Path
) -> None:
    output = tmp_path / "predictions.jsonl"
    asked = planning(tiny_video_model, 8, "--examples", tmp_path / "examples.jsonl", "--output", output)
    asked += ("--videos", clip.parent)
    code, _, err = recipe(*asked)
    assert (code, "toy/v2" in err, output.exists()) == (1, True, False)
    assert recipe.json(*asked, "--set", "plan.skip_missing=true")["missing"] == ["toy/v2"]
    assert [one.example_id for one in read_predictions(output)] == ["e1"]


def test_a_file_is_planned_from_what_phi_told(
    recipe: Recipe, tiny_video_model: Path, examples: list[Example], tmp_path: Path
) -> None:
    told = [History(one.example_id, ("dig", "boil"), until=one.until) for one in examples]
    write_histories(tmp_path / "histories.jsonl", told)
    asked = planning(tiny_video_model, 8, "--examples", tmp_path / "examples.jsonl")
    asked += ("--histories", tmp_path / "histories.jsonl")
    recipe.json(*asked, "--output", tmp_path / "p.jsonl")
    words = planning(tiny_video_model, 8, *HOLE, "--history", "dig", "--history", "boil")
    [plan] = recipe.json(*words)["plans"]
    assert list(read_predictions(tmp_path / "p.jsonl")[0].steps) == plan["steps"]
    write_histories(tmp_path / "histories.jsonl", told[:1])
    code, _, err = recipe(*asked, "--output", tmp_path / "q.jsonl")
    assert (code, "e2" in err) == (1, True)
    printed = recipe.json(*asked, "--output", tmp_path / "q.jsonl", "--set", "plan.skip_missing=true")
    assert (printed["missing"], printed["predictions"]) == (["e2"], 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--goal", "x", "--until", "00:41"), "--until and plan.phi go with --video"),
        (("--goal", "x", "--video", "none.mp4"), "none.mp4: the file does not exist"),
        (("--goal", "x", "--video", "CLIP", "--until", "0:75"), "--until '0:75' is no time"),
        (("--goal", "x", "--video", "CLIP", "--until", "9:00"), "cut point"),
        (("--goal", "x", "--video", "CLIP", "--history", "y"), "--history and --video exclude each other"),
        (("--video", "CLIP"), "the goal is empty"),
        (("--goal", "x", "--videos", "."), "go with --examples"),
        (("--examples", "EXAMPLES", "--output", "p", "--videos", ".", "--histories", "h"), "exclude each other"),
        (
            ("--examples", "EXAMPLES", "--output", "p", "--set", "plan.skip_missing=true"),
            "plan.skip_missing goes with --videos",
        ),
        (
            ("--examples", "EXAMPLES", "--output", "p", "--set", "plan.skip_missing=true", "--videos", "EMPTY"),
            "2 videos are missing",
        ),
    ],
)
def test_wrong_usage_is_one_clear_sentence(
    recipe: Recipe,
    arguments: tuple[str, ...],
    message: str,
    tiny_video_model: Path,
    clip: Path,
    examples: list[Example],
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"CLIP": clip, "EXAMPLES": tmp_path / "examples.jsonl", "EMPTY": tmp_path / "empty"}
    code, out, err = recipe("plan", "--model", tiny_video_model, *(places.get(word, word) for word in arguments))
    assert (code, out) == (1, "")
    assert message in err


def test_a_planner_that_cannot_see_says_what_helps(recipe: Recipe, tiny_model: Path, clip: Path) -> None:
    code, _, err = recipe("plan", "--model", tiny_model, "--video", clip, "--goal", "w1")
    assert code == 1
    assert "plan.phi" in err


@pytest.mark.real_data
def test_real_clips_go_through_both_planners(
    recipe: Recipe, tiny_video_model: Path, shared_data: Path, tmp_path: Path
) -> None:
    for name in ("cooking", "making_cake", "wood_board"):
        video = shutil.copy(shared_data / "videos" / f"{name}.mp4", tmp_path)
        asked = ("plan", "--model", tiny_video_model, "--video", video, "--until", 5, "--goal", "cook",
                 "--set", "sampling.max_tokens=6", "--set", "frames.fps=1")  # fmt: skip
        for phi in ((), ("--set", f"plan.phi={tiny_video_model}", "--set", "frames.max_pixels=3136")):
            assert recipe.json(*asked, *phi)["plans"]


def test_an_endpoint_plans_and_tells(recipe: Recipe, clip: Path) -> None:
    pytest.importorskip("openai")
    from tests.models.endpoint_server import completion, serving

    def answer(body: dict[str, Any], before: int) -> Any:
        shows = isinstance(body["messages"][-1]["content"], list)
        return completion("1. boil the water" if shows else "1. steep the tea\n2. serve it")

    with serving(answer) as server:
        asked = ("plan", "--model", "m", "--endpoint", server.url, "--video", clip, "--goal", "make tea")
        printed = recipe.json(*asked, "--set", "plan.phi=p", "--set", f"plan.phi_endpoint={server.url}")
        assert printed["history"] == ["boil the water"]
        [plan] = printed["plans"]
        assert (plan["sample"], plan["steps"], "malformed" in plan) == (0, ["steep the tea", "serve it"], False)
        code, out, _ = recipe(*asked, "--set", "plan.phi=p", "--set", f"plan.phi_endpoint={server.url}")
        assert (code, out.splitlines()) == (0, ["1. steep the tea", "2. serve it"])
        code, out, _ = recipe(*asked)
        assert (code, out.splitlines()) == (0, ["1. boil the water"])
    code, _, err = recipe("plan", "--model", "m", "--goal", "x", "--set", "plan.phi_endpoint=http://localhost:1/v1")
    assert (code, "the endpoint of Phi goes with its model" in err) == (1, True)


def test_plans_of_examples_are_resumed_and_replayed(recipe: Recipe, examples: list[Example], tmp_path: Path) -> None:
    pytest.importorskip("openai")
    from tests.models.endpoint_server import completion, serving

    write_examples(tmp_path / "examples.jsonl", [examples[0], replace(examples[1], goal="dig a pit")])
    with serving(lambda body, before: completion("1. dig\n2. rest")) as server:
        asked = ("plan", "--model", "m", "--endpoint", server.url, "--examples", tmp_path / "examples.jsonl")
        words = (*asked, "--count", 2, "--output", tmp_path / "p.jsonl")
        code, _, err = recipe(*words, "--set", "model.max_calls=3")
        assert (code, "3 of 3 calls" in err, (tmp_path / "p.jsonl").exists()) == (1, True, False)
        assert recipe(*words)[0] == 0
        before = read_predictions(tmp_path / "p.jsonl")
        assert len(server.requests) == len(before) == 4
        assert recipe(*words, "--set", "model.replay=true")[0] == 0
        assert read_predictions(tmp_path / "p.jsonl") == before
        code, _, err = recipe(*words, "--set", "model.replay=true", "--set", "sampling.seed=1")
        assert (code, "0 of 1 completions are recorded" in err, len(server.requests)) == (1, True, 4)
