"""The reader of Ego-Exo4D's key-steps on invented files of their layout."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import raises_input

from recipe.data.egoexo4d import headings, read_egoexo4d
from recipe.errors import InputError
from recipe.types import Procedure, Step


def test_takes_come_by_name_with_the_names_of_steps_in_time_order(egoexo4d: Path) -> None:
    empty, held_out, trained = read_egoexo4d(egoexo4d)
    steps = (Step("Unroll the tail", 0.5, 8.5), Step("Tape the tear", 8.5, 11.0))
    assert trained == Procedure("egoexo4d", "hill_kite_02_1", "Mend a Kite", steps, "train")
    assert (empty.video_id, empty.steps, empty.split) == ("barn_kite_01_1", (), "test")
    assert (held_out.video_id, held_out.split) == ("hill_kite_01_2", "test")


def test_headings_over_steps_are_set_aside(egoexo4d: Path) -> None:
    held_out = read_egoexo4d(egoexo4d)[1]
    assert [step.text for step in held_out.steps] == ["Unroll the tail", "Tape the tear", "Tape the tear"]
    assert headings(egoexo4d) == {"hill_kite_01_2": ("Preparation",)}


def test_a_step_that_no_taxonomy_lists_stays(egoexo4d: Path) -> None:
    path = egoexo4d / "annotations" / "keystep_val.json"
    path.write_text(json.dumps({"annotations": json.loads(path.read_text())["annotations"]}))
    assert [step.text for step in read_egoexo4d(egoexo4d)[1].steps][:2] == ["Unroll the tail", "Preparation"]
    assert headings(egoexo4d) == {}


def test_the_training_file_may_be_absent_and_the_other_not(egoexo4d: Path) -> None:
    (egoexo4d / "annotations" / "keystep_train.json").unlink()
    assert [video.split for video in read_egoexo4d(egoexo4d)] == ["test", "test"]
    (egoexo4d / "annotations" / "keystep_val.json").unlink()
    with pytest.raises(InputError, match=r"keystep_val\.json: the file does not exist"):
        read_egoexo4d(egoexo4d)


@pytest.mark.parametrize(
    ("change", "field", "facts"),
    [
        ({"scenario": " "}, "scenario", []),
        ({"segments": None}, "segments", ["None"]),
        ({"take_name": 4}, "take_name", ["4"]),
        ({"segments": [{"start_time": 1, "end_time": 2, "step_id": 3}]}, "segments[0].step_name", ["missing"]),
        (
            {"segments": [{"start_time": 3, "end_time": 2, "step_id": 3, "step_name": "x"}]},
            "segments[0]",
            ["2", "3"],
        ),
        (
            {"segments": [{"start_time": -1, "end_time": 2, "step_id": 3, "step_name": "x"}]},
            "segments[0].start_time",
            ["-1"],
        ),
    ],
)
def test_another_layout_is_named_by_its_field(
    egoexo4d: Path, change: dict[str, Any], field: str, facts: list[str]
) -> None:
    path = egoexo4d / "annotations" / "keystep_val.json"
    value = json.loads(path.read_text())
    value["annotations"]["uid-barn_kite_01_1"] |= change
    path.write_text(json.dumps(value))
    with raises_input(path, None, f"annotations.uid-barn_kite_01_1.{field}", *facts):
        read_egoexo4d(egoexo4d)


def test_a_take_twice_is_an_error(egoexo4d: Path) -> None:
    files = egoexo4d / "annotations"
    (files / "keystep_val.json").write_text((files / "keystep_train.json").read_text())
    with pytest.raises(InputError, match=r"keystep_val\.json, field .*take_name': take 'hill_kite_02_1' occurs twice"):
        read_egoexo4d(egoexo4d)
