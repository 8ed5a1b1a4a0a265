"""The reader of NIV on invented files of its layout, and on the real ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import raises_input

from recipe.data.benchmarks import summarise
from recipe.data.niv import corrected, read_niv
from recipe.errors import InputError
from recipe.types import Procedure, Step


def test_videos_come_by_id_with_steps_in_time_order(niv: Path) -> None:
    short, coffee, kite = read_niv(niv)
    steps = (Step("grind coffee", 1.25, 4.0), Step("tamp", 9.5, 11.0), Step("pour coffee", 9.5, 12.0))
    assert coffee == Procedure("niv", "coffee_0102", "making coffee", steps, "train")
    assert kite.steps == (Step("cut tape", 1.0, 2.0), Step("cut tape", 2.0, 3.0))
    assert (kite.goal, kite.split) == ("Patching a kite", "test")
    assert (short.video_id, short.steps) == ("coffee_0007", (Step("grind coffee", 0.0, 0.0),))


def test_whole_words_are_corrected_and_no_others() -> None:
    assert corrected("ressucitation with coffe, then cofee") == "resuscitation with coffee, then coffee"
    assert corrected("coffee decofee Coffe") == "coffee decofee Coffe"


@pytest.mark.parametrize(
    ("change", "field", "facts"),
    [
        ({"task": ""}, ".task", []),
        ({"steps": None}, ".steps", ["None"]),
        ({"steps": [{"action": "tap", "start": 1}]}, ".steps[0].end", ["missing"]),
        ({"steps": [{"action": " ", "start": 1, "end": 2}]}, ".steps[0].action", []),
        ({"steps": [{"action": "tap", "start": -1, "end": 2}]}, ".steps[0].start", ["-1"]),
        ({"steps": [{"action": "tap", "start": 3, "end": 2}]}, ".steps[0]", ["2", "3"]),
    ],
)
def test_another_layout_is_named_by_its_field(niv: Path, change: dict[str, Any], field: str, facts: list[str]) -> None:
    path = niv / "niv_valid.json"
    value = json.loads(path.read_text())
    value["kite_0001"] |= change
    path.write_text(json.dumps(value))
    with raises_input(path, None, f"kite_0001{field}", *facts, "WenliangGuo/SCHEMA"):
        read_niv(niv)


def test_a_video_in_both_files_is_an_error(niv: Path) -> None:
    (niv / "niv_valid.json").write_text((niv / "niv_train.json").read_text())
    with raises_input(niv / "niv_valid.json", None, "coffee_0102", "'train'"):
        read_niv(niv)


def test_the_training_file_may_be_absent_and_the_other_not(niv: Path) -> None:
    (niv / "niv_train.json").unlink()
    assert [(video.video_id, video.split) for video in read_niv(niv)] == [("kite_0001", "test")]
    (niv / "niv_valid.json").unlink()
    with pytest.raises(InputError, match=r"niv_valid\.json: the file does not exist"):
        read_niv(niv)


@pytest.mark.real_data
def test_the_real_files(shared_data: Path) -> None:
    procedures = read_niv(shared_data / "niv")
    assert summarise(procedures) == (148, 1_320, 5, 48, {"train": 103, "test": 45})
    assert sum(len(procedure.steps) for procedure in procedures if procedure.split == "train") == 897
    assert sum(step.start == step.end for procedure in procedures for step in procedure.steps) == 2
    texts = {step.text for procedure in procedures for step in procedure.steps}
    assert {"grind coffee", "pour coffee"} < texts
    assert "perform cardio pulmonary resuscitation" in {procedure.goal for procedure in procedures}
