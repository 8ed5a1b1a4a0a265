"""The examination of a folder of benchmarks: every fault is a finding that names a file, and none hides another."""

import json
import shutil
from pathlib import Path

import pytest

from recipe.data.benchmarks import BENCHMARKS
from recipe.data.doctor import Diagnosis, examine
from recipe.errors import InputError
from recipe.types import Procedure


def state_of(root: Path) -> dict[str, str]:
    return {diagnosis.name: diagnosis.state for diagnosis in examine(root).diagnoses}


def of(root: Path, name: str) -> Diagnosis:
    return next(diagnosis for diagnosis in examine(root).diagnoses if diagnosis.name == name)


def test_what_is_there_is_told_in_counts(seven: Path) -> None:
    report = examine(seven)
    assert [diagnosis.name for diagnosis in report.diagnoses] == list(BENCHMARKS)
    assert report.healthy
    assert report.misplaced == ()
    states = state_of(seven)
    assert {name for name in states if states[name] == "partial"} == {"captaincook4d", "egoper"}
    assert {name for name in states if states[name] == "complete"} == set(states) - {"captaincook4d", "egoper"}
    summary = of(seven, "egoexo4d").summary
    assert summary is not None
    assert (summary.videos, summary.segments, summary.splits) == (3, 5, {"train": 1, "test": 2})
    assert of(seven, "egoexo4d").set_aside == 1
    assert [part.path for part in of(seven, "captaincook4d").missing] == ["task_graphs"]
    assert "tea/test.txt" not in [part.path for part in of(seven, "egoper").missing]
    assert "coffee/test.txt" not in [part.path for part in of(seven, "egoper").missing]
    assert len(of(seven, "egoper").missing) == 9


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_needed_part_that_is_missing_breaks_and_is_named(seven: Path, name: str) -> None:
    for part in BENCHMARKS[name].parts:
        path = seven / name / part.path
        if part.needed and path.exists():
            aside = path.rename(seven / "aside")
            diagnosis = of(seven, name)
            if diagnosis.folder is not None:
                assert diagnosis.state == "broken"
                assert part in diagnosis.missing
                assert part.path.rpartition("/")[2] in diagnosis.problem
                assert not examine(seven).healthy
            aside.rename(path)


def test_without_training_videos_zero_shot_tests_still_work(seven: Path) -> None:
    (seven / "niv" / "niv_train.json").unlink()
    diagnosis = of(seven, "niv")
    assert diagnosis.state == "partial"
    assert [part.path for part in diagnosis.missing] == ["niv_train.json"]
    assert diagnosis.summary is not None
    assert diagnosis.summary.splits == {"test": 1}
    assert examine(seven).healthy


def test_a_damaged_task_graph_is_told_beside_the_videos(seven: Path) -> None:
    graphs = seven / "captaincook4d" / "task_graphs"
    graphs.mkdir()
    (graphs / "minttea.json").write_text('{"steps": {"0": "START", "1": "Stir"}, "edges": [[0, 1]]}')
    assert of(seven, "captaincook4d").graphs == 1
    (graphs / "kale.json").write_text('{"steps": {"0": "START"}, "edges": [[0, 5]]}')
    diagnosis = of(seven, "captaincook4d")
    assert (diagnosis.state, diagnosis.graphs) == ("complete", None)
    assert "kale.json, field 'edges[0]': step '5' is not listed" in diagnosis.graph_problem
    assert not examine(seven).healthy


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
    seven: Path, source: str, target: str, belongs_to: str
) -> None:
    (seven / target).parent.mkdir(parents=True, exist_ok=True)
    if (seven / source).is_dir():
        shutil.copytree(seven / source, seven / target)
    else:
        shutil.copy(seven / source, seven / target)
    place = seven / target
    if place.is_dir() and belongs_to == "captaincook4d":
        place = place / "complete_step_annotations.json"
    assert (place, belongs_to) in examine(seven).misplaced


def test_nothing_usable_is_not_healthy(tmp_path: Path) -> None:
    report = examine(tmp_path)
    assert {diagnosis.state for diagnosis in report.diagnoses} == {"absent"}
    assert all(diagnosis.missing == BENCHMARKS[diagnosis.name].parts for diagnosis in report.diagnoses)
    assert not report.healthy


def test_annotated_videos_with_a_file_are_counted(seven: Path) -> None:
    report = examine(seven, lambda video: video.split == "test")
    counts = {diagnosis.name: diagnosis.with_video for diagnosis in report.diagnoses}
    assert counts == {
        "coin": 1,
        "crosstask": 1,
        "captaincook4d": 1,
        "egoprocel": 1,
        "niv": 1,
        "egoexo4d": 2,
        "egoper": 2,
    }


def test_a_video_that_cannot_be_looked_for_is_a_finding(seven: Path) -> None:
    def has_video(video: Procedure) -> bool:
        if video.video_id == "solo":
            raise InputError("more than one file for video 'solo'")
        return True

    coin = next(d for d in examine(seven, has_video).diagnoses if d.name == "coin")
    assert (coin.state, coin.with_video, coin.video_problem) == ("complete", 2, "more than one file for video 'solo'")


def test_what_is_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder does not exist"):
        examine(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="this is a file"):
        examine(tmp_path / "file")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 20_000, b"null", b"[]", b'{"a": 1e999}', b"1" * 5000])
def test_no_content_is_more_than_a_finding(seven: Path, content: bytes) -> None:
    for path in seven.rglob("*.*"):
        if path.is_file():
            path.write_bytes(content)
    report = examine(seven)
    assert {d.state for d in report.diagnoses} <= {"broken", "partial", "complete"}
    assert of(seven, "coin").state == of(seven, "egoper").state == "broken"
    assert json.dumps([diagnosis.problem for diagnosis in report.diagnoses])


@pytest.mark.real_data
def test_the_real_folder_is_healthy(shared_data: Path) -> None:
    report = examine(shared_data)
    assert report.healthy
    assert report.misplaced == ()
    states = {d.name: d.state for d in report.diagnoses if d.state != "absent"}
    assert states == dict.fromkeys(("coin", "crosstask", "captaincook4d", "niv"), "complete")
    assert next(d.graphs for d in report.diagnoses if d.name == "captaincook4d") == 24
