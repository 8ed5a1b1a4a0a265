"""The examination of a folder of benchmarks: every fault is a finding that names a file, and none hides another."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.data.conftest import Recipe

from recipe.data.benchmarks import BENCHMARKS

Examine = Callable[..., dict[str, Any]]


@pytest.fixture
def examine(recipe: Recipe) -> Examine:
    """What `recipe data doctor` finds: the benchmarks by name. Its exit code says whether they are healthy."""

    def found(root: Path, *words: object) -> dict[str, Any]:
        code, out, _ = recipe("doctor", root, *words, "--json")
        report: dict[str, Any] = json.loads(out)
        assert code == (0 if report["healthy"] else 1)
        return report | {row["name"]: row for row in report["benchmarks"]}

    return found


def missing(diagnosis: dict[str, Any]) -> list[str]:
    return [part["path"] for part in diagnosis["missing"]]


def test_what_is_there_is_told_in_counts(seven: Path, examine: Examine) -> None:
    report = examine(seven)
    assert [diagnosis["name"] for diagnosis in report["benchmarks"]] == list(BENCHMARKS)
    assert (report["healthy"], report["misplaced"]) == (True, [])
    partial = ("captaincook4d", "egoper")
    assert all(report[name]["state"] == ("partial" if name in partial else "complete") for name in BENCHMARKS)
    counts = report["egoexo4d"]["counts"]
    assert (counts["videos"], counts["segments"], counts["splits"]) == (3, 5, {"train": 1, "test": 2})
    assert report["egoexo4d"]["set_aside"] == 1
    assert missing(report["captaincook4d"]) == ["task_graphs"]
    assert not {"tea/test.txt", "coffee/test.txt"} & set(missing(report["egoper"]))
    assert len(missing(report["egoper"])) == 9


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_needed_part_that_is_missing_breaks_and_is_named(seven: Path, name: str, examine: Examine) -> None:
    for part in BENCHMARKS[name].parts:
        path = seven / name / part.path
        if part.needed and path.exists():
            aside = path.rename(seven / "aside")
            report = examine(seven)
            if report[name]["folder"] is not None:
                assert (report[name]["state"], report["healthy"]) == ("broken", False)
                assert part.path in missing(report[name])
                assert part.path.rpartition("/")[2] in report[name]["problem"]
            aside.rename(path)


def test_without_training_videos_zero_shot_tests_still_work(seven: Path, examine: Examine) -> None:
    (seven / "niv" / "niv_train.json").unlink()
    report = examine(seven)
    assert (report["niv"]["state"], missing(report["niv"])) == ("partial", ["niv_train.json"])
    assert report["niv"]["counts"]["splits"] == {"test": 1}
    assert report["healthy"]


def test_a_damaged_task_graph_is_told_beside_the_videos(seven: Path, examine: Examine) -> None:
    graphs = seven / "captaincook4d" / "task_graphs"
    graphs.mkdir()
    (graphs / "minttea.json").write_text('{"steps": {"0": "START", "1": "Stir"}, "edges": [[0, 1]]}')
    assert examine(seven)["captaincook4d"]["task_graphs"] == 1
    (graphs / "kale.json").write_text('{"steps": {"0": "START"}, "edges": [[0, 5]]}')
    report = examine(seven)
    diagnosis = report["captaincook4d"]
    assert (diagnosis["state"], diagnosis["task_graphs"], report["healthy"]) == ("complete", None, False)
    assert "kale.json, field 'edges[0]': step '5' is not listed" in diagnosis["graph_problem"]


@pytest.mark.parametrize(
    ("source", "target", "belongs_to"),
    [
        ("coin/COIN.json", "niv/COIN.json", "coin"),
        ("coin/COIN.json", "niv/niv_valid.json", "coin"),
        ("captaincook4d/annotation_json", "coin/annotation_json", "captaincook4d"),
        ("niv/niv_valid.json", "egoper/annotation.json", "niv"),
        ("egoexo4d/annotations/keystep_val.json", "coin/keystep_val.json", "egoexo4d"),
        ("egoexo4d/annotations/keystep_val.json", "keystep_val.json", "egoexo4d"),
        ("egoper/annotation.json", "egoexo4d/annotations/keystep_val.json", "egoper"),
        ("crosstask/crosstask_release", "coin/crosstask_release", "crosstask"),
        ("egoprocel/annotations/MECCANO", "crosstask/annotations/MECCANO", "egoprocel"),
        ("coin/COIN.json", "COIN-annotations/COIN.json", "coin"),
    ],
)
def test_what_lies_in_a_wrong_place_is_named_for_what_it_is(
    seven: Path, source: str, target: str, belongs_to: str, examine: Examine
) -> None:
    place = seven / target
    place.parent.mkdir(parents=True, exist_ok=True)
    (shutil.copytree if (seven / source).is_dir() else shutil.copy)(seven / source, place)
    if place.is_dir() and belongs_to == "captaincook4d":
        place = place / "complete_step_annotations.json"
    assert {"path": str(place), "belongs_to": belongs_to} in examine(seven)["misplaced"]


def test_nothing_usable_is_not_healthy(tmp_path: Path, examine: Examine) -> None:
    report = examine(tmp_path)
    assert not report["healthy"]
    for name, benchmark in BENCHMARKS.items():
        assert report[name]["state"] == "absent"
        assert missing(report[name]) == [part.path for part in benchmark.parts]


def test_a_video_that_cannot_be_looked_for_is_a_finding(seven: Path, tmp_path: Path, examine: Examine) -> None:
    (tmp_path / "videos").mkdir()
    for name in ("zeta.mp4", "-a_b.mp4", "solo.mp4", "solo.webm"):
        (tmp_path / "videos" / name).write_bytes(b"film")
    coin = examine(seven, "--videos", tmp_path / "videos")["coin"]
    assert (coin["state"], coin["with_video"]) == ("complete", 2)
    assert "more than one file for video 'solo'" in coin["video_problem"]


def test_what_is_no_folder_is_an_error(tmp_path: Path, recipe: Recipe) -> None:
    (tmp_path / "file").write_text("")
    for name, problem in (("nowhere", "the folder does not exist"), ("file", "this is a file")):
        code, _, error = recipe("doctor", tmp_path / name)
        assert (code, problem in error) == (1, True)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 20_000, b"null", b"[]", b'{"a": 1e999}', b"1" * 5000])
def test_no_content_is_more_than_a_finding(seven: Path, content: bytes, examine: Examine) -> None:
    for path in seven.rglob("*.*"):
        if path.is_file():
            path.write_bytes(content)
    report = examine(seven)
    assert {report[name]["state"] for name in BENCHMARKS} <= {"broken", "partial", "complete"}
    assert report["coin"]["state"] == report["egoper"]["state"] == "broken"


@pytest.mark.real_data
def test_the_real_folder_is_healthy(shared_data: Path, examine: Examine) -> None:
    report = examine(shared_data)
    assert (report["healthy"], report["misplaced"]) == (True, [])
    states = {row["name"]: row["state"] for row in report["benchmarks"] if row["state"] != "absent"}
    assert states == dict.fromkeys(("coin", "crosstask", "captaincook4d", "niv"), "complete")
    assert report["captaincook4d"]["task_graphs"] == 24
