"""What is absent from a folder of data is left out for all systems alike, counted, and used once it is there."""

import itertools
import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.models.endpoint_server import Reply, completion, serving
from tests.reproduce import conftest
from tests.reproduce.conftest import COUNT, CRITERIA, MICRO, STEPS, benchmarks, identities, read_results, rows
from typer.testing import CliRunner

from recipe.artifacts import read_json
from recipe.cli import app
from recipe.data.examples import read_examples, write_examples
from recipe.errors import InputError
from recipe.progress import SILENT
from recipe.types import Example
from recipe_studies.experiments.study import TEST, TRAIN
from recipe_studies.reproduce.data import (
    ANNOTATED,
    LEFT_OUT,
    PROMPTS,
    HistorySource,
    example_counts,
    require_all_files,
    weak_file,
    write_prompts,
)
from recipe_studies.reproduce.expand import ScaleRuns
from recipe_studies.reproduce.study import PHI, PaperStudy

TABLES = ("main", "weak", "video")


def planned(root: Path, *tables: str) -> ScaleRuns:
    return conftest.planned(PaperStudy(tables=tables or TABLES, scales=("3b",), data=root, seeds=(0,)))


def supervised(root: Path, run: Path) -> None:
    """Run the stages that decide which examples there are."""
    for stage in planned(root).stages:
        if stage.name.removeprefix("video-") in ("data", "supervision", "prompts"):
            stage.work(run / stage.folder, stage.settings, SILENT)


def ids(file: Path) -> list[str]:
    return [example.example_id for example in read_examples(file)]


def jsonl(path: Path, content: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in content))


def perceive(root: Path, run: Path) -> None:
    """Give every test example a history and every training video a timed pseudo-trace, as `recipe perceive` does."""
    tested = read_examples(run / TEST)
    jsonl(root / "histories.jsonl", [{"example_id": e.example_id, "history": ["a"], "until": e.until} for e in tested])
    videos = {(e.source, e.video_id): e for e in read_examples(run / TRAIN)}
    steps = [{"text": f"seen {n}", "start": 10.0 * n, "end": 10.0 * n + 5} for n in range(len(STEPS))]
    traces = [
        {"source": e.source, "video_id": e.video_id, "goal": e.goal, "steps": steps, "split": "train"}
        for e in videos.values()
    ]
    jsonl(root / "traces.jsonl", traces)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A whole folder of data."""
    folder = tmp_path / "data"
    benchmarks(folder)
    supervised(folder, tmp_path / "whole")
    perceive(folder, tmp_path / "whole")
    return folder


def test_the_common_set_is_what_has_every_file(tmp_path: Path) -> None:
    """Every combination of two examples' histories and videos; a third one is of a dataset that is never shown."""
    shown = [Example(f"niv/{v}/1", "niv", v, "make tea", ("boil",), ("pour",), 1, "niv", until=5.0) for v in "ab"]
    unseen = replace(shown[0], example_id="coin/a/1", source="coin", split="coin")
    write_examples(tmp_path / TEST, [*shown, unseen])
    write_examples(tmp_path / TRAIN, [replace(unseen, split="train")])
    videos, histories = tmp_path / "videos", tmp_path / "histories.jsonl"
    videos.mkdir()
    names = [one.example_id for one in (*shown, unseen)]
    for *told, first, second in itertools.product((False, True), repeat=5):
        known = ["another/a/1", *(name for name, one in zip(names, told, strict=True) if one)]
        jsonl(histories, [{"example_id": name, "history": [], "until": 5.0} for name in known])
        for video, there in (("a", first), ("b", second)):
            (videos / f"{video}.mp4").unlink(missing_ok=True)
            if there:
                (videos / f"{video}.mp4").touch()
        wanted = [name for name, ok in zip(names, (told[0] and first, told[1] and second, told[2]), strict=True) if ok]
        for clean in (False, True):
            settings = HistorySource(PHI, histories, clean, videos, ("niv",))
            if not wanted:
                with pytest.raises(InputError, match="none of 3"):
                    write_prompts(tmp_path, settings, SILENT)
                continue
            write_prompts(tmp_path, settings, SILENT)
            assert ids(tmp_path / PROMPTS) == wanted
            left = {row["example_id"]: row["reason"] for row in read_json(tmp_path / LEFT_OUT["test"])["left_out"]}
            assert list(left) == [name for name in names if name not in wanted]
            assert all(
                (left[n] == "video") == (not v) for n, v in zip(names, (first, second), strict=False) if n in left
            )


def test_text_and_video_are_tested_on_the_same_examples_and_train_on_all_that_is_there(
    root: Path, tmp_path: Path
) -> None:
    draw = random.Random(0)
    (root / "histories.jsonl").write_text(
        "".join(
            line for line in (root / "histories.jsonl").read_text().splitlines(keepends=True) if draw.random() > 0.2
        )
    )
    for video in sorted((root / "videos").iterdir()):
        if draw.random() < 0.2:
            video.unlink()
    traces = rows(root / "traces.jsonl")
    for n, trace in enumerate(traces):
        for step in trace["steps"][n % 3 :]:
            step["start"] = step["end"] = None  # the first n % 3 have times
    jsonl(root / "traces.jsonl", traces[1:])
    run = tmp_path / "run"
    supervised(root, run)
    text, video = ids(run / PROMPTS), ids(run / "video" / PROMPTS)
    assert 0 < len(text) < 3 * COUNT
    assert {name for name in text if not name.startswith("coin")} == set(video)
    here = {file.stem for file in (root / "videos").iterdir()}
    known = {row["example_id"] for row in rows(root / "histories.jsonl")}
    assert set(video) == {n for n in ids(run / "video" / TEST) if n in known and n.split("/")[1] in here}
    for folder in (run, run / "video"):
        mixtures = [ids(folder / weak_file(percent)) for percent in (0, 25, 100)]
        assert mixtures[0] == mixtures[1] == mixtures[2]
        assert set(mixtures[0]) < set(ids(folder / ANNOTATED)) <= set(ids(folder / TRAIN))
        assert all(one.until for one in read_examples(run / "video" / weak_file(100)))
        counts = [one for one in example_counts(run) if one.input == ("video" if folder.name == "video" else "text")]
        for role, kept in (("test", PROMPTS), ("training", weak_file(0))):
            own = [one for one in counts if one.role == role]
            assert sum(one.mixed for one in own) == len(ids(folder / kept))
    assert ids(run / ANNOTATED) == ids(run / TRAIN)
    assert {name.split("/")[1] for name in ids(run / "video" / ANNOTATED)} <= here
    with pytest.raises(InputError, match=r"absent\.json.*without a history"):
        require_all_files(run)


def test_a_whole_folder_leaves_nothing_out_and_a_dataset_without_videos_only_of_their_table(
    root: Path, tmp_path: Path
) -> None:
    supervised(root, tmp_path / "run")
    require_all_files(tmp_path / "run")
    assert {reason for one in example_counts(tmp_path / "run") for reason in one.left_out} <= {"cut"}
    for video in (root / "videos").glob("kite*"):
        video.unlink()
    supervised(root, tmp_path / "run")
    assert Counter(name.split("/")[0] for name in ids(tmp_path / "run" / PROMPTS))["niv"] == COUNT
    assert {name.split("/")[0] for name in ids(tmp_path / "run" / "video" / PROMPTS)} == {"crosstask"}


@pytest.mark.thorough
def test_what_comes_back_is_used_and_repeats_no_training_that_it_does_not_touch(root: Path) -> None:
    def marks() -> dict[str, str]:
        return identities(planned(root))

    def changed(path: Path, content: str | None) -> set[str]:
        """Stages that differ while a file has another content, or is away."""
        before, whole = path.read_text(), marks()
        path.unlink() if content is None else path.write_text(content)
        other = marks()
        path.write_text(before)
        assert marks() == whole
        return {name for name, mark in whole.items() if other[name] != mark}

    history = changed(
        root / "histories.jsonl", "".join((root / "histories.jsonl").read_text().splitlines(keepends=True)[1:])
    )
    assert {"prompts", "plans-rl-0", "scores-rl-0", "video-prompts"} <= history
    assert not {"supervision", "grpo-rl-0", "video-supervision"} & history
    tested = changed(root / "videos" / f"cross{COUNT:02}.mp4", None)
    assert {"prompts", "plans-rl-0", "video-prompts"} <= tested
    assert not {"supervision", "video-supervision", "grpo-rl-0"} & tested
    trained = changed(root / "videos" / "cross00.mp4", None)
    assert {"video-supervision", "video-sft-video-sft-0", "video-plans-video-sft-0"} <= trained
    assert not {"prompts", "plans-rl-0", "video-plans-video-base"} & trained


@pytest.mark.thorough
def test_a_study_with_absent_files_ends_and_says_how_many(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    whole = (root / "histories.jsonl").read_text().splitlines(keepends=True)
    kept = random.Random(1).sample(whole, round(0.8 * len(whole)))
    (root / "histories.jsonl").write_text("".join(kept))
    (root / "videos" / f"cross{COUNT:02}.mp4").unlink()

    def answer(body: dict[str, Any], count: int) -> Reply:
        if "top_k" in body:  # as hosted models do
            return Reply(400, json.dumps({"error": {"message": "Unrecognized request argument: top_k"}}))
        judged = "prediction" in json.dumps(body["messages"])
        return completion(json.dumps(dict.fromkeys(CRITERIA, 3)) if judged else "1. pour tea")

    with serving(answer) as server:
        wanted = f"reproduce frontier --regime base --data {root} --scale tiny --seeds 1 --workers 1".split()
        roles = "".join(f'[{name}]\nmodel = "m"\nendpoint = "{server.url}"\n' for name in ("judge", "frontier.asked"))
        (tmp_path / "models.toml").write_text(roles)
        wanted += [*MICRO, "--output", str(tmp_path / "run"), "--models", str(tmp_path / "models.toml"), "--json"]
        strict = CliRunner().invoke(app, [*wanted, "--strict"])
        assert strict.exit_code == 1
        assert isinstance(strict.exception, InputError) or "absent.json" in strict.output
        run = tmp_path / "run" / "tiny"
        assert not (run / "base").exists()
        assert CliRunner().invoke(app, wanted, catch_exceptions=False).exit_code == 0
    left = {row["example_id"] for row in read_json(run / LEFT_OUT["test"])["left_out"]}
    common = {json.loads(line)["example_id"] for line in kept} - left
    assert len(whole) - len(kept) <= len(left) <= len(whole) - len(kept) + 1
    for kind in ("plans", "scores"):
        files = [file for file in (run / kind).iterdir() if file.name != "controls.jsonl"]
        assert {file.stem for file in files} == {"base", "asked"}
        assert all({row["example_id"] for row in rows(file)} == common for file in files)
    assert {row["example_id"] for row in rows(run / "scores" / "controls.jsonl")} <= common
    [scale] = read_results(tmp_path / "run").scales
    assert sum(one.left_out.get("history", 0) + one.left_out.get("video", 0) for one in scale.examples) == len(left)
    [note] = next(one.notes for one in scale.tables if one.name == "frontier")
    assert "top_k" in note
    assert 'id="examples"' in (tmp_path / "run" / "report.html").read_text()
